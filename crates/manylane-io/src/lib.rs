//! Where frames enter and leave: ports, and what else needs a system call.

pub mod affinity;
pub mod bpf;
pub mod eventfd;
pub mod interface;
pub mod namespace;
pub mod netlink;
pub mod port;
