//! Packet sockets as the Linux kernel binds them: hooks in a list that every receiving core walks.
//!
//! A socket with a protocol is in the list. To bind it, the kernel takes its hook out, waits until no core can look at
//! it any more, changes it and puts it in again; and the same when it closes. The source's fix: where neither protocol
//! nor device changes, the kernel does nothing, and a socket made with protocol 0 is in no list, so that the kernel has
//! nothing to take out.
//!
//! To its advantage: the list is of small numbers in one array, so that it needs neither a pointer nor an allocation
//! for each; one list serves, not one for all devices and one for each; a grace period is over with the next turn of
//! every worker, microseconds and not ticks of a clock; the waiting thread sleeps no longer than it must; and what a
//! hook delivers is always written to one place of the worker's own.

use manylane_sync::primitive::AtomicU32;

use crate::prelude::*;

/// The most sockets at a time.
const SOCKETS: usize = 64;
const NONE: u32 = u32::MAX;
/// A grace period beside workers that are all running is over by then.
const LOOKS: u32 = 2000;
/// How long to sleep between two looks: as short as the kernel can. A thread that only yielded would wait for a
/// worker's whole share of the core they have in common.
const PAUSE: Duration = Duration::from_micros(1);

pub struct HookList {
    shared: Arc<Shared>,
    domain: Domain,
    sockets: Vec<Option<Wanted>>,
    skips: bool,
}

#[derive(Clone)]
pub struct HookWalker(Arc<Shared>);

struct Shared {
    /// The first hook's place.
    head: CacheAligned<AtomicU32>,
    hooks: Box<[CacheAligned<Hook>]>,
}

/// Written only while it is in no list and no worker can look at it.
struct Hook {
    next: AtomicU32,
    /// Of the port, one more; 0 for any.
    port: AtomicU32,
    /// What a packet's word must be, in the upper half, under the mask in the lower.
    matching: AtomicU64,
}

/// What a socket is bound to: a device, or any; a protocol, or 0 for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub port: Option<u16>,
    /// As in a packet's Ethernet header.
    pub protocol: u16,
    /// The filter: a packet's word under this mask ...
    pub mask: u32,
    /// ... is this.
    pub value: u32,
}

impl HookList {
    /// No sockets. Workers are readers of `domain`. With `skips`, as the source has it, without as it was before.
    pub fn new(domain: Domain, skips: bool) -> HookList {
        let hook = || Hook {
            next: AtomicU32::new(NONE),
            port: AtomicU32::new(0),
            matching: AtomicU64::new(0),
        };
        let shared = Shared {
            head: CacheAligned(AtomicU32::new(NONE)),
            hooks: (0..SOCKETS).map(|_| CacheAligned(hook())).collect(),
        };
        HookList { shared: Arc::new(shared), domain, sockets: vec![None; SOCKETS], skips }
    }

    pub fn walker(&self) -> HookWalker {
        HookWalker(self.shared.clone())
    }

    /// A new socket, which hears of all devices at once if it has a protocol.
    ///
    /// # Panics
    ///
    /// When `SOCKETS` sockets are open.
    pub fn open(&mut self, protocol: u16) -> usize {
        let place = self.sockets.iter().position(Option::is_none).expect("the bench opens fewer");
        let wanted = Wanted { protocol, ..Wanted::default() };
        self.sockets[place] = Some(wanted);
        self.register(place, wanted);
        place
    }

    pub fn bind(&mut self, socket: usize, wanted: Wanted) {
        if self.skips && self.sockets[socket] == Some(wanted) {
            return;
        }
        self.unregister(socket);
        self.sockets[socket] = Some(wanted);
        self.register(socket, wanted);
    }

    pub fn close(&mut self, socket: usize) {
        self.unregister(socket);
        self.sockets[socket] = None;
    }

    fn register(&self, place: usize, wanted: Wanted) {
        if wanted.protocol == 0 {
            return;
        }
        let Shared { head, hooks } = &*self.shared;
        let hook = &hooks[place];
        // Relaxed: no worker looks at it before it is published, below.
        hook.port.store(wanted.port.map_or(0, |port| u32::from(port) + 1), Ordering::Relaxed);
        let matching = u64::from(wanted.value) << 32 | u64::from(wanted.mask);
        hook.matching.store(matching, Ordering::Relaxed);
        hook.next.store(head.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: pairs with the Acquire in `HookWalker::walk`; a worker that finds the hook finds what is in it.
        head.store(place as u32, Ordering::Release);
    }

    /// Takes a hook out, and waits until no worker looks at it any more. No worker looks at one that is in no list.
    fn unregister(&self, place: usize) {
        let Shared { head, hooks } = &*self.shared;
        let mut link = &**head;
        loop {
            // Relaxed: control alone writes links.
            match link.load(Ordering::Relaxed) {
                NONE => return,
                found if found as usize == place => break,
                other => link = &hooks[other as usize].next,
            }
        }
        // Release: what follows it was published before, and is found whole by this way, too.
        link.store(hooks[place].next.load(Ordering::Relaxed), Ordering::Release);
        let ticket = self.domain.start();
        let mut looks = 0;
        while !self.domain.is_over(ticket) {
            looks += 1;
            if looks < LOOKS {
                spin_loop();
            } else {
                thread::sleep(PAUSE);
            }
        }
    }
}

impl HookWalker {
    /// How many sockets want a packet of `port` with this word; `deliver` is called for each. Between two quiescent
    /// states of a reader.
    #[inline]
    pub fn walk(&self, port: u16, word: u32, mut deliver: impl FnMut()) {
        let Shared { head, hooks } = &*self.0;
        // Acquire: pairs with the Release in `register`.
        let mut place = head.load(Ordering::Acquire);
        while place != NONE {
            let hook = &hooks[place as usize];
            // Relaxed: published with the link that led here.
            let (wanted, matching) =
                (hook.port.load(Ordering::Relaxed), hook.matching.load(Ordering::Relaxed));
            let is_wanted = wanted == 0 || wanted == u32::from(port) + 1;
            if is_wanted && word & matching as u32 == (matching >> 32) as u32 {
                deliver();
            }
            // Acquire: as above.
            place = hook.next.load(Ordering::Acquire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u16 = 3;

    #[test]
    fn a_socket_hears_what_it_is_bound_to() {
        let mut list = HookList::new(Domain::new(1), false);
        let walker = list.walker();
        let heard = |port, word| {
            let mut heard = 0;
            walker.walk(port, word, || heard += 1);
            heard
        };
        let any = list.open(ALL);
        let silent = list.open(0);
        assert_eq!([heard(0, 0), heard(7, 5)], [1, 1]);
        let wanted = Wanted { port: Some(7), protocol: ALL, mask: 15, value: 5 };
        list.bind(silent, wanted);
        assert_eq!([heard(0, 5), heard(7, 21), heard(7, 6)], [1, 2, 1]);
        list.close(any);
        assert_eq!([heard(0, 5), heard(7, 21)], [0, 1]);
        list.close(silent);
        assert_eq!(heard(7, 21), 0);
    }

    /// A reader that never is quiescent shows it: a call that waited for it would never return.
    #[test]
    fn the_fix_waits_for_nobody_where_nothing_is_to_be_taken_out() {
        let domain = Domain::new(1);
        let _reader = domain.register().expect("the first fits");
        let mut list = HookList::new(domain, true);
        let same = list.open(ALL);
        list.bind(same, Wanted { protocol: ALL, ..Wanted::default() });
        let late = list.open(0);
        list.bind(late, Wanted { port: Some(1), protocol: ALL, ..Wanted::default() });
    }
}
