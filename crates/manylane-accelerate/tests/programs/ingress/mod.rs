//! The program that forwards in the kernel: each of its verdicts, by a packet of its own. Needs root.

mod checks;
mod forwarded;
mod groups;
mod routes;

use crate::packet::{V4, V6, v4, v6};
use crate::rig::*;

/// The places of verdicts, in the order of `tables.h`.
const FORWARDED: u8 = 0;
const LAPSED: u8 = 1;
const NOT_FOR_US: u8 = 2;
const LINK_GROUP: u8 = 3;
const NOT_IP: u8 = 4;
const MALFORMED: u8 = 6;
const BAD_CHECKSUM: u8 = 7;
const OPTIONS: u8 = 8;
const EXPIRED: u8 = 9;
const MARTIAN: u8 = 10;
const LOCAL: u8 = 11;
const GROUP_ADDRESS: u8 = 12;
const NO_ROUTE: u8 = 13;
const NOWHERE: u8 = 14;
const UNRESOLVED: u8 = 15;
const TOO_BIG: u8 = 16;
const SAME_PORT: u8 = 17;
const REVERSE_PATH: u8 = 18;
const NOT_FORWARDING: u8 = 19;
const EGRESS_KERNEL: u8 = 20;
const MULTIPATH: u8 = 21;
const KERNEL_ROUTE: u8 = 22;
const EXTENSION: u8 = 23;
const SEGMENTS: u8 = 24;
const NOT_INGRESS: u8 = 25;

const TO: &str = "198.51.100.7";
const TO6: &str = "2001:db8:2::7";
