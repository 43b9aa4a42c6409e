//! The flow table of the accelerator that is none.

use crate::model::accelerate::*;

/// A table with two connections, one direction of them the kernel's.
pub(super) fn lane() -> LaneStatus {
    let count = |reason: &str, explanation: &str, total| LaneCount {
        reason: reason.into(),
        explanation: explanation.into(),
        total,
    };
    LaneStatus {
        needed_ipv4: true,
        needed_ipv6: true,
        generation: 3,
        capacity: 131_072,
        used: 2,
        polled: 1,
        candidates: 20,
        admitted: 12,
        refused: vec![
            count("unsettled", "conntrack has not seen enough of it", 6),
            count("rules", "a rule does more to its packets than to accept them", 2),
            count("full", "the flow table is full", 0),
        ],
        removed: vec![count("ended", "its connection has ended", 10)],
        renewed: 7,
        relaxed: 1,
        resyncs: 0,
        reviews: 4,
        moved: 1,
        is_reviewing: false,
        trouble: None,
    }
}

/// The connections, as the request wants them.
pub(super) fn table(request: &TrackedFlowsRequest) -> TrackedFlows {
    let all = [masqueraded(), plain()];
    let named = |flow: &TrackedFlow| request.protocol.is_none_or(|one| one.name() == flow.protocol);
    let matching: Vec<_> = all.into_iter().filter(named).collect();
    let sum = |part: fn(&TrackedDirection) -> u64| {
        matching.iter().map(|flow| part(&flow.original) + part(&flow.reply)).sum()
    };
    TrackedFlows {
        total: matching.len() as u64,
        packets: sum(|direction| direction.packets),
        bytes: sum(|direction| direction.bytes),
        used: 2,
        capacity: 131_072,
        offset: request.offset as u64,
        sums: sums(&matching),
        flows: matching.iter().skip(request.offset).take(request.limit).cloned().collect(),
    }
}

fn sums(flows: &[TrackedFlow]) -> Vec<TrackedSum> {
    let mut sums: Vec<TrackedSum> = Vec::new();
    for direction in flows.iter().flat_map(|flow| [&flow.original, &flow.reply]) {
        let TrackedDirection { ingress, tier, packets, bytes, .. } = direction;
        let found = sums.iter_mut().find(|sum| (&sum.ingress, &sum.tier) == (ingress, tier));
        let sum = match found {
            Some(sum) => sum,
            None => {
                let (ingress, tier) = (ingress.clone(), tier.clone());
                sums.push(TrackedSum { ingress, tier, ..TrackedSum::default() });
                sums.last_mut().expect("it has just been pushed")
            }
        };
        (sum.directions, sum.packets) = (sum.directions + 1, sum.packets + packets);
        sum.bytes += bytes;
    }
    sums
}

/// Connections that the kernel forwards: one has too few packets yet, one a rule, one a helper.
pub(super) fn kernel(request: &KernelFlowsRequest) -> KernelFlows {
    let all = [young(), ruled(), helped()];
    let is_chosen = |flow: &KernelFlow| {
        request.protocol.is_none_or(|one| one.name() == flow.protocol)
            && request.reason.as_ref().is_none_or(|reason| *reason == flow.reason)
    };
    let chosen: Vec<_> = all.into_iter().filter(is_chosen).collect();
    let reason = |flow: &KernelFlow| LaneCount {
        reason: flow.reason.clone(),
        explanation: flow.explanation.clone(),
        total: 1,
    };
    KernelFlows {
        total: chosen.len() as u64,
        read: 6,
        tracked: 2,
        local: 1,
        unneeded: 0,
        is_truncated: true,
        offset: request.offset as u64,
        counts: true,
        reasons: chosen.iter().map(reason).collect(),
        flows: chosen.iter().skip(request.offset).take(request.limit).cloned().collect(),
        trouble: None,
    }
}

fn young() -> KernelFlow {
    KernelFlow {
        id: 0x2345_6789,
        protocol: "tcp".into(),
        source: "10.1.0.1:4001".into(),
        destination: "10.2.0.1:80".into(),
        translated_source: "10.2.0.254:4001".into(),
        translated_destination: "10.2.0.1:80".into(),
        nat: "snat".into(),
        ingress: Some("lan".into()),
        egress: Some("wan".into()),
        state: "ESTABLISHED, assured, mark 0x0".into(),
        reason: "candidate".into(),
        explanation: "some more packets of a direction give it an entry".into(),
        obstacle: None,
        counted: Some(KernelCounts {
            original_packets: 7,
            original_bytes: 700,
            reply_packets: 5,
            reply_bytes: 5_000,
        }),
        expires_s: Some(431_990),
    }
}

fn ruled() -> KernelFlow {
    let ends = ["[2001:db8:1::1]:4000", "[2001:db8:2::1]:443"].map(String::from);
    let [source, destination] = ends;
    KernelFlow {
        id: 8,
        translated_source: source.clone(),
        translated_destination: destination.clone(),
        source,
        destination,
        nat: "none".into(),
        reason: "rules".into(),
        explanation: obstacle().text,
        obstacle: Some(obstacle()),
        ..young()
    }
}

fn helped() -> KernelFlow {
    KernelFlow {
        id: 9,
        source: "10.1.0.1:4002".into(),
        destination: "10.2.0.1:21".into(),
        translated_source: "10.2.0.254:4002".into(),
        translated_destination: "10.2.0.1:21".into(),
        ingress: Some("lan".into()),
        egress: None,
        reason: "helped".into(),
        explanation:
            "a helper, a sequence adjustment or a SYN proxy of the kernel looks at its packets"
                .into(),
        expires_s: None,
        ..young()
    }
}

