//! Where a route's count lies: before the source's fix, and since.
//!
//! The offsets are those of the kernel's `dst_entry` and of the `rtable` around it, with 64 bits. Before, the line of the
//! count also had `lwtstate` and the first fields of the `rtable`; what most of forwarding reads (`dev`, metrics,
//! `input`, `output`) was on the line before it. The fix moved `lwtstate` and the `rtable` to the line behind.

use std::mem::offset_of;

use crate::prelude::*;

/// What each packet reads of a route: its first word, that of its output, `lwtstate`, and `rt_genid` with its flags.
pub type Fields<'a> = [&'a AtomicU64; 4];

/// A route with a count.
pub trait Route<C>: Sync {
    fn fields(&self) -> Fields<'_>;

    fn count(&self) -> &C;

    /// Fills in what a bench reads of the first word.
    fn set_first(&mut self, word: u64);
}

/// Reads them, each with a load of its own.
#[inline(always)]
pub fn read(fields: Fields<'_>) -> u64 {
    // Relaxed: they do not change.
    fields.iter().fold(0, |all, field| all ^ field.load(Ordering::Relaxed))
}

/// The first line: `dev`, `ops`, `_metrics`, `expires`, `xfrm`, `input`, `output`, flags.
type First = [AtomicU64; 8];
const OUTPUT: usize = 6;

/// Before the source's fix.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Shared<C> {
    first: First,
    count: C,
    lastuse: AtomicU64,
    lwtstate: AtomicU64,
    rcu_head: [AtomicU64; 3],
    /// `rt_genid` and flags, then the type and the interface.
    rtable: [AtomicU64; 2],
}

/// With it.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Split<C> {
    first: First,
    count: C,
    lastuse: AtomicU64,
    rcu_head: [AtomicU64; 6],
    lwtstate: AtomicU64,
    rtable: [AtomicU64; 2],
}

const _: () = {
    assert!(offset_of!(Shared<u64>, count) == 64 && offset_of!(Split<u64>, count) == 64);
    assert!(offset_of!(Shared<u64>, lwtstate) == 80 && offset_of!(Shared<u64>, rtable) == 112);
    assert!(offset_of!(Split<u64>, lwtstate) == 128);
};

macro_rules! routes {
    ($($route:ident),*) => {$(
        impl<C> $route<C> {
            pub fn new(count: C) -> $route<C> {
                let $route { first, lastuse, lwtstate, rcu_head, rtable, .. } = $route::<u64>::default();
                $route { first, count, lastuse, lwtstate, rcu_head, rtable }
            }
        }

        impl<C: Sync> Route<C> for $route<C> {
            #[inline(always)]
            fn fields(&self) -> Fields<'_> {
                [&self.first[0], &self.first[OUTPUT], &self.lwtstate, &self.rtable[0]]
            }

            #[inline(always)]
            fn count(&self) -> &C {
                &self.count
            }

            fn set_first(&mut self, word: u64) {
                self.first[0] = AtomicU64::new(word);
            }
        }
    )*};
}

routes!(Shared, Split);
