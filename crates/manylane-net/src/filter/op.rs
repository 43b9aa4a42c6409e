//! Instructions as the interpreter wants them: one word says what to do, jumps say where they lead, and
//! loads that are tested at once are one with their test.

use std::num::NonZeroU32;

use super::{INSTRUCTIONS_MAX, Instruction};

/// Words of memory that a program has (`BPF_MEMWORDS`).
pub(super) const CELLS: usize = 16;

/// `ret #k`.
pub(super) const RETURN: u16 = 0x06;

/// What to do. *A* is the accumulator, *X* the index register; offsets are from the packet's first byte,
/// values in the packet are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A = the word at the offset; as the next ones, it ends the program where the packet ends before.
    Word(u32),
    Half(u32),
    Byte(u32),
    /// A = the word at X + the offset.
    WordX(u32),
    HalfX(u32),
    ByteX(u32),
    /// X = 4 times the low half of the byte there: the length of an IPv4 header.
    HeaderX(u32),
    /// A = the length of the packet.
    Len,
    /// X = the length of the packet.
    LenX,
    /// A = a constant.
    Set(u32),
    /// X = a constant.
    SetX(u32),
    /// A = a word of memory.
    Recall(u32),
    /// X = a word of memory.
    RecallX(u32),
    /// A word of memory = A.
    Keep(u32),
    /// A word of memory = X.
    KeepX(u32),
    Add(u32),
    Sub(u32),
    Mul(u32),
    Div(NonZeroU32),
    Mod(NonZeroU32),
    And(u32),
    Or(u32),
    Xor(u32),
    /// A shift by less than 32.
    Shl(u32),
    Shr(u32),
    AddX,
    SubX,
    MulX,
    DivX,
    ModX,
    AndX,
    OrX,
    XorX,
    ShlX,
    ShrX,
    Neg,
    /// X = A.
    ToX,
    /// A = X.
    ToA,
    Jump(u16),
    /// Whether A is `k`.
    Equal {
        k: u32,
        ways: Ways,
    },
    /// Whether A is above `k`.
    Above {
        k: u32,
        ways: Ways,
    },
    /// Whether A is `k` or above.
    Least {
        k: u32,
        ways: Ways,
    },
    /// Whether A and `k` have a bit in common.
    Any {
        k: u32,
        ways: Ways,
    },
    EqualX(Ways),
    AboveX(Ways),
    LeastX(Ways),
    AnyX(Ways),
    Return(u32),
    ReturnA,
    /// `Word`, then `Equal`: what most of a compiled filter is.
    WordEqual {
        at: u16,
        k: u32,
        ways: Ways,
    },
    HalfEqual {
        at: u16,
        k: u32,
        ways: Ways,
    },
    ByteEqual {
        at: u16,
        k: u32,
        ways: Ways,
    },
    /// `Half`, then `Any`: the test for fragments.
    HalfAny {
        at: u16,
        k: u32,
        ways: Ways,
    },
    /// `HalfX`, then `Equal`: ports of IPv4.
    HalfXEqual {
        at: u16,
        k: u32,
        ways: Ways,
    },
}

/// Where a condition leads, as indices of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    /// If it holds.
    pub yes: u16,
    /// If not.
    pub no: u16,
}

impl Op {
    /// Where a condition leads.
    pub fn ways(mut self) -> Option<Ways> {
        self.ways_mut().copied()
    }

    fn ways_mut(&mut self) -> Option<&mut Ways> {
        match self {
            Op::Equal { ways, .. }
            | Op::Above { ways, .. }
            | Op::Least { ways, .. }
            | Op::Any { ways, .. }
            | Op::EqualX(ways)
            | Op::AboveX(ways)
            | Op::LeastX(ways)
            | Op::AnyX(ways)
            | Op::WordEqual { ways, .. }
            | Op::HalfEqual { ways, .. }
            | Op::ByteEqual { ways, .. }
            | Op::HalfAny { ways, .. }
            | Op::HalfXEqual { ways, .. } => Some(ways),
            _ => None,
        }
    }
}

/// What can be wrong with an instruction itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Code,
    Division,
    Shift,
    Cell,
    LinuxOffset,
}

