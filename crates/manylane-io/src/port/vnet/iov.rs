//! A packet's bytes as the `struct iovec`s that system calls take.

use libc::iovec;
use manylane_frame::{CHAIN_MAX, Frame, View};

/// The most entries of one packet with its header.
pub const IOV_MAX: usize = 1 + CHAIN_MAX;

/// Adds the packet's parts to `iov`, for the kernel to read. Parts that are adjacent in
/// memory become one entry: up to 8 entries cost the kernel no allocation (`UIO_FASTIOV`).
#[inline]
pub fn push_packet(iov: &mut Vec<iovec>, view: View<'_>, frame: &Frame) {
    let first = iov.len();
    for part in view.parts(frame) {
        push(iov, first, part.as_ptr().cast_mut(), part.len());
    }
}

/// Adds `len` bytes at `base`, to the last entry if they are adjacent to it and it is not below `first`.
#[inline]
pub fn push(iov: &mut Vec<iovec>, first: usize, base: *mut u8, len: usize) {
    if let Some(last) = iov[first..].last_mut()
        && last.iov_base.wrapping_byte_add(last.iov_len) == base.cast()
    {
        last.iov_len += len;
        return;
    }
    iov.push(iovec { iov_base: base.cast(), iov_len: len });
}
