//! Atomics and cells: the standard library's, loom's under `--cfg manylane_loom`, or ones that count
//! under `--cfg manylane_counted`.
//!
//! With `counted`, which wraps them, the only importer of `std::sync::atomic` (clippy's
//! `disallowed-types` holds the others to it).

#[cfg(all(manylane_loom, manylane_counted))]
compile_error!("a build explores or counts, not both");

#[cfg(manylane_counted)]
pub mod counted;

#[cfg(not(manylane_loom))]
mod chosen {
    pub use std::hint::spin_loop;
    pub use std::sync::Arc;
    #[cfg(not(manylane_counted))]
    pub use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
    pub use std::sync::atomic::{Ordering, fence};

    #[cfg(manylane_counted)]
    use super::counted::{Access, touch};
    #[cfg(manylane_counted)]
    pub use super::counted::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

    /// `std::cell::UnsafeCell` with loom's two methods.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        pub const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer for reading.
        #[inline(always)]
        #[cfg_attr(manylane_counted, track_caller)]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            #[cfg(manylane_counted)]
            touch(self.0.get().cast(), size_of::<T>(), Access::Read);
            f(self.0.get())
        }

        /// Calls `f` with a pointer for writing.
        #[inline(always)]
        #[cfg_attr(manylane_counted, track_caller)]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            #[cfg(manylane_counted)]
            touch(self.0.get().cast(), size_of::<T>(), Access::Write);
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
/// as a ring shared with the kernel. (Those that count have the same size and place.)
///
/// Loom cannot see these. Each user names the loom test of the same protocol.
pub mod foreign {
    #[cfg(manylane_counted)]
    pub use super::counted::{AtomicU16, AtomicU32, AtomicU64};
    #[cfg(not(manylane_counted))]
    pub use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
    pub use std::sync::atomic::{Ordering, fence};
}
