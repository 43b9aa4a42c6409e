//! tcpdump's filter language, compiled by libpcap.
//!
//! libpcap is loaded at the first filter and needed by nothing else: a capture without a filter works without it. Use
//! it in the process that captures, not in one that forwards: the compiler queries the DNS resolver and reads
//! `/etc/services`.
//!
//! A program is a list of (`code`, `jt`, `jf`, `k`), the fields of `struct bpf_insn`. See pcap-filter(7),
//! pcap_compile(3PCAP), bpf(4).

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::Library;

use crate::chain::Chain;

/// One instruction of classic BPF: `code`, `jt`, `jf`, `k`.
pub type Instruction = (u16, u8, u8, u32);

/// The most bytes of a packet that a filter keeps: libpcap's own bound (`MAXIMUM_SNAPLEN`).
pub const SNAP_MAX: u32 = 262_144;

/// Why a filter has no program.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// libpcap is not installed, or lacks a function that we need.
    #[error(
        "filters need libpcap, which cannot be loaded ({}): `apt-get install libpcap0.8`, or capture without a filter",
        Chain(.source)
    )]
    Missing {
        /// The dynamic linker's error.
        source: libloading::Error,
    },
    /// libpcap does not understand the expression.
    #[error("the filter `{expression}` is wrong: {message}; pcap-filter(7) describes the language")]
    Expression {
        /// The expression.
        expression: String,
        /// libpcap's error message.
        message: String,
    },
    /// libpcap could not allocate.
    #[error("no memory for libpcap's compiler; free some")]
    OutOfMemory,
}

/// Compiles an expression for Ethernet frames, optimized. The program returns `snap` for a packet that matches and 0
/// for any other; `snap` is between 1 and [`SNAP_MAX`] (0x40000), which replaces any larger value.
///
/// The empty expression matches every packet.
pub fn compile(expression: &str, snap: u32) -> Result<Vec<Instruction>, PcapError> {
    compile_for(DLT_EN10MB, expression, snap)
}

/// As [`compile`], for packets that begin with an IPv4 or IPv6 header. An expression about Ethernet is wrong there.
pub fn compile_for_ip(expression: &str, snap: u32) -> Result<Vec<Instruction>, PcapError> {
    compile_for(DLT_RAW, expression, snap)
}

fn compile_for(link: c_int, expression: &str, snap: u32) -> Result<Vec<Instruction>, PcapError> {
    let wrong = |message: String| PcapError::Expression { expression: expression.into(), message };
    let text = CString::new(expression).map_err(|_| wrong("it has a NUL in it".into()))?;
    let libpcap = Libpcap::lock()?;
    let libpcap = libpcap.get();
    let handle = Handle::open(libpcap, link, snap)?;
    let mut program =
        Program { libpcap, raw: RawProgram { len: 0, instructions: ptr::null_mut() } };
    // SAFETY: the conditions of pcap_compile(3PCAP):
    // - The function is that of a loaded library, by its declaration in pcap/pcap.h, and no other thread is in
    //   it: we have the lock.
    // - The handle is open, `program.raw` is ours to write, `text` ends with a NUL and outlives the call.
    let status = unsafe {
        (libpcap.compile)(handle.pcap.as_ptr(), &mut program.raw, text.as_ptr(), 1, NETMASK_UNKNOWN)
    };
    if status != 0 {
        return Err(wrong(handle.last_error()));
    }
    Ok(program.instructions())
}

