//! Captures from a source in memory, read back by `pcap-file` and by tcpdump.

pub(super) mod script;

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::rc::Rc;

use clap::CommandFactory;
use jiff::tz::TimeZone;
use manylane_frame::vocabulary::{DropReason, Point, PortId};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::blocks::opt_common::{CommonOption, UnknownOption};
use pcap_file::pcapng::blocks::section_header::SectionHeaderOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use self::script::*;
use super::files::{Files, Room, Rotation, Target};
use super::local_time::LocalTime;
use super::run::Plan;
use super::*;

#[test]
fn a_line_tells_port_point_worker_and_reason() {
    let reason = DropReason::NoRoute;
    let dropped = Captured {
        point: Point::Drop,
        reason: Some(reason.name()),
        explanation: Some(reason.explanation()),
        ..packet()
    };
    let sent = Captured {
        port: PortId(1),
        port_name: "lan",
        point: Point::Transmit,
        worker: 12,
        ..packet()
    };
    let server = Script::new(vec![Step::Packets(vec![packet(), sent, dropped])]);
    let (outcome, lines, messages) = capture("-c 3 -v --point rx,tx,drop", &server);
    outcome.expect("there are three");
    let udp = "IP (tos 0x0, ttl 64, id 0, offset 0, flags [DF], proto UDP (17), length 46) 10.1.0.1.5000 > \
               10.2.0.1.5001: UDP, length 18";
    let lines: Vec<_> = lines.lines().collect();
    // The hour is that of the machine's zone.
    assert!(lines[0].contains(".000000007 wan rx w1 "), "{}", lines[0]);
    assert_eq!(lines[0][18..], format!(" wan rx w1 {udp}"));
    assert_eq!(lines[1][18..], format!(" lan tx w12 {udp}"));
    assert_eq!(lines[2][18..], format!(" wan drop(no_route) w1 {udp}"));
    assert_eq!(lines[3..], ["    drop: No route leads to the destination."]);
    assert_eq!(
        messages,
        "listening on all ports (rx, tx, drop), snapshot length 262144 bytes\n3 packets captured\n3 packets \
         received by filter\n0 packets lost between the workers and this command\n"
    );
}

#[test]
fn the_source_is_asked_for_what_the_options_say() {
    let server = Script::new(vec![Step::Packets(vec![packet()])]);
    let words = "-i wan -s 64 --point drop --point rx -c 1 -x udp and ( port 53 or port 54 )";
    let (outcome, lines, messages) = capture(words, &server);
    outcome.expect("there is one");
    let request = Request {
        port: Some("wan".into()),
        points: vec![Point::Receive, Point::Drop],
        snap: 64,
        filter: Some("udp and ( port 53 or port 54 )".into()),
    };
    assert_eq!(*server.asked.borrow(), Some(request));
    assert!(
        messages.starts_with(
            "listening on wan (rx, drop), snapshot length 64 bytes\n1 packet captured\n"
        )
    );
    assert!(lines.contains("\n\t0x0000:  4500 002e 0000 4000 4011 26bb 0a01 0001\n"), "{lines}");
}

#[test]
fn an_interrupt_ends_with_what_was_there() {
    let interrupt = Rc::new(Interrupt::by_word().expect("eventfds are to be had"));
    let raise = interrupt.clone();
    let steps = vec![
        Step::Packets(vec![packet(); 2]),
        Step::Do(Box::new(move || raise.raise())),
        Step::Packets(vec![packet(); 3]),
        Step::Packets(vec![packet(); 4]),
    ];
    let server = Script::new(steps);
    server.statistics.borrow_mut().lost = 7;
    let out = Shared::default();
    let mut messages = Vec::new();
    let carried = plan("").execute(&server, &interrupt, Box::new(out.clone()), &mut messages);
    carried.expect("it was interrupted");
    assert_eq!(out.text().lines().count(), 5);
    let messages = String::from_utf8(messages).unwrap();
    assert!(
        messages.contains("\n5 packets captured\n16 packets received by filter\n7 packets lost "),
        "{messages}"
    );
    assert!(messages.ends_with(" makes it faster)\n"), "{messages}");
}

