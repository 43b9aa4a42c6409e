//! A whole ruleset: what [`chains`](super::chains) counts, here with every rule, expression, set and element.

use super::expression::{Expression, expression};
use super::set::{Described, Set, described, fill};
use super::trace::is_of_a_trace;
use super::{
    Base, NFGENMSG_OF_ALL, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETCHAIN, NFT_MSG_GETRULE,
    NFT_MSG_GETTABLE, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE, TableFamily, chain,
    open, table,
};
use crate::netlink::NetlinkError;
use crate::netlink::plain::{Plain, attribute, attributes, big_u32, text};
use crate::netlink::socket::{Refusal, Socket};

/// The tables of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// In the order in which the kernel lists them.
    pub tables: Vec<RuleTable>,
}

/// A table with its chains and sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleTable {
    /// Its family.
    pub family: TableFamily,
    /// Its name.
    pub name: String,
    /// Whether the table is switched off.
    pub is_dormant: bool,
    /// Whether the table is one of legacy iptables. Its rules have numbers in place of handles.
    pub is_legacy: bool,
    /// Its chains.
    pub chains: Vec<RuleChain>,
    /// Its sets and maps.
    pub sets: Vec<Set>,
}

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChain {
    /// Its name.
    pub name: String,
    /// Its hook, if it is a base chain.
    pub base: Option<Base>,
    /// In order.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its handle, or in a legacy table its number in its chain.
    pub handle: u64,
    /// In order.
    pub expressions: Vec<Expression>,
}

/// Reads the ruleset of the calling thread's network namespace: one state of it, that of one generation. A kernel
/// without nftables has an empty one. Legacy tables are not among it: see [`ruleset`](crate::iptables::ruleset).
pub fn ruleset() -> Result<Ruleset, NetlinkError> {
    let mut socket = match Socket::open_protocol(libc::NETLINK_NETFILTER) {
        Ok(socket) => socket,
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {
            return Ok(Ruleset::default());
        }
        Err(source) => return Err(NetlinkError::Unavailable { source }),
    };
    let refused = |refusal| NetlinkError::refused("read the rules of nftables".into(), refusal);
    for _ in 0..TRIES_MAX {
        let before = match generation(&mut socket) {
            // nfnetlink has no such subsystem.
            Err(Refusal { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                return Ok(Ruleset::default());
            }
            other => other.map_err(refused)?,
        };
        let read = read(&mut socket);
        // Each dump is of one state; all of them are of the same one if nothing was committed meanwhile.
        let after = generation(&mut socket).map_err(refused)?;
        if before == after {
            return Ok(Ruleset { tables: read.map_err(refused)? });
        }
    }
    let source = std::io::Error::other("the rules change too fast to read");
    Err(refused(source.into()))
}

fn generation(socket: &mut Socket) -> Result<u32, Refusal> {
    let request = Plain::one(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN, &NFGENMSG_OF_ALL);
    socket.query(&request, |bytes| attribute(bytes.get(4..)?, NFTA_GEN_ID).and_then(big_u32))
}

fn read(socket: &mut Socket) -> Result<Vec<RuleTable>, Refusal> {
    let all = |message| Plain::list(NFNL_SUBSYS_NFTABLES << 8 | message, &NFGENMSG_OF_ALL);
    let mut tables: Vec<_> = all(NFT_MSG_GETTABLE)
        .collect(socket, table)?
        .into_iter()
        .filter(|table| !is_of_a_trace(table))
        .map(|table| RuleTable {
            family: table.family,
            name: table.name,
            is_dormant: table.is_dormant,
            is_legacy: false,
            chains: Vec::new(),
            sets: Vec::new(),
        })
        .collect();
    if tables.is_empty() {
        return Ok(tables);
    }
    for chain in all(NFT_MSG_GETCHAIN).collect(socket, chain)? {
        if let Some(table) = find(&mut tables, chain.family, &chain.table) {
            table.chains.push(RuleChain { name: chain.name, base: chain.base, rules: Vec::new() });
        }
    }
    for placed in all(NFT_MSG_GETRULE).collect(socket, rule)? {
        let chains = find(&mut tables, placed.family, &placed.table).map(|table| &mut table.chains);
        let chain =
            chains.and_then(|chains| chains.iter_mut().find(|one| one.name == placed.chain));
        if let Some(chain) = chain {
            chain.rules.push(placed.rule);
        }
    }
    for mut found in all(NFT_MSG_GETSET).collect(socket, described)? {
        fill(socket, &mut found)?;
        let Described { family, table, set, .. } = found;
        if let Some(table) = find(&mut tables, family, &table) {
            table.sets.push(set);
        }
    }
    Ok(tables)
}

fn find<'t>(
    tables: &'t mut [RuleTable],
    family: TableFamily,
    name: &str,
) -> Option<&'t mut RuleTable> {
    tables.iter_mut().find(|table| table.family == family && table.name == name)
}

struct Placed {
    family: TableFamily,
    table: String,
    chain: String,
    rule: Rule,
}

fn rule(bytes: &[u8]) -> Option<Placed> {
    let (family, bytes) = open(bytes)?;
    let part = |kind| attribute(bytes, kind).map(text);
    let handle = attribute(bytes, NFTA_RULE_HANDLE).and_then(|bytes| bytes.first_chunk().copied());
    let list = attribute(bytes, NFTA_RULE_EXPRESSIONS).unwrap_or_default();
    let expressions = attributes(list).map(|(_, bytes)| expression(bytes)).collect();
    Some(Placed {
        family,
        table: part(NFTA_RULE_TABLE)?,
        chain: part(NFTA_RULE_CHAIN)?,
        rule: Rule { handle: handle.map_or(0, u64::from_be_bytes), expressions },
    })
}

const NFT_MSG_GETSET: u16 = 10;
const NFT_MSG_GETGEN: u16 = 16;
const NFTA_GEN_ID: u16 = 1;
const NFTA_RULE_HANDLE: u16 = 3;
const TRIES_MAX: u32 = 5;
