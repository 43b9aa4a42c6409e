//! The XDP program for devices that may remove VLAN tags: `xsk_tag.bpf.c`.
//!
//! The program calls a kernel function by its number in the kernel's BTF and is loaded for one device, whose driver
//! implements that function (`BPF_F_XDP_DEV_BOUND_ONLY`). aya supports neither, so this file makes the three system
//! calls itself; the map belongs to [`XskProgram`](super::XskProgram).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::call::{self, Instruction, Kind};
use super::elf::{Object, text_at, u32_at};

/// Attaches the program natively to interface `index`, with `sockets` as its map. Returns the link.
///
/// Fails where the kernel lacks the function (before Linux 6.8). For a driver that does not implement it the kernel
/// substitutes a stub that reports no tag (`bpf_dev_bound_resolve_kfunc`): the program loads and runs, and tags are
/// lost. So call [`tells_tags`](crate::netlink::tells_tags) first.
pub(super) fn attach(index: u32, sockets: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let types = fs::read("/sys/kernel/btf/vmlinux")?;
    let unknown = || io::Error::new(io::ErrorKind::Unsupported, "the kernel lacks this function");
    let function = function_id(&types, FUNCTION).ok_or_else(unknown)?;
    drop(types);
    let code = code(OBJECT, sockets.as_raw_fd(), function);
    let program = load(&code, index)?;
    link(&program, index)
}

/// The program's instructions with the running kernel's numbers filled in.
///
/// # Panics
///
/// When `object` is not what `xsk_tag.bpf.c` compiles to.
fn code(object: &[u8], map: i32, function: u32) -> Vec<Instruction> {
    let section = Object(object).section(SECTION).expect("the object has this section");
    let (instructions, rest) = section.as_chunks::<8>();
    assert!(rest.is_empty(), "an instruction has 8 bytes");
    let mut code = instructions.to_vec();
    let (mut maps, mut calls) = (0, 0);
    for instruction in &mut code {
        let [op, registers, _, _, value @ ..] = instruction;
        match (*op, i32::from_le_bytes(*value)) {
            (LOAD_64, 0) => {
                *registers |= MAP_BY_FD << 4;
                *value = map.to_le_bytes();
                maps += 1;
            }
            (CALL, RX_VLAN_TAG) => {
                *registers |= CALL_OF_KERNEL << 4;
                *value = function.to_le_bytes();
                calls += 1;
            }
            _ => {}
        }
    }
    assert_eq!((maps, calls), (1, 1), "one map, and one call of a kernel function");
    code
}

/// The BTF id of a kernel function (Documentation/bpf/btf.rst).
fn function_id(btf: &[u8], name: &str) -> Option<u32> {
    let header = u32_at(btf, 4)?;
    let word = |at| u32_at(btf, at).map(|word| (header + word) as usize);
    let types = btf.get(word(8)?..)?.get(..u32_at(btf, 12)? as usize)?;
    let names = btf.get(word(16)?..)?;
    let (mut at, mut id) = (0, 1);
    while at < types.len() {
        let (named, facts) = (u32_at(types, at)?, u32_at(types, at + 4)?);
        let (kind, members) = (facts >> 24 & 0x1f, (facts & 0xffff) as usize);
        if kind == KIND_FUNCTION && text_at(names, named)? == name.as_bytes() {
            return Some(id);
        }
        at += 12
            + match kind {
                1 | 14 | 17 => 4,                // Integer, variable, tag of a declaration.
                3 => 12,                         // Array.
                6 | 13 => 8 * members,           // Enumeration, function's arguments.
                4 | 5 | 15 | 19 => 12 * members, // Structure, union, section, enumeration of 64 bits.
                _ => 0,
            };
        id += 1;
    }
    None
}

fn load(code: &[Instruction], index: u32) -> io::Result<OwnedFd> {
    let flags = HAS_FRAGMENTS | FOR_DEVICE;
    let kind = Kind { program: PROGRAM_XDP, attach: ATTACH_XDP, flags, interface: index };
    call::load(kind, "to_socket", code)
}

fn link(program: &OwnedFd, index: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let mut attributes = Link { program, interface: index, attach: ATTACH_XDP, flags: NATIVE };
    // SAFETY: BPF_LINK_CREATE reads `union bpf_attr` as `Link` lays it out; no field is a pointer. The command returns a
    // descriptor.
    unsafe { call::open(LINK_CREATE, &mut attributes) }
}

/// `union bpf_attr` for BPF_LINK_CREATE, up to the last field that we set.
#[repr(C)]
struct Link {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("xsk_tag.bpf.o");
const SECTION: &str = "xdp.frags";
const FUNCTION: &str = "bpf_xdp_metadata_rx_vlan_tag";
/// The relocation's placeholder in `xsk_tag.bpf.c`.
const RX_VLAN_TAG: i32 = 0x7661;

// linux/bpf.h, linux/if_link.h, linux/btf.h.
const LINK_CREATE: libc::c_int = 28;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGMENTS: u32 = 1 << 5;
const FOR_DEVICE: u32 = 1 << 6;
const NATIVE: u32 = 1 << 2;
const LOAD_64: u8 = 0x18;
const CALL: u8 = 0x85;
const MAP_BY_FD: u8 = 1;
const CALL_OF_KERNEL: u8 = 2;
const KIND_FUNCTION: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_numbers_are_put_where_they_belong() {
        let code = code(OBJECT, 7, 0x0102_0304);
        let maps: Vec<_> =
            code.iter().filter(|one| one[0] == LOAD_64 && one[1] >> 4 != 0).collect();
        assert_eq!(maps, [&[LOAD_64, 0x11, 0, 0, 7, 0, 0, 0]]);
        let calls: Vec<_> = code.iter().filter(|one| one[0] == CALL && one[1] != 0).collect();
        assert_eq!(calls, [&[CALL, 0x20, 0, 0, 4, 3, 2, 1]]);
    }

    /// A structure with a member, an integer, a function of another name, and the function searched for.
    #[test]
    fn a_function_is_found_by_its_name() {
        let names = b"\0other\0wanted\0";
        let of = |name: u32, kind: u32, members: u32| [name, kind << 24 | members, 0];
        let mut types = of(8, 4, 1).to_vec();
        types.extend([7, 7, 7]);
        types.extend(of(8, 1, 0));
        types.push(32);
        types.extend(of(1, KIND_FUNCTION, 0));
        types.extend(of(7, KIND_FUNCTION, 0));
        let types_len = types.len() as u32 * 4;
        let header = [0x0001_eb9f, 24, 0, types_len, types_len, names.len() as u32];
        let words = header.iter().chain(&types).flat_map(|word| word.to_le_bytes());
        let btf: Vec<u8> = words.chain(*names).collect();
        assert_eq!(function_id(&btf, "wanted"), Some(4));
        assert_eq!(function_id(&btf, "other"), Some(3));
        assert_eq!(function_id(&btf, "wante"), None);
        for len in 0..btf.len() {
            let _ = function_id(&btf[..len], "wanted");
        }
    }
}
