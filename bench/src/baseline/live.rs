//! The kernel's fastest source of packets: a program that it runs again and again, each time on a new frame,
//! which the program sends out by an interface (BPF_PROG_TEST_RUN with live frames, Linux 5.18).
//!
//! The program is written here, instruction by instruction: a frame's headers come from its own text, since
//! pages come back as a forwarder has left them, and what makes its flow from a random number ([`Flows`]).

use std::ffi::c_long;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What a frame begins with: Ethernet, IPv4, UDP.
pub const HEADERS: usize = 42;
const FRAME_LEN: usize = 64;
/// Written by the program: all up to the UDP source port.
const WRITTEN: usize = 36;
const PORT_AT: i16 = 34;

/// How the frames differ from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// Not at all.
    One,
    /// By their UDP source ports: 16,384 of them.
    Ports,
    /// By their destinations: 65,536 of them, all over the address space from 16.0.0.0 to 111.255.255.255, as in
    /// the generator of the baselines that other forwarders were measured with.
    Destinations,
}

/// Sends frames with these headers, as fast as they go, until a signal comes: from the namespace of this
/// thread, by the interface with this index. Needs root.
pub fn send(headers: &[u8; HEADERS], interface: u32, flows: Flows) -> io::Result<()> {
    let program = load(&program(headers, interface, flows))?;
    let mut frame = [0u8; FRAME_LEN];
    frame[..HEADERS].copy_from_slice(headers);
    // `struct xdp_md`: data, data_end, and four that are zero.
    let context = [0u32, FRAME_LEN as u32, 0, 0, 0, 0];
    let mut run = TestRun {
        program: program.as_raw_fd(),
        data_size_in: FRAME_LEN as u32,
        data_in: frame.as_ptr() as u64,
        repeat: i32::MAX as u32,
        context_size_in: size_of_val(&context) as u32,
        context_in: context.as_ptr() as u64,
        flags: LIVE_FRAMES,
        batch_size: 64,
        ..TestRun::default()
    };
    loop {
        // SAFETY: bpf(2) reads `run`, whose size is given, and through it the frame and the context, whose
        // sizes are in it; all three live until it returns. With live frames nothing is written back but
        // results in `run`.
        match check(unsafe { bpf(PROG_TEST_RUN, &mut run) }) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut attributes = Load {
        kind: PROG_TYPE_XDP,
        instructions: instructions.len() as u32,
        text: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        ..Load::default()
    };
    // SAFETY: bpf(2) reads `attributes`, whose size is given, and through it as many instructions as it says
    // and a string that ends; all live until it returns.
    let fd = check(unsafe { bpf(PROG_LOAD, &mut attributes) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn check(returned: c_long) -> io::Result<c_long> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// # Safety
///
/// `attributes` is the structure of linux/bpf.h for `command`, and what it points to is as the command needs
/// it.
unsafe fn bpf<A>(command: u32, attributes: &mut A) -> c_long {
    // SAFETY: the caller's debts are bpf(2)'s.
    unsafe { libc::syscall(libc::SYS_bpf, command, attributes as *mut A, size_of::<A>()) }
}

const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const PROG_TYPE_XDP: u32 = 6;
const LIVE_FRAMES: u32 = 2;

/// The beginning of `union bpf_attr` for BPF_PROG_LOAD (linux/bpf.h).
#[derive(Default)]
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    text: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The same for BPF_PROG_TEST_RUN.
#[derive(Default)]
#[repr(C)]
struct TestRun {
    program: RawFd,
    returned: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    zero: u32,
}

/// `struct bpf_insn`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

fn program(headers: &[u8; HEADERS], interface: u32, flows: Flows) -> Vec<Instruction> {
    const LOAD_WORD: u8 = 0x61;
    const JUMP_IF_GREATER: u8 = 0x2d;
    const STORE_IMMEDIATE: u8 = 0x62;
    const EXIT: u8 = 0x95;
    const REDIRECT: i32 = 23;
    const JUMP: u8 = 0x05;
    const XDP_DROP: i32 = 1;
    let mut program = vec![
        instruction(LOAD_WORD, 6, 1, 0, 0), // r6 = data
        instruction(LOAD_WORD, 2, 1, 4, 0), // r2 = data_end
        instruction(MOVE, 3, 6, 0, 0),
        instruction(ADD, 3, 0, 0, FRAME_LEN as i32),
        instruction(JUMP_IF_GREATER, 3, 2, 2, 0),
        instruction(MOVE_IMMEDIATE, 7, 0, 0, interface as i32),
        instruction(JUMP, 0, 0, 2, 0),
        instruction(MOVE_IMMEDIATE, 0, 0, 0, XDP_DROP),
        instruction(EXIT, 0, 0, 0, 0),
    ];
    for (at, word) in (0..).step_by(4).zip(headers[..WRITTEN].as_chunks::<4>().0) {
        program.push(instruction(STORE_IMMEDIATE, 6, 0, at, i32::from_ne_bytes(*word)));
    }
    match flows {
        Flows::One => {}
        Flows::Ports => program.extend(any_port()),
        Flows::Destinations => program.extend(any_destination(headers)),
    }
    program.extend([
        instruction(MOVE, 1, 7, 0, 0),
        instruction(MOVE_IMMEDIATE, 2, 0, 0, 0),
        instruction(CALL, 0, 0, 0, REDIRECT),
        instruction(EXIT, 0, 0, 0, 0),
    ]);
    program
}

/// Writes a random source port.
fn any_port() -> [Instruction; 3] {
    const FLOWS: i32 = 1 << 14; // A power of two.
    [
        instruction(CALL, 0, 0, 0, GET_PRANDOM_U32),
        instruction(AND, 0, 0, 0, FLOWS - 1),
        instruction(STORE_HALF, 6, 0, PORT_AT, 0),
    ]
}

/// Writes a random destination, and the header's checksum: that of the header without one, and its two halves.
fn any_destination(headers: &[u8; HEADERS]) -> [Instruction; 24] {
    const MULTIPLY_32: u8 = 0x24;
    const MODULO_32: u8 = 0x94;
    const ADD_32: u8 = 0x04;
    const SHIFT_RIGHT: u8 = 0x77;
    const ADD_REGISTER: u8 = 0x0f;
    const XOR: u8 = 0xa7;
    const TO_BIG_ENDIAN: u8 = 0xdc;
    const STORE_WORD: u8 = 0x63;
    const FLOWS: i32 = 1 << 16;
    let mut ip: [u8; 20] = *headers[14..].first_chunk().expect("there is an IPv4 header");
    ip[10..12].fill(0);
    ip[16..].fill(0);
    let sum: u32 =
        ip.as_chunks::<2>().0.iter().map(|two| u32::from(u16::from_be_bytes(*two))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let fold = [
        instruction(MOVE, 3, 2, 0, 0),
        instruction(SHIFT_RIGHT, 3, 0, 0, 16),
        instruction(AND, 2, 0, 0, 0xffff),
        instruction(ADD_REGISTER, 2, 3, 0, 0),
    ];
    [
        instruction(CALL, 0, 0, 0, GET_PRANDOM_U32),
        instruction(AND, 0, 0, 0, FLOWS - 1),
        instruction(MULTIPLY_32, 0, 0, 0, 2_654_435_761u32 as i32), // Knuth's: far apart.
        instruction(MODULO_32, 0, 0, 0, 0x6000_0000),
        instruction(ADD_32, 0, 0, 0, 0x1000_0000),
        instruction(MOVE, 2, 0, 0, 0),
        instruction(SHIFT_RIGHT, 2, 0, 0, 16),
        instruction(MOVE, 3, 0, 0, 0),
        instruction(AND, 3, 0, 0, 0xffff),
        instruction(ADD_REGISTER, 2, 3, 0, 0),
        instruction(ADD, 2, 0, 0, sum as i32),
        fold[0],
        fold[1],
        fold[2],
        fold[3],
        // Sum and halves are below 4 * 65,536: the first time may leave a carry, the second does not.
        fold[0],
        fold[1],
        fold[2],
        fold[3],
        instruction(XOR, 2, 0, 0, 0xffff),
        instruction(TO_BIG_ENDIAN, 2, 0, 0, 16),
        instruction(STORE_HALF, 6, 2, CHECKSUM_AT, 0),
        instruction(TO_BIG_ENDIAN, 0, 0, 0, 32),
        instruction(STORE_WORD, 6, 0, DESTINATION_AT, 0),
    ]
}

fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, immediate }
}

const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const STORE_HALF: u8 = 0x6b;
const CALL: u8 = 0x85;
const GET_PRANDOM_U32: i32 = 7;
const CHECKSUM_AT: i16 = 14 + 10;
const DESTINATION_AT: i16 = 14 + 16;
