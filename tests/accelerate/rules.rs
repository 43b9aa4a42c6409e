//! Two uplinks, and rules that choose between them: as the kernel has it, by the fast way, while rules come and go
//! under traffic. Needs root.

use std::net::{IpAddr, Ipv4Addr};

use manylane_lab::accelerated::{Accelerated, topology};
use manylane_lab::{Steady, SteadyOptions, Topology, until};

/// The server has an address behind both uplinks; the client has two, and rules name the second.
const TWO_UPLINKS: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    router r1
    link client:eth0 10.1.0.1/24 2001:db8:1::1/64 -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan 10.2.0.254/24 2001:db8:2::fe/64 -- server:eth0 10.2.0.1/24 2001:db8:2::1/64
    link r1:alt 10.3.0.254/24 2001:db8:3::fe/64 -- server:eth1 10.3.0.1/24 2001:db8:3::1/64
";
const BEHIND_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 128, 0, 1));
const BEHIND_V6: &str = "2001:db8:128::1";
const SECOND_V4: &str = "10.1.0.2";
const SECOND_V6: &str = "2001:db8:1::2";

/// The rule, in both families.
const BY_ALT: [&str; 2] = [
    "rule add from 10.1.0.2 lookup 100 priority 100",
    "-6 rule add from 2001:db8:1::2 lookup 100 priority 100",
];

/// What may be opened, and what is translated.
const FIREWALL: &str = "table inet fw {
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        iifname lan accept
    }
    chain out { type nat hook postrouting priority srcnat; oifname { wan, alt } masquerade; }
}";

#[test]
fn who_a_rule_is_about_goes_by_its_table() {
    let Some(topology) = make() else { return };
    let [first, second] = [streams(&topology, false), streams(&topology, true)];
    let accelerated = start(&topology);
    let all: Vec<&Steady> = first.iter().chain(&second).collect();
    leave_by(&accelerated, &all, &[]);

    // Rules appear: no packet is lost, and only the streams that they are about move.
    let marks: Vec<u64> = all.iter().map(|stream| stream.mark()).collect();
    ip(&topology, &BY_ALT);
    let second: Vec<&Steady> = second.iter().collect();
    let first: Vec<&Steady> = first.iter().collect();
    leave_by(&accelerated, &first, &second);
    accelerated.wait_for_no_difference();
    none_is_missing(&all, &marks);
    let mirror = accelerated.mirror().mirror;
    assert_eq!((mirror.counts.further_tables, mirror.kernel_rules.len()), (2, 0), "{mirror:#?}");

    // Their table's route is another, and back.
    for (metric, wan) in [("10", true), ("30", false)] {
        ip(
            &topology,
            &[
                &format!("route replace default via 10.2.0.1 table 100 metric {metric}"),
                &format!("-6 route replace default via 2001:db8:2::1 table 100 metric {metric}"),
            ],
        );
        let (by_wan, by_alt) = if wan { (&all[..], &[][..]) } else { (&first[..], &second[..]) };
        if !wan {
            ip(
                &topology,
                &[
                    "route del default via 10.2.0.1 table 100 metric 10",
                    "-6 route del default via 2001:db8:2::1 table 100 metric 10",
                ],
            );
        }
        leave_by(&accelerated, by_wan, by_alt);
    }
    none_is_missing(&all, &marks);

    // Under traffic, again and again.
    for _ in 0..10 {
        ip(
            &topology,
            &BY_ALT.map(|line| line.replace(" add ", " del ")).each_ref().map(String::as_str),
        );
        ip(&topology, &BY_ALT);
    }
    leave_by(&accelerated, &first, &second);
    accelerated.wait_for_no_difference();
    none_is_missing(&all, &marks);
}

