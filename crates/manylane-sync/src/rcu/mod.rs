//! Grace periods by quiescent states: when has every reader let go of what was published before?
//!
//! A [`Reader`] is a worker. Between two calls of [`Reader::quiescent`] it may read whatever is published, under a
//! [`Guard`]; at the call it holds nothing. A writer unpublishes an object, takes a [`Ticket`], and frees the object
//! once [`Domain::is_over`] says that each reader has been quiescent (or offline) since. No thread waits: [`Limbo`]
//! keeps what is not over yet.
//!
//! After the user-space RCU literature (Desnoyers, McKenney, Stern, Dagenais, Walpole, IEEE TPDS
//! 23(2), 2012) and DPDK's `rte_rcu_qsbr`.
//!
//! # Guarantees
//!
//! - **A** What a reader found before a grace period began is not freed until that reader is quiescent
//!   or offline.
//! - **B** What a reader did before it was quiescent happens before what the writer does after the
//!   grace period is over.
//! - **C** A reader that comes online during a grace period does not find what was unpublished before
//!   it began, or holds the grace period up.
//! - **D** An offline reader holds nothing up.
//! - **E** What [`Limbo`] hands back has had a grace period that began after it was retired.
//!
//! Each has a loom test of its letter in `tests/loom.rs` (`rcu_a_...` to `rcu_e_...`). [`Slots`] adds F, [`Proxy`] G.
//!
//! | word              | written by               | read by            |
//! |-------------------|--------------------------|--------------------|
//! | `token`           | any writer (`start`)     | readers, each turn |
//! | `slots[i].seen`   | reader `i`, or proxy     | writers (`is_over`)|
//! | `slots[i].taken`  | `register`, drop         | `register`         |

mod index;
mod limbo;
mod proxy;
mod rounds;
mod slots;

pub use index::Index;
pub use limbo::Limbo;
pub use proxy::{Proxy, ProxyToken};
pub use rounds::{Round, Rounds, RoundsWaiter, rounds};
pub use slots::{Levels, Slots};

use crate::CacheAligned;
use crate::primitive::{Arc, AtomicBool, AtomicU64, Ordering, fence, spin_loop};

/// The readers and writers that wait for each other's grace periods.
#[derive(Clone)]
pub struct Domain(Arc<Shared>);

struct Shared {
    /// The newest ticket; starts at 1, so that 0 can mean offline.
    token: CacheAligned<AtomicU64>,
    slots: Box<[CacheAligned<Slot>]>,
}

struct Slot {
    /// The token the reader saw when it was last quiescent; [`OFFLINE`] when it reads nothing.
    seen: AtomicU64,
    taken: AtomicBool,
}

const OFFLINE: u64 = 0;

/// A point in time that a grace period has to pass. Tickets of one domain are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Every slot of the domain has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyReaders {
    /// The number the domain was made for.
    pub readers_max: usize,
}

impl std::fmt::Display for TooManyReaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the domain has its {} readers already", self.readers_max)
    }
}

impl std::error::Error for TooManyReaders {}

impl Domain {
    /// A domain for up to `readers_max` readers at a time.
    pub fn new(readers_max: usize) -> Domain {
        let slot =
            || CacheAligned(Slot { seen: AtomicU64::new(OFFLINE), taken: AtomicBool::new(false) });
        Domain(Arc::new(Shared {
            token: CacheAligned(AtomicU64::new(1)),
            slots: (0..readers_max).map(|_| slot()).collect(),
        }))
    }

    /// A new reader, online and quiescent.
    pub fn register(&self) -> Result<Reader, TooManyReaders> {
        let slot = self.take_slot()?;
        let mut reader = Reader { domain: self.clone(), slot, seen: OFFLINE };
        reader.online();
        Ok(reader)
    }

