//! Runs a program for many packets at once, an instruction at a time.
//!
//! The packets that have reached an instruction take it together, so that the worker decodes it once, and the loads of
//! different packets overlap. Programs lead forward only: one pass over the instructions meets every packet at each
//! of its instructions.
//!
//! Instructions that filters rarely have are left to the interpreter for one packet (`run`): each packet that reaches
//! such an instruction leaves the others there, with its registers, and does not return. No instruction that writes
//! memory is taken together, so the interpreter begins with clear memory, as at the start of a program.

use std::mem;
use std::ops::Range;

use super::op::{CELLS, Op, Ways};
use super::run::{self, Registers};
use super::{INSTRUCTIONS_MAX, Program};

/// Most packets that run through a program together: a batch.
pub const TOGETHER_MAX: usize = u64::BITS as usize;

/// Fewer packets run one by one, which takes less time.
const FEW: u32 = 4;

/// Some of up to [`TOGETHER_MAX`] packets: the packet in place n is one of them if bit n is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen(pub u64);

impl Chosen {
    /// The first packets.
    ///
    /// # Panics
    ///
    /// When `count` is above [`TOGETHER_MAX`].
    #[inline]
    pub fn first(count: usize) -> Chosen {
        assert!(count <= TOGETHER_MAX, "more packets than run together");
        Chosen(if count == 0 { 0 } else { u64::MAX >> (TOGETHER_MAX - count) })
    }

    /// Whether the packet in this place is one of them.
    #[inline]
    pub fn has(self, place: usize) -> bool {
        place < TOGETHER_MAX && self.0 >> place & 1 != 0
    }

    /// Whether it has no packet.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Chosen {
    type Item = usize;

    /// Takes out the first of them: its place.
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let place = self.0.trailing_zeros() as usize;
        let some = self.0 != 0;
        self.0 &= self.0.wrapping_sub(1);
        some.then_some(place)
    }
}

/// The registers of packets that run through a program together. Made once: a run allocates nothing.
pub struct Columns {
    a: [u32; TOGETHER_MAX],
    x: [u32; TOGETHER_MAX],
    kept: [u32; TOGETHER_MAX],
    /// Which packets have reached each instruction. Empty before and after a run.
    reached: Box<[u64]>,
}

impl Default for Columns {
    fn default() -> Columns {
        let [a, x, kept] = [[0; TOGETHER_MAX]; 3];
        Columns { a, x, kept, reached: vec![0; INSTRUCTIONS_MAX].into() }
    }
}

impl Columns {
    /// How many bytes to keep of the packet in this place, if it was one of those that matched in the last run.
    #[inline]
    pub fn kept(&self, place: usize) -> u32 {
        self.kept[place]
    }
}

impl Program {
    /// As [`Program::run`], for the chosen ones of `packets`. Returns those that match; [`Columns::kept`] has how many
    /// bytes to keep of each.
    pub fn run_together(&self, packets: &[&[u8]], chosen: Chosen, columns: &mut Columns) -> Chosen {
        if chosen.0.count_ones() < FEW {
            let mut taken = 0;
            for place in chosen {
                columns.kept[place] = self.run(packets[place]);
                taken |= u64::from(columns.kept[place] != 0) << place;
            }
            return Chosen(taken);
        }
        let Columns { a, x, kept, reached } = columns;
        (*a, *x) = ([0; TOGETHER_MAX], [0; TOGETHER_MAX]);
        let reached = &mut reached[..self.ops.len()];
        reached[0] = chosen.0;
        Run { ops: &self.ops, packets, a, x, kept, reached, last: 0, taken: 0 }.finish()
    }
}

struct Run<'c, 'p> {
    ops: &'c [Op],
    packets: &'c [&'p [u8]],
    a: &'c mut [u32; TOGETHER_MAX],
    x: &'c mut [u32; TOGETHER_MAX],
    kept: &'c mut [u32; TOGETHER_MAX],
    /// As long as `ops`.
    reached: &'c mut [u64],
    /// The last instruction that a packet has reached.
    last: usize,
    taken: u64,
}

impl Run<'_, '_> {
    #[inline(never)] // One copy for all callers.
    fn finish(mut self) -> Chosen {
        let mut at = 0;
        while at <= self.last {
            let here = Chosen(mem::take(&mut self.reached[at]));
            if !here.is_empty() {
                self.step(at, here);
            }
            at += 1;
        }
        Chosen(self.taken)
    }

