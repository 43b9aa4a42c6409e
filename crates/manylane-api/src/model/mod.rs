//! The JSON of the API, by daemon and by question, and the traits by which a daemon answers.
//!
//! Names here are the JSON: fields may be added, and none ever changes without a line in the changelog.

pub mod accelerate;
mod capture;
mod export;
mod extent;
mod forwarder;
mod interface;
mod kernel_flows;
mod sflow;
mod source;
mod trace;
mod tracked;
mod transaction;
mod unseen;
mod why;

pub use capture::{CaptureFile, CapturePart, CaptureRequest, SNAP_MAX};
pub use export::{CollectorStatus, ExportStatus, NatLogStatus, SampleExportStatus, SampledStatus};
pub use extent::Extent;
pub use forwarder::{
    AddressState, AddressStatus, ApiError, BucketStatus, CopyStatus, Daemon, DropStatus,
    FaultStatus, FrameHolder, FrameLedger, FrameLine, FramesStatus, Ledger, ListStatus,
    MemberStatus, NeighbourState, NeighbourStatus, PairStatus, PortLedger, PortState, PortStatus,
    PortSteeringStatus, QueueName, QueueOwner, RouteKind, RouteStatus, SetError, Setting,
    SettingValue, SocketStatus, SocketsStatus, SteeredWorker, SteeringStatus, TransmitQueue,
    VlanStatus, WorkerState, WorkerStatus,
};
pub use sflow::{SflowPort, SflowStatus};
pub use source::{Configurations, Source};
pub use trace::{TraceLine, TraceLines, TraceRequest, TraceStage, TraceWhat};
pub use transaction::{
    CONFIG_REQUEST_BYTES_MAX, ConfigApplied, ConfigChange, ConfigRefused, ConfigRequest,
    ConfigStatus,
};
