//! Rings in a memfd, which another process reads.
//!
//! The memfd can neither shrink nor grow (`F_SEAL_SHRINK`, `F_SEAL_GROW`, and `F_SEAL_SEAL` so that it
//! stays so): a reader that made it shorter would end the daemon by SIGBUS. See memfd_create(2) and
//! `F_ADD_SEALS` in fcntl(2).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use manylane_frame::vocabulary::{DropReason, Point};

use super::lane::Lane;
use super::layout::Layout;
use super::memory::Memory;
use super::reader::Readers;
use super::record::HEADER;
use super::{RingConfig, RingError};
use crate::syscall::{check, check_length, retry};

/// The start of the memory.
#[derive(Clone, Copy)]
#[repr(C)]
struct FileHeader {
    magic: u64,
    version: u64,
    block_size: u32,
    blocks: u32,
    lanes: u32,
    spare: u32,
}

const MAGIC: u64 = u64::from_ne_bytes(*b"manylane");

/// The version that this program reads: of the layout, and a hash of the names that records encode as numbers.
const VERSION: u64 = {
    let mut mark = LAYOUT ^ ((HEADER as u64) << 8);
    let mut reason = 0;
    while reason < DropReason::COUNT {
        mark = fold(mark, DropReason::ALL[reason].name());
        reason += 1;
    }
    let mut point = 0;
    while point < Point::ALL.len() {
        mark = fold(mark, Point::ALL[point].name());
        point += 1;
    }
    mark
};

/// Incremented with every change of the layout.
const LAYOUT: u64 = 1;

