//! What the API shows: counters added up over workers, tables read under their lock.
//!
//! Nothing here is on a worker's way: counters are read as they stand, and the lock is the control
//! thread's.

mod capture;
mod config;
mod frames;
mod neighbours;
mod ports;
mod sockets;
mod trace;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use manylane_frame::vocabulary::{Created, DropReason, PortId, WorkerId};
use manylane_io::netlink::Netlink;
use manylane_net::fib::IpPrefix;
use manylane_net::neighbour::Key;
use manylane_net::nexthop::NextHop;

use super::open::{Bell, OpenPort};
use super::routing::{GroupMember, Routing};
use super::steering;
use super::transaction::Transactions;
use crate::config::Config;
use crate::socket::Sockets;
use crate::trace::Traces;
use frames::HOT_LIST_LEN;
use manylane_api::{
    AddressStatus, ApiError, CaptureFile, CaptureRequest, Configurations, CopyStatus, Daemon,
    DropStatus, FaultStatus, FramesStatus, Ledger, MemberStatus, NeighbourStatus, PortLedger,
    PortStatus, QueueName, RouteKind, RouteStatus, SetError, Setting, SettingValue, SocketsStatus,
    Source, SteeringStatus, TraceLines, TraceRequest, WorkerStatus,
};
use manylane_worker::Clock;
use manylane_worker::stats::{PortCount, StatsReader, WorkerCount};
use ports::{ShownPort, shown_ports};

pub use frames::FrameStatus;

/// Everything that can be shown of a daemon.
pub struct Status {
    ports: Vec<ShownPort>,
    cores: Vec<u16>,
    /// The workers'.
    stats: Vec<StatsReader>,
    /// What is counted of ports that were removed.
    closed_ports: StatsReader,
    routing: Arc<Mutex<Routing>>,
    /// The control thread's bell: that thread informs workers of edits.
    control: Bell,
    /// Prefixes of on-link static routes, to tell them from connected networks.
    on_link: Mutex<Vec<String>>,
    /// Of a daemon that was started with a file.
    transactions: OnceLock<Transactions>,
    frames: FrameStatus,
    steering: steering::Shared,
    sockets: Sockets,
    traces: Traces,
    /// Held by the request that captures drops.
    capture: Mutex<Weak<()>>,
    clock: Clock,
    /// Opened in the ports' network namespace: queries that namespace, from any thread.
    netlink: Option<Mutex<Netlink>>,
    load: Mutex<Vec<Load>>,
    /// After the ports were closed: frames that a device kept.
    closed: Mutex<Option<usize>>,
}

/// A worker's share of busy time between two looks.
#[derive(Clone, Copy, Default)]
struct Load {
    at: Duration,
    busy_ns: u64,
    idle_ns: u64,
    percent: f64,
}

/// A share is taken over at least so long.
const LOAD_INTERVAL: Duration = Duration::from_millis(900);

/// What the API's thread edits too, and the bell of the control thread, which informs workers.
pub(super) struct Edited {
    pub routing: Arc<Mutex<Routing>>,
    pub steering: steering::Shared,
    pub traces: Traces,
    pub control: Bell,
    pub sockets: Sockets,
}

/// The counters that are shown.
pub(super) struct Counted {
    pub workers: Vec<StatsReader>,
    /// Of the thread that closes removed ports.
    pub closed: StatsReader,
}

impl Status {
    pub(super) fn new(
        config: &Config,
        ports: &[OpenPort],
        counted: Counted,
        edited: Edited,
        frames: FrameStatus,
        clock: Clock,
    ) -> Status {
        let Edited { routing, steering, traces, control, sockets } = edited;
        let Counted { workers: stats, closed: closed_ports } = counted;
        let ports = shown_ports(ports, &unpoisoned(&routing));
        Status {
            ports,
            cores: config.workers.cores.clone(),
            load: Mutex::new(vec![Load::default(); stats.len()]),
            stats,
            closed_ports,
            routing,
            control,
            on_link: Mutex::new(config::on_link(&config.routes)),
            transactions: OnceLock::new(),
            frames,
            steering,
            sockets,
            traces,
            capture: Mutex::default(),
            clock,
            // Without it, links are shown as up.
            netlink: Netlink::open().ok().map(Mutex::new),
            closed: Mutex::new(None),
        }
    }

