//! What the API shows: counters added up over workers, tables read under their lock.
//!
//! Nothing here is on a worker's way: counters are read as they stand, and the lock is the control
//! thread's.
//!
//! The door has all that can be shown, and the API's questions; each file answers those of its name. These files
//! may use all of `control`, the packet sockets and the traces.

mod capture;
mod config;
mod frames;
mod ledger;
mod neighbours;
mod ports;
mod routes;
mod sockets;
mod trace;
mod workers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use manylane_frame::vocabulary::PortId;
use manylane_io::netlink::Netlink;

use super::open::{Bell, OpenPort};
use super::routing::Routing;
use super::sflow::Sflow;
use super::steering;
use super::transaction::Transactions;
use crate::config::Config;
use crate::socket::Sockets;
use crate::trace::Traces;
use frames::HOT_LIST_LEN;
use manylane_api::{
    AddressStatus, ApiError, CaptureFile, CaptureRequest, Configurations, Daemon, DropStatus,
    FramesStatus, Ledger, NeighbourStatus, PortStatus, RouteKind, RouteStatus, SampleExportStatus,
    SetError, Setting, SettingValue, SocketsStatus, Source, SteeringStatus, TraceLines,
    TraceRequest, WorkerStatus,
};
use manylane_worker::Clock;
use manylane_worker::stats::StatsReader;
use ports::{ShownPort, shown_ports};
use workers::Load;

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
    /// With a collector of samples.
    sflow: Option<Arc<Sflow>>,
    /// Held by the request that captures drops.
    capture: Mutex<Weak<()>>,
    clock: Clock,
    /// Opened in the ports' network namespace: queries that namespace, from any thread.
    netlink: Option<Mutex<Netlink>>,
    load: Mutex<Vec<Load>>,
    /// After the ports were closed: frames that a device kept.
    closed: Mutex<Option<usize>>,
}

/// What the API's thread edits too, and the bell of the control thread, which informs workers.
pub(super) struct Edited {
    pub routing: Arc<Mutex<Routing>>,
    pub steering: steering::Shared,
    pub traces: Traces,
    pub control: Bell,
    pub sockets: Sockets,
    pub sflow: Option<Arc<Sflow>>,
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
        let Edited { routing, steering, traces, control, sockets, sflow } = edited;
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
            sflow,
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

    fn ids(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..self.ports.len() as u16).map(PortId)
    }

    /// Has one packet in `value` that a port receives sampled.
    fn set_sflow_rate(&self, port: &str, value: &str) -> Result<SettingValue, SetError> {
        let Some(sflow) = &self.sflow else {
            return Err(SetError::BadValue(ApiError {
                error: "no sFlow collector is there to receive samples".into(),
                help: "start with [sflow] and `collectors` in the configuration".into(),
            }));
        };
        unpoisoned(&self.steering).port(port)?;
        sflow.set_rate(port, value)
    }

    fn name(&self, port: PortId) -> String {
        self.ports[port.index()].name.clone()
    }
}

impl Source for Status {
    fn ports(&self) -> Vec<PortStatus> {
        self.ids().zip(&self.ports).map(|(id, port)| self.port(id, port)).collect()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.all_workers()
    }

    fn routes(&self) -> Vec<RouteStatus> {
        self.all_routes()
    }

    fn route_kinds(&self) -> BTreeMap<RouteKind, u64> {
        self.count_routes()
    }

    fn neighbours(&self) -> Vec<NeighbourStatus> {
        self.all_neighbours()
    }

    fn addresses(&self) -> Vec<AddressStatus> {
        self.all_addresses()
    }

    fn drops(&self) -> Vec<DropStatus> {
        self.all_drops()
    }

    fn ledger(&self) -> Ledger {
        self.packet_ledger()
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

    fn export(&self) -> SampleExportStatus {
        self.sflow.as_ref().map(|sflow| sflow.status()).unwrap_or_default()
    }

    fn set(&self, key: &str, value: &str) -> Result<Setting, SetError> {
        let sampled = key.strip_prefix("port.").and_then(|key| key.strip_suffix(".sflow_rate"));
        let value = if let Some(port) = sampled {
            self.set_sflow_rate(port, value)?
        } else if key == HOT_LIST_LEN {
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
                     `port.PORT.buckets`, `port.PORT.queue.N`, `port.PORT.sflow_rate` and \
                     `worker.N.paused`"
                    ),
                }))
            })?
        };
        self.control.ring(); // The control thread may have to look at loads from now on.
        Ok(Setting::new(key, value))
    }

    fn add_neighbour(
        &self,
        port: &str,
        addr: &str,
        mac: &str,
    ) -> Result<NeighbourStatus, SetError> {
        self.set_neighbour(port, addr, mac)
    }

    fn add_port(&self, name: &str) -> Result<PortStatus, SetError> {
        Err(self.no_port_added(name))
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

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread that reads the status does not panic")
}
