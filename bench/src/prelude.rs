//! The names that nearly every question uses.

pub use std::hint::{black_box, spin_loop};
pub use std::io;
pub use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
pub use std::sync::{Arc, Mutex, MutexGuard};
pub use std::thread;
pub use std::time::{Duration, Instant};

pub use manylane_frame::vocabulary::PortId;
pub use manylane_frame::{BATCH_MAX, Batch, Depot, Frame, HEADROOM, Pool, Region, RegionConfig};
pub use manylane_io::affinity;
pub use manylane_io::port::memory::{Next, Sink, Source};
pub use manylane_lab::device::{
    Arrival, DESTINATION, Device, FRAME_LEN, Head, Reading, Run, Switch, TARGETS, Target, head,
    ipv4_template,
};
pub use manylane_lab::prefixes::Prefixes;
pub use manylane_lab::random::Random;
pub use manylane_net::fib::NextHopId;
pub use manylane_sync::CacheAligned;
pub use manylane_sync::counters::{CounterReader, Counters, SharedCount};
pub use manylane_sync::primitive::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use manylane_sync::rcu::{Domain, Guard, Index, Reader};
pub use manylane_sync::ring::{Consumer, Producer, ring};
pub use manylane_sync::words::{Words, WordsMut};
pub use manylane_worker::stats::{PortCount, StatsReader};
pub use manylane_worker::worker::{Clock, Worker};

pub use crate::figure::{Output, Rounds, quantile};
pub use crate::router::{Error, Result};
pub use crate::threads::{BATCH, Bench, Lap, Share, Slice, Stopping, Watch, lock, ns_of, of};
pub use crate::{Pace, Table};
