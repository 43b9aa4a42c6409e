//! The one writer of the hook table, and what sockets share.

use std::collections::{BTreeMap, VecDeque, btree_map};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_io::eventfd::EventFd;
use manylane_io::packet_ring::{Readers, RingConfig, create_shared, lanes};
use manylane_net::filter::Program;
use manylane_net::forward::PortFacts;
use manylane_net::wire::ethernet::{TAGS_LEN_MAX, Tags};
use manylane_sync::counters::SharedCount;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::hook::{Binding, Generation, HookReader, Hooks, Socket};
use manylane_sync::rcu::Domain;
use manylane_sync::words::{Words, WordsMut};

use super::endpoint::{Endpoint, SNAP_MAX, Wishes};
use super::registry::{Entry, OpenSocket, Owner, Registry};
use super::{Fanout, PacketSocket, Points, RING, SocketError, protocol};
use crate::config::SocketLimits;
use manylane_io::packet_ring::MEMBERS_MAX;
use manylane_worker::hooks::{
    Bell, Charge, Injector, InjectorEnd, Lanes, PortMatch, Target, injector,
};
use manylane_worker::{Clock, Observers};

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
    /// Nanoseconds from 1970 to the daemon's start, as the system's clock had it at the last change.
    epoch: Words<u64>,
    memory: Arc<SharedCount>,
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
    injector: Injector,
    epoch: WordsMut<u64>,
    epoch_at: Option<Duration>,
}

/// What sockets in process are read by.
pub(super) struct Ring {
    pub lanes: Arc<Lanes>,
    pub readers: Readers,
}

struct Group {
    mode: Fanout,
    hook: Socket,
    wishes: Wishes,
    members: Vec<Seat>,
    /// Whether workers do not know of the last change.
    owes: bool,
}

/// A member of a group.
struct Seat {
    /// Of its socket.
    number: u32,
    generation: Generation,
    wishes: Wishes,
    lanes: Arc<Lanes>,
}