    /// Notes that the ports are closed, and how many frames their devices kept.
    pub(super) fn closed(&self, kept: usize) {
        *unpoisoned(&self.closed) = Some(kept);
    }

    fn all_stats(&self) -> impl Iterator<Item = &StatsReader> {
        self.stats.iter().chain([&self.closed_ports])
    }

    fn port_sum(&self, port: PortId, what: PortCount) -> u64 {
        // Levels may be counted down by another worker than counted up: wrapping is right.
        self.all_stats().fold(0, |sum, stats| sum.wrapping_add(stats.port(port, what)))
    }

    fn dropped(&self, port: PortId, reason: DropReason) -> u64 {
        self.all_stats().map(|stats| stats.dropped(port, reason)).sum()
    }

    fn created(&self, port: PortId, reason: Created) -> u64 {
        self.all_stats().map(|stats| stats.created(port, reason)).sum()
    }

    fn ids(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..self.ports.len() as u16).map(PortId)
    }

    /// Sent and not finished, through one port.
    fn in_flight(&self, port: PortId) -> u64 {
        self.port_sum(port, PortCount::Sent).wrapping_sub(self.port_sum(port, PortCount::Completed))
    }

    fn drops_of(&self, port: PortId) -> BTreeMap<String, u64> {
        let counted = DropReason::ALL.iter().map(|&reason| (reason, self.dropped(port, reason)));
        counted.filter(|&(_, n)| n > 0).map(|(reason, n)| (reason.name().into(), n)).collect()
    }

    fn faults(&self, port: PortId) -> FaultStatus {
        let sum = |what| self.port_sum(port, what);
        FaultStatus {
            dropped: sum(PortCount::FaultsDropped),
            duplicated: sum(PortCount::FaultsDuplicated),
            corrupted: sum(PortCount::FaultsCorrupted),
            delayed: sum(PortCount::FaultsDelayed),
            reordered: sum(PortCount::FaultsReordered),
            hold_full: sum(PortCount::FaultsHoldFull),
            no_frame: sum(PortCount::FaultsNoFrame),
        }
    }

    fn copies(&self, port: PortId) -> CopyStatus {
        let sum = |what| self.port_sum(port, what);
        CopyStatus {
            copied: sum(PortCount::Copied),
            no_frame: sum(PortCount::CopiesNoFrame),
            unfit: sum(PortCount::CopiesUnfit),
            refused: sum(PortCount::CopiesRefused),
        }
    }

    fn name(&self, port: PortId) -> String {
        self.ports[port.index()].name.clone()
    }

    fn port_ledger(&self, port: PortId) -> PortLedger {
        let created = Created::ALL.iter().map(|&reason| self.created(port, reason)).sum();
        let dropped = DropReason::ALL.iter().map(|&reason| self.dropped(port, reason)).sum();
        let received = self.port_sum(port, PortCount::Received);
        let transmitted = self.port_sum(port, PortCount::Transmitted);
        let delivered = self.port_sum(port, PortCount::Delivered);
        let held = self.port_sum(port, PortCount::Held);
        let accounted = transmitted + delivered + dropped + held;
        PortLedger {
            port: self.name(port),
            received,
            created,
            transmitted,
            delivered,
            dropped,
            held,
            // By port of entry it is not known which frames are in flight: they are what is missing
            // while any are, and the total says how many that may be.
            in_flight: 0,
            missing: (received + created) as i64 - accounted as i64,
        }
    }
}

