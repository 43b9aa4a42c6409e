//! Ports, netlink and programs against the kernel of this machine, in network namespaces. Needs root.

mod af_packet;
mod af_xdp;
mod af_xdp_chains;
mod bpf;
mod common;
mod conntrack;
mod conntrack_events;
mod conntrack_router;
mod lock_files;
mod netlink;
mod netlink_change;
mod netlink_tables;
mod netlink_watch;
mod station;
mod tap;
