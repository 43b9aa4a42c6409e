//! The map of devices that frames are redirected to in the driver tier (`BPF_MAP_TYPE_DEVMAP`), by ports.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::super::call;
use super::memory::{self, PORTS};

/// The map. The kernel takes a device out that goes.
pub(in crate::bpf) struct Devices(OwnedFd);

impl Devices {
    pub fn new() -> io::Result<Devices> {
        memory::map(DEVMAP, "devices", 4, PORTS as u32, 0).map(Devices)
    }

    /// The map's descriptor.
    pub fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// From now on frames for a port leave by the interface of this number in the calling thread's network
    /// namespace; or are passed on, with none.
    pub fn set(&self, port: u16, interface: Option<u32>) -> io::Result<()> {
        set(&self.0, u32::from(port), interface)
    }
}

/// Puts a number, or a descriptor, into a map of such, or takes it out.
pub(super) fn set(map: &OwnedFd, key: u32, value: Option<u32>) -> io::Result<()> {
    let mut attributes = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const key) as u64,
        value: value.as_ref().map_or(0, |value| std::ptr::from_ref(value) as u64),
        flags: 0,
    };
    let command = if value.is_some() { UPDATE } else { DELETE };
    // SAFETY: BPF_MAP_UPDATE_ELEM and BPF_MAP_DELETE_ELEM read `union bpf_attr` as `Element` lays it out, a key
    // of 4 bytes, and the former a value of 4 bytes; both outlive the call.
    unsafe { call::call(command, &mut attributes) }.map(drop)
}

/// `union bpf_attr` for BPF_MAP_UPDATE_ELEM and BPF_MAP_DELETE_ELEM.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// linux/bpf.h.
const DEVMAP: u32 = 14;
const UPDATE: libc::c_int = 2;
const DELETE: libc::c_int = 3;
