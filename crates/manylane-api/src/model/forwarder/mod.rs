//! The answers of the API. Each struct is the JSON, field by field; units are in the names.

mod daemon;
mod ledger;
mod port;
mod routing;
mod worker;

pub use daemon::{ApiError, Daemon, SetError, Setting, SettingValue, SocketStatus, SocketsStatus};
pub use ledger::{
    DropStatus, FrameHolder, FrameLedger, FrameLine, FramesStatus, Ledger, ListStatus, PortLedger,
};
pub use port::{CopyStatus, FaultStatus, PortState, PortStatus, VlanStatus};
pub use routing::{
    AddressState, AddressStatus, MemberStatus, NeighbourState, NeighbourStatus, RouteKind,
    RouteStatus,
};
pub use worker::{
    BucketStatus, PairStatus, PortSteeringStatus, QueueName, QueueOwner, SteeredWorker,
    SteeringStatus, TransmitQueue, WorkerState, WorkerStatus,
};
