//! Notifications of changes: of rules, and of the elements of sets.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::trace::is_of_a_trace;
use super::{NFNL_SUBSYS_NFTABLES, NFTA_TABLE_NAME, TableFamily, open, table};
use crate::netlink::plain::{attribute, text};
use crate::netlink::{NetlinkError, Notices};

/// A set or a map, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetName {
    /// The family of its table.
    pub family: TableFamily,
    /// Its table.
    pub table: String,
    /// Its name.
    pub set: String,
}

/// What the kernel has announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// Tables, chains, rules, sets, maps or flow tables were added, changed or deleted; or an announcement was lost.
    pub rules: bool,
    /// Sets and maps whose elements have changed. Elements that packets add, or that end by themselves, are not announced:
    /// see [`Set::is_volatile`](super::set::Set::is_volatile).
    pub elements: BTreeSet<SetName>,
}

/// A subscription to the changes in a network namespace, from the opening on.
#[derive(Debug)]
pub struct RuleNotices {
    notices: Notices,
    traces: Traces,
}

/// The tables of traces, which do nothing to packets: they are no change of rules.
type Traces = BTreeSet<(TableFamily, String)>;

/// Subscribes to changes in the calling thread's network namespace. `None` where the kernel has no netfilter.
pub fn notices() -> Result<Option<RuleNotices>, NetlinkError> {
    match Notices::open(libc::NETLINK_NETFILTER, NFNLGRP_NFTABLES, |_| true) {
        Ok(notices) => Ok(Some(RuleNotices { notices, traces: Traces::new() })),
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(None),
        Err(source) => Err(NetlinkError::refused("watch nftables".into(), source.into())),
    }
}

impl RuleNotices {
    /// Reads all pending announcements without waiting.
    pub fn drain(&mut self) -> io::Result<Announced> {
        let mut announced = Announced::default();
        let RuleNotices { notices, traces } = self;
        let lost = notices.read(|kind, payload| announced.hear(traces, kind, payload))?;
        announced.rules |= lost;
        Ok(announced)
    }
}

impl AsFd for RuleNotices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}

impl Announced {
    fn hear(&mut self, traces: &mut Traces, kind: u16, payload: &[u8]) {
        if kind >> 8 != NFNL_SUBSYS_NFTABLES || is_about_a_trace(traces, kind & 0xff, payload) {
            return;
        }
        match kind & 0xff {
            NFT_MSG_NEWTABLE..=NFT_MSG_DELSET
            | NFT_MSG_NEWFLOWTABLE..=NFT_MSG_DELFLOWTABLE
            | NFT_MSG_DESTROYTABLE..=NFT_MSG_DESTROYSET
            | NFT_MSG_DESTROYFLOWTABLE => self.rules = true,
            NFT_MSG_NEWSETELEM..=NFT_MSG_DELSETELEM | NFT_MSG_DESTROYSETELEM => {
                match set_name(payload) {
                    Some(set) if self.elements.len() < SETS_MAX => {
                        self.elements.insert(set);
                    }
                    Some(set) if self.elements.contains(&set) => {}
                    // Too many to be told apart, or none that can be.
                    _ => self.rules = true,
                }
            }
            // A named object keeps its kind as long as a rule refers to it; the end of each transaction has a message, too.
            _ => {}
        }
    }
}

/// Whether a message is about the table of a trace. Only its first message says whose the table is.
fn is_about_a_trace(traces: &mut Traces, message: u16, payload: &[u8]) -> bool {
    let Some((family, bytes)) = open(payload) else { return false };
    // NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE and so on have one number.
    let Some(name) = attribute(bytes, NFTA_TABLE_NAME).map(text) else { return false };
    let name = (family, name);
    match message {
        NFT_MSG_NEWTABLE if !table(payload).is_some_and(|table| is_of_a_trace(&table)) => {
            traces.remove(&name);
            false
        }
        NFT_MSG_NEWTABLE => {
            traces.contains(&name) || traces.len() < SETS_MAX && traces.insert(name)
        }
        NFT_MSG_DELTABLE | NFT_MSG_DESTROYTABLE => traces.remove(&name),
        _ => traces.contains(&name),
    }
}

fn set_name(payload: &[u8]) -> Option<SetName> {
    let (family, bytes) = open(payload)?;
    Some(SetName {
        family,
        table: attribute(bytes, NFTA_SET_ELEM_LIST_TABLE).map(text)?,
        set: attribute(bytes, NFTA_SET_ELEM_LIST_SET).map(text)?,
    })
}

