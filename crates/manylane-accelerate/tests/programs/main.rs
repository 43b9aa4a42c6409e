//! The programs that forward, in the kernel: verdicts packet by packet, and packets on links. Needs root.

mod candidates;
mod capture;
#[path = "../../../manylane-io/tests/io/common/mod.rs"]
mod common;
mod driver;
mod ingress;
mod links;
mod packet;
mod rig;
mod sflow;
mod verified;
