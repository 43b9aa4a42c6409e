//! The sockets that are open, for the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use manylane_frame::vocabulary::PortId;

use super::endpoint::Wishes;
use super::{Fanout, Points, SocketError, SocketLimits};
use manylane_client::message::Counts;
use manylane_worker::hooks::Lanes;

/// The owner of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This process.
    Daemon,
    /// Another one: its user and number, when it connected.
    Process {
        /// The user.
        uid: u32,
        /// The process.
        pid: i32,
    },
}

impl Owner {
    /// The user whose sockets have bounds of their own: another process's, but root's.
    pub(crate) fn bounded_user(self) -> Option<u32> {
        match self {
            Owner::Process { uid, .. } if uid != 0 => Some(uid),
            _ => None,
        }
    }
}

/// What is known of an open socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSocket {
    /// Which of those that are open. Of a closed one, another's later.
    pub number: u32,
    /// The owner.
    pub owner: Owner,
    /// The port that it is bound to; all without one.
    pub port: Option<PortId>,
    /// The protocol that it is bound to, in host byte order.
    pub protocol: u16,
    /// Where it sees packets.
    pub points: Points,
    /// Instructions of its filter.
    pub filter_len: usize,
    /// Bytes that it keeps of each packet.
    pub snap: u32,
    /// Its fanout group, and the mode of that.
    pub fanout: Option<(u16, Fanout)>,
    /// Bytes of its ring.
    pub ring_bytes: u64,
    /// Nanoseconds that workers have spent on it.
    pub time_ns: u64,
    /// What it was given.
    pub counts: Counts,
    /// Blocks of former bindings that were not shown; of another process, as it said last.
    pub stale: u64,
}

/// By their numbers.
#[derive(Default)]
pub(super) struct Registry {
    entries: Vec<Option<Entry>>,
    /// Instructions that a packet may run through, of sockets of other processes.
    instructions: u64,
    /// Those of each user that the bounds are for.
    by_user: BTreeMap<u32, u64>,
}

#[derive(Clone)]
pub(super) struct Entry {
    number: u32,
    owner: Owner,
    wishes: Wishes,
    fanout: Option<(u16, Fanout)>,
    lanes: Arc<Lanes>,
    /// What was in the ring's counts before it was this socket's.
    before: (Counts, u64),
}

impl Registry {
    /// A socket is open.
    pub fn add(&mut self, number: u32, owner: Owner, wishes: &Wishes, lanes: &Arc<Lanes>) {
        let (wishes, lanes, before) = (wishes.clone(), lanes.clone(), counted(lanes));
        let at = number as usize;
        if at >= self.entries.len() {
            self.entries.resize_with(at + 1, || None);
        }
        self.count(owner, 0, wishes.instructions());
        self.entries[at] = Some(Entry { number, owner, wishes, fanout: None, lanes, before });
    }

    /// Whether the socket may want this: its filter, with those of all, and of its user, is within the bounds. To want
    /// less is always allowed.
    pub fn may_change(
        &self,
        number: u32,
        wishes: &Wishes,
        limits: &SocketLimits,
    ) -> Result<(), SocketError> {
        let Some(Entry { owner, wishes: before, .. }) = &self.entries[number as usize] else {
            return Ok(());
        };
        let (before, wanted) = (before.instructions(), wishes.instructions());
        if *owner == Owner::Daemon || wanted <= before {
            return Ok(());
        }
        let left = u64::from(limits.filter_max).saturating_sub(self.instructions - before);
        if wanted > left {
            return Err(SocketError::Filters { wanted, left });
        }
        let Some(user) = owner.bounded_user() else { return Ok(()) };
        let own = self.by_user.get(&user).copied().unwrap_or(0);
        let left = u64::from(limits.per_user_filter_max).saturating_sub(own - before);
        if wanted > left { Err(SocketError::UserFilters { user, wanted, left }) } else { Ok(()) }
    }

    /// Instructions that a packet may run through, of sockets of other processes.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    fn count(&mut self, owner: Owner, before: u64, now: u64) {
        if owner == Owner::Daemon {
            return;
        }
        self.instructions = self.instructions - before + now;
        if let Some(user) = owner.bounded_user() {
            let own = self.by_user.entry(user).or_default();
            *own = *own - before + now;
            if *own == 0 {
                self.by_user.remove(&user);
            }
        }
    }

    /// Notes that the socket wants something else.
    pub fn change(&mut self, number: u32, wishes: &Wishes, lanes: &Arc<Lanes>) {
        let Some(entry) = &mut self.entries[number as usize] else { return };
        let (owner, before) = (entry.owner, entry.wishes.instructions());
        entry.wishes = wishes.clone();
        if !Arc::ptr_eq(&entry.lanes, lanes) {
            (entry.lanes, entry.before) = (lanes.clone(), counted(lanes));
        }
        self.count(owner, before, wishes.instructions());
    }

    /// Notes that the socket has joined a group, or left one.
    pub fn set_fanout(&mut self, number: u32, fanout: Option<(u16, Fanout)>) {
        if let Some(entry) = &mut self.entries[number as usize] {
            entry.fanout = fanout;
        }
    }

    /// Notes that the socket is closed.
    pub fn remove(&mut self, number: u32) {
        if let Some(Entry { owner, wishes, .. }) = self.entries[number as usize].take() {
            self.count(owner, wishes.instructions(), 0);
        }
    }

    /// All of them.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.iter().flatten().cloned().collect()
    }
}

impl Entry {
    /// As it is now.
    pub fn look(&self) -> OpenSocket {
        let Entry { number, owner, ref wishes, fanout, ref lanes, before: (before, stale) } = *self;
        let (now, stale_now) = counted(lanes);
        OpenSocket {
            number,
            owner,
            port: wishes.port,
            protocol: wishes.protocol,
            points: wishes.points,
            filter_len: wishes.filter.instructions().len(),
            snap: wishes.snap,
            fanout,
            ring_bytes: lanes.charge.bytes(),
            time_ns: lanes.of.iter().map(|lane| lane.time_ns()).sum(),
            counts: now.since(&before),
            stale: stale_now - stale,
        }
    }
}

/// What a ring's lanes have counted, and the blocks that its reader did not show.
fn counted(lanes: &Lanes) -> (Counts, u64) {
    let (totals, contended, stale) = lanes.counted();
    (Counts::of(totals, contended), stale)
}