#[test]
fn a_daemon_that_goes_ends_the_capture_with_an_error() {
    let server = Script::new(vec![Step::Wake(Wake::End), Step::Packets(vec![packet()])]);
    let (outcome, lines, messages) = capture("", &server);
    assert!(matches!(outcome, Err(CaptureError::Ended)), "{outcome:?}");
    assert_eq!(lines.lines().count(), 1, "what waited is shown");
    assert!(messages.contains("\n1 packet captured\n"), "{messages}");
}

#[test]
fn a_daemon_that_hangs_ends_the_capture_with_an_error() {
    let hangs = Step::Wake(Wake::Silent("it hangs; look at it".into()));
    let server = Script::new(vec![Step::Packets(vec![packet()]), hangs]);
    let (outcome, lines, messages) = capture("", &server);
    let error = outcome.expect_err("it hangs").to_string();
    assert_eq!(error, "it hangs; look at it");
    assert_eq!(lines.lines().count(), 1);
    assert!(messages.contains("\n1 packet captured\n"), "{messages}");
}

#[test]
fn a_reader_who_has_had_enough_is_no_error() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let server = Script::new(vec![Step::Packets(vec![packet()]), Step::Packets(vec![packet()])]);
    let interrupt = Interrupt::by_word().expect("eventfds are to be had");
    let mut messages = Vec::new();
    let outcome = plan("").execute(&server, &interrupt, Box::new(Gone), &mut messages);
    assert!(matches!(outcome, Err(CaptureError::Closed)), "{outcome:?}");
    assert!(String::from_utf8(messages).unwrap().contains(" packets received by filter\n"));
}

