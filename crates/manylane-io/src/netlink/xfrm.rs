//! IPsec policies that affect routed packets: the XFRM framework (ip-xfrm(8), linux/xfrm.h).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::plain::{Plain, attribute, u32_at};
use super::socket::{Refusal, Socket};
use super::{NetlinkError, Notices};

/// The policies of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The policies that routed packets meet: those of directions `fwd` and `out`.
    pub transit: Vec<Policy>,
    /// Forwarding is blocked for packets that no policy matches (`ip xfrm policy setdefault fwd block`).
    pub forward_is_blocked: bool,
    /// Sending is blocked for packets that no policy matches (`ip xfrm policy setdefault out block`).
    pub out_is_blocked: bool,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its number.
    pub index: u32,
    /// `fwd` or `out`.
    pub direction: &'static str,
    /// The source prefix.
    pub source: (IpAddr, u8),
    /// The destination prefix.
    pub destination: (IpAddr, u8),
    /// The policy blocks the packets it matches.
    pub blocks: bool,
    /// Its number alone does not identify it: it belongs to a mark or an XFRM interface.
    pub is_marked: bool,
}

/// Reads the policies of the calling thread's network namespace. A kernel without XFRM has none.
pub fn policies() -> Result<Policies, NetlinkError> {
    let Some(mut socket) = open()? else { return Ok(Policies::default()) };
    let refused = |refusal| NetlinkError::refused("read the XFRM policies".into(), refusal);
    // `xfrm_userpolicy_id`: identifies the policy in a request for one.
    let request = Plain::list(XFRM_MSG_GETPOLICY, &[0; USERPOLICY_ID_BYTES]);
    let transit = request.collect(&mut socket, policy).map_err(refused)?;
    let request = Plain::one(XFRM_MSG_GETDEFAULT, &[0; USERPOLICY_DEFAULT_BYTES]);
    // `xfrm_userpolicy_default`: in, fwd, out.
    let blocks = match socket.query(&request, |reply| Some(*reply.first_chunk::<3>()?)) {
        Ok(defaults) => defaults.map(|default| default == XFRM_USERPOLICY_BLOCK),
        // Before Linux 5.14 the kernel has no such setting.
        Err(Refusal { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => [false; 3],
        Err(refusal) => return Err(refused(refusal)),
    };
    Ok(Policies { transit, forward_is_blocked: blocks[1], out_is_blocked: blocks[2] })
}

/// Subscribes to changes of policies and defaults. `None` where the kernel has no XFRM.
pub fn notices() -> Result<Option<Notices>, NetlinkError> {
    match Notices::open(libc::NETLINK_XFRM, XFRMNLGRP_POLICY, |_| true) {
        Ok(notices) => Ok(Some(notices)),
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(None),
        Err(source) => Err(refused_watch(source)),
    }
}

fn refused_watch(source: io::Error) -> NetlinkError {
    NetlinkError::refused("watch the XFRM policies".into(), source.into())
}

fn open() -> Result<Option<Socket>, NetlinkError> {
    match Socket::open_protocol(libc::NETLINK_XFRM) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(None),
        Err(source) => Err(NetlinkError::Unavailable { source }),
    }
}

/// Decodes a policy: `xfrm_userpolicy_info`, then attributes. `None` if routed packets do not meet it: policies of
/// direction `in`, and of sockets.
fn policy(bytes: &[u8]) -> Option<Policy> {
    let direction = match *bytes.get(DIRECTION_AT)? {
        1 => "out",
        2 => "fwd",
        _ => return None,
    };
    let family = u32_at(bytes, FAMILY_AT)? as u16;
    let network = |address: usize, length: usize| {
        let bits = *bytes.get(length)?;
        let address = bytes.get(address..)?;
        Some(if family == libc::AF_INET as u16 {
            (IpAddr::from(Ipv4Addr::from(*address.first_chunk::<4>()?)), bits)
        } else {
            (IpAddr::from(Ipv6Addr::from(*address.first_chunk::<16>()?)), bits)
        })
    };
    let attributes = bytes.get(USERPOLICY_INFO_BYTES..).unwrap_or_default();
    Some(Policy {
        index: u32_at(bytes, INDEX_AT)?,
        direction,
        destination: network(0, FAMILY_AT + 2)?,
        source: network(16, FAMILY_AT + 3)?,
        blocks: *bytes.get(DIRECTION_AT + 1)? == XFRM_POLICY_BLOCK,
        is_marked: [XFRMA_MARK, XFRMA_IF_ID]
            .iter()
            .any(|&kind| attribute(attributes, kind).is_some()),
    })
}

// linux/xfrm.h. `xfrm_userpolicy_info` begins with `xfrm_selector`: two addresses of 16 bytes, four ports and
// masks of 2, then family (2), length of the destination's prefix, of the source's.
const FAMILY_AT: usize = 40;
/// Behind the selector (56 bytes), limits (64), times (32) and priority (4).
const INDEX_AT: usize = 156;
/// Behind the number; the action follows.
const DIRECTION_AT: usize = 160;
const USERPOLICY_INFO_BYTES: usize = 168;
const USERPOLICY_ID_BYTES: usize = 64;
const USERPOLICY_DEFAULT_BYTES: usize = 3;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
const XFRM_POLICY_BLOCK: u8 = 1;
const XFRMA_MARK: u16 = 21;
const XFRMA_IF_ID: u16 = 31;
const XFRMNLGRP_POLICY: libc::c_int = 4;
