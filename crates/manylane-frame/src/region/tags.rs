//! Which tags the regions of this process have.

use std::sync::{Mutex, MutexGuard};

use crate::frame::TAG_MAX;

/// A tag that no region has.
pub(super) fn take() -> Option<u8> {
    let mut tags = in_use();
    let free = tags.iter().position(|taken| !taken)?;
    tags[free] = true;
    Some(free as u8 + 1) // 1 to `TAG_MAX`.
}

/// Which of the tags are in use.
pub(super) fn in_use() -> MutexGuard<'static, [bool; TAG_MAX as usize]> {
    static TAGS: Mutex<[bool; TAG_MAX as usize]> = Mutex::new([false; TAG_MAX as usize]);
    TAGS.lock().expect("no holder of this lock panics")
}