#[test]
fn a_file_is_read_back_by_another_reader() {
    let place = Place::new("read-back");
    let file = place.0.join("all.pcapng");
    let reason = DropReason::NoRoute;
    let dropped = Captured {
        point: Point::Drop,
        reason: Some(reason.name()),
        explanation: Some(reason.explanation()),
        ..packet()
    };
    let sent = Captured { point: Point::Transmit, queue: 0, ..packet() };
    let left = Captured {
        point: Point::Kernel,
        reason: Some("options"),
        explanation: Some("it has options"),
        ..packet()
    };
    // All paddings, and a port that was unknown when the file began.
    let cut = |len: usize| Captured {
        bytes: &UDP[..len],
        port: PortId(9),
        port_name: "late",
        ..packet()
    };
    let mut packets = vec![packet(), sent, dropped, left];
    packets.extend((0..8).map(cut));
    let server = Script::new(vec![Step::Packets(packets.clone())]);
    server.statistics.borrow_mut().lost = 5;
    let words = format!("-w {} -c 12 -s 100 --point rx,tx,drop,kernel -i any udp", file.display());
    let (outcome, lines, _) = capture(&words, &server);
    outcome.expect("there are twelve");
    assert_eq!(lines, "");

    let mut reader = PcapNgReader::new(File::open(&file).unwrap()).unwrap();
    let header = reader.section().options.clone();
    assert!(matches!(&header[0], SectionHeaderOption::OS(os) if os.starts_with("Linux ")));
    let ours = concat!("manylane ", env!("CARGO_PKG_VERSION"));
    assert_eq!(header[1], SectionHeaderOption::UserApplication(ours.into()));
    let (mut names, mut read, mut statistics) = (Vec::new(), 0, Vec::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap().0 {
            Block::InterfaceDescription(block) => {
                let InterfaceDescriptionOption::IfName(name) = &block.options[0] else { panic!() };
                names.push(name.to_string());
                assert_eq!(block.snaplen, 100);
                let filter = InterfaceDescriptionOption::IfFilter(b"\0udp".as_slice().into());
                assert_eq!(block.options.last(), Some(&filter));
            }
            Block::EnhancedPacket(block) => {
                let packet = &packets[read];
                read += 1;
                assert_eq!(block.timestamp.as_nanos(), packet.time_ns.into());
                assert_eq!((&*block.data, block.original_len), (packet.bytes, packet.len));
                let (behind, comment) = match packet.point {
                    Point::Drop => (":drop", "drop no_route: No route leads to the destination."),
                    Point::Kernel => (":kernel", "kernel options: it has options"),
                    Point::Receive | Point::Transmit => ("", ""),
                };
                let name = &names[block.interface_id as usize];
                assert_eq!(*name, format!("{}{behind}", packet.port_name));
                let queue = u32::from(packet.queue).to_le_bytes();
                let queue = CommonOption::Unknown(UnknownOption::new(6, &queue));
                assert!(block.options.contains(&EnhancedPacketOption::Common(queue)));
                let flags = match packet.point {
                    Point::Receive => Some(EnhancedPacketOption::Flags(1)),
                    Point::Transmit => Some(EnhancedPacketOption::Flags(2)),
                    Point::Drop | Point::Kernel => None,
                };
                let found = |option: &&_| matches!(option, EnhancedPacketOption::Flags(_));
                assert_eq!(block.options.iter().find(found), flags.as_ref());
                let lost = EnhancedPacketOption::DropCount(5);
                assert_eq!(block.options.contains(&lost), read == 1);
                let is_known = !comment.is_empty();
                let comment = EnhancedPacketOption::Common(CommonOption::Comment(comment.into()));
                assert_eq!(block.options.contains(&comment), is_known);
            }
            Block::InterfaceStatistics(block) => statistics.push(block.into_owned()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(names, ["wan", "wan:drop", "wan:kernel", "lan", "lan:drop", "lan:kernel", "late"]);
    assert_eq!(read, packets.len());
    let delivered: Vec<_> = statistics.iter().map(|block| block.options[2].clone()).collect();
    let all = [2, 1, 1, 0, 0, 0, 8].map(InterfaceStatisticsOption::IsbUsrDeliv);
    assert_eq!(delivered, all);
    assert_eq!(statistics[0].options[3], InterfaceStatisticsOption::IsbOsDrop(5));
    assert_eq!(statistics[1].options.len(), 3);

    let Some(said) = tcpdump(&["-n", "-t", "-q", "--count", "-r"], &file) else { return };
    assert_eq!(said, "12 packets\n");
}

/// Options are one after another, so that a long text does not become the next block.
#[test]
fn texts_are_as_long_as_options_may_be() {
    let place = Place::new("long");
    let file = place.0.join("long.pcapng");
    let (long, wide) = ("x".repeat(70_000), "ü".repeat(35_000));
    let reason = Some(long.as_str());
    let dropped = Captured { point: Point::Drop, reason, explanation: Some(&wide), ..packet() };
    write_file(&file, [dropped, packet()].into_iter());
    let mut reader = PcapNgReader::new(File::open(&file).unwrap()).unwrap();
    let mut comments = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(block) = block.unwrap().0 else { continue };
        comments.push(block.options.into_iter().find_map(|option| match option {
            EnhancedPacketOption::Common(CommonOption::Comment(text)) => Some(text.len()),
            _ => None,
        }));
    }
    assert_eq!(comments, [Some(60_007), None]);
}

/// What waits is in the reader's hands before we sleep, and large writes are made of many packets.
#[test]
fn tcpdump_shows_a_packet_when_it_is_there() {
    let place = Place::new("pipe");
    let fifo = place.fifo();
    let child = Command::new("tcpdump")
        .args(["-n", "-t", "-l", "-r"])
        .arg(&fifo)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Some(mut child) = installed(child) else { return };
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let (read, wrote) = (Rc::new(RefCell::new(Vec::new())), packet());
    let reads = read.clone();
    let steps = vec![
        Step::Packets(vec![wrote]),
        Step::Do(Box::new(move || reads.borrow_mut().push(said.next().unwrap().unwrap()))),
        Step::Wake(Wake::End),
    ];
    let server = Script::new(steps);
    let interrupt = Interrupt::by_word().expect("eventfds are to be had");
    let plan = Plan { target: Some((Target::Fifo(fifo), Rotation::default())), ..plan("") };
    let outcome = plan.execute(&server, &interrupt, Box::new(io::sink()), &mut io::sink());
    assert!(matches!(outcome, Err(CaptureError::Ended)), "{outcome:?}");
    assert_eq!(*read.borrow(), ["IP 10.1.0.1.5000 > 10.2.0.1.5001: UDP, length 18"]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn files_are_called_as_tcpdump_calls_them() {
    let time = LocalTime::of(TimeZone::UTC);
    let name = |target: &Target, bytes, files, count| {
        let rotation = Rotation { seconds: Some(1), bytes, files };
        target.name(rotation, count, NOW, &time).into_os_string().into_string().unwrap()
    };
    let file = Target::File("f.pcapng".into());
    let million = Some(1_000_000);
    let table = [
        (None, None, 0, "f.pcapng"),
        (None, Some(20), 0, "f.pcapng"),
        (million, None, 0, "f.pcapng"),
        (million, None, 1, "f.pcapng1"),
        (million, None, 10, "f.pcapng10"),
        (million, Some(1), 0, "f.pcapng"),
        (million, Some(2), 0, "f.pcapng0"),
        (million, Some(10), 9, "f.pcapng9"),
        (million, Some(11), 9, "f.pcapng09"),
        (million, Some(1000), 12, "f.pcapng012"),
    ];
    for (bytes, files, count, messages) in table {
        assert_eq!(name(&file, bytes, files, count), messages);
    }
    let pattern = Target::Pattern("f-%H%M%S".into());
    assert_eq!(name(&pattern, None, None, 0), "f-225959");
    assert_eq!(name(&pattern, million, None, 3), "f-2259593");
}

#[test]
fn bytes_begin_another_file_and_the_first_again() {
    let place = Place::new("bytes");
    let (file, request) = (place.0.join("ring"), request());
    let rotation = Rotation { seconds: None, bytes: Some(2000), files: Some(3) };
    let time = LocalTime::of(TimeZone::UTC);
    let target = Target::File(file);
    let mut files = Files::create(target, rotation, &request, &ports(), time, NOW).unwrap();
    let large = [0; 1000];
    for number in 0..8 {
        let large = Captured { bytes: &large, time_ns: NOW + number, ..packet() };
        assert_eq!(files.packet(&large).unwrap(), Room::Left);
    }
    files.end(NOW).unwrap();
    // Two in each, and the fourth file is the first anew.
    assert_eq!(place.listed(), ["ring0", "ring1", "ring2"]);
    let times = |name: &str| times(&place.0.join(name));
    assert_eq!(times("ring0"), [NOW + 6, NOW + 7]);
    assert_eq!(times("ring1"), [NOW + 2, NOW + 3]);
    assert_eq!(times("ring2"), [NOW + 4, NOW + 5]);
}

#[test]
fn time_begins_another_file_and_ends_the_last() {
    let place = Place::new("time");
    let (pattern, request) = (place.0.join("f-%M%S"), request());
    let (target, rotation) = (
        Target::file(&pattern, true).unwrap(),
        Rotation { seconds: Some(2), bytes: None, files: Some(2) },
    );
    let time = LocalTime::of(TimeZone::UTC);
    let mut files = Files::create(target, rotation, &request, &ports(), time, NOW).unwrap();
    assert_eq!(files.until_ns(), None, "there is another to come");
    let at = |ns| Captured { time_ns: NOW + ns, ..packet() };
    assert_eq!(files.packet(&at(2 * SECOND - 1)).unwrap(), Room::Left);
    // Nothing for a while: no empty files, and the next begins with its packet.
    assert_eq!(files.packet(&at(7 * SECOND)).unwrap(), Room::Left);
    assert_eq!(files.until_ns(), Some(NOW + 9 * SECOND), "it ends without a packet, too");
    assert_eq!(files.packet(&at(9 * SECOND - 1)).unwrap(), Room::Left);
    assert_eq!(files.packet(&at(9 * SECOND)).unwrap(), Room::None);
    files.end(NOW).unwrap();
    assert_eq!(place.listed(), ["f-0006", "f-5959"]);
    assert_eq!(times(&place.0.join("f-5959")), [NOW + 2 * SECOND - 1]);
    assert_eq!(times(&place.0.join("f-0006")), [NOW + 7 * SECOND, NOW + 9 * SECOND - 1]);
}

#[test]
fn the_last_file_ends_in_time_without_a_packet() {
    let place = Place::new("idle");
    let server = Script::new(vec![Step::Sleep]);
    let words = format!("-G 1 -W 1 -w {}", place.0.join("f").display());
    let (outcome, _, messages) = capture(&words, &server);
    outcome.expect("its time was over");
    assert!(messages.contains("\n0 packets captured\n"), "{messages}");
    assert_eq!(place.listed(), ["f"]);
}

#[test]
fn what_cannot_be_written_is_told() {
    let server = Script::new(vec![Step::Packets(vec![packet()])]);
    let (outcome, _, _) = capture("-w /nonexistent/f -c 1", &server);
    let messages = outcome.unwrap_err().to_string();
    assert_eq!(
        messages,
        "cannot write the capture /nonexistent/f: No such file or directory (os error 2); name a file that you may \
         write with -w"
    );
    let (outcome, _, _) = capture("-w /dev/full -c 1", &server);
    let messages = outcome.unwrap_err().to_string();
    assert!(
        messages
            .starts_with("cannot write the capture /dev/full any more, after 0 packets: No space")
    );
}

/// A file of yesterday survives today's typing error.
#[test]
fn a_wrong_request_leaves_the_file_alone() {
    let place = Place::new("alone");
    let file = place.0.join("f");
    fs::write(&file, "yesterday").unwrap();
    let table = [
        ("-i wna", "port `wna` does not exist; existing ports: wan, lan, and `any`"),
        ("udpp", "the filter `udpp` is wrong: syntax error; pcap-filter(7) is its grammar"),
    ];
    for (words, said) in table {
        let server = Script::new(Vec::new());
        let (outcome, _, messages) = capture(&format!("-w {} {words}", file.display()), &server);
        assert_eq!((outcome.unwrap_err().to_string().as_str(), messages.as_str()), (said, ""));
        assert_eq!(fs::read_to_string(&file).unwrap(), "yesterday");
    }
}

#[test]
fn faults_of_the_command_line_say_what_to_do() {
    let table = [
        ("-G 5", "-G begins another file, but no file is named: add -w FILE"),
        ("-C 5 udp", "-C begins another file, but no file is named: add -w FILE"),
        (
            "-G 5 -w -",
            "-G begins another file, and `-w -` is standard output: name a file, or leave -G out",
        ),
        (
            "-C 5 -w -",
            "-C begins another file, and `-w -` is standard output: name a file, or leave -C out",
        ),
        ("-W 5 -w f", "-W counts files, but only one is written: add -G SECONDS or -C MILLIONS"),
    ];
    for (words, messages) in table {
        assert_eq!(parse(words).unwrap().target().unwrap_err().to_string(), messages, "{words}");
    }
    let error = parse("-G 5 -w f-%!").unwrap().target().unwrap_err().to_string();
    assert!(
        error.starts_with("with -G, `f-%!` is a pattern of strftime(3), and this one "),
        "{error}"
    );
    for words in ["-c 0", "-c x", "-s 262145", "--point up", "-G 0 -w f", "-i", "--no-such-option"]
    {
        assert!(parse(words).is_err(), "{words}");
    }
}

#[test]
fn the_usual_words_of_tcpdump_are_taken() {
    let options = parse("-nni wan -e -vvv -XX -s0 -lU -c 5 tcp port 80 -q").unwrap();
    assert_eq!(options.request().filter.as_deref(), Some("tcp port 80"));
    assert_eq!(options.request().snap, SNAP_MAX);
    assert_eq!(options.request().points, [Point::Receive, Point::Transmit]);
    let style = options.style();
    let hex = style.hex.expect("-XX asks for bytes");
    assert!(style.link && style.verbose && style.quiet && hex.ascii && hex.link);
    assert_eq!(parse("").unwrap().request().filter, None);
    assert_eq!(parse("").unwrap().request().port, None);
    Cli::command().debug_assert();
}

#[test]
fn wireshark_is_told_of_ports_and_options() {
    let server = Script::new(Vec::new());
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        extcap("--extcap-interfaces --extcap-version=4.0", &server).unwrap(),
        format!(
            "extcap {{version={version}}}{{display=manylane}}\n\
             interface {{value=manylane-any}}{{display=manylane: all ports}}\n\
             interface {{value=manylane-wan}}{{display=manylane: wan}}\n\
             interface {{value=manylane-lan}}{{display=manylane: lan}}\n"
        )
    );
    assert_eq!(
        extcap("--extcap-interface manylane-wan --extcap-dlts", &server).unwrap(),
        "dlt {number=1}{name=EN10MB}{display=Ethernet}\n"
    );
    let config = extcap("--extcap-interface manylane-wan --extcap-config", &server).unwrap();
    // What the dialog answers with are options of ours.
    for call in ["--point", "--snapshot-length", "--socket"] {
        assert!(config.contains(&format!("{{call={call}}}")), "{config}");
    }
    parse("--point rx,tx --snapshot-length 100 --socket /run/s").unwrap();
    // A wrapper's socket is the dialog's, too, and comes twice.
    let config = extcap("--socket /run/s --extcap-interface manylane-wan --extcap-config", &server);
    assert!(config.unwrap().contains("{default=/run/s}"));
    let twice = parse("--socket /run/s --socket /run/t").unwrap();
    assert_eq!(twice.socket, std::path::Path::new("/run/t"));
    let filter = "--extcap-interface manylane-wan --extcap-capture-filter ";
    assert_eq!(extcap(&format!("{filter} udp"), &server).unwrap(), "");
    assert!(extcap(&format!("{filter} udpp"), &server).unwrap().contains("syntax error"));
    for (words, messages) in [
        (
            "--capture --fifo f",
            "--capture is for Wireshark, and needs --extcap-interface: add it, or leave --capture out",
        ),
        (
            "--capture --extcap-interface manylane-wan",
            "--capture is for Wireshark, and needs --fifo: add it, or leave --capture out",
        ),
        (
            "--extcap-interface eth0 --extcap-dlts",
            "`eth0` is no interface of ours: --extcap-interfaces lists them",
        ),
    ] {
        assert_eq!(extcap(words, &server).unwrap_err().to_string(), messages);
    }
}

#[test]
fn wireshark_gets_packets_by_its_fifo() {
    let place = Place::new("extcap");
    let fifo = place.0.join("fifo");
    fs::write(&fifo, "").unwrap(); // A file can be read afterwards.
    let server = Script::new(vec![Step::Packets(vec![packet(); 3]), Step::Wake(Wake::End)]);
    let words = format!(
        "--capture --extcap-interface manylane-wan --fifo {} --point rx,drop --snapshot-length 100 \
         --extcap-capture-filter udp",
        fifo.display()
    );
    let outcome = extcap(&words, &server);
    assert!(matches!(outcome, Err(CaptureError::Ended)), "{outcome:?}");
    let request = Request {
        port: Some("wan".into()),
        points: vec![Point::Receive, Point::Drop],
        snap: 100,
        filter: Some("udp".into()),
    };
    assert_eq!(*server.asked.borrow(), Some(request));
    assert_eq!(times(&fifo), [NOW; 3]);
}
