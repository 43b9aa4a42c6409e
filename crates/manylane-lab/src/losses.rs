//! [`Losses`]: what counts lost packets, by place and reason, and what was counted between two moments.
//!
//! A test that allows losses names the counters that may have them. The packets that did not arrive are then exactly
//! those that these counters have counted meanwhile: a loss elsewhere, or one that nothing counts, fails the test.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;

use manylane_api::accelerate::AcceleratedLedger;
use manylane_api::{Ledger, PortStatus};
use manylane_io::namespace::Host;

use crate::tools::until;

/// Lost packets, by `place reason`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<String, u64>);

impl Losses {
    /// What the kernels of these hosts have lost since the hosts were made: `server eth0 rx_dropped`, `server Udp
    /// RcvbufErrors`, ...
    ///
    /// # Panics
    ///
    /// When proc(5) cannot be read.
    pub fn of_kernels(hosts: &[(&str, &Host)]) -> Losses {
        let mut losses = Losses::default();
        for (name, host) in hosts {
            let [devices, ipv4, ipv6] = proc_net(host);
            losses.add(name, of_devices(&devices, &LOST));
            losses.add(name, of_protocols(ipv4_counters(&ipv4)));
            losses.add(name, of_protocols(ipv6_counters(&ipv6)));
        }
        losses
    }

    /// Adds what `manylane run` has dropped, and what its ports have lost: `ledger queue_moved`, `lan lost_ring_full`, ...
    pub fn add_router(&mut self, ledger: &Ledger, ports: &[PortStatus]) {
        self.add("ledger", &ledger.dropped);
        for port in ports {
            let counts = [
                ("lost_ring_full", port.lost_ring_full),
                ("lost_no_buffer", port.lost_no_buffer),
                ("lost_invalid", port.lost_invalid),
                ("lost_closed", port.lost_closed),
                ("lost_transmit", port.lost_transmit),
            ];
            self.add(&port.name, counts);
        }
    }

    /// Adds what `manylane accelerate` has dropped, and what devices and queueing disciplines have behind it: `ledger
    /// worker_full`, `ledger device_dropped`, ...
    pub fn add_accelerator(&mut self, ledger: &AcceleratedLedger) {
        self.add("ledger", &ledger.dropped);
        let behind =
            [("device_dropped", ledger.device_dropped), ("queue_dropped", ledger.queue_dropped)];
        self.add("ledger", behind);
    }

    /// What was lost since `before`.
    pub fn since(&self, before: &Losses) -> Losses {
        let lost = |(name, count): (&String, &u64)| {
            // The counters of a queue have no owner for a moment when it changes workers.
            let lost = count.saturating_sub(before.of(&[name]));
            (lost > 0).then(|| (name.clone(), lost))
        };
        Losses(self.0.iter().filter_map(lost).collect())
    }

    /// The sum of these counters.
    pub fn of(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.0.get(*name)).sum()
    }

    /// Waits until these counters have counted at least as many lost packets as are missing, and asserts that they have
    /// counted exactly as many since `before`. Returns what was lost since then, at all places.
    ///
    /// # Panics
    ///
    /// When they have not, with what all counters say.
    pub fn account(
        missing: u64,
        names: &[&str],
        before: &Losses,
        mut now: impl FnMut() -> Losses,
    ) -> Losses {
        let what = format!("{names:?} have counted the {missing} missing packets");
        let lost = until(&what, || {
            let lost = now().since(before);
            if lost.of(names) >= missing { Ok(lost) } else { Err(format!("{lost:#?}")) }
        });
        assert_eq!(lost.of(names), missing, "{names:?} counted other packets, too: {lost:#?}");
        lost
    }

    fn add(
        &mut self,
        place: &str,
        counts: impl IntoIterator<Item = (impl Display, impl Into<Count>)>,
    ) {
        for (reason, count) in counts {
            *self.0.entry(format!("{place} {reason}")).or_default() += count.into().0;
        }
    }
}

/// What IP and the devices of hosts have sent and received since the hosts were made.
///
/// Both count the same packets where all neighbours are known (else some frames are not IP), and where frames are as
/// their sender's IP made them (no segmentation offload).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Packets that IP gave to the devices; forwarded packets are none of them.
    pub given: u64,
    /// Packets, of `given`, to groups.
    pub given_to_groups: u64,
    /// Frames that the devices sent.
    pub sent: u64,
    /// Frames that the devices dropped instead, and counted.
    pub dropped: u64,
    /// Frames that the devices received, before the kernel puts any together.
    pub received: u64,
    /// Packets, of `received`, to groups of the host.
    pub received_for_groups: u64,
}

