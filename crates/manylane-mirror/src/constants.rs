//! Numbers of the kernel's interface, by the headers that they are in.

/// `IFF_UP` (`linux/if.h`): an administrator wants the device up.
pub(super) const UP: u32 = 1;
/// `IFF_RUNNING`: and it can carry packets (RFC 2863).
pub(super) const RUNNING: u32 = 0x40;
/// `IFF_LOWER_UP`: the link has a carrier.
pub(super) const LOWER_UP: u32 = 0x1_0000;

/// `RTN_UNICAST` (`linux/rtnetlink.h`).
pub(super) const TYPE_UNICAST: u8 = 1;
/// `RTN_LOCAL`.
pub(super) const TYPE_LOCAL: u8 = 2;
/// `RTN_BROADCAST`.
pub(super) const TYPE_BROADCAST: u8 = 3;
/// `RTN_ANYCAST`.
pub(super) const TYPE_ANYCAST: u8 = 4;
/// `RTN_MULTICAST`.
pub(super) const TYPE_MULTICAST: u8 = 5;
/// `RTN_BLACKHOLE`.
pub(super) const TYPE_BLACKHOLE: u8 = 6;
/// `RTN_UNREACHABLE`.
pub(super) const TYPE_UNREACHABLE: u8 = 7;
/// `RTN_PROHIBIT`.
pub(super) const TYPE_PROHIBIT: u8 = 8;
/// `RTN_THROW`.
pub(super) const TYPE_THROW: u8 = 9;

/// `RTPROT_RA`: learnt from a router's advertisement.
pub(super) const PROTOCOL_RA: u8 = 9;

/// `RT_SCOPE_HOST`: of this host alone.
pub(super) const SCOPE_HOST: u8 = 254;

/// `RT_TABLE_DEFAULT`.
pub(super) const TABLE_DEFAULT: u32 = 253;
/// `RT_TABLE_MAIN`.
pub(super) const TABLE_MAIN: u32 = 254;
/// `RT_TABLE_LOCAL`.
pub(super) const TABLE_LOCAL: u32 = 255;

/// `RTNH_F_DEAD`: the kernel does not use this way.
pub(super) const HOP_DEAD: u8 = 1;

/// `RTM_F_CLONED`: no route but a cache's entry.
pub(super) const ROUTE_CLONED: u32 = 0x200;

/// `NUD_STALE` (`linux/neighbour.h`).
pub(super) const NUD_STALE: u16 = 0x04;
/// `NUD_NOARP`: its address follows from what it is (multicast, broadcast).
pub(super) const NUD_NOARP: u16 = 0x40;
/// `NUD_VALID` of the kernel's `net/neighbour.h`, without the former: permanent, reachable, probe, stale, delay.
pub(super) const NUD_VALID: u16 = 0x80 | 0x02 | 0x10 | 0x04 | 0x08;
/// `NTF_PROXY`: an address that this host answers for, not a neighbour.
pub(super) const NTF_PROXY: u8 = 0x08;

/// `FR_ACT_TO_TBL` (`linux/fib_rules.h`).
pub(super) const ACTION_TABLE: u8 = 1;
/// `FR_ACT_NOP`.
pub(super) const ACTION_NOP: u8 = 3;
/// `FR_ACT_BLACKHOLE`.
pub(super) const ACTION_BLACKHOLE: u8 = 6;
/// `FR_ACT_UNREACHABLE`.
pub(super) const ACTION_UNREACHABLE: u8 = 7;
/// `FR_ACT_PROHIBIT`.
pub(super) const ACTION_PROHIBIT: u8 = 8;
/// `FIB_RULE_INVERT`.
pub(super) const RULE_INVERT: u32 = 2;