/// Runs a program in libpcap's own interpreter (`bpf_filter`), to test another interpreter against it. The packet has
/// `len` bytes, and `bytes` are its first. Returns how many bytes to keep, or 0; `None` for a program that libpcap
/// could not run safely: it trusts programs to come from its compiler.
///
/// Words of scratch memory that the program has not written read as 0.
pub fn interpret(
    program: &[Instruction],
    bytes: &[u8],
    len: u32,
) -> Result<Option<u32>, PcapError> {
    let libpcap = Libpcap::lock()?;
    let libpcap = libpcap.get();
    // libpcap 1.10 does not clear its scratch memory. Jumps are relative, so instructions in front change nothing.
    let clear = (0..CELLS).map(|cell| (STORE, 0, 0, cell));
    let raw = |(code, jt, jf, k)| RawInstruction { code, jt, jf, k };
    let raw: Vec<_> = clear.chain(program.iter().copied()).map(raw).collect();
    let (Ok(count), Ok(cut)) = (c_int::try_from(raw.len()), c_uint::try_from(bytes.len())) else {
        return Ok(None);
    };
    if !program.iter().all(is_harmless) {
        return Ok(None);
    }
    // SAFETY: it reads `count` instructions, which `raw` holds, by the declaration in pcap/bpf.h.
    if unsafe { (libpcap.validate)(raw.as_ptr(), count) } == 0 {
        return Ok(None);
    }
    // SAFETY: it reads the program, to where that leads, and at most `cut` bytes of the packet, which `bytes` holds.
    // - The program stays inside: `bpf_validate` has found that each jump does, and that the last instruction
    //   ends it. The program ends, since `is_harmless` has let no jump go backward.
    // - The program uses words of memory that exist, by `bpf_validate`, and that were written, by `clear`.
    // - `is_harmless` has refused the instructions on which it aborts and the shifts that C does not define.
    Ok(Some(unsafe { (libpcap.filter)(raw.as_ptr(), bytes.as_ptr(), len, cut) }))
}

/// Whether `bpf_filter` has a case for the instruction, and it neither jumps backward nor shifts too far.
fn is_harmless(&(code, _, _, k): &Instruction) -> bool {
    match code {
        0x05 => k <= i32::MAX as u32, // `ja`
        0x64 | 0x74 => k < 32,        // `lsh`, `rsh`
        _ => CASES.contains(&code),
    }
}

/// The other codes in the `switch` of `bpf_filter.c`: `ret`; `ld`, `ldx`; `st`, `stx`; jumps by a condition;
/// arithmetic with a constant, with X; `tax`, `txa`.
#[rustfmt::skip]
const CASES: [u16; 46] = [
    0x06, 0x16,
    0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x00, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1,
    0x02, 0x03,
    0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d,
    0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x84, 0x94, 0xa4,
    0x0c, 0x1c, 0x2c, 0x3c, 0x4c, 0x5c, 0x6c, 0x7c, 0x9c, 0xac,
    0x07, 0x87,
];

/// The library and the functions that we call: valid while it is loaded.
struct Libpcap {
    compile:
        unsafe extern "C" fn(*mut c_void, *mut RawProgram, *const c_char, c_int, c_uint) -> c_int,
    free_code: unsafe extern "C" fn(*mut RawProgram),
    open_dead: unsafe extern "C" fn(c_int, c_int) -> *mut c_void,
    last_error: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    close: unsafe extern "C" fn(*mut c_void),
    validate: unsafe extern "C" fn(*const RawInstruction, c_int) -> c_int,
    filter: unsafe extern "C" fn(*const RawInstruction, *const c_uchar, c_uint, c_uint) -> c_uint,
    _library: Library,
}

/// The library, once per process, behind one lock: before 1.8 its compiler has global state.
static LIBPCAP: Mutex<Option<Libpcap>> = Mutex::new(None);