    /// Has the packets that have reached an instruction take it.
    #[inline(always)]
    fn step(&mut self, at: usize, here: Chosen) {
        let next = at + 1;
        match self.ops[at] {
            Op::WordEqual { at, k, ways } => {
                let parted = self.load(here, word, |_| Some(at.into()), |a| a == k);
                self.part(parted, ways);
            }
            Op::HalfEqual { at, k, ways } => {
                let parted = self.load(here, half, |_| Some(at.into()), |a| a == k);
                self.part(parted, ways);
            }
            Op::ByteEqual { at, k, ways } => {
                let parted = self.load(here, byte, |_| Some(at.into()), |a| a == k);
                self.part(parted, ways);
            }
            Op::HalfAny { at, k, ways } => {
                let parted = self.load(here, half, |_| Some(at.into()), |a| a & k != 0);
                self.part(parted, ways);
            }
            Op::HalfXEqual { at, k, ways } => {
                let parted = self.load(here, half, |x| x.checked_add(at.into()), |a| a == k);
                self.part(parted, ways);
            }
            Op::Word(at) => self.load_on(here, word, |_| Some(at), next),
            Op::Half(at) => self.load_on(here, half, |_| Some(at), next),
            Op::Byte(at) => self.load_on(here, byte, |_| Some(at), next),
            Op::WordX(k) => self.load_on(here, word, |x| x.checked_add(k), next),
            Op::HalfX(k) => self.load_on(here, half, |x| x.checked_add(k), next),
            Op::ByteX(k) => self.load_on(here, byte, |x| x.checked_add(k), next),
            Op::HeaderX(at) => {
                let mut loaded = 0;
                for place in here {
                    if let Some(value) = byte(self.packets[place], at) {
                        self.x[place] = (value & 0xf) * 4;
                        loaded |= 1 << place;
                    }
                }
                self.send(loaded, next);
            }
            Op::And(k) => {
                here.for_each(|place| self.a[place] &= k);
                self.send(here.0, next);
            }
            Op::Equal { k, ways } => self.test(here, ways, |a| a == k),
            Op::Above { k, ways } => self.test(here, ways, |a| a > k),
            Op::Least { k, ways } => self.test(here, ways, |a| a >= k),
            Op::Any { k, ways } => self.test(here, ways, |a| a & k != 0),
            Op::Jump(to) => self.send(here.0, to.into()),
            Op::Return(k) => here.for_each(|place| self.end(place, k)),
            Op::ReturnA => here.for_each(|place| self.end(place, self.a[place])),
            _ => self.leave(at, here),
        }
    }

    /// Loads A at an offset that may depend on X. Returns the packets whose A `holds`, and the others; a packet that ends
    /// before is in neither, and matches no more.
    #[inline(always)]
    fn load(
        &mut self,
        here: Chosen,
        read: impl Fn(&[u8], u32) -> Option<u32>,
        offset: impl Fn(u32) -> Option<u32>,
        holds: impl Fn(u32) -> bool,
    ) -> [u64; 2] {
        let [mut yes, mut ended] = [0, 0];
        for place in here {
            let value = offset(self.x[place]).and_then(|at| read(self.packets[place], at));
            let Some(value) = value else {
                ended |= 1 << place;
                continue;
            };
            self.a[place] = value;
            yes |= u64::from(holds(value)) << place;
        }
        [yes, here.0 & !(yes | ended)]
    }

    #[inline(always)]
    fn load_on(
        &mut self,
        here: Chosen,
        read: impl Fn(&[u8], u32) -> Option<u32>,
        offset: impl Fn(u32) -> Option<u32>,
        next: usize,
    ) {
        let [loaded, _] = self.load(here, read, offset, |_| true);
        self.send(loaded, next);
    }

    #[inline(always)]
    fn test(&mut self, here: Chosen, ways: Ways, holds: impl Fn(u32) -> bool) {
        let mut yes = 0;
        for place in here {
            yes |= u64::from(holds(self.a[place])) << place;
        }
        self.part([yes, here.0 & !yes], ways);
    }

    #[inline(always)]
    fn part(&mut self, [yes, no]: [u64; 2], ways: Ways) {
        self.send(yes, ways.yes.into());
        self.send(no, ways.no.into());
    }

    /// Lets packets reach an instruction. Outside of the program is where no packet matches (`op::shorten`).
    #[inline(always)]
    fn send(&mut self, packets: u64, to: usize) {
        if packets != 0
            && let Some(reached) = self.reached.get_mut(to)
        {
            *reached |= packets;
            self.last = self.last.max(to);
        }
    }

    #[inline(always)]
    fn end(&mut self, place: usize, kept: u32) {
        self.kept[place] = kept;
        self.taken |= u64::from(kept != 0) << place;
    }

    /// Has packets run to the end, one by one.
    #[cold]
    fn leave(&mut self, at: usize, here: Chosen) {
        for place in here {
            let registers = Registers { a: self.a[place], x: self.x[place] };
            let packet = self.packets[place];
            self.end(place, run::resume::<CELLS>(self.ops, at, registers, packet));
        }
    }
}

#[inline(always)]
fn word(packet: &[u8], at: u32) -> Option<u32> {
    Some(u32::from_be_bytes(packet.get(bytes::<4>(at)?)?.try_into().ok()?))
}

#[inline(always)]
fn half(packet: &[u8], at: u32) -> Option<u32> {
    Some(u16::from_be_bytes(packet.get(bytes::<2>(at)?)?.try_into().ok()?).into())
}

#[inline(always)]
fn byte(packet: &[u8], at: u32) -> Option<u32> {
    packet.get(at as usize).map(|&byte| byte.into())
}

#[inline(always)]
fn bytes<const N: usize>(at: u32) -> Option<Range<usize>> {
    let at = at as usize;
    Some(at..at.checked_add(N)?)
}