/// One connection that conntrack does not have.
pub(super) fn diff() -> TrackedFlowsDiff {
    let line = "udp [2001:db8:1::1]:4000 > [2001:db8:2::1]:53: conntrack has no such connection";
    TrackedFlowsDiff { compared: 2, differences: vec![line.into()], total: 1 }
}

/// Collectors of each protocol, one of them away.
pub(super) fn export() -> ExportStatus {
    let collector = |address: &str| CollectorStatus {
        address: address.into(),
        protocol: "ipfix".into(),
        state: "sending".into(),
        sent_messages: 200,
        sent_bytes: 180_000,
        sent_records: 2_400,
        ..CollectorStatus::default()
    };
    let away = CollectorStatus {
        state: "unreachable".into(),
        trouble: Some("Connection refused (os error 111)".into()),
        sent_messages: 150,
        lost_messages: 50,
        lost_records: 600,
        refused_messages: 3,
        connections: 1,
        ..collector("tcp://[2001:db8::5]:4739")
    };
    let samples = CollectorStatus { protocol: "sflow".into(), ..collector("udp://10.2.0.5:6343") };
    let sampled =
        CollectorStatus { protocol: "ipfix-sampled".into(), ..collector("udp://10.2.0.5:4739") };
    let lan = SflowPort {
        name: "lan".into(),
        rate: 1000,
        pool: 2_300_000,
        noted: 2_290,
        lost: 10,
        unreported: 4,
    };
    ExportStatus {
        collectors: vec![collector("udp://10.2.0.5:4739"), away, sampled, samples],
        active_s: 60,
        inactive_s: 15,
        domain: 1,
        queue_lost_records: 7,
        queue_lost_packets: 700,
        nat_log: Some(NatLogStatus { events: 1200, gaps: 1, trouble: None }),
        sampled: Some(SampledStatus {
            domain: 0x8000_0001,
            rate: 1000,
            samples: 1_900,
            flows: 40,
            evicted: 6,
            lost: 10,
        }),
        sflow: Some(SflowStatus {
            agent: Some([10, 2, 0, 254].into()),
            polling_ms: 20_000,
            samples: 2_290,
            discarded: 110,
            unreported: 3,
            ports: vec![lan],
        }),
    }
}

/// Why the second connection's replies are the kernel's.
pub(super) fn why(transport: Option<(TransportProtocol, [u16; 2])>) -> WhyFlow {
    let rules = |ingress: &str, egress: &str, answer: &str, obstacle| WhyRules {
        ingress: ingress.into(),
        egress: egress.into(),
        protocol: "udp".into(),
        answer: answer.into(),
        obstacle,
    };
    WhyFlow {
        state: if transport.is_some() { "kernel" } else { "class" }.into(),
        reason: "rules".into(),
        explanation: "a rule does more to its packets than to accept them".into(),
        entry: transport.map(|_| plain()),
        connection: transport.map(|_| "udp [2001:db8:1::1]:4000 > [2001:db8:2::1]:53".into()),
        rules: vec![
            rules("lan", "wan", "accept", None),
            rules("wan", "lan", "kernel", Some(obstacle())),
        ],
    }
}

fn masqueraded() -> TrackedFlow {
    let forwarded = |ingress: &str, egress: &str, packets: u64, bytes| TrackedDirection {
        ingress: ingress.into(),
        egress: egress.into(),
        state: "forwarded".into(),
        tier: "ingress".into(),
        packets,
        bytes,
        passed: 2,
        ..TrackedDirection::default()
    };
    TrackedFlow {
        id: 0x1234_5678,
        protocol: "tcp".into(),
        source: "10.1.0.1:4000".into(),
        destination: "10.2.0.1:80".into(),
        translated_source: "10.2.0.254:4000".into(),
        translated_destination: "10.2.0.1:80".into(),
        nat: "snat".into(),
        original: forwarded("lan", "wan", 1000, 60_000),
        reply: forwarded("wan", "lan", 2000, 3_000_000),
        age_s: 61,
        idle_s: Some(0),
        expires_s: 432_000,
        end: "announced".into(),
    }
}

fn plain() -> TrackedFlow {
    let ends = ["[2001:db8:1::1]:4000", "[2001:db8:2::1]:53"].map(String::from);
    let [source, destination] = ends;
    TrackedFlow {
        id: 7,
        protocol: "udp".into(),
        translated_source: source.clone(),
        translated_destination: destination.clone(),
        source,
        destination,
        nat: "none".into(),
        original: TrackedDirection { packets: 10, bytes: 1000, ..masqueraded().original },
        reply: TrackedDirection {
            state: "kernel".into(),
            tier: "kernel".into(),
            reason: "rules".into(),
            explanation: obstacle().text,
            packets: 0,
            bytes: 0,
            passed: 9,
            ..masqueraded().reply
        },
        age_s: 5,
        idle_s: None,
        expires_s: 120,
        end: "polled".into(),
    }
}

fn obstacle() -> FlowObstacle {
    FlowObstacle {
        family: "inet".into(),
        table: "filter".into(),
        chain: "forward".into(),
        handle: Some(4),
        rule: "iifname \"wan\" log".into(),
        is_legacy: false,
        text:
            "table inet filter, chain forward, handle 4: `iifname \"wan\" log`: logs such packets"
                .into(),
        cure: Some("to log first packets only, put `ct state new` in front of `log`".into()),
    }
}
