//! The type information of a program (Documentation/bpf/btf.rst): what the verifier must know of functions that it follows
//! by themselves.

use std::io;
use std::os::fd::OwnedFd;

use super::call;

/// An argument of such a function. The result is a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// A number.
    Number,
    /// The address of as many bytes, a multiple of 8, or 0.
    Memory(u32),
}

/// The types of a program's functions, loaded into the kernel.
pub(super) struct Types {
    pub(super) fd: OwnedFd,
    /// By the place of its first instruction, each function's type.
    pub(super) functions: Vec<FunctionType>,
}

/// `struct bpf_func_info`.
#[repr(C)]
pub(super) struct FunctionType {
    first: u32,
    id: u32,
}
const _: () = assert!(size_of::<FunctionType>() == 8);

impl Types {
    /// Loads types for functions that begin at these instructions, in ascending order. Those with arguments are followed by
    /// themselves.
    pub(super) fn load(functions: &[(usize, Option<&[Argument]>)]) -> io::Result<Types> {
        let (bytes, ids) = write(functions);
        let functions = functions.iter().zip(ids);
        let functions = functions.map(|(&(first, _), id)| FunctionType { first: first as u32, id });
        let functions = functions.collect();
        let mut attributes = Load {
            types: bytes.as_ptr() as u64,
            log: 0,
            types_len: bytes.len() as u32,
            log_len: 0,
            log_level: 0,
            padding: 0,
        };
        // SAFETY: BPF_BTF_LOAD reads `union bpf_attr` as `Load` lays it out, and `types_len` bytes at `types`, which
        // outlive the call. The command returns a descriptor.
        let fd = unsafe { call::open(TYPES_LOAD, &mut attributes) }?;
        Ok(Types { fd, functions })
    }
}

/// The types, and which of them each function has.
fn write(functions: &[(usize, Option<&[Argument]>)]) -> (Vec<u8>, Vec<u32>) {
    let mut types = Written(Vec::new(), 0);
    let number = types.add(NAME, INTEGER << 24, 8, &[64]);
    let other = types.add(0, PROTOTYPE << 24, number, &[]);
    let other = types.add(NAME, FUNCTION << 24, other, &[]);
    let mut ids = Vec::new();
    for (_, arguments) in functions {
        let Some(arguments) = arguments else {
            ids.push(other);
            continue;
        };
        let mut words = Vec::new();
        for argument in *arguments {
            let id = match argument {
                Argument::Number => number,
                Argument::Memory(bytes) => {
                    let memory = types.add(0, ARRAY << 24, 0, &[number, number, bytes / 8]);
                    types.add(0, POINTER << 24, memory, &[])
                }
            };
            words.extend([NAME, id]);
        }
        let info = PROTOTYPE << 24 | arguments.len() as u32;
        let prototype = types.add(0, info, number, &words);
        ids.push(types.add(NAME, FUNCTION << 24 | GLOBAL, prototype, &[]));
    }
    let len = types.0.len() as u32 * 4;
    let header = [VERSION << 16 | MAGIC, 24, 0, len, len, NAMES.len() as u32];
    let words = header.iter().chain(&types.0).flat_map(|word| word.to_le_bytes());
    (words.chain(*NAMES).collect(), ids)
}

/// The words of the types that are written, and how many these are.
struct Written(Vec<u32>, u32);

impl Written {
    /// Adds a type (`struct btf_type`, and what follows it). Returns its id.
    fn add(&mut self, name: u32, info: u32, size_or_id: u32, more: &[u32]) -> u32 {
        self.0.extend([name, info, size_or_id]);
        self.0.extend(more);
        self.1 += 1;
        self.1
    }
}

/// `union bpf_attr` for BPF_BTF_LOAD.
#[repr(C)]
struct Load {
    types: u64,
    log: u64,
    types_len: u32,
    log_len: u32,
    log_level: u32,
    padding: u32,
}
const _: () = assert!(size_of::<Load>() == 32);

/// Whatever needs a name has this one.
const NAMES: &[u8; 3] = b"\0n\0";
const NAME: u32 = 1;

// linux/btf.h.
const MAGIC: u32 = 0xeb9f;
const VERSION: u32 = 1;
const INTEGER: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;
const GLOBAL: u32 = 1;
// linux/bpf.h.
const TYPES_LOAD: libc::c_int = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_one_kind_share_a_type_and_others_have_their_arguments() {
        let two: &[_] = &[Argument::Number, Argument::Memory(48)];
        let (bytes, ids) = write(&[(0, None), (9, Some(two)), (20, None)]);
        assert_eq!(ids, [3, 7, 3]);
        let (words, rest) = bytes.as_chunks::<4>();
        let words: Vec<_> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let types = (words.len() - 6) as u32 * 4;
        assert_eq!(words[..6], [0x0001_eb9f, 24, 0, types, types, 3]);
        let array = [0, 3 << 24, 0, 1, 1, 6];
        let pointer = [0, 2 << 24, 4];
        let prototype = [0, 13 << 24 | 2, 1, 1, 1, 1, 5];
        let function = [1, 12 << 24 | 1, 6];
        let last = [&array[..], &pointer, &prototype, &function].concat();
        assert!(words.ends_with(&last), "{words:x?}");
        assert_eq!(rest, b"\0n\0");
    }
}
