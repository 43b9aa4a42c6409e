//! Hooks that workers look at for each packet, and sockets that change them without waiting.
//!
//! A socket is *bound* to the packets it wants to see. To bind again, control publishes a new hook and retires the old
//! one: a hook that a worker may be looking at never changes, and control does not wait until no worker does. A worker
//! stamps what it delivers with the [`Generation`] of the hook it found, and the reader of the socket drops packets
//! with another generation than the socket's own. So packets that a worker was delivering by the old hook meanwhile are
//! not seen, though control never waited for that worker.
//!
//! | side    | type            | does                                                                    |
//! |---------|-----------------|-------------------------------------------------------------------------|
//! | control | [`Hooks`]       | `open`, `bind`, `close`                                                 |
//! | worker  | [`HookReader`]  | `enter` once a turn, then for each packet the hooks [`Found`] there     |
//! | socket  | [`Binding`]     | `admit` what was delivered, or count it as stale                        |
//!
//! | word                 | written by          | read by                    |
//! |----------------------|---------------------|----------------------------|
//! | `published[place]`   | control             | workers                    |
//! | `span`               | control             | workers, for each packet   |
//! | slots                | control, while they are not published and a grace period later | workers |
//! | `current` of a socket| control (`bind`)    | the reader of the socket   |
//!
//! # Guarantees
//!
//! - **A** Once `bind` or `close` has returned, no packet of the old binding is admitted; a socket that is bound to
//!   nothing admits no packet at all.
//! - **B** A packet of the binding in force is not taken for stale.
//! - **C** A hook, and all that it keeps alive, stays whole while a worker may look at it. Control drops
//!   it, in a later call.
//! - **D** Binding to what a socket is bound to already changes nothing.
//!
//! A to C have a loom test of their letter (`hook_a_...` to `hook_c_...`), D a unit test.

use crate::CacheAligned;
use crate::primitive::{Arc, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::rcu::{Domain, Guard, Limbo};

/// A table of hooks: control's side. `T` is what a socket wants to see and where that is delivered.
pub struct Hooks<T> {
    shared: Arc<Shared<T>>,
    sockets: Box<[Option<State>]>,
    free: Vec<u32>,
    limbo: Limbo<u32>,
    /// What `shared.span` says.
    span: usize,
    /// The last that was given out.
    generation: u64,
}

/// A worker's side of [`Hooks`].
pub struct HookReader<T>(Arc<Shared<T>>);

struct Shared<T> {
    domain: Domain,
    /// Above the last place that has a hook.
    span: CacheAligned<AtomicU32>,
    /// The slot of each socket's hook, or [`NONE`].
    published: Box<[AtomicU32]>,
    slots: Box<[UnsafeCell<Option<Hook<T>>>]>,
}

// SAFETY: the slots are the only part that is not `Sync`. Control alone writes one, and only while no
// worker can find it: before it is published and after a grace period (guarantee C). `T: Sync` because
// several workers look at a hook at once, `T: Send` because another thread than its maker may drop it.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

/// What a worker finds: immutable from when it is published to when it is dropped.
#[derive(Debug)]
pub struct Hook<T> {
    /// The stamp for what is delivered by this hook.
    pub generation: Generation,
    /// What the socket wants, and where.
    pub wanted: T,
}

/// How many times sockets of the table had been bound: a number that no other binding of any socket has. 64 bits never
/// wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub u64);

/// Control's handle of an open socket.
#[derive(Debug, PartialEq, Eq)]
pub struct Socket(u32);

impl Socket {
    /// Which socket: no other that is open has this number.
    pub fn number(&self) -> u32 {
        self.0
    }
}

struct State {
    /// The slot that is published, or [`NONE`].
    slot: u32,
    generation: u64,
    current: Arc<CacheAligned<AtomicU64>>,
}

/// The reading end of a socket: what it admits.
pub struct Binding {
    current: Arc<CacheAligned<AtomicU64>>,
    stale: u64,
}

/// What `bind` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The socket has a new binding, and a new generation.
    Changed,
    /// The socket was bound to this already.
    Unchanged,
}

const NONE: u32 = u32::MAX;

impl<T: Send + Sync> Hooks<T> {
    /// No hooks, with room for `sockets_max` sockets, each bound, and `retired_max` hooks that wait for
    /// a grace period of `domain`, the workers'.
    pub fn new(domain: Domain, sockets_max: u32, retired_max: u32) -> Hooks<T> {
        let slots = sockets_max + retired_max;
        let shared = Shared {
            domain: domain.clone(),
            span: CacheAligned(AtomicU32::new(0)),
            published: (0..sockets_max).map(|_| AtomicU32::new(NONE)).collect(),
            slots: (0..slots).map(|_| UnsafeCell::new(None)).collect(),
        };
        Hooks {
            shared: Arc::new(shared),
            sockets: (0..sockets_max).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            // Each slot is in it once at most, so it never hands one back.
            limbo: Limbo::new(domain, slots as usize),
            span: 0,
            generation: 0,
        }
    }