impl Packets {
    /// Of these hosts, without what they send to themselves.
    ///
    /// # Panics
    ///
    /// When proc(5) cannot be read.
    pub fn of_kernels(hosts: &[(&str, &Host)]) -> Packets {
        let mut packets = Packets::default();
        for (_, host) in hosts {
            let [devices, ipv4, ipv6] = proc_net(host);
            let devices = of_devices(&devices, &[(1, "received"), (9, "sent"), (11, "dropped")]);
            let counters = [ipv4_counters(&ipv4), ipv6_counters(&ipv6)].concat();
            packets.add(&devices, &counters);
        }
        packets
    }

    fn add(&mut self, devices: &[(String, u64)], by_ip: &[(String, String, u64)]) {
        let by_ip = |name: &str| -> u64 {
            let of_name = by_ip.iter().filter(|(_, counter, _)| counter == name);
            of_name.map(|(_, _, count)| count).sum()
        };
        let by_devices = |name: &str| -> u64 {
            let is_meant = |place: &str| {
                place.split_once(' ').is_some_and(|(device, of)| device != "lo" && of == name)
            };
            devices.iter().filter(|(place, _)| is_meant(place)).map(|(_, count)| count).sum()
        };
        self.given += by_ip("OutRequests");
        self.given_to_groups += by_ip("OutMcastPkts");
        self.sent += by_devices("sent");
        self.dropped += by_devices("dropped");
        self.received += by_devices("received");
        self.received_for_groups += by_ip("InMcastPkts");
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Packets) -> Packets {
        Packets {
            given: self.given - before.given,
            given_to_groups: self.given_to_groups - before.given_to_groups,
            sent: self.sent - before.sent,
            dropped: self.dropped - before.dropped,
            received: self.received - before.received,
            received_for_groups: self.received_for_groups - before.received_for_groups,
        }
    }
}

/// `dev`, `snmp` and `snmp6` of a host (proc_pid_net(5)).
fn proc_net(host: &Host) -> [String; 3] {
    host.run(|| {
        ["dev", "snmp", "snmp6"].map(|file| {
            let path = format!("/proc/thread-self/net/{file}");
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        })
    })
}

/// A count, or a reference to one.
struct Count(u64);

impl From<u64> for Count {
    fn from(count: u64) -> Count {
        Count(count)
    }
}

impl From<&u64> for Count {
    fn from(count: &u64) -> Count {
        Count(*count)
    }
}

/// Columns of `/proc/net/dev`.
const LOST: [(usize, &str); 4] =
    [(2, "rx_errors"), (3, "rx_dropped"), (10, "tx_errors"), (11, "tx_dropped")];

/// These counters of `/proc/net/dev`: behind the name, eight numbers of each direction.
fn of_devices(text: &str, columns: &[(usize, &str)]) -> Vec<(String, u64)> {
    let of_device = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().flat_map(str::parse).collect();
        let count = |(column, what): &(usize, &str)| {
            (format!("{} {what}", name.trim()), numbers.get(*column).copied().unwrap_or(0))
        };
        Some(columns.iter().map(count).collect::<Vec<_>>())
    };
    text.lines().filter_map(of_device).flatten().collect()
}

/// Protocol, counter and count, from the pairs of lines of `/proc/net/snmp`.
fn ipv4_counters(text: &str) -> Vec<(String, String, u64)> {
    let lines: Vec<_> = text.lines().filter_map(|line| line.split_once(": ")).collect();
    let of_protocol = |pair: &[(&str, &str)]| -> Vec<_> {
        let (protocol, names, numbers) = (pair[0].0, pair[0].1, pair[1].1);
        let counts = names.split(' ').zip(numbers.split(' '));
        // `DefaultTTL` and the like are settings, and `MaxConn` of TCP is -1.
        let count = |(name, number): (&str, &str)| {
            Some((protocol.into(), name.into(), number.parse().ok()?))
        };
        counts.filter_map(count).collect()
    };
    lines.chunks_exact(2).flat_map(of_protocol).collect()
}

/// Those of `/proc/net/snmp6`: a line for each counter, `Udp6NoPorts 0`.
fn ipv6_counters(text: &str) -> Vec<(String, String, u64)> {
    let of_line = |line: &str| {
        let (name, number) = line.split_once(char::is_whitespace)?;
        let (protocol, counter) = name.split_once('6')?;
        Some((format!("{protocol}6"), counter.into(), number.trim().parse().ok()?))
    };
    text.lines().filter_map(of_line).collect()
}