const NFNLGRP_NFTABLES: libc::c_int = 7;
// linux/netfilter/nf_tables.h. Tables, chains, rules and sets have the numbers 0 to 11.
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_DELTABLE: u16 = 2;
const NFT_MSG_DELSET: u16 = 11;
const NFT_MSG_NEWSETELEM: u16 = 12;
const NFT_MSG_DELSETELEM: u16 = 14;
const NFT_MSG_NEWFLOWTABLE: u16 = 22;
const NFT_MSG_DELFLOWTABLE: u16 = 24;
/// Since Linux 6.3 what was destroyed is announced by these: tables, chains, rules and sets.
const NFT_MSG_DESTROYTABLE: u16 = 26;
const NFT_MSG_DESTROYSET: u16 = 29;
const NFT_MSG_DESTROYSETELEM: u16 = 30;
const NFT_MSG_DESTROYFLOWTABLE: u16 = 32;
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
/// Sets that are told apart between two looks, and tables of traces.
const SETS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::nftables::NFTA_TABLE_OWNER;
    use crate::netlink::plain::tests::put;

    fn heard(messages: &[(u16, &[u8])]) -> Announced {
        let mut announced = Announced::default();
        let mut traces = Traces::new();
        messages.iter().for_each(|(kind, payload)| announced.hear(&mut traces, *kind, payload));
        announced
    }

    fn elements(set: &str) -> Vec<u8> {
        let [table, set] = ["own", set].map(|name| [name.as_bytes(), &[0]].concat());
        let parts = [put(NFTA_SET_ELEM_LIST_TABLE, &table), put(NFTA_SET_ELEM_LIST_SET, &set)];
        [vec![2, 0, 0, 0], parts.concat()].concat()
    }

    #[test]
    fn rules_and_elements_are_told_apart() {
        let ours = |message: u16| NFNL_SUBSYS_NFTABLES << 8 | message;
        for (message, is_of_rules) in
            [(0, true), (5, true), (8, true), (9, true), (11, true), (15, false), (18, false)]
                .into_iter()
                .chain([(22, true), (24, true), (25, false), (26, true), (29, true), (32, true)])
        {
            let announced = heard(&[(ours(message), &[])]);
            assert_eq!(announced.rules, is_of_rules, "{message}");
            assert!(announced.elements.is_empty());
        }
        for message in [12, 14, 30] {
            let payload = elements("banned");
            let announced = heard(&[(ours(message), &payload), (ours(message), &payload)]);
            let banned =
                SetName { family: TableFamily::Ip, table: "own".into(), set: "banned".into() };
            assert!(!announced.rules);
            assert_eq!(announced.elements, BTreeSet::from([banned]), "{message}");
            // Which set cannot be said: any, then.
            assert!(heard(&[(ours(message), &payload[..8])]).rules);
        }
        assert_eq!(heard(&[(libc::NLMSG_ERROR as u16, &[]), (6 << 8, &[])]), Announced::default());
    }

    #[test]
    fn more_sets_than_are_told_apart_are_a_change_of_rules() {
        let mut announced = Announced::default();
        let kind = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWSETELEM;
        let mut hear = |number: usize| {
            announced.hear(&mut Traces::new(), kind, &elements(&format!("set{number}")));
            announced.rules
        };
        assert!((0..SETS_MAX).all(|number| !hear(number)));
        assert!(!hear(0), "that one is known");
        assert!(hear(SETS_MAX));
    }

    #[test]
    fn the_table_of_a_trace_is_no_change_and_one_of_that_name_is() {
        let kind = |message: u16| NFNL_SUBSYS_NFTABLES << 8 | message;
        let name = put(NFTA_TABLE_NAME, b"manylane_trace_7\0");
        let of = |family: u8, parts: &[u8]| [&[family, 0, 0, 0], parts].concat();
        let owned = of(1, &[name.clone(), put(NFTA_TABLE_OWNER, &7u32.to_be_bytes())].concat());
        let (plain, other) = (of(1, &name), of(2, &name));
        let made = [(kind(0), &owned[..]), (kind(3), &plain), (kind(6), &plain)];
        let removed = [(kind(8), &plain[..]), (kind(5), &plain), (kind(26), &plain)];
        assert_eq!(heard(&[made, removed].concat()), Announced::default());
        // Of another family, of a table that is gone, and of a table without an owner.
        assert!(heard(&[&made[..], &[(kind(6), &other)]].concat()).rules);
        assert!(heard(&[&made[..], &removed, &[(kind(6), &plain)]].concat()).rules);
        assert!(heard(&[&made[..], &[(kind(0), &plain)]].concat()).rules);
        assert!(heard(&[(kind(3), &plain)]).rules);
        let again = [(kind(0), &plain[..]), (kind(6), &plain)];
        assert!(heard(&[&made[..], &again].concat()).rules);
    }
}
