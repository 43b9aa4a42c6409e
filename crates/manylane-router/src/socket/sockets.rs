//! The one writer of the hook table, and what sockets share.

mod groups;
mod rings;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_io::eventfd::EventFd;
use manylane_net::filter::Program;
use manylane_net::forward::PortFacts;
use manylane_net::wire::ethernet::{TAGS_LEN_MAX, Tags};
use manylane_net::wire::flow::FlowKey;
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::hook::{Binding, HookReader, Hooks, Socket};
use manylane_sync::rcu::Domain;
use manylane_sync::words::{Words, WordsMut};

use super::endpoint::{Endpoint, SNAP_MAX, Wishes};
use super::registry::{Entry, OpenSocket, Owner, Registry};
use super::{PacketSocket, Points, SocketError, protocol};
use crate::config::SocketLimits;
use groups::Group;
use manylane_worker::hooks::{Injector, InjectorEnd, Lanes, PortMatch, Target, injector};
use manylane_worker::{Clock, Observers};
pub(super) use rings::{Ring, Unowned};

/// A port, for sockets to be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The port whose device it has.
    pub device: PortId,
    /// Of a sub-interface.
    pub tags: Option<Tags>,
    /// Bytes of its largest packet, Ethernet header included.
    pub packet_max: usize,
}

impl Place {
    /// The places of ports and sub-interfaces, by id.
    pub fn all(ports: &[PortFacts]) -> Vec<Place> {
        let place = |(id, facts): (PortId, &PortFacts)| {
            let (device, tags) = facts.vlan.map_or((id, None), |vlan| (vlan.port, Some(vlan.tags)));
            Place { device, tags, packet_max: facts.mtu as usize + HEADER_LEN + TAGS_LEN_MAX }
        };
        (0..).map(PortId).zip(ports).map(place).collect()
    }
}

/// A daemon's packet sockets. A handle: clones share the sockets.
#[derive(Clone)]
pub struct Sockets(Arc<Shared>);

struct Shared {
    workers: usize,
    limits: SocketLimits,
    ports: Box<[Arc<PortMatch>]>,
    packet_max: Box<[usize]>,
    hooks: HookReader<Target>,
    clock: Clock,
    key: FlowKey,
    /// Nanoseconds from 1970 to the daemon's start, as the system's clock had it at the last change.
    epoch: Words<u64>,
    memory: Arc<SharedCount>,
    closed_for_time: SharedCount,
    /// Of the worker that sends what sockets send.
    bell: Arc<Doorbell<EventFd>>,
    /// Held for no longer than one change takes: no wait, no system call but for new memory.
    control: Mutex<Control>,
}

struct Control {
    hooks: Hooks<Target>,
    groups: BTreeMap<u16, Group>,
    /// Rings of sockets that are closed: whatever a worker still writes there carries a generation that is no
    /// other socket's.
    spare: VecDeque<Ring>,
    registry: Registry,
    /// Bytes of the rings of each user that the bounds are for.
    users: BTreeMap<u32, Arc<SharedCount>>,
    injector: Injector,
    epoch: WordsMut<u64>,
    epoch_at: Option<Duration>,
}

impl Sockets {
    /// No sockets, for `workers` workers, members of `domain`, and `ports` by id, sub-interfaces behind them. Beside
    /// it what the first worker sends from; `bell` is its bell. Groups share
    /// flows by `key`.
    pub fn new(
        domain: Domain,
        workers: usize,
        ports: &[Place],
        limits: SocketLimits,
        bell: Arc<Doorbell<EventFd>>,
        clock: Clock,
        key: FlowKey,
    ) -> (Sockets, InjectorEnd) {
        let id = |number: usize| PortId(number as u16);
        let below = |device: PortId| {
            let ids = ports.iter().enumerate().map(|(number, place)| (id(number), place));
            ids.filter(|(_, place)| place.device == device && place.tags.is_some())
                .map(|(id, _)| id)
                .collect()
        };
        let matches = ports.iter().enumerate().map(|(number, &Place { device, tags, .. })| {
            let below = if tags.is_none() { below(device) } else { Box::default() };
            Arc::new(PortMatch { id: id(number), device, tags, below })
        });
        let hooks = Hooks::new(domain, limits.max, RETIRED_MAX);
        let (injector, end) = injector();
        let epoch = WordsMut::zeroed(1);
        let shared = Shared {
            workers,
            limits,
            ports: matches.collect(),
            packet_max: ports.iter().map(|place| place.packet_max).collect(),
            hooks: hooks.reader(),
            clock,
            key,
            epoch: epoch.reader(),
            memory: Arc::default(),
            closed_for_time: SharedCount::default(),
            bell,
            control: Mutex::new(Control {
                hooks,
                groups: BTreeMap::new(),
                spare: VecDeque::new(),
                registry: Registry::default(),
                users: BTreeMap::new(),
                injector,
                epoch,
                epoch_at: None,
            }),
        };
        (Sockets(Arc::new(shared)), end)
    }

    /// A new socket that receives packets of `protocol`, in host byte order, at all ports; see
    /// [`protocol`](super::protocol). As with packet(7): with protocol 0 it receives nothing before it is bound.
    pub fn open(&self, protocol: u16) -> Result<PacketSocket, SocketError> {
        let (ring, spare) = self.ring()?;
        let endpoint = self.endpoint(Owner::Daemon, ring.lanes.clone(), protocol);
        match endpoint {
            Ok((endpoint, binding)) => Ok(PacketSocket::new(endpoint, binding, ring, spare)),
            Err(error) => {
                self.put_back(ring, spare);
                Err(error)
            }
        }
    }