/// With a firewall and translation, connections follow the rules too, each with the address of its uplink.
#[test]
fn connections_go_by_the_uplink_that_a_rule_names() {
    let Some(topology) = make() else { return };
    ip(&topology, &BY_ALT);
    topology.tool("r1", &format!("nft '{FIREWALL}'"));
    let [first, second] = [false, true].map(|is_second| {
        streams_with(&topology, is_second, |to| SteadyOptions { is_answered: true, ..to })
    });
    let accelerated = start(&topology);
    let first: Vec<&Steady> = first.iter().collect();
    let second: Vec<&Steady> = second.iter().collect();
    leave_by(&accelerated, &first, &second);
    // The server answers to the address of the uplink, and manylane forwards answers too.
    let all = || first.iter().chain(&second);
    until("answers are forwarded", || {
        let (before, marks) = (accelerated.port("lan").sent, all().map(|stream| stream.after(50)));
        let marks: Vec<u64> = marks.collect();
        let ends: Vec<u64> = all().map(|stream| stream.after(50)).collect();
        let counts: Vec<u64> = all()
            .zip(marks.iter().zip(&ends))
            .map(|(one, (&from, &to))| one.answered(from..to))
            .collect();
        let forwarded = accelerated.port("lan").sent - before;
        match forwarded >= 4 * 45 && counts.iter().all(|&count| count > 0) {
            true => Ok(()),
            false => Err(format!("{forwarded}, {counts:?}: {:#?}", accelerated.ledger())),
        }
    });
    accelerated.assert_balanced();
}

/// Only the kernel reads marks: packets that meet such a rule are the kernel's, and arrive by it.
#[test]
fn a_rule_by_mark_is_the_kernels_for_whom_it_may_concern() {
    let Some(topology) = make() else { return };
    ip(&topology, &BY_ALT);
    let [first, second] = [streams(&topology, false), streams(&topology, true)];
    let accelerated = start(&topology);
    let first: Vec<&Steady> = first.iter().collect();
    let second: Vec<&Steady> = second.iter().collect();
    leave_by(&accelerated, &first, &second);

    let marks: Vec<u64> = first.iter().map(|stream| stream.mark()).collect();
    let marked = [
        "rule add from 10.1.0.2 fwmark 7 lookup 200 priority 50",
        "-6 rule add from 2001:db8:1::2 fwmark 7 lookup 200 priority 50",
    ];
    ip(&topology, &marked);
    let kernels = || accelerated.passed("kernel_route");
    until("those from the second address are the kernel's", || {
        let (before, alt) = (kernels(), accelerated.port("alt").sent);
        second.iter().for_each(|stream| _ = stream.after(50));
        let (after, now) = (kernels(), accelerated.port("alt").sent);
        if after >= before + 90 && now == alt {
            Ok(())
        } else {
            Err(format!("{before} {after}, {alt} {now}"))
        }
    });
    for stream in &second {
        stream.arrives("by the kernel");
    }
    // The others never noticed, and the ports did not move.
    assert_eq!(accelerated.port("lan").tier, "ingress");
    none_is_missing(&first, &marks);
    let rules = accelerated.mirror().mirror.kernel_rules;
    assert_eq!(rules.len(), 2, "{rules:?}");
    assert!(rules[0].contains("rule 50: from 10.1.0.2/32 [mark] lookup 200"), "{rules:?}");

    ip(
        &topology,
        &marked.map(|line| line.replace(" add ", " del ")).each_ref().map(String::as_str),
    );
    leave_by(&accelerated, &first, &second);
}

/// What a rule forbids, the kernel says; and rules out of order keep the ports there, by name.
#[test]
fn what_a_rule_forbids_does_not_arrive() {
    let Some(topology) = make() else { return };
    let [first, second] = [streams(&topology, false), streams(&topology, true)];
    let accelerated = start(&topology);
    let all: Vec<&Steady> = first.iter().chain(&second).collect();
    leave_by(&accelerated, &all, &[]);
    let forbidden = [
        "rule add from 10.1.0.2 iif lan prohibit priority 60",
        "-6 rule add from 2001:db8:1::2 iif lan unreachable priority 60",
    ];
    ip(&topology, &forbidden);
    let nowhere = || accelerated.passed("nowhere");
    until("the kernel is asked to say so", || {
        let before = nowhere();
        second.iter().for_each(|stream| _ = stream.after(50));
        if nowhere() >= before + 90 { Ok(()) } else { Err(format!("{before}, {}", nowhere())) }
    });
    for stream in &second {
        let (from, to) = (stream.after(20), stream.after(100));
        assert_eq!(stream.arrived(from..to), 0, "none of them");
    }
    let first: Vec<&Steady> = first.iter().collect();
    leave_by(&accelerated, &first, &[]);

    ip(&topology, &["rule add priority 70 lookup local", "rule del priority 0"]);
    let port = accelerated.wait_for_tier("lan", "kernel");
    let [reason] = &port.reasons[..] else { panic!("{port:#?}") };
    assert!(reason.what.contains("does not read the table local: ip -4 rule 60:"), "{reason:?}");
    ip(&topology, &["rule add priority 0 lookup local"]);
    accelerated.wait_for_tier("lan", "ingress");
    leave_by(&accelerated, &first, &[]);
}

