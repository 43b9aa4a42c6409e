//! A twin of `rcu::Domain` with its orderings as parameters: each of them is needed.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::rcu::{Grace, Leave, Member, comes_online, did, found};
use super::{Seen, explore};

static UNUSED: Seen = Seen::new("");

#[test]
fn the_twin_of_the_domain_passes() {
    explore("rcu twin, a", None, || found(twin(SOURCE), 1, 2, &UNUSED));
    for leave in [Leave::Quiescent, Leave::Offline, Leave::OfflineAndBack, Leave::ForAnother] {
        explore(&format!("rcu twin, b, {leave:?}"), None, move || {
            did(twin(SOURCE), leave, &UNUSED)
        });
    }
    explore("rcu twin, c", None, || comes_online(twin(SOURCE), 1, 2, &UNUSED, &UNUSED));
}

macro_rules! mutant {
    ($name:ident, $expected:literal, $orders:expr, $model:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            explore(stringify!($name), None, || $model(twin($orders)));
        }
    };
}

mutant!(
    mutant_a_relaxed_start_frees_what_is_still_found,
    "Causality violation",
    Orders { start: Ordering::Relaxed, ..SOURCE },
    |twin| found(twin, 1, 2, &UNUSED)
);
mutant!(
    mutant_a_relaxed_look_at_the_token_finds_what_is_freed,
    "Causality violation",
    Orders { token: Ordering::Relaxed, ..SOURCE },
    |twin| found(twin, 1, 2, &UNUSED)
);
mutant!(
    mutant_a_relaxed_quiescent_lets_the_writer_be_first,
    "Causality violation",
    Orders { confirm: Ordering::Relaxed, ..SOURCE },
    |twin| did(twin, Leave::Quiescent, &UNUSED)
);
mutant!(
    mutant_a_relaxed_scan_lets_the_writer_be_first,
    "Causality violation",
    Orders { scan: Ordering::Relaxed, ..SOURCE },
    |twin| did(twin, Leave::Quiescent, &UNUSED)
);
mutant!(
    mutant_a_relaxed_offline_lets_the_writer_be_first,
    "Causality violation",
    Orders { offline: Ordering::Relaxed, ..SOURCE },
    |twin| did(twin, Leave::Offline, &UNUSED)
);
mutant!(
    mutant_a_relaxed_online_hides_that_the_reader_was_offline,
    "Causality violation",
    Orders { online: Ordering::Relaxed, ..SOURCE },
    |twin| did(twin, Leave::OfflineAndBack, &UNUSED)
);
mutant!(
    mutant_a_relaxed_online_hides_that_the_slot_changed_hands,
    "Causality violation",
    Orders { online: Ordering::Relaxed, ..SOURCE },
    |twin| did(twin, Leave::ForAnother, &UNUSED)
);
mutant!(
    mutant_a_relaxed_leave_hides_that_the_slot_changed_hands,
    "Causality violation",
    Orders { leave: Ordering::Relaxed, ..SOURCE },
    |twin| did(twin, Leave::ForAnother, &UNUSED)
);
mutant!(
    mutant_a_relaxed_join_hides_that_the_slot_changed_hands,
    "Causality violation",
    Orders { join: Ordering::Relaxed, ..SOURCE },
    |twin| did(twin, Leave::ForAnother, &UNUSED)
);
mutant!(
    mutant_without_the_writers_fence_a_newcomer_finds_what_is_freed,
    "Causality violation",
    Orders { start_fence: false, ..SOURCE },
    |twin| comes_online(twin, 1, 1, &UNUSED, &UNUSED)
);
mutant!(
    mutant_without_the_readers_fence_a_newcomer_finds_what_is_freed,
    "Causality violation",
    Orders { online_fence: false, ..SOURCE },
    |twin| comes_online(twin, 1, 1, &UNUSED, &UNUSED)
);

/// The orderings of a domain, named for the functions they stand in.
#[derive(Clone, Copy)]
struct Orders {
    start: Ordering,
    start_fence: bool,
    /// The load in `quiescent`.
    token: Ordering,
    /// The store in `quiescent`.
    confirm: Ordering,
    offline: Ordering,
    /// The store in `online`.
    online: Ordering,
    online_fence: bool,
    scan: Ordering,
    /// A slot is taken, and given back.
    join: Ordering,
    leave: Ordering,
}

const SOURCE: Orders = Orders {
    start: Ordering::Release,
    start_fence: true,
    token: Ordering::Acquire,
    confirm: Ordering::Release,
    offline: Ordering::Release,
    online: Ordering::Release,
    online_fence: true,
    scan: Ordering::Acquire,
    join: Ordering::Acquire,
    leave: Ordering::Release,
};

/// A domain for one reader.
#[derive(Clone)]
struct Twin(Arc<Shared>);

struct Shared {
    token: AtomicU64,
    seen: AtomicU64,
    taken: AtomicBool,
    orders: Orders,
}

struct TwinReader {
    shared: Arc<Shared>,
    seen: u64,
}

fn twin(orders: Orders) -> Twin {
    let (token, seen, taken) = (AtomicU64::new(1), AtomicU64::new(0), AtomicBool::new(false));
    Twin(Arc::new(Shared { token, seen, taken, orders }))
}

impl Grace for Twin {
    type Reader = TwinReader;
    type Ticket = u64;

    fn register(&self) -> Option<TwinReader> {
        let free =
            self.0.taken.compare_exchange(false, true, self.0.orders.join, Ordering::Relaxed);
        free.ok()?;
        let mut reader = TwinReader { shared: self.0.clone(), seen: 0 };
        reader.online();
        Some(reader)
    }

    fn start(&self) -> u64 {
        let ticket = self.0.token.fetch_add(1, self.0.orders.start) + 1;
        if self.0.orders.start_fence {
            fence(Ordering::SeqCst);
        }
        ticket
    }

    fn is_over(&self, ticket: u64) -> bool {
        let seen = self.0.seen.load(self.0.orders.scan);
        seen == 0 || seen >= ticket
    }
}

impl Member for TwinReader {
    fn quiescent(&mut self) {
        let token = self.shared.token.load(self.shared.orders.token);
        if token != self.seen {
            self.seen = token;
            self.shared.seen.store(token, self.shared.orders.confirm);
        }
    }

    fn offline(&mut self) {
        self.seen = 0;
        self.shared.seen.store(0, self.shared.orders.offline);
    }

    fn online(&mut self) {
        self.seen = self.shared.token.load(Ordering::Relaxed);
        self.shared.seen.store(self.seen, self.shared.orders.online);
        if self.shared.orders.online_fence {
            fence(Ordering::SeqCst);
        }
    }
}

impl Drop for TwinReader {
    fn drop(&mut self) {
        self.offline();
        self.shared.taken.store(false, self.shared.orders.leave);
    }
}
