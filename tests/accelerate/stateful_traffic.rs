//! Traffic through a router that filters by connection and translates addresses, beside an accelerator that forwards what
//! the kernel has decided about: what applications send arrives, conntrack stays right, and whatever the lane does not
//! know is the kernel's.
//!
//! Each scenario runs with packets forwarded at ingress, hosts' offloads at their defaults, and in the driver, with hosts
//! that fill in checksums. Rules drop what conntrack calls invalid, and count it: no scenario may leave anything there.
//! Needs root, and nft.

mod addresses;
mod bed;
mod errors;
mod faults;
mod flood;
mod forwards;
mod frames;
mod ftp;
mod lifetime;
mod older;
mod restarts;
mod short;
mod stream;
mod talk;
mod transfers;
mod uplinks;
