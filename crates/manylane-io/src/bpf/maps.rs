//! Tables that a program and this process share: BPF arrays, mapped.
//!
//! A table is one element of a BPF array (`BPF_F_MMAPABLE`): the kernel's vmalloc memory, zeroed, aligned to a
//! page. The array lives as long as a descriptor of it, a mapping of it, or a program that names it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use manylane_sync::words::{Owner, Word, WordsMut};

use super::object::Meant;
use super::{BpfError, call};

/// The maps behind tables and ring buffers, by their names, for programs that are to be loaded.
#[derive(Default)]
pub struct Maps(Vec<Map>, Vec<(&'static str, OwnedFd)>);

struct Map {
    name: &'static str,
    words: usize,
    fd: OwnedFd,
}

impl Maps {
    /// Makes one more table.
    pub fn add<W: Word>(
        &mut self,
        name: &'static str,
        words: usize,
    ) -> Result<WordsMut<W>, BpfError> {
        let bytes = words.saturating_mul(size_of::<W>());
        let failed = |source| BpfError::Table { name, bytes, source };
        let fd = table(name, bytes).map_err(failed)?;
        let mapping = Mapping::of(fd.as_fd(), bytes).map_err(failed)?;
        let base = mapping.base.cast::<W>();
        let owner: Owner = Arc::new(mapping);
        self.0.push(Map { name, words, fd });
        // SAFETY: the three debts of `from_mapping`:
        // 1. a mapping is aligned to a page and has `bytes`, zero, which every word may be;
        // 2. it is writable, and stays where it is until `owner` is dropped (`Mapping` invariant 2);
        // 3. `owner` was made here and hands out nothing; the map was made here, too, and has no other mapping.
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
        let fd = table(name, bytes).map_err(failed)?;
        let mapping = Mapping::of(fd.as_fd(), bytes).map_err(failed)?;
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

    /// Makes a ring buffer of `bytes` bytes, a power of two and of pages, which programs fill and the caller reads.
    pub fn add_ring(&mut self, name: &'static str, bytes: u32) -> Result<RingReader, BpfError> {
        let failed = |source| BpfError::Table { name, bytes: bytes as usize, source };
        let fd = keyed(RING, 0, name, 0, bytes, 0).map_err(failed)?;
        let own = fd.try_clone().map_err(failed)?;
        let wrong = |error: aya::maps::MapError| failed(io::Error::other(error));
        let data = aya::maps::MapData::from_fd(own).map_err(wrong)?;
        let ring = aya::maps::RingBuf::try_from(aya::maps::Map::RingBuf(data)).map_err(wrong)?;
        self.1.push((name, fd));
        Ok(RingReader(ring))
    }

    /// Names a table of another holder, which keeps its own descriptor of the map.
    pub fn share(&mut self, name: &'static str, of: &Maps) -> io::Result<()> {
        let map = of.0.iter().find(|map| map.name == name);
        let map = map.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name))?;
        self.0.push(Map { name, words: map.words, fd: map.fd.try_clone()? });
        Ok(())
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
            None => map(name).map(|map| Meant::Table(map.fd.as_raw_fd())).or_else(|| {
                let ring = self.1.iter().find(|ring| ring.0 == name);
                ring.map(|ring| Meant::Map(ring.1.as_raw_fd()))
            }),
        }
    }
}

/// Reads a ring buffer that programs fill (`BPF_MAP_TYPE_RINGBUF`). Its descriptor is readable while something is there.
pub struct RingReader(aya::maps::RingBuf<aya::maps::MapData>);

impl RingReader {
    /// Hands the oldest record, if any, to `read`, and takes it out.
    pub fn next<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.0.next().map(|record| read(&record))
    }
}

impl AsFd for RingReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring, which `self` owns.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

