//! Indices into tables whose slots are reused after a grace period.

use std::marker::PhantomData;

use super::Guard;

/// The index of a `T` that was read under a guard, and that cannot outlive it.
///
/// A slot is reused after a grace period, so an index kept across `quiescent` would be a use after
/// free in meaning. The brand refuses it:
///
/// ```compile_fail
/// # use manylane_sync::rcu::{Domain, Index};
/// let domain = Domain::new(1);
/// let mut reader = domain.register().unwrap();
/// let index: Index<'_, u8> = Index::new(reader.guard(), 3);
/// reader.quiescent();
/// index.raw(); // the guard's lifetime ended at `quiescent`
/// ```
pub struct Index<'g, T> {
    raw: u32,
    brand: PhantomData<Brand<'g, T>>,
}

impl<T> Clone for Index<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Index<'_, T> {}

impl<T> PartialEq for Index<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for Index<'_, T> {}

impl<T> std::fmt::Debug for Index<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.raw)
    }
}

impl<'g, T> Index<'g, T> {
    /// Brands `raw`, which was read from a table under `guard`.
    #[inline(always)]
    pub fn new(guard: Guard<'g>, raw: u32) -> Index<'g, T> {
        let _ = guard;
        Index { raw, brand: PhantomData }
    }

    /// The bare number, to index a table with during the guard's lifetime.
    #[inline(always)]
    pub fn raw(self) -> u32 {
        self.raw
    }
}

/// Lives as long as the guard; `fn() -> T` because an index holds no `T`.
type Brand<'g, T> = (&'g (), fn() -> T);
