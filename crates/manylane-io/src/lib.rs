//! Ports of a packet forwarder, and everything else in manylane that needs a system call.
//!
//! | room            | what it is                                                            | may use |
//! |-----------------|-----------------------------------------------------------------------|---------|
//! | [`port`]        | ports: AF_XDP, AF_PACKET, TAP, capture files, memory; tee and faults  | `bpf`, `interface`, `netlink`, `eventfd`, `poll` |
//! | [`packet_ring`] | blocks of copied packets, from workers to a reader in any process     | - |
//! | [`pcapng`]      | capture files of packets that were dropped or captured, with reasons  | - |
//! | [`bpf`]         | BPF programs and their loaders                                        | `interface`, `netlink`, `affinity` |
//! | [`interface`]   | properties and offloads of a network device                           | `netlink` |
//! | [`interface_lock`] | one process forwards by an interface                              | - |
//! | [`netlink`]     | links, addresses, routes; routing, nftables, conntrack, XFRM and tc   | `sysctl` |
//! | [`namespace`]   | anonymous network namespaces, one per thread                          | `affinity` |
//! | [`station`]     | single frames on a link, for labs                                     | `netlink` |
//! | [`privilege`]   | root given up, except for what a daemon needs                          | - |
//! | [`rights`]      | whether a Unix socket takes descriptors                               | - |
//! | [`service`]     | notifications to a service manager (sd_notify(3))                     | - |
//! | [`syscall`]     | from the C convention to `io::Result`                                 | - |
//! | [`sysctl`]      | kernel settings under `/proc/sys`                                     | - |
//! | [`iptables`]    | legacy iptables rules that affect routed packets                      | - |
//! | [`eventfd`]     | the eventfd that wakes a sleeping worker                              | - |
//! | [`heap`]        | freed memory goes back to the kernel                                  | - |
//! | [`joined`]      | a thread that ends with its handle                                    | `eventfd` |
//! | [`fatal`]       | detaches BPF programs first when the process crashes                  | - |
//! | [`poll`](mod@poll) | sleeping until one of several descriptors is ready                 | - |
//! | [`libpcap`]     | tcpdump's filter language, compiled                                   | - |
//! | [`affinity`]    | the core that a thread runs on, and its time slice                    | - |
//! | [`wait`]        | how long the kernel makes packet sockets wait                         | `interface` |
//!
//! Every room may use the private helpers `syscall`, `auxiliary` and `chain`.
//!
//! This crate knows no protocol above Ethernet: ports *report* what they know of a frame
//! ([`Checksum`](manylane_frame::vocabulary::Checksum)), and `manylane-net` acts on it.
//!
//! Interfaces, sockets and `/proc/sys/net` are looked up in the network namespace of the *calling
//! thread*. `/sys/class/net` is not used: it shows the namespace of the process that mounted it.
//!
//! A program between ports in memory, which runs as a test: each turn receives a batch, transmits it, and takes completed
//! frames back. The front page of `manylane-net` has a router in one program, between two such ports.
//!
//! ```
#![doc = include_str!("../examples/forward.rs")]
//! ```

#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod affinity;
pub mod bpf;
pub mod eventfd;
pub mod fatal;
pub mod heap;
pub mod interface;
pub mod interface_lock;
pub mod iptables;
pub mod joined;
pub mod libpcap;
pub mod namespace;
pub mod netlink;
pub mod packet_ring;
pub mod pcapng;
pub mod poll;
pub mod port;
pub mod privilege;
pub mod rights;
pub mod service;
pub mod station;
pub mod syscall;
pub mod sysctl;
pub mod wait;

mod auxiliary;
mod chain;

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/messages/mod.rs"]
mod messages;

#[cfg(test)]
mod message_tests;
