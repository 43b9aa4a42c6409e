//! The memory of a count, for loom to watch; nothing in other builds.

/// Whether the count is still there. Asked before each access to its words.
#[cfg(not(manylane_loom))]
#[derive(Debug)]
pub struct Memory;

#[cfg(not(manylane_loom))]
impl Memory {
    pub fn new() -> Memory {
        Memory
    }

    #[inline(always)]
    pub fn touch(&self) {}
}

/// Under loom: dropping the count writes, touching it reads. An access that is not ordered before the
/// free fails the model with "Causality violation", a count that is never freed with "leaked".
#[cfg(manylane_loom)]
#[derive(Debug)]
pub struct Memory {
    freed: loom::cell::UnsafeCell<bool>,
    /// Its drop lets loom check for a leak.
    _allocation: loom::alloc::Track<()>,
}

#[cfg(manylane_loom)]
impl Memory {
    pub fn new() -> Memory {
        let freed = loom::cell::UnsafeCell::new(false);
        Memory { freed, _allocation: loom::alloc::Track::new(()) }
    }

    pub fn touch(&self) {
        // SAFETY: the pointer comes from the cell, and loom ends the model if another thread writes.
        assert!(!self.freed.with(|freed| unsafe { *freed }), "used after it was freed");
    }
}

#[cfg(manylane_loom)]
impl Drop for Memory {
    fn drop(&mut self) {
        // A model that fails unwinds with objects of all ages.
        if !std::thread::panicking() {
            // SAFETY: as in `touch`; nothing else reads or writes.
            self.freed.with_mut(|freed| unsafe { *freed = true });
        }
    }
}

// SAFETY: threads that read while another writes end the model (see `touch`).
#[cfg(manylane_loom)]
unsafe impl Sync for Memory {}
