//! The owners of the table's entries: the writer's own account.

use super::{Direction, FlowNumber};

/// Which entries are free, and the flows that have the others.
pub(super) struct Owners {
    /// A bit for each entry: 1 while no flow has it.
    free: Vec<u64>,
    /// By entry: twice its flow's number, plus its direction.
    flow_of: Vec<u32>,
    /// By flow: the entries of both directions.
    entries_of: Vec<[u32; 2]>,
    /// The word of `free` where the search for any entry begins: words before it were full when it got there.
    next: usize,
}

impl Owners {
    /// Entries for this many flows, all free.
    pub fn new(flows: usize) -> Owners {
        let entries = 2 * flows;
        let mut free = vec![u64::MAX; entries.div_ceil(64)];
        if let (Some(last), used @ 1..) = (free.last_mut(), entries % 64) {
            *last = (1 << used) - 1;
        }
        Owners { free, flow_of: vec![0; entries], entries_of: vec![[0; 2]; flows], next: 0 }
    }

    /// A free entry that is not `but`: one of `homes`, or any.
    pub fn find(&mut self, homes: [u32; 2], but: Option<u32>) -> Option<u32> {
        let is_free = |entry: u32| self.free[entry as usize / 64] >> (entry % 64) & 1 == 1;
        let home = homes.into_iter().find(|&entry| Some(entry) != but && is_free(entry));
        home.or_else(|| self.find_any(but))
    }

    fn find_any(&mut self, but: Option<u32>) -> Option<u32> {
        for step in 0..self.free.len() {
            let at = (self.next + step) % self.free.len();
            let mut word = self.free[at];
            if let Some(but) = but.filter(|but| *but as usize / 64 == at) {
                word &= !(1 << (but % 64));
            }
            if word != 0 {
                self.next = at;
                return Some(at as u32 * 64 + word.trailing_zeros());
            }
        }
        None
    }

    /// Gives entries to a flow.
    pub fn take(&mut self, number: u32, entries: [u32; 2]) {
        self.entries_of[number as usize] = entries;
        for (direction, entry) in (0..).zip(entries) {
            self.free[entry as usize / 64] &= !(1 << (entry % 64));
            self.flow_of[entry as usize] = number * 2 + direction;
        }
    }

    /// Frees the entries of a flow.
    pub fn release(&mut self, number: u32) {
        for entry in self.entries_of[number as usize] {
            self.free[entry as usize / 64] |= 1 << (entry % 64);
        }
    }

    /// The entry of a direction.
    pub fn entry(&self, FlowNumber(number): FlowNumber, direction: Direction) -> u32 {
        self.entries_of[number as usize][direction as usize]
    }

    /// The flow that has an entry, while it is not free, and the direction.
    pub fn flow(&self, entry: u32) -> (FlowNumber, Direction) {
        let word = self.flow_of[entry as usize];
        let direction = Direction::BOTH[word as usize % 2];
        (FlowNumber(word / 2), direction)
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_home_comes_first_and_then_any_entry() {
        let mut owners = Owners::new(33);
        assert_eq!(owners.find([8, 9], None), Some(8));
        assert_eq!(owners.find([8, 9], Some(8)), Some(9));
        owners.take(0, [8, 9]);
        assert_eq!(owners.find([8, 9], None), Some(0));
        assert_eq!(owners.find([8, 9], Some(0)), Some(1));
        assert_eq!(owners.flow(9), (FlowNumber(0), Direction::Reply));
        for number in 1..33 {
            let first = owners.find([65, 64], None).expect("entries are free");
            let second = owners.find([65, 64], Some(first)).expect("entries are free");
            owners.take(number, [first, second]);
        }
        assert_eq!(owners.find([1, 0], None), None);
        owners.release(0);
        assert_eq!(owners.find([1, 0], Some(8)), Some(9));
    }
}
