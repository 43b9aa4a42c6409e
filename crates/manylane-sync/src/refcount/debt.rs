//! The debt counter: a count that needs no grace period.

use super::faults::{Fault, report};
use super::memory::Memory;
use crate::primitive::{AtomicU64, Ordering, fence};

/// A reference count with one addition for `get`, one subtraction for `put`, and no guard.
///
/// A put that takes the references to none is a *zero-hitter*: it has to touch the word once more, to kill. In between,
/// others may revive the object, hit zero themselves, kill and free: the 1 -> 0 race ([`super`]). Here a reviver writes
/// down a debt: one zero-hitter more than deaths to come.
///
/// | bits   | field  | what it counts                                                            |
/// |--------|--------|---------------------------------------------------------------------------|
/// | 0..39  | `REFS` | references, plus `NONE`                                                   |
/// | 40     | `DEAD` | set once, by the killer                                                   |
/// | 41..63 | `OWED` | zero-hitters that still have to touch the word, but the one that will kill|
///
/// `OWED` is on top so that what carries out of it falls off: it is a number modulo 2^23.
///
/// | thread                   | does                                                                |
/// |--------------------------|---------------------------------------------------------------------|
/// | get, references          | one addition                                                        |
/// | get, dead                | takes its addition back, fails                                      |
/// | get, none                | revives: `OWED + 1`, before it can put (program order)              |
/// | put, others left         | one subtraction                                                     |
/// | zero-hitter              | exchanges "none, alive" for "none, dead", and is the killer         |
/// | ... finds it revived, dead, or more owed | *settles*: `OWED - 1`, and leaves                   |
/// | ... finds less owed      | tries again: as often as others settle, at most                     |
/// | killer                   | destroys, and settles if anything was owed                          |
/// | one that settles the last debt of a dead count | releases the memory                           |
///
/// So without a reference and a death, `OWED` is the number of zero-hitters at work minus one: exactly one of them
/// kills. After its own settling a thread does not touch the word, and the last one of all knows that it is the last.
/// (A settling may overtake the addition it is for: `OWED` is -1 for a moment, while the reviver still has its
/// reference.)
///
/// # Zones
///
/// `REFS` is offset by `NONE`, so that a put too many stays inside its field, dead or alive. Below
/// `NONE` or above [`DebtRef::REFERENCES_MAX`] the count is *pinned* to the middle of the field: never
/// freed. Both sides leave 2^30 additions and more for threads that race there.
#[derive(Debug)]
pub struct DebtRef {
    word: AtomicU64,
    memory: Memory,
}

const REFS: u64 = (1 << 40) - 1;
const DEAD: u64 = 1 << 40;
const OWED_ONE: u64 = 1 << 41;

/// `REFS` without a reference.
const NONE: u64 = 1 << 30;
/// `REFS` of a count that is never freed, whatever is added or taken off.
const PINNED: u64 = 1 << 39;
/// How far from `PINNED` a pinned count may drift before it is put back.
const DRIFT: u64 = 1 << 37;

impl DebtRef {
    /// The most references: 2^38. One more, and the object is leaked.
    pub const REFERENCES_MAX: u64 = 1 << 38;

    /// A count of `references`, 1 to [`DebtRef::REFERENCES_MAX`].
    pub fn new(references: u64) -> DebtRef {
        assert!((1..=Self::REFERENCES_MAX).contains(&references), "a count starts with a holder");
        DebtRef::with_word(NONE + references)
    }

    fn with_word(word: u64) -> DebtRef {
        DebtRef { word: AtomicU64::new(word), memory: Memory::new() }
    }

    /// Takes a reference, unless the object is dead. Something else than this count must keep the
    /// memory in place for the duration of the call: a reference, a weak count, a lock, a guard.
    #[inline]
    #[must_use = "a reference that is not put leaks its object"]
    pub fn get(&self) -> bool {
        // Relaxed: as what keeps the memory in place was passed to this thread, so was the initialised
        // object; what the new holder does is ordered by its put. No look for `DEAD` first: it would
        // fetch the line twice. Explored by `debt_...` in `tests/loom.rs`.
        let old = self.word().fetch_add(1, Ordering::Relaxed);
        live_below_max(old) || self.get_slow(old)
    }

