//! What a hook matches, and the sockets that receive it.

use std::fmt;
use std::sync::Arc;

use manylane_frame::vocabulary::{Point, Points, PortId};
use manylane_io::eventfd::EventFd;
use manylane_io::packet_ring::{Fanout, Lane, Totals, protocol};
use manylane_net::filter::{Chosen, Program};
use manylane_net::wire::ethernet::{Tags, ether_type_behind_tags};
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::{Doorbell, Wake};
use manylane_sync::hook::Generation;

/// What a socket, or a group of them, is bound to: immutable while workers can find it.
#[derive(Debug)]
pub struct Target {
    /// Where it sees packets.
    pub points: Points,
    /// Its port; every port without one.
    pub port: Option<Arc<PortMatch>>,
    /// Its protocol, in host byte order.
    pub protocol: u16,
    /// How a group shares packets.
    pub fanout: Option<Fanout>,
    /// One, or those of a group.
    pub members: Box<[Member]>,
}

/// A port that is bound to: of a device with its sub-interfaces, or a sub-interface alone.
#[derive(Debug, PartialEq, Eq)]
pub struct PortMatch {
    /// What is bound to.
    pub id: PortId,
    /// The port whose device it has.
    pub device: PortId,
    /// Of a sub-interface.
    pub tags: Option<Tags>,
    /// Sub-interfaces of a device's port.
    pub below: Box<[PortId]>,
}

/// A socket that is given packets.
#[derive(Debug)]
pub struct Member {
    /// A member's of a group; a socket of its own has the hook's.
    pub generation: Option<Generation>,
    /// Packets that this refuses are not given.
    pub filter: Arc<Program>,
    /// Most bytes that are kept of a packet.
    pub snap: u32,
    /// Where packets are copied to.
    pub lanes: Arc<Lanes>,
}

/// A socket's lanes, one for each worker, and how its reader is woken.
pub struct Lanes {
    /// By worker. First: its memory is freed before `charge` is dropped.
    pub of: Box<[Arc<Lane>]>,
    /// Wakes the reader.
    pub bell: Bell,
    /// What the memory counts for.
    pub charge: Charge,
    /// Blocks that its reader did not show.
    pub stale: SharedCount,
}

/// The thread to wake when something was published.
pub enum Bell {
    /// The reader, in this process.
    Reader(EventFd),
    /// A thread of ours, which wakes a reader in another process: what that one may do to its descriptor must
    /// not reach a worker.
    Thread(Arc<Doorbell<EventFd>>),
}

impl Lanes {
    /// Says that something was published in `lane`, one of these.
    #[inline]
    pub fn wake(&self, lane: &Lane) {
        match &self.bell {
            _ if !lane.reader_sleeps() => {}
            Bell::Reader(event) => event.wake(),
            Bell::Thread(bell) => _ = bell.ring(),
        }
    }

    /// Frees the ring's pages with it, also where another process holds them: see [`Lane::free_pages_at_end`]. The
    /// bytes count until then, because the lanes are dropped before the charge.
    pub fn free_pages_at_end(&self) {
        self.of.iter().for_each(|lane| lane.free_pages_at_end());
    }

    /// What its workers have counted since it was made, how often one found its lane taken by another, and how
    /// many blocks its reader did not show.
    pub fn counted(&self) -> (Totals, u64, u64) {
        let mut sum = Totals::default();
        let mut contended = 0;
        for lane in &self.of {
            let Totals { packets, bytes, lost, clamped } = lane.totals();
            sum.packets += packets;
            sum.bytes += bytes;
            sum.lost += lost;
            sum.clamped += clamped;
            contended += lane.contended();
        }
        (sum, contended, self.stale.load())
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lanes", self.of.len())
    }
}

/// Bytes of memory that count while it lives: for all rings, and for those of one user.
#[derive(Debug)]
pub struct Charge {
    bytes: u64,
    all: Arc<SharedCount>,
    user: Option<Arc<SharedCount>>,
}

impl Charge {
    /// Counts `bytes` among `all`, and those of a user, until it is dropped.
    pub fn new(bytes: u64, all: &Arc<SharedCount>, user: Option<&Arc<SharedCount>>) -> Charge {
        all.add(bytes);
        if let Some(user) = user {
            user.add(bytes);
        }
        Charge { bytes, all: all.clone(), user: user.cloned() }
    }

    /// The bytes it counts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.all.sub(self.bytes);
        if let Some(user) = &self.user {
            user.sub(self.bytes);
        }
    }
}

impl Target {
    /// Whether it wants what begins with `bytes` and was seen at `point` of `port`: of the device's port, or at a
    /// drop of the sub-interface that received it.
    #[inline]
    pub fn wants(&self, point: Point, port: PortId, bytes: &[u8]) -> bool {
        self.points.has(point)
            && self.port.as_ref().is_none_or(|wanted| wanted.is(port, bytes))
            && is_of(self.protocol, bytes)
    }
}

impl Target {
    /// Which of packets it wants that begin with these bytes, and were all seen at `point` of `port`. Only where tags
    /// or ether types decide is each looked at.
    #[inline]
    pub fn wants_of(&self, point: Point, port: PortId, packets: &[&[u8]]) -> Chosen {
        let is_by_tags = self.port.as_ref().is_some_and(|wanted| wanted.tags.is_some());
        if !is_by_tags && self.protocol == protocol::ALL {
            let wants_all = self.wants(point, port, &[]);
            return Chosen::first(if wants_all { packets.len() } else { 0 });
        }
        let wanted = packets.iter().enumerate().filter(|(_, bytes)| self.wants(point, port, bytes));
        Chosen(wanted.fold(0, |wanted, (place, _)| wanted | 1 << place))
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        let of = |target: &Target| (target.points, target.protocol, target.fanout);
        of(self) == of(other) && self.port == other.port && self.members == other.members
    }
}

impl PortMatch {
    #[inline]
    fn is(&self, port: PortId, bytes: &[u8]) -> bool {
        match self.tags {
            None => port == self.device || self.below.contains(&port),
            Some(tags) => {
                let count = tags.as_bytes().len() / 4;
                port == self.id || (port == self.device && Tags::of(bytes, count) == Some(tags))
            }
        }
    }
}

/// Whether a packet is of this protocol. Behind tags of IEEE 802.1Q, what they stand in front of counts, too.
#[inline]
fn is_of(wanted: u16, bytes: &[u8]) -> bool {
    wanted == protocol::ALL
        || ether_type_behind_tags(bytes).is_some_and(|[outer, inner]| {
            let of =
                |found: u16| found == wanted || (found < 0x600 && wanted == protocol::IEEE_802_2);
            of(outer) || of(inner)
        })
}

impl PartialEq for Member {
    fn eq(&self, other: &Member) -> bool {
        self.generation == other.generation
            && self.snap == other.snap
            && Arc::ptr_eq(&self.lanes, &other.lanes)
            && self.filter == other.filter
    }
}