    /// A side for a worker.
    pub fn reader(&self) -> HookReader<T> {
        HookReader(self.shared.clone())
    }

    /// A new socket, bound to nothing. `None` when the table has `sockets_max` already.
    pub fn open(&mut self) -> Option<(Socket, Binding)> {
        let place = self.sockets.iter().position(Option::is_none)?;
        let generation = self.next_generation();
        let current = Arc::new(CacheAligned(AtomicU64::new(generation)));
        let binding = Binding { current: current.clone(), stale: 0 };
        self.sockets[place] = Some(State { slot: NONE, generation, current });
        Some((Socket(place as u32), binding))
    }

    /// Binds a socket to `wanted`, or to nothing. Never waits: while the most hooks are retired, `bind` changes nothing
    /// and hands `wanted` back, for another attempt when the workers have done a turn.
    pub fn bind(&mut self, socket: &Socket, wanted: Option<T>) -> Result<Bound, T>
    where
        T: PartialEq,
    {
        self.reclaim();
        if self.wanted(socket) == wanted.as_ref() {
            return Ok(Bound::Unchanged);
        }
        match wanted {
            Some(wanted) if self.free.is_empty() => Err(wanted),
            wanted => {
                self.replace(socket, wanted);
                Ok(Bound::Changed)
            }
        }
    }

    /// What the socket is bound to.
    pub fn wanted(&self, socket: &Socket) -> Option<&T> {
        let slot = self.state(socket).slot;
        // SAFETY: control published the slot and has not retired it, so it is not written.
        (slot != NONE).then(|| unsafe { &self.shared.hook(slot).wanted })
    }

    /// The stamp of what is delivered by the binding in force.
    pub fn generation(&self, socket: &Socket) -> Generation {
        Generation(self.state(socket).generation)
    }

    /// Begins a new generation of a socket whose hook is part of another's, as a member's of a group: what is
    /// to be delivered from now on carries what this returns, and what was delivered before is stale.
    pub fn renew(&mut self, socket: &Socket) -> Generation {
        let generation = self.next_generation();
        let state = self.sockets[socket.0 as usize].as_mut().expect("it has a handle");
        state.generation = generation;
        // Relaxed, and before a hook with this generation is published: as in `replace`.
        state.current.store(state.generation, Ordering::Relaxed);
        Generation(state.generation)
    }

    /// Unbinds a socket for ever. Its hook, and what that keeps alive, is dropped by a later call.
    pub fn close(&mut self, socket: Socket) {
        self.replace(&socket, None);
        self.sockets[socket.0 as usize] = None;
        self.reclaim();
    }

    /// Drops the hooks whose grace period is over. `bind` and `close` do it too.
    pub fn reclaim(&mut self) {
        while let Some(slot) = self.limbo.reclaim() {
            // SAFETY: the slot was unpublished before its grace period began, and that is over
            // (guarantee A of `rcu`), so no worker looks at it.
            drop(unsafe { self.shared.exchange(slot, None) });
            self.free.push(slot);
        }
    }

    /// How many hooks can be published before a grace period has to pass.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// How many hooks wait for a grace period.
    pub fn retired(&self) -> usize {
        self.limbo.len()
    }

    fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    fn state(&self, socket: &Socket) -> &State {
        self.sockets[socket.0 as usize].as_ref().expect("a socket is open while it has a handle")
    }

    /// Publishes a hook for `wanted`, if it is something, in place of the socket's hook.
    fn replace(&mut self, socket: &Socket, wanted: Option<T>) {
        let place = socket.0 as usize;
        let generation = self.next_generation();
        let State { slot: old, ref current, .. } = *self.state(socket);
        // Relaxed, and before the new hook is published: a worker that finds that hook finds this too, and so does a
        // reader of a packet delivered by it (guarantee B). For guarantee A, a thread that knows that `bind` has
        // returned learned it by something that orders.
        // Explored by `hook_b_what_came_by_the_new_binding_is_not_stale`.
        current.store(generation, Ordering::Relaxed);
        let slot = wanted.map_or(NONE, |wanted| {
            let slot = self.free.pop().expect("`bind` has looked");
            let hook = Hook { generation: Generation(generation), wanted };
            // SAFETY: the slot is free: not published, and a grace period has passed since it was.
            drop(unsafe { self.shared.exchange(slot, Some(hook)) });
            slot
        });
        // Release: pairs with the Acquire in `Found::iter`. A worker that finds the slot finds the
        // hook in it whole. Explored by `hook_c_a_hook_is_whole_while_a_worker_looks`.
        self.shared.published[place].store(slot, Ordering::Release);
        let state = self.sockets[place].as_mut().expect("just looked at");
        (state.slot, state.generation) = (slot, generation);
        let bound = |state: &Option<State>| state.as_ref().is_some_and(|state| state.slot != NONE);
        // Above the old span no socket is bound, but this one perhaps.
        let below = self.sockets[..self.span.max(place + 1)].iter().rposition(bound);
        self.span = below.map_or(0, |last| last + 1);
        // Relaxed: a hint where to stop. What is found below is ordered by its own word, and a worker
        // that sees an old span misses what it could have missed by coming earlier.
        self.shared.span.store(self.span as u32, Ordering::Relaxed);
        if old != NONE {
            let retired = self.limbo.retire(old);
            assert!(retired.is_ok(), "the limbo has room for all slots");
        }
    }
}

