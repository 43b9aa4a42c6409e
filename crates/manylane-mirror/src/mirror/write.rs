//! Edits: what has changed is written, in the order in which a packet is best served.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_io::netlink::kernel::Family;
use manylane_net::fib::{EditError, IpPrefix};

use super::Mirror;
use crate::changes::Changes;
use crate::family::{Bits, family_of};
use crate::resolve::View;
use crate::routes::{Routes, USUAL};
use crate::table_writer::TableWriter;
use crate::targets::Busy;

/// What one call of [`Mirror::apply`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What was written: slots, words, prefixes.
    pub edits: usize,
    /// What is to be written still: call again.
    pub pending: usize,
    /// An edit waits for a grace period: call again after one.
    pub is_busy: bool,
}

/// What the tables refused of prefixes.
#[derive(Default)]
pub(super) struct Prefixes {
    /// Prefixes that do not fit.
    refused: BTreeSet<IpPrefix>,
    /// The number of further ones.
    refused_more: usize,
    /// Prefixes left to the kernel for want of a next-hop id.
    starved: BTreeSet<IpPrefix>,
    /// The number of further ones.
    starved_more: usize,
    /// A prefix was taken away since the refused ones were tried.
    has_room: bool,
}

/// How many prefixes are remembered of those that did not get what they need. More are only counted, until
/// the next resync.
const REMEMBERED_MAX: usize = 65_536;

impl Prefixes {
    /// Prefixes that are not in the tables for want of room.
    pub fn refused(&self) -> usize {
        self.refused.len() + self.refused_more
    }

    /// Prefixes that are the kernel's for want of a next-hop id.
    pub fn starved(&self) -> usize {
        self.starved.len() + self.starved_more
    }

    /// Forgets what was refused: all prefixes are to be looked at again. True if any was refused.
    pub fn forget(&mut self) -> bool {
        let former = std::mem::take(self);
        former.refused() + former.starved() > 0
    }

    fn refuse(&mut self, prefix: IpPrefix) {
        self.refused_more += remember(&mut self.refused, prefix);
    }

    fn starve(&mut self, prefix: IpPrefix) {
        self.starved_more += remember(&mut self.starved, prefix);
    }

    /// A prefix got what it needs.
    fn served(&mut self, prefix: IpPrefix) {
        if !self.refused.is_empty() {
            self.refused.remove(&prefix);
        }
        if !self.starved.is_empty() {
            self.starved.remove(&prefix);
        }
    }
}

/// Remembers a prefix; 1 if the set is full.
fn remember(prefixes: &mut BTreeSet<IpPrefix>, prefix: IpPrefix) -> usize {
    if prefixes.len() < REMEMBERED_MAX || prefixes.contains(&prefix) {
        prefixes.insert(prefix);
        0
    } else {
        1
    }
}

impl Mirror<dyn TableWriter> {
    /// Writes what has changed, at most `prefixes_max` prefixes of it, so that the caller can look at other
    /// things in between. `now_ns` is any monotonic clock.
    pub fn apply(&mut self, now_ns: u64, prefixes_max: usize) -> Applied {
        self.gather();
        let mut edits = 0;
        let view = View { kernel: &self.kernel, ports: &self.ports };
        let slots = self.targets.write_slots(&mut self.writer, view);
        let words = self.targets.write_words(&mut self.writer, view);
        let mut is_busy = slots.is_err() || words.is_err();
        edits += slots.unwrap_or(0) + words.unwrap_or(0);
        for _ in 0..prefixes_max {
            let Some(prefix) = self.changes.prefixes.front() else { break };
            match self.write_prefix(prefix) {
                Ok(is_edit) => {
                    self.changes.prefixes.pop();
                    edits += usize::from(is_edit);
                }
                Err(Busy) => {
                    // What is behind it needs what it needs.
                    is_busy = true;
                    break;
                }
            }
        }
        let policy = self.write_policy(prefixes_max);
        is_busy |= policy.is_err();
        edits += policy.unwrap_or(0);
        if self.changes.prefixes.len() == 0 {
            self.targets.sweep(&mut self.writer);
            self.retry_starved();
        }
        self.writer.reclaim();
        let pending = self.changes.len() + self.targets.pending() + self.policies.pending();
        self.statistics.applied(now_ns, edits, pending, is_busy);
        Applied { edits, pending, is_busy }
    }

