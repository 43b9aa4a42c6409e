//! Cache lines of its own for what another thread writes often.

use std::ops::Deref;

/// A value on cache lines of its own.
///
/// 128 bytes, not 64: x86 fetches lines in pairs, so a neighbour 64 bytes away is still shared.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CacheAligned<T>(pub T);

impl<T> Deref for CacheAligned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