    /// Takes another reference for a caller that holds one: it cannot fail.
    #[inline]
    pub fn get_held(&self) {
        // Relaxed: as in `get`.
        let old = self.word().fetch_add(1, Ordering::Relaxed);
        if !live_below_max(old) {
            let alive = self.get_slow(old);
            assert!(alive, "a reference was cloned without a holder");
        }
    }

    /// Gives a reference back. `destroy` runs if it was the last one, in exactly one thread. True: this
    /// call was the last of all puts to touch the count, and the caller releases the memory (or its
    /// share in it, where something else keeps it too).
    ///
    /// Another thread may get this answer while this call still returns, and free the memory under `&self`. Such a call is
    /// sound because nothing touches the word after the subtraction or settling by which this thread is done, and
    /// because the whole of `self` is inside an `UnsafeCell`: the compiler may not invent reads of what such a
    /// reference points to, nor does it count on the memory outliving the call (rust-lang/rust#98017; `Arc`'s drop
    /// stands on this too).
    ///
    /// If `destroy` panics, the debt is settled, but the answer is lost: where this call was the last,
    /// the memory is leaked. Catch the panic in `destroy` if that matters.
    #[inline]
    #[must_use = "the last holder releases the memory"]
    pub fn put(&self, destroy: impl FnOnce()) -> bool {
        match self.put_fast() {
            None => false,
            Some(old) => self.put_slow(old, destroy),
        }
    }

    /// The first half of `put`: the word as it was, if it is not plain that others hold references.
    #[inline]
    pub(super) fn put_fast(&self) -> Option<u64> {
        // Release: pairs with the Acquire of the killing exchange, by the release sequence of the
        // additions and subtractions between. What each holder did happens before `destroy`. Explored
        // by `debt_...`; `mutant_a_relaxed_put_...`.
        let old = self.word().fetch_sub(1, Ordering::Release);
        if others_hold(old) { None } else { Some(old) }
    }

    /// The second half of `put`. `old` is the word before our subtraction.
    #[cold]
    pub(super) fn put_slow(&self, old: u64, destroy: impl FnOnce()) -> bool {
        if old & DEAD != 0 {
            // Relaxed: restores the word after an error; no thread relies on it.
            self.word().fetch_add(1, Ordering::Relaxed);
            report(Fault::Underflow);
            return false;
        }
        match old & REFS {
            refs if refs == NONE + 1 => return self.hit_zero(old - 1, destroy),
            refs if refs <= NONE => report(Fault::Underflow),
            _ => {} // Pinned: never freed.
        }
        self.pin();
        false
    }

    /// As [`DebtRef::put`], but only if the caller's reference is the only one: `None`, and nothing has happened, if
    /// others hold references, or the count is pinned. The last put and the death are one step here, so no `get` can
    /// revive the object in between; a `get` that came before is another reference, and one that comes later fails.
    ///
    /// The only holder knows what is owed: each reviver has put its reference, and noted its debt before. So the word is
    /// the one that a put would have left, but for the death, and from there on this is a put that kills.
    pub fn put_only(&self, destroy: impl FnOnce()) -> Option<bool> {
        // Relaxed: a guess that the exchange checks.
        let mut held = self.word().load(Ordering::Relaxed);
        loop {
            if held & (DEAD | REFS) != NONE + 1 {
                return None;
            }
            let dead = (held - 1) | DEAD;
            // Acquire: as the exchange of `hit_zero`, which kills too; pairs with the Release of every put and settling
            // before. On failure Relaxed: nothing has happened. Explored by `shared_...unwrap...`;
            // `mutant_a_relaxed_unwrap_...`. The loop turns as often as others settle, or take and put, meanwhile.
            match self.word().compare_exchange(held, dead, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(self.finish(held - 1, destroy)),
                Err(now) => held = now,
            }
        }
    }

    /// The references, as far as one look can tell. 0 is not death: a `get` may still revive the object
    /// before the last put has decided. Above [`DebtRef::REFERENCES_MAX`]: pinned.
    pub fn read(&self) -> u64 {
        // Relaxed: the number is old when it is read.
        let word = self.word().load(Ordering::Relaxed);
        if word & DEAD != 0 { 0 } else { (word & REFS).saturating_sub(NONE) }
    }

