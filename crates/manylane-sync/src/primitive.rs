//! Atomics and cells: the standard library's, or loom's under `--cfg manylane_loom`.
//!
//! The only importer of `std::sync::atomic` (clippy's `disallowed-types` holds the others to it).

#[cfg(not(manylane_loom))]
mod chosen {
    pub use std::hint::spin_loop;
    pub use std::sync::Arc;
    pub use std::sync::atomic::{
        AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    /// `std::cell::UnsafeCell` with loom's two methods.
    #[derive(Debug, Default)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        pub const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer for reading.
        #[inline(always)]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Calls `f` with a pointer for writing.
        #[inline(always)]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(manylane_loom)]
mod chosen {
    pub use loom::cell::UnsafeCell;
    pub use loom::hint::spin_loop;
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{
        AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

pub use chosen::*;

/// The standard library's atomics, also under loom: for words whose size and place are given, such
/// as a table in mapped memory or a ring shared with the kernel.
///
/// Loom cannot see these. Whoever uses them names the loom test of the same protocol.
pub mod foreign {
    pub use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
}
