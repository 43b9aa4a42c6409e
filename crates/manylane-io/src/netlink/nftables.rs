//! The nftables chains that packets traverse, and the rules that need connection tracking (nft(8),
//! linux/netfilter/nf_tables.h).
//!
//! [`chains`] reads only as much as shows whether a routed packet meets a rule, not what the rule does;
//! [`ruleset`](ruleset::ruleset) reads all of it. A query loads the kernel's nftables module, as nft(8) does; a kernel
//! without it has no chains.

pub mod expression;
mod flow_table;
mod notices;
pub mod ruleset;
pub mod set;
pub mod trace;
mod tracking;

use std::fmt;

use super::NetlinkError;
use super::plain::{Plain, attribute, attributes, big_u32, text};
use super::socket::{Refusal, Socket};

pub use flow_table::{FlowTable, flow_tables};
pub use notices::{Announced, RuleNotices, SetName, notices};
use trace::is_of_a_trace;
use tracking::{tracking_rule, undecided};

/// The packets that a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableFamily {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Packets that enter or leave by a device.
    Netdev,
    /// Packets that a bridge forwards.
    Bridge,
    /// ARP.
    Arp,
}

impl TableFamily {
    fn of(number: u8) -> Option<TableFamily> {
        Some(match number {
            1 => TableFamily::Inet,
            2 => TableFamily::Ip,
            3 => TableFamily::Arp,
            5 => TableFamily::Netdev,
            7 => TableFamily::Bridge,
            10 => TableFamily::Ip6,
            _ => return None,
        })
    }

    /// The family's number in netlink (`NFPROTO_*`).
    fn number(self) -> u8 {
        match self {
            TableFamily::Inet => 1,
            TableFamily::Ip => 2,
            TableFamily::Arp => 3,
            TableFamily::Netdev => 5,
            TableFamily::Bridge => 7,
            TableFamily::Ip6 => 10,
        }
    }

    /// The family's name in nft(8).
    pub fn name(self) -> &'static str {
        match self {
            TableFamily::Inet => "inet",
            TableFamily::Ip => "ip",
            TableFamily::Ip6 => "ip6",
            TableFamily::Netdev => "netdev",
            TableFamily::Bridge => "bridge",
            TableFamily::Arp => "arp",
        }
    }
}

impl fmt::Display for TableFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The stage of packet processing at which a chain is hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Before routing.
    Prerouting,
    /// Delivered to this host.
    Input,
    /// Forwarded between devices.
    Forward,
    /// Sent by this host.
    Output,
    /// Last before the egress device.
    Postrouting,
    /// First behind the ingress device.
    Ingress,
    /// Last before the egress device, for all protocols.
    Egress,
}

impl Hook {
    fn of(family: TableFamily, number: u32) -> Option<Hook> {
        Some(match (family, number) {
            (TableFamily::Netdev, 0) | (TableFamily::Inet, 5) => Hook::Ingress,
            (TableFamily::Netdev, 1) => Hook::Egress,
            (TableFamily::Arp, 0) => Hook::Input,
            (TableFamily::Arp, 1) => Hook::Output,
            (TableFamily::Netdev | TableFamily::Arp, _) => return None,
            (_, 0) => Hook::Prerouting,
            (_, 1) => Hook::Input,
            (_, 2) => Hook::Forward,
            (_, 3) => Hook::Output,
            (_, 4) => Hook::Postrouting,
            _ => return None,
        })
    }

    /// The hook's name in nft(8).
    pub fn name(self) -> &'static str {
        match self {
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
            Hook::Ingress => "ingress",
            Hook::Egress => "egress",
        }
    }
}

/// An nftables chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The family of its table.
    pub family: TableFamily,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Its hook; `None` for a chain that only other chains jump to.
    pub base: Option<Base>,
    /// The number of rules in it, and for a chain that is no base chain, of jumps to it.
    pub uses: u32,
    /// The number of rules in it that need connection tracking or translate addresses. Not counted, and 0, where the
    /// routed packets of each family concerned traverse a busy chain anyway.
    pub tracking_rules: u32,
    /// Its table is switched off (`dormant`).
    pub is_dormant: bool,
    /// Only the program with this netlink port, usually its process id, may change the table.
    pub owner: Option<u32>,
}

impl Chain {
    /// Whether it affects packets: it has rules, or a policy that drops packets.
    pub fn is_busy(&self) -> bool {
        let drops = self.base.as_ref().is_some_and(|base| base.drops);
        !self.is_dormant && (self.uses > 0 || drops)
    }

