use clap::CommandFactory;

use super::show::Question;
use super::*;
use crate::tables;
use crate::terminal::table;
use manylane_api::Source;
use manylane_api::sample::Sample;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

/// The same words as in the documents, each with its help.
#[test]
fn only_what_works_is_listed() {
    let help = Cli::command().render_help().to_string();
    let listed: Vec<_> =
        help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert_eq!(
        listed,
        [
            "demo",
            "run",
            "accelerate",
            "show",
            "top",
            "trace",
            "config",
            "neighbour",
            "port",
            "capture",
            "doctor",
            "completions",
            "help",
            "-h,",
            "-V,"
        ]
    );
    for (words, path) in [
        ("show neigh", "/neighbours"),
        ("show ledger --json", "/ledger"),
        ("show mirror --diff", "/mirror/diff"),
        ("show why 10.1.0.1 2001:db8::1 -i eth0.5", "/why/eth0.5/10.1.0.1/2001%3Adb8%3A%3A1"),
        (
            "show why 10.1.0.1 10.2.0.1 -i lan --protocol tcp --sport 4000 --dport 80",
            "/why/lan/10.1.0.1/10.2.0.1/tcp/4000/80",
        ),
        ("show flows", "/flows"),
        ("show flows --nat --port lan --page 2", "/flows"),
        ("show flows --kernel --reason rules --nat", "/flows"),
        ("show flows --diff", "/flows/diff"),
    ] {
        let question = asked(words);
        assert_eq!((question.check(), question.path().as_str()), (Ok(()), path), "{words}");
    }
}

#[test]
fn a_question_asked_wrongly_is_told_how() {
    for (words, said) in [
        ("show why 10.1.0.1 -i lan", "-i INTERFACE"),
        ("show why 10.1.0.1 10.2.0.1", "-i INTERFACE"),
        ("show ports --diff", "only `show mirror`"),
        ("show why 10.1.0.1 10.2.0.1 -i lan --protocol tcp", "`--sport`"),
        ("show why 10.1.0.1 10.2.0.1 -i lan --sport 1 --dport 2", "`--protocol`"),
        ("show why 10.1.0.1 10.2.0.1 -i lan --nat", "only `show flows`"),
        ("show ports --protocol tcp", "only `show flows`"),
        ("show flows --sport 1", "only `show why`"),
        ("show flows --diff --page 2", "no filter"),
        ("show flows -i lan", "only `show why`"),
        ("show mirror -i lan", "only `show why`"),
    ] {
        let complaint = asked(words).check().expect_err(words);
        assert!(complaint.contains(said), "{words}: {complaint}");
    }
}

fn asked(words: &str) -> Question {
    let cli = Cli::try_parse_from(["manylane"].into_iter().chain(words.split(' '))).unwrap();
    let Command::Show(show) = cli.command else { panic!("{words}") };
    show.question
}

#[test]
fn ports_as_a_table() {
    assert_eq!(tables::ports(&Sample.ports()), PORTS);
}

#[test]
fn workers_as_a_table() {
    assert_eq!(tables::workers(&Sample.workers()), WORKERS);
}

#[test]
fn routes_as_a_table() {
    assert_eq!(tables::routes(&Sample.routes()), ROUTES);
}

#[test]
fn neighbours_as_a_table() {
    assert_eq!(tables::neighbours(&Sample.neighbours()), NEIGHBOURS);
}

#[test]
fn addresses_as_a_table() {
    assert_eq!(tables::addresses(&Sample.addresses()), ADDRESSES);
}

#[test]
fn drops_as_a_table() {
    assert_eq!(tables::drops(&Sample.drops()), DROPS);
}

#[test]
fn ledger_as_a_table() {
    assert_eq!(tables::ledger(&Sample.ledger()), LEDGER);
}

#[test]
fn frames_as_a_table() {
    assert_eq!(tables::frames(&Sample.frames()), FRAMES);
}

#[test]
fn steering_as_a_table() {
    assert_eq!(tables::steering(&Sample.steering()), STEERING);
}

