//! The firewall: what the rules of the kernel would do to the packets of an established connection.
//!
//! [`Firewall::may`] walks every base chain that a routed packet passes, in nftables and in legacy tables, and says
//! whether each accepts all packets of a class without doing anything else: by ports, family and protocol alone, or
//! for one flow. What is not known is never a yes. Nothing is written to the kernel, and nothing is remembered: the
//! firewall is what it was when it was read.
//!
//! | File           | Holds                                                                          |
//! |----------------|--------------------------------------------------------------------------------|
//! | `packet.rs`    | the question: a class of packets, and what is known of their bytes at each hook |
//! | `bits.rs`      | values with some known bits, and conditions that hold, do not, or may   |
//! | `evaluate.rs`  | the expressions of nftables                                                    |
//! | `extension.rs` | the matches and targets of iptables                                            |
//! | `lookup.rs`    | sets and maps                                                                  |
//! | `walk.rs`      | chains, jumps, verdicts                                                        |
//! | `obstacle.rs`  | the answer: what is in the way, and what would free it                         |
//! | `text.rs`      | a rule's text                                                                  |
//!
//! Chains of type `nat` see no packet of an established connection; bridges' chains see frames before a bridge's own
//! port receives them, or after it sent them, so neither is in the way.
//!
//! ```no_run
//! use manylane_accelerate::firewall::{Answer, Firewall, Options, Packet, Port, Protocol};
//! use manylane_io::netlink::kernel::Family;
//!
//! let firewall = Firewall::read()?;
//! let packet = Packet {
//!     ingress: Port { name: "lan".into(), index: 2 },
//!     egress: Port { name: "wan".into(), index: 3 },
//!     family: Family::V4,
//!     protocol: Protocol::Tcp,
//!     mark: Some(0),
//!     flow: None,
//! };
//! match firewall.may(&packet, Options::default()) {
//!     Answer::Yes(_) => println!("each chain accepts such packets"),
//!     Answer::No(obstacle) => println!("in the way: {obstacle}"),
//!     Answer::AskPerFlow(obstacle) => println!("a flow's addresses and ports decide: {obstacle}"),
//! }
//! # Ok::<(), manylane_accelerate::firewall::FirewallError>(())
//! ```

mod bits;
mod evaluate;
mod extension;
mod lookup;
mod obstacle;
mod packet;
#[cfg(test)]
mod tests;
mod text;
mod walk;

use std::io;

use manylane_io::iptables;
use manylane_io::netlink::NetlinkError;
use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::ruleset::{RuleTable, Ruleset, ruleset};
use manylane_io::netlink::nftables::{Base, Hook, TableFamily};

pub use obstacle::{Cause, Obstacle, Place, Provisos};
pub use packet::{Flow, Packet, Port, Protocol, Tuple};

use packet::View;
use walk::Walk;

/// What to be strict about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// A counter that a packet may pass is in the way.
    pub exact_counters: bool,
}

/// What the rules would do to the packets of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Each chain accepts all of them and does nothing else, but for what the provisos say.
    Yes(Provisos),
    /// An obstacle, for some packets of every such flow at least.
    No(Obstacle),
    /// An obstacle for some flows: addresses, ports, direction or mark decide. The question about one flow has a
    /// plainer answer.
    AskPerFlow(Obstacle),
}

/// The rules of a network namespace.
#[derive(Clone, Debug, Default)]
pub struct Firewall {
    tables: Vec<RuleTable>,
}

/// The rules could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FirewallError {
    /// Those of nftables.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Those of legacy iptables.
    #[error("cannot read the tables of legacy iptables: {0}; needs root (CAP_NET_ADMIN)")]
    Legacy(#[source] io::Error),
}

impl Firewall {
    /// Reads the rules of the calling thread's network namespace, those of nftables and of legacy iptables.
    pub fn read() -> Result<Firewall, FirewallError> {
        let mut rules = ruleset()?;
        rules.tables.extend(iptables::ruleset().map_err(FirewallError::Legacy)?);
        Ok(Firewall::of(rules))
    }

    /// Of rules that are already read.
    pub fn of(rules: Ruleset) -> Firewall {
        Firewall { tables: rules.tables }
    }

    /// What the rules would do to these packets.
    pub fn may(&self, packet: &Packet, options: Options) -> Answer {
        let mut provisos = Provisos::default();
        let mut budget = BUDGET;
        let mut asks = None;
        for (table, chain, base) in self.base_chains(packet) {
            let view = View::at(packet, base);
            let mut walk = Walk::new(table, view, options, &mut provisos, &mut budget);
            match walk.base(chain, base.drops) {
                Some((false, obstacle)) => return Answer::No(obstacle),
                Some((true, obstacle)) => asks = asks.or(Some(obstacle)),
                None => {}
            }
        }
        match asks {
            Some(obstacle) => Answer::AskPerFlow(obstacle),
            None => Answer::Yes(provisos),
        }
    }

    /// The base chains that the packets pass.
    fn base_chains<'f>(
        &'f self,
        packet: &'f Packet,
    ) -> impl Iterator<
        Item = (&'f RuleTable, &'f manylane_io::netlink::nftables::ruleset::RuleChain, &'f Base),
    > {
        let tables = self.tables.iter().filter(|table| !table.is_dormant);
        let chains = tables.flat_map(|table| table.chains.iter().map(move |chain| (table, chain)));
        chains.filter_map(move |(table, chain)| {
            let base = chain.base.as_ref()?;
            let is_seen = match (table.family, base.hook) {
                (TableFamily::Inet | TableFamily::Netdev, Hook::Ingress) => {
                    base.is_at(&packet.ingress.name)
                }
                (TableFamily::Netdev, Hook::Egress) => base.is_at(&packet.egress.name),
                (family, Hook::Prerouting | Hook::Forward | Hook::Postrouting) => match family {
                    TableFamily::Inet => true,
                    TableFamily::Ip => packet.family == Family::V4,
                    TableFamily::Ip6 => packet.family == Family::V6,
                    TableFamily::Netdev | TableFamily::Bridge | TableFamily::Arp => false,
                },
                _ => false,
            };
            (is_seen && base.kind != "nat").then_some((table, chain, base))
        })
    }
}

/// Expressions and elements of sets that one question may look at: some tenths of a second.
const BUDGET: u64 = 10_000_000;