/// Those of losses.
fn of_protocols(counters: Vec<(String, String, u64)>) -> Vec<(String, u64)> {
    let is_loss = |(protocol, counter, _): &(String, String, u64)| match protocol.as_str() {
        "Ip" | "Ip6" => IP.contains(&counter.as_str()),
        "Udp" | "Udp6" => UDP.contains(&counter.as_str()),
        _ => false,
    };
    let losses = counters.into_iter().filter(is_loss);
    losses.map(|(protocol, counter, count)| (format!("{protocol} {counter}"), count)).collect()
}

const IP: [&str; 9] = [
    "InHdrErrors",
    "InAddrErrors",
    "InNoRoutes",
    "InUnknownProtos",
    "InTruncatedPkts",
    "InTooBigErrors",
    "InDiscards",
    "OutDiscards",
    "OutNoRoutes",
];
/// `InErrors` is the sum of the last three.
const UDP: [&str; 5] = ["NoPorts", "SndbufErrors", "RcvbufErrors", "InCsumErrors", "MemErrors"];

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                            |  Transmit\n \
                       face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop ...\n    \
                       lo:     100       2    0    0    0     0          0         0      100       2    0    0 0 0 0 0\n  \
                       eth0: 90000     900    1    3    0     0          0         0    70000     700    5    7 0 0 0 0\n";
    const SNMP: &str = "Ip: Forwarding DefaultTTL InAddrErrors\nIp: 2 64 11\n\
                        Tcp: MaxConn RetransSegs\nTcp: -1 5\nUdp: InErrors NoPorts RcvbufErrors\nUdp: 13 1 13\n";
    const SNMP6: &str = "Ip6InDiscards                   \t17\nUdp6NoPorts \t0\nIcmp6InErrors 9\n";

    #[test]
    fn losses_are_found_among_the_kernels_counters() {
        let mut losses = Losses::default();
        losses.add("h", of_devices(DEV, &LOST));
        losses.add("h", of_protocols(ipv4_counters(SNMP)));
        losses.add("h", of_protocols(ipv6_counters(SNMP6)));
        let mut found = losses.since(&Losses::default());
        for (name, count) in [
            ("h eth0 rx_errors", 1),
            ("h eth0 rx_dropped", 3),
            ("h eth0 tx_errors", 5),
            ("h eth0 tx_dropped", 7),
            ("h Ip InAddrErrors", 11),
            ("h Udp NoPorts", 1),
            ("h Udp RcvbufErrors", 13),
            ("h Ip6 InDiscards", 17),
        ] {
            assert_eq!(found.0.remove(name), Some(count), "{name}: {losses:#?}");
        }
        assert_eq!(found, Losses::default());
    }

    #[test]
    fn packets_are_those_of_ip_and_of_all_devices_but_the_loopback() {
        let mut packets = Packets::default();
        let devices = of_devices(DEV, &[(1, "received"), (9, "sent"), (11, "dropped")]);
        packets.add(&devices, &ipv4_counters("Ip: InReceives OutRequests\nIp: 5 700\n"));
        packets
            .add(&[], &ipv6_counters("Ip6OutRequests 11\nIp6OutMcastPkts 3\nIp6InMcastPkts 2\n"));
        let expected = Packets {
            given: 711,
            given_to_groups: 3,
            sent: 700,
            dropped: 7,
            received: 900,
            received_for_groups: 2,
        };
        assert_eq!(packets, expected);
        assert_eq!(packets.since(&packets), Packets::default());
    }

    #[test]
    fn what_was_counted_before_is_not_counted() {
        let losses = |counts: &[(&str, u64)]| {
            let mut losses = Losses::default();
            losses.add("ledger", counts.iter().copied());
            losses
        };
        let before = losses(&[("a", 3), ("b", 2)]);
        let since = losses(&[("a", 3), ("b", 5), ("c", 1)]).since(&before);
        assert_eq!(since, losses(&[("b", 3), ("c", 1)]));
        assert_eq!(since.of(&["ledger b", "ledger z"]), 3);
    }

    /// As this kernel prints them.
    #[test]
    fn the_counters_of_this_machine_are_read() {
        let read = |file| fs::read_to_string(file).expect("proc is mounted");
        assert!(
            of_devices(&read("/proc/net/dev"), &LOST)
                .iter()
                .any(|(name, _)| name == "lo tx_dropped")
        );
        let ipv4 = of_protocols(ipv4_counters(&read("/proc/net/snmp")));
        assert!(ipv4.iter().any(|(name, _)| name == "Udp RcvbufErrors"), "{ipv4:?}");
        assert!(ipv4.iter().any(|(name, _)| name == "Ip InAddrErrors"), "{ipv4:?}");
    }
}
