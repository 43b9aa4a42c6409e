//! The tables that a fast program reads, as maps that we have mapped, too.
//!
//! A table is one element of a BPF array (`BPF_F_MMAPABLE`): the kernel's vmalloc memory, zeroed, aligned to a
//! page. It lives as long as somebody has its descriptor, a mapping of it, or a program that names it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use manylane_sync::words::{Owner, Word, WordsMut};

use super::super::{BpfError, call};
use super::object::Meant;
use super::samples;

/// How many words those tables have that are as large as the routes want. A lookup in one that is too short finds
/// no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Directories of /24s with longer routes (`fib/v4` of `manylane-net`).
    pub groups4: usize,
    /// Their lists.
    pub ranges4: usize,
    /// Entries by bits of IPv6 addresses (`fib/v6`).
    pub index6: usize,
    /// Leaves.
    pub leaves6: usize,
}

/// The writer's side of what a program reads: one table for each name in `tables.h`, all words 0. What the words
/// mean is said in `manylane-net` (`transit`); whoever writes them is alone.
pub struct Tables {
    /// Next hops of IPv4 /16s, or their chunks.
    pub direct4: WordsMut<u32>,
    /// Next hops of the /24s of /16s.
    pub chunks4: WordsMut<u64>,
    /// Directories of IPv4 /16s.
    pub blocks4: WordsMut<u32>,
    /// Lists of IPv4 /24s.
    pub groups4: WordsMut<u32>,
    /// The lists.
    pub ranges4: WordsMut<u32>,
    /// Next hops of IPv6 buckets, or the way on.
    pub direct6: WordsMut<u32>,
    /// The same by the bits that follow.
    pub index6: WordsMut<u32>,
    /// Intervals of IPv6 addresses and their words.
    pub leaves6: WordsMut<u64>,
    /// Which IPv4 addresses may be our own, by their hashes.
    pub own4: WordsMut<u64>,
    /// What next hops are.
    pub next_hops: WordsMut<u64>,
    /// Members of groups.
    pub buckets: WordsMut<u16>,
    /// Records of slots.
    pub record_of: WordsMut<u32>,
    /// The records.
    pub records: WordsMut<u32>,
    /// Ports.
    pub ports: WordsMut<u32>,
    /// Ports of interfaces.
    pub port_of: WordsMut<u16>,
    /// Ports of VLANs.
    pub vlan_port: WordsMut<u16>,
    /// Lease, seed, and what groups may be decided.
    pub control: WordsMut<u64>,
    /// Rules of the routing policy.
    pub rules: WordsMut<u64>,
    /// Where further tables begin.
    pub roots: WordsMut<u64>,
    /// Their ranges of addresses.
    pub further: WordsMut<u64>,
}

/// The maps behind tables, by their names, for programs that are to be loaded.
#[derive(Default)]
pub(in crate::bpf) struct Maps(Vec<Map>);

struct Map {
    name: &'static str,
    words: usize,
    fd: OwnedFd,
}

impl Maps {
    /// Makes all tables; and for so many CPUs the counters and samples, which programs write.
    pub(super) fn create(
        sizes: &Sizes,
        cpus: usize,
    ) -> Result<(Maps, Tables, [WordsMut<u64>; 2]), BpfError> {
        let mut maps = Maps::default();
        let tables = Tables {
            direct4: maps.add("direct4", 1 << 16)?,
            chunks4: maps.add("chunks4", (80 << 16) + 128)?,
            blocks4: maps.add("blocks4", 1 << 16)?,
            groups4: maps.add("groups4", sizes.groups4.max(LEAF))?,
            ranges4: maps.add("ranges4", sizes.ranges4.max(LEAF))?,
            direct6: maps.add("direct6", (1 << 21) + (1 << 16))?,
            index6: maps.add("index6", sizes.index6.max(LEAF))?,
            leaves6: maps.add("leaves6", sizes.leaves6.max(LEAF))?,
            own4: maps.add("own4", 1024)?,
            next_hops: maps.add("next_hops", 1 << 15)?,
            buckets: maps.add("buckets", 512 * 512)?,
            record_of: maps.add("record_of", 1 << 15)?,
            records: maps.add("records", 16 << 16)?,
            ports: maps.add("ports", 16 * PORTS)?,
            port_of: maps.add("port_of", 1 << 16)?,
            vlan_port: maps.add("vlan_port", PORTS * 2 * 4096)?,
            control: maps.add("control", 64)?,
            rules: maps.add("rules", 16 * 32 * 16)?,
            roots: maps.add("roots", 64)?,
            further: maps.add("further", 1 << 20)?,
        };
        let counters = maps.add("counters", cpus * PORTS * PLACES)?;
        let samples = maps.add("samples", samples::words(cpus))?;
        Ok((maps, tables, [counters, samples]))
    }

    /// Makes one more table.
    pub fn add<W: Word>(
        &mut self,
        name: &'static str,
        words: usize,
    ) -> Result<WordsMut<W>, BpfError> {
        let bytes = words.saturating_mul(size_of::<W>());
        let failed = |source| BpfError::Table { name, bytes, source };
        let fd = create(name, bytes).map_err(failed)?;
        let mapping = Mapping::of(&fd, bytes).map_err(failed)?;
        let base = mapping.base.cast::<W>();
        let owner: Owner = Arc::new(mapping);
        self.0.push(Map { name, words, fd });
        // SAFETY: the three debts of `from_mapping`:
        // 1. a mapping is aligned to a page and has `bytes`, zero, which every word may be;
        // 2. it is writable, and stays where it is until `owner` is dropped (`Mapping` invariant 2);
        // 3. `owner` was made here and hands out nothing; the map was, too, and nobody else maps it.
        Ok(unsafe { WordsMut::from_mapping(base, words, owner) })
    }