    fn take_slot(&self) -> Result<usize, TooManyReaders> {
        let free = self.0.slots.iter().position(|slot| {
            // Acquire: pairs with the Release in `Reader::drop`; the slot's last owner is done with it.
            slot.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        free.ok_or(TooManyReaders { readers_max: self.0.slots.len() })
    }

    /// Begins a grace period for everything unpublished before the call.
    pub fn start(&self) -> Ticket {
        // Release: pairs with the Acquire load of the token in `quiescent`, and with the load and the
        // fence in `online`. A reader that has seen this token also sees what was unpublished before it
        // (guarantee A).
        let ticket = self.0.token.fetch_add(1, Ordering::Release) + 1;
        // SeqCst fence, partner of the one in `Reader::online`, for a reader that comes online while
        // we scan (guarantee C):
        // - if this fence is first, the reader's loads after its fence see what we unpublished;
        // - if the reader's is first, our scan sees that it is online, and waits for it.
        fence(Ordering::SeqCst);
        Ticket(ticket)
    }

    /// Whether every reader has been quiescent or offline since `ticket` was taken.
    pub fn is_over(&self, ticket: Ticket) -> bool {
        self.0.slots.iter().all(|slot| {
            // Acquire: pairs with the Release stores in `quiescent` and `offline`. The reader's last
            // use of an object happens before the free that follows (guarantee B).
            let seen = slot.seen.load(Ordering::Acquire);
            seen == OFFLINE || seen >= ticket.0
        })
    }

    /// The newest ticket whose grace period is over: one look at the readers for all that were taken
    /// before the call.
    pub fn passed(&self) -> Ticket {
        let online = self.0.slots.iter().filter_map(|slot| {
            // Acquire: as in `is_over`.
            let seen = slot.seen.load(Ordering::Acquire);
            (seen != OFFLINE).then_some(seen)
        });
        // With no reader online every ticket taken before is over.
        Ticket(online.min().unwrap_or(u64::MAX))
    }

    /// Waits until a whole grace period has passed. For shutdown and tests: a writer on a live system
    /// uses [`Limbo`]. A thread that is a reader itself must be offline, or it waits for itself.
    pub fn synchronize(&self) {
        let ticket = self.start();
        let mut looks = 0;
        while !self.is_over(ticket) {
            looks += 1;
            if looks < LOOKS_BEFORE_YIELD && !cfg!(manylane_loom) {
                spin_loop();
                continue;
            }
            #[cfg(manylane_loom)]
            loom::thread::yield_now();
            #[cfg(not(manylane_loom))]
            std::thread::yield_now();
        }
    }
}

/// A turn is over in microseconds. A reader that takes longer may be waiting for this very core.
const LOOKS_BEFORE_YIELD: u32 = 10_000;

/// One worker's membership of a domain.
pub struct Reader {
    domain: Domain,
    slot: usize,
    /// What `slots[slot].seen` holds, so that the steady state reads only the token.
    seen: u64,
}

impl Reader {
    /// Says that this worker holds nothing it read. `&mut self`: no guard can be alive.
    ///
    /// One load and one compare unless a grace period has begun since the last call.
    #[inline]
    pub fn quiescent(&mut self) {
        // Acquire: pairs with the Release in `Domain::start`: reads of the next turn see what was
        // unpublished before the token we are about to confirm.
        let token = self.domain.0.token.load(Ordering::Acquire);
        if token != self.seen {
            self.seen = token;
            // Release: pairs with the Acquire in `Domain::is_over`: our reads of the last turn happen
            // before what the writer frees.
            self.domain.0.slots[self.slot].seen.store(token, Ordering::Release);
        }
    }

    /// Leaves until [`Reader::online`]: before anything that may take long, such as sleeping.
    pub fn offline(&mut self) {
        self.seen = OFFLINE;
        // Release: as in `quiescent`.
        self.domain.0.slots[self.slot].seen.store(OFFLINE, Ordering::Release);
    }

    /// Comes back after [`Reader::offline`].
    pub fn online(&mut self) {
        // Relaxed: the fence below makes it an Acquire, which pairs with the Release in `Domain::start`. If we confirm
        // a ticket by the store that follows, the writer does not wait for us, so our reads after the fence must see
        // what was unpublished before it.
        let token = self.domain.0.token.load(Ordering::Relaxed);
        self.seen = token;
        // Release: as in `quiescent`, for what we (or the slot's last owner) read before going
        // offline. The writer may find this store where it would have found `OFFLINE`. Our reads to
        // come are ordered by the fence below.
        self.domain.0.slots[self.slot].seen.store(token, Ordering::Release);
        // SeqCst fence: partner and the two cases are at the fence in `Domain::start`.
        fence(Ordering::SeqCst);
    }

    /// Permission to read, until the guard's lifetime ends: at the latest at `quiescent`.
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        // Once a turn and source, so it may cost a compare: without it, safe code could free under a read.
        assert_ne!(self.seen, OFFLINE, "an offline reader reads nothing");
        Guard(self)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.offline();
        // Release: pairs with the Acquire in `Domain::register`.
        self.domain.0.slots[self.slot].taken.store(false, Ordering::Release);
    }
}

/// Proof that the thread is online and has not been quiescent since `'g` began.
#[derive(Clone, Copy)]
pub struct Guard<'g>(&'g Reader);

impl Guard<'_> {
    /// Whether this domain's grace periods wait for the guard's reader.
    #[inline]
    pub fn is_of(self, domain: &Domain) -> bool {
        Arc::ptr_eq(&self.0.domain.0, &domain.0)
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_waits_for_the_last_reader() {
        let domain = Domain::new(2);
        let mut one = domain.register().expect("there is room for two");
        let mut two = domain.register().expect("there is room for two");
        let ticket = domain.start();
        assert!(!domain.is_over(ticket));
        one.quiescent();
        assert!(!domain.is_over(ticket));
        two.offline();
        assert!(domain.is_over(ticket));
        two.online();
        assert!(domain.is_over(ticket), "a reader that comes online later has nothing old");
    }

    #[test]
    fn slots_are_bounded_and_come_back() {
        let domain = Domain::new(1);
        let reader = domain.register().expect("the first fits");
        assert_eq!(domain.register().err(), Some(TooManyReaders { readers_max: 1 }));
        drop(reader);
        assert!(domain.register().is_ok());
    }

    #[test]
    fn a_domain_without_readers_has_no_one_to_wait_for() {
        Domain::new(4).synchronize();
    }
}
