//! `hook`: its guarantees A to C, one test for each letter. The socket is a ring of the crate's own.
//!
//! A binding is a number. The models are generic over the table: the crate's, or a twin of it.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use manylane_sync::hook::{Binding, Generation, HookReader, Hooks, Socket};
use manylane_sync::rcu::{Domain, Reader, Ticket};
use manylane_sync::ring::{Consumer, ring};

use super::{Seen, Watched, explore};

/// What the models do with a table for one socket and one retired hook.
trait Table: Sized {
    type Worker: Look;
    type End: Admit;

    fn split(self, domain: &Domain) -> (impl Bind, Self::Worker, Self::End);
}

trait Bind {
    /// False when it was handed back.
    fn bind(&mut self, wanted: u32) -> bool;
    fn close(self);
}

trait Look: Send + 'static {
    /// Calls `deliver` with the stamp and the number of the hook found, if any.
    fn look(&self, reader: &Reader, deliver: impl FnMut(u64, u32));
}

trait Admit: Send + 'static {
    fn admit(&mut self, stamp: u64) -> bool;
}

/// Once `bind` has returned, no packet of the old binding is admitted.
#[test]
fn hook_a_nothing_of_an_old_binding_is_admitted() {
    static STALE: Seen = Seen::new("something stale was delivered");
    static NEW: Seen = Seen::new("something of the new binding was delivered");
    explore("hook_a", None, || rebind(Source, 1, &STALE, &NEW));
    STALE.assert();
    NEW.assert();
}

/// One thread reads the socket, another binds it.
#[test]
fn hook_b_what_came_by_the_new_binding_is_not_stale() {
    static NEW: Seen = Seen::new("the reader was given something of the new binding");
    explore("hook_b", Some(3), || read_elsewhere(Source, &NEW));
    NEW.assert();
}

/// Two bindings later the first hook's slot is used again, if the worker has let go of it; after `close` the last one
/// is dropped, with all that the hook kept alive.
#[test]
fn hook_c_a_hook_is_whole_while_a_worker_looks() {
    static STALE: Seen = Seen::new("something stale was delivered");
    static REUSED: Seen = Seen::new("something was delivered by a hook in a slot used again");
    explore("hook_c", Some(3), || rebind(Source, 2, &STALE, &REUSED));
    STALE.assert();
    REUSED.assert();
}

#[test]
fn the_twin_of_the_hooks_passes() {
    explore("hook twin, a", None, || rebind(SOURCE, 1, &UNUSED, &UNUSED));
    explore("hook twin, b", Some(3), || read_elsewhere(SOURCE, &UNUSED));
    explore("hook twin, c", Some(3), || rebind(SOURCE, 2, &UNUSED, &UNUSED));
}

static UNUSED: Seen = Seen::new("");

macro_rules! mutant {
    ($name:ident, $expected:literal, $model:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            explore(stringify!($name), None, || $model);
        }
    };
}

