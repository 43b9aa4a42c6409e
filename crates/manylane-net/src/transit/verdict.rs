//! What is decided about a packet, and why the kernel has it.

use std::fmt;

macro_rules! verdicts {
    ($($number:literal $variant:ident $name:literal $meaning:literal $advice:literal,)+) => {
        /// What is decided about a packet. All but the first leave it to the kernel, unchanged. The numbers
        /// are places of the program's counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Verdict {
            $(
                #[doc = concat!("`", $name, "`: ", $meaning, ". ", $advice)]
                $variant = $number,
            )+
        }

        impl Verdict {
            /// Every verdict, by its number.
            pub const ALL: &[Verdict] = &[$(Verdict::$variant),+];

            /// The stable name, as commands, JSON and counters spell it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Verdict::$variant => $name,)+
                }
            }

            /// What it means, for an operator: half a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Verdict::$variant => $meaning,)+
                }
            }

            /// What to do about many of them; empty when nothing is to be done.
            pub const fn advice(self) -> &'static str {
                match self {
                    $(Verdict::$variant => $advice,)+
                }
            }
        }
    };
}

verdicts! {
    0 Forwarded "forwarded"
        "forwarded by the program"
        "",
    1 Lapsed "lapsed"
        "the lease on the tables had run out, or a filter had changed"
        "Few of them: manylane checked a change. Many: it is stopped or behind, see `manylane show mirror`.",
    2 NotForUs "not_for_us"
        "the destination MAC address is not this interface's"
        "Many of them are a switch that floods, or a promiscuous interface.",
    3 LinkGroup "link_group"
        "a link-layer multicast or broadcast, which a router does not forward"
        "",
    4 NotIp "not_ip"
        "neither IPv4 nor IPv6: ARP, mostly"
        "",
    5 UnknownVlan "unknown_vlan"
        "a VLAN tag without an accelerated VLAN interface"
        "Name the VLAN interface to `manylane accelerate`, too.",
    6 Malformed "malformed"
        "a header that is short, of a wrong version, or with lengths that do not fit the frame"
        "The kernel drops or cuts it; its sender is broken.",
    7 BadChecksum "bad_checksum"
        "the IPv4 header's checksum is wrong"
        "The kernel drops and counts it; look for a broken link or sender.",
    8 Options "options"
        "IPv4 options, or IPv6 hop-by-hop options or a routing header"
        "",
    9 Ttl "ttl"
        "the TTL or hop limit ends here"
        "The kernel answers. Traceroute does this; many of them are a routing loop.",
    10 Martian "martian"
        "from or to an address that is not routed: link-local, loopback, reserved"
        "The kernel decides. What is link-local, such as neighbour discovery, is as it should be.",
    11 Local "local"
        "for this host itself, or the broadcast address of one of its networks"
        "",
    12 Group "group"
        "for an IP multicast group, which the kernel routes"
        "",
    13 NoRoute "no_route"
        "no route leads to its destination"
        "The kernel answers. See `ip route get`.",
    14 Nowhere "nowhere"
        "its route is a blackhole, unreachable or prohibit one"
        "The kernel answers.",
    15 Unresolved "unresolved"
        "the next hop has no link-layer address yet"
        "The kernel resolves it. Many of them are a scan, a neighbour that is down (`ip neigh`), or hosts behind an interface \
         that is not accelerated (`manylane show why`).",
    16 TooBig "too_big"
        "larger than the egress interface carries"
        "The kernel fragments it or answers; make the MTUs alike.",
    17 SamePort "same_port"
        "it would leave by its ingress interface, and the kernel may send a redirect"
        "The kernel forwards it, and may name a shorter way to the sender.",
    18 ReversePath "reverse_path"
        "its source is our own address, or not reached by this interface (`rp_filter`)"
        "The kernel decides, and mostly drops it, as that check is meant to. `manylane show why` names the way back.",
    19 NotForwarding "not_forwarding"
        "the kernel does not forward packets received here"
        "The kernel is right to drop it where nothing is to be routed; see `manylane doctor`.",
    20 EgressKernel "egress_kernel"
        "it leaves by an interface that is not accelerated"
        "Name that interface to `manylane accelerate`, or see `manylane doctor` for what keeps it.",
    21 Multipath "multipath"
        "one of several next hops has to be chosen, and only the kernel knows how"
        "Set `fib_multipath_hash_policy` to 0 or 1. ICMP errors are the kernel's in any case.",
    22 KernelRoute "kernel_route"
        "its route is of a kind that only the kernel can carry out"
        "Encapsulating routes and more than 64 next hops are such.",
    23 Extension "extension"
        "IPv6 extension headers that cannot be followed, or too many of them"
        "",
    24 Segments "segments"
        "a packet of segments that is not TCP"
        "`ethtool -K INTERFACE rx-udp-gro-forwarding off` makes ordinary packets of them.",
    25 NotIngress "not_ingress"
        "the interface is kept in the kernel"
        "See `manylane doctor` for what keeps it.",
    26 DecisionChanged "decision_changed"
        "the routes changed between two decisions about it"
        "",
    27 NoFlow "no_flow"
        "the router filters by connection or translates, and its connection has no place in the flow table"
        "First packets, short connections, and what is neither TCP nor UDP are such. Many of them: `manylane show why`.",
    28 FlowPaused "flow_paused"
        "its connection has a place in the flow table, and the kernel has to see this packet"
        "The packet opens, closes or resets the connection, or rules or routes changed meanwhile.",
}

impl Verdict {
    /// The verdict with this number.
    pub fn from_number(number: u32) -> Option<Verdict> {
        Verdict::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its number, and its place in the counters.
    pub const fn number(self) -> usize {
        self as usize
    }

    /// One line for an operator: what it means and, if anything, what to do.
    pub fn help(self) -> String {
        let (meaning, advice) = (self.meaning(), self.advice());
        if advice.is_empty() { format!("{meaning}.") } else { format!("{meaning}. {advice}") }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;
    use crate::transit::layout::counter;

    #[test]
    fn a_verdict_is_the_place_of_its_counter() {
        for (number, &verdict) in Verdict::ALL.iter().enumerate() {
            assert_eq!(
                (verdict.number(), Verdict::from_number(number as u32)),
                (number, Some(verdict))
            );
            assert!(verdict.help().ends_with('.'), "{verdict}");
            assert!(verdict.name().bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()));
        }
        assert!(Verdict::ALL.len() <= counter::EGRESS_BYTES, "the other counters' places");
        assert_eq!(Verdict::from_number(29), None);
    }
}
