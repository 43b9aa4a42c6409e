//! What the prefixes of the FIB lead to.
//!
//! A prefix holds the id of a next hop; the next hop is one word in a table. Prefixes share next hops,
//! so that changing one word moves all its prefixes in one step (I6).
//!
//! Who touches what: the control thread writes, workers read one word per packet.

use manylane_frame::vocabulary::PortId;
use manylane_sync::rcu::{Guard, Index};
use manylane_sync::words::{Words, WordsMut};

use crate::fib::NextHopId;
use crate::neighbour::Neighbour;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop<N> {
    /// Nowhere: no route.
    None,
    /// To this neighbour.
    Via(N),
    /// Its destination is a neighbour on this port, and nobody has asked for it yet.
    Connected(PortId),
    /// It is for one of our own addresses.
    Local,
    /// It is for the broadcast address of a connected network.
    Broadcast,
    /// Drop it in silence.
    Blackhole,
    /// Drop it and tell the sender that the host is unreachable.
    Unreachable,
    /// Drop it and tell the sender that this is prohibited.
    Prohibit,
}

/// The writer's side of the next-hop table.
pub struct NextHopsMut(WordsMut<u64>);

/// The workers' side of the next-hop table.
#[derive(Clone)]
pub struct NextHops(Words<u64>);

/// A next hop's word: the kind in the lowest byte, its number from bit 32 on.
const KIND: u64 = 0xff;
const NUMBER_SHIFT: u32 = 32;
const VIA: u64 = 1;

impl NextHopsMut {
    /// A table in `words`; all next hops are `None`.
    pub fn new(words: WordsMut<u64>) -> NextHopsMut {
        assert!(words.len() <= usize::from(NextHopId::MAX.raw()) + 1, "more next hops than ids");
        NextHopsMut(words)
    }

    /// A side for workers.
    pub fn reader(&self) -> NextHops {
        NextHops(self.0.reader())
    }

    /// How many next hops there can be, id 0 included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the table has no words.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets what `id` means. All its prefixes follow at once. `Via` names a neighbour's slot.
    pub fn set(&mut self, id: NextHopId, next_hop: NextHop<u32>) {
        let (kind, number) = match next_hop {
            NextHop::None => (0, 0),
            NextHop::Via(slot) => (VIA, slot),
            NextHop::Connected(port) => (2, u32::from(port.0)),
            NextHop::Local => (3, 0),
            NextHop::Broadcast => (4, 0),
            NextHop::Blackhole => (5, 0),
            NextHop::Unreachable => (6, 0),
            NextHop::Prohibit => (7, 0),
        };
        self.0.publish(usize::from(id.raw()), kind | u64::from(number) << NUMBER_SHIFT);
    }
}

impl NextHops {
    /// The neighbour at `id`, if it leads to one: the ordinary case, without the others' branches.
    #[inline(always)]
    pub fn via<'g, T>(&self, guard: Guard<'g>, id: Index<'g, T>) -> Option<Index<'g, Neighbour>> {
        let word = self.0.load(id.raw() as usize);
        (word & KIND == VIA).then(|| Index::new(guard, (word >> NUMBER_SHIFT) as u32))
    }

    /// What the next hop at `id` is.
    #[inline(always)]
    pub fn load<'g, T>(&self, guard: Guard<'g>, id: Index<'g, T>) -> NextHop<Index<'g, Neighbour>> {
        let word = self.0.load(id.raw() as usize);
        let number = (word >> NUMBER_SHIFT) as u32;
        match word & KIND {
            VIA => NextHop::Via(Index::new(guard, number)),
            2 => NextHop::Connected(PortId(number as u16)),
            3 => NextHop::Local,
            4 => NextHop::Broadcast,
            5 => NextHop::Blackhole,
            6 => NextHop::Unreachable,
            7 => NextHop::Prohibit,
            _ => NextHop::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_sync::rcu::Domain;

    #[test]
    fn each_kind_is_read_as_it_was_set() {
        let mut table = NextHopsMut::new(WordsMut::zeroed(16));
        let reader = table.reader();
        let domain = Domain::new(1);
        let registered = domain.register().expect("the first fits");
        let guard = registered.guard();
        let kinds = [
            NextHop::Via(70_000),
            NextHop::Connected(PortId(3)),
            NextHop::Local,
            NextHop::Broadcast,
            NextHop::Blackhole,
            NextHop::Unreachable,
            NextHop::Prohibit,
            NextHop::None,
        ];
        for (number, kind) in (1..).zip(kinds) {
            table.set(NextHopId::new(number).expect("it is small"), kind);
            let read = reader.load(guard, Index::<()>::new(guard, number.into()));
            let read = match read {
                NextHop::Via(index) => NextHop::Via(index.raw()),
                NextHop::Connected(port) => NextHop::Connected(port),
                NextHop::Local => NextHop::Local,
                NextHop::Broadcast => NextHop::Broadcast,
                NextHop::Blackhole => NextHop::Blackhole,
                NextHop::Unreachable => NextHop::Unreachable,
                NextHop::Prohibit => NextHop::Prohibit,
                NextHop::None => NextHop::None,
            };
            assert_eq!(read, kind);
        }
        assert_eq!(reader.load(guard, Index::<()>::new(guard, 0)), NextHop::None);
    }
}
