//! A filter of classic BPF as code for the kernel's BPF, which takes the place of `capture.bpf.c`'s call of `filter`
//! (`manylane-io`'s `bpf::object::link`).
//!
//! The code gets where the packet begins and where its first piece of memory ends, and the packet's length. Its
//! result is what the filter returns, or that the first piece does not suffice ([`UNDECIDED`]): never another answer than the
//! filter's own.
//!
//! | register | holds                    | register       | holds                                    |
//! |----------|--------------------------|----------------|------------------------------------------|
//! | `r6`     | A, of 32 bits            | `r10` + SAVED  | what `r6` to `r9` held                   |
//! | `r7`     | X, of 32 bits            | LEN_AT, below  | the packet's length; the filter's memory, a word in 8 bytes |
//! | `r8`     | where the packet begins  | `r1`           | the end of the bytes to be loaded, counted from there |
//! | `r9`     | where the piece ends     | `r2`, `r3`     | where the bytes are, and where they end  |
//!
//! The verifier wants to see that the end of a load, as an address, is compared with that of the piece; and a bound of X,
//! by a number.
//!
//! Codes of arithmetic and of jumps are the same in both machines but for the class; shifts by 32 bits and more, and
//! division by zero, are not.

use std::ops::RangeInclusive;

use manylane_io::bpf::call::Instruction as Code;
use manylane_io::bpf::object::MADE_STACK;
use manylane_net::filter::{Instruction, Program};

/// A filter's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Its instructions.
    pub code: Vec<Code>,
    /// How many of a packet's first bytes it reads, but for odd packets.
    pub head: u32,
}

/// Translates a filter. `None` if it is too long: jumps of the kernel's BPF reach 32,767 instructions.
pub fn translate(program: &Program) -> Option<Translated> {
    let instructions = program.instructions();
    let mut writer = Writer::default();
    writer.begin();
    for (at, &instruction) in instructions.iter().enumerate() {
        writer.starts.push(writer.code.len());
        writer.instruction(at, instruction);
    }
    let head = instructions.iter().map(|&one| reach(one)).max().unwrap_or_default();
    let code = writer.end()?;
    Some(Translated { code, head: head.clamp(1, HEAD) })
}

/// The code that leaves the decision about each packet to the reader.
pub fn undecided() -> Translated {
    Translated { code: vec![op(MOVE_64, 0, 0, 0, 1), op(SHIFT_LEFT_64, 0, 0, 0, 32)], head: 1 }
}

/// Up to where an instruction loads; those that add X, with a header's length in it.
fn reach(Instruction { code, k, .. }: Instruction) -> u32 {
    match code {
        0x20 | 0x28 | 0x30 | 0xb1 => k.saturating_add(size(code)),
        0x40 | 0x48 | 0x50 => k.saturating_add(HEADER_MAX + size(code)),
        _ => 0,
    }
    .min(HEAD)
}

/// Bytes that a load loads.
fn size(code: u16) -> u32 {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        _ => 1,
    }
}

/// Code, and the jumps in it whose way is not known yet.
#[derive(Default)]
struct Writer {
    code: Vec<Code>,
    /// Where each instruction of the filter starts.
    starts: Vec<usize>,
    jumps: Vec<(usize, To)>,
}

/// Where a jump leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// To an instruction of the filter.
    Instruction(usize),
    /// To the end of packets that the filter does not want.
    No,
    /// To where `r1` bytes are not there.
    Short,
    /// To the end, with the result.
    End,
}

impl Writer {
    fn begin(&mut self) {
        for (number, register) in SAVED.enumerate() {
            self.push(op(STORE_64, 10, register, MADE_STACK - 8 * (number as i16 + 1), 0));
        }
        self.push(op(MOVE_64_X, 8, 1, 0, 0));
        self.push(op(MOVE_64_X, 9, 2, 0, 0));
        self.push(op(STORE_64, 10, 3, LEN_AT, 0));
        self.push(op(MOVE, A, 0, 0, 0));
        self.push(op(MOVE, X, 0, 0, 0));
    }

