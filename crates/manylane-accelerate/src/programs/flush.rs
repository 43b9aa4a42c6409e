//! Hearing of flushes that fail: `flush.bpf.c` at the kernel's tracepoint.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use super::btf::Types;
use super::tracepoint::{self, offset, unknown};
use manylane_io::bpf::object::{self, Meant};

/// Loads the program and lets it hear, for devices of the calling thread's network namespace. Returns what it is
/// attached by.
pub(super) fn attach(table: impl Fn(&str) -> Option<Meant>) -> io::Result<OwnedFd> {
    let numbers = Numbers::read()?;
    let meant = |name: &str| table(name).or_else(|| numbers.meant(name).map(Meant::Number));
    let program = object::program(OBJECT, SECTION, meant)?;
    tracepoint::attach(TRACEPOINT, "manylane_flush", &program)
}

/// What only the running kernel knows.
struct Numbers {
    device_index: u64,
    device_net: u64,
    net_number: u64,
    /// Our network namespace's own.
    net: u64,
}

impl Numbers {
    fn read() -> io::Result<Numbers> {
        let btf = tracepoint::kernel_types()?;
        let types = Types::read(&btf).ok_or_else(|| unknown("no type information"))?;
        Ok(Numbers {
            device_index: offset(&types, "net_device", &["ifindex"])?,
            device_net: offset(&types, "net_device", &["nd_net", "net"])?,
            net_number: offset(&types, "net", &["ns", "inum"])?,
            net: tracepoint::net_number()?,
        })
    }

    fn meant(&self, name: &str) -> Option<u64> {
        match name {
            "device_index_at" => Some(self.device_index),
            "device_net_at" => Some(self.device_net),
            "net_number_at" => Some(self.net_number),
            "net_number" => Some(self.net),
            _ => None,
        }
    }
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("flush.bpf.o");
const SECTION: &str = "raw_tp/xdp_devmap_xmit";
const TRACEPOINT: &CStr = c"xdp_devmap_xmit";
