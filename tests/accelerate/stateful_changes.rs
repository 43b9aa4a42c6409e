//! Rules, sets, connections and addresses change while established connections are forwarded by `manylane accelerate`, in
//! either tier: what the change forbids ends within the lane's limit, and other connections stay in the lane.
//!
//! The tests read no clock: datagrams have numbers, and a thousand a second are sent of each stream. After the command has
//! returned, no more of them arrive than are sent within [`LIMIT`], beside what is sent until a listener of the kernel's
//! notifications runs: the daemon's threads need a core as well. Where the kernel announces nothing, since a connection is
//! older than all listeners, the limit alone holds.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use manylane_io::eventfd::EventFd;
use manylane_io::netlink::conntrack::{Conntrack, ConntrackEvents};
use manylane_io::netlink::nftables;
use manylane_io::poll::poll;
use manylane_lab::accelerated::{Accelerated, plain_hosts, topology};
use manylane_lab::scenario::has;
use manylane_lab::{Steady, SteadyOptions, Topology, until};
use manylane_sync::doorbell::Wake;

/// The client and the server have two addresses of each family: the second pair's connections are those that end.
const NETWORK: &str = "
    host client via 10.1.0.254 2001:db8:1::fe
    host server via 10.2.0.254 2001:db8:2::fe
    router r1
    link client:eth0 10.1.0.1/24 10.1.0.2/24 2001:db8:1::1/64 2001:db8:1::2/64 -- r1:lan 10.1.0.254/24 2001:db8:1::fe/64
    link r1:wan 10.2.0.254/24 10.3.0.254/24 2001:db8:2::fe/64 2001:db8:3::fe/64 -- server:eth0 10.2.0.1/24 10.3.0.1/24 2001:db8:2::1/64 2001:db8:3::1/64
";

/// Source and destination of the connections that stay, and of those that end.
const STAYING: [[&str; 2]; 2] = [["10.1.0.1", "10.2.0.1"], ["2001:db8:1::1", "2001:db8:2::1"]];
const ENDING: [[&str; 2]; 2] = [["10.1.0.2", "10.3.0.1"], ["2001:db8:1::2", "2001:db8:3::1"]];

/// A router's rules: packets from a source in `blocked`, or from one that is not in `served`, are dropped. `{new}` says what
/// may be opened.
const RULES: &str = "
    table inet fw
    delete table inet fw
    table inet fw {
        set blocked { type ipv4_addr; }
        set blocked6 { type ipv6_addr; }
        set served { type ipv4_addr; elements = { 10.1.0.2 }; }
        set served6 { type ipv6_addr; elements = { 2001:db8:1::2 }; }
        chain forward {
            type filter hook forward priority filter; policy drop;
            ip saddr @blocked drop
            ip6 saddr @blocked6 drop
            ip daddr 10.3.0.1 ip saddr != @served drop
            ip6 daddr 2001:db8:3::1 ip6 saddr != @served6 drop
            {first}
            ct state established,related accept
            {new}
        }
        {translation}
    }
";
const NEW: &str = "iifname lan accept";
const MASQUERADE: &str =
    "chain out { type nat hook postrouting priority srcnat; oifname wan masquerade; }";

/// Other rules, in one transaction.
#[test]
fn rules_that_drop_a_connection() {
    each("", &[Age::Older], |bed| {
        let first = "ip saddr 10.1.0.2 drop; ip6 saddr 2001:db8:1::2 drop;";
        bed.ends("nft -f", || bed.load(first, NEW, ""));
    });
}

#[test]
fn an_element_that_blocks() {
    let add =
        "add element inet fw blocked { 10.1.0.2 }; add element inet fw blocked6 { 2001:db8:1::2 }";
    each("", &[Age::Younger], |bed| bed.ends("nft add element", || bed.nft(add)));
}

#[test]
fn a_set_that_is_flushed() {
    let flush = "flush set inet fw served; flush set inet fw served6";
    each("", &[Age::Younger], |bed| bed.ends("nft flush set", || bed.nft(flush)));
}

/// Without a connection the rules let none of these packets pass.
#[test]
fn a_connection_that_is_deleted() {
    each("", &AGES, |bed| {
        bed.close();
        bed.ends("conntrack -D", || {
            bed.router("conntrack -D -f ipv4 -s 10.1.0.2");
            bed.router("conntrack -D -f ipv6 -s 2001:db8:1::2");
        });
    });
}

