//! Packets put together of their stages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use manylane_api::{TraceStage, TraceWhat};

/// A packet and all that was done with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// Which packet of the trace, from 1.
    pub packet: u32,
    /// Whether it was followed to its end.
    pub complete: bool,
    /// What was done, in the order of time.
    pub stages: Vec<TraceStage>,
}

/// Packets on their way.
#[derive(Debug, Default)]
pub struct Together {
    packets: BTreeMap<u32, OnItsWay>,
}

#[derive(Debug, Default)]
struct OnItsWay {
    stages: Vec<TraceStage>,
    /// What was received and made of it, less what has ended. Below 0 while the first stages are still to come.
    packets: i64,
    /// Handed on and not taken; below 0 alike.
    handed_on: i64,
    is_received: bool,
}

impl Together {
    /// Takes in a stage; gives out the packet, if that was its end.
    ///
    /// A worker's stages come in order, and a packet is one worker's at a time: what it is made into comes before
    /// the end of any of that. So once it was received, nothing of it is on its way when the sum is 0, and nothing of
    /// it is still to be reported when what was taken was handed on, too.
    pub fn add(&mut self, stage: TraceStage) -> Option<Followed> {
        let number = stage.packet;
        let packet = self.packets.entry(number).or_default();
        packet.packets += stage.what.packets();
        packet.handed_on += match stage.what {
            TraceWhat::Steered { to, .. } => i64::from(to != stage.worker),
            TraceWhat::Taken { .. } => -1,
            _ => 0,
        };
        packet.is_received |= matches!(stage.what, TraceWhat::Received { .. });
        packet.stages.push(stage);
        let is_over = packet.is_received && packet.packets == 0 && packet.handed_on == 0;
        is_over
            .then(|| self.packets.remove(&number))
            .flatten()
            .map(|over| over.followed(number, true))
    }

    /// What has not come to its end.
    pub fn rest(self) -> impl Iterator<Item = Followed> {
        self.packets.into_iter().map(|(number, rest)| rest.followed(number, false))
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

impl OnItsWay {
    fn followed(mut self, packet: u32, complete: bool) -> Followed {
        self.stages.sort_by_key(|stage| stage.time_ns); // Stable: each worker's keep their order.
        Followed { packet, complete, stages: self.stages }
    }
}
