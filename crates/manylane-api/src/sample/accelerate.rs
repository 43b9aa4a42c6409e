//! An accelerator that is none: what tests show.

use std::collections::BTreeMap;

use super::tracked;
use crate::model::accelerate::*;
use crate::model::{
    ApiError, CaptureFile, CapturePart, CaptureRequest, RouteKind, RouteStatus, SetError, Setting,
    SettingValue,
};

/// Two ports, one of them the kernel's.
pub struct Sample;

impl Accelerated for Sample {
    fn daemon(&self) -> AcceleratorStatus {
        AcceleratorStatus {
            kind: "accelerate".into(),
            version: "0.1.0".into(),
            pid: 42,
            uptime_s: 7,
            lease: lease(),
        }
    }

    fn states(&self) -> Vec<AcceleratedPort> {
        self.ports()
    }

    fn ports(&self) -> Vec<AcceleratedPort> {
        let lan = AcceleratedPort {
            port: 1,
            name: "lan".into(),
            index: Some(2),
            mac: Some("02:00:00:00:00:01".into()),
            mtu: 1500,
            link_up: true,
            tier: "ingress".into(),
            ingress: true,
            egress: true,
            attached: true,
            programs: vec!["watch (17)".into()],
            seen: 1_000_107,
            forwarded: 1_000_000,
            tiers: BTreeMap::from([("driver".into(), 400_000), ("ingress".into(), 600_000)]),
            forwarded_bytes: 64_000_000,
            passed: BTreeMap::from([("local".into(), 100), ("not_ip".into(), 7)]),
            interface: Some(InterfaceCounters {
                in_octets: 64_010_000,
                in_unicast: 1_000_107,
                in_added: 400_000,
                in_discards: 2,
                ..InterfaceCounters::default()
            }),
            ..AcceleratedPort::default()
        };
        let wan = AcceleratedPort {
            port: 2,
            name: "wan".into(),
            mtu: 9000,
            tier: "kernel".into(),
            reasons: vec![filter(), down()],
            unseen: UnseenTime { for_ms: Some(62_000), total_ms: 62_000 },
            sent: 1_000_000,
            sent_bytes: 64_000_000,
            device_dropped: 3,
            ..AcceleratedPort::default()
        };
        vec![lan, wan]
    }

    fn drops(&self) -> Vec<PassedStatus> {
        let status = |reason: &str, by: &str, total| PassedStatus {
            reason: reason.into(),
            by: by.into(),
            explanation: "why it is so".into(),
            total,
            ports: BTreeMap::from([("lan".into(), total)]),
        };
        vec![
            status("local", "passed", 100),
            status("ttl", "passed", 0),
            status("tx_dropped", "device", 3),
        ]
    }

    fn ledger(&self) -> AcceleratedLedger {
        AcceleratedLedger {
            seen: 1_000_107,
            forwarded: 1_000_000,
            passed: BTreeMap::from([("local".into(), 100), ("not_ip".into(), 7)]),
            sent: 1_000_000,
            device_dropped: 3,
            unseen: BTreeMap::from([(
                "wan".into(),
                UnseenTime { for_ms: Some(62_000), total_ms: 62_000 },
            )]),
            ..AcceleratedLedger::default()
        }
    }

    fn flows(&self) -> Result<AcceleratedFlows, AskError> {
        let flow = |flow: &str, by: &str, reason: &str, packets| AcceleratedFlow {
            port: "lan".into(),
            flow: flow.into(),
            by: by.into(),
            reason: reason.into(),
            packets,
        };
        let flows = vec![
            flow("10.1.0.1:4000 > 10.2.0.1:53 UDP", "ingress", "", 3),
            flow("[2001:db8:1::1]:4000 > [2001:db8:2::1]:443 TCP", "kernel", "ttl", 1),
        ];
        Ok(AcceleratedFlows { packets: 4, one_in: 16, flows })
    }

    fn config(&self) -> AcceleratorConfig {
        AcceleratorConfig {
            interfaces: vec!["lan".into(), "wan".into()],
            bypass: vec!["netfilter".into()],
            tier: "auto".into(),
            port_tiers: BTreeMap::from([("wan".into(), "driver".into())]),
            lease_ms: 200,
            stale_limit_ms: 2000,
            workers: 1,
            socket: Some("/run/x.sock".into()),
            seed: 0x1234,
        }
    }

    fn capture_drops(&self, _: &CaptureRequest) -> Result<CaptureFile, SetError> {
        Ok(CaptureFile::new(|_| CapturePart::Last(vec![10])))
    }

    fn set(&self, key: &str, value: &str) -> Result<Setting, AskError> {
        if key != "port.lan.tier" {
            let error = format!("{key} cannot be set");
            return Err(AskError::BadQuestion(ApiError {
                error,
                help: "port.lan.tier can".into(),
            }));
        }
        let warning = (value == "driver")
            .then(|| "the tier is set to driver, on a software device (veth)".into());
        Ok(Setting { warning, ..Setting::new(key, SettingValue::Word(value.into())) })
    }

    fn add_port(&self, name: &str) -> Result<AcceleratedPort, AskError> {
        match self.ports().into_iter().find(|port| port.name == name) {
            Some(_) => Err(AskError::BadQuestion(ApiError {
                error: format!("{name} is there"),
                help: "name another".into(),
            })),
            None => Ok(AcceleratedPort { port: 3, name: name.into(), ..self.ports()[0].clone() }),
        }
    }

