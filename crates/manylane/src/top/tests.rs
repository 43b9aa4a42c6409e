use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent};

use super::Failure;
use super::detail::Picked;
use super::draw::draw;
use super::flows::Flows;
use super::sample::{Accelerator, Forwarder, Of, Order, Pace, Sample, Watched};
use super::view::{View, Wish};
use manylane_api::accelerate::{Accelerated, LaneStatus};
use manylane_api::sample::accelerate as accelerated;
use manylane_api::{Daemon, DropStatus, Ledger};

/// What a daemon says two seconds after `at`, if `passed` packets have passed since.
fn accelerator(at: Instant, passed: u64) -> Sample {
    let mut daemon = Accelerator {
        daemon: accelerated::Sample.daemon(),
        ports: accelerated::Sample.ports(),
        drops: accelerated::Sample.drops(),
        ledger: accelerated::Sample.ledger(),
        lane: Some(LaneStatus { capacity: 8, ..LaneStatus::default() }),
        tracked: None,
        kernel: None,
        flows: accelerated::Sample.flows().expect("it has some").into(),
        flows_trouble: None,
    };
    daemon.ports[0].seen += passed;
    daemon.ports[0].forwarded += passed;
    daemon.ports[1].sent += passed;
    daemon.ports[1].device_dropped += passed / 1000;
    daemon.ledger.seen += passed;
    daemon.ledger.forwarded += passed;
    let two_seconds = Duration::from_secs(if passed > 0 { 2 } else { 0 });
    Sample { at: at + two_seconds, of: Of::Accelerator(Box::new(daemon)) }
}

fn forwarder(at: Instant, pid: u32, dropped: u64) -> Sample {
    let drop = DropStatus {
        reason: "no_route".into(),
        explanation: "no route leads to its destination".into(),
        total: dropped,
        ports: [("lan".to_owned(), dropped)].into(),
    };
    let forwarder = Forwarder {
        daemon: Daemon { pid, ..Daemon::default() },
        drops: vec![drop],
        ledger: Ledger { received: 10 * dropped, ..Ledger::default() },
        flows_trouble: Some("another trace runs".into()),
        ..Forwarder::default()
    };
    Sample { at, of: Of::Forwarder(Box::new(forwarder)) }
}

fn screen(view: &mut View, [columns, rows]: [u16; 2]) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("it is in memory");
    terminal.draw(|frame| draw(frame, view)).expect("it is in memory");
    let buffer = terminal.backend().buffer();
    let lines = buffer.content.chunks(columns.into());
    let line = |cells: &[ratatui::buffer::Cell]| -> String {
        cells.iter().map(|cell| cell.symbol()).collect()
    };
    lines.map(|cells| line(cells).trim_end().to_owned() + "\n").collect()
}

fn press(view: &mut View, code: KeyCode) -> Option<Wish> {
    view.input(&Event::Key(KeyEvent::from(code)))
}

#[test]
fn an_accelerator_has_its_own_panes() {
    let at = Instant::now();
    let mut view = View::new(accelerator(at, 0), Duration::from_secs(1));
    let shown = screen(&mut view, [80, 24]);
    assert!(shown.contains("in - packets/s; forwarded -"), "{shown}");
    view.add(accelerator(at, 2_000_000));
    let shown = screen(&mut view, [80, 24]);
    for words in [
        "accelerate 0.1.0, process 42, up 7 s",
        "in 1.00 M packets/s; forwarded 1.00 M",
        " 1 Ports ",
        " 2 Tiers ",
        " 3 Drops ",
        " 4 Flows ",
        " 5 Kernel ",
        "no rule filters by connection",
    ] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect(name);
    let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words("lan").contains("1.00 M 1.00 M 0 0 0 0"), "{shown}");
    assert!(words("wan").ends_with("1.00 M 0 0 1.00 k"), "{shown}");

    // Zoomed in on the flows: three of four packets are ours, the fourth is the kernel's for a reason.
    press(&mut view, KeyCode::Char('4'));
    press(&mut view, KeyCode::Enter);
    let shown = screen(&mut view, [100, 24]);
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect(name);
    let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>().join(" ");
    let ours = words("10.1.0.1:4000 > 10.2.0.1:53 UDP");
    assert!(ours.ends_with("UDP lan ingress 75 750 k"), "{shown}");
    let theirs = words("[2001:db8:1::1]:4000 > [2001:db8:2::1]:443 TCP");
    assert!(theirs.ends_with("TCP lan ttl 25 250 k"), "{shown}");
}