/// The library, locked and loaded.
struct Locked(MutexGuard<'static, Option<Libpcap>>);

impl Libpcap {
    /// Loads the library unless it is loaded. A failure is not remembered.
    fn lock() -> Result<Locked, PcapError> {
        let mut libpcap = LIBPCAP.lock().unwrap_or_else(PoisonError::into_inner);
        if libpcap.is_none() {
            *libpcap = Some(Libpcap::load().map_err(|source| PcapError::Missing { source })?);
        }
        Ok(Locked(libpcap))
    }

    fn load() -> Result<Libpcap, libloading::Error> {
        // SAFETY: loading libpcap runs no code but the C library's: it has neither constructors nor
        // destructors. Both names denote one library; the second is Debian's.
        let library =
            unsafe { Library::new("libpcap.so.1").or_else(|_| Library::new("libpcap.so.0.8"))? };
        // SAFETY: the types are those of the declarations in pcap/pcap.h and pcap/bpf.h, unchanged
        // since libpcap 0.8; `pcap_t` is opaque there. The addresses are kept beside the library.
        unsafe {
            Ok(Libpcap {
                compile: *library.get(b"pcap_compile\0")?,
                free_code: *library.get(b"pcap_freecode\0")?,
                open_dead: *library.get(b"pcap_open_dead\0")?,
                last_error: *library.get(b"pcap_geterr\0")?,
                close: *library.get(b"pcap_close\0")?,
                validate: *library.get(b"bpf_validate\0")?,
                filter: *library.get(b"bpf_filter\0")?,
                _library: library,
            })
        }
    }
}

impl Locked {
    fn get(&self) -> &Libpcap {
        self.0.as_ref().expect("`Libpcap::lock` has loaded it")
    }
}

/// A `pcap_t` without a device.
struct Handle<'l> {
    libpcap: &'l Libpcap,
    /// Open until this is dropped.
    pcap: NonNull<c_void>,
}

impl<'l> Handle<'l> {
    fn open(libpcap: &'l Libpcap, link: c_int, snap: u32) -> Result<Handle<'l>, PcapError> {
        let snap = snap.clamp(1, SNAP_MAX) as c_int;
        // SAFETY: the function takes two numbers and returns a handle or null (pcap_open_dead(3PCAP)).
        let pcap = NonNull::new(unsafe { (libpcap.open_dead)(link, snap) });
        Ok(Handle { libpcap, pcap: pcap.ok_or(PcapError::OutOfMemory)? })
    }

    /// Why the last call failed.
    fn last_error(&self) -> String {
        // SAFETY: the handle is open; the text is in it, ends with a NUL, and is copied before the next call.
        let message = unsafe { CStr::from_ptr((self.libpcap.last_error)(self.pcap.as_ptr())) };
        message.to_string_lossy().into_owned()
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and no other copy of it exists.
        unsafe { (self.libpcap.close)(self.pcap.as_ptr()) };
    }
}

/// A program that libpcap has allocated, or none.
struct Program<'l> {
    libpcap: &'l Libpcap,
    raw: RawProgram,
}

impl Program<'_> {
    fn instructions(&self) -> Vec<Instruction> {
        if self.raw.instructions.is_null() {
            return Vec::new();
        }
        // SAFETY: `pcap_compile` has returned 0, so that `raw` has `len` instructions, initialised, which stay
        // until `pcap_freecode` in `drop`; no code writes them.
        let raw = unsafe { slice::from_raw_parts(self.raw.instructions, self.raw.len as usize) };
        raw.iter().map(|raw| (raw.code, raw.jt, raw.jf, raw.k)).collect()
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: what `pcap_compile` has allocated, or null, which is freed as nothing. Once.
        unsafe { (self.libpcap.free_code)(&mut self.raw) };
    }
}

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    len: c_uint,
    instructions: *mut RawInstruction,
}

/// `struct bpf_insn`.
#[repr(C)]
struct RawInstruction {
    code: c_ushort,
    jt: c_uchar,
    jf: c_uchar,
    k: c_uint,
}