/// All of them end.
#[test]
fn connections_that_are_flushed() {
    each("", &AGES, |bed| {
        bed.close();
        bed.all_end("conntrack -F", || bed.router("conntrack -F"));
    });
}

/// The kernel ends the connections that have the address, by a work queue, and a new one has another source.
#[test]
fn an_address_that_is_removed() {
    each(MASQUERADE, &AGES, |bed| {
        // What leads there without the address.
        bed.router("ip route add 10.3.0.0/25 dev wan");
        bed.router("ip -6 route add 2001:db8:3::/65 dev wan");
        bed.wait_until_all_are_in_the_lane();
        bed.ends("ip addr del", || {
            bed.router("ip addr del 10.3.0.254/24 dev wan");
            bed.router("ip -6 addr del 2001:db8:3::fe/64 dev wan");
            bed.wait_until_ended("-f ipv4 --reply-dst 10.3.0.254");
            bed.wait_until_ended("-f ipv6 --reply-dst 2001:db8:3::fe");
        });
    });
}

/// Each tier, with connections of each of these ages.
fn each(translation: &str, ages: &[Age], change: impl Fn(&Bed)) {
    for tier in ["ingress", "driver"] {
        for age in ages {
            println!("{tier}, {age:?}");
            let Some(bed) = Bed::make(tier, translation, *age) else { return };
            change(&bed);
        }
    }
}

/// Of the streams' connections, beside manylane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// The kernel does not announce their end.
    Older,
    Younger,
}

const AGES: [Age; 2] = [Age::Older, Age::Younger];

/// The router, four streams through it, and what hears as the daemon does.
struct Bed {
    accelerated: Accelerated,
    topology: Topology,
    staying: Vec<Steady>,
    ending: Arc<Vec<Steady>>,
}

impl Bed {
    fn make(tier: &str, translation: &str, age: Age) -> Option<Bed> {
        if !has("nft") || !has("conntrack") {
            return None;
        }
        // The driver forwards none whose checksum is open.
        let topology = if tier == "driver" { plain_hosts(NETWORK) } else { topology(NETWORK) }?;
        load(&topology, "", NEW, translation);
        let [client, server] = ["client", "server"].map(|name| topology.host(name));
        let program = env!("CARGO_BIN_EXE_manylane");
        let router = topology.host("r1");
        let start = || Accelerated::start_with(router, program, &["lan", "wan"], &["--tier", tier]);
        let begun = (age == Age::Younger).then(start);
        let stream = |[from, to]: [&str; 2]| {
            let address = |text: &str| -> IpAddr { text.parse().expect("it is an address") };
            let to = SteadyOptions::to(address(to));
            let options = SteadyOptions { source: Some(address(from)), is_answered: true, ..to };
            Steady::start(client, server, options).expect("sockets are to be had")
        };
        let [staying, ending] =
            [STAYING, ENDING].map(|of| of.map(stream).into_iter().collect::<Vec<_>>());
        let accelerated = begun.unwrap_or_else(|| {
            // Conntrack has them before manylane listens.
            staying.iter().chain(&ending).for_each(|stream: &Steady| _ = stream.arrives("older"));
            start()
        });
        for name in ["lan", "wan"] {
            accelerated.wait_for_tier(name, tier);
        }
        let bed = Bed { topology, accelerated, staying, ending: Arc::new(ending) };
        bed.wait_until_all_are_in_the_lane();
        Some(bed)
    }

    fn streams(&self) -> impl Iterator<Item = &Steady> {
        self.staying.iter().chain(self.ending.iter())
    }

    /// No packet is the kernel's for a while, and the streams arrive.
    fn wait_until_all_are_in_the_lane(&self) {
        self.wait_until_in_the_lane(&self.streams().collect::<Vec<_>>());
    }

    /// As many packets are forwarded as these streams send, both ways.
    fn wait_until_in_the_lane(&self, streams: &[&Steady]) {
        until("the connections are in the lane", || {
            let before = self.accelerated.forwarded();
            let marks: Vec<u64> = streams.iter().map(|stream| stream.mark()).collect();
            streams[0].after(300);
            let sent: u64 =
                streams.iter().zip(marks).map(|(stream, mark)| stream.mark() - mark).sum();
            let forwarded = self.accelerated.forwarded() - before;
            // Less than one direction of one stream: those on their way when either number is read.
            match 10 * forwarded >= 9 * 2 * sent {
                true => Ok(()),
                false => Err(format!(
                    "{forwarded} forwarded, {sent} sent and answered: {:#?}",
                    self.accelerated.ports()
                )),
            }
        });
    }

