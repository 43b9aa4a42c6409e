//! The source of a daemon's answers.

use std::collections::BTreeMap;

use super::*;

/// The source of answers. Each call is one snapshot, and must not wait for a worker.
pub trait Source: Send + Sync {
    /// The ports, in the order of the configuration.
    fn ports(&self) -> Vec<PortStatus>;
    /// The workers, in order.
    fn workers(&self) -> Vec<WorkerStatus>;
    /// All routes, the daemon's own included.
    fn routes(&self) -> Vec<RouteStatus>;
    /// The number of routes of each kind.
    fn route_kinds(&self) -> BTreeMap<RouteKind, u64> {
        let mut kinds = BTreeMap::new();
        self.routes().iter().for_each(|route| *kinds.entry(route.kind).or_default() += 1);
        kinds
    }
    /// All neighbours.
    fn neighbours(&self) -> Vec<NeighbourStatus>;
    /// Our own addresses, where others may have them.
    fn addresses(&self) -> Vec<AddressStatus>;
    /// Drops by reason.
    fn drops(&self) -> Vec<DropStatus>;
    /// The sum that has to add up.
    fn ledger(&self) -> Ledger;
    /// The frames.
    fn frames(&self) -> FramesStatus;
    /// Which worker forwards which packets.
    fn steering(&self) -> SteeringStatus;
    /// The packet sockets.
    fn sockets(&self) -> SocketsStatus;
    /// Collectors of samples; none of a daemon that exports nothing.
    fn export(&self) -> SampleExportStatus {
        SampleExportStatus::default()
    }
    /// The daemon itself.
    fn daemon(&self) -> Daemon;
    /// Changes a setting.
    fn set(&self, key: &str, value: &str) -> Result<Setting, SetError>;
    /// Sets a neighbour by the operator's word; says what it is now.
    fn add_neighbour(&self, port: &str, addr: &str, mac: &str)
    -> Result<NeighbourStatus, SetError>;
    /// Adds a port; says what it is now, or why that needs a restart.
    fn add_port(&self, name: &str) -> Result<PortStatus, SetError>;
    /// Begins to remove a port; says what it is now.
    fn remove_port(&self, name: &str) -> Result<PortStatus, SetError>;
    /// The configuration as a whole; none of a daemon that was started without a file.
    fn configurations(&self) -> Option<&dyn Configurations> {
        None
    }
    /// Begins a trace.
    fn trace(&self, request: &TraceRequest) -> Result<TraceLines, SetError>;
    /// Begins to capture what is dropped.
    fn capture_drops(&self, request: &CaptureRequest) -> Result<CaptureFile, SetError>;
    /// Forgets a neighbour; says what it was.
    fn delete_neighbour(&self, port: &str, addr: &str) -> Result<NeighbourStatus, SetError>;
}

/// Where answers about configurations come from.
pub trait Configurations {
    /// The configuration that the daemon runs by.
    fn status(&self) -> ConfigStatus;
    /// What another one would change.
    fn diff(&self, request: &ConfigRequest) -> Result<Vec<ConfigChange>, ConfigRefused>;
    /// Runs by another one from now on.
    fn apply(&self, request: &ConfigRequest) -> Result<ConfigApplied, ConfigRefused>;
    /// Ends a trial: it stays.
    fn confirm(&self) -> Result<ConfigStatus, ConfigRefused>;
    /// Goes back to the one before.
    fn roll_back(&self) -> Result<ConfigStatus, ConfigRefused>;
    /// The time of a trial is over: goes back, unless it has ended.
    fn lapse(&self, trial: u64);
}
