//! A small network on this machine: three hosts with kernels' stacks of their own, and traffic between them.
//!
//! ```text
//!       client                    router                     server
//!        eth0 ─────────────── lan        wan ─────────────── eth0
//!  10.1.0.1/24        10.1.0.254/24    10.2.0.254/24         10.2.0.1/24
//!  2001:db8:1::1/64   2001:db8:1::fe   2001:db8:2::fe        2001:db8:2::1/64
//! ```
//!
//! Each host is a thread in an anonymous network namespace ([`Host`]): when the process ends, by
//! SIGKILL too, hosts, links and addresses are gone. The links are veth pairs. Client and server have
//! a default route through the router, so whatever arrives at either was forwarded.
//!
//! | Router            | Its kernel                                              | For                 |
//! |-------------------|---------------------------------------------------------|---------------------|
//! | manylane          | no address, no IPv6, no forwarding: it stays silent     | demo, scenarios     |
//! | the kernel itself | the same addresses, forwarding on                       | baseline: what the kernel fails is not ours |
//!
//! | File          | Holds                                                            |
//! |---------------|------------------------------------------------------------------|
//! | `network.rs`  | [`Lab`]: making the hosts and what connects them                  |
//! | `config.rs`   | the text of manylane's configuration as the router of a lab       |
//! | `load.rs`     | a table, small frames and iperf3 on a [`Lab`]'s router, and what counts them |
//! | `device.rs`   | what stands for a network card in front of workers in memory      |
//! | `packet.rs`   | headers of packets                                                |
//! | `ping.rs`     | [`Pinger`]: echo requests, and whatever ICMP answers              |
//! | `udp.rs`      | [`UdpStream`]: numbered datagrams                                |
//! | `tcp.rs`      | [`TcpTransfer`]: both directions of a connection at once          |
//! | `content.rs`  | [`Content`]: bytes that the receiver computes from a seed         |
//! | `scenario.rs` | what the tests in `tests/netns/` share                        |
//! | `topology.rs` | [`Topology`]: any number of hosts and routers, from a text        |
//! | `steady.rs`   | [`Steady`]: numbered datagrams while something else changes       |
//! | `stateful.rs` | [`Rules`] of a router that filters by connection, and settled [`Datagrams`] through it |
//! | `losses.rs`   | [`Losses`]: what counts lost packets, by place and reason         |
//! | `tools.rs`    | `ip`, `nft`, `tc` and others in a namespace; [`until`]            |
//! | `accelerated.rs` | `manylane accelerate` in a namespace, and what it says          |
//! | `crossing.rs` | [`Crossing`]: small packets across two ports of a router, hosts across two  |
//! | `endless.rs`  | [`EndlessTcp`]: a TCP connection that runs until it is stopped    |
//! | `prefixes.rs` | the Internet's table, from a file or made                         |
//! | `daemons.rs`  | FRR and BIRD in a namespace                                       |
//! | `generator/`  | frames without gaps, sinks, tags and reference forwarders, as programs of the kernel |
//! | `traffic.rs`  | [`TrafficError`]                                                  |
//!
//! All traffic is the hosts' kernels' own (ping by raw ICMP sockets, UDP, TCP), offloads at their
//! defaults. Every wait has a bound, so that nothing hangs when the router loses everything.
//!
//! Demo, tests and bench build networks with this crate; it knows daemons as processes and by their API only.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod accelerated;
pub mod config;
pub mod content;
pub mod crossing;
pub mod daemons;
pub mod device;
pub mod endless;
#[allow(unsafe_code, reason = "system calls that take addresses")]
pub mod generator;
pub mod load;
pub mod losses;
pub mod network;
pub mod packet;
pub mod ping;
pub mod prefixes;
pub mod random;
pub mod scenario;
pub mod stateful;
pub mod steady;
pub mod tcp;
pub mod tools;
pub mod topology;
pub mod traffic;
pub mod udp;

pub use manylane_io::namespace::Host;

pub use config::RouterOptions;
pub use content::Content;
pub use crossing::{Crossing, Flows, Loaded, SmallPackets};
pub use endless::{EndlessReport, EndlessTcp};
pub use losses::Losses;
pub use network::{
    CLIENT_V4, CLIENT_V6, LAN_V4, LAN_V6, Lab, LabError, LabOptions, SERVER_V4, SERVER_V6, WAN_V4,
    WAN_V6,
};
pub use ping::{IcmpError, Outcome, PingReport, Pinger, ping};
pub use stateful::{Datagrams, Rules};
pub use steady::{Arrivals, Steady, SteadyOptions};
pub use tcp::{TcpHalf, TcpReport, TcpTransfer, TransferEnd, tcp_transfer};
pub use tools::{tool, until};
pub use topology::Topology;
pub use traffic::TrafficError;
pub use udp::{UdpReport, UdpStream, udp_stream};
