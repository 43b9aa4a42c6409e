//! The state between the trace's control and the workers that record: the wanted packets, and a ring for each worker.

use std::sync::Arc;

use manylane_frame::vocabulary::PortId;
use manylane_net::filter::Program;
use manylane_net::wire::ethernet::Tags;
use manylane_sync::counters::SharedCount;
use manylane_sync::hook::HookReader;
use manylane_sync::ring::Producer;

use crate::stage::Stage;

/// Packets of one trace.
pub const PACKETS_MAX: u32 = 1000;

const _: () = assert!(PACKETS_MAX < u16::MAX as u32, "a frame has 16 bits for it");

/// The packets that an operator wants to trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// How many packets: 1 to [`PACKETS_MAX`].
    pub count: u32,
    /// Which packets, as they are received.
    pub filter: Program,
    /// The port that receives them; any port if `None`.
    pub port: Option<TracePort>,
}

/// A port to follow packets from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePort {
    /// The port whose device it has.
    pub device: PortId,
    /// Of a sub-interface.
    pub tags: Option<Tags>,
}

impl TracePort {
    /// Whether a packet that begins so, received by the device of `port`, is of this port.
    pub fn is(&self, port: PortId, bytes: &[u8]) -> bool {
        let has = |tags: Tags| Tags::of(bytes, tags.as_bytes().len() / 4) == Some(tags);
        port == self.device && self.tags.is_none_or(has)
    }
}

/// What workers know of the trace that is running.
#[derive(Clone, Debug)]
pub struct Session {
    /// Which trace; frames of another one carry another number.
    pub number: u16,
    /// Which packets.
    pub wanted: Arc<Wanted>,
    /// How many packets may be numbered; 0 before all workers know of the trace.
    pub packets_max: Arc<SharedCount>,
    /// How many have been.
    pub numbered: Arc<SharedCount>,
}

impl PartialEq for Session {
    fn eq(&self, other: &Session) -> bool {
        self.number == other.number
    }
}

/// A worker's recorder.
pub struct Recorder {
    /// Finds the running trace.
    pub sessions: HookReader<Session>,
    /// Takes the stages.
    pub ring: Producer<Stage>,
    /// Stages that found no place.
    pub lost: Arc<SharedCount>,
}