#[test]
fn sockets_as_a_table() {
    assert_eq!(tables::sockets(&Sample.sockets()), SOCKETS);
}

/// Of `accelerate`.
#[test]
fn what_is_accelerated_as_tables() {
    use crate::tables::accelerate;
    use crate::tables::flows;
    use manylane_api::accelerate::{Accelerated, TrackedFlowsRequest, WhyQuestion};
    use manylane_api::sample::accelerate::Sample;
    let question = WhyQuestion {
        source: "10.1.0.1".parse().unwrap(),
        destination: "10.9.0.1".parse().unwrap(),
        interface: "lan".into(),
        transport: None,
    };
    let all = TrackedFlowsRequest::default();
    for (shown, wanted) in [
        (
            accelerate::ports(&Sample.ports()),
            &[
                "lan 02:00:00:00:00:01 up, ingress and egress ingress",
                "missing, neither ingress nor egress, no kernel",
                "lan 1,000,107 1,000,000 64.0 MB 107",
                "\nwan: chain inet filter forward drops\nthe kernel drops what it does not allow\n",
                "\nwan: wan is down\nnothing goes through it\nchanged by: ip link set dev wan up\n",
            ][..],
        ),
        (
            accelerate::drops(&Sample.drops(), &Sample.ports()),
            &["local to the kernel 100 lan 100", "tx_dropped lost: device"],
        ),
        (
            accelerate::ledger(&Sample.ledger()),
            &[
                "to the kernel: local",
                "= missing 0",
                "Everything is accounted for.",
                "wan: no program has looked for 1 min 2 s; what passes is counted nowhere.",
            ],
        ),
        (accelerate::config(&Sample.config()), &["bypass netfilter", "0x0000000000001234"]),
        (
            accelerate::mirror(&Sample.mirror().unwrap()),
            &[
                "= routes 900,000 0",
                "The lease holds for 187 ms more: the tables are as the kernel's. The lease has lapsed once so far.",
                "for want of next hops, neighbours or groups: 5",
            ],
        ),
        (
            accelerate::why(&Sample.why(&question).unwrap()),
            &[
                "Forwarded by wan to 02:00:00:00:00:02.",
                "default via 10.2.0.1 dev wan",
                "lan > wan, udp accepted",
                "wan > lan, udp kernel: table inet filter, chain forward, handle 4: `iifname \"wan\" log`",
                "to free them to log first packets only, put `ct state new` in front of `log`",
                "conntrack none: taken for the first packet of a connection",
                "forward unknown: table inet filter, chain forward, rule 1, handle 4: ct state",
                "forward drop: table inet filter, chain forward, policy",
                "neighbour 10.2.0.1, reachable",
                "ingress: transmitted by wan",
            ],
        ),
        (
            flows::page(&Sample.tracked_flows(&all).unwrap(), &all, &Sample.lane().unwrap()),
            &[
                "2 connections, 3,010 packets, 3.06 MB; the table has 2 of 131,072 entries in use.",
                "tcp 10.1.0.1:4000 snat lan > wan ingress 1,000 60.0 kB 1 min 1 s 0 s",
                "> 10.2.0.1:80 10.2.0.254:4000 wan > lan ingress 2,000 3.00 MB",
                "> [2001:db8:2::1]:53 wan > lan rules 0 0 B",
                "rules: table inet filter, chain forward, handle 4: `iifname \"wan\" log`: logs such packets",
                "lan ingress 2 1,010 61.0 kB",
                "12 connections entered, 20 proposed. Refused: unsettled 6, rules 2.",
            ],
        ),
        (
            flows::diff(&Sample.tracked_flows_diff().unwrap()),
            &[
                "udp [2001:db8:1::1]:4000 > [2001:db8:2::1]:53: conntrack has no such connection",
                "1 of 2 entries differs from conntrack.",
            ],
        ),
        (
            flows::sampled(&Sample.flows().unwrap(), &Sample.lane().unwrap()),
            &["10.1.0.1:4000 > 10.2.0.1:53 UDP lan ingress 3", "one packet in 16"],
        ),
    ] {
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        let shown = squeezed(&shown);
        for line in wanted {
            assert!(shown.contains(line), "{line:?} is not in:\n{shown}");
        }
    }
}

