//! Where frames enter and leave, and everything else that needs a system call.
//!
//! | room          | what it is                                                              |
//! |---------------|-------------------------------------------------------------------------|
//! | [`port`]      | ports: AF_XDP, AF_PACKET, TAP, capture files, memory; tee and faults    |
//! | [`packet_ring`] | blocks of copied packets, from workers to a reader here or elsewhere   |
//! | [`bpf`]       | the programs that give frames to our sockets, and to nobody else        |
//! | [`interface`] | what the kernel says of a network device                                |
//! | [`netlink`]   | making links, addresses and routes; what the kernel does with packets   |
//! | [`namespace`] | anonymous network namespaces, one per thread                            |
//! | [`station`]   | frames on a link, one by one, for labs                                  |
//! | [`sysctl`]    | the kernel's settings under `/proc/sys`                                 |
//! | [`iptables`]  | what legacy iptables has on the way of routed packets                   |
//! | [`eventfd`]   | what wakes a sleeping worker                                            |
//! | [`fatal`]     | what ends first when the process does                                   |
//! | [`poll`](mod@poll) | sleeping until one of several descriptors is ready                 |
//! | [`libpcap`]   | tcpdump's filter language, compiled                                     |
//! | [`privilege`] | root given up, but for what a daemon needs                              |
//! | [`service`]   | what a service manager hears of a daemon                                |
//! | [`syscall`]   | from the C convention to `io::Result`                                   |
//! | [`affinity`]  | which core a thread runs on                                             |
//! | [`wait`]      | how long packet sockets wait for the kernel here                        |
//!
//! This crate knows no protocol above Ethernet: ports *say* what they know of a frame
//! ([`Checksum`](manylane_frame::vocabulary::Checksum)), and `manylane-net` acts on it.
//!
//! Interfaces, sockets and `/proc/sys/net` are looked up in the network namespace of the *calling
//! thread*. `/sys/class/net` is not used at all: it shows the namespace of whoever mounted it.

pub mod affinity;
pub mod bpf;
pub mod eventfd;
pub mod fatal;
pub mod interface;
pub mod iptables;
pub mod libpcap;
pub mod namespace;
pub mod netlink;
pub mod packet_ring;
pub mod poll;
pub mod port;
pub mod privilege;
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
mod errors;
