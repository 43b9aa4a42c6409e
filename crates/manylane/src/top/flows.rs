//! Which flows packets are of: a sample of those that come in, by the daemon's own trace.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::api::{Client, ClientError, TraceLine, TraceRequest, TraceWhat};
use crate::trace::header;

/// Packets by flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// Packets that were looked at.
    pub packets: u64,
    /// How many by port of entry and flow.
    pub by_flow: BTreeMap<(String, String), u64>,
}

impl Flows {
    /// Counts one that came in by `port`, with these headers.
    pub fn add(&mut self, port: &str, headers: &str) {
        let flow = header::flow_in(headers).unwrap_or("no IP").to_owned();
        self.packets += 1;
        *self.by_flow.entry((port.to_owned(), flow)).or_default() += 1;
    }

    /// Counts these, too.
    pub fn merge(&mut self, other: &Flows) {
        self.packets += other.packets;
        for (flow, packets) in &other.by_flow {
            *self.by_flow.entry(flow.clone()).or_default() += packets;
        }
    }
}

/// Looks at the next packets: so few that nothing is slower for it, and for a short time where few come.
pub fn sample(client: &Client) -> Result<Flows, String> {
    let request =
        TraceRequest { count: PACKETS, filter: vec![(RETURN, 0, 0, u32::MAX)], port: None };
    let body = serde_json::to_string(&request).map_err(|error| error.to_string())?;
    let mut flows = Flows::default();
    let enough = async { tokio::time::sleep(PATIENCE).await };
    let outcome = client.follow("/v1/trace", body, enough, |line| {
        // Empty lines are signs of life.
        if let Ok(TraceLine::Stage(stage)) = serde_json::from_str(line)
            && let TraceWhat::Received { port, header, .. } = stage.what
        {
            flows.add(&port, &header);
        }
        match flows.packets < PACKETS.into() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    match outcome {
        Ok(_) => Ok(flows),
        Err(ClientError::Refused(refused)) => Err(refused.error),
        Err(error) => Err(error.to_string()),
    }
}

/// `BPF_RET | BPF_K`: every packet.
const RETURN: u16 = 0x06;
const PACKETS: u32 = 32;
const PATIENCE: Duration = Duration::from_millis(200);
