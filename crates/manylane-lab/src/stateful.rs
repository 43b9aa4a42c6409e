//! A router that filters by connection, or translates too, and connections through it that conntrack has settled.
//!
//! ```text
//! Rules::load -> Datagrams::establish -> settled connections -> traffic of theirs -> unload
//! ```
//!
//! The rules are nftables' in the router's namespace, as an operator writes them: [`Rules`]. [`connections`] says what
//! conntrack(8) says of each connection, translation included, and [`answer`] sends a packet back along such a
//! connection, from the side behind the router, to whatever address it was translated to.
//!
//! A UDP connection is *assured* when it has seen packets of both directions, and one more that is two seconds younger
//! than its first (`nf_conntrack_udp_packet`, net/netfilter/nf_conntrack_proto_udp.c). No event can bring these two
//! seconds nearer: [`Datagrams::establish`] takes them.
//!
//! How many connections conntrack keeps (`nf_conntrack_max`), and how many buckets they share, is the whole machine's: a
//! namespace reads these settings, and the first one alone may change them. Timeouts are the namespace's own.
//!
//! Needs nft and conntrack, and hosts whose links to the router are called `eth0`.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use manylane_io::namespace::Host;
use manylane_io::netlink::{Netlink, NetlinkError};
use manylane_io::station::{Station, StationError};
use manylane_io::sysctl::{self, SysctlError};
use manylane_net::wire::ethernet::Mac;

use crate::packet::emit_udp_between;
use crate::tools::{ToolError, tool};

/// What the router does with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Accepts packets of established connections, and new connections from the first port only.
    Firewall,
    /// That, and whatever leaves by the second port has the router's address, of both IP versions.
    Masquerade,
    /// Accepts packets of established connections only.
    Closed,
}

impl Rules {
    /// As nft(8) reads them, for a router's ports towards its clients and towards everything else.
    pub fn text(self, [lan, wan]: [&str; 2]) -> String {
        let new = match self {
            Rules::Closed => String::new(),
            _ => format!("iifname {lan} ct state new accept"),
        };
        let translation = match self {
            Rules::Masquerade => format!(
                "chain postrouting {{
                    type nat hook postrouting priority srcnat
                    oifname {wan} masquerade
                }}"
            ),
            _ => String::new(),
        };
        format!(
            "table inet {TABLE} {{
                chain forward {{
                    type filter hook forward priority filter; policy drop
                    ct state established,related accept
                    ct state invalid drop
                    {new}
                }}
                {translation}
            }}"
        )
    }

    /// Gives them to a router, in place of those before, in one step: connections stay. A connection does not time out
    /// within hours.
    pub fn load(self, router: &Host, ports: [&str; 2]) -> Result<(), StatefulError> {
        let text = self.text(ports);
        tool(router, &format!("nft 'table inet {TABLE}\ndelete table inet {TABLE}\n{text}'"))?;
        // The settings are there when something tracks connections.
        Ok(router.run(|| TIMEOUTS.iter().try_for_each(|name| sysctl::set(name, HOURS_S)))?)
    }
}

/// Takes the rules away, and all connections.
pub fn unload(router: &Host) -> Result<(), StatefulError> {
    tool(router, &format!("nft delete table inet {TABLE}"))?;
    tool(router, "conntrack -F")?;
    Ok(())
}

/// How many connections conntrack has.
pub fn count(router: &Host) -> Result<usize, StatefulError> {
    Ok(tool(router, "conntrack -C")?.trim().parse().unwrap_or(0))
}

/// A connection, as conntrack has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// `udp`, `tcp`, ...
    pub protocol: String,
    /// Source and destination of the first packet.
    pub original: [SocketAddr; 2],
    /// Source and destination of answers: they differ from the original's where the connection is translated.
    pub reply: [SocketAddr; 2],
    /// Whether an answer has been seen.
    pub is_answered: bool,
    /// Whether the kernel keeps it under pressure, and for longer.
    pub is_assured: bool,
    /// When it ends unless another packet is seen.
    pub timeout_s: u64,
}

impl Connection {
    /// Whether its packets' addresses or ports change.
    pub fn is_translated(&self) -> bool {
        let [source, destination] = self.reply;
        self.original != [destination, source]
    }