impl Sockets {
    /// No sockets, for `workers` workers, members of `domain`, and `ports` by id, sub-interfaces behind them. Beside
    /// it what the first worker sends from; `bell` is its bell.
    pub fn new(
        domain: Domain,
        workers: usize,
        ports: &[Place],
        limits: SocketLimits,
        bell: Arc<Doorbell<EventFd>>,
        clock: Clock,
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
            epoch: epoch.reader(),
            memory: Arc::default(),
            bell,
            control: Mutex::new(Control {
                hooks,
                groups: BTreeMap::new(),
                spare: VecDeque::new(),
                registry: Registry::default(),
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

    /// A ring of a socket in another process, and its memfd. A thread that sleeps by `bell` wakes the reader.
    pub(super) fn make_shared(
        &self,
        config: &RingConfig,
        bell: &Arc<Doorbell<EventFd>>,
    ) -> Result<(Arc<Lanes>, OwnedFd), SocketError> {
        let charge = self.charge(self.ring_bytes(config)?)?;
        let (memfd, of) =
            create_shared(config, self.0.workers as u32).map_err(SocketError::Ring)?;
        let (bell, stale) = (Bell::Thread(bell.clone()), SharedCount::default());
        Ok((Arc::new(Lanes { of: of.into(), bell, charge, stale }), memfd))
    }

    /// What the ring of a socket takes.
    pub(super) fn ring_bytes(&self, config: &RingConfig) -> Result<u64, SocketError> {
        config.bytes(self.0.workers as u32).map_err(SocketError::Ring)
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
        let Shared { hooks, clock, epoch, .. } = &*self.0;
        Observers::new(hooks.clone(), worker, *clock, epoch.clone(), injected)
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

    /// How many workers write into each socket's lanes.
    pub fn workers(&self) -> usize {
        self.0.workers
    }

    /// Lanes of `config`, one for each worker, whose reading end is in this process.
    pub(super) fn make_ring(&self, config: RingConfig) -> Result<Ring, SocketError> {
        let workers = self.0.workers as u32;
        let charge = self.charge(config.bytes(workers).map_err(SocketError::Ring)?)?;
        let (of, readers) = lanes(&config, workers).map_err(SocketError::Ring)?;
        let bell = Bell::Reader(EventFd::open().map_err(SocketError::Wake)?);
        Ok(Ring {
            lanes: Arc::new(Lanes { of: of.into(), bell, charge, stale: SharedCount::default() }),
            readers,
        })
    }

    /// Takes `bytes` from what rings may have, until the charge is dropped.
    pub(super) fn charge(&self, bytes: u64) -> Result<Charge, SocketError> {
        let max = self.0.limits.memory_max;
        let charge = Charge::new(bytes, &self.0.memory);
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
    fn ring(&self) -> Result<(Ring, bool), SocketError> {
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

    pub(super) fn put_back(&self, ring: Ring, spare: bool) {
        if spare {
            self.lock().spare.push_back(ring);
        }
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
        let Some(group) = group else {
            let bound = control.hooks.bind(place, wishes.target(self, lanes));
            bound.map_err(|_| SocketError::Busy)?;
            control.registry.change(place.number(), wishes, lanes);
            return Ok(());
        };
        let Control { hooks, groups, registry, .. } = &mut *control;
        let group = groups.get_mut(&group).expect("a group is there while it has a member");
        hooks.reclaim();
        if hooks.room() == 0 {
            return Err(SocketError::Busy);
        }
        registry.change(place.number(), wishes, lanes);
        let seat = group.members.iter_mut().find(|seat| seat.number == place.number());
        let seat = seat.expect("a member has a seat");
        seat.generation = hooks.renew(place);
        (seat.wishes, seat.lanes) = (wishes.clone(), lanes.clone());
        group.publish(hooks, self);
        Ok(())
    }

    /// Makes a socket a member of a group, and its hook a part of the group's.
    pub(super) fn join(
        &self,
        number: u16,
        mode: Fanout,
        place: &Socket,
        wishes: &Wishes,
        lanes: &Arc<Lanes>,
    ) -> Result<(), SocketError> {
        let mut control = self.lock();
        let Control { hooks, groups, registry, .. } = &mut *control;
        hooks.reclaim();
        if hooks.room() < 2 {
            return Err(SocketError::Busy);
        }
        let group = match groups.entry(number) {
            btree_map::Entry::Occupied(group) => group.into_mut(),
            btree_map::Entry::Vacant(place) => {
                let max = self.0.limits.max;
                let (hook, _) = hooks.open().ok_or(SocketError::TooMany { max })?;
                let wishes = wishes.clone();
                place.insert(Group { mode, hook, wishes, members: Vec::new(), owes: false })
            }
        };
        let of = |wishes: &Wishes| (wishes.protocol, wishes.port, wishes.points);
        if group.mode != mode || of(&group.wishes) != of(wishes) {
            return Err(SocketError::GroupDiffers); // The group has members.
        }
        if group.members.len() == MEMBERS_MAX {
            return Err(SocketError::GroupFull);
        }
        // First none, then one of all: what arrives in between is not given twice.
        let unbound = hooks.bind(place, None);
        assert!(unbound.is_ok(), "nothing is always possible");
        let generation = hooks.generation(place);
        let (wishes, lanes) = (wishes.clone(), lanes.clone());
        group.members.push(Seat { number: place.number(), generation, wishes, lanes });
        group.publish(hooks, self);
        registry.set_fanout(place.number(), Some((number, mode)));
        Ok(())
    }

    /// Ends a socket's membership. A socket that stays open is bound for itself again.
    pub(super) fn leave(
        &self,
        number: u16,
        place: &Socket,
        alone: Option<&Endpoint>,
    ) -> Result<(), SocketError> {
        let mut control = self.lock();
        let Control { hooks, groups, registry, .. } = &mut *control;
        hooks.reclaim();
        if alone.is_some() && hooks.room() < 2 {
            return Err(SocketError::Busy);
        }
        let group = groups.get_mut(&number).expect("a group is there while it has a member");
        group.members.retain(|seat| seat.number != place.number());
        if group.members.is_empty() {
            let group = groups.remove(&number).expect("it is there");
            hooks.close(group.hook);
        } else {
            group.publish(hooks, self);
        }
        registry.set_fanout(place.number(), None);
        hooks.renew(place);
        if let Some(Endpoint { wishes, lanes, .. }) = alone {
            let bound = hooks.bind(place, wishes.target(self, lanes));
            assert!(bound.is_ok(), "the table had room");
        }
        Ok(())
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

impl Group {
    /// Lets workers see its members. The table has room: the caller has looked, or the group has become smaller.
    fn publish(&mut self, hooks: &mut Hooks<Target>, sockets: &Sockets) {
        let mut target = self.wishes.target(sockets, &self.members[0].lanes);
        if let Some(target) = &mut target {
            target.fanout = Some(self.mode);
            target.members = self.members.iter().map(Seat::member).collect();
        }
        // Without room, a socket that left is still given packets, which no reader takes, until it is tried again.
        self.owes = hooks.bind(&self.hook, target).is_err();
    }
}

impl Seat {
    fn member(&self) -> manylane_worker::hooks::Member {
        let generation = Some(self.generation);
        manylane_worker::hooks::Member { generation, ..self.wishes.member(&self.lanes) }
    }
}

/// Rings that are there while workers let go of one.
const SPARE: usize = 8;

/// Hooks that wait for a grace period: a turn of each worker.
const RETIRED_MAX: u32 = 4096;

/// How old the system's time may be, for stamps.
const FOLLOW_CLOCK: Duration = Duration::from_secs(1);

/// An Ethernet header.
const HEADER_LEN: usize = 14;
