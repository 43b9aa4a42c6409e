//! The worker tier's side of the program in the driver: which AF_XDP socket receives which queue's frames, and until
//! when each worker is known to turn.
//!
//! | memory   | writer                        | readers                                          |
//! |----------|-------------------------------|--------------------------------------------------|
//! | sockets  | [`SocketMap::open`], [`SocketMap::close`] | the program, by port and queue               |
//! | socket_workers    | as of `sockets`               | the program: which worker's word to look at      |
//! | heartbeats    | each worker its own ([`Heartbeat`]) | the program; other workers, which wait for it   |
//!
//! A frame of a queue whose worker has not stamped its word in time is passed on, as is one of a queue without a
//! socket, without a decision by the daemon. Workers' numbers are from 0 here; the program's number 0 is none.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use manylane_sync::words::{Words, WordsMut};

use super::memory::PORTS;
use manylane_io::bpf::BpfError;
use manylane_io::bpf::maps::{self, Maps};

/// A port's flag: received packets are handed to workers.
pub const WORKERS_INGRESS: u32 = 4096;
/// A port's flag: workers have sockets to send by.
pub const WORKERS_EGRESS: u32 = 8192;
/// Receive queues of a port that workers can have; frames of other queues are passed on.
pub const QUEUES: u32 = 64;
/// The largest number of workers.
pub const WORKERS_MAX: usize = WORKERS - 1;

/// The memory that workers and the program share.
pub struct Workers {
    /// For the thread that opens and closes sockets.
    pub socket_workers: SocketMap,
    /// For each worker, its own.
    pub heartbeats: Vec<Heartbeat>,
}

/// The sockets of queues.
pub struct SocketMap {
    sockets: OwnedFd,
    socket_workers: WordsMut<u16>,
}

/// One worker's word: until when it is known to turn.
pub struct Heartbeat {
    own: WordsMut<u64>,
    all: Vec<Words<u64>>,
}

/// The map of sockets, as the program has it.
pub(super) struct Sockets(OwnedFd);

impl Sockets {
    pub fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Makes the memory, and adds it to `maps`, for the program that is to be loaded.
pub(super) fn create(maps: &mut Maps) -> Result<(Sockets, Workers), BpfError> {
    let entries = PORTS as u32 * QUEUES;
    let table = |source| BpfError::Table { name: "sockets", bytes: 8 * entries as usize, source };
    let sockets = maps::map(XSKMAP, "sockets", 4, entries, 0).map_err(table)?;
    let others = sockets.try_clone().map_err(table)?;
    let socket_workers = maps.add("socket_workers", entries as usize)?;
    let mut heartbeats = maps.add_parts("heartbeats", HEARTBEAT_WORDS, WORKERS)?;
    heartbeats.remove(0); // No worker's.
    let all: Vec<_> = heartbeats.iter().map(WordsMut::reader).collect();
    let heartbeats =
        heartbeats.into_iter().map(|own| Heartbeat { own, all: all.clone() }).collect();
    Ok((
        Sockets(sockets),
        Workers { socket_workers: SocketMap { sockets: others, socket_workers }, heartbeats },
    ))
}

impl SocketMap {
    /// From now on frames of a port's queue go to this socket, while that worker turns.
    pub fn open(
        &mut self,
        port: u16,
        queue: u16,
        socket: BorrowedFd<'_>,
        worker: usize,
    ) -> io::Result<()> {
        let place = place(port, queue)?;
        maps::set(&self.sockets, place, Some(socket.as_raw_fd() as u32))?;
        self.socket_workers.publish(place as usize, worker as u16 + 1);
        Ok(())
    }

    /// From now on they are passed on. What runs already may still hand one over.
    pub fn close(&mut self, port: u16, queue: u16) {
        let Ok(place) = place(port, queue) else { return };
        self.socket_workers.publish(place as usize, 0);
        // The kernel removes a closed socket from the map.
        let _ = maps::set(&self.sockets, place, None);
    }
}

impl Heartbeat {
    /// This worker turns, and will again before this tick.
    pub fn set_alive(&mut self, until: u64) {
        self.own.store(ALIVE, until);
    }

    /// Frames may be handed to it until this tick.
    pub fn set_accepting(&mut self, until: u64) {
        self.own.store(ACCEPTING, until);
    }

    /// Whether another worker turned in time, as of this tick.
    pub fn is_alive(&self, worker: usize, tick: u64) -> bool {
        self.all.get(worker).is_some_and(|words| tick < words.load(ALIVE))
    }
}

fn place(port: u16, queue: u16) -> io::Result<u32> {
    if usize::from(port) >= PORTS || u32::from(queue) >= QUEUES {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    Ok(u32::from(port) * QUEUES + u32::from(queue))
}

/// As in `devices.h`.
const WORKERS: usize = 128;
const HEARTBEAT_WORDS: usize = 8;
/// The word that the program looks at, and the one for other workers.
const ACCEPTING: usize = 0;
const ALIVE: usize = 1;

/// linux/bpf.h.
const XSKMAP: u32 = 17;