    /// A line of `conntrack -L`; none of a protocol without ports.
    fn parse(line: &str) -> Option<Connection> {
        let mut words = line.split_whitespace();
        let protocol = words.next()?.to_owned();
        let timeout_s = words.nth(1)?.parse().ok()?;
        let values = |name: &str| -> Option<[&str; 2]> {
            let mut found = line.split_whitespace().filter_map(|word| word.strip_prefix(name));
            Some([found.next()?, found.next()?])
        };
        let addresses = |name: &str| -> Option<[IpAddr; 2]> {
            let [original, reply] = values(name)?;
            Some([original.parse().ok()?, reply.parse().ok()?])
        };
        let ports = |name: &str| -> Option<[u16; 2]> {
            let [original, reply] = values(name)?;
            Some([original.parse().ok()?, reply.parse().ok()?])
        };
        let ([from, back_from], [to, back_to]) = (addresses("src=")?, addresses("dst=")?);
        let ([from_port, back_from_port], [to_port, back_to_port]) =
            (ports("sport=")?, ports("dport=")?);
        Some(Connection {
            protocol,
            original: [(from, from_port), (to, to_port)].map(SocketAddr::from),
            reply: [(back_from, back_from_port), (back_to, back_to_port)].map(SocketAddr::from),
            is_answered: !line.contains("[UNREPLIED]"),
            is_assured: line.contains("[ASSURED]"),
            timeout_s,
        })
    }
}

/// The connections that a router's kernel has, of protocols with ports. `filter` is more of conntrack's command line, as
/// in `-p udp -u ASSURED`.
pub fn connections(router: &Host, filter: &str) -> Result<Vec<Connection>, StatefulError> {
    let mut all = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let listed = tool(router, &format!("conntrack -L -f {family} {filter}"))?;
        all.extend(listed.lines().filter_map(Connection::parse));
    }
    Ok(all)
}

/// Sends a datagram back along each of these UDP connections, from the host behind a router's port.
pub fn answer(
    (router, port): (&Host, &str),
    server: &Host,
    connections: &[Connection],
) -> Result<(), StatefulError> {
    let sender = Sender::at(server, (router, port))?;
    connections.iter().try_for_each(|connection| sender.send(connection.reply))
}

/// UDP connections from one end behind a router's first port to many behind its second.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// An address of the client.
    pub source: SocketAddr,
    /// Where they go: nothing has to be there.
    pub destinations: Vec<SocketAddr>,
}

impl Datagrams {
    /// Sends datagrams of both directions through the router's kernel until all connections are assured, and returns
    /// them.
    ///
    /// The answers are made up at the server's link and go where conntrack says that answers have to go.
    pub fn establish(
        &self,
        client: &Host,
        (router, ports): (&Host, [&str; 2]),
        server: &Host,
    ) -> Result<Vec<Connection>, StatefulError> {
        self.have_room(router)?;
        // The client's kernel would answer what nothing takes. An address in use is one whose user takes it.
        let source = self.source;
        let _taker = client.run(move || UdpSocket::bind(source)).ok();
        let sender = Sender::at(client, (router, ports[0]))?;
        let begun = Instant::now();
        loop {
            for destination in &self.destinations {
                sender.send([self.source, *destination])?;
            }
            let sent = Instant::now();
            let connections = self.connections(router, "")?;
            let assured = connections.iter().filter(|connection| connection.is_assured).count();
            if assured == self.destinations.len() {
                return Ok(connections);
            }
            if begun.elapsed() > PATIENCE {
                return Err(StatefulError::Unsettled { assured, wanted: self.destinations.len() });
            }
            let unanswered: Vec<_> =
                connections.into_iter().filter(|connection| !connection.is_answered).collect();
            answer((router, ports[1]), server, &unanswered)?;
            thread::sleep(STREAM.saturating_sub(sent.elapsed()));
        }
    }

    /// Sends a datagram of each connection, from the host behind the router's first port.
    pub fn send(&self, client: &Host, (router, port): (&Host, &str)) -> Result<(), StatefulError> {
        let sender = Sender::at(client, (router, port))?;
        let mut destinations = self.destinations.iter();
        destinations.try_for_each(|&destination| sender.send([self.source, destination]))
    }

    /// Those of the connections that the router's kernel has. `filter` is as in [`connections`].
    pub fn connections(
        &self,
        router: &Host,
        filter: &str,
    ) -> Result<Vec<Connection>, StatefulError> {
        let family = if self.source.is_ipv4() { "ipv4" } else { "ipv6" };
        let (address, port) = (self.source.ip(), self.source.port());
        let line =
            format!("conntrack -L -f {family} -p udp --orig-src {address} --sport {port} {filter}");
        Ok(tool(router, &line)?.lines().filter_map(Connection::parse).collect())
    }

    /// How many of them are assured.
    pub fn assured(&self, router: &Host) -> Result<usize, StatefulError> {
        Ok(self.connections(router, "-u ASSURED")?.len())
    }

    fn have_room(&self, router: &Host) -> Result<(), StatefulError> {
        let max = router.run(|| sysctl::read(CONNECTIONS_MAX))?.parse().unwrap_or(usize::MAX);
        let wanted = self.destinations.len() + count(router)?;
        if wanted > max { Err(StatefulError::Room { wanted, max }) } else { Ok(()) }
    }
}