/// Where connections decide, the pane has the table's counters, not a sample.
#[test]
fn connections_have_exact_rates() {
    let at = Instant::now();
    let with_table = |packets: u64| {
        let mut sample = accelerator(at, packets);
        let Of::Accelerator(daemon) = &mut sample.of else { panic!("it is one") };
        let mut table =
            accelerated::Sample.tracked_flows(&Default::default()).expect("it has a table");
        table.total = 1234;
        table.flows[0].reply.packets += packets;
        table.flows[0].reply.bytes += packets * 1000;
        daemon.tracked = Some(table);
        daemon.lane = accelerated::Sample.lane().ok();
        sample
    };
    let mut view = View::new(with_table(0), Duration::from_secs(1));
    view.add(with_table(2_000_000));
    press(&mut view, KeyCode::Char('4'));
    press(&mut view, KeyCode::Enter);
    let shown = screen(&mut view, [100, 24]);
    assert!(shown.contains("the 2 largest of 1,234 connections"), "{shown}");
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect(name);
    let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>().join(" ");
    let replies = words("10.2.0.1:80 > 10.2.0.254:4000 tcp");
    assert!(replies.contains("tcp wan ingress 1.00 M 8.00 G"), "{shown}");
    assert!(words("10.1.0.1:4000 > 10.2.0.1:80 tcp").contains("tcp lan ingress 0 0"), "{shown}");
    assert!(words("[2001:db8:2::1]:53 >").contains("udp wan rules 0 0 0"), "{shown}");
}

/// What the daemon says, where connections decide: the table, and what the kernel forwards.
fn with_connections(at: Instant, packets: u64) -> Sample {
    let mut sample = accelerator(at, packets);
    let Of::Accelerator(daemon) = &mut sample.of else { panic!("it is one") };
    daemon.lane = accelerated::Sample.lane().ok();
    daemon.tracked = accelerated::Sample.tracked_flows(&Default::default()).ok();
    daemon.kernel = accelerated::Sample.kernel_flows(&Default::default()).ok().map(Ok);
    sample
}

