//! Hearing of flushes that fail: `flush.bpf.c` at the kernel's tracepoint.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use super::btf::Types;
use manylane_io::bpf::call::{self, Kind};
use manylane_io::bpf::object::{self, Meant};

/// Loads the program and lets it hear, for devices of the calling thread's network namespace. Returns what it is
/// attached by.
pub(super) fn attach(table: impl Fn(&str) -> Option<Meant>) -> io::Result<OwnedFd> {
    let numbers = Numbers::read()?;
    let meant = |name: &str| table(name).or_else(|| numbers.meant(name).map(Meant::Number));
    let program = object::program(OBJECT, SECTION, meant)?;
    let program = program.load(KIND, "manylane_flush");
    let program = program.map_err(|complaint| io::Error::other(complaint.to_string()))?;
    let mut attributes = Open {
        name: TRACEPOINT.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        padding: 0,
        cookie: 0,
    };
    // SAFETY: BPF_RAW_TRACEPOINT_OPEN reads `union bpf_attr` as `Open` lays it out, and a text that ends with a
    // zero, which is static. The call returns a descriptor.
    unsafe { call::open(RAW_TRACEPOINT_OPEN, &mut attributes) }
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
        let btf = fs::read(TYPES)?;
        let types = Types::read(&btf).ok_or_else(|| unknown("no type information"))?;
        let offset = |structure, path: &[&str]| {
            let unknown = || unknown(&format!("no {structure}.{}", path.join(".")));
            types.offset(structure, path).ok_or_else(unknown)
        };
        Ok(Numbers {
            device_index: offset("net_device", &["ifindex"])?,
            device_net: offset("net_device", &["nd_net", "net"])?,
            net_number: offset("net", &["ns", "inum"])?,
            net: fs::metadata("/proc/thread-self/ns/net")?.ino(),
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

fn unknown(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{TYPES}: {what}"))
}

/// `union bpf_attr` for BPF_RAW_TRACEPOINT_OPEN.
#[repr(C)]
struct Open {
    name: u64,
    program: u32,
    padding: u32,
    cookie: u64,
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("flush.bpf.o");
const SECTION: &str = "raw_tp/xdp_devmap_xmit";
const TRACEPOINT: &[u8] = b"xdp_devmap_xmit\0";
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// `BPF_PROG_TYPE_RAW_TRACEPOINT`.
const KIND: Kind = Kind { program: 17, attach: 0, flags: 0, interface: 0 };
// linux/bpf.h.
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
