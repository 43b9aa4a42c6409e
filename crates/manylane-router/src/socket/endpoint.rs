//! A socket without its reading end: what control knows of it.

use std::sync::Arc;

use manylane_frame::vocabulary::{Point, PortId};
use manylane_net::filter::Program;
use manylane_sync::hook::Socket;

use super::{Fanout, Points, SocketError, Sockets, protocol};
use manylane_worker::hooks::{Lanes, Member, Target};

/// An open socket, wherever its packets are read. Dropping it closes it.
pub struct Endpoint {
    pub(super) sockets: Sockets,
    /// There until it is dropped.
    pub(super) place: Option<Socket>,
    pub(super) wishes: Wishes,
    pub(super) lanes: Arc<Lanes>,
    /// The group it is a member of.
    pub(super) group: Option<u16>,
}

/// What a socket is to receive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wishes {
    pub protocol: u16,
    /// All ports, if it is none.
    pub port: Option<PortId>,
    pub points: Points,
    pub filter: Arc<Program>,
    pub snap: u32,
}

/// Bytes of a packet that are kept at most: libpcap's `MAXIMUM_SNAPLEN`.
pub const SNAP_MAX: u32 = 262_144;

/// The snap length of a request: 0 for all bytes.
pub(super) fn snap_of(snap: u32) -> u32 {
    if snap == 0 { SNAP_MAX } else { snap.min(SNAP_MAX) }
}

impl Endpoint {
    /// Where workers write its packets.
    pub(super) fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    pub(super) fn place(&self) -> &Socket {
        self.place.as_ref().expect("it is there until the drop")
    }

    /// Receives packets of `protocol`, in host byte order, at `port` or at all; see
    /// [`protocol`](super::protocol). When this returns, nothing comes any more of what it was bound to before.
    pub fn bind(&mut self, port: Option<PortId>, protocol: u16) -> Result<(), SocketError> {
        if (self.wishes.port, self.wishes.protocol) == (port, protocol) {
            return Ok(());
        }
        if self.group.is_some() {
            return Err(SocketError::InGroup);
        }
        if let Some(port) = port {
            self.sockets.place_of(port)?;
        }
        self.change(|wishes| (wishes.port, wishes.protocol) = (port, protocol))
    }

    /// Is given packets at these points from now on; at first only what is received.
    pub fn set_points(&mut self, points: Points) -> Result<(), SocketError> {
        match self.group {
            Some(_) if points != self.wishes.points => Err(SocketError::InGroup),
            _ => self.change(|wishes| wishes.points = points),
        }
    }

    /// Is given what `filter` lets pass from now on.
    pub fn set_filter(&mut self, filter: Program) -> Result<(), SocketError> {
        self.change(|wishes| wishes.filter = Arc::new(filter))
    }

    /// Keeps up to `snap` bytes of each packet from now on, 0 for all.
    pub fn set_snap(&mut self, snap: u32) -> Result<(), SocketError> {
        self.change(|wishes| wishes.snap = snap_of(snap))
    }

    /// Joins the fanout group of this number, or makes it: one of its members receives each packet. All have the
    /// same mode, protocol, port and points.
    pub fn join_fanout(&mut self, group: u16, mode: Fanout) -> Result<(), SocketError> {
        if self.group.is_some() {
            return Err(SocketError::InGroup);
        }
        if self.wishes.protocol == protocol::NONE {
            return Err(SocketError::NotBound);
        }
        let Endpoint { sockets, place, wishes, lanes, .. } = self;
        let place = place.as_ref().expect("it is there until the drop");
        sockets.join(group, mode, place, wishes, lanes)?;
        self.group = Some(group);
        Ok(())
    }

    /// Leaves its fanout group, if it is in one, and is given all packets again that it is bound to.
    pub fn leave_fanout(&mut self) -> Result<(), SocketError> {
        let Some(group) = self.group else { return Ok(()) };
        self.sockets.leave(group, self.place(), Some(self))?;
        self.group = None;
        Ok(())
    }

    /// Sends a packet with its Ethernet header by the port that it is bound to, past all rules: as packet(7) does
    /// with `SOCK_RAW`.
    pub fn send(&self, bytes: &[u8]) -> Result<(), SocketError> {
        let port = self.wishes.port.ok_or(SocketError::NotBound)?;
        self.sockets.inject(port, bytes)
    }

    /// The port it is bound to, and the protocol.
    pub fn bound(&self) -> (Option<PortId>, u16) {
        (self.wishes.port, self.wishes.protocol)
    }

    /// The generation of the binding in force: what carries another is not for it any more.
    pub fn generation(&self) -> u64 {
        self.sockets.generation(self.place())
    }

    /// Changes what it is to receive, or nothing.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Wishes)) -> Result<(), SocketError> {
        let mut wishes = self.wishes.clone();
        change(&mut wishes);
        if wishes == self.wishes {
            return Ok(());
        }
        self.sockets.publish(self.group, self.place(), &wishes, &self.lanes)?;
        self.wishes = wishes;
        Ok(())
    }

    /// Is read elsewhere from now on.
    pub(super) fn set_lanes(&mut self, lanes: Arc<Lanes>) -> Result<(), SocketError> {
        self.sockets.publish(self.group, self.place(), &self.wishes, &lanes)?;
        self.lanes = lanes;
        Ok(())
    }
}

impl Wishes {
    fn receives(&self) -> bool {
        self.protocol != protocol::NONE && !self.points.is_empty()
    }

    /// How many instructions of its filter a packet runs through at most: filters jump forward only, and a packet may
    /// pass each point.
    pub(super) fn instructions(&self) -> u64 {
        let points = Point::ALL.iter().filter(|point| self.points.has(**point)).count();
        let len = if self.receives() { self.filter.instructions().len() } else { 0 };
        (points * len) as u64
    }

    /// The hook of a socket that is in no group; none where nothing is received.
    pub(super) fn target(&self, sockets: &Sockets, lanes: &Arc<Lanes>) -> Option<Target> {
        self.receives().then(|| Target {
            points: self.points,
            port: self.port.map(|port| sockets.port_match(port)),
            protocol: self.protocol,
            fanout: None,
            members: Box::new([self.member(lanes)]),
        })
    }

    pub(super) fn member(&self, lanes: &Arc<Lanes>) -> Member {
        let (filter, lanes) = (self.filter.clone(), lanes.clone());
        Member { generation: None, filter, snap: self.snap, lanes }
    }
}

impl Endpoint {
    /// Closes it before it is dropped. The caller must not call anything else afterwards.
    pub(super) fn shut(&mut self) {
        if let Some(place) = self.place.take() {
            self.sockets.close(self.group, place);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shut();
    }
}