/// Instruction number `at`. Where it leads is not looked at: `at` and the skips have no more than 32 bits
/// in sum, or the jump is behind the end, as the caller has made sure.
pub(super) fn decode(at: usize, instruction: Instruction) -> Result<Op, Wrong> {
    let Instruction { code, jt, jf, k } = instruction;
    let offset = if k < LINUX_OFFSETS { Ok(k) } else { Err(Wrong::LinuxOffset) };
    let cell = if (k as usize) < CELLS { Ok(k) } else { Err(Wrong::Cell) };
    let divisor = NonZeroU32::new(k).ok_or(Wrong::Division);
    let bits = if k < u32::BITS { Ok(k) } else { Err(Wrong::Shift) };
    let skip = |by: u8| at as u16 + 1 + u16::from(by); // Of 4096 and 256 at most.
    let ways = Ways { yes: skip(jt), no: skip(jf) };
    Ok(match code {
        0x20 => Op::Word(offset?),
        0x28 => Op::Half(offset?),
        0x30 => Op::Byte(offset?),
        0x40 => Op::WordX(offset?),
        0x48 => Op::HalfX(offset?),
        0x50 => Op::ByteX(offset?),
        0xb1 => Op::HeaderX(offset?),
        0x80 => Op::Len,
        0x81 => Op::LenX,
        0x00 => Op::Set(k),
        0x01 => Op::SetX(k),
        0x60 => Op::Recall(cell?),
        0x61 => Op::RecallX(cell?),
        0x02 => Op::Keep(cell?),
        0x03 => Op::KeepX(cell?),
        0x04 => Op::Add(k),
        0x14 => Op::Sub(k),
        0x24 => Op::Mul(k),
        0x34 => Op::Div(divisor?),
        0x44 => Op::Or(k),
        0x54 => Op::And(k),
        0x64 => Op::Shl(bits?),
        0x74 => Op::Shr(bits?),
        0x84 => Op::Neg,
        0x94 => Op::Mod(divisor?),
        0xa4 => Op::Xor(k),
        0x0c => Op::AddX,
        0x1c => Op::SubX,
        0x2c => Op::MulX,
        0x3c => Op::DivX,
        0x4c => Op::OrX,
        0x5c => Op::AndX,
        0x6c => Op::ShlX,
        0x7c => Op::ShrX,
        0x9c => Op::ModX,
        0xac => Op::XorX,
        0x05 => Op::Jump((at as u32 + 1).wrapping_add(k) as u16),
        0x15 => Op::Equal { k, ways },
        0x25 => Op::Above { k, ways },
        0x35 => Op::Least { k, ways },
        0x45 => Op::Any { k, ways },
        0x1d => Op::EqualX(ways),
        0x2d => Op::AboveX(ways),
        0x3d => Op::LeastX(ways),
        0x4d => Op::AnyX(ways),
        RETURN => Op::Return(k),
        0x16 => Op::ReturnA,
        0x07 => Op::ToX,
        0x87 => Op::ToA,
        _ => return Err(Wrong::Code),
    })
}

/// Makes each load that is tested at once one with its test. The test stays where it is, for jumps that lead
/// to it.
pub(super) fn join(ops: &mut [Op]) {
    for first in 0..ops.len().saturating_sub(1) {
        let joined = match (ops[first], ops[first + 1]) {
            (Op::Word(at), Op::Equal { k, ways }) => {
                near(at).map(|at| Op::WordEqual { at, k, ways })
            }
            (Op::Half(at), Op::Equal { k, ways }) => {
                near(at).map(|at| Op::HalfEqual { at, k, ways })
            }
            (Op::Byte(at), Op::Equal { k, ways }) => {
                near(at).map(|at| Op::ByteEqual { at, k, ways })
            }
            (Op::Half(at), Op::Any { k, ways }) => near(at).map(|at| Op::HalfAny { at, k, ways }),
            (Op::HalfX(at), Op::Equal { k, ways }) => {
                near(at).map(|at| Op::HalfXEqual { at, k, ways })
            }
            _ => None,
        };
        if let Some(joined) = joined {
            ops[first] = joined;
        }
    }
}

/// Makes each condition that leads to `ret #0`, as most do for most packets, lead out of the program.
pub(super) fn shorten(ops: &mut [Op]) {
    for at in 0..ops.len() {
        let Some(mut ways) = ops[at].ways() else { continue };
        for way in [&mut ways.yes, &mut ways.no] {
            if ops[usize::from(*way)] == Op::Return(0) {
                *way = OUTSIDE;
            }
        }
        *ops[at].ways_mut().expect("it has them") = ways;
    }
}

fn near(at: u32) -> Option<u16> {
    at.try_into().ok()
}

/// Where no instruction is.
const OUTSIDE: u16 = u16::MAX;
const _: () = assert!(INSTRUCTIONS_MAX < OUTSIDE as usize);

/// From here on offsets are Linux's (`SKF_LL_OFF`, then `SKF_NET_OFF` and `SKF_AD_OFF`).
const LINUX_OFFSETS: u32 = -0x20_0000_i32 as u32;

// What a cache line holds five of.
const _: () = assert!(size_of::<Op>() == 12);