/// One step of FNV-1a for each byte, and one between names.
const fn fold(mark: u64, name: &str) -> u64 {
    let name = name.as_bytes();
    let mut mark = (mark ^ 0xff).wrapping_mul(0x0100_0000_01b3);
    let mut at = 0;
    while at < name.len() {
        mark = (mark ^ name[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    mark
}

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
const NAME: &CStr = c"manylane-packet-ring";

/// Creates a ring of `count` lanes, and the memfd that its readers are opened from.
pub fn create_shared(
    config: &RingConfig,
    count: u32,
) -> Result<(OwnedFd, Vec<Arc<Lane>>), RingError> {
    let layout = Layout::of(config, count)?;
    let refused = |step| move |source| RingError::Refused { step, source };
    let memfd = memfd().map_err(refused("memfd_create"))?;
    let length = layout.len() as libc::off_t;
    // SAFETY: ftruncate(2) takes no pointer.
    check(unsafe { libc::ftruncate(memfd.as_raw_fd(), length) }).map_err(refused("ftruncate"))?;
    // SAFETY: F_ADD_SEALS takes a number.
    check(unsafe { libc::fcntl(memfd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })
        .map_err(refused("fcntl"))?;
    let memory = Memory::shared(layout, memfd.as_fd())?.populate()?;
    let header = FileHeader {
        magic: MAGIC,
        version: VERSION,
        block_size: config.block_size,
        blocks: config.blocks,
        lanes: count,
        spare: 0,
    };
    // SAFETY: the mapping is longer than a header and aligned to a page, and no other pointer into it exists yet.
    unsafe { memory.base().cast().write(header) };
    Ok((memfd, Lane::all(&Arc::new(memory), config.retire_ns)))
}

/// Opens the readers of a ring that another process created by [`create_shared`]. Once for each memfd: two sets of
/// readers would take each other's blocks.
pub fn open_shared(memfd: OwnedFd) -> Result<Readers, RingError> {
    // SAFETY: F_GET_SEALS takes nothing.
    let seals = check(unsafe { libc::fcntl(memfd.as_raw_fd(), libc::F_GET_SEALS) })
        .map_err(|_| RingError::NotARing("it is not a memfd"))?;
    if seals & SEALS != SEALS {
        return Err(RingError::NotARing("it is not sealed, and could shrink"));
    }
    let header = read_header(memfd.as_fd())?;
    if header.magic != MAGIC {
        return Err(RingError::NotARing("it does not begin as one"));
    }
    if header.version != VERSION {
        return Err(RingError::OtherVersion { theirs: header.version, ours: VERSION });
    }
    let layout = Layout::new(header.block_size, header.blocks, header.lanes)?;
    if length(memfd.as_fd())? != layout.len() as u64 {
        return Err(RingError::NotARing("it is not as long as it says"));
    }
    Memory::shared(layout, memfd.as_fd()).map(|memory| Readers::new(Arc::new(memory)))
}

fn memfd() -> io::Result<OwnedFd> {
    let create = |flags| {
        // SAFETY: memfd_create(2) reads the name, which ends in 0.
        check(unsafe { libc::memfd_create(NAME.as_ptr(), flags) })
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Since Linux 6.3; some systems refuse an executable memfd (`vm.memfd_noexec`).
    let fd = match create(flags | libc::MFD_NOEXEC_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => create(flags),
        outcome => outcome,
    }?;
    // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn read_header(memfd: BorrowedFd<'_>) -> Result<FileHeader, RingError> {
    let mut header =
        FileHeader { magic: 0, version: 0, block_size: 0, blocks: 0, lanes: 0, spare: 0 };
    let read = retry(|| {
        // SAFETY: pread(2) writes at most the bytes of `header`, for which any bits are valid.
        check_length(unsafe {
            let into = ptr::from_mut(&mut header).cast();
            libc::pread(memfd.as_raw_fd(), into, size_of::<FileHeader>(), 0)
        })
    });
    match read {
        Ok(read) if read == size_of::<FileHeader>() => Ok(header),
        Ok(_) => Err(RingError::NotARing("it is too short")),
        Err(source) => Err(RingError::Refused { step: "pread", source }),
    }
}

fn length(memfd: BorrowedFd<'_>) -> Result<u64, RingError> {
    // SAFETY: any bits, zeroes too, are a `struct stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fstat(2) writes a `struct stat`.
    check(unsafe { libc::fstat(memfd.as_raw_fd(), &raw mut stat) })
        .map_err(|source| RingError::Refused { step: "fstat", source })?;
    Ok(stat.st_size as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet_ring::{BLOCK_SIZE_MAX, BLOCKS_MAX, LANES_MAX};
    use std::fs::File;

    const CONFIG: RingConfig = RingConfig { block_size: 4096, blocks: 2, retire_ns: 0 };
    const LENGTH: i64 = 4096 + 2 * 4096;

    /// A reader that could shrink the memfd could end the daemon by SIGBUS.
    #[test]
    fn the_memory_neither_shrinks_nor_grows() {
        let (memfd, lanes) = create_shared(&CONFIG, 1).expect("there is memory");
        for length in [0, LENGTH - 1, LENGTH + 1] {
            // SAFETY: ftruncate(2) takes no pointer.
            let refused = check(unsafe { libc::ftruncate(memfd.as_raw_fd(), length) });
            let error = refused.expect_err("it is sealed").raw_os_error();
            assert_eq!(error, Some(libc::EPERM), "{length}");
        }
        // SAFETY: F_ADD_SEALS takes a number.
        let sealed =
            unsafe { libc::fcntl(memfd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
        check(sealed).expect_err("nor is anything else sealed");
        drop(lanes);
        assert!(open_shared(memfd).is_ok(), "it outlives its writers");
    }

    #[test]
    fn what_is_not_a_ring_is_refused_by_what_it_lacks() {
        let ours = FileHeader {
            magic: MAGIC,
            version: VERSION,
            block_size: 4096,
            blocks: 2,
            lanes: 1,
            spare: 0,
        };
        let refused = |header: FileHeader, length, seals| {
            let memfd = forge(header, length, seals);
            open_shared(memfd).err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(refused(ours, LENGTH, SEALS), "");
        let null = File::open("/dev/null").expect("there is one");
        let error = open_shared(null.into()).err().expect("it is none");
        assert!(error.to_string().contains("it is not a memfd"), "{error}");
        for seals in [0, SEALS & !libc::F_SEAL_SHRINK, SEALS & !libc::F_SEAL_SEAL] {
            assert!(refused(ours, LENGTH, seals).contains("could shrink"));
        }
        for length in [LENGTH - 1, LENGTH + 4096, 32] {
            assert!(refused(ours, length, SEALS).contains("not as long as it says"), "{length}");
        }
        assert!(refused(ours, 31, SEALS).contains("too short"));
        let other = FileHeader { magic: MAGIC + 1, ..ours };
        assert!(refused(other, LENGTH, SEALS).contains("does not begin"));
        let other = FileHeader { version: VERSION ^ 1, ..ours };
        assert!(refused(other, LENGTH, SEALS).contains("use the program that came with"));
        let other = FileHeader { block_size: 4095, ..ours };
        assert!(refused(other, LENGTH, SEALS).contains("block size of 4095 bytes"));
        for blocks in [0, 1, BLOCKS_MAX + 1, u32::MAX] {
            let other = FileHeader { blocks, ..ours };
            assert!(refused(other, LENGTH, SEALS).contains("blocks: take 2 to 1024"));
        }
        for lanes in [0, LANES_MAX + 1, u32::MAX] {
            let other = FileHeader { lanes, ..ours };
            assert!(refused(other, LENGTH, SEALS).contains("lanes: take 1 to 1024"));
        }
    }

    #[test]
    fn sizes_that_may_not_be_are_refused() {
        for block_size in [0, 2048, 4097, BLOCK_SIZE_MAX * 2] {
            let error = create_shared(&RingConfig { block_size, ..CONFIG }, 1).err();
            assert!(matches!(error, Some(RingError::BlockSize(size)) if size == block_size));
        }
        assert!(matches!(create_shared(&CONFIG, 0), Err(RingError::Lanes(0))));
        let largest = RingConfig { block_size: BLOCK_SIZE_MAX, blocks: BLOCKS_MAX, retire_ns: 0 };
        assert_eq!(largest.bytes(LANES_MAX).ok(), Some((1 << 42) + 132 * 1024));
    }

    fn forge(header: FileHeader, length: i64, seals: libc::c_int) -> OwnedFd {
        let memfd = memfd().expect("memfds are to be had");
        // SAFETY: pwrite(2) reads the header.
        let written = unsafe {
            let bytes = ptr::from_ref(&header).cast();
            libc::pwrite(memfd.as_raw_fd(), bytes, size_of::<FileHeader>(), 0)
        };
        assert_eq!(check_length(written).ok(), Some(size_of::<FileHeader>()));
        // SAFETY: ftruncate(2) takes no pointer.
        check(unsafe { libc::ftruncate(memfd.as_raw_fd(), length) }).expect("it is not sealed");
        // SAFETY: F_ADD_SEALS takes a number.
        check(unsafe { libc::fcntl(memfd.as_raw_fd(), libc::F_ADD_SEALS, seals) })
            .expect("it can be sealed");
        memfd
    }
}
