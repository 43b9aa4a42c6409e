//! Reference counts whose `get` is one unconditional addition.
//!
//! A worker takes no references while it forwards: its guard ([`crate::rcu`]) keeps what it read, without cost. A count
//! is for code that keeps an object longer than a turn.
//!
//! | the object is                                            | use                                   |
//! |----------------------------------------------------------|---------------------------------------|
//! | read in a turn, let go at its end                        | a guard, no count                     |
//! | found under a guard, kept longer, retired to a limbo     | [`RcuRef`]                            |
//! | found by a weak handle, by threads without grace periods | [`Shared`] and [`WeakShared`]         |
//! | `Shared`, in memory of your own                      | [`DebtRef`]                           |
//! | only ever cloned by a holder                         | `std::sync::Arc`: nothing to gain     |
//!
//! # The race from one to none
//!
//! A thread *finds* an object that it has no reference to (by a table, or a weak handle) and wants one.
//! Meanwhile the last holder puts his. Either `get` fails and the put destroys, or `get` succeeds and it
//! does not. The object's memory is still there during `get`: a guard, lock or weak count sees to that.
//!
//! Additions commute. "Put, then a get that comes too late" and "get, then a put of one of two" leave an equal number,
//! and the object is dead after one and alive after the other. So one addition for each and nothing else cannot do: one
//! side has to look before it writes, or the thread that hits zero has to write a second time. And if it does, the
//! object may have been revived, put and *freed* in between, by others: the second write then meets freed memory.
//!
//! | count                       | get      | put      | last put           | and the race                          |
//! |-----------------------------|----------|----------|--------------------|---------------------------------------|
//! | add unless zero (Linux      | loop     | 1        | 1                  | closed: zero is final. The loop fails |
//! | `refcount_t`), std `Weak`   |          |          |                    | whenever another core was faster      |
//! | loop to put (Netty)         | 1        | loop     | loop               | closed: the last write is made while  |
//! |                             |          |          |                    | holding. The loop has moved           |
//! | rcuref (Linux), [`RcuRef`]  | 1        | 1        | 2                  | open; no grace period may end inside  |
//! |                             |          |          |                    | a put: hence its guard                |
//! | sticky counter              | 1        | 1        | 2, 3 if read as 0  | open; its libraries defer the freeing |
//! | CIRC                        | 1, or 2  | loop     | deferred           | closed by epochs: a reviver gives     |
//! |                             |          |          |                    | the one at zero a reference of its own|
//! | [`DebtRef`]                 | 1        | 1        | 2                  | closed, by counting: reviving costs   |
//! |                             | revive: 2|          | 3 after a revival  | one addition more                     |
//!
//! (Atomic read-modify-writes of the count's line; a loop has at least one, and as many as others win.) `Arc::clone` is
//! one addition as well, since a thread that clones holds; `Weak::upgrade` is the loop.
//!
//! # Why the debt counter closes it
//!
//! Every revival makes one more thread hit zero than objects die. Each reviver writes this down in the word before it
//! can put, and each thread that hit zero without killing crosses one off as its last touch. So at the death the word
//! says how many are still to come, the killer frees nothing while any are, and the last to cross off knows that it is
//! the last. No thread waits. [`DebtRef`] has the rules.
//!
//! The rules do not depend on orderings. All threads add to, subtract from or exchange one word, so each execution is
//! some sequence of these steps, equal for all. (A failed exchange may return an old value, but none from before the
//! thread's own subtraction: if it leaves by that, it could have left then.) Orderings matter for what is *around* the
//! word, the object and its memory. Loom explores that: in `tests/loom.rs`, `debt_...`, `shared_...`, `rcuref_...`,
//! each beside mutants that must fail. The
//! sticky counter without its deferred freeing is one of these.
//!
//! Not offered: `get_mut`, `make_mut`, `new_cyclic` and unsized values; [`Shared`] says why. The models have four threads
//! at most.
//!
//! # Errors
//!
//! A count with too many references, or with a put too many that it can tell, is never freed: a leak, no use after
//! free. [`faults`] counts them, and the first of each kind is reported ([`on_fault`]). A put too many while others
//! hold references looks like a right one: it shows at *their* last put.
//! Nor does it leak when a last put and a `get` meet it before it is pinned: it is counted, and the
//! object dies. [`Shared`] cannot put too often.
//!
//! # Sources
//!
//! rcuref: Thomas Gleixner, Linux, `lib/rcuref.c` and `include/linux/rcuref.h` (ee1ee6db0779), repaired in
//! b9a49520679e. Sticky counter: Anderson, Blelloch, Wei, PLDI 2022, section 4.3. CIRC: Jung, Kim, Parkinson, Kang,
//! PLDI 2024. Loop to put: Netty, pull request 8583. The debt counter was not found in print; it takes its two steps
//! from the first, and the reviver's gift from the third.

mod debt;
mod faults;
mod memory;
mod rcuref;
mod shared;

pub use debt::DebtRef;
pub use faults::{Fault, Faults, faults, on_fault, report};
pub use rcuref::RcuRef;
pub use shared::{Shared, WeakShared};