    /// Nothing may be opened from now on.
    fn close(&self) {
        self.load("", "", "");
        self.wait_until_all_are_in_the_lane();
    }

    fn load(&self, first: &str, new: &str, translation: &str) {
        load(&self.topology, first, new, translation);
    }

    fn router(&self, line: &str) {
        self.topology.tool("r1", line);
    }

    /// Waits until conntrack has none of these connections.
    fn wait_until_ended(&self, filter: &str) {
        let line = format!("conntrack -L {filter}");
        until("the kernel has ended the connections", || match self.topology.tool("r1", &line) {
            none if none.is_empty() => Ok(()),
            some => Err(some),
        });
    }

    fn nft(&self, script: &str) {
        self.router(&format!("nft '{script}'"));
    }

    /// A change after which two of the streams end, and the two others lose nothing.
    fn ends(&self, what: &str, change: impl Fn()) {
        let marks: Vec<u64> = self.staying.iter().map(Steady::mark).collect();
        self.all_that_end(what, change);
        self.wait_until_in_the_lane(&self.staying.iter().collect::<Vec<_>>());
        for (stream, mark) in self.staying.iter().zip(marks) {
            let end = stream.mark();
            stream.arrives("all that was sent before has");
            assert_eq!(stream.missing(mark..end), 0, "{what}: {:?}", stream.arrivals());
        }
    }

    /// A change after which all streams end.
    fn all_end(&self, what: &str, change: impl Fn()) {
        let marks: Vec<u64> = self.staying.iter().map(Steady::mark).collect();
        self.all_that_end(what, change);
        for (stream, mark) in self.staying.iter().zip(marks) {
            let end = stream.mark();
            let last = stream.last_unchanged(mark..end);
            assert!(last.is_none_or(|last| last + WATCHED / 2 < end), "{what}: {last:?} of {end}");
        }
    }

    fn all_that_end(&self, what: &str, change: impl Fn()) {
        let listener = Listener::start(&self.topology, self.ending.clone());
        change();
        let returned: Vec<u64> = self.ending.iter().map(Steady::mark).collect();
        let ends: Vec<u64> = self.ending.iter().map(|stream| stream.after(WATCHED)).collect();
        let heard = listener.marks().unwrap_or_else(|| returned.clone());
        for (place, stream) in self.ending.iter().enumerate() {
            let (returned, end) = (returned[place], ends[place]);
            let last = stream.last_unchanged(returned..end);
            let passed = last.map_or(0, |last| last + 1 - returned);
            let heard = heard[place].saturating_sub(returned);
            println!("{what}: {passed} datagrams passed, a listener heard after {heard}");
            assert!(
                passed <= LIMIT + 2 * heard,
                "{what}: {passed} passed, a listener heard after {heard}"
            );
        }
    }
}

fn load(topology: &Topology, first: &str, new: &str, translation: &str) {
    let rules =
        RULES.replace("{first}", first).replace("{new}", new).replace("{translation}", translation);
    topology.tool("r1", &format!("nft '{rules}'"));
}

/// A thread that is notified as the daemon is: of rules and sets, and of connections that end.
struct Listener {
    heard: Receiver<Vec<u64>>,
    end: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn start(topology: &Topology, streams: Arc<Vec<Steady>>) -> Listener {
        let (mut notices, mut ends) = topology.host("r1").run(|| {
            let notices = nftables::notices().expect("sockets are to be had");
            let requests = Conntrack::open().expect("sockets are to be had");
            let ends = ConntrackEvents::open(&requests, 1 << 20).expect("sockets are to be had");
            (notices.expect("this kernel has nftables"), ends)
        });
        let end = Arc::new(EventFd::open().expect("eventfds are to be had"));
        let (sender, heard) = channel();
        let over = end.clone();
        let thread = thread::spawn(move || {
            while !over.drain() {
                poll(&[over.as_fd(), notices.as_fd(), ends.as_fd()], None).expect("all are open");
                notices.drain().expect("the socket is open");
                ends.read(|_| ()).expect("the socket is open");
                let _ = sender.send(streams.iter().map(Steady::mark).collect());
            }
        });
        Listener { heard, end, thread: Some(thread) }
    }

    /// How much had been sent when the last notification was heard, if one was.
    fn marks(&self) -> Option<Vec<u64>> {
        self.heard.try_iter().last()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Datagrams of a stream in 150 ms.
const LIMIT: u64 = 150;
/// How many are watched after the change: many times the limit.
const WATCHED: u64 = 1000;
