//! From the object to the program: tables' and numbers' places are filled in.
//!
//! An object of this room has no maps. Where its code names something that it does not define, we know what is
//! meant: a table, whose address the kernel puts in (`BPF_PSEUDO_MAP_VALUE`), a map for a helper to look into
//! (`BPF_PSEUDO_MAP_FD`), or a number that is known here. Its functions other than the program stand in `.text` and
//! are put behind it.
//!
//! The verifier follows such a function anew at each call, in each state of the caller. Those that [`Meant::Function`] names,
//! which are not `static` in the source, it follows once, by themselves (global functions, Linux 5.6): it knows nothing of
//! their arguments, and of what they return.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use super::Complaint;
use super::call::{self, Instruction, Kind};
use super::elf::{Object, Relocation};
use super::types::{Argument, Types};

/// What a name in an object stands for.
#[derive(Clone, Copy)]
pub enum Meant {
    /// The table in the map with this descriptor.
    Table(i32),
    /// The map with this descriptor itself.
    Map(i32),
    /// This number.
    Number(u64),
    /// A function of the object that the verifier follows by itself.
    Function(&'static [Argument]),
}

/// A program in one piece.
pub struct Program {
    code: Vec<Instruction>,
    /// By their first instruction, the functions that the verifier follows by themselves.
    alone: BTreeMap<usize, &'static [Argument]>,
}

impl Program {
    /// The program's instructions, and behind them those of its functions.
    pub fn code(&self) -> &[Instruction] {
        &self.code
    }

    /// Loads the program. The name has at most 15 bytes.
    pub fn load(&self, kind: Kind, name: &str) -> Result<OwnedFd, Complaint> {
        if self.alone.is_empty() {
            return call::load_typed(kind, name, &self.code, None);
        }
        let types = Types::load(&self.functions());
        let types = types.map_err(|source| Complaint { source, complaint: None })?;
        call::load_typed(kind, name, &self.code, Some(&types))
    }

