//! Rings that programs copy packets into, one for each CPU (`BPF_MAP_TYPE_PERF_EVENT_ARRAY`, perf_event_open(2)).
//!
//! [`Rings`] are those of all CPUs; a [`RingReader`] reads one of them, in this process or in another one that got the
//! ring's descriptor. The kernel never waits for a reader: what finds no room is counted and lost.

#![allow(
    clippy::disallowed_types,
    reason = "the kernel writes these words, too: no memory of loom's"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use manylane_sync::primitive::foreign::{AtomicU64, Ordering};

use super::maps::{self, Mapping};
use crate::syscall::check;

/// The rings of all CPUs, and the map by which programs find them.
pub struct Rings {
    map: OwnedFd,
    rings: Vec<Ring>,
    bytes: usize,
}

/// A CPU's ring. Its memory exists while a mapping of it does: here is one, of a process that may lock memory, so that
/// a reader's own takes no right.
struct Ring {
    cpu: u32,
    fd: OwnedFd,
    _memory: Mapping,
}

impl Rings {
    /// Makes a ring of `bytes` bytes, a power of two of at least a page, for each CPU that is there.
    pub fn new(cpus: usize, bytes: usize) -> io::Result<Rings> {
        let map = maps::map(PERF_EVENT_ARRAY, "packets", 4, cpus as u32, 0)?;
        let mut rings = Vec::new();
        for cpu in 0..cpus as u32 {
            let fd = match event(cpu, bytes as u32 / 4) {
                Ok(fd) => fd,
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(error) => return Err(error),
            };
            let _memory = Mapping::of(fd.as_fd(), bytes + page())?;
            maps::set(&map, cpu, Some(fd.as_raw_fd() as u32))?;
            rings.push(Ring { cpu, fd, _memory });
        }
        Ok(Rings { map, rings, bytes })
    }

    /// The map's descriptor.
    pub fn map(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// The descriptor of each ring, for a reader.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(|ring| ring.fd.as_fd())
    }

    /// The CPU of each ring, in the same order.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.rings.iter().map(|ring| ring.cpu)
    }

    /// Bytes of each.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn event(cpu: u32, wakeup: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: BPF_OUTPUT,
        sample_period: 1,
        sample_type: RAW,
        // A reader looks from time to time, and is woken before the ring is full.
        flags: WATERMARK,
        wakeup,
        ..Attributes::default()
    };
    // SAFETY: perf_event_open(2) reads `struct perf_event_attr` of the size in it, which outlives the call; the other
    // arguments are numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            -1,
            cpu as libc::c_int,
            -1,
            FD_CLOEXEC,
        )
    };
    let fd = check(fd as libc::c_int)?;
    // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a ring has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'r> {
    /// What a program has written, and zeroes behind it.
    Record(&'r [u8]),
    /// This many records were lost before.
    Lost(u64),
}

/// Reads a ring. A ring has one reader.
pub struct RingReader {
    mapping: Mapping,
    fd: OwnedFd,
    bytes: usize,
    tail: u64,
    /// A record that goes beyond the end of the memory.
    whole: Vec<u8>,
}

impl RingReader {
    /// Reads the ring of this descriptor, which has `bytes` bytes.
    pub fn new(ring: OwnedFd, bytes: usize) -> io::Result<RingReader> {
        let sound = bytes.is_power_of_two() && bytes >= page();
        if !sound {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = Mapping::of(ring.as_fd(), bytes + page())?;
        let mut reader = RingReader { mapping, fd: ring, bytes, tail: 0, whole: Vec::new() };
        reader.tail = reader.word(TAIL_AT).load(Ordering::Relaxed);
        Ok(reader)
    }

    /// The oldest entry, if any; it stays until [`take`](Self::take).
    pub fn peek(&mut self) -> Option<Entry<'_>> {
        loop {
            let head = self.word(HEAD_AT).load(Ordering::Acquire);
            if head == self.tail {
                return None;
            }
            let (kind, len) = self.header();
            if len < HEADER {
                // No record is so short: the memory is not what the kernel wrote. Nothing more is read.
                self.tail = head;
                return None;
            }
            match kind {
                RECORD_SAMPLE => {
                    let (size, raw) = self.body(len).split_first_chunk().unwrap_or((&[0; 4], &[]));
                    let size = (u32::from_ne_bytes(*size) as usize).min(raw.len());
                    return Some(Entry::Record(&raw[..size]));
                }
                RECORD_LOST => {
                    let body = self.body(len);
                    let lost = body.get(8..16).and_then(|word| word.first_chunk());
                    return Some(Entry::Lost(lost.map_or(0, |word| u64::from_ne_bytes(*word))));
                }
                _ => self.take(),
            }
        }
    }

    /// Takes the oldest entry out.
    pub fn take(&mut self) {
        if self.word(HEAD_AT).load(Ordering::Acquire) != self.tail {
            let (_, len) = self.header();
            self.tail = self.tail.wrapping_add(len as u64);
            self.word(TAIL_AT).store(self.tail, Ordering::Release);
        }
    }

    fn header(&self) -> (u32, usize) {
        let mut header = [0; HEADER];
        self.copy(self.tail, &mut header);
        let [a, b, c, d, _, _, low, high] = header;
        (u32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([low, high]).into())
    }

    /// The body of the entry of `len` bytes at the tail.
    fn body(&mut self, len: usize) -> &[u8] {
        let mut whole = std::mem::take(&mut self.whole);
        whole.resize(len - HEADER, 0);
        self.copy(self.tail.wrapping_add(HEADER as u64), &mut whole);
        self.whole = whole;
        &self.whole
    }

    /// Copies bytes from a place of the ring on, around its end.
    fn copy(&self, from: u64, to: &mut [u8]) {
        let at = from as usize & (self.bytes - 1);
        let first = to.len().min(self.bytes - at);
        let (front, back) = to.split_at_mut(first);
        let back_len = back.len().min(self.bytes);
        self.mapping.read(page() + at, front);
        self.mapping.read(page(), &mut back[..back_len]);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        let (base, len) = self.mapping.memory();
        assert!(at.is_multiple_of(8) && at + 8 <= len, "the mapping has no word at {at}");
        // SAFETY: `base` points at `len` mapped bytes (`Mapping` invariant 1), which begin at a page: by the assertion 8 of
        // them lie at `at`, aligned. The reference lives no longer than the mapping. All accesses to the word are atomic.
        unsafe { base.add(at).cast::<AtomicU64>().as_ref() }
    }
}

impl AsFd for RingReader {
    /// Readable before the ring is full.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn page() -> usize {
    // SAFETY: sysconf(3) takes a number and returns one.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// `struct perf_event_attr`, up to what the kernel has had since it has BPF (`PERF_ATTR_SIZE_VER5`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    rest: [u64; 7],
}
const _: () = assert!(size_of::<Attributes>() == 112);

const PERF_EVENT_ARRAY: u32 = 4;

// linux/perf_event.h.
const SOFTWARE: u32 = 1;
const BPF_OUTPUT: u64 = 10;
const RAW: u64 = 1 << 10;
const WATERMARK: u64 = 1 << 14;
const FD_CLOEXEC: libc::c_ulong = 1 << 3;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const HEADER: usize = 8;
/// Of `struct perf_event_mmap_page`: `data_head`, `data_tail`.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