const DLT_EN10MB: c_int = 1;
const DLT_RAW: c_int = 12;
/// `PCAP_NETMASK_UNKNOWN`: `ip broadcast` is refused.
const NETMASK_UNKNOWN: c_uint = 0xffff_ffff;
/// `st`: stores A, which is 0 at first, to a word of scratch memory.
const STORE: u16 = 0x02;
/// `BPF_MEMWORDS`.
const CELLS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::{PcapError, SNAP_MAX, compile, compile_for_ip, interpret};

    #[test]
    fn an_expression_becomes_a_program() {
        let Some(program) = compiled("ip6", 96) else { return };
        assert_eq!(
            program,
            [(0x28, 0, 0, 12), (0x15, 0, 1, 0x86dd), (0x06, 0, 0, 96), (0x06, 0, 0, 0)]
        );
        assert_eq!(compiled("", 96), Some(vec![(0x06, 0, 0, 96)]));
        assert_eq!(compiled("", 0), Some(vec![(0x06, 0, 0, 1)]));
        assert_eq!(compiled("", u32::MAX), Some(vec![(0x06, 0, 0, SNAP_MAX)]));
    }

    #[test]
    fn a_program_for_ip_begins_with_the_version() {
        if compiled("", 96).is_none() {
            return;
        }
        let program = compile_for_ip("ip6", 96).expect("it is right");
        let version = [(0x30, 0, 0, 0), (0x54, 0, 0, 0xf0), (0x15, 0, 1, 0x60)];
        assert_eq!(program[..3], version);
        let error = compile_for_ip("ether src 02:00:00:00:00:01", 96).expect_err("it has none");
        assert!(matches!(error, PcapError::Expression { .. }), "{error:?}");
    }

    #[test]
    fn a_wrong_expression_is_named_with_libpcaps_words() {
        if compiled("", 96).is_none() {
            return;
        }
        for (expression, word) in [
            ("tcp prot 80", "syntax error"),
            ("ip broadcast", "netmask"),
            ("ether[0:3] = 1", "data size"),
            ("tcp\0port 80", "NUL"),
        ] {
            let error = compile(expression, 96).expect_err("it is wrong");
            assert!(matches!(error, PcapError::Expression { .. }), "{error:?}");
            let words = error.to_string();
            assert!(words.contains(word) && words.contains(expression), "{words}");
        }
    }

    #[test]
    fn the_oracle_runs_what_is_safe_and_nothing_else() {
        if compiled("", 96).is_none() {
            return;
        }
        let ask = |program: &[_]| interpret(program, &[7, 8], 60).expect("libpcap is here");
        assert_eq!(ask(&[(0x30, 0, 0, 1), (0x16, 0, 0, 0)]), Some(8));
        assert_eq!(ask(&[(0x80, 0, 0, 0), (0x16, 0, 0, 0)]), Some(60));
        assert_eq!(ask(&[(0x30, 0, 0, 2), (0x06, 0, 0, 1)]), Some(0));
        assert_eq!(ask(&[(0x60, 0, 0, 15), (0x16, 0, 0, 0)]), Some(0), "memory begins as 0");
        for unsafe_ in [
            &[][..],
            &[(0x20, 0, 0, 0)],
            &[(0x0e, 0, 0, 0)],
            &[(0x05, 0, 0, 1), (0x06, 0, 0, 0)],
            &[(0x05, 0, 0, 0xffff_ffff), (0x06, 0, 0, 0)],
            &[(0x15, 1, 0, 0), (0x06, 0, 0, 0)],
            &[(0x64, 0, 0, 32), (0x06, 0, 0, 0)],
            &[(0x60, 0, 0, 16), (0x06, 0, 0, 0)],
            &[(0x34, 0, 0, 0), (0x06, 0, 0, 0)],
        ] {
            assert_eq!(ask(unsafe_), None, "{unsafe_:x?}");
        }
    }

    /// `None`, with a message, where libpcap is missing.
    fn compiled(expression: &str, snap: u32) -> Option<Vec<super::Instruction>> {
        match compile(expression, snap) {
            Err(error @ PcapError::Missing { .. }) => {
                assert!(error.to_string().contains("apt-get install libpcap0.8"));
                println!("SKIPPED filters by libpcap: {error}");
                None
            }
            other => Some(other.expect("it is right")),
        }
    }
}
