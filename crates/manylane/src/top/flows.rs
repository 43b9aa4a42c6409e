//! Which flows packets are of: a sample of the received packets, by the daemon's own trace, or by its programs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use manylane_api::accelerate::{AcceleratedFlow, AcceleratedFlows};
use manylane_api::{Client, ClientError, TraceLine, TraceRequest, TraceWhat};
use manylane_net::wire::summary as header;

/// Packets by flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// Packets that were looked at.
    pub packets: u64,
    /// How many of each.
    pub by_flow: BTreeMap<FlowAt, u64>,
}

/// A flow, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowAt {
    /// The ingress port.
    pub port: String,
    pub flow: String,
    /// The forwarder of it, or why it is the kernel's; empty where that is no question.
    pub by: String,
}

impl Flows {
    /// Counts a packet that `port` received, with these headers.
    pub fn add(&mut self, port: &str, headers: &str) {
        let flow = header::flow_in(headers).unwrap_or("no IP").to_owned();
        self.packets += 1;
        let at = FlowAt { port: port.to_owned(), flow, by: String::new() };
        *self.by_flow.entry(at).or_default() += 1;
    }

    /// Counts these, too.
    pub fn merge(&mut self, other: &Flows) {
        self.packets += other.packets;
        for (flow, packets) in &other.by_flow {
            *self.by_flow.entry(flow.clone()).or_default() += packets;
        }
    }
}

impl From<AcceleratedFlows> for Flows {
    fn from(sampled: AcceleratedFlows) -> Flows {
        let flow = |one: AcceleratedFlow| {
            let by = if one.reason.is_empty() { one.by } else { one.reason };
            (FlowAt { port: one.port, flow: one.flow, by }, one.packets)
        };
        let by_flow = sampled.flows.into_iter().map(flow).collect();
        Flows { packets: sampled.packets, by_flow }
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

/// Samples the flows of an accelerator, which takes the sample itself.
pub fn accelerated(client: &Client) -> Result<Flows, String> {
    match client.post::<AcceleratedFlows>("/v1/accelerate/flows", &()) {
        Ok(sampled) => Ok(sampled.into()),
        Err(ClientError::Refused(refused)) => Err(refused.error),
        Err(error) => Err(error.to_string()),
    }
}

/// `BPF_RET | BPF_K`: every packet.
const RETURN: u16 = 0x06;
const PACKETS: u32 = 32;
const PATIENCE: Duration = Duration::from_millis(200);
