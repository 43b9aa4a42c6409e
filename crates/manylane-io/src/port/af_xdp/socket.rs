//! An AF_XDP socket: its system calls, without the rings' contents. See the kernel's
//! Documentation/networking/af_xdp.rst.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::ring::Kind;
use crate::syscall::{check, check_length};

/// A socket. Receiver and transmitter of one queue share it.
#[derive(Clone)]
pub(super) struct Socket(Arc<OwnedFd>);

/// How packets move between the device and the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The device reads and writes the region itself, each packet in one frame.
    ZeroCopy,
    /// The kernel copies, a large packet into and out of several frames (Linux 6.6).
    CopyChains,
    /// The kernel copies, each packet in one frame.
    Copy,
}

impl Transfer {
    fn flags(self) -> u16 {
        match self {
            Transfer::ZeroCopy => libc::XDP_ZEROCOPY,
            Transfer::CopyChains => libc::XDP_COPY | libc::XDP_USE_SG,
            Transfer::Copy => libc::XDP_COPY,
        }
    }
}

impl Socket {
    pub fn open() -> io::Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes no pointer.
        let fd = check(unsafe { libc::socket(libc::AF_XDP, kind, 0) })?;
        // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
        Ok(Socket(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Registers `length` bytes as the memory of this socket, and of those that will share it.
    ///
    /// The kernel pins the pages, so its writes never land elsewhere, even if the
    /// mapping changes.
    pub fn register(&self, base: NonNull<u8>, length: usize, frame_size: u32) -> io::Result<()> {
        self.set(
            libc::XDP_UMEM_REG,
            &libc::xdp_umem_reg {
                addr: base.as_ptr() as u64,
                len: length as u64,
                chunk_size: frame_size,
                headroom: 0, // Beside the 256 bytes that XDP always reserves.
                flags: 0,
                tx_metadata_len: 0,
            },
        )
    }

    /// Creates one of the rings, with a power of two of entries.
    pub fn make_ring(&self, kind: Kind, entries: u32) -> io::Result<()> {
        self.set(kind.option(), &entries)
    }

    /// The offsets of the rings' parts in their mappings.
    pub fn ring_offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        // SAFETY: XDP_MMAP_OFFSETS fills a `struct xdp_mmap_offsets`.
        unsafe { self.get_option(libc::XDP_MMAP_OFFSETS) }
    }

    /// Binds to a queue with the region registered by `register`.
    pub fn bind(&self, index: u32, queue: u32, transfer: Transfer) -> io::Result<()> {
        self.bind_with(index, queue, transfer.flags() | libc::XDP_USE_NEED_WAKEUP, 0)
    }

    /// Binds to a queue with the region of `other`, a bound socket; its transfer and wake-up flags are those of
    /// `other`.
    pub fn bind_shared(&self, index: u32, queue: u32, other: &Socket) -> io::Result<()> {
        self.bind_with(index, queue, libc::XDP_SHARED_UMEM, other.0.as_raw_fd() as u32)
    }

    /// Retries while the queue is busy: the kernel frees the queue of a closed socket later, from a work
    /// queue, and offers no event to wait for.
    fn bind_with(&self, index: u32, queue: u32, flags: u16, shared: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shared,
        };
        let end = Instant::now() + BUSY_MAX;
        loop {
            // SAFETY: bind(2) reads the address, of the given length.
            let bound = check(unsafe {
                libc::bind(
                    self.0.as_raw_fd(),
                    (&raw const address).cast(),
                    size_of_val(&address) as libc::socklen_t,
                )
            });
            match bound {
                Err(error) if is_busy(&error) && Instant::now() < end => {
                    thread::sleep(BUSY_PAUSE);
                }
                outcome => return outcome.map(|_| ()),
            }
        }
    }

    pub fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        // SAFETY: XDP_STATISTICS fills a `struct xdp_statistics`.
        unsafe { self.get_option(libc::XDP_STATISTICS) }
    }

    /// Makes the kernel process the transmit ring.
    pub fn kick_transmit(&self) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: sendto(2) with neither bytes nor an address reads nothing.
        let sent = unsafe {
            libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        check_length(sent).map(|_| ())
    }

    /// Makes the driver process the fill ring.
    pub fn kick_fill(&self) {
        let (fd, none) = (self.0.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: recvfrom(2) with neither bytes nor an address writes nothing. Its result does not
        // matter: a driver that still needs a wake-up keeps the ring's flag set, which we check again.
        let _ = unsafe {
            libc::recvfrom(fd, none, 0, libc::MSG_DONTWAIT, none.cast(), std::ptr::null_mut())
        };
    }

    /// A handle that does not keep the socket open.
    pub fn downgrade(&self) -> Weak<OwnedFd> {
        Arc::downgrade(&self.0)
    }

    /// The socket of a handle, if it is still open.
    pub fn upgrade(weak: &Weak<OwnedFd>) -> Option<Socket> {
        weak.upgrade().map(Socket)
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: setsockopt(2) reads the given number of bytes of `value`.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_XDP,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// # Safety
    ///
    /// `T` is the plain structure that belongs to `option`; all zeroes is one.
    unsafe fn get_option<T>(&self, option: libc::c_int) -> io::Result<T> {
        // SAFETY: the caller's debt.
        let mut value: T = unsafe { mem::zeroed() };
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: getsockopt(2) writes at most `length` bytes to `value`, which any bits suit.
        check(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_XDP,
                option,
                (&raw mut value).cast(),
                &mut length,
            )
        })?;
        Ok(value)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a queue still belongs to another socket.
pub(super) fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// How long a queue may stay busy after its socket was closed; 30 ms were observed.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(2);