/// Sends datagrams from a host's link to a router's port, as if some host there had sent them.
struct Sender {
    station: Station,
    macs: [Mac; 2],
}

impl Sender {
    fn at(host: &Host, (router, port): (&Host, &str)) -> Result<Sender, StatefulError> {
        let port = port.to_owned();
        let to = router.run(move || Netlink::open()?.link(&port))?.mac;
        let from = host.run(|| Netlink::open()?.link("eth0"))?.mac;
        let station = host.run(|| Station::open("eth0"))?;
        Ok(Sender { station, macs: [to, from].map(Mac) })
    }

    fn send(&self, ends: [SocketAddr; 2]) -> Result<(), StatefulError> {
        let mut frame = [0; FRAME_LEN];
        emit_udp_between(&mut frame, FRAME_LEN, self.macs, ends);
        loop {
            match self.station.send(&frame) {
                // A thread of the kernel's empties a full queue.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => thread::yield_now(),
                sent => return sent.map_err(StatefulError::Send),
            }
        }
    }
}

/// Why the rules or connections could not be made.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum StatefulError {
    /// nft or conntrack could not be run, or said no.
    #[error("{0}")]
    Tool(#[from] ToolError),
    /// A setting of the router's kernel was refused.
    #[error("{0}")]
    Setting(#[from] SysctlError),
    /// A link is missing.
    #[error("{0}")]
    Netlink(#[from] NetlinkError),
    /// A packet socket was refused.
    #[error("{0}")]
    Station(#[from] StationError),
    /// A datagram was not sent.
    #[error("cannot send a datagram to the router: {0}")]
    Send(std::io::Error),
    /// The kernel takes fewer connections.
    #[error(
        "{wanted} connections are wanted, and the kernel takes {max}; raise \
         net.netfilter.nf_conntrack_max in the machine's first namespace"
    )]
    Room {
        /// Those that are there, and those to come.
        wanted: usize,
        /// The setting.
        max: usize,
    },
    /// Some connections do not settle.
    #[error(
        "{assured} of {wanted} connections are assured, and no more become so; see `conntrack -L`"
    )]
    Unsettled {
        /// Those that are.
        assured: usize,
        /// All.
        wanted: usize,
    },
}

const TABLE: &str = "manylane_lab";
const CONNECTIONS_MAX: &str = "net/netfilter/nf_conntrack_max";
/// Of connections that traffic alone would keep: where a lane forwards, the kernel sees no packet.
const TIMEOUTS: [&str; 2] =
    ["net/netfilter/nf_conntrack_udp_timeout", "net/netfilter/nf_conntrack_udp_timeout_stream"];
const HOURS_S: &str = "36000";
/// From a UDP connection's first packet on: the kernel's 2 s, and some of its ticks.
const STREAM: Duration = Duration::from_millis(2050);
const PATIENCE: Duration = Duration::from_secs(60);
const FRAME_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> SocketAddr {
        text.parse().expect("an address and a port")
    }

    #[test]
    fn a_connection_is_read_with_its_translation() {
        let line = "udp      17 29 src=10.1.0.1 dst=10.128.0.7 sport=1024 dport=9 \
                    src=10.128.0.7 dst=10.2.0.254 sport=9 dport=1025 [ASSURED] mark=0 use=1";
        let found = Connection::parse(line).expect("it is a line of conntrack's");
        assert_eq!((&*found.protocol, found.timeout_s), ("udp", 29));
        assert_eq!(found.original, [end("10.1.0.1:1024"), end("10.128.0.7:9")]);
        assert_eq!(found.reply, [end("10.128.0.7:9"), end("10.2.0.254:1025")]);
        assert!(found.is_answered && found.is_assured && found.is_translated());
    }

    #[test]
    fn a_connection_without_answers_says_so_and_one_of_tcp_has_a_state_before() {
        let line = "tcp      6 117 SYN_SENT src=2001:db8:1::1 dst=2001:db8:2::1 sport=1 dport=2 \
                    [UNREPLIED] src=2001:db8:2::1 dst=2001:db8:1::1 sport=2 dport=1 mark=0 use=1";
        let found = Connection::parse(line).expect("it is a line of conntrack's");
        assert_eq!((&*found.protocol, found.timeout_s), ("tcp", 117));
        assert_eq!(found.original, [end("[2001:db8:1::1]:1"), end("[2001:db8:2::1]:2")]);
        assert!(!found.is_answered && !found.is_assured && !found.is_translated());
        let echo = "icmp     1 29 src=10.1.0.1 dst=10.2.0.1 type=8 code=0 id=7 \
                    src=10.2.0.1 dst=10.1.0.1 type=0 code=0 id=7 mark=0 use=1";
        assert_eq!(Connection::parse(echo), None);
    }
}