/// With one space in place of several.
fn squeezed(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn an_empty_table_says_so() {
    assert_eq!(
        tables::sockets(&Default::default()),
        "No packet sockets.\n\n0 sockets of 0 (0 for a user), rings of 0 B of 0 B (0 B for a user),\n\
         filters of 0 instructions of 0 (0 for a user), at most 0 % of a worker's time; 0 closed for more.\n\
         Captures may not send.\n"
    );
    assert_eq!(tables::ports(&[]), "No ports.\n");
    assert_eq!(tables::workers(&[]), "No workers.\n");
    assert_eq!(tables::routes(&[]), "No routes.\n");
    assert_eq!(tables::neighbours(&[]), "No neighbours.\n");
    assert_eq!(
        tables::addresses(&[]),
        "No port has other stations on its link, so no own address is probed or defended; `manylane show ports` \
         lists the addresses of all ports.\n"
    );
    assert_eq!(tables::drops(&[]), "Nothing was dropped.\n");
    let never_dropped = &Sample.drops()[..1];
    assert_eq!(tables::drops(never_dropped), "Nothing was dropped.\n");
    let ledger = tables::ledger(&Default::default());
    assert!(ledger.ends_with("\nEverything is accounted for.\n"), "{ledger}");
}

/// The largest possible numbers and the longest names: ugly, but inside the terminal.
#[test]
fn no_table_is_wider_than_100_columns() {
    let mut ports = Sample.ports();
    let mut workers = Sample.workers();
    let mut ledger = Sample.ledger();
    for port in &mut ports {
        port.name = "a-long-port-nam".into();
        port.interface = Some("a-long-interfac".into());
        port.addresses = vec!["2001:db8:1234:5678:9abc:def0:1234:5678/128".into(); 3];
        port.received = u64::MAX;
        port.transmitted = u64::MAX;
        port.received_bytes = u64::MAX;
        port.lost_ring_full = u64::MAX;
        port.dropped = [("a".into(), u64::MAX), ("b".into(), u64::MAX)].into();
    }
    for worker in &mut workers {
        worker.turns = u64::MAX;
        worker.sleeps = u64::MAX;
        worker.received = u64::MAX;
        worker.queues = vec![worker.queues.clone(); 30].concat();
    }
    for port in &mut ledger.per_port {
        port.received = u64::MAX;
        port.transmitted = u64::MAX;
        port.dropped = u64::MAX;
        port.missing = i64::MIN;
    }
    ledger.received = u64::MAX;
    let mut frames = Sample.frames();
    for list in &mut frames.lists {
        (list.taken, list.refills, list.spills) = (u64::MAX, u64::MAX, u64::MAX);
    }
    frames.sum[0].holder = "a-long-port-nam to transmit".into();
    frames.sum[0].formula = "128 x 8192 queued + 256 x 8192 sent".into();
    let frames = tables::frames(&frames);
    for text in [tables::ports(&ports), tables::workers(&workers), tables::ledger(&ledger), frames]
    {
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{text}");
        }
    }
}

#[test]
fn numbers_are_grouped_and_units_are_human() {
    let counts = [0, 999, 1000, 1_234_567, u64::MAX].map(table::count);
    assert_eq!(counts, ["0", "999", "1,000", "1,234,567", "18,446,744,073,709,551,615"]);
    assert_eq!([-1, -1234, 5].map(table::signed), ["-1", "-1,234", "5"]);
    let bytes = [0, 999, 1000, 9_994, 9_996, 99_940, 99_960, 999_499, 999_500].map(table::bytes);
    let expected =
        ["0 B", "999 B", "1.00 kB", "9.99 kB", "10.0 kB", "99.9 kB", "100 kB", "999 kB", "1.00 MB"];
    assert_eq!(bytes, expected);
    assert_eq!(table::bytes(u64::MAX), "18.4 EB");
    let times = [59, 60, 3661, 90_000].map(table::duration);
    assert_eq!(times, ["59 s", "1 min 0 s", "1 h 1 min", "1 d 1 h"]);
}

