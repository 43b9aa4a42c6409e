//! Rings of sockets: made, paid for out of one bound, and used again.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use manylane_io::eventfd::EventFd;
use manylane_io::packet_ring::{Lane, Readers, RingConfig, create_shared, lanes};
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_worker::hooks::{Bell, Charge, Lanes};

use super::{Control, Sockets};
use crate::config::SocketLimits;
use crate::socket::{Owner, RING, SocketError};

/// What sockets in process are read by.
pub(in crate::socket) struct Ring {
    pub lanes: Arc<Lanes>,
    pub readers: Readers,
}

/// A ring without a socket: its memfd, and its lanes.
pub(in crate::socket) type Unowned = (OwnedFd, Vec<Arc<Lane>>);

impl Sockets {
    /// A ring of a socket in another process, and its memfd: this one, if it was made ahead. A thread that sleeps by `bell`
    /// wakes the reader.
    pub(in crate::socket) fn make_shared(
        &self,
        owner: Owner,
        config: &RingConfig,
        bell: &Arc<Doorbell<EventFd>>,
        ahead: Option<Unowned>,
    ) -> Result<(Arc<Lanes>, OwnedFd), SocketError> {
        let charge = self.charge(owner, self.ring_bytes(config)?)?;
        let (memfd, of) = match ahead {
            Some(ring) => ring,
            None => self.make_unowned(config)?,
        };
        let (bell, stale) = (Bell::Thread(bell.clone()), SharedCount::default());
        Ok((Arc::new(Lanes { of: of.into(), bell, charge, stale }), memfd))
    }

    /// A ring for another process that no socket has yet: its bytes do not count.
    pub(in crate::socket) fn make_unowned(
        &self,
        config: &RingConfig,
    ) -> Result<Unowned, SocketError> {
        create_shared(config, self.0.workers as u32).map_err(SocketError::Ring)
    }

    /// Lanes of `config`, one for each worker, whose reading end is in this process.
    pub(in crate::socket) fn make_ring(&self, config: RingConfig) -> Result<Ring, SocketError> {
        let workers = self.0.workers as u32;
        let charge =
            self.charge(Owner::Daemon, config.bytes(workers).map_err(SocketError::Ring)?)?;
        let (of, readers) = lanes(&config, workers).map_err(SocketError::Ring)?;
        let bell = Bell::Reader(EventFd::open().map_err(SocketError::Wake)?);
        Ok(Ring {
            lanes: Arc::new(Lanes { of: of.into(), bell, charge, stale: SharedCount::default() }),
            readers,
        })
    }

    /// What the ring of a socket takes.
    pub(in crate::socket) fn ring_bytes(&self, config: &RingConfig) -> Result<u64, SocketError> {
        config.bytes(self.0.workers as u32).map_err(SocketError::Ring)
    }

    /// Takes `bytes` from what rings may have, and those of a user, until the charge is dropped.
    pub(in crate::socket) fn charge(
        &self,
        owner: Owner,
        bytes: u64,
    ) -> Result<Charge, SocketError> {
        let SocketLimits { memory_max: max, per_user_memory_max: own_max, .. } = self.0.limits;
        let own = owner.bounded_user().map(|user| (user, self.lock().memory_of(user)));
        let charge = Charge::new(bytes, &self.0.memory, own.as_ref().map(|(_, own)| own));
        if let Some((user, own)) = own
            && own.load() > own_max
        {
            let left = own_max.saturating_sub(own.load() - bytes);
            return Err(SocketError::UserMemory { user, wanted: bytes, left });
        }
        if self.0.memory.load() > max {
            // Spare rings give way.
            let spare = std::mem::take(&mut self.lock().spare);
            drop(spare);
        }
        let after = self.0.memory.load();
        match after <= max {
            true => Ok(charge),
            false => Err(SocketError::Memory {
                wanted: bytes,
                left: max.saturating_sub(after.saturating_sub(bytes)),
            }),
        }
    }

    /// A ring as every socket has at first, and that it is to be put back.
    pub(super) fn ring(&self) -> Result<(Ring, bool), SocketError> {
        let mut control = self.lock();
        control.hooks.reclaim();
        // The one that was put back first: workers have let go of it, most likely.
        let (spare, others) = (control.spare.pop_front(), control.spare.len());
        drop(control);
        let Some(mut ring) = spare else { return Ok((self.make_ring(RING)?, true)) };
        let lanes = Arc::get_mut(&mut ring.lanes);
        if lanes.is_some_and(|lanes| ring.readers.recycle(&mut lanes.of, RING.retire_ns)) {
            return Ok((ring, true));
        }
        if others < SPARE
            && let Ok(new) = self.make_ring(RING)
        {
            self.lock().spare.push_front(ring);
            return Ok((new, true));
        }
        // The ring can be used at once, too: what a worker still writes carries a generation that is no other's. Of
        // what it counts, a block may be the former socket's.
        for reader in &mut *ring.readers {
            for _ in 0..RING.blocks {
                drop(reader.borrow());
            }
        }
        Ok((ring, true))
    }

    pub(in crate::socket) fn put_back(&self, ring: Ring, spare: bool) {
        if spare {
            self.lock().spare.push_back(ring);
        }
    }
}

impl Control {
    /// The bytes of a user's rings. Users without a ring are forgotten.
    fn memory_of(&mut self, user: u32) -> Arc<SharedCount> {
        self.users.retain(|_, bytes| Arc::strong_count(bytes) > 1);
        self.users.entry(user).or_default().clone()
    }
}

/// Rings that are there while workers let go of one.
const SPARE: usize = 8;