    /// Makes one more table, of parts that each have a writer of their own.
    pub fn add_parts<W: Word>(
        &mut self,
        name: &'static str,
        words: usize,
        parts: usize,
    ) -> Result<Vec<WordsMut<W>>, BpfError> {
        let bytes = words.saturating_mul(parts).saturating_mul(size_of::<W>());
        let failed = |source| BpfError::Table { name, bytes, source };
        let fd = create(name, bytes).map_err(failed)?;
        let mapping = Mapping::of(&fd, bytes).map_err(failed)?;
        let base = mapping.base.cast::<W>();
        let owner: Owner = Arc::new(mapping);
        self.0.push(Map { name, words: words * parts, fd });
        let part = |part: usize| {
            // SAFETY: `bytes` were mapped, and hold `parts` times `words` words: the sum is inside of them.
            let base = unsafe { base.add(part * words) };
            // SAFETY: the debts of `from_mapping` as in `add`, for `words` words from `base` on; the parts do not
            // overlap, so each is reached by its own table alone.
            unsafe { WordsMut::from_mapping(base, words, owner.clone()) }
        };
        Ok((0..parts).map(part).collect())
    }

    /// The map of a table.
    pub fn descriptor(&self, name: &str) -> Option<&OwnedFd> {
        self.0.iter().find(|map| map.name == name).map(|map| &map.fd)
    }

    /// What a name in an object stands for: a table, or how many words it has.
    pub fn meant(&self, name: &str) -> Option<Meant> {
        let map = |name: &str| self.0.iter().find(|map| map.name == name);
        match name.strip_suffix("_words") {
            Some(table) => map(table).map(|map| Meant::Number(map.words as u64)),
            None => map(name).map(|map| Meant::Table(map.fd.as_raw_fd())),
        }
    }
}

/// Shared memory of a map.
///
/// # Invariants
///
/// 1. `base` points at `len` mapped, readable, writable bytes.
/// 2. Only `Drop` unmaps them.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and `Mapping` gives out no reference.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(map: &OwnedFd, len: usize) -> io::Result<Mapping> {
        // SAFETY: a mapping at an address of the kernel's choice touches nothing that exists (mmap(2)).
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned 0"))?;
        let mapping = Mapping { base, len };
        // The links of a process that dumps its core close after that: tables of a full routing table would
        // take seconds.
        // SAFETY: the advice is about what was just mapped, and changes no byte of it (madvise(2)).
        let advised = unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTDUMP) };
        if advised < 0 { Err(io::Error::last_os_error()) } else { Ok(mapping) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: invariant 1; whoever points into the mapping holds its owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Makes a map of one element.
fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    if bytes >= BYTES_END {
        let why = format!("a table has less than {} MiB", BYTES_END >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    array(name, bytes as u32, MAPPABLE)
}

/// Makes an array with one element of so many bytes.
pub(super) fn array(name: &str, bytes: u32, flags: u32) -> io::Result<OwnedFd> {
    map(ARRAY, name, bytes, 1, flags)
}

/// Makes a map of a kind whose keys are numbers of 32 bits, with so many bytes in each of its places.
pub(super) fn map(
    kind: u32,
    name: &str,
    bytes: u32,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut padded = [0; 16];
    padded.iter_mut().zip(name.bytes().take(15)).for_each(|(place, byte)| *place = byte);
    let mut attributes = Create {
        kind,
        key_len: 4,
        value_len: bytes,
        entries,
        flags,
        inner: 0,
        node: 0,
        name: padded,
    };
    // SAFETY: BPF_MAP_CREATE reads `union bpf_attr` as `Create` lays it out; no field is a pointer. It returns a
    // descriptor.
    unsafe { call::open(MAP_CREATE, &mut attributes) }
}

/// Makes an array with one place for a map like `inner`.
pub(super) fn array_of_maps(name: &str, inner: &OwnedFd) -> io::Result<OwnedFd> {
    let mut padded = [0; 16];
    padded.iter_mut().zip(name.bytes().take(15)).for_each(|(place, byte)| *place = byte);
    let mut attributes = Create {
        kind: ARRAY_OF_MAPS,
        key_len: 4,
        value_len: 4,
        entries: 1,
        flags: 0,
        inner: inner.as_raw_fd() as u32,
        node: 0,
        name: padded,
    };
    // SAFETY: as in `map`.
    unsafe { call::open(MAP_CREATE, &mut attributes) }
}

/// `union bpf_attr` for BPF_MAP_CREATE, up to what we say.
#[repr(C)]
struct Create {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

/// Ports, the first of which is nobody.
pub(in crate::bpf) const PORTS: usize = 256;
/// Counters of a port, on a CPU.
pub(super) const PLACES: usize = 32;

/// Words of a leaf: the program relies on there being one.
const LEAF: usize = 8;

/// Where a program's reach ends: the verifier follows no index further (`BPF_MAX_VAR_OFF`).
const BYTES_END: usize = 1 << 29;

// linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const ARRAY: u32 = 2;
const ARRAY_OF_MAPS: u32 = 12;
const MAPPABLE: u32 = 1 << 10;
