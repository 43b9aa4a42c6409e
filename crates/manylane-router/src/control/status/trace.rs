//! Traces, begun and put into words.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use manylane_frame::vocabulary::PortId;
use manylane_net::filter::{Instruction, Program};
use manylane_net::forward::Found;
use manylane_net::nexthop::NextHop;

use super::{Status, unpoisoned};
use crate::control::routing::Routing;
use crate::trace::{Names, TraceError, TracePort, Tracing, Wanted, shown};
use manylane_api::{ApiError, SetError, TraceLine, TraceLines, TraceRequest};

impl Status {
    /// Begins a trace; its lines as they come.
    pub(super) fn begin_trace(&self, request: &TraceRequest) -> Result<TraceLines, SetError> {
        let bad =
            |error: String, help: &str| SetError::BadValue(ApiError { error, help: help.into() });
        let instructions = request.filter.iter().map(|&one| Instruction::from(one)).collect();
        let filter = Program::new(instructions).map_err(|error| {
            bad(format!("the filter cannot be run: {error}"), "send what libpcap's compiler makes")
        })?;
        let port = request.port.as_ref().map(|name| self.trace_port(name)).transpose()?;
        let wanted = Wanted { count: request.count, filter, port };
        let mut trace = self.traces.begin(wanted).map_err(|error| match error {
            TraceError::Count(_) => bad(error.to_string(), "begin another one for more"),
            TraceError::Running | TraceError::Busy => SetError::NoRoom(ApiError {
                error: error.to_string(),
                help: "a daemon has one trace at a time".into(),
            }),
        })?;
        let names = Known {
            ports: self.ports.iter().map(|port| port.name.clone()).collect(),
            routing: self.routing.clone(),
            on_link: super::unpoisoned(&self.on_link).clone(),
        };
        let mut before = Tracing::default();
        Ok(TraceLines::new(move || {
            let mut stages = Vec::new();
            let now = trace.read(|worker, stage| stages.push((worker, stage)));
            let mut lines = Vec::new();
            if now.is_armed && !before.is_armed {
                lines.push(TraceLine::Armed);
            }
            // Put into words when the workers' rings are empty again.
            let stage = |(worker, stage)| TraceLine::Stage(shown(worker, stage, &names));
            lines.extend(stages.into_iter().map(stage));
            if now.lost > 0 && (now.lost, now.packets) != (before.lost, before.packets) {
                lines.push(TraceLine::Lost { stages: now.lost, packets: now.packets });
            }
            before = now;
            let line =
                |line| serde_json::to_string(&line).expect("it has no map with other keys") + "\n";
            lines.into_iter().map(line).collect()
        }))
    }

    fn trace_port(&self, name: &str) -> Result<TracePort, SetError> {
        let of_name = (0..).map(PortId).zip(&self.ports).find(|(_, port)| port.name == name);
        let Some((id, _)) = of_name else {
            let names: Vec<&str> = self.ports.iter().map(|port| &*port.name).collect();
            return Err(SetError::UnknownKey(ApiError {
                error: format!("port `{name}` does not exist"),
                help: format!("there are {}", names.join(", ")),
            }));
        };
        let vlan = unpoisoned(&self.routing).facts(id).vlan;
        let (device, tags) = vlan.map_or((id, None), |vlan| (vlan.port, Some(vlan.tags)));
        Ok(TracePort { device, tags })
    }
}

/// What a trace's numbers stand for.
struct Known {
    ports: Vec<String>,
    routing: Arc<Mutex<Routing>>,
    on_link: Vec<String>,
}

impl Names for Known {
    fn port(&self, port: PortId) -> String {
        self.ports.get(port.index()).cloned().unwrap_or_else(|| port.to_string())
    }

    fn prefix(&self, found: &Found) -> Option<(String, bool)> {
        if found.next_hop == NextHop::None {
            return None;
        }
        let destination: IpAddr = found.destination;
        let (prefix, id) = unpoisoned(&self.routing).longest(destination)?;
        let prefix = prefix.to_string();
        let is_on_link = self.on_link.contains(&prefix);
        (id.raw() == found.id).then_some((prefix, is_on_link))
    }
}
