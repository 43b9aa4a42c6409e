//! Without a live accelerator the kernel forwards: whatever ends it, traffic continues, and another one takes over.
//!
//! "The kernel forwards" is what its own counter says (`ForwDatagrams` of proc_pid_net(5)'s `snmp`), which nothing
//! counts in that goes the fast way.

use manylane_accelerate::programs::{IngressProgram, Sizes};
use manylane_io::interface::Interface;
use manylane_lab::accelerated::{Accelerated, IN_A_ROW, topology};
use manylane_lab::{SERVER_V4, Steady, SteadyOptions, Topology, until};
use nix::sys::signal::Signal;

#[test]
fn whatever_ends_it_the_kernel_forwards_and_the_next_one_takes_over() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let stream = stream(&topology);
    for (signal, is_asked) in [
        (Signal::SIGTERM, true),
        (Signal::SIGINT, true),
        (Signal::SIGKILL, false),
        (Signal::SIGABRT, false),
    ] {
        let mut accelerated = start(&topology);
        is_forwarded(&accelerated, &stream);
        let mark = stream.mark();
        accelerated.signal(signal);
        let status = accelerated.wait();
        the_kernel_forwards(&topology, &format!("after {signal}"));
        let seen = stream.arrives(&format!("after {signal}"));
        println!(
            "{signal}: {} of {} datagrams are missing",
            stream.missing(mark..seen),
            seen - mark
        );
        assert_eq!(stream.missing(mark..seen), 0, "{signal}");
        assert_eq!(status.success(), is_asked, "{signal}: {status}\n{}", accelerated.said());
        let attached = attached(&topology);
        assert!(attached.is_empty(), "{signal}: {attached:?}");
    }
}

/// Without a process that writes it, the lease lapses, and comes back with the process.
#[test]
fn an_accelerator_that_is_stopped_lets_the_kernel_forward_until_it_goes_on() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let stream = stream(&topology);
    let accelerated = start(&topology);
    for _ in 0..3 {
        is_forwarded(&accelerated, &stream);
        let mark = stream.mark();
        accelerated.signal(Signal::SIGSTOP);
        the_kernel_forwards(&topology, "while it is stopped");
        let seen = stream.arrives("while it is stopped");
        assert_eq!(stream.missing(mark..seen), 0, "while it is stopped");
        accelerated.signal(Signal::SIGCONT);
    }
    is_forwarded(&accelerated, &stream);
    assert!(accelerated.passed("lapsed") > 0, "{:#?}", accelerated.ledger());
    accelerated.wait_for_no_difference();
}

#[test]
fn a_second_one_is_refused_by_name_and_the_first_goes_on() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let stream = stream(&topology);
    let first = start(&topology);
    is_forwarded(&first, &stream);
    let program = env!("CARGO_BIN_EXE_manylane");
    let mut second = Accelerated::spawn(topology.host("r1"), program, &["wan"], &[]);
    assert!(!second.wait().success(), "{}", second.said());
    let pid = first.pid().to_string();
    assert!(second.said().contains(&pid), "process {pid} is named: {}", second.said());
    is_forwarded(&first, &stream);
}

/// What others have attached stays, is seen before us, and is named.
#[test]
fn another_program_is_reported_and_never_replaced() {
    let Some(topology) = topology(IN_A_ROW) else { return };
    let stream = stream(&topology);
    let others = topology.host("r1").run(|| {
        // Its tables say nothing, so it passes all on.
        let (fast, tables) = IngressProgram::load(&Sizes {
            groups4: 1024,
            ranges4: 1024,
            index6: 1024,
            leaves6: 1024,
            flows: [64, 256, 128],
        })
        .expect("root may load programs");
        let link = fast.attach(&Interface::read("lan").expect("it is there"));
        (link.expect("nothing is attached yet"), fast, tables)
    });
    let before = attached(&topology);
    assert_eq!(before.len(), 1);
    {
        let accelerated = start(&topology);
        is_forwarded(&accelerated, &stream);
        let port = accelerated.port("lan");
        assert_eq!(port.programs.len(), 1, "{port:#?}");
        let now = attached(&topology);
        assert_eq!((now.len(), now.first()), (2, before.first()), "ours is the last one");
    }
    until("ours is gone", || match attached(&topology) {
        now if now == before => Ok(()),
        now => Err(format!("{now:?}")),
    });
    drop(others);
}

fn start(topology: &Topology) -> Accelerated {
    Accelerated::start(topology.host("r1"), env!("CARGO_BIN_EXE_manylane"), &["lan", "wan"])
}

fn stream(topology: &Topology) -> Steady {
    let [client, server] = ["client", "server"].map(|name| topology.host(name));
    Steady::start(client, server, SteadyOptions::to(SERVER_V4)).expect("sockets are to be had")
}

/// Waits until the accelerator forwards all datagrams, and the kernel none.
fn is_forwarded(accelerated: &Accelerated, stream: &Steady) {
    let before = accelerated.forwarded();
    until("datagrams go the fast way", || match accelerated.forwarded() {
        now if now > before + 50 => Ok(()),
        _ => Err(format!("{:#?}", accelerated.ports())),
    });
    stream.arrives("by the fast way");
}

fn the_kernel_forwards(topology: &Topology, when: &str) {
    let before = by_the_kernel(topology);
    until(&format!("the kernel forwards {when}"), || match by_the_kernel(topology) {
        now if now > before + 50 => Ok(()),
        now => Err(format!("{before} before, {now} now")),
    });
}

/// IPv4 packets that the router's kernel has forwarded.
fn by_the_kernel(topology: &Topology) -> u64 {
    let snmp = topology
        .host("r1")
        .run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
        .expect("/proc is mounted");
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
    let at = names.split(' ').position(|name| name == "ForwDatagrams").expect("it is one of them");
    numbers.split(' ').nth(at).and_then(|number| number.parse().ok()).expect("a number")
}

/// The programs at the ingress from the client.
fn attached(topology: &Topology) -> Vec<(u32, String)> {
    topology.host("r1").run(|| {
        let lan = Interface::read("lan").expect("it is there");
        manylane_accelerate::programs::attached(&lan).expect("root may ask").programs
    })
}