mutant!(
    mutant_a_relaxed_publish_shows_half_a_hook,
    "Causality violation",
    rebind(Rules { publish: Ordering::Relaxed, ..SOURCE }, 1, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_relaxed_look_shows_half_a_hook,
    "Causality violation",
    rebind(Rules { look: Ordering::Relaxed, ..SOURCE }, 1, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_slot_used_again_at_once_changes_under_a_worker,
    "Causality violation",
    rebind(Rules { waits: false, ..SOURCE }, 2, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_stamp_of_the_socket_admits_what_came_by_the_old_hook,
    "came by an old binding",
    rebind(Rules { stamp: Stamp::OfTheSocket, ..SOURCE }, 1, &UNUSED, &UNUSED)
);
mutant!(
    mutant_without_a_new_generation_the_old_binding_is_admitted,
    "came by an old binding",
    rebind(Rules { bump: Bump::Never, ..SOURCE }, 1, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_generation_after_the_hook_takes_the_new_for_stale,
    "of the binding in force is stale",
    read_elsewhere(Rules { bump: Bump::AfterPublish, ..SOURCE }, &UNUSED)
);

/// Control binds and reads; a worker delivers in two turns. Ends with a close, if it bound twice.
fn rebind(table: impl Table, binds: u32, stale: &'static Seen, new: &'static Seen) {
    let domain = Domain::new(1);
    let (mut control, worker, mut end) = table.split(&domain);
    assert!(control.bind(1), "there is room for the first");
    let (thread, mut socket) = work(&domain, worker, 2);
    let mut bound = 1;
    let mut read = |bound: u32, socket: &mut Consumer<(u64, u32)>| {
        for (stamp, wanted) in socket.pop_up_to(2) {
            if end.admit(stamp) {
                assert_eq!(wanted, bound, "it came by an old binding");
                if bound == binds + 1 {
                    new.note();
                }
            } else {
                stale.note();
            }
        }
    };
    for wanted in 2..2 + binds {
        if control.bind(wanted) {
            bound = wanted;
        }
        read(bound, &mut socket);
    }
    if binds > 1 {
        control.close();
        bound = 0;
    }
    thread.join().expect("the worker does not panic");
    read(bound, &mut socket);
}

/// Control binds once more, a worker delivers in one turn, a third thread reads twice.
fn read_elsewhere(table: impl Table, new: &'static Seen) {
    let domain = Domain::new(1);
    let (mut control, worker, mut end) = table.split(&domain);
    assert!(control.bind(1), "there is room for the first");
    let (_, mut socket) = work(&domain, worker, 1);
    thread::spawn(move || {
        for _ in 0..2 {
            for (stamp, wanted) in socket.pop_up_to(2) {
                let admitted = end.admit(stamp);
                if wanted == 2 {
                    new.note();
                    assert!(admitted, "something of the binding in force is stale");
                }
            }
        }
    });
    assert!(control.bind(2), "there is room for the second");
}

/// A worker of some turns, and the socket it delivers to.
fn work(
    domain: &Domain,
    worker: impl Look,
    turns: u32,
) -> (thread::JoinHandle<()>, Consumer<(u64, u32)>) {
    let mut reader = domain.register().expect("the first fits");
    let (mut producer, consumer) = ring(2);
    let thread = thread::spawn(move || {
        for _ in 0..turns {
            worker.look(&reader, |stamp, wanted| {
                producer.push((stamp, wanted)).expect("there is room for both turns");
                producer.submit();
            });
            reader.quiescent();
        }
    });
    (thread, consumer)
}

/// The crate's hooks.
struct Source;

/// A number, and something that is written when the hook is dropped.
struct Wanted(u32, Watched);

impl PartialEq for Wanted {
    fn eq(&self, other: &Wanted) -> bool {
        self.0 == other.0
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.1.write(GONE);
    }
}

const GONE: u32 = 1;

impl Table for Source {
    type Worker = HookReader<Wanted>;
    type End = Binding;

    fn split(self, domain: &Domain) -> (impl Bind, HookReader<Wanted>, Binding) {
        let mut hooks = Hooks::new(domain.clone(), 1, 1);
        let reader = hooks.reader();
        let (socket, binding) = hooks.open().expect("one fits");
        ((hooks, socket), reader, binding)
    }
}

impl Bind for (Hooks<Wanted>, Socket) {
    fn bind(&mut self, wanted: u32) -> bool {
        self.0.bind(&self.1, Some(Wanted(wanted, Watched::new(0)))).is_ok()
    }

    fn close(self) {
        let (mut hooks, socket) = self;
        hooks.close(socket);
    }
}

impl Look for HookReader<Wanted> {
    fn look(&self, reader: &Reader, mut deliver: impl FnMut(u64, u32)) {
        for hook in self.enter(reader.guard()).iter() {
            deliver(hook.generation.0, hook.wanted.0);
            assert_ne!(hook.wanted.1.read(), GONE, "dropped under a worker");
        }
    }
}

impl Admit for Binding {
    fn admit(&mut self, stamp: u64) -> bool {
        Binding::admit(self, Generation(stamp))
    }
}

/// The orderings of the hooks, and the rules they keep.
#[derive(Clone, Copy)]
struct Rules {
    publish: Ordering,
    look: Ordering,
    /// Whether a slot is used again only after its grace period.
    waits: bool,
    bump: Bump,
    stamp: Stamp,
}

/// When the socket's generation grows.
#[derive(Clone, Copy, PartialEq)]
enum Bump {
    BeforePublish,
    AfterPublish,
    Never,
}

/// What a worker stamps with.
#[derive(Clone, Copy, PartialEq)]
enum Stamp {
    OfTheHook,
    OfTheSocket,
}

const SOURCE: Rules = Rules {
    publish: Ordering::Release,
    look: Ordering::Acquire,
    waits: true,
    bump: Bump::BeforePublish,
    stamp: Stamp::OfTheHook,
};

/// Two slots, each a generation and a number, and the index of the published one.
struct Shared {
    rules: Rules,
    published: AtomicU32,
    slots: [[Watched; 2]; 2],
    current: AtomicU64,
}

/// Control's end: the domain, and the ticket that the other slot waits for.
struct TwinControl(Arc<Shared>, Domain, Option<Ticket>, u64);
struct TwinWorker(Arc<Shared>);
struct TwinEnd(Arc<Shared>);

const NONE: u32 = 2;

impl Table for Rules {
    type Worker = TwinWorker;
    type End = TwinEnd;

    fn split(self, domain: &Domain) -> (impl Bind, TwinWorker, TwinEnd) {
        let shared = Arc::new(Shared {
            rules: self,
            published: AtomicU32::new(NONE),
            slots: [[(); 2]; 2].map(|slot| slot.map(|()| Watched::new(0))),
            current: AtomicU64::new(0),
        });
        let control = TwinControl(shared.clone(), domain.clone(), None, 0);
        (control, TwinWorker(shared.clone()), TwinEnd(shared))
    }
}

impl Bind for TwinControl {
    fn bind(&mut self, wanted: u32) -> bool {
        let TwinControl(shared, domain, ticket, generation) = self;
        let Rules { publish, waits, bump, .. } = shared.rules;
        if waits && ticket.is_some_and(|ticket| !domain.is_over(ticket)) {
            return false;
        }
        *generation += u64::from(bump != Bump::Never);
        if bump == Bump::BeforePublish {
            shared.current.store(*generation, Ordering::Relaxed);
        }
        // Relaxed: this thread is the only writer.
        let old = shared.published.load(Ordering::Relaxed);
        let slot = if old == 0 { 1 } else { 0 };
        shared.slots[slot as usize][0].write(*generation as u32);
        shared.slots[slot as usize][1].write(wanted);
        shared.published.store(slot, publish);
        if bump == Bump::AfterPublish {
            shared.current.store(*generation, Ordering::Relaxed);
        }
        if old != NONE {
            *ticket = Some(domain.start());
        }
        true
    }

    fn close(mut self) {
        self.3 += 1;
        self.0.current.store(self.3, Ordering::Relaxed);
        self.0.published.store(NONE, self.0.rules.publish);
    }
}

impl Look for TwinWorker {
    fn look(&self, _: &Reader, mut deliver: impl FnMut(u64, u32)) {
        let Shared { rules, published, slots, current } = &*self.0;
        let slot = published.load(rules.look);
        if slot != NONE {
            let [generation, wanted] = slots[slot as usize].each_ref().map(Watched::read);
            let stamp = match rules.stamp {
                Stamp::OfTheHook => generation.into(),
                Stamp::OfTheSocket => current.load(Ordering::Relaxed),
            };
            deliver(stamp, wanted);
        }
    }
}

impl Admit for TwinEnd {
    fn admit(&mut self, stamp: u64) -> bool {
        self.0.current.load(Ordering::Relaxed) == stamp
    }
}
