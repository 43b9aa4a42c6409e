//! What packet sockets wait for on this machine, and what an operator who captures can do about it.

use std::io;
use std::time::Duration;

use manylane_io::interface::{Interface, InterfaceError};
use manylane_io::wait::{Durations, Sequence, packet_socket};
use serde::Serialize;

use super::wrapped;
use crate::terminal::table::lay_out;

/// What was found on an interface.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    packet_sockets: Vec<Row>,
    /// The ways that wait to open: longer than [`SLOW`].
    advice: Vec<&'static str>,
}

/// How long one way took, the median of [`TRIES`].
#[derive(Debug, Serialize)]
struct Row {
    way: &'static str,
    open_us: f64,
    close_us: f64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketsError {
    /// No such interface exists, or the kernel does not tell.
    #[error("{0}")]
    Interface(#[source] InterfaceError),
    /// Packet sockets were refused.
    #[error("cannot open a packet socket on {interface}: {source}; {}", cure(.source))]
    Refused { interface: String, source: io::Error },
}

/// What helps when the kernel refuses a packet socket.
fn cure(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        io::ErrorKind::PermissionDenied => "run it as root, or with CAP_NET_RAW",
        _ => "`ip link` shows whether it is there",
    }
}

/// Tries each way a few times on an interface of the calling thread's network namespace.
pub(super) fn examine(name: &str) -> Result<Finding, SocketsError> {
    let interface = Interface::read(name).map_err(SocketsError::Interface)?;
    let refused = |source| SocketsError::Refused { interface: interface.name.clone(), source };
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let each = Sequence::ALL.into_iter().map(|way| packet_socket(&interface, way));
        tries.push(each.collect::<io::Result<Vec<Durations>>>().map_err(refused)?);
    }
    let waited = |place: usize| {
        let median = |part: fn(&Durations) -> Duration| {
            let mut all: Vec<_> = tries.iter().map(|ways| part(&ways[place])).collect();
            all.sort();
            all[all.len() / 2]
        };
        Durations { open: median(|waited| waited.open), close: median(|waited| waited.close) }
    };
    let ways: Vec<_> = Sequence::ALL.into_iter().zip((0..).map(waited)).collect();
    Ok(finding(&ways))
}

fn finding(ways: &[(Sequence, Durations)]) -> Finding {
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    let row = |&(way, waited): &(Sequence, Durations)| Row {
        way: words(way),
        open_us: us(waited.open),
        close_us: us(waited.close),
    };
    let opens_slowly =
        |wanted| ways.iter().any(|(way, waited)| *way == wanted && waited.open > SLOW);
    let mut advice = Vec::new();
    if opens_slowly(Sequence::ProtocolFirst) {
        advice.push(
            "create packet sockets with protocol 0, and give the protocol to bind(2), once; with libpcap: \
             use 1.10 or newer",
        );
    }
    if opens_slowly(Sequence::WithRing) {
        advice.push(
            "a ring (PACKET_RX_RING) waits in every libpcap: open captures before they are needed, and keep \
             them; for a short look recvmsg(2) without a ring begins at once",
        );
    }
    if ways.iter().any(|(_, waited)| waited.close > SLOW) {
        advice.push(
            "close(2) waits whatever the socket was bound to: close in a thread that no other thread waits for; a \
             filter that refuses everything ends the delivery at once",
        );
    }
    Finding { packet_sockets: ways.iter().map(row).collect(), advice }
}

impl Finding {
    /// For people.
    pub(super) fn text(&self, interface: &str) -> String {
        let rows = self.packet_sockets.iter().map(|row| {
            vec![
                row.way.into(),
                format!("{:.0} us", row.open_us),
                format!("{:.0} us", row.close_us),
            ]
        });
        let title = format!("packet sockets on {interface}");
        let table = lay_out(&[&title, ">open, bind", ">close"], rows);
        let advice = match self.advice.as_slice() {
            [] => "nothing waits here\n".to_owned(),
            some => some.iter().map(|line| wrapped(line, "- ", "  ")).collect(),
        };
        format!("{table}\n{advice}")
    }
}

fn words(way: Sequence) -> &'static str {
    match way {
        Sequence::Unchanged => "made for all packets, bound to them again",
        Sequence::ProtocolFirst => "made for all packets, then bound (libpcap before 1.10)",
        Sequence::BoundOnce => "made with protocol 0, bound once",
        Sequence::WithRing => "bound again, with a ring (libpcap since 1.10)",
    }
}

/// Of each way: 10 would take most of a second where each waits for two ticks of the kernel's clock.
const TRIES: usize = 3;
/// A system call that does not wait takes tens of microseconds, one that does a tick of the kernel's clock.
const SLOW: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_told() {
        let present = vec!["lo".into(), "eth0".into()];
        let absent = InterfaceError::NoSuchInterface { name: "eth7".into(), present };
        let refused = |number| {
            let source = io::Error::from_raw_os_error(number);
            SocketsError::Refused { interface: "eth0".into(), source }
        };
        messages!(SocketsError {
            Interface: [(Interface(absent), ["eth7"], "existing interfaces: lo, eth0")],
            Refused: [
                (refused(1), ["eth0", "not permitted"], "run it as root"),
                (refused(5), ["eth0", "Input/output error"], "`ip link` shows"),
            ],
        });
    }

    /// As Linux 6.18 has it.
    #[test]
    fn who_waits_is_told_what_to_do() {
        let waited = |open| {
            let (open, close) = (Duration::from_micros(open), Duration::from_micros(16_000));
            Durations { open, close }
        };
        let ways: Vec<_> =
            Sequence::ALL.into_iter().zip([16, 7984, 19, 14_000].map(waited)).collect();
        let found = finding(&ways);
        assert_eq!(found.advice.len(), 3);
        let said = found.text("lo");
        assert!(said.starts_with("packet sockets on lo"), "{said}");
        assert!(said.contains("then bound (libpcap before 1.10)     7984 us  16000 us"), "{said}");
        assert!(said.contains("\n- create packet sockets with protocol 0"), "{said}");
    }

    #[test]
    fn where_nothing_waits_there_is_no_advice() {
        let waited = Durations { open: SLOW, close: SLOW };
        let found = finding(&Sequence::ALL.map(|way| (way, waited)));
        assert!(found.advice.is_empty());
        assert!(found.text("lo").ends_with("\nnothing waits here\n"));
    }
}