    /// Hands on what has changed to those whom it concerns.
    fn gather(&mut self) {
        if std::mem::take(&mut self.changes.is_everything) {
            push_all(&self.kernel.v4, &mut self.changes);
            push_all(&self.kernel.v6, &mut self.changes);
            self.kernel.touch_neighbours(&mut self.changes);
        }
        self.gather_further();
        let links = [
            std::mem::take(&mut self.changes.links),
            std::mem::take(&mut self.kernel.v4.attribute_sets.changed),
            std::mem::take(&mut self.kernel.v6.attribute_sets.changed),
        ];
        for link in links.into_iter().flatten() {
            self.targets.link_changed(link);
        }
        for (link, address) in std::mem::take(&mut self.changes.neighbours) {
            self.targets.neighbour_changed(link, address);
        }
        self.targets.objects_changed(&std::mem::take(&mut self.changes.objects));
    }

    /// Makes a prefix lead to what the model says. Says whether anything was written.
    fn write_prefix(&mut self, prefix: IpPrefix) -> Result<bool, Busy> {
        let view = View { kernel: &self.kernel, ports: &self.ports };
        let destination = view.resolve(prefix);
        let (writer, targets) = (&mut self.writer, &mut self.targets);
        let id = if prefix.len() == 0 {
            let family = family_of(prefix);
            let id = targets.default_of(family);
            targets.set_default(writer, view, family, destination);
            Some(id)
        } else {
            match destination {
                None => None,
                Some(destination) => match targets.id_of(writer, view, &destination) {
                    Ok(Some(id)) => Some(id),
                    Ok(None) => {
                        self.prefixes.starve(prefix);
                        Some(targets.kernel())
                    }
                    Err(Busy) => {
                        // Perhaps some are held by what no prefix leads to any more.
                        targets.sweep(writer);
                        return Err(Busy);
                    }
                },
            }
        };
        let is_starved = id == Some(targets.kernel()) && self.prefixes.starved.contains(&prefix);
        let edit = match id {
            Some(id) => writer.insert(prefix, id),
            None => writer.remove(prefix),
        };
        match edit {
            Ok(former) => {
                self.prefixes.has_room |= former.is_some() && id.is_none();
                if former != id {
                    id.into_iter().for_each(|id| targets.hold(id));
                    former.into_iter().for_each(|id| targets.release(id));
                }
                if !is_starved {
                    self.prefixes.served(prefix);
                }
                Ok(former != id)
            }
            Err(EditError::Busy { .. }) => Err(Busy),
            Err(_) => {
                self.prefixes.refuse(prefix);
                Ok(false)
            }
        }
    }

    /// Tries again what could not have what it needs, if some was given back.
    fn retry_starved(&mut self) {
        let has_freed = self.targets.retry_starved();
        if has_freed {
            self.retry_starved_further();
        }
        let queue = &mut self.changes.prefixes;
        if has_freed {
            self.prefixes.starved.iter().for_each(|prefix| queue.push(*prefix));
        }
        if std::mem::take(&mut self.prefixes.has_room) {
            self.prefixes.refused.iter().for_each(|prefix| queue.push(*prefix));
        }
    }
}

/// Both default routes: they are always in the tables.
pub(super) fn push_defaults(changes: &mut Changes) {
    for default in [Family::V4, Family::V6].map(default_of) {
        changes.prefixes.push(default);
    }
}

/// The prefix of a family's default route.
pub(super) fn default_of(family: Family) -> IpPrefix {
    let address = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    IpPrefix::new(address, 0).expect("all bits are 0")
}

/// All prefixes of the usual tables.
pub(super) fn push_all<B: Bits>(routes: &Routes<B>, changes: &mut Changes) {
    let usual = routes.keys().filter(|key| usize::from(key.table) < USUAL.len());
    for key in usual {
        changes.prefixes.push(key.prefix());
    }
}