    fn mirror(&self) -> Result<MirrorStatus, AskError> {
        let mut mirror =
            MirrorStatus { lease: lease(), verified_ms_ago: 12, ..MirrorStatus::default() };
        mirror.waits = vec![WaitStatus {
            activity: "gate".into(),
            meaning: "it looks at filters, queueing disciplines and programs".into(),
            longest_ms: 312,
            lapses: 1,
        }];
        mirror.mirror.is_complete = true;
        mirror.mirror.ipv4.routes = 900_000;
        mirror.mirror.ipv4.single_path = 900_000;
        mirror.mirror.starved = 5;
        Ok(mirror)
    }

    fn diff(&self) -> Result<Vec<String>, AskError> {
        Ok(vec!["+ route 10.0.0.0/8 via 10.2.0.1".into()])
    }

    fn routes(&self) -> Result<Vec<RouteStatus>, AskError> {
        Ok(vec![RouteStatus {
            prefix: "0.0.0.0/0".into(),
            kind: RouteKind::Via,
            via: Some("10.2.0.1".into()),
            port: Some("wan".into()),
            group: Vec::new(),
        }])
    }

    fn neighbours(&self) -> Result<Vec<MirroredNeighbour>, AskError> {
        Err(AskError::Silent(ApiError { error: "it is silent".into(), help: "wait".into() }))
    }

    fn lane(&self) -> Result<LaneStatus, AskError> {
        Ok(tracked::lane())
    }

    fn tracked_flows(&self, request: &TrackedFlowsRequest) -> Result<TrackedFlows, AskError> {
        Ok(tracked::table(request))
    }

    fn kernel_flows(&self, request: &KernelFlowsRequest) -> Result<KernelFlows, AskError> {
        Ok(tracked::kernel(request))
    }

    fn tracked_flows_diff(&self) -> Result<TrackedFlowsDiff, AskError> {
        Ok(tracked::diff())
    }

    fn export(&self) -> ExportStatus {
        tracked::export()
    }

    fn why(&self, question: &WhyQuestion) -> Result<Why, AskError> {
        if question.interface != "lan" {
            let error = format!("{} is not accelerated", question.interface);
            return Err(AskError::BadQuestion(ApiError { error, help: "name lan".into() }));
        }
        Ok(Why {
            forwarded: true,
            verdict: "forwarded".into(),
            explanation: "forwarded by the program.".into(),
            egress: Some("wan".into()),
            to: Some("02:00:00:00:00:02".into()),
            reasons: Vec::new(),
            mirror: Some(MirrorWhy {
                verdict: "forwarded".into(),
                reason: "by wan".into(),
                rule: Some("ip -4 rule 32766: from all lookup main".into()),
                table: Some(254),
                prefix: Some("default".into()),
                routes: vec!["default via 10.2.0.1 dev wan".into()],
                hops: vec![WhyHop {
                    gateway: "10.2.0.1".parse().unwrap(),
                    egress: "wan".into(),
                    weight: 1,
                    mtu: 1500,
                    neighbour: "reachable 02:00:00:00:00:02".into(),
                    is_usable: true,
                }],
                egress: vec!["wan".into()],
                is_pending: false,
            }),
            flow: Some(tracked::why(question.transport)),
            tier: "ingress".into(),
            kernel: Some(kernel_way()),
            result: "ingress: transmitted by wan".into(),
        })
    }
}

/// Beside an answer that needs none: so that all fields are shown.
fn kernel_way() -> WhyKernel {
    let step = |rule, verdict: &str| WhyStep {
        chain: "forward".into(),
        rule,
        handle: rule.map(|rule| rule as u64 + 3),
        text: rule.map(|_| "ct state established,related accept".into()),
        verdict: verdict.into(),
        by_policy: rule.is_none(),
    };
    WhyKernel {
        verdict: "dropped".into(),
        explanation: "table inet filter, chain forward, policy drops the packet".into(),
        connection: "none: taken for the first packet of a connection".into(),
        route: "via 10.2.0.1 dev wan".into(),
        egress: Some("wan".into()),
        gateway: Some("10.2.0.1".into()),
        neighbour: Some("reachable".into()),
        chains: vec![WhyChain {
            hook: "forward".into(),
            priority: 0,
            family: "inet".into(),
            table: "filter".into(),
            chain: "forward".into(),
            is_legacy: false,
            steps: vec![step(Some(1), "unknown"), step(None, "drop")],
        }],
    }
}

fn lease() -> LeaseStatus {
    LeaseStatus {
        holds: true,
        remaining_ms: 187,
        tables: "current".into(),
        limit_ms: 200,
        stale_limit_ms: 2000,
        renewals: 2,
        checks: 4_711,
    }
}

fn filter() -> ReasonStatus {
    ReasonStatus {
        what: "chain inet filter forward drops".into(),
        why: "the kernel drops what it does not allow".into(),
        command: String::new(),
    }
}

fn down() -> ReasonStatus {
    ReasonStatus {
        what: "wan is down".into(),
        why: "nothing goes through it".into(),
        command: "ip link set dev wan up".into(),
    }
}