    /// Where each function begins; the program is the first.
    fn functions(&self) -> Vec<(usize, Option<&[Argument]>)> {
        let called = self.code.iter().enumerate().filter_map(|(at, instruction)| {
            let [op, registers, _, _, way @ ..] = *instruction;
            let calls = op == CALL && registers >> 4 == CALL_OF_FUNCTION;
            calls.then(|| at.wrapping_add_signed(i32::from_le_bytes(way) as isize) + 1)
        });
        let mut functions: BTreeMap<_, Option<&[Argument]>> = called.map(|at| (at, None)).collect();
        functions.insert(0, None);
        functions.extend(self.alone.iter().map(|(&at, &arguments)| (at, Some(arguments))));
        functions.into_iter().collect()
    }
}

/// The program in a section of `object`. An error names what is wrong with the object.
pub fn program(
    object: &[u8],
    section: &str,
    meant: impl Fn(&str) -> Option<Meant>,
) -> io::Result<Program> {
    link(object, section, meant, None)
}

/// As [`program`]. `made` is the name of a function that the program calls once and does not define, and code that takes the
/// call's place: it begins with the arguments in registers 1 to 5, ends behind its last instruction with the result in
/// register 0, leaves 6 to 9 as they are, and may use the stack below [`MADE_STACK`]. (A call would cost a return, which
/// mitigations of speculation make dear.)
pub fn link(
    object: &[u8],
    section: &str,
    meant: impl Fn(&str) -> Option<Meant>,
    made: Option<(&str, &[Instruction])>,
) -> io::Result<Program> {
    let object = Object(object);
    let instructions = |name: &str| {
        let bytes = object.section(name).unwrap_or_default();
        let (instructions, rest) = bytes.as_chunks::<8>();
        if rest.is_empty() { Ok(instructions) } else { Err(broken(name)) }
    };
    let mut code = instructions(section)?.to_vec();
    if code.is_empty() {
        return Err(wrong(format!("the object has no section {section}")));
    }
    let first_function = code.len();
    code.extend(instructions(FUNCTIONS)?);
    let first_made = code.len();
    let mut alone = BTreeMap::new();
    let mut place_of_made = None;
    for (name, first) in [(section, 0), (FUNCTIONS, first_function)] {
        for relocation in object.relocations(name).ok_or_else(|| broken(name))? {
            let at = first + relocation.offset / size_of::<Instruction>();
            match relocation.kind {
                NAMED => fill(&mut code, at, &relocation, &meant)?,
                CALLED if relocation.is_defined => {
                    let target = call(&mut code, at, &relocation, first_function)?;
                    if let Some(Meant::Function(arguments)) = meant(relocation.symbol) {
                        alone.insert(target, arguments);
                    }
                }
                CALLED if made.is_some_and(|(name, _)| name == relocation.symbol) => {
                    let is_of_program = first_made == first_function;
                    if !is_of_program || place_of_made.replace(at).is_some() {
                        return Err(wrong(format!(
                            "{} has no place of its own",
                            relocation.symbol
                        )));
                    }
                }
                CALLED => return Err(wrong(format!("the object calls {}", relocation.symbol))),
                kind => return Err(wrong(format!("the object has a relocation of type {kind}"))),
            }
        }
    }
    if let (Some((name, made)), Some(at)) = (made, place_of_made) {
        let back = first_made + made.len();
        let jump = |from: usize, to: usize| {
            let way = i16::try_from(to as i64 - from as i64 - 1).map_err(|_| broken(name))?;
            let [low, high] = way.to_le_bytes();
            Ok::<_, io::Error>([JUMP, 0, low, high, 0, 0, 0, 0])
        };
        code.extend(made);
        code.push(jump(back, at + 1)?);
        code[at] = jump(at, first_made)?;
    }
    Ok(Program { code, alone })
}

/// Where the part of the stack begins that [`link`] leaves to the code that it puts in, from register 10.
pub const MADE_STACK: i16 = -256;

/// Fills in what the two halves of a 64-bit load name.
fn fill(
    code: &mut [Instruction],
    at: usize,
    named: &Relocation<'_>,
    meant: impl Fn(&str) -> Option<Meant>,
) -> io::Result<()> {
    let (low, high) = match code.get_mut(at..) {
        Some([low, high, ..]) if low[0] == LOAD_64 => (low, high),
        _ => return Err(broken(named.symbol)),
    };
    let [_, registers, _, _, value @ ..] = low;
    let [_, _, _, _, upper @ ..] = high;
    match meant(named.symbol) {
        Some(Meant::Table(fd)) => {
            *registers |= VALUE_OF_MAP << 4;
            *upper = *value; // Where in the table: the object has that where we put its number.
            *value = fd.to_le_bytes();
        }
        Some(Meant::Map(fd)) => {
            *registers |= MAP << 4;
            *value = fd.to_le_bytes();
        }
        Some(Meant::Number(number)) => {
            let number = number.wrapping_add(u64::from(u32::from_le_bytes(*value))).to_le_bytes();
            value.copy_from_slice(&number[..4]);
            upper.copy_from_slice(&number[4..]);
        }
        Some(Meant::Function(_)) | None => {
            return Err(wrong(format!("the object names {}", named.symbol)));
        }
    }
    Ok(())
}

/// Lets a call lead to where a function stands now, and returns that.
fn call(
    code: &mut [Instruction],
    at: usize,
    called: &Relocation<'_>,
    functions: usize,
) -> io::Result<usize> {
    let [op, registers, _, _, value @ ..] =
        code.get_mut(at).ok_or_else(|| broken(called.symbol))?;
    if *op != CALL || *registers >> 4 != CALL_OF_FUNCTION {
        return Err(broken(called.symbol));
    }
    // Counted from behind the call; what stands there counts from the symbol.
    let target = functions as i64
        + (called.value / size_of::<Instruction>() as u64) as i64
        + i64::from(i32::from_le_bytes(*value))
        + 1;
    let way = i32::try_from(target - at as i64 - 1).map_err(|_| broken(called.symbol))?;
    *value = way.to_le_bytes();
    usize::try_from(target).map_err(|_| broken(called.symbol))
}

fn broken(what: &str) -> io::Error {
    wrong(format!("the object is broken at {what:?}"))
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

const FUNCTIONS: &str = ".text";

// Types of relocation (Documentation/bpf/llvm_reloc.rst).
const NAMED: u32 = 1;
const CALLED: u32 = 10;

// linux/bpf.h.
const LOAD_64: u8 = 0x18;
const CALL: u8 = 0x85;
const JUMP: u8 = 0x05;
const MAP: u8 = 1;
const VALUE_OF_MAP: u8 = 2;
const CALL_OF_FUNCTION: u8 = 1;
