//! What a prefix leads to, in the kernel's terms: the key by which prefixes share a next-hop id.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A router, or a neighbour, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Via {
    /// By this device.
    pub link: u32,
    /// At this address there.
    pub gateway: IpAddr,
    /// The route's own MTU; 0 for the device's.
    pub mtu: u32,
}

/// One of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// How.
    pub via: Via,
    /// Its part of the flows is this by the sum of all.
    pub weight: u16,
}

/// What a prefix leads to. Equal ones share a next-hop id. What a next-hop object leads to is not part of
/// it: when the object changes, its prefixes keep their id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Destination {
    /// One of our own addresses.
    Local,
    /// A connected network's broadcast address.
    Broadcast,
    /// Nowhere, in silence.
    Blackhole,
    /// Nowhere; the sender receives an ICMP unreachable.
    Unreachable,
    /// Nowhere; the sender receives an ICMP prohibited.
    Prohibit,
    /// Only the kernel can do it.
    Kernel,
    /// The destination is a neighbour on this device.
    OnLink {
        /// The device.
        link: u32,
        /// The route's own MTU; 0 for the device's.
        mtu: u32,
    },
    /// What this next-hop object leads to.
    Object {
        /// Its number.
        object: u32,
        /// The route's own MTU; 0 for the device's.
        mtu: u32,
    },
    /// One router.
    Via(Via),
    /// Several; see `Destination::many`.
    Many(Arc<[Member]>),
}

/// Members of a group at most.
pub(super) const MEMBERS_MAX: usize = manylane_net::nexthop::MEMBERS_MAX;

impl Destination {
    /// One of several. Members come in order, each once: two that are one have its weights together.
    pub(super) fn many(mut members: Vec<Member>) -> Destination {
        members.sort_unstable();
        members.dedup_by(|next, first| {
            let is_one = next.via == first.via;
            if is_one {
                first.weight = first.weight.saturating_add(next.weight);
            }
            is_one
        });
        match &*members {
            [] => Destination::Kernel,
            [one] => Destination::Via(one.via),
            many if many.len() > MEMBERS_MAX => Destination::Kernel,
            _ => Destination::Many(members.into()),
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "via {} dev {}", self.gateway, self.link)?;
        if self.mtu > 0 { write!(f, " mtu {}", self.mtu) } else { Ok(()) }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Local => write!(f, "local"),
            Destination::Broadcast => write!(f, "broadcast"),
            Destination::Blackhole => write!(f, "blackhole"),
            Destination::Unreachable => write!(f, "unreachable"),
            Destination::Prohibit => write!(f, "prohibit"),
            Destination::Kernel => write!(f, "the kernel's"),
            Destination::OnLink { link, .. } => write!(f, "on link {link}"),
            Destination::Object { object, .. } => write!(f, "nhid {object}"),
            Destination::Via(via) => via.fmt(f),
            Destination::Many(members) => {
                for (at, member) in members.iter().enumerate() {
                    let gap = if at == 0 { "" } else { ", " };
                    write!(f, "{gap}{} weight {}", member.via, member.weight)?;
                }
                Ok(())
            }
        }
    }
}