    fn instruction(&mut self, at: usize, Instruction { code, jt, jf, k }: Instruction) {
        match code {
            0x20 | 0x28 | 0x30 => self.load(A, size(code), k),
            0xb1 => {
                self.load(X, 1, k);
                self.push(op(AND, X, 0, 0, 0xf));
                self.push(op(SHIFT_LEFT, X, 0, 0, 2));
            }
            0x40 | 0x48 | 0x50 => self.load_at_x(size(code), k),
            0x80 => self.push(op(LOAD_64, A, 10, LEN_AT, 0)),
            0x81 => self.push(op(LOAD_64, X, 10, LEN_AT, 0)),
            0x00 => self.push(op(MOVE, A, 0, 0, k)),
            0x01 => self.push(op(MOVE, X, 0, 0, k)),
            0x60 => self.push(op(LOAD_64, A, 10, cell(k), 0)),
            0x61 => self.push(op(LOAD_64, X, 10, cell(k), 0)),
            0x02 => self.push(op(STORE_64, 10, A, cell(k), 0)),
            0x03 => self.push(op(STORE_64, 10, X, cell(k), 0)),
            0x07 => self.push(op(MOVE_X, X, A, 0, 0)),
            0x87 => self.push(op(MOVE_X, A, X, 0, 0)),
            0x06 => {
                self.push(op(MOVE, 0, 0, 0, k));
                self.jump(JUMP, 0, 0, 0, To::End);
            }
            0x16 => {
                self.push(op(MOVE_X, 0, A, 0, 0));
                self.jump(JUMP, 0, 0, 0, To::End);
            }
            0x05 => self.jump(JUMP, 0, 0, 0, To::Instruction(at + 1 + k as usize)),
            code if code & 0x07 == 0x05 => {
                let condition = (code as u8 & 0xf8) | JUMP_32;
                let register = if code & 0x08 == 0 { 0 } else { X };
                let k = if register == 0 { k } else { 0 };
                self.jump(condition, A, register, k, To::Instruction(at + 1 + usize::from(jt)));
                if jf > 0 {
                    self.jump(JUMP, 0, 0, 0, To::Instruction(at + 1 + usize::from(jf)));
                }
            }
            0x6c | 0x7c => {
                self.push(op(ABOVE_32, X, 0, 2, 31));
                self.push(op(code as u8, A, X, 0, 0));
                self.push(op(JUMP, 0, 0, 1, 0));
                self.push(op(MOVE, A, 0, 0, 0));
            }
            0x3c | 0x9c => {
                self.jump(EQUAL_32, X, 0, 0, To::No);
                self.push(op(code as u8, A, X, 0, 0));
            }
            0x84 => self.push(op(code as u8, A, 0, 0, 0)),
            // The other arithmetic.
            code if code & 0x08 == 0 => self.push(op(code as u8, A, 0, 0, k)),
            code => self.push(op(code as u8, A, X, 0, 0)),
        }
    }

    /// Loads from an offset that is known.
    fn load(&mut self, register: u8, size: u32, k: u32) {
        // Offsets are below those of Linux's own, so that the sum has 32 bits.
        self.push(op(MOVE, 1, 0, 0, k.wrapping_add(size)));
        if k > HEAD - size {
            // Always; the verifier refuses code behind a jump that says so.
            self.jump(ABOVE_64, 1, 0, HEAD, To::Short);
            return;
        }
        self.push(op(MOVE_64_X, 3, 8, 0, 0));
        self.push(op(ADD_64, 3, 0, 0, k + size));
        self.jump(ABOVE_64_X, 3, 9, 0, To::Short);
        self.bytes(register, 8, size, k as i16);
    }

    fn load_at_x(&mut self, size: u32, k: u32) {
        self.push(op(MOVE_X, 1, X, 0, 0));
        self.push(op(MOVE_X, 2, X, 0, 0));
        // In two registers: a number with its bound, and the end with a sum that may have more than 32 bits.
        self.push(op(MOVE, 3, 0, 0, k.wrapping_add(size)));
        self.push(op(ADD_64_X, 1, 3, 0, 0));
        if k > HEAD - size {
            self.jump(ABOVE_64, 1, 0, HEAD, To::Short);
            return;
        }
        self.jump(ABOVE_64, 2, 0, HEAD - size - k, To::Short);
        self.push(op(ADD_64_X, 2, 8, 0, 0));
        self.push(op(MOVE_64_X, 3, 2, 0, 0));
        self.push(op(ADD_64, 3, 0, 0, k + size));
        self.jump(ABOVE_64_X, 3, 9, 0, To::Short);
        self.bytes(A, 2, size, k as i16);
    }