/// Shared memory of a map.
///
/// # Invariants
///
/// 1. `base` points at `len` mapped, readable, writable bytes.
/// 2. Only `Drop` unmaps them.
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and `Mapping` gives out no reference.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn of(map: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
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

    /// Where the mapping begins, and its length.
    pub(super) fn memory(&self) -> (NonNull<u8>, usize) {
        (self.base, self.len)
    }

    /// Copies bytes from a place on: what another thread, process or the kernel writes meanwhile may be in parts.
    ///
    /// # Panics
    ///
    /// When the mapping is not so long.
    pub(super) fn read(&self, at: usize, to: &mut [u8]) {
        assert!(at <= self.len && to.len() <= self.len - at, "the mapping ends before");
        // SAFETY: invariant 1, and the assertion: the bytes are there, and `to` is this thread's own memory. The writer
        // is the kernel, outside of what the language knows of.
        unsafe {
            self.base
                .add(at)
                .copy_to_nonoverlapping(NonNull::new_unchecked(to.as_mut_ptr()), to.len())
        };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: invariant 1; every holder of a pointer into the mapping also holds the mapping's owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Makes the map of a table.
pub(super) fn table(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    if bytes >= BYTES_END {
        let why = format!("a table has less than {} MiB", BYTES_END >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    array(name, bytes as u32, MAPPABLE)
}

/// Makes an array with one element of `bytes` bytes.
pub fn array(name: &str, bytes: u32, flags: u32) -> io::Result<OwnedFd> {
    map(ARRAY, name, bytes, 1, flags)
}

/// Makes a map of a kind whose keys are numbers of 32 bits, with `bytes` bytes in each of its places.
pub fn map(kind: u32, name: &str, bytes: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    keyed(kind, 4, name, bytes, entries, flags)
}

fn keyed(
    kind: u32,
    key_len: u32,
    name: &str,
    bytes: u32,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut padded = [0; 16];
    padded.iter_mut().zip(name.bytes().take(15)).for_each(|(place, byte)| *place = byte);
    let mut attributes =
        Create { kind, key_len, value_len: bytes, entries, flags, inner: 0, node: 0, name: padded };
    // SAFETY: BPF_MAP_CREATE reads `union bpf_attr` as `Create` lays it out, and returns a descriptor; no field is
    // a pointer.
    unsafe { call::open(MAP_CREATE, &mut attributes) }
}

/// Makes an array with one place for a map like `inner`.
pub fn array_of_maps(name: &str, inner: &OwnedFd) -> io::Result<OwnedFd> {
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

/// A map of devices that programs redirect frames to (`BPF_MAP_TYPE_DEVMAP`), by ports. The kernel takes a device out
/// that goes.
pub struct Devices(OwnedFd);

impl Devices {
    /// An empty map with a place for each of `ports` ports.
    pub fn new(ports: u32) -> io::Result<Devices> {
        map(DEVMAP, "devices", 4, ports, 0).map(Devices)
    }

    /// The map's descriptor.
    pub fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// From now on frames for a port leave by the interface of this number in the calling thread's network
    /// namespace; or are passed on, with none.
    pub fn set(&self, port: u16, interface: Option<u32>) -> io::Result<()> {
        set(&self.0, u32::from(port), interface)
    }
}

/// Puts a number, or a descriptor, into a map of such, or takes it out.
pub fn set(map: &OwnedFd, key: u32, value: Option<u32>) -> io::Result<()> {
    let mut attributes = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const key) as u64,
        value: value.as_ref().map_or(0, |value| std::ptr::from_ref(value) as u64),
        flags: 0,
    };
    let command = if value.is_some() { UPDATE } else { DELETE };
    // SAFETY: BPF_MAP_UPDATE_ELEM and BPF_MAP_DELETE_ELEM read `union bpf_attr` as `Element` lays it out, a key
    // of 4 bytes, and the former a value of 4 bytes; both outlive the call.
    unsafe { call::call(command, &mut attributes) }.map(drop)
}

/// `union bpf_attr` for BPF_MAP_UPDATE_ELEM and BPF_MAP_DELETE_ELEM.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// One more than the highest number that a CPU can have here.
pub fn cpus() -> io::Result<usize> {
    let possible = cpus_of("/sys/devices/system/cpu/possible")?;
    Ok(possible.last().map_or(0, |last| last + 1))
}

/// The numbers of the CPUs that the machine has: of those that can be, the ones that are plugged in.
pub(super) fn present() -> io::Result<Vec<usize>> {
    cpus_of("/sys/devices/system/cpu/present")
}

fn cpus_of(path: &str) -> io::Result<Vec<usize>> {
    let told = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {what}"));
    let text = fs::read_to_string(path).map_err(|error| told(error.to_string()))?;
    listed(&text).ok_or_else(|| told(format!("not a list of CPUs: {text:?}")))
}

/// The numbers of a list such as `0-3,8`.
fn listed(list: &str) -> Option<Vec<usize>> {
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    Some(ranges.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Where a program's reach ends: the verifier follows no index further (`BPF_MAX_VAR_OFF`).
const BYTES_END: usize = 1 << 29;

// linux/bpf.h.
const MAP_CREATE: libc::c_int = 0;
const ARRAY: u32 = 2;
const ARRAY_OF_MAPS: u32 = 12;
const MAPPABLE: u32 = 1 << 10;
const UPDATE: libc::c_int = 2;
const DELETE: libc::c_int = 3;
const DEVMAP: u32 = 14;
const RING: u32 = 27;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_is_read() {
        let all = |cpus: &[usize]| Some(cpus.to_vec());
        for (list, cpus) in
            [("0\n", all(&[0])), ("0-1\n", all(&[0, 1])), ("0-2,8\n", all(&[0, 1, 2, 8]))]
        {
            assert_eq!(listed(list), cpus, "{list:?}");
        }
        assert_eq!((listed(""), listed("none\n"), listed("0-\n")), (None, None, None));
        let present = present().expect("there is a CPU");
        assert!(present.last().copied() < Some(cpus().expect("there is a CPU")));
    }
}