fn lines_of(shown: &str) -> Vec<String> {
    shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Golden: every column, in a wide terminal.
#[test]
fn a_flow_has_its_translation_where_there_is_room() {
    let at = Instant::now();
    let mut view = View::new(with_connections(at, 0), Duration::from_secs(1));
    view.add(with_connections(at, 2_000_000));
    press(&mut view, KeyCode::Char('4'));
    press(&mut view, KeyCode::Enter);
    let shown = lines_of(&screen(&mut view, [160, 8]));
    assert_eq!(
        shown[3..],
        [
            "Flow Port By Packets/s bit/s Bytes NAT Leaves as",
            "10.1.0.1:4000 > 10.2.0.1:80 tcp lan ingress 0 0 60,000 snat 10.2.0.254:4000 > 10.2.0.1:80",
            "10.2.0.1:80 > 10.2.0.254:4000 tcp wan ingress 0 0 3,000,000 snat 10.2.0.1:80 > 10.1.0.1:4000",
            "[2001:db8:1::1]:4000 > [2001:db8:2::1]:53 udp lan ingress 0 0 1,000",
            "q quit ? help Esc panes Enter why s sort f port g group space pause",
        ]
    );
    // In a narrow one the ends of packets are whole, and the translation is what is missing.
    let narrow = screen(&mut view, [80, 8]);
    assert!(narrow.contains("10.1.0.1:4000 > 10.2.0.1:80 tcp "), "{narrow}");
    assert!(!narrow.contains("Leaves as"), "{narrow}");
}

#[test]
fn flows_are_added_up_by_port_and_tier_and_chosen_by_port() {
    let at = Instant::now();
    let mut view = View::new(with_connections(at, 0), Duration::from_secs(1));
    view.add(with_connections(at, 2_000_000));
    press(&mut view, KeyCode::Char('4'));
    press(&mut view, KeyCode::Enter);
    press(&mut view, KeyCode::Char('g'));
    let shown = lines_of(&screen(&mut view, [100, 10]));
    for line in [
        "Port By Directions Packets/s bit/s Packets Bytes",
        "lan ingress 2 0 0 1,010 61,000",
        "wan ingress 1 0 0 2,000 3,000,000",
        "wan kernel 1 0 0 0 0",
    ] {
        assert!(shown.contains(&line.to_owned()), "{line}\n{shown:#?}");
    }
    let watched = |port: Option<&str>| {
        let watched = Watched { port: port.map(str::to_owned), kernel: false };
        Some(Wish::Order(Order::Watch(watched)))
    };
    assert_eq!(press(&mut view, KeyCode::Char('f')), watched(Some("lan")));
    let shown = screen(&mut view, [100, 10]);
    assert!(shown.contains("port lan: 2 connections") && !shown.contains("wan"), "{shown}");
    assert_eq!(press(&mut view, KeyCode::Char('f')), watched(Some("wan")));
    assert_eq!(press(&mut view, KeyCode::Char('f')), watched(None));
    // By the last column; single flows have more columns.
    press(&mut view, KeyCode::Left);
    press(&mut view, KeyCode::Left);
    press(&mut view, KeyCode::Char('g'));
    press(&mut view, KeyCode::Left);
    press(&mut view, KeyCode::Left);
    assert_eq!(view.choices[3].order, 7);
    press(&mut view, KeyCode::Char('g'));
    assert!(screen(&mut view, [100, 10]).contains("Directions"));
    assert_eq!(view.choices[3].order, 3);
}

/// A sample says that it is one, in single flows and in sums.
#[test]
fn a_sample_is_called_so() {
    let at = Instant::now();
    let mut view = View::new(accelerator(at, 0), Duration::from_secs(1));
    let mut later = accelerator(at, 2_000_000);
    let Of::Accelerator(daemon) = &mut later.of else { panic!("it is one") };
    daemon.lane = Some(LaneStatus::default());
    view.add(later);
    press(&mut view, KeyCode::Char('4'));
    press(&mut view, KeyCode::Enter);
    let shown = screen(&mut view, [100, 10]);
    assert!(shown.contains("by sample (`--flows 0`): of the last 4 packets"), "{shown}");
    press(&mut view, KeyCode::Char('g'));
    let shown = lines_of(&screen(&mut view, [100, 10]));
    assert!(shown.contains(&"lan ingress 75 750 k".to_owned()), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("by sample")), "{shown:#?}");
}

/// Conntrack is read while the pane is selected, and only then.
#[test]
fn what_the_kernel_forwards_is_listed_where_the_operator_looks() {
    let at = Instant::now();
    let mut view = View::new(with_connections(at, 0), Duration::from_secs(1));
    let watched = |kernel| Some(Wish::Order(Order::Watch(Watched { port: None, kernel })));
    assert_eq!(press(&mut view, KeyCode::Char('5')), watched(true));
    view.add(with_connections(at, 2_000_000));
    press(&mut view, KeyCode::Enter);
    let shown = screen(&mut view, [110, 10]);
    let note = "at least 3 connections: candidate 1, rules 1, helped 1";
    assert!(shown.contains(note), "{shown}");
    let lines = lines_of(&shown);
    for begin in [
        "10.1.0.1:4001 > 10.2.0.1:80 tcp lan candidate 0 0 some more packets",
        "10.1.0.1:4002 > 10.2.0.1:21 tcp lan helped 0 0 a helper",
        "[2001:db8:1::1]:4000 > [2001:db8:2::1]:443 tcp lan rules 0 0 table inet filter",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(begin)), "{begin}\n{shown}");
    }
    assert_eq!(press(&mut view, KeyCode::Char('1')), watched(false));
}