impl Source for Status {
    fn ports(&self) -> Vec<PortStatus> {
        self.ids().zip(&self.ports).map(|(id, port)| self.port(id, port)).collect()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let now = self.clock.now();
        let mut loads = unpoisoned(&self.load);
        let of_worker = |(number, stats): (usize, &StatsReader)| {
            let load = loads[number].advanced(now, stats);
            loads[number] = load;
            let state = unpoisoned(&self.steering).state(number);
            let sum =
                |what| self.ids().map(|port| stats.port(port, what)).fold(0, u64::wrapping_add);
            WorkerStatus {
                worker: number as u16,
                core: self.cores.get(number).copied(),
                state,
                turns: stats.worker(WorkerCount::Turns),
                busy_percent: load.percent,
                busy_ns: stats.worker(WorkerCount::BusyNs),
                idle_ns: stats.worker(WorkerCount::IdleNs),
                sleeps: stats.worker(WorkerCount::Sleeps),
                wakeups: stats.worker(WorkerCount::Wakeups),
                reports_lost: stats.worker(WorkerCount::EventsLost),
                orders_lost: stats.worker(WorkerCount::OrdersLost),
                errors_suppressed: stats.worker(WorkerCount::ErrorsSuppressed),
                inner_checksum_partial: stats.worker(WorkerCount::InnerChecksumUnknown),
                queues: self.queues_of(WorkerId(number as u16)),
                received: sum(PortCount::Received),
                transmitted: sum(PortCount::Sent),
                held: sum(PortCount::Held),
                frames_in_pool: stats.worker(WorkerCount::PoolLevel),
            }
        };
        self.stats.iter().enumerate().map(of_worker).collect()
    }

    fn routes(&self) -> Vec<RouteStatus> {
        // Copied under the lock, put into words after: the control thread waits for the lock.
        let (routes, groups) = {
            let routing = unpoisoned(&self.routing);
            (routing.routes().collect::<Vec<_>>(), routing.groups())
        };
        let on_link = unpoisoned(&self.on_link).clone();
        let of_member = |member: &GroupMember| MemberStatus {
            via: member.key.addr.to_string(),
            port: self.name(member.key.port),
            weight: member.weight,
            share: member.share,
        };
        let of_route = |(prefix, next_hop): (IpPrefix, NextHop<Key>)| {
            let prefix: String = prefix.to_string();
            let members = match next_hop {
                NextHop::Group(id) => groups.get(&id).map(|group| group.iter().map(of_member)),
                _ => None,
            };
            let (kind, via, port) = match next_hop {
                NextHop::Via(Key { port, addr }) => {
                    (RouteKind::Via, Some(addr.to_string()), Some(port))
                }
                NextHop::Group(_) => (RouteKind::Group, None, None),
                NextHop::Connected(port) if on_link.contains(&prefix) => {
                    (RouteKind::OnLink, None, Some(port))
                }
                NextHop::Connected(port) => (RouteKind::Connected, None, Some(port)),
                NextHop::Local => (RouteKind::Local, None, None),
                NextHop::Blackhole => (RouteKind::Blackhole, None, None),
                NextHop::Prohibit => (RouteKind::Prohibit, None, None),
                NextHop::Broadcast => (RouteKind::Broadcast, None, None),
                NextHop::Unreachable | NextHop::None | NextHop::Kernel => {
                    (RouteKind::Unreachable, None, None)
                }
            };
            let group = members.into_iter().flatten().collect();
            RouteStatus { prefix, kind, via, port: port.map(|port| self.name(port)), group }
        };
        routes.into_iter().map(of_route).collect()
    }

