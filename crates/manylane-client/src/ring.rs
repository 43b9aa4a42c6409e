//! The reading end: blocks of the ring, and being woken for them.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use manylane_io::packet_ring::{Block, Reader, Readers, open_shared};
use manylane_io::poll::poll;
use rustix::event::{Timespec, epoll};

use super::{Connection, Options, RemoteError};
use manylane_io::packet_ring::Statistics;

/// An open packet socket of a daemon in another process. Dropping it closes it.
///
/// Its [`Connection`] requests changes; received packets are in memory that both processes share.
pub struct RemoteSocket {
    pub(super) connection: Connection,
    pub(super) readers: Readers,
    bell: OwnedFd,
    /// What the lanes had counted when `statistics` was last called.
    counted: Statistics,
}

impl RemoteSocket {
    /// Opens a socket of the daemon that listens at `path` (see [`path_beside`](super::path_beside)).
    pub fn open(path: &Path, options: &Options) -> Result<RemoteSocket, RemoteError> {
        let (connection, [ring, bell]) = Connection::open(path, options)?;
        let readers = open_shared(ring).map_err(RemoteError::Ring)?;
        // The epoll wakes by the daemon's descriptor, and by the connection's end, which only this process can add.
        let end = epoll::EventFlags::RDHUP;
        epoll::add(&bell, connection.as_fd(), epoll::EventData::new_u64(HUNG_UP), end)
            .map_err(|source| RemoteError::System { step: "epoll_ctl", source: source.into() })?;
        Ok(RemoteSocket { connection, readers, bell, counted: Statistics::default() })
    }

    /// The oldest block that waits, of packets received under the binding in force. Dropping it gives it back.
    pub fn receive(&mut self) -> Option<Block<'_>> {
        let current = self.connection.generation();
        let mut oldest: Option<(usize, u64)> = None;
        for (at, reader) in self.readers.iter_mut().enumerate() {
            while let Some((generation, first_ns)) = reader.peek() {
                if generation == current {
                    if oldest.is_none_or(|(_, before)| first_ns < before) {
                        oldest = Some((at, first_ns));
                    }
                    break;
                }
                drop(reader.borrow());
                self.connection.stale += 1;
            }
        }
        oldest.and_then(|(at, _)| self.readers[at].borrow())
    }

    /// Waits until a block can be received, for `timeout` at most; whether one can. An error when no block
    /// waits and none will arrive.
    ///
    /// What workers have not passed on comes when its block is full, or as old as the ring's `retire_ns`.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, RemoteError> {
        // The one failure is ENOMEM: then it looks again at once.
        self.sleep(|bell| poll(&[bell], timeout).is_ok());
        let is_waiting = self.readers.iter().any(Reader::is_waiting);
        if !is_waiting && self.was_hung_up() { Err(self.connection.gone()) } else { Ok(is_waiting) }
    }

    /// Sleeps by `wait` unless a block is there: for readers that wait for other descriptors, too. `wait` is to end when
    /// the descriptor it is given becomes readable. `None` when it did not sleep.
    pub fn sleep<R>(&mut self, wait: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let slept = self.readers.sleep(|| wait(self.bell.as_fd()));
        self.was_hung_up();
        slept
    }

    /// What it was given since this was last asked. No call: the counts are in the ring.
    pub fn statistics(&mut self) -> Statistics {
        let now = Statistics::of(&self.readers);
        let before = std::mem::replace(&mut self.counted, now);
        Statistics {
            packets: now.packets.wrapping_sub(before.packets),
            lost: now.lost.wrapping_sub(before.lost),
        }
    }

    /// Forgets all wakes so far; whether the daemon has hung up, which is never forgotten.
    fn was_hung_up(&self) -> bool {
        let mut events = Vec::with_capacity(2);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found =
            epoll::wait(&self.bell, rustix::buffer::spare_capacity(&mut events), Some(&now));
        found.is_ok() && events.iter().any(|event| event.data.u64() == HUNG_UP)
    }
}

/// What our own descriptor is called among those that wake us; the daemon's has another name.
const HUNG_UP: u64 = u64::MAX;

impl AsFd for RemoteSocket {
    /// Readable when the reader is woken, which happens only to a reader that [sleeps](RemoteSocket::sleep).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Deref for RemoteSocket {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for RemoteSocket {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