    /// `old` is the word before our addition: without references, dead, or in a zone of error.
    #[cold]
    fn get_slow(&self, old: u64) -> bool {
        if old & DEAD != 0 {
            // Relaxed: nothing happened. Taken back so that failed attempts do not add up.
            self.word().fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let refs = old & REFS;
        if refs == NONE {
            // Relaxed: it only has to come before our own put, and does: same thread, same word.
            self.word().fetch_add(OWED_ONE, Ordering::Relaxed);
            return true;
        }
        if refs == NONE + Self::REFERENCES_MAX {
            report(Fault::Overflow);
        }
        let alive = self.pin();
        if !alive {
            // Relaxed: as above. The put too many that brought us here met the death.
            self.word().fetch_sub(1, Ordering::Relaxed);
        }
        alive
    }

    /// Kills, or leaves that to the remaining zero-hitters. `zero` is the word as our subtraction left it.
    fn hit_zero(&self, mut zero: u64, destroy: impl FnOnce()) -> bool {
        loop {
            // Acquire: pairs with the Release of every put, and with that of every settling before. On failure Relaxed:
            // the value alone decides, and a thread that leaves has nothing to see.
            // Explored by `debt_...`; `mutant_a_relaxed_death_...`.
            match self.word().compare_exchange(
                zero,
                zero | DEAD,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) if now & (DEAD | REFS) != NONE || owes_more(now, zero) => {
                    return self.settle();
                }
                Err(now) => zero = now,
            }
        }
        self.finish(zero, destroy)
    }

    /// What the killer does, which found `zero` without references.
    fn finish(&self, zero: u64, destroy: impl FnOnce()) -> bool {
        if zero / OWED_ONE == 0 {
            destroy();
            return true;
        }
        let settle_anyway = Settle(self);
        destroy();
        std::mem::forget(settle_anyway);
        self.settle()
    }

    /// The last touch of a zero-hitter. True: the last of all.
    fn settle(&self) -> bool {
        // Release: pairs with the fence below in the thread that settles last, so that what we read and wrote of the
        // count and the object happens before it is freed. By what was owed *before*, which leaves out ourselves.
        // Explored by `debt_...`; `mutant_settle_...`.
        let old = self.word().fetch_sub(OWED_ONE, Ordering::Release);
        if old & DEAD == 0 || old / OWED_ONE != 0 {
            return false;
        }
        // Acquire fence: pairs with the Release of each settling before, the killer's among them. Only two weak threads
        // miss it: `mutant_settle_without_its_fence_...`. No touch of the word.
        fence(Ordering::Acquire);
        true
    }

    /// Puts the count where it is never freed, unless it is dead. Says whether it is alive.
    #[cold]
    fn pin(&self) -> bool {
        // Relaxed, all three: a pinned object is never freed, so nothing is ordered. Only read-modify-writes, so that
        // no reference or debt of others is lost.
        let mut now = self.word().load(Ordering::Relaxed);
        loop {
            if now & DEAD != 0 {
                return false;
            }
            if (now & REFS).abs_diff(PINNED) < DRIFT {
                return true;
            }
            let pinned = now & !REFS | PINNED;
            match self.word().compare_exchange(now, pinned, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU64 {
        self.touch();
        &self.word
    }

    #[inline(always)]
    pub(super) fn touch(&self) {
        self.memory.touch();
    }
}

/// Alive, with 1 to `REFERENCES_MAX - 1` references: one comparison.
#[inline(always)]
fn live_below_max(word: u64) -> bool {
    (word & (DEAD | REFS)).wrapping_sub(NONE + 1) < DebtRef::REFERENCES_MAX - 1
}

/// Alive, with 2 to `REFERENCES_MAX` references: one comparison.
#[inline(always)]
fn others_hold(word: u64) -> bool {
    (word & (DEAD | REFS)).wrapping_sub(NONE + 2) < DebtRef::REFERENCES_MAX - 1
}

/// Whether `OWED` grew. The words differ in nothing else; `OWED` is in the top bits, so the sign tells, with fewer than
/// 2^22 threads (Linux's `PID_MAX_LIMIT`) in a put at once.
fn owes_more(now: u64, before: u64) -> bool {
    (now.wrapping_sub(before) as i64) > 0
}

/// Settles when `destroy` panics, so that the others can still finish.
struct Settle<'a>(&'a DebtRef);

impl Drop for Settle<'_> {
    fn drop(&mut self) {
        let _ = self.0.settle();
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