/// Enter opens the row below the cursor, which stays with its flow; the answer is shown until Esc.
#[test]
fn a_flow_that_is_picked_is_explained() {
    let at = Instant::now();
    let mut view = View::new(with_connections(at, 0), Duration::from_secs(1));
    view.add(with_connections(at, 2_000_000));
    for key in [KeyCode::Char('5'), KeyCode::Enter, KeyCode::Down, KeyCode::Down] {
        press(&mut view, key);
    }
    // By its reason, which is the last of three; then by that in reverse, where it is the first.
    let picked = |view: &View| view.panes[4].rows[view.cursor].picked.clone().expect("it has ends");
    let ruled = picked(&view);
    assert_eq!((view.cursor, &*ruled.port), (2, "lan"));
    assert_eq!(ruled.flow, "[2001:db8:1::1]:4000 > [2001:db8:2::1]:443 tcp");
    press(&mut view, KeyCode::Char('r'));
    assert_eq!((view.cursor, &picked(&view)), (0, &ruled));
    view.add(with_connections(at, 4_000_000));
    assert_eq!(picked(&view), ruled);

    assert_eq!(press(&mut view, KeyCode::Enter), Some(Wish::Order(Order::Ask(ruled.clone()))));
    let shown = screen(&mut view, [100, 20]);
    assert!(shown.contains("443 tcp, received by lan"), "{shown}");
    assert!(shown.contains("rules: table inet filter, chain forward, handle 4"), "{shown}");
    assert!(shown.contains("waiting for the daemon"), "{shown}");
    let question = ruled.question().expect("it has ends");
    view.explain(&Picked::default(), Err("about another flow".into()));
    assert!(screen(&mut view, [100, 20]).contains("waiting for the daemon"));
    view.explain(&ruled, Ok(accelerated::Sample.why(&question).expect("lan is known")));
    let shown = screen(&mut view, [100, 30]);
    assert!(shown.contains("state: kernel: rules") && shown.contains("to free them"), "{shown}");
    press(&mut view, KeyCode::Down);
    assert!(!screen(&mut view, [100, 30]).contains("rules: table inet filter"));
    press(&mut view, KeyCode::Esc);
    assert!(screen(&mut view, [120, 20]).contains("What keeps it in the kernel"));
    press(&mut view, KeyCode::Esc);
    assert!(screen(&mut view, [100, 24]).contains("1 Ports"));
}

/// Half as wide as a usual terminal: each row has its name, and each key its meaning.
#[test]
fn a_narrow_terminal_shows_names_and_the_whole_help() {
    let at = Instant::now();
    let mut view = View::new(accelerator(at, 0), Duration::from_secs(1));
    view.add(accelerator(at, 2_000_000));
    for width in [20, 40, 60] {
        let shown = screen(&mut view, [width, 40]);
        for name in ["lan", "wan"] {
            let has = shown.lines().any(|line| line.split(' ').next() == Some(name));
            assert!(has, "{width} {name}\n{shown}");
        }
    }
    assert!(screen(&mut view, [40, 24]).contains("? help"));
    press(&mut view, KeyCode::Char('?'));
    let shown = screen(&mut view, [40, 24]);
    let words = shown.replace(['│', '\n'], " ");
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    for key in [
        "zoom the selected pane; show all panes",
        "any key closes it",
        "32 packets at each update.",
    ] {
        assert!(words.contains(key), "{key}\n{shown}");
    }
}