const PORTS: &str = "\
Port     Device             State                         Queues   MTU  Addresses
──────────────────────────────────────────────────────────────────────────────────────────
lan      enp65s0f0np0       up, native, zero copy, trust      16  1500  10.1.0.254/24
         52:54:00:12:34:56                                              2001:db8:1::fe/64
wire     memory             down, repair                       1  1500  10.2.0.254/24
         02:00:00:00:00:01
lan.100  lan, 802.1ad 100   up, vlan, repair                   0  1496  10.3.0.254/24
         52:54:00:12:34:56
lan: auto is af_xdp: neither a veth nor a TAP.
lan: packets lie in one frame: zero-copy: the device takes a packet in one frame.

Port           Received    Bytes    Transmitted    Bytes   Lost    Dropped
───────────────────────────────────────────────────────────────────────────
lan      12,345,678,901   988 GB  9,876,543,210   790 GB  1,239  1,234,579
wire                  0      0 B            999  63.9 kB      0          0
lan.100              77  7.70 kB              0      0 B      0          0

Port  Segments cut here  Checksums completed  Packets joined
─────────────────────────────────────────────────────────────
lan                  45                   12               0

Faults  Dropped  Duplicated  Corrupted  Delayed  Reordered  No place
─────────────────────────────────────────────────────────────────────
wire         17           0          0    1,234          0         0

Copies  Copied  No frame  Unfit  Writer full
─────────────────────────────────────────────
lan     12,345         0      0            6
";

const WORKERS: &str = "\
Worker  Core  State      Busy       Turns  Sleeps  Woken  Queues
─────────────────────────────────────────────────────────────────────────────
     0     2  running  97.2 %  12,345,678   1,234  1,200  lan/0 lan/1 wire/0
     1   any  stopped   0.0 %           0       1      0

Worker       Received    Transmitted  Held  Free frames
────────────────────────────────────────────────────────
     0  9,876,543,210  9,876,500,000    17        1,024
     1              0              0     0            0
";

const ROUTES: &str = "\
Prefix           Kind         Via                      Port
────────────────────────────────────────────────────────────
0.0.0.0/0        via          10.2.0.1                 wire
10.1.0.0/24      connected    -                        lan
10.1.0.254/32    local        -                        lan
10.3.0.0/16      on_link      -                        lan
172.16.0.0/12    group        -                        -
                 75 %         10.2.0.1                 wire
                 25 %         10.2.0.2                 wire
                 0 %          10.1.0.9                 lan
192.168.0.0/16   blackhole    -                        -
2001:db8:4::/48  prohibit     -                        -
2001:db8:5::/48  unreachable  -                        -
::/0             via          fe80::5054:ff:fe12:3456  wire
";

const NEIGHBOURS: &str = "\
Address                        MAC                State           Since  Port
──────────────────────────────────────────────────────────────────────────────
10.1.0.1                       52:54:00:ab:cd:ef  reachable        12 s  lan
10.1.0.2                       52:54:00:ab:cd:ef  stale       2 h 1 min  lan
10.1.0.3                       -                  incomplete        0 s  lan
10.1.0.4                       -                  failed      1 min 5 s  lan
2001:db8:1::5054:ff:feab:cdef  52:54:00:ab:cd:ef  probe             2 s  lan
fe80::5054:ff:feab:cdef        52:54:00:ab:cd:ef  delay        4 d 15 h  lan
";

const ADDRESSES: &str = "\
Address                  State      In use      Since  Port  Conflicts  Claimed by
──────────────────────────────────────────────────────────────────────────────────────────
10.1.0.254               duplicate  no      1 min 5 s  lan       1,234  52:54:00:ab:cd:ef
2001:db8:1::fe           probing    yes           0 s  lan           0  -
fe80::5054:ff:fe12:3456  held       yes      4 d 15 h  lan           0  -
";