impl<T> Clone for HookReader<T> {
    fn clone(&self) -> Self {
        HookReader(self.0.clone())
    }
}

impl<T> HookReader<T> {
    /// The hooks, to be looked at until the guard's reader is quiescent.
    ///
    /// # Panics
    ///
    /// When the reader is of another domain than the hooks: no grace period would wait for it.
    #[inline]
    pub fn enter<'g>(&'g self, guard: Guard<'g>) -> Found<'g, T> {
        assert!(guard.is_of(&self.0.domain), "the reader is of another domain");
        Found(&self.0)
    }
}

/// The hooks, during a turn: nothing of them outlives it.
///
/// ```compile_fail,E0502
/// # use manylane_sync::{hook::Hooks, rcu::Domain};
/// let domain = Domain::new(1);
/// let mut reader = domain.register().unwrap();
/// let hooks = Hooks::<u32>::new(domain, 1, 1).reader();
/// let hook = hooks.enter(reader.guard()).iter().next();
/// reader.quiescent();
/// drop(hook);
/// ```
///
/// # Invariants
///
/// 1. A reader of the hooks' domain is online and not quiescent during `'g`.
pub struct Found<'g, T>(&'g Shared<T>);

impl<T> Clone for Found<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Found<'_, T> {}

impl<'g, T> Found<'g, T> {
    /// Whether the table has no hooks: one load.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.span() == 0
    }

    /// Every bound socket's hook: one load where none is bound, else one for each place.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'g Hook<T>> {
        self.0.published[..self.span()].iter().filter_map(move |word| {
            // Acquire: pairs with the Release in `Hooks::replace`, see there.
            let slot = word.load(Ordering::Acquire);
            // SAFETY: the slot was published when we looked, which was during 'g. So its grace period has to pass our
            // reader's next quiescent state, which ends 'g (invariant 1), and until that is over the slot is not
            // written.
            (slot != NONE).then(|| unsafe { self.0.hook(slot) })
        })
    }

    #[inline]
    fn span(self) -> usize {
        // Relaxed: as in `Hooks::replace`.
        self.0.span.load(Ordering::Relaxed) as usize
    }
}

impl<T> Shared<T> {
    /// The hook in `slot`, which has one.
    ///
    /// # Safety
    ///
    /// The slot is not written while the reference lives.
    #[inline]
    unsafe fn hook(&self, slot: u32) -> &Hook<T> {
        let hook = self.slots[slot as usize].with(|hook| {
            // SAFETY: the pointer comes from the cell, which lives as long as `self`, and the cell is not written (the
            // caller's debt).
            unsafe { &*hook }
        });
        hook.as_ref().expect("a slot is filled before it is published")
    }

    /// Fills or empties `slot`.
    ///
    /// # Safety
    ///
    /// No other thread reads or writes the slot, nor holds a reference into it.
    unsafe fn exchange(&self, slot: u32, hook: Option<Hook<T>>) -> Option<Hook<T>> {
        self.slots[slot as usize].with_mut(|place| {
            // SAFETY: the pointer comes from the cell; it is ours alone (the caller's debt).
            std::mem::replace(unsafe { &mut *place }, hook)
        })
    }
}

impl Binding {
    /// Whether a packet with the stamp `generation` belongs to the binding in force. Counts those that do not.
    #[inline]
    pub fn admit(&mut self, generation: Generation) -> bool {
        // Relaxed: the two cases are at the store in `Hooks::replace`.
        let current = self.current.load(Ordering::Relaxed);
        let admitted = current == generation.0;
        self.stale += u64::from(!admitted);
        admitted
    }

    /// How much was not admitted.
    pub fn stale(&self) -> u64 {
        self.stale
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