    /// An open socket that is read by `lanes`.
    pub(super) fn endpoint(
        &self,
        owner: Owner,
        lanes: Arc<Lanes>,
        protocol: u16,
    ) -> Result<(Endpoint, Binding), SocketError> {
        let mut control = self.lock();
        control.follow_clock(self.0.clock);
        let max = self.0.limits.max;
        let (place, binding) = control.hooks.open().ok_or(SocketError::TooMany { max })?;
        let wishes = Wishes {
            protocol,
            port: None,
            points: Points::RECEIVE,
            filter: Arc::new(Program::accept_all()),
            snap: SNAP_MAX,
        };
        control.registry.add(place.number(), owner, &wishes, &lanes);
        drop(control);
        let sockets = self.clone();
        let endpoint = Endpoint { sockets, place: Some(place), wishes, lanes, group: None };
        if protocol != protocol::NONE {
            self.publish(None, endpoint.place(), &endpoint.wishes, &endpoint.lanes)?;
        }
        Ok((endpoint, binding))
    }

    /// The workers' side, for one of them. The first sends what sockets send.
    pub fn observers(&self, worker: WorkerId, injected: Option<InjectorEnd>) -> Observers {
        let Shared { hooks, clock, epoch, key, .. } = &*self.0;
        Observers::new(hooks.clone(), worker, *clock, epoch.clone(), *key, injected)
    }

    /// Drops what no worker looks at any more; for when sockets have closed and none is opened. Returns whether
    /// something is still looked at.
    pub fn tend(&self) -> bool {
        let mut control = self.lock();
        let Control { hooks, groups, .. } = &mut *control;
        hooks.reclaim();
        let mut owes = false;
        for group in groups.values_mut().filter(|group| group.owes) {
            group.publish(hooks, self);
            owes |= group.owes;
        }
        owes || hooks.retired() > 0
    }

    /// Every open socket.
    pub fn list(&self) -> Vec<OpenSocket> {
        let entries = self.lock().registry.entries();
        entries.iter().map(Entry::look).collect()
    }

    /// The bounds.
    pub fn limits(&self) -> SocketLimits {
        self.0.limits
    }

    /// Bytes of all rings.
    pub fn memory(&self) -> u64 {
        self.0.memory.load()
    }

    /// Instructions that a packet may run through in the filters of other processes' sockets.
    pub fn instructions(&self) -> u64 {
        self.lock().registry.instructions()
    }

    /// Sockets that were closed because they took too much of a worker's time.
    pub fn closed_for_time(&self) -> u64 {
        self.0.closed_for_time.load()
    }

    pub(super) fn count_closed_for_time(&self) {
        self.0.closed_for_time.add(1);
    }

    /// How many workers write into each socket's lanes.
    pub fn workers(&self) -> usize {
        self.0.workers
    }

    /// Fails if no port has this id.
    pub(super) fn place_of(&self, port: PortId) -> Result<(), SocketError> {
        let port_match = self.0.ports.get(port.index());
        port_match.map(|_| ()).ok_or(SocketError::NoSuchPort(port))
    }

    pub(super) fn port_match(&self, port: PortId) -> Arc<PortMatch> {
        self.0.ports[port.index()].clone() // `place_of` has looked.
    }

    pub(super) fn generation(&self, place: &Socket) -> u64 {
        self.lock().hooks.generation(place).0
    }

    /// Lets workers see what a socket, or its group with it, is to receive.
    pub(super) fn publish(
        &self,
        group: Option<u16>,
        place: &Socket,
        wishes: &Wishes,
        lanes: &Arc<Lanes>,
    ) -> Result<(), SocketError> {
        let mut control = self.lock();
        control.registry.may_change(place.number(), wishes, &self.0.limits)?;
        let Some(group) = group else {
            let bound = control.hooks.bind(place, wishes.target(self, lanes));
            bound.map_err(|_| SocketError::Busy)?;
            control.registry.change(place.number(), wishes, lanes);
            return Ok(());
        };
        self.publish_member(&mut control, group, place, wishes, lanes)
    }

    /// Closes a socket: never refused, nothing waits.
    pub(super) fn close(&self, group: Option<u16>, place: Socket) {
        if let Some(group) = group {
            let left = self.leave(group, &place, None);
            assert!(left.is_ok(), "leaving is not refused");
        }
        let mut control = self.lock();
        control.registry.remove(place.number());
        control.hooks.close(place);
    }

    pub(super) fn inject(&self, port: PortId, bytes: &[u8]) -> Result<(), SocketError> {
        self.place_of(port)?;
        let (len, max) = (bytes.len(), self.0.packet_max[port.index()]);
        if !(HEADER_LEN..=max).contains(&len) {
            return Err(SocketError::Length { len, max });
        }
        let device = self.0.ports[port.index()].device;
        if !self.lock().injector.push(device, bytes) {
            return Err(SocketError::SendFull);
        }
        self.0.bell.ring();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        self.0.control.lock().expect("who changes sockets does not panic")
    }
}

impl Control {
    /// Follows the system's clock, if it was not followed just now.
    fn follow_clock(&mut self, clock: Clock) {
        let now = clock.now();
        if self.epoch_at.is_none_or(|at| now - at >= FOLLOW_CLOCK) {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.epoch.publish(0, since.saturating_sub(now).as_nanos() as u64); // 584 years.
            self.epoch_at = Some(now);
        }
    }
}

/// Hooks that wait for a grace period: a turn of each worker.
const RETIRED_MAX: u32 = 4096;

/// How old the system's time may be, for stamps.
const FOLLOW_CLOCK: Duration = Duration::from_secs(1);

/// An Ethernet header.
const HEADER_LEN: usize = 14;