const DROPS: &str = "\
Reason                 Packets  Entered by     Why
────────────────────────────────────────────────────────────────────────────────────────────────────
martian_destination         12  lan 12         The destination address cannot be forwarded to (RFC
                                               1812 §5.3.7, RFC 4291 §2.5.2, §2.5.3).
no_route             1,234,656  lan 1,234,567  No route leads to the destination.
                                wire 89
";

const LEDGER: &str = "\
Packets
──────────────────────────────────────
received               12,345,678,901
created: reply                     42
created: solicitation               7
= entered              12,345,678,950

transmitted            12,344,444,270
delivered                           2
dropped: no_route           1,234,656
held for a neighbour               17
in flight                           6
= missing                          -1

Ingress        Received  Created     Transmitted  Delivered    Dropped  Held  In flight  Missing
─────────────────────────────────────────────────────────────────────────────────────────────────
lan      12,345,678,901       49  12,344,444,270          2  1,234,656    17          6       -1

Frames
───────────────────────
depot           12,288
worker 0 list    1,024
lan to receive   3,072
= total         16,384
missing              0

Not everything is accounted for. While packets pass, counters are read one after another.
If this stays when they stop, it is a fault of manylane: please report it.
";

const FRAMES: &str = "\
Worker   List  Length           Taken     Hits  Refills  Spills  Starved
─────────────────────────────────────────────────────────────────────────
     0  1,024   2,048  12,345,678,901  99.99 %    1,234   1,230        0

Frames
───────────────────────
depot           12,288
worker 0 list    1,024
lan to receive   3,072
= total         16,384
missing              0

At most                                           Frames
─────────────────────────────────────────────────────────
lan to receive  16 x (256 posted + 256 received)   8,192
spare queues    8 x 1024                           8,192
= needed                                          16,384
there are                                         16,384

Everything is accounted for.
";

const STEERING: &str = "\
Port  Steering  Received by                     Forwarded by          Why
─────────────────────────────────────────────────────────────────────────────────────────────
lan   queue     worker 0 (queue 0)              who receives          2 queues for 2 workers
                worker 1 (queue 1, going to 0)
wire  flow      worker 0 (queue 0)              worker 0: 128 of 256  1 queue for 2 workers
                                                worker 1: 128 of 256
wire: 1 bucket on the way to another worker.
Worker 1 is paused.

Port  Sent by
─────────────────────────────────────────────
lan   worker 0 (queue 0), worker 1 (queue 1)
wire  each worker

Workers       Handed on      Batches  Backlog  Waits  Backlog full  Flow limit
───────────────────────────────────────────────────────────────────────────────
0 to 1   12,345,678,901  300,000,000       17      9             3       1,234

netdev_max_backlog 1000 (at most 1024), netdev_budget 300, dev_weight 64.
Rebalancing is on, 3 buckets moved.
Order is looked at for one flow in 64: 0 of 1,234,567 packets were reordered.
";

/// A user that no system has is shown by its number.
const SOCKETS: &str = "\
Socket  Owner                          Bound to   Points        Filter    Snap  Group
────────────────────────────────────────────────────────────────────────────────────────
     0  the daemon                     all ports  rx, tx, drop       1  262144
     3  user 4000000000, process 4321  lan, IPv6  rx                24     128  7, hash

Socket    Ring   Time    Packets    Bytes  Lost  Cut  Stale  Contended
───────────────────────────────────────────────────────────────────────
     0  266 kB  2.5 s  1,234,567  79.0 MB     0    0      0          0
     3  266 kB  2.5 s  1,234,567  79.0 MB    17    0      2          0

2 sockets of 1,024 (64 for a user), rings of 532 kB of 1.07 GB (537 MB for a user),
filters of 27 instructions of 16,384 (4,096 for a user), at most 50 % of a worker's time; 1 closed for more.
Captures may not send.
";
