//! Filters: which packets a capture wants, as programs of classic BPF.
//!
//! tcpdump's filter language is compiled to such a program (`manylane-io`'s `libpcap` does that, in the process of the
//! observer), a list of instructions for a machine with two registers and 16 words of memory. The program is not
//! trusted, so [`Program::new`] checks it, once; then workers run it for each packet, without a loop, an allocation or
//! an error in its path.
//!
//! Sources: bpf(4), McCanne and Jacobson, *The BSD Packet Filter* (USENIX 1993), Linux
//! `Documentation/networking/filter.rst`, `bpf_filter.c` of libpcap 1.10.
//!
//! # What is refused
//!
//! What Linux refuses (`bpf_check_classic`), by the same bounds, and all of its own offsets:
//!
//! | refused                                             | why                                         |
//! |-----------------------------------------------------|---------------------------------------------|
//! | no instruction, or more than [`INSTRUCTIONS_MAX`]   | a packet's bound: each runs at most once    |
//! | a code that classic BPF does not have               |                                             |
//! | a jump behind the end, or backward                  | it would not end; libpcap's `protochain` is such a loop |
//! | an end without `ret`                                |                                             |
//! | a word of memory above the 16th, or read on a path that did not write it | the value would be chance; libpcap's `geneve or ip`, whose second half looks behind the tunnel's header, which a packet may lack |
//! | division by a constant 0, shift by a constant above 31 |                                          |
//! | a load at -0x200000 or above                        | Linux's offsets for facts that are not in the packet; libpcap's `inbound`, `ifindex` |
//!
//! # Where machines differ
//!
//! | what                                 | here     | libpcap  | Linux                                 |
//! |--------------------------------------|----------|----------|---------------------------------------|
//! | a load outside of the packet         | ends, 0  | ends, 0  | ends, 0                               |
//! | division or remainder by X = 0       | ends, 0  | ends, 0  | ends, 0                               |
//! | X + k beyond 32 bits, in a load      | outside  | outside  | wraps, and may be inside              |
//! | shift by X above 31                  | 0        | 0        | by X modulo 32                        |
//! | registers at the start               | 0        | 0        | 0                                     |
//! | the length (`len`, `greater`)        | the whole packet's | on the wire | the whole packet's |
//!
//! `manylane`'s test `filter` holds this interpreter against libpcap's own, over what its compiler makes of
//! tcpdump's language; the fuzz target `filter` over any program.
//!
//! # Packets in several frames
//!
//! The bytes in the first frame are a slice, and nearly every load ends there. Only a load that does not reads the
//! rest, by a closure, which [`Program::run`] does not have: for a packet in one frame the code is compiled without.
//!
//! # Many packets
//!
//! A worker has a batch of packets, and [`Program::run_together`] takes them through the program an instruction at a
//! time, where a load, its test and the jump of one packet do not wait for those of another. Both mean
//! one thing: the tests, and the fuzz target `filter`, hold one against the other.
//!
//! Elsewhere: what is done with a packet that matches is `manylane`'s.

use manylane_frame::{Frame, View};

mod check;
mod op;
mod run;
mod together;

#[cfg(all(test, not(manylane_loom)))]
mod tests;

pub use check::FilterError;
pub use together::{Chosen, Columns, TOGETHER_MAX};

use op::Op;

/// Most instructions of a program (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// One instruction, as in `struct bpf_insn` and `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// How many instructions to skip if a condition holds.
    pub jt: u8,
    /// How many to skip if it does not.
    pub jf: u8,
    /// An offset in bytes, a constant, a word of memory, or how many instructions to skip.
    pub k: u32,
}

/// A program that was checked: it ends for every packet.
#[derive(Clone, Debug)]
pub struct Program {
    instructions: Box<[Instruction]>,
    /// One for each instruction.
    ops: Box<[Op]>,
    /// Whether the program uses memory, which then is cleared for each packet.
    remembers: bool,
}

impl Program {
    /// Checks a program, and makes it ready to run.
    pub fn new(instructions: Vec<Instruction>) -> Result<Program, FilterError> {
        let mut ops = check::check(&instructions)?;
        let remembers = ops.iter().any(|op| matches!(op, Op::Keep(_) | Op::KeepX(_)));
        op::join(&mut ops);
        op::shorten(&mut ops);
        Ok(Program { instructions: instructions.into(), ops: ops.into(), remembers })
    }

    /// The program that takes every packet, whole.
    pub fn accept_all() -> Program {
        let whole = Instruction { code: op::RETURN, jt: 0, jf: 0, k: u32::MAX };
        Program::new(vec![whole]).expect("it ends at once")
    }

    /// How many bytes of a packet to keep, 0 for none: it does not match. The number may be larger than the packet.
    #[inline]
    pub fn run(&self, packet: &[u8]) -> u32 {
        self.run_in_parts(packet, packet.len() as u32, |_: usize, _: &mut [u8]| 0)
    }

    /// As [`Program::run`], for a packet of `len` bytes, whose first ones are `first`. `rest` copies bytes of the
    /// packet from an offset on, counted from its very beginning, and returns how many it copied, as [`View::copy_to`]
    /// does; where it has none, the packet counts as cut off there.
    #[inline]
    pub fn run_in_parts<R>(&self, first: &[u8], len: u32, rest: R) -> u32
    where
        R: Fn(usize, &mut [u8]) -> usize,
    {
        if self.remembers {
            run::run::<{ op::CELLS }, R>(&self.ops, first, len, rest)
        } else {
            run::run::<0, R>(&self.ops, first, len, rest)
        }
    }

    /// As [`Program::run`], for the packet that `frame` begins.
    #[inline]
    pub fn run_on_frame(&self, view: View<'_>, frame: &Frame) -> u32 {
        let first = view.bytes(frame);
        if frame.is_chained() {
            let len = view.meta(frame).packet_len() as u32; // Of 64 frames at most.
            self.run_in_parts(first, len, |offset, to| view.copy_to(frame, offset, to))
        } else {
            self.run(first)
        }
    }

    /// What it was made of.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }
}

/// Programs are the same if their instructions are.
impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.instructions == other.instructions
    }
}

impl Eq for Program {}

impl From<(u16, u8, u8, u32)> for Instruction {
    /// From `code`, `jt`, `jf` and `k`, in this order.
    fn from((code, jt, jf, k): (u16, u8, u8, u32)) -> Instruction {
        Instruction { code, jt, jf, k }
    }
}
