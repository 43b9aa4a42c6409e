//! `manylane trace` at `manylane accelerate`: packets that the programs forward, and those that the kernel forwards or
//! drops, by a rule and without one; and that nothing of a trace stays, however it ends. Needs root.

use std::fs::{self, File, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;

use manylane_lab::accelerated::{Accelerated, IN_A_ROW, plain_hosts};
use manylane_lab::scenario::{all_answered, has, signal};
use manylane_lab::tools::mortal;
use manylane_lab::{SERVER_V4, SERVER_V6, Topology, until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::capture::{MANYLANE, alone, none_is_left, start};

/// A running `manylane trace`. Killed when dropped.
struct Trace {
    child: Child,
    folder: PathBuf,
}

impl Trace {
    /// Starts it, and waits until it looks for packets.
    fn start(accelerated: &Accelerated, arguments: &[&str]) -> Trace {
        Trace::start_by(mortal(MANYLANE), accelerated, arguments)
    }

    /// As above, by this command.
    fn start_by(mut command: Command, accelerated: &Accelerated, arguments: &[&str]) -> Trace {
        let number = {
            let mut number = NUMBER.lock().unwrap_or_else(PoisonError::into_inner);
            *number += 1;
            *number
        };
        let folder =
            std::env::temp_dir().join(format!("manylane-trace-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let file = |name: &str| File::create(folder.join(name)).expect("the folder is ours");
        command.arg("trace").arg("--socket").arg(accelerated.socket());
        if !arguments.contains(&"--timeout") {
            // A packet that is not found fails the test, which looks for its page.
            command.args(["--timeout", "60"]);
        }
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        let child = command.spawn().expect("the program is there");
        let trace = Trace { child, folder };
        until("it looks for packets", || {
            let said = trace.read("err");
            if said.contains("looking for packets") { Ok(()) } else { Err(said) }
        });
        trace
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Waits until it has all its packets. Returns what it printed.
    fn end(mut self) -> String {
        let status = self.child.wait().expect("it is our child");
        let said = self.read("err");
        assert!(status.success(), "{status}: {said}");
        assert!(!said.contains("note: "), "{said}");
        self.read("out")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // The command may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The page of a packet that `send` sends. On a machine with much else to do the lease may lapse for a moment, and then
/// the page says only that: another packet is followed.
pub(super) fn page(accelerated: &Accelerated, arguments: &[&str], send: impl Fn()) -> String {
    until("a packet is followed while the lease holds", || {
        let trace = Trace::start(accelerated, arguments);
        send();
        let page = trace.end();
        if page.contains("lapsed") { Err(page) } else { Ok(page) }
    })
}

static NUMBER: Mutex<u32> = Mutex::new(0);

/// Of echo requests to the server.
const REQUESTS: [(IpAddr, &str); 2] = [
    (SERVER_V4, "icmp[0] == 8 and dst host 10.2.0.1"),
    (SERVER_V6, "icmp6[0] == 128 and dst host 2001:db8:2::1"),
];

/// The tables of traces in the router.
fn tables(topology: &Topology) -> usize {
    topology.tool("r1", "nft list tables").matches("manylane_trace_").count()
}

fn nothing_is_left(topology: &Topology) {
    until("no table of a trace is left", || match tables(topology) {
        0 => Ok(()),
        some => Err(some),
    });
    none_is_left();
}

#[test]
fn a_packet_that_manylane_forwards_is_shown_with_its_tier() {
    let _alone = alone();
    for tier in ["ingress", "driver", "workers"] {
        let Some(topology) = plain_hosts(IN_A_ROW) else { return };
        let accelerated = start(&topology, tier);
        for (server, filter) in REQUESTS {
            let client = topology.host("client");
            let page =
                page(&accelerated, &["-i", "lan", filter], || all_answered(client, server, 56));
            assert!(page.starts_with("packet 1, "), "{page}");
            assert!(page.contains(&format!("  {tier}: transmitted by wan\n")), "{page}");
            assert!(page.contains("received            by lan, CPU "), "{page}");
            assert_eq!(page.matches("packet ").count(), 1, "{page}");
        }
        nothing_is_left(&topology);
        // The table that marks packets keeps no port in the kernel.
        let port = accelerated.port("lan");
        assert_eq!((port.tier.as_str(), port.reasons.len()), (tier, 0), "{port:?}");
        accelerated.assert_balanced();
    }
}

#[test]
fn a_packet_that_a_rule_drops_names_the_rule() {
    let _alone = alone();
    if !has("nft") {
        return;
    }
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, "ingress");
    for line in [
        "nft add table inet filter",
        "nft add chain inet filter forward { type filter hook forward priority 0 ; }",
        "nft add rule inet filter forward counter",
        "nft add rule inet filter forward ip daddr 10.2.0.1 drop",
        "nft add rule inet filter forward ip6 daddr 2001:db8:2::1 drop",
    ] {
        topology.tool("r1", line);
    }
    let ping = |server: IpAddr| {
        let line = format!("ping -c 1 -W 1 {server}");
        topology.try_tool("client", &line).expect_err("it is dropped");
    };
    let before = accelerated.passed("no_flow");
    until("the rules are known", || {
        REQUESTS.iter().for_each(|&(server, _)| ping(server));
        if accelerated.passed("no_flow") >= before + 2 { Ok(()) } else { Err("not yet") }
    });
    for ((server, filter), rule, text) in [
        (REQUESTS[0], 2, "ip daddr 10.2.0.1 drop"),
        (REQUESTS[1], 3, "ip6 daddr 2001:db8:2::1 drop"),
    ] {
        let page = page(&accelerated, &[filter], || ping(server));
        let result = format!(
            "  ingress: left to the kernel, no_flow; nft: table inet filter chain forward rule {rule} drop; kernel: \
             dropped, NETFILTER_DROP\n"
        );
        assert!(page.contains(&result), "{page}");
        let listed = topology.tool("r1", "nft -a list chain inet filter forward");
        let line = listed.lines().find(|line| line.contains(text)).expect("the rule is there");
        let handle = line.rsplit(' ').next().unwrap_or_default();
        let stage = format!("table inet filter, chain forward, rule {rule}, handle {handle}: ");
        let line = page.lines().find(|line| line.contains(&stage));
        assert!(line.is_some_and(|line| line.ends_with(text)), "{stage} is not in\n{page}");

        let json = self::page(&accelerated, &["--json", filter], || ping(server));
        let page: Value = serde_json::from_str(&json).expect("it is a line of JSON");
        let stages = page["stages"].as_array().expect("there are stages");
        let drop = stages.iter().find(|stage| stage["verdict"] == "drop").expect("a rule drops");
        assert_eq!((&drop["place"], &drop["rule"]), (&"nft".into(), &rule.into()), "{page}");
        assert_eq!(drop["handle"].to_string(), handle, "{page}");
        assert_eq!(page["complete"], true);
    }
    nothing_is_left(&topology);
}

/// A datagram behind a header of hop-by-hop options.
const WITH_OPTIONS: &str = "python3 -c 'import socket; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); \
     s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_HOPOPTS, bytes([0, 0, 1, 4, 0, 0, 0, 0])); \
     s.sendto(b\"x\", (\"2001:db8:2::1\", 9))'";

#[test]
fn what_the_kernel_forwards_drops_or_receives_says_so() {
    let _alone = alone();
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    for tier in ["ingress", "driver"] {
        let accelerated = start(&topology, tier);
        for (filter, line, reason, end) in [
            ("icmp and dst host 10.2.0.1", "ping -c 1 -R 10.2.0.1", "options", "sent by wan"),
            ("ip6[6] == 0 and dst host 2001:db8:2::1", WITH_OPTIONS, "options", "sent by wan"),
            ("icmp and dst host 10.2.0.1", "ping -c 1 -t 1 -W 1 10.2.0.1", "ttl", "dropped, "),
            (
                "icmp6 and dst host 2001:db8:2::1",
                "ping -c 1 -t 1 -W 1 2001:db8:2::1",
                "ttl",
                "dropped, ",
            ),
            ("icmp and dst host 10.9.0.1", "ping -c 1 -W 1 10.9.0.1", "no_route", "dropped, "),
            (
                "icmp6 and dst host 2001:db8:9::1",
                "ping -c 1 -W 1 2001:db8:9::1",
                "no_route",
                "dropped, ",
            ),
            (
                "icmp and dst host 10.1.0.254",
                "ping -c 1 10.1.0.254",
                "local",
                "delivered to the router itself",
            ),
            (
                "icmp6[0] == 128 and dst host 2001:db8:1::fe",
                "ping -c 1 2001:db8:1::fe",
                "local",
                "delivered to the router itself",
            ),
        ] {
            // Some are answered, and some not.
            let send = || drop(topology.try_tool("client", line));
            let page = page(&accelerated, &[filter], send);
            let result = format!("  {tier}: left to the kernel, {reason}; kernel: {end}");
            assert!(page.contains(&result), "{line}: no {result:?} in\n{page}");
            assert!(!page.contains("not followed to its end"), "{page}");
        }
    }
    nothing_is_left(&topology);
}

#[test]
fn nothing_of_a_trace_stays_however_it_ends() {
    let _alone = alone();
    if !has("nft") {
        return;
    }
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let mut accelerated = start(&topology, "ingress");
    for last in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let mut trace = Trace::start(&accelerated, &["host", "10.9.9.9"]);
        assert_eq!(tables(&topology), 1);
        // Two at a time do not meet.
        let other = Trace::start(&accelerated, &["--timeout", "1", "host", "10.9.9.8"]);
        assert_eq!(tables(&topology), 2);
        signal(&trace.child, last);
        let status = trace.child.wait().expect("it is our child");
        match last {
            Signal::SIGKILL => assert_eq!(status.signal(), Some(last as i32)),
            _ => assert!(status.success(), "{status}: {}", trace.read("err")),
        }
        assert!(
            last == Signal::SIGKILL || trace.read("err").contains("stopped with 0 of 1 packets"),
            "{}",
            trace.read("err")
        );
        assert_eq!(other.end(), "");
        nothing_is_left(&topology);
    }
    let mut trace = Trace::start(&accelerated, &["host", "10.9.9.9"]);
    accelerated.signal(Signal::SIGKILL);
    accelerated.wait();
    assert!(trace.child.wait().expect("it is our child").success());
    let said = trace.read("err");
    assert!(said.contains("the daemon has stopped with 0 of 1 packets"), "{said}");
    nothing_is_left(&topology);
}

#[test]
fn what_is_not_seen_is_said() {
    let _alone = alone();
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, "ingress");
    // A filter for Ethernet is none for the kernel's rules, and works all the same.
    let mac = topology.mac("client", "eth0").expect("it is there");
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let filter = format!("ether src {mac} and icmp");
    let mut trace = Trace::start(&accelerated, &[&filter]);
    let _ = topology.try_tool("client", "ping -c 1 -t 1 -W 1 10.2.0.1");
    assert!(trace.child.wait().expect("it is our child").success());
    let (said, page) = (trace.read("err"), trace.read("out"));
    assert!(said.contains("note: nftables cannot filter so"), "{said}");
    assert!(page.contains("  ingress: left to the kernel, "), "{page}");
    assert!(page.contains("; kernel: dropped, "), "{page}");
    // Legacy tables, and a port that the kernel has alone.
    if has("iptables-legacy") {
        topology.tool("r1", "iptables-legacy -A FORWARD -j ACCEPT");
        let trace = Trace::start(&accelerated, &["host", "10.9.9.9"]);
        let said = trace.read("err");
        let note =
            "note: rules of iptables-legacy are not followed (chain FORWARD of table filter)";
        assert!(said.contains(note), "{said}");
    }
    let error = mortal(MANYLANE)
        .args(["trace", "-i", "dmz", "--socket"])
        .arg(accelerated.socket())
        .output()
        .expect("the program is there");
    let said = String::from_utf8_lossy(&error.stderr);
    assert_eq!(error.status.code(), Some(1), "{said}");
    assert!(said.contains("port `dmz` does not exist; existing ports: lan, wan"), "{said}");
    nothing_is_left(&topology);
}

#[test]
fn another_user_sees_what_manylane_does() {
    let _alone = alone();
    let Some(topology) = plain_hosts(IN_A_ROW) else { return };
    let accelerated = start(&topology, "ingress");
    let folder = std::env::temp_dir().join(format!("manylane-tracer-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    // The build's own folder may be closed to others.
    let program = folder.join("manylane");
    fs::copy(MANYLANE, &program).expect("there is room");
    let socket = manylane_client::path_beside(&accelerated.socket());
    fs::set_permissions(socket, Permissions::from_mode(0o666)).expect("it is ours");
    let mut command = mortal("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    let mut trace = Trace::start_by(command, &accelerated, &["icmp and dst host 10.2.0.1"]);
    let _ = topology.try_tool("client", "ping -c 1 -t 1 -W 1 10.2.0.1");
    assert!(trace.child.wait().expect("it is our child").success());
    let (said, page) = (trace.read("err"), trace.read("out"));
    assert!(said.contains("note: the kernel's part is not followed: "), "{said}");
    assert!(page.contains("  manylane: left to the kernel, "), "{page}");
    assert!(page.contains("; kernel: not followed\n"), "{page}");
    nothing_is_left(&topology);
    let _ = fs::remove_dir_all(&folder);
}