    fn route_kinds(&self) -> BTreeMap<RouteKind, u64> {
        let mut kinds = BTreeMap::new();
        let on_link = unpoisoned(&self.on_link).clone();
        let routing = unpoisoned(&self.routing);
        for (prefix, next_hop) in routing.routes() {
            let kind = match next_hop {
                NextHop::Via(_) => RouteKind::Via,
                NextHop::Group(_) => RouteKind::Group,
                // The one kind for which a prefix is put into words: its routes are as many as the interfaces.
                NextHop::Connected(_) if on_link.contains(&prefix.to_string()) => RouteKind::OnLink,
                NextHop::Connected(_) => RouteKind::Connected,
                NextHop::Local => RouteKind::Local,
                NextHop::Blackhole => RouteKind::Blackhole,
                NextHop::Prohibit => RouteKind::Prohibit,
                NextHop::Broadcast => RouteKind::Broadcast,
                NextHop::Unreachable | NextHop::None | NextHop::Kernel => RouteKind::Unreachable,
            };
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }

    fn neighbours(&self) -> Vec<NeighbourStatus> {
        self.all_neighbours()
    }

    fn addresses(&self) -> Vec<AddressStatus> {
        self.all_addresses()
    }

    fn drops(&self) -> Vec<DropStatus> {
        let of_reason = |&reason: &DropReason| {
            let by_port = self.ids().map(|port| (self.name(port), self.dropped(port, reason)));
            let ports: BTreeMap<_, _> = by_port.filter(|&(_, n)| n > 0).collect();
            DropStatus {
                reason: reason.name().into(),
                explanation: reason.explanation().into(),
                total: ports.values().sum(),
                ports,
            }
        };
        DropReason::ALL.iter().map(of_reason).filter(|drop| drop.total > 0).collect()
    }

    fn ledger(&self) -> Ledger {
        let per_port: Vec<_> = self.ids().map(|port| self.port_ledger(port)).collect();
        let sum = |field: fn(&PortLedger) -> u64| per_port.iter().map(field).sum::<u64>();
        let in_flight = self.ids().map(|port| self.in_flight(port)).fold(0, u64::wrapping_add);
        let mut created = BTreeMap::new();
        for &reason in Created::ALL {
            let n: u64 = self.ids().map(|port| self.created(port, reason)).sum();
            if n > 0 {
                created.insert(reason.name().into(), n);
            }
        }
        let mut dropped = BTreeMap::new();
        for port in self.ids() {
            for (reason, n) in self.drops_of(port) {
                *dropped.entry(reason).or_default() += n;
            }
        }
        let held = sum(|port| port.held);
        let missing: i64 = per_port.iter().map(|port| port.missing).sum();
        Ledger {
            received: sum(|port| port.received),
            created,
            transmitted: sum(|port| port.transmitted),
            delivered: sum(|port| port.delivered),
            dropped,
            held,
            in_flight,
            missing: missing - in_flight as i64,
            frames: self.frame_ledger(),
            per_port,
        }
    }

    fn frames(&self) -> FramesStatus {
        self.all_frames()
    }

    fn steering(&self) -> SteeringStatus {
        unpoisoned(&self.steering).status()
    }

    fn sockets(&self) -> SocketsStatus {
        self.all_sockets()
    }

    fn set(&self, key: &str, value: &str) -> Result<Setting, SetError> {
        let value = if key == HOT_LIST_LEN {
            let len = self.frames.set_hot_list_len(value).map_err(SetError::BadValue)?;
            SettingValue::Number(len.into())
        } else {
            let steered = unpoisoned(&self.steering).set(key, value);
            steered.unwrap_or_else(|| {
                Err(SetError::UnknownKey(ApiError {
                    error: format!("no setting `{key}` can be changed while the daemon runs"),
                    help: format!(
                        "there are `workers`, `{HOT_LIST_LEN}`, `steering.netdev_max_backlog`, \
                     `steering.netdev_budget`, `steering.dev_weight`, `steering.rebalance`, \
                     `steering.reorder_sample`, `port.PORT.steering`, `port.PORT.bucket.N`, \
                     `port.PORT.buckets`, `port.PORT.queue.N` and `worker.N.paused`"
                    ),
                }))
            })?
        };
        self.control.ring(); // The control thread may have to look at loads from now on.
        Ok(Setting { key: key.into(), value })
    }

    fn add_neighbour(
        &self,
        port: &str,
        addr: &str,
        mac: &str,
    ) -> Result<NeighbourStatus, SetError> {
        self.set_neighbour(port, addr, mac)
    }

    fn remove_port(&self, name: &str) -> Result<PortStatus, SetError> {
        self.begin_removal(name)
    }

    fn delete_neighbour(&self, port: &str, addr: &str) -> Result<NeighbourStatus, SetError> {
        self.forget_neighbour(port, addr)
    }

    fn configurations(&self) -> Option<&dyn Configurations> {
        self.transactions.get().map(|_| self as &dyn Configurations)
    }

    fn trace(&self, request: &TraceRequest) -> Result<TraceLines, SetError> {
        self.begin_trace(request)
    }

    fn capture_drops(&self, request: &CaptureRequest) -> Result<CaptureFile, SetError> {
        self.begin_capture(request)
    }

    fn daemon(&self) -> Daemon {
        let routing = unpoisoned(&self.routing);
        let (counts, without_route) = (routing.neighbour_counts(), routing.given_up());
        Daemon {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.clock.now().as_secs(),
            neighbours_refused: counts.refused,
            neighbours_reclaimed: counts.reclaimed,
            neighbours_without_route: without_route,
        }
    }
}

impl Status {
    /// What is shown of one port.
    fn port(&self, id: PortId, port: &ShownPort) -> PortStatus {
        let state = unpoisoned(&self.steering).port_state(id);
        PortStatus {
            port: id.0,
            name: port.name.clone(),
            driver: port.driver.into(),
            chosen: port.chosen.map(Into::into),
            interface: port.interface.clone(),
            mac: port.mac.to_string(),
            mtu: port.mtu,
            state,
            link_up: self.is_up(id, port),
            mode: port.mode.map(Into::into),
            zero_copy: port.zero_copy,
            frames_max: port.frames_max,
            single_because: port.single_because.clone(),
            queues: port.queues,
            addresses: port.addresses.clone(),
            checksum: if port.repair { "repair" } else { "trust" }.into(),
            received: self.port_sum(id, PortCount::Received),
            received_bytes: self.port_sum(id, PortCount::ReceivedBytes),
            transmitted: self.port_sum(id, PortCount::Sent),
            transmitted_bytes: self.port_sum(id, PortCount::SentBytes),
            lost_ring_full: self.port_sum(id, PortCount::LostRingFull),
            lost_no_buffer: self.port_sum(id, PortCount::LostNoBuffer),
            lost_invalid: self.port_sum(id, PortCount::LostInvalid),
            lost_transmit: self.port_sum(id, PortCount::LostTransmit),
            segments_cut: self.port_sum(id, PortCount::SegmentsCut),
            checksums_completed: self.port_sum(id, PortCount::ChecksumsCompleted),
            chains_joined: self.port_sum(id, PortCount::ChainsJoined),
            dropped: self.drops_of(id),
            faults: port.has_faults.then(|| self.faults(id)),
            copies: port.has_copies.then(|| self.copies(id)),
            vlan: port.vlan.clone(),
        }
    }

