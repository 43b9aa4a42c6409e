//! ip(8) in the calling thread's network namespace, and what the kernel tells meanwhile.

use std::os::fd::AsFd;
use std::process::Command;

use manylane_io::namespace::Host;
use manylane_io::netlink::kernel::{Event, Group, Watch};
use manylane_io::poll::poll;
use serde_json::Value;

/// Runs ip(8) with the words of `arguments`, and returns what it prints.
pub fn ip(arguments: &str) -> String {
    match try_ip(arguments) {
        Ok(printed) => printed,
        Err(complaint) => panic!("ip {arguments}: {complaint}"),
    }
}

/// The same where the kernel may not be able to; the error is what ip(8) complains.
pub fn try_ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("ip(8) is installed where there is root");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// What `ip -j` prints, as a list.
pub fn ip_json(arguments: &str) -> Vec<Value> {
    let printed = ip(&format!("-j -d {arguments}"));
    if printed.trim().is_empty() {
        return Vec::new();
    }
    match serde_json::from_str(&printed).expect("ip(8) prints JSON") {
        Value::Array(list) => list,
        other => panic!("ip -j {arguments} prints {other}"),
    }
}

/// A watch of everything, read to a mark.
pub struct Witness {
    watch: Watch,
    marks: u32,
}

impl Witness {
    /// Begins to listen in the calling thread's network namespace.
    pub fn start() -> Witness {
        let watch = Watch::open(&Group::ALL, 1 << 20).expect("root may listen");
        Witness { watch, marks: 0 }
    }

    /// The events from the last call until now. A rule, added and removed, marks the end:
    /// its events arrive behind those of all earlier changes.
    pub fn told(&mut self) -> Vec<Event> {
        self.marks += 1;
        let priority = MARK + self.marks;
        ip(&format!("rule add priority {priority} table {MARK}"));
        ip(&format!("rule del priority {priority}"));
        let is_mark = |event: &Event| matches!(event, Event::Rule(rule) | Event::RuleGone(rule) if rule.priority == priority);
        let mut told = self.until(|event| matches!(event, Event::RuleGone(_)) && is_mark(event));
        told.retain(|event| !is_mark(event));
        told
    }

    /// What the kernel told up to the first event that `is_last`, which may come late.
    pub fn until(&mut self, mut is_last: impl FnMut(&Event) -> bool) -> Vec<Event> {
        let mut told = Vec::new();
        let mut is_over = false;
        while !is_over {
            poll(&[self.watch.as_fd()], None).expect("the socket is open");
            let read = self.watch.read(&mut |event| {
                is_over |= is_last(&event);
                told.push(event);
            });
            let read = read.expect("the kernel tells");
            assert!(!read.overrun, "the buffer is large enough for a test");
        }
        told
    }
}

/// v0 and w0 with carriers, each with an address of both families (10.0.0.1 and fd00::1, 10.0.1.1 and fd01::1), in a
/// namespace of their own; or a line that says why not.
pub fn lab(name: &str) -> Option<Host> {
    let host = super::host(name)?;
    super::silence(&host);
    super::skip_duplicate_detection(&host);
    host.run(|| {
        let mut witness = Witness::start();
        for (end, other) in [("v0", "v1"), ("w0", "w1")] {
            ip(&format!("link add {end} type veth peer name {other}"));
            ip(&format!("link set {other} up"));
            ip(&format!("link set {end} up"));
            witness.until(|event| has_carrier(event, end) == Some(true));
        }
        ip("link set lo up");
        ip("addr add 10.0.0.1/24 dev v0");
        ip("addr add 10.0.1.1/24 dev w0");
        ip("addr add fd00::1/64 dev v0 nodad");
        ip("addr add fd01::1/64 dev w0 nodad");
        // The kernel comes to them later.
        let mut missing = vec!["fd00::1", "fd01::1"];
        witness.until(|event| {
            if let Event::Route { route, .. } = event
                && route.prefix_len == 128
            {
                missing.retain(|address| *address != route.destination.to_string());
            }
            missing.is_empty()
        });
    });
    Some(host)
}

/// Whether the event says that this link is up and has a carrier; none for other events.
pub fn has_carrier(event: &Event, name: &str) -> Option<bool> {
    match event {
        Event::Link(link) if link.name == name => Some(link.flags & libc::IFF_RUNNING as u32 != 0),
        _ => None,
    }
}

/// Priorities and the table of marks.
const MARK: u32 = 20_000;