    /// Whether all routed packets of its family traverse it.
    pub fn is_on_the_way(&self) -> bool {
        use TableFamily::{Inet, Ip, Ip6};
        let is_there =
            |base: &Base| matches!(base.hook, Hook::Prerouting | Hook::Forward | Hook::Postrouting);
        matches!(self.family, Inet | Ip | Ip6) && self.base.as_ref().is_some_and(is_there)
    }
}

/// The hook of a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The stage.
    pub hook: Hook,
    /// Its priority among the chains of that stage.
    pub priority: i32,
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// The policy drops packets that no rule decides.
    pub drops: bool,
    /// For ingress and egress: the devices. A name that ends in `*` is a prefix.
    pub devices: Vec<String>,
}

impl Base {
    /// Whether it is hooked at this device.
    pub fn is_at(&self, device: &str) -> bool {
        self.devices.iter().any(|name| match name.strip_suffix('*') {
            Some(beginning) => device.starts_with(beginning),
            None => name == device,
        })
    }
}

/// Reads the chains of the calling thread's network namespace.
pub fn chains() -> Result<Vec<Chain>, NetlinkError> {
    look("read the chains of nftables", read)
}

/// What `read` reads; nothing where the kernel has no nftables. `step` names it, as in "cannot {step}".
fn look<T: Default>(
    step: &str,
    read: impl FnOnce(&mut Socket) -> Result<T, Refusal>,
) -> Result<T, NetlinkError> {
    let mut socket = match Socket::open_protocol(libc::NETLINK_NETFILTER) {
        Ok(socket) => socket,
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {
            return Ok(T::default());
        }
        Err(source) => return Err(NetlinkError::Unavailable { source }),
    };
    match read(&mut socket) {
        // nfnetlink has no such subsystem.
        Err(Refusal { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            Ok(T::default())
        }
        other => other.map_err(|refusal| NetlinkError::refused(step.into(), refusal)),
    }
}

fn read(socket: &mut Socket) -> Result<Vec<Chain>, Refusal> {
    let all = |message| Plain::list(NFNL_SUBSYS_NFTABLES << 8 | message, &NFGENMSG_OF_ALL);
    let mut tables = all(NFT_MSG_GETTABLE).collect(socket, table)?;
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let mut chains = all(NFT_MSG_GETCHAIN).collect(socket, chain)?;
    for table in tables.extract_if(.., |table| is_of_a_trace(table)) {
        chains.retain(|chain| chain.family != table.family || chain.table != table.name);
    }
    for chain in &mut chains {
        let is_its = |table: &&Table| table.family == chain.family && table.name == chain.table;
        if let Some(table) = tables.iter().find(is_its) {
            (chain.is_dormant, chain.owner) = (table.is_dormant, table.owner);
        }
    }
    // Reading 20,000 rules takes a third of a second: only where they decide.
    let mut tracking = Vec::new();
    for family in undecided(&tables, &chains) {
        let of_family = [family.number(), 0, 0, 0];
        let rules = Plain::list(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETRULE, &of_family);
        tracking.extend(rules.collect(socket, tracking_rule)?);
    }
    for chain in &mut chains {
        let place = (chain.family, chain.table.as_str(), chain.name.as_str());
        let is_in_it = |(family, table, name): &&(TableFamily, String, String)| {
            (*family, table.as_str(), name.as_str()) == place
        };
        chain.tracking_rules = tracking.iter().filter(is_in_it).count() as u32;
    }
    Ok(chains)
}

struct Table {
    family: TableFamily,
    name: String,
    is_dormant: bool,
    owner: Option<u32>,
}

/// The family in `struct nfgenmsg`, and the attributes behind it.
fn open(bytes: &[u8]) -> Option<(TableFamily, &[u8])> {
    Some((TableFamily::of(*bytes.first()?)?, bytes.get(NFGENMSG_OF_ALL.len()..)?))
}

fn table(bytes: &[u8]) -> Option<Table> {
    let (family, bytes) = open(bytes)?;
    let flags = attribute(bytes, NFTA_TABLE_FLAGS).and_then(big_u32).unwrap_or(0);
    Some(Table {
        family,
        name: text(attribute(bytes, NFTA_TABLE_NAME)?),
        is_dormant: flags & NFT_TABLE_F_DORMANT != 0,
        owner: attribute(bytes, NFTA_TABLE_OWNER).and_then(big_u32),
    })
}

fn chain(bytes: &[u8]) -> Option<Chain> {
    let (family, bytes) = open(bytes)?;
    Some(Chain {
        family,
        table: text(attribute(bytes, NFTA_CHAIN_TABLE)?),
        name: text(attribute(bytes, NFTA_CHAIN_NAME)?),
        base: base(family, bytes),
        uses: attribute(bytes, NFTA_CHAIN_USE).and_then(big_u32).unwrap_or(0),
        tracking_rules: 0,
        is_dormant: false,
        owner: None,
    })
}

fn base(family: TableFamily, bytes: &[u8]) -> Option<Base> {
    let hook = attribute(bytes, NFTA_CHAIN_HOOK)?;
    let several = attribute(hook, NFTA_HOOK_DEVS).unwrap_or_default();
    let listed = attributes(several).filter_map(|(kind, name)| match kind {
        NFTA_DEVICE_NAME => Some(text(name)),
        NFTA_DEVICE_PREFIX => Some(text(name) + "*"),
        _ => None,
    });
    // A single device is reported in both forms.
    let mut devices: Vec<_> = listed.collect();
    if let (true, Some(one)) = (devices.is_empty(), attribute(hook, NFTA_HOOK_DEV)) {
        devices.push(text(one));
    }
    Some(Base {
        hook: Hook::of(family, attribute(hook, NFTA_HOOK_HOOKNUM).and_then(big_u32)?)?,
        priority: attribute(hook, NFTA_HOOK_PRIORITY).and_then(big_u32).unwrap_or(0) as i32,
        kind: attribute(bytes, NFTA_CHAIN_TYPE).map(text).unwrap_or_default(),
        drops: attribute(bytes, NFTA_CHAIN_POLICY).and_then(big_u32) == Some(NF_DROP),
        devices,
    })
}

/// `struct nfgenmsg`: all families, version 0.
const NFGENMSG_OF_ALL: [u8; 4] = [0; 4];
const NFNL_SUBSYS_NFTABLES: u16 = 10;
// linux/netfilter/nf_tables.h.
const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_GETCHAIN: u16 = 4;
const NFT_MSG_GETRULE: u16 = 7;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFTA_TABLE_OWNER: u16 = 7;
const NFT_TABLE_F_DORMANT: u32 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
const NFTA_DEVICE_NAME: u16 = 1;
/// Since Linux 6.18.
const NFTA_DEVICE_PREFIX: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NF_DROP: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::plain::tests::put;

    fn message(family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        [vec![family, 0, 0, 0], attributes.concat()].concat()
    }

    fn hook(number: u32, more: &[Vec<u8>]) -> Vec<u8> {
        let parts = [
            put(NFTA_HOOK_HOOKNUM, &number.to_be_bytes()),
            put(NFTA_HOOK_PRIORITY, &(-100i32).to_be_bytes()),
            more.concat(),
        ];
        put(NFTA_CHAIN_HOOK | 0x8000, &parts.concat())
    }

    #[test]
    fn a_base_chain_is_read_with_hook_policy_and_rules() {
        let bytes = message(
            1,
            &[
                put(NFTA_CHAIN_TABLE, b"filter\0"),
                put(NFTA_CHAIN_NAME, b"forward\0"),
                hook(2, &[]),
                put(NFTA_CHAIN_POLICY, &NF_DROP.to_be_bytes()),
                put(NFTA_CHAIN_TYPE, b"filter\0"),
                put(NFTA_CHAIN_USE, &3u32.to_be_bytes()),
            ],
        );
        let read = chain(&bytes).expect("it is whole");
        assert_eq!((read.family, read.table.as_str(), read.uses), (TableFamily::Inet, "filter", 3));
        let base = read.base.expect("it has a hook");
        assert_eq!((base.hook, base.priority, base.drops), (Hook::Forward, -100, true));
        for length in 0..bytes.len() {
            let _ = chain(&bytes[..length]); // Cut anywhere: less, and no panic.
        }
    }

    #[test]
    fn devices_are_reported_in_three_forms() {
        let names = |more: &[Vec<u8>]| {
            let bytes = message(
                5,
                &[put(NFTA_CHAIN_TABLE, b"t"), put(NFTA_CHAIN_NAME, b"c"), hook(0, more)],
            );
            chain(&bytes).and_then(|chain| chain.base).expect("it has a hook")
        };
        let one = names(&[put(NFTA_HOOK_DEV, b"eth0\0")]);
        assert!(one.hook == Hook::Ingress && one.is_at("eth0") && !one.is_at("eth01"));
        let list = [put(NFTA_DEVICE_NAME, b"a\0"), put(NFTA_DEVICE_PREFIX, b"veth\0")].concat();
        let several = names(&[put(NFTA_HOOK_DEV, b"a\0"), put(NFTA_HOOK_DEVS, &list)]);
        assert_eq!(several.devices, ["a", "veth*"]);
        assert!(several.is_at("veth7") && several.is_at("a") && !several.is_at("eth0"));
    }
}