#[test]
fn a_daemon_that_begins_anew_has_no_rates_at_first() {
    let at = Instant::now();
    let later = at + Duration::from_secs(1);
    let mut view = View::new(forwarder(at, 1, 1000), Duration::from_secs(1));
    view.add(forwarder(later, 1, 3000));
    assert!(screen(&mut view, [80, 24]).contains("in 20.0 k packets/s"));
    view.add(forwarder(later + Duration::from_secs(1), 2, 5));
    let shown = screen(&mut view, [80, 24]);
    assert!(shown.contains("in - packets/s"), "{shown}");
    assert!(shown.contains("another trace runs"), "{shown}");
}

#[test]
fn every_size_can_be_drawn() {
    let at = Instant::now();
    let mut views = [
        View::new(accelerator(at, 0), Duration::from_secs(1)),
        View::new(forwarder(at, 1, 1), Duration::from_secs(1)),
    ];
    for view in &mut views {
        for key in [KeyCode::Char('x'), KeyCode::Enter, KeyCode::Char('?')] {
            press(view, key);
            for columns in [1, 10, 40, 80, 300] {
                for rows in [1, 2, 3, 5, 10, 24, 100] {
                    screen(view, [columns, rows]);
                }
            }
        }
    }
}

#[test]
fn keys_stay_within_what_there_is() {
    let at = Instant::now();
    let mut view = View::new(accelerator(at, 0), Duration::from_secs(1));
    let columns = view.panes[0].columns.len();
    for _ in 0..columns {
        press(&mut view, KeyCode::Right);
    }
    assert_eq!(view.choices[0].order, 0);
    press(&mut view, KeyCode::Left);
    assert_eq!(view.choices[0].order, columns - 1);
    press(&mut view, KeyCode::Char('9'));
    (0..3).for_each(|_| drop(press(&mut view, KeyCode::BackTab)));
    press(&mut view, KeyCode::PageDown);
    assert_eq!((view.selected, view.choices[2].skipped), (2, 1));
    press(&mut view, KeyCode::Up);
    press(&mut view, KeyCode::Up);
    assert_eq!(view.choices[2].skipped, 0);
    for _ in 0..40 {
        press(&mut view, KeyCode::Char('+'));
    }
    let fastest = Some(Wish::Order(Order::Pace(Pace::Every(super::view::FASTEST))));
    assert_eq!(press(&mut view, KeyCode::Char('+')), fastest);
    assert_eq!(press(&mut view, KeyCode::Char(' ')), Some(Wish::Order(Order::Pace(Pace::Paused))));
    assert_eq!(press(&mut view, KeyCode::Char('-')), Some(Wish::Order(Order::Pace(Pace::Paused))));
    assert_eq!(press(&mut view, KeyCode::Char('q')), Some(Wish::Quit));
}

#[test]
fn flows_of_several_samples_are_one() {
    let mut flows = Flows::default();
    let udp = "02:00:00:00:00:01 > 02:00:00:00:00:02, 10.0.0.1:7 > 10.0.0.2:9 UDP, TTL 9";
    flows.add("lan", udp);
    let mut more = flows.clone();
    more.add("lan", "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, ARP");
    flows.merge(&more);
    let counted: Vec<_> = flows.by_flow.iter().map(|(at, count)| (&*at.flow, *count)).collect();
    assert_eq!(counted, [("10.0.0.1:7 > 10.0.0.2:9 UDP", 2), ("no IP", 1)]);
    assert_eq!(flows.packets, 3);
}

#[test]
fn why_it_is_over_is_told() {
    let said = || std::io::Error::from_raw_os_error(5);
    messages!(Failure {
        Start: [(Start(said()), ["Input/output error"], "raise `ulimit -u`")],
        Terminal: [(Terminal(said()), ["terminal"], "`manylane show ports --watch` needs none")],
    });
}
