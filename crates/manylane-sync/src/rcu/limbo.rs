//! What is unpublished but may still be read.

use std::collections::VecDeque;

use super::{Domain, Ticket};

/// A bounded queue of retired objects, each waiting for its grace period.
pub struct Limbo<T> {
    domain: Domain,
    waiting: VecDeque<(Ticket, T)>,
    waiting_max: usize,
}

impl<T> Limbo<T> {
    /// An empty limbo that holds at most `waiting_max` objects.
    pub fn new(domain: Domain, waiting_max: usize) -> Limbo<T> {
        Limbo { domain, waiting: VecDeque::new(), waiting_max }
    }

    /// Takes in an object that no reader can find any more. Never waits: at the bound the object is
    /// handed back, and the caller queues its edit.
    pub fn retire(&mut self, object: T) -> Result<(), T> {
        if self.waiting.len() >= self.waiting_max {
            return Err(object);
        }
        self.waiting.push_back((self.domain.start(), object));
        Ok(())
    }

    /// The oldest object, if its grace period is over. Call until `None`.
    pub fn reclaim(&mut self) -> Option<T> {
        let &(ticket, _) = self.waiting.front()?;
        if !self.domain.is_over(ticket) {
            return None;
        }
        self.waiting.pop_front().map(|(_, object)| object)
    }

    /// How many objects wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the next `retire` would hand its object back.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.waiting_max
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn objects_come_back_in_order_after_their_grace_period() {
        let domain = Domain::new(1);
        let mut reader = domain.register().expect("the first fits");
        let mut limbo = Limbo::new(domain, 2);
        assert_eq!(limbo.retire('a'), Ok(()));
        reader.quiescent();
        assert_eq!(limbo.retire('b'), Ok(()));
        assert_eq!(limbo.retire('c'), Err('c'), "the bound hands it back");
        assert_eq!((limbo.reclaim(), limbo.reclaim()), (Some('a'), None));
        reader.quiescent();
        assert_eq!((limbo.reclaim(), limbo.reclaim()), (Some('b'), None));
    }
}
