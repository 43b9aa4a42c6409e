//! Programs at tracepoints of the kernel, which read its own structures.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use super::btf::Types;
use manylane_io::bpf::call::{self, Kind};
use manylane_io::bpf::object;

/// Loads a program and lets it hear of a tracepoint. Returns what it is attached by.
pub(super) fn attach(
    tracepoint: &CStr,
    name: &str,
    program: &object::Program,
) -> io::Result<OwnedFd> {
    let program = program
        .load(KIND, name)
        .map_err(|complaint| io::Error::new(complaint.source.kind(), complaint.to_string()))?;
    let mut attributes = Open {
        name: tracepoint.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        padding: 0,
        cookie: 0,
    };
    // SAFETY: BPF_RAW_TRACEPOINT_OPEN reads `union bpf_attr` as `Open` lays it out, and a text that ends with a
    // zero, which outlives the call. The call returns a descriptor.
    unsafe { call::open(RAW_TRACEPOINT_OPEN, &mut attributes) }
}

/// The running kernel's type information.
pub(super) fn kernel_types() -> io::Result<Vec<u8>> {
    fs::read(TYPES)
}

/// Where a structure of the kernel has a member.
pub(super) fn offset(types: &Types<'_>, structure: &str, path: &[&str]) -> io::Result<u64> {
    let found = types.offset(structure, path);
    found.ok_or_else(|| unknown(&format!("no {structure}.{}", path.join("."))))
}

/// The number of the calling thread's network namespace.
pub(super) fn net_number() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// The type information lacks this.
pub(super) fn unknown(what: &str) -> io::Error {
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

const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// `BPF_PROG_TYPE_RAW_TRACEPOINT`.
const KIND: Kind = Kind { program: 17, attach: 0, flags: 0, interface: 0 };
// linux/bpf.h.
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
