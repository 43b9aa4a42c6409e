//! The interpreter.

use super::op::{Op, Ways};

/// The bytes of a packet. See [`Program::run_in_parts`](super::Program::run_in_parts).
struct Bytes<'a, R> {
    first: &'a [u8],
    rest: R,
}

impl<R: Fn(usize, &mut [u8]) -> usize> Bytes<'_, R> {
    /// The `N` bytes at an offset, if all of them exist.
    #[inline(always)]
    fn at<const N: usize>(&self, offset: u32) -> Option<[u8; N]> {
        let offset = offset as usize;
        let inside = self.first.get(offset..offset.checked_add(N)?);
        inside.and_then(|bytes| bytes.first_chunk().copied()).or_else(|| self.beyond(offset))
    }

    /// The same where they are not all in the first frame.
    #[cold]
    fn beyond<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        ((self.rest)(offset, &mut bytes) == N).then_some(bytes)
    }
}

/// A and X.
#[derive(Clone, Copy, Default)]
pub(super) struct Registers {
    pub a: u32,
    pub x: u32,
}

/// Runs a checked program with `CELLS` words of memory: all, or none where it uses none.
#[inline(never)] // One copy for each kind of packet, not for each caller.
pub(super) fn run<const CELLS: usize, R>(ops: &[Op], first: &[u8], len: u32, rest: R) -> u32
where
    R: Fn(usize, &mut [u8]) -> usize,
{
    interpret::<CELLS, R>(ops, 0, Registers::default(), first, len, rest)
}

/// As [`run`], from an instruction on, for a packet in one frame that has reached it with these registers and clear
/// memory.
#[inline(never)]
pub(super) fn resume<const CELLS: usize>(
    ops: &[Op],
    next: usize,
    registers: Registers,
    packet: &[u8],
) -> u32 {
    let len = packet.len() as u32; // Of a frame at most.
    interpret::<CELLS, _>(ops, next, registers, packet, len, |_: usize, _: &mut [u8]| 0)
}

/// A program ends since it goes forward only. An index is outside of it in one case, a condition that leads
/// to `ret #0` (`op::shorten`), so that the question which safe code has to ask is one that has an answer.
#[inline(always)]
#[expect(clippy::too_many_lines, reason = "an interpreter: an arm for each operation")]
fn interpret<const CELLS: usize, R>(
    ops: &[Op],
    mut next: usize,
    Registers { mut a, mut x }: Registers,
    first: &[u8],
    len: u32,
    rest: R,
) -> u32
where
    R: Fn(usize, &mut [u8]) -> usize,
{
    let packet = Bytes { first, rest };
    let mut memory = [0; CELLS];
    macro_rules! load {
        ($type:ty, $at:expr) => {
            match packet.at($at) {
                Some(bytes) => <$type>::from_be_bytes(bytes).into(),
                None => return 0,
            }
        };
    }
    macro_rules! load_at_x {
        ($type:ty, $k:expr) => {
            match x.checked_add($k) {
                Some(at) => load!($type, at),
                None => return 0,
            }
        };
    }
    while let Some(&op) = ops.get(next) {
        next += 1;
        match op {
            Op::Word(at) => a = load!(u32, at),
            Op::Half(at) => a = load!(u16, at),
            Op::Byte(at) => a = load!(u8, at),
            Op::WordX(k) => a = load_at_x!(u32, k),
            Op::HalfX(k) => a = load_at_x!(u16, k),
            Op::ByteX(k) => a = load_at_x!(u8, k),
            Op::HeaderX(at) => {
                let byte: u32 = load!(u8, at);
                x = (byte & 0xf) * 4;
            }
            Op::Len => a = len,
            Op::LenX => x = len,
            Op::Set(k) => a = k,
            Op::SetX(k) => x = k,
            Op::Recall(cell) => a = memory.get(cell as usize).copied().unwrap_or(0),
            Op::RecallX(cell) => x = memory.get(cell as usize).copied().unwrap_or(0),
            Op::Keep(cell) => keep(&mut memory, cell, a),
            Op::KeepX(cell) => keep(&mut memory, cell, x),
            Op::Add(k) => a = a.wrapping_add(k),
            Op::Sub(k) => a = a.wrapping_sub(k),
            Op::Mul(k) => a = a.wrapping_mul(k),
            Op::Div(k) => a /= k,
            Op::Mod(k) => a %= k,
            Op::And(k) => a &= k,
            Op::Or(k) => a |= k,
            Op::Xor(k) => a ^= k,
            Op::Shl(k) => a = a.wrapping_shl(k),
            Op::Shr(k) => a = a.wrapping_shr(k),
            Op::AddX => a = a.wrapping_add(x),
            Op::SubX => a = a.wrapping_sub(x),
            Op::MulX => a = a.wrapping_mul(x),
            Op::DivX => match a.checked_div(x) {
                Some(quotient) => a = quotient,
                None => return 0,
            },
            Op::ModX => match a.checked_rem(x) {
                Some(remainder) => a = remainder,
                None => return 0,
            },
            Op::AndX => a &= x,
            Op::OrX => a |= x,
            Op::XorX => a ^= x,
            Op::ShlX => a = a.checked_shl(x).unwrap_or(0),
            Op::ShrX => a = a.checked_shr(x).unwrap_or(0),
            Op::Neg => a = a.wrapping_neg(),
            Op::ToX => x = a,
            Op::ToA => a = x,
            Op::Jump(to) => next = to.into(),
            Op::Equal { k, ways } => next = ways.by(a == k),
            Op::Above { k, ways } => next = ways.by(a > k),
            Op::Least { k, ways } => next = ways.by(a >= k),
            Op::Any { k, ways } => next = ways.by(a & k != 0),
            Op::EqualX(ways) => next = ways.by(a == x),
            Op::AboveX(ways) => next = ways.by(a > x),
            Op::LeastX(ways) => next = ways.by(a >= x),
            Op::AnyX(ways) => next = ways.by(a & x != 0),
            Op::Return(k) => return k,
            Op::ReturnA => return a,
            Op::WordEqual { at, k, ways } => {
                a = load!(u32, at.into());
                next = ways.by(a == k);
            }
            Op::HalfEqual { at, k, ways } => {
                a = load!(u16, at.into());
                next = ways.by(a == k);
            }
            Op::ByteEqual { at, k, ways } => {
                a = load!(u8, at.into());
                next = ways.by(a == k);
            }
            Op::HalfAny { at, k, ways } => {
                a = load!(u16, at.into());
                next = ways.by(a & k != 0);
            }
            Op::HalfXEqual { at, k, ways } => {
                a = load_at_x!(u16, at.into());
                next = ways.by(a == k);
            }
        }
    }
    0
}

impl Ways {
    #[inline(always)]
    fn by(self, holds: bool) -> usize {
        if holds { self.yes.into() } else { self.no.into() }
    }
}

#[inline(always)]
fn keep(memory: &mut [u32], cell: u32, value: u32) {
    if let Some(cell) = memory.get_mut(cell as usize) {
        *cell = value;
    }
}
