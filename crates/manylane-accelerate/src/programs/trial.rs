//! Trying the program on a frame, without an interface (`BPF_PROG_TEST_RUN`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use manylane_io::bpf::call::TestRun;

/// How a tried frame arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryOptions {
    /// The number of its ingress interface, in the calling thread's network namespace; 0 for `lo`,
    /// whose number is 1.
    pub ifindex: u32,
    /// Bytes of payload in each of the segments that it stands for; 0 when it stands for itself.
    pub gso_size: u32,
    /// How often it runs. The frame of one run is what the one before made of it: all but the first run see a
    /// packet that was forwarded already.
    pub repeat: u32,
    /// The queueing priority that it comes with.
    pub priority: u32,
    /// A device has added up its bytes (`CHECKSUM_COMPLETE`). Afterwards the kernel looks whether the device's sum
    /// is still right, and refuses if it is not. Needs Linux 6.17.
    pub is_summed: bool,
}

impl Default for TryOptions {
    fn default() -> TryOptions {
        TryOptions { ifindex: 0, gso_size: 0, repeat: 1, priority: 0, is_summed: false }
    }
}

/// What the program made of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// What it returned: [`NEXT`](super::NEXT) or [`REDIRECT`](super::REDIRECT).
    pub action: i32,
    /// Where it was counted: the verdict's number.
    pub verdict: u8,
    /// The port in whose row.
    pub ingress: u16,
    /// The port that it was sent to.
    pub egress: Option<u16>,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// Its queueing priority.
    pub priority: u32,
}

/// What a test run says.
pub(super) struct Run {
    pub action: i32,
    pub frame: Vec<u8>,
    pub priority: u32,
    /// Nanoseconds, on average of all runs.
    pub duration_ns: u32,
}

pub(super) fn run(program: &OwnedFd, frame: &[u8], options: &TryOptions) -> io::Result<Run> {
    let mut context = Context {
        priority: options.priority,
        ifindex: options.ifindex,
        gso_size: options.gso_size,
        ..Context::default()
    };
    let mut after = context;
    let mut out = vec![0u8; frame.len()];
    let mut run = TestRun {
        program: program.as_raw_fd() as u32,
        data_in_len: frame.len() as u32,
        data_out_len: out.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat: options.repeat.max(1),
        context_in_len: size_of::<Context>() as u32,
        context_out_len: size_of::<Context>() as u32,
        context_in: (&raw mut context) as u64,
        context_out: (&raw mut after) as u64,
        flags: if options.is_summed { CHECKSUM_COMPLETE } else { 0 },
        ..TestRun::default()
    };
    // SAFETY: BPF_PROG_TEST_RUN reads and writes `union bpf_attr` as `TestRun` lays it out: it reads `data_in_len`
    // bytes of `frame` and a context, and writes at most `data_out_len` bytes to `out` and one context; all four
    // outlive the call, and any bytes are a `Context`.
    manylane_io::syscall::retry(|| unsafe { run.call() })?;
    out.truncate(run.data_out_len as usize);
    Ok(Run {
        action: run.returned as i32,
        frame: out,
        priority: after.priority,
        duration_ns: run.duration_ns,
    })
}

/// Tries a program in a driver: what it returned, and the frame.
pub(super) fn run_driver(
    program: &OwnedFd,
    frame: &[u8],
    options: &TryOptions,
) -> io::Result<(i32, Vec<u8>)> {
    let mut context =
        DriverContext { end: frame.len() as u32, ifindex: options.ifindex, ..Default::default() };
    let mut after = context;
    let mut out = vec![0u8; frame.len()];
    let mut run = TestRun {
        program: program.as_raw_fd() as u32,
        data_in_len: frame.len() as u32,
        data_out_len: out.len() as u32,
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat: options.repeat.max(1),
        context_in_len: size_of::<DriverContext>() as u32,
        context_out_len: size_of::<DriverContext>() as u32,
        context_in: (&raw mut context) as u64,
        context_out: (&raw mut after) as u64,
        ..TestRun::default()
    };
    // SAFETY: as in `run`.
    manylane_io::syscall::retry(|| unsafe { run.call() })?;
    out.truncate(run.data_out_len as usize);
    Ok((run.returned as i32, out))
}

/// `struct xdp_md`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct DriverContext {
    start: u32,
    end: u32,
    meta: u32,
    ifindex: u32,
    queue: u32,
    egress_ifindex: u32,
}

/// `struct __sk_buff`: what we say or read of it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Context {
    before_priority: [u32; 8],
    priority: u32,
    ingress_ifindex: u32,
    ifindex: u32,
    what_the_kernel_says: [u32; 29],
    wire: [u32; 4],
    gso_size: u32,
    behind: [u32; 3],
}
const _: () = assert!(size_of::<Context>() == 192);
const _: () = assert!(std::mem::offset_of!(Context, gso_size) == 176);

/// linux/bpf.h.
const CHECKSUM_COMPLETE: u32 = 1 << 2;
