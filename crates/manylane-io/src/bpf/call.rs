//! bpf(2) commands that aya does not provide.

use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Complaint;
use super::types::{FunctionType, Types};
use crate::syscall::check;

/// A BPF instruction (`struct bpf_insn`).
pub type Instruction = [u8; 8];

/// A program's type and attach point, by their numbers in linux/bpf.h.
#[derive(Clone, Copy)]
pub struct Kind {
    /// `BPF_PROG_TYPE_...`
    pub program: u32,
    /// The attach point, `BPF_...`; 0 for program types that do not declare one at load time.
    pub attach: u32,
    /// `BPF_F_...`
    pub flags: u32,
    /// The number of the device that the program is bound to, or 0.
    pub interface: u32,
}

/// Loads a program. The name has at most 15 bytes.
pub fn load(kind: Kind, name: &str, code: &[Instruction]) -> io::Result<OwnedFd> {
    // SAFETY: no log buffer is passed.
    unsafe { open_program(&mut Load { name: padded(name), ..Load::of(kind, code, None) }) }
}

/// As [`load`], with the types of the program's functions. A program that is refused is loaded again, to get the verifier's
/// log: its last lines, if any.
pub(super) fn load_typed(
    kind: Kind,
    name: &str,
    code: &[Instruction],
    types: Option<&Types>,
) -> Result<OwnedFd, Complaint> {
    let mut attributes = Load { name: padded(name), ..Load::of(kind, code, types) };
    // SAFETY: no log buffer is passed.
    let loaded = unsafe { open_program(&mut attributes) };
    loaded.map_err(|source| Complaint { source, complaint: complaint(attributes) })
}

/// The last lines of the verifier's log of a program.
fn complaint(attributes: Load<'_>) -> Option<String> {
    let mut log = vec![0u8; LOG_LEN];
    let mut attributes = Load {
        log_level: 1,
        log_len: log.len() as u32,
        log: log.as_mut_ptr() as u64,
        ..attributes
    };
    // SAFETY: the kernel writes at most `log_len` bytes to `log`, which outlives the call.
    let _loaded = unsafe { open_program(&mut attributes) };
    let text = log.split(|&byte| byte == 0).next()?;
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let last = lines.len().saturating_sub(LOG_LINES);
    (!lines.is_empty()).then(|| lines[last..].join(" | "))
}

fn padded(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    padded.iter_mut().zip(name.bytes().take(15)).for_each(|(place, byte)| *place = byte);
    padded
}

/// # Safety
///
/// `log` is 0, or the address of `log_len` bytes that the kernel may write.
unsafe fn open_program(attributes: &mut Load<'_>) -> io::Result<OwnedFd> {
    let mut load = || {
        // SAFETY: BPF_PROG_LOAD reads `union bpf_attr` as `Load` lays it out, and what that points to: code and types,
        // which it borrows, and a text that ends with a zero, which is static; the log is the caller's debt.
        unsafe { open(PROGRAM_LOAD, attributes) }
    };
    // The verifier gives up when a signal arrives for the thread, which then handles the signal (`do_check`).
    for _ in 1..LOAD_ATTEMPTS {
        match load() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            loaded => return loaded,
        }
    }
    load()
}

/// bpf(2).
///
/// # Safety
///
/// `T` is the part of `union bpf_attr` that belongs to `command`, and each pointer in it is valid as the command
/// requires.
pub unsafe fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes of `attributes`; the pointers in it are the caller's
    // debt.
    let returned = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), mem::size_of::<T>())
    };
    check(returned as libc::c_int)
}

/// As [`call`], for commands that return a descriptor.
///
/// # Safety
///
/// As for [`call`]; and the command returns a descriptor.
pub unsafe fn open<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's debt.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `union bpf_attr` for BPF_PROG_LOAD, up to the last field that we set, with a borrow of what `code` and `function_types`
/// point to.
#[repr(C)]
struct Load<'p> {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
    types: u32,
    function_type_len: u32,
    function_types: u64,
    functions: u32,
    line_len: u32,
    borrowed: PhantomData<&'p [Instruction]>,
}
const _: () = assert!(size_of::<Load<'_>>() == 96);

impl<'p> Load<'p> {
    /// Without a name and without a log.
    fn of(kind: Kind, code: &'p [Instruction], types: Option<&'p Types>) -> Load<'p> {
        let functions = types.map_or(&[][..], |types| &types.functions);
        Load {
            kind: kind.program,
            instructions: code.len() as u32,
            code: code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            log_level: 0,
            log_len: 0,
            log: 0,
            kernel_version: 0,
            flags: kind.flags,
            name: [0; 16],
            interface: kind.interface,
            attach: kind.attach,
            types: types.map_or(0, |types| types.fd.as_raw_fd() as u32),
            function_type_len: if functions.is_empty() {
                0
            } else {
                size_of::<FunctionType>() as u32
            },
            function_types: if functions.is_empty() { 0 } else { functions.as_ptr() as u64 },
            functions: functions.len() as u32,
            line_len: 0,
            borrowed: PhantomData,
        }
    }
}

/// `union bpf_attr` for BPF_PROG_TEST_RUN.
#[repr(C)]
#[derive(Default)]
pub struct TestRun {
    /// Its descriptor.
    pub program: u32,
    /// What it returned.
    pub returned: u32,
    /// Bytes at `data_in`.
    pub data_in_len: u32,
    /// Bytes of room at `data_out`; afterwards, bytes there.
    pub data_out_len: u32,
    /// Address of the frame it gets.
    pub data_in: u64,
    /// Address of what it made of the frame.
    pub data_out: u64,
    /// How often it runs.
    pub repeat: u32,
    /// Nanoseconds of a run, on average.
    pub duration_ns: u32,
    /// Bytes at `context_in`.
    pub context_in_len: u32,
    /// Bytes of room at `context_out`.
    pub context_out_len: u32,
    /// Address of the context it gets.
    pub context_in: u64,
    /// Address of the context it left.
    pub context_out: u64,
    /// `BPF_F_TEST_...`
    pub flags: u32,
    /// The CPU it runs on, where `flags` requests one.
    pub cpu: u32,
    /// Frames of a batch, with live frames.
    pub batch: u32,
    /// None of the kernel's business.
    pub padding: u32,
}
const _: () = assert!(size_of::<TestRun>() == 80);

impl TestRun {
    /// Runs the program.
    ///
    /// # Safety
    ///
    /// Each buffer exists and is as long as its length field says; `data_out` and `context_out` are writable.
    pub unsafe fn call(&mut self) -> io::Result<()> {
        // SAFETY: BPF_PROG_TEST_RUN reads and writes `union bpf_attr` as `TestRun` lays it out; its buffers are
        // the caller's debt.
        unsafe { call(TEST_RUN, self) }.map(drop)
    }
}

/// A GPL-compatible license, as the kernel requires; the license of the sources.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
/// As libbpf (`PROG_LOAD_ATTEMPTS`).
const LOAD_ATTEMPTS: usize = 5;
/// The kernel keeps the end of a longer log (since Linux 6.4).
const LOG_LEN: usize = 1 << 16;
const LOG_LINES: usize = 8;
// linux/bpf.h.
const PROGRAM_LOAD: libc::c_int = 5;
const TEST_RUN: libc::c_int = 10;
