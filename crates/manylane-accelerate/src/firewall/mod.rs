//! The firewall: what the rules of the kernel would do to the packets of an established connection.
//!
//! [`Firewall::class`] walks every base chain that a routed packet passes, in nftables and in legacy tables, and says
//! whether each accepts all packets of a class without doing anything else: by ports, family and protocol alone. Where
//! that decides nothing, [`Class::allows`] says it of one flow, by the rules that are left. What is not known is never a
//! yes. Nothing is written to the kernel, and the firewall is what it was when it was read.
//!
//! | File            | Holds                                                                          |
//! |-----------------|--------------------------------------------------------------------------------|
//! | `packet.rs`     | the question: a class of packets, and what is known of their bytes at each hook |
//! | `class.rs`      | what is decided for all flows of a class, and the question about one            |
//! | `rules.rs`      | the rules, with all names looked up                                             |
//! | `bits.rs`       | values with some known bits, and conditions that hold, do not, or may           |
//! | `evaluate.rs`   | the expressions of nftables                                                     |
//! | `connection.rs` | what is known of the connection                                                 |
//! | `extension.rs`  | the matches and targets of iptables                                             |
//! | `lookup.rs`     | sets and maps                                                                   |
//! | `walk.rs`       | chains, jumps, verdicts                                                         |
//! | `passage.rs`    | the way of one packet through all of them, step by step                         |
//! | `obstacle.rs`   | the answer: what is in the way, and what would free it                          |
//! | `text.rs`       | a rule's text                                                                   |
//!
//! Chains of type `nat` see no packet of an established connection; bridges' chains see frames before a bridge's own
//! port receives them, or after it sent them, so neither is in the way.
//!
//! [`Firewall::passage`] tells what the rules do to one packet, of an established connection or not: an answer for people,
//! not one to forward by.
//!
//! ```no_run
//! use manylane_accelerate::firewall::{Answer, ClassKey, Firewall, Options, Port, Protocol};
//! use manylane_io::netlink::kernel::Family;
//!
//! let firewall = Firewall::read()?;
//! let key = ClassKey {
//!     ingress: Port { name: "lan".into(), index: 2 },
//!     egress: Port { name: "wan".into(), index: 3 },
//!     family: Family::V4,
//!     protocol: Protocol::Tcp,
//!     mark: Some(0),
//! };
//! let class = firewall.class(&key, Options::default());
//! match class.answer() {
//!     Answer::Yes(_) => println!("each chain accepts such packets"),
//!     Answer::No(obstacle) => println!("in the way: {obstacle}"),
//!     Answer::AskPerFlow(obstacle) => println!("a flow's addresses and ports decide: {obstacle}"),
//! }
//! # Ok::<(), manylane_accelerate::firewall::FirewallError>(())
//! ```

mod bits;
mod class;
mod connection;
mod evaluate;
mod extension;
mod lookup;
mod obstacle;
mod packet;
mod passage;
mod rules;
#[cfg(test)]
mod tests;
mod text;
mod walk;

use std::io;
use std::sync::Arc;

use manylane_io::iptables;
use manylane_io::netlink::NetlinkError;
use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::ruleset::{RuleTable, Ruleset, ruleset};
use manylane_io::netlink::nftables::{Hook, TableFamily};

pub use class::Class;
pub use obstacle::{Cause, Obstacle, Place, Provisos};
pub use packet::{ClassKey, Flow, Packet, Port, Protocol, Stage, Tuple};
pub use passage::{End, Journey, Passage, Passed, Step, Target};

use rules::Rules;

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

/// The rules of a network namespace. A clone is cheap, and threads may share it.
#[derive(Clone, Debug, Default)]
pub struct Firewall {
    rules: Arc<Rules>,
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
        Firewall { rules: Arc::new(Rules::of(rules)) }
    }

    /// A class of packets, with what the rules do to all of its flows.
    pub fn class(&self, key: &ClassKey, options: Options) -> Class {
        Class::new(self.rules.clone(), self.base_chains(key), key.clone(), options)
    }

    /// What the rules do to these packets, for one question: a caller with many keeps the [class](Firewall::class).
    pub fn may(&self, packet: &Packet, options: Options) -> Answer {
        let class = self.class(&packet.class(), options);
        packet.flow.as_ref().map_or_else(|| class.answer(), |flow| class.may(flow))
    }

    /// A rule of nftables by its handle: its number in its chain, from 1, and its text.
    pub fn rule(
        &self,
        family: TableFamily,
        table: &str,
        chain: &str,
        handle: u64,
    ) -> Option<(usize, String)> {
        let is_it =
            |read: &&RuleTable| !read.is_legacy && read.family == family && read.name == table;
        let table = self.rules.tables.iter().map(|table| &table.read).find(is_it)?;
        let chain = table.chains.iter().find(|one| one.name == chain)?;
        let place = chain.rules.iter().position(|rule| rule.handle == handle)?;
        Some((place + 1, text::rule(&chain.rules[place], table)))
    }

    /// The base chains that the packets pass: table and chain.
    fn base_chains<'f>(&'f self, key: &'f ClassKey) -> impl Iterator<Item = (usize, usize)> {
        let tables = self.rules.tables.iter().enumerate();
        let tables = tables.filter(|(_, table)| !table.read.is_dormant);
        let chains = tables.flat_map(|(number, table)| {
            table
                .read
                .chains
                .iter()
                .enumerate()
                .map(move |(chain, read)| (number, table, chain, read))
        });
        chains.filter_map(move |(number, table, chain, read)| {
            let base = read.base.as_ref()?;
            let is_seen = match (table.read.family, base.hook) {
                (TableFamily::Inet | TableFamily::Netdev, Hook::Ingress) => {
                    base.is_at(&key.ingress.name)
                }
                (TableFamily::Netdev, Hook::Egress) => base.is_at(&key.egress.name),
                (family, Hook::Prerouting | Hook::Forward | Hook::Postrouting) => match family {
                    TableFamily::Inet => true,
                    TableFamily::Ip => key.family == Family::V4,
                    TableFamily::Ip6 => key.family == Family::V6,
                    TableFamily::Netdev | TableFamily::Bridge | TableFamily::Arp => false,
                },
                _ => false,
            };
            (is_seen && base.kind != "nat").then_some((number, chain))
        })
    }
}
