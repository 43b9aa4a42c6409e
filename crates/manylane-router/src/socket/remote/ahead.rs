//! What the next socket needs, made before a process opens it: a ring of the size that was opened last, and what wakes its
//! reader.
//!
//! The serving thread makes it when no process has said anything for a while, so that no process waits for it, and gives it
//! away once: no process receives memory, or a descriptor, that another process had.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::Duration;

use manylane_io::eventfd::EventFd;
use manylane_io::packet_ring::RingConfig;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::socket::sockets::Unowned;
use crate::socket::{SocketError, Sockets};

/// At most one ring, of the size of those that are made at once.
#[derive(Default)]
pub(super) struct Ahead {
    made: Cell<Option<(RingConfig, Unowned, Alarm)>>,
    /// Like which ring another is to be made.
    wanted: Cell<Option<RingConfig>>,
}

impl Ahead {
    /// What was made, if it is so. Another is to be made.
    pub fn take(&self, config: RingConfig) -> Option<(Unowned, Alarm)> {
        self.wanted.set(Some(config));
        let (made, ring, alarm) = self.made.take()?;
        (made == config).then_some((ring, alarm))
    }

    /// Whether something is to be made when it is quiet.
    pub fn is_wanting(&self) -> bool {
        self.wanted.get().is_some()
    }

    /// Makes it. Where the system refuses, the next socket finds out by itself.
    pub fn make(&self, sockets: &Sockets) {
        let Some(config) = self.wanted.take() else { return };
        if let (Ok(ring), Ok(alarm)) = (sockets.make_unowned(&config), Alarm::new()) {
            self.made.set(Some((config, ring, alarm)));
        }
    }
}

/// How long no process says anything before something is made.
pub(super) const QUIET: Duration = Duration::from_millis(10);

/// What wakes a reader in another process.
pub(super) struct Alarm {
    /// Ours alone: the reader sleeps on it through `bell`.
    pub event: EventFd,
    /// The reader's.
    pub bell: OwnedFd,
}

/// Why none was made.
pub(super) enum NoAlarm {
    Event(SocketError),
    Bell(Errno),
}

impl Alarm {
    pub fn new() -> Result<Alarm, NoAlarm> {
        let event = EventFd::open().map_err(|source| NoAlarm::Event(SocketError::Wake(source)))?;
        let bell = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(NoAlarm::Bell)?;
        // Each wake is an edge: no reader has to empty it.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&bell, &event, epoll::EventData::new_u64(0), edges).map_err(NoAlarm::Bell)?;
        Ok(Alarm { event, bell })
    }
}