    /// Whether the port's device is up and has a carrier; memory always has.
    fn is_up(&self, id: PortId, port: &ShownPort) -> bool {
        if unpoisoned(&self.routing).is_removed(id) {
            return false;
        }
        let (Some(interface), Some(netlink)) = (&port.interface, &self.netlink) else {
            return true;
        };
        let link = unpoisoned(netlink).link(interface);
        link.is_ok_and(|link| link.is_up && link.is_running)
    }

    fn queues_of(&self, worker: WorkerId) -> Vec<QueueName> {
        let steering = unpoisoned(&self.steering);
        let of_port = |(id, port): (PortId, &ShownPort)| {
            let owned = (0..).zip(steering.owners(id)).filter(|&(_, &owner)| owner == worker);
            let named = |(queue, _)| QueueName { port: port.name.clone(), queue };
            owned.map(named).collect::<Vec<_>>()
        };
        self.ids().zip(&self.ports).flat_map(of_port).collect()
    }
}

impl Load {
    /// The load now, if the last look is long enough ago.
    fn advanced(self, now: Duration, stats: &StatsReader) -> Load {
        if now.saturating_sub(self.at) < LOAD_INTERVAL {
            return self;
        }
        let busy_ns = stats.worker(WorkerCount::BusyNs);
        let idle_ns = stats.worker(WorkerCount::IdleNs);
        let (busy, idle) = (busy_ns - self.busy_ns, idle_ns - self.idle_ns);
        // A worker that sleeps all the while counts its time when it wakes.
        let percent = if busy == 0 { 0.0 } else { busy as f64 * 100.0 / (busy + idle) as f64 };
        Load { at: now, busy_ns, idle_ns, percent }
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread that reads the status does not panic")
}
