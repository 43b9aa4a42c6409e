//! What targets say of themselves: counts, what is in use, and what a word should be.

use manylane_frame::vocabulary::PortId;
use manylane_net::fib::NextHopId;
use manylane_net::nexthop::NextHop;

use super::{Targets, plain_word, weighted_via};
use crate::destination::{Destination, Via};
use crate::resolve::{Resolved, View};

impl Targets {
    /// What is to be written still.
    pub fn pending(&self) -> usize {
        self.words.len() + self.stale.len()
    }

    /// Ids, slots and groups in use, and ids without what they need.
    pub fn counts(&self) -> [usize; 4] {
        [self.entries.len(), self.slots.len(), self.groups, self.starved.len()]
    }

    /// All ids and their ways.
    pub fn iter(&self) -> impl Iterator<Item = (NextHopId, Option<&Destination>, u32)> {
        self.entries.iter().map(|(id, target)| (*id, target.destination.as_ref(), target.count))
    }

    /// All slots: their neighbours and numbers.
    pub fn slots(&self) -> impl Iterator<Item = (Via, u32)> {
        self.slots.iter().map(|(via, slot)| (*via, slot.number))
    }

    /// What the model says that the word of an id is; nothing where it is starved.
    pub fn wanted(&self, view: View<'_>, id: NextHopId) -> Option<NextHop<Vec<(Via, u16)>>> {
        let target = self.entries.get(&id)?;
        if self.starved.contains(&id) {
            return None;
        }
        let Some(destination) = &target.destination else { return Some(NextHop::None) };
        Some(match view.resolved(destination) {
            Resolved::Plain(plain) => plain_word(plain),
            Resolved::OnLink { link, .. } => NextHop::Connected(PortId(view.ports.number(link))),
            Resolved::Via(via) => NextHop::Via(vec![(via, 1)]),
            Resolved::Many(members) => NextHop::Via(members.iter().map(weighted_via).collect()),
        })
    }
}