    /// Loads bytes that are there, the first one highest.
    fn bytes(&mut self, register: u8, base: u8, size: u32, offset: i16) {
        match size {
            4 => self.push(op(LOAD_32, register, base, offset, 0)),
            2 => self.push(op(LOAD_16, register, base, offset, 0)),
            _ => self.push(op(LOAD_8, register, base, offset, 0)),
        }
        if size > 1 {
            self.push(op(TO_BIG_ENDIAN, register, 0, 0, size * 8));
        }
    }

    fn push(&mut self, code: Code) {
        self.code.push(code);
    }

    fn jump(&mut self, code: u8, register: u8, other: u8, k: u32, to: To) {
        self.jumps.push((self.code.len(), to));
        self.push(op(code, register, other, 0, k));
    }

    /// With all ends, as far as something leads there: the verifier refuses code that nothing reaches.
    fn end(mut self) -> Option<Vec<Code>> {
        let leads = |wanted: To| self.jumps.iter().any(|&(_, to)| to == wanted);
        let (is_short, is_no) = (leads(To::Short), leads(To::No));
        let short = self.code.len();
        if is_short {
            // Behind the packet's end, or only behind that of the piece?
            self.push(op(LOAD_64, 2, 10, LEN_AT, 0));
            self.push(op(ABOVE_64_X, 1, 2, 3, 0));
            self.push(op(MOVE_64, 0, 0, 0, 1));
            self.push(op(SHIFT_LEFT_64, 0, 0, 0, 32));
            self.jump(JUMP, 0, 0, 0, To::End);
        }
        let no = self.code.len();
        if is_short || is_no {
            self.push(op(MOVE_64, 0, 0, 0, 0));
        }
        let end = self.code.len();
        for (number, register) in SAVED.enumerate() {
            self.push(op(LOAD_64, register, 10, MADE_STACK - 8 * (number as i16 + 1), 0));
        }
        for (at, to) in self.jumps {
            let target = match to {
                To::Instruction(number) => self.starts[number],
                To::No => no,
                To::Short => short,
                To::End => end,
            };
            let way = i16::try_from(target - at - 1).ok()?;
            [self.code[at][2], self.code[at][3]] = way.to_le_bytes();
        }
        Some(self.code)
    }
}

fn op(code: u8, register: u8, other: u8, offset: i16, k: u32) -> Code {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = k.to_le_bytes();
    [code, register | other << 4, low, high, a, b, c, d]
}

/// Where a word of the filter's memory is.
fn cell(number: u32) -> i16 {
    LEN_AT - 8 * (number as i16 + 1)
}

/// The result when the first piece does not suffice.
#[cfg_attr(not(test), expect(dead_code, reason = "the program has the number, too"))]
pub const UNDECIDED: u64 = 1 << 32;
/// No filter reads further: what needs more is for the reader to decide.
pub const HEAD: u32 = 512;
/// The longest IPv4 header.
const HEADER_MAX: u32 = 60;

const A: u8 = 6;
const X: u8 = 7;
/// The registers that are the caller's.
const SAVED: RangeInclusive<u8> = 6..=9;
const LEN_AT: i16 = MADE_STACK - 40;

// Instruction codes (Documentation/bpf/standardization/instruction-set.rst).
const MOVE: u8 = 0xb4;
const MOVE_X: u8 = 0xbc;
const MOVE_64: u8 = 0xb7;
const MOVE_64_X: u8 = 0xbf;
const AND: u8 = 0x54;
const SHIFT_LEFT: u8 = 0x64;
const SHIFT_LEFT_64: u8 = 0x67;
const ADD_64: u8 = 0x07;
const ADD_64_X: u8 = 0x0f;
const TO_BIG_ENDIAN: u8 = 0xdc;
const LOAD_8: u8 = 0x71;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const LOAD_64: u8 = 0x79;
const STORE_64: u8 = 0x7b;
const JUMP: u8 = 0x05;
const JUMP_32: u8 = 0x06;
const EQUAL_32: u8 = 0x16;
const ABOVE_32: u8 = 0x26;
const ABOVE_64: u8 = 0x25;
const ABOVE_64_X: u8 = 0x2d;
