//! Whether a program may run.

use std::error::Error;
use std::fmt;

use super::op::{self, CELLS, Op, Ways, Wrong};
use super::{INSTRUCTIONS_MAX, Instruction};

/// Why a program is refused. Instructions are counted from 0, as `tcpdump -d` prints them.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// The program has no instruction.
    Empty,
    /// The program has more than [`INSTRUCTIONS_MAX`] instructions.
    TooLong {
        /// How many.
        len: usize,
    },
    /// Not an instruction of classic BPF.
    UnknownCode {
        /// Which one.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// A jump to where no instruction is.
    JumpOutside {
        /// Which one.
        at: usize,
        /// Where it leads.
        to: u64,
    },
    /// A jump to an instruction before, or to itself.
    JumpBackward {
        /// Which one.
        at: usize,
    },
    /// The last instruction does not end the program.
    NoEnd {
        /// Its number.
        at: usize,
    },
    /// The machine has no such word of memory.
    MemoryOutside {
        /// Which one.
        at: usize,
        /// The word it means.
        cell: u32,
    },
    /// The instruction reads a word of memory that was not written on every path to it.
    MemoryUnwritten {
        /// Which one.
        at: usize,
        /// The word it means.
        cell: u32,
    },
    /// The instruction divides by a constant 0.
    DivisionByZero {
        /// Which one.
        at: usize,
    },
    /// The instruction shifts by a constant above 31.
    ShiftTooFar {
        /// Which one.
        at: usize,
        /// The constant.
        by: u32,
    },
    /// The instruction loads from one of Linux's own offsets (`SKF_AD_OFF`, `SKF_NET_OFF`, `SKF_LL_OFF`), which mean
    /// facts about a packet and not its bytes.
    LinuxOffset {
        /// Which one.
        at: usize,
        /// The offset.
        offset: i32,
    },
}

/// Checks a program; returns its instructions, one for one.
pub(super) fn check(instructions: &[Instruction]) -> Result<Vec<Op>, FilterError> {
    let len = instructions.len();
    if len == 0 {
        return Err(FilterError::Empty);
    }
    if len > INSTRUCTIONS_MAX {
        return Err(FilterError::TooLong { len });
    }
    let mut ops = Vec::with_capacity(len);
    for (at, &instruction) in instructions.iter().enumerate() {
        ops.push(op::decode(at, instruction).map_err(|wrong| named(wrong, at, instruction))?);
        lands_inside(at, instruction, len)?;
    }
    if !matches!(ops[len - 1], Op::Return(_) | Op::ReturnA) {
        return Err(FilterError::NoEnd { at: len - 1 });
    }
    writes_before_it_reads(&ops)?;
    Ok(ops)
}

fn named(wrong: Wrong, at: usize, instruction: Instruction) -> FilterError {
    let Instruction { code, k, .. } = instruction;
    match wrong {
        Wrong::Code => FilterError::UnknownCode { at, code },
        Wrong::Division => FilterError::DivisionByZero { at },
        Wrong::Shift => FilterError::ShiftTooFar { at, by: k },
        Wrong::Cell => FilterError::MemoryOutside { at, cell: k },
        Wrong::LinuxOffset => FilterError::LinuxOffset { at, offset: k as i32 },
    }
}

/// Every way on from the instruction is inside the program, if it jumps.
fn lands_inside(at: usize, instruction: Instruction, len: usize) -> Result<(), FilterError> {
    const JUMP_CLASS: u16 = 0x05;
    const JUMP_ALWAYS: u16 = 0x05;
    let Instruction { code, jt, jf, k } = instruction;
    if code & 0x07 != JUMP_CLASS {
        return Ok(());
    }
    let skip = if code != JUMP_ALWAYS {
        u32::from(jt.max(jf))
    } else if (k as i32) < 0 {
        return Err(FilterError::JumpBackward { at });
    } else {
        k
    };
    let to = at as u64 + 1 + u64::from(skip);
    if to < len as u64 { Ok(()) } else { Err(FilterError::JumpOutside { at, to }) }
}

/// Every word of memory that is read was written before, on each way to there. One pass does: ways lead
/// forward only, so that all ways to an instruction are known when it is reached.
fn writes_before_it_reads(ops: &[Op]) -> Result<(), FilterError> {
    const _: () = assert!(CELLS <= u16::BITS as usize);
    /// An instruction that cannot be reached may read anything.
    const NOBODY: u16 = u16::MAX;
    let mut arrives = vec![NOBODY; ops.len()];
    let mut written = 0;
    for (at, &op) in ops.iter().enumerate() {
        written &= arrives[at];
        match op {
            Op::Keep(cell) | Op::KeepX(cell) => written |= 1 << cell,
            Op::Recall(cell) | Op::RecallX(cell) if written & 1 << cell == 0 => {
                return Err(FilterError::MemoryUnwritten { at, cell });
            }
            _ => {}
        }
        let ways = match op {
            Op::Jump(to) => Some(Ways { yes: to, no: to }),
            _ => op.ways(),
        };
        if let Some(Ways { yes, no }) = ways {
            arrives[usize::from(yes)] &= written;
            arrives[usize::from(no)] &= written;
            written = NOBODY;
        } else if matches!(op, Op::Return(_) | Op::ReturnA) {
            written = NOBODY;
        }
    }
    Ok(())
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FilterError::Empty => {
                write!(
                    f,
                    "the filter has no instruction; one that takes every packet is `ret #262144`"
                )
            }
            FilterError::TooLong { len } => write!(
                f,
                "the filter has {len} instructions, more than {INSTRUCTIONS_MAX}; use several captures, or \
                 networks in place of lists of addresses"
            ),
            FilterError::UnknownCode { at, code } => write!(
                f,
                "instruction {at} of the filter has code {code:#04x}, which classic BPF does not have; see \
                 that it was not made for another machine (eBPF) or byte order"
            ),
            FilterError::JumpOutside { at, to } => write!(
                f,
                "instruction {at} of the filter jumps to {to}, behind the last; see that all instructions \
                 were handed over"
            ),
            FilterError::JumpBackward { at } => write!(
                f,
                "instruction {at} of the filter jumps backward, so that it might not end; `protochain` is \
                 compiled so: use `proto`, which looks at the first header only"
            ),
            FilterError::NoEnd { at } => write!(
                f,
                "instruction {at} of the filter is the last and no `ret`; see that all instructions were \
                 handed over"
            ),
            FilterError::MemoryOutside { at, cell } => write!(
                f,
                "instruction {at} of the filter uses word {cell} of memory; use words 0 to {}",
                CELLS - 1
            ),
            FilterError::MemoryUnwritten { at, cell } => write!(
                f,
                "instruction {at} of the filter reads word {cell} of memory, which is not written on every \
                 way to there; store a value first, and in an expression put `geneve` behind every `or`"
            ),
            FilterError::DivisionByZero { at } => {
                write!(f, "instruction {at} of the filter divides by 0; use another divisor")
            }
            FilterError::ShiftTooFar { at, by } => {
                write!(f, "instruction {at} of the filter shifts by {by} bits; use at most 31")
            }
            FilterError::LinuxOffset { at, offset } => write!(
                f,
                "instruction {at} of the filter loads from Linux's offset -{:#x}, which stands for what the \
                 kernel knows of a packet; only the packet's bytes are here: leave out `inbound`, `outbound` \
                 and `ifindex`, and choose point and port of the capture instead",
                offset.unsigned_abs()
            ),
        }
    }
}

impl Error for FilterError {}
