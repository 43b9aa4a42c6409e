//! Waiting until no program can see any more what it saw before.
//!
//! A program runs from its first to its last instruction inside an RCU section of the kernel's. A thread that
//! replaces a map in a map of maps waits for all such sections that were there (`maybe_wait_bpf_programs`), because
//! a program may be about to use the old one: that is the one way to request the wait. membarrier(2) is none: it
//! says nothing of other threads' softirqs.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use manylane_io::bpf::call;
use manylane_io::bpf::maps::{array, array_of_maps};

/// Waits for grace periods of the kernel's.
pub struct Grace {
    maps: Arc<Maps>,
    /// Which of the inner maps comes next.
    turn: usize,
}

struct Maps {
    outer: OwnedFd,
    /// What is in `outer` by turns; only that it is replaced matters.
    inner: [OwnedFd; 2],
}

impl Grace {
    pub(super) fn new() -> io::Result<Grace> {
        let inner = [array("grace", 4, 0)?, array("grace", 4, 0)?];
        let maps = Maps { outer: array_of_maps("grace", &inner[0])?, inner };
        Ok(Grace { maps: Arc::new(maps), turn: 0 })
    }

    /// Another one, to be used by another thread.
    pub(super) fn another(&self) -> Grace {
        Grace { maps: self.maps.clone(), turn: self.turn }
    }

    /// Returns when every program has ended that was running when this was called. Milliseconds, or tens.
    pub fn wait(&mut self) -> io::Result<()> {
        self.turn ^= 1;
        let (key, value) = (0u32, self.maps.inner[self.turn].as_raw_fd() as u32);
        let mut attributes = Update {
            map: self.maps.outer.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const key) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: BPF_MAP_UPDATE_ELEM reads `union bpf_attr` as `Update` lays it out, and from `key` and `value`
        // the four bytes that both have in this map; both outlive the call.
        unsafe { call::call(MAP_UPDATE, &mut attributes) }?;
        Ok(())
    }
}

/// `union bpf_attr` for BPF_MAP_UPDATE_ELEM.
#[repr(C)]
struct Update {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// linux/bpf.h.
const MAP_UPDATE: libc::c_int = 2;