fn make() -> Option<Topology> {
    let topology = topology(TWO_UPLINKS)?;
    for (host, line) in [
        ("server", &*format!("ip addr add {BEHIND_V4}/32 dev lo")),
        ("server", &format!("ip addr add {BEHIND_V6}/128 dev lo")),
        ("client", &format!("ip addr add {SECOND_V4}/24 dev eth0")),
        ("client", &format!("ip addr add {SECOND_V6}/64 dev eth0 nodad")),
        ("r1", "ip route add 10.128.0.0/16 via 10.2.0.1"),
        ("r1", "ip route add 2001:db8:128::/48 via 2001:db8:2::1"),
        ("r1", "ip route add default via 10.3.0.1 table 100 metric 20"),
        ("r1", "ip -6 route add default via 2001:db8:3::1 table 100 metric 20"),
    ] {
        topology.tool(host, line);
    }
    Some(topology)
}

fn start(topology: &Topology) -> Accelerated {
    let interfaces = ["lan", "wan", "alt"];
    Accelerated::start(topology.host("r1"), env!("CARGO_BIN_EXE_manylane"), &interfaces)
}

/// Of both families, from the client's second address, or the first.
fn streams(topology: &Topology, is_second: bool) -> [Steady; 2] {
    streams_with(topology, is_second, |options| options)
}

/// As `streams`, with options of its own.
fn streams_with(
    topology: &Topology,
    is_second: bool,
    change: fn(SteadyOptions) -> SteadyOptions,
) -> [Steady; 2] {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    let sources = if is_second { [SECOND_V4, SECOND_V6] } else { ["10.1.0.1", "2001:db8:1::1"] };
    let behind = [BEHIND_V4, BEHIND_V6.parse().expect("it is an address")];
    [0, 1].map(|family: usize| {
        let source = Some(sources[family].parse().expect("it is an address"));
        let options =
            SteadyOptions { source, per_second: 500, ..SteadyOptions::to(behind[family]) };
        Steady::start(client, server, change(options)).expect("sockets are to be had")
    })
}

/// ip(8) on the router.
fn ip(topology: &Topology, lines: &[&str]) {
    lines.iter().for_each(|line| drop(topology.tool("r1", &format!("ip {line}"))));
}

/// Waits until these streams leave by each uplink, all of them by us.
fn leave_by(accelerated: &Accelerated, wan: &[&Steady], alt: &[&Steady]) {
    until(&format!("{} leave by wan, {} by alt", wan.len(), alt.len()), || {
        let sent = || ["wan", "alt"].map(|name| accelerated.port(name).sent);
        let before = sent();
        wan.iter().chain(alt).for_each(|stream| _ = stream.after(50));
        let after = sent();
        // Streams continue while others are waited for; the counters are read one after the other.
        let is_so = |at: usize, streams: &[&Steady]| {
            let count = after[at] - before[at];
            if streams.is_empty() { count == 0 } else { count >= 45 * streams.len() as u64 }
        };
        if is_so(0, wan) && is_so(1, alt) {
            Ok(())
        } else {
            Err(format!("{before:?}, {after:?}; {:#?}", accelerated.ledger()))
        }
    });
    for stream in wan.iter().chain(alt) {
        stream.arrives("by its uplink");
    }
}

/// All that was sent since has arrived, by whichever way.
fn none_is_missing(streams: &[&Steady], marks: &[u64]) {
    for (stream, &mark) in streams.iter().zip(marks) {
        let end = stream.mark();
        stream.arrives("all before it have arrived");
        // Packets that the kernel forwarded may be overtaken.
        until("none is missing", || match stream.missing(mark..end) {
            0 => Ok(()),
            missing => Err(format!("{missing}: {:?}", stream.arrivals())),
        });
    }
}
