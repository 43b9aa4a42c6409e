//! What the gate looks at, as plain values: the judgement is a function of these alone.

use manylane_io::iptables::Legacy;
use manylane_io::netlink::XdpFeatures;
use manylane_io::netlink::kernel::{Family, Link, Netconf};
use manylane_io::netlink::nftables::{Chain, FlowTable};
use manylane_io::netlink::traffic::{Filter, Qdisc};
use manylane_io::netlink::xfrm::Policies;

use manylane_mirror::RefusedRules;

/// What is known of the kernel's routing already, kept by the mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// All links.
    pub links: Vec<Link>,
    /// All settings of links, and those of all.
    pub netconf: Vec<Netconf>,
    /// Why the rules of the routing policy are none that a program can follow.
    pub refused_rules: Vec<RefusedRules>,
    /// Routes with a way that wraps packets.
    pub encapsulated_routes: u64,
}

impl Kernel {
    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Whether packets of a family received by a link are forwarded.
    ///
    /// IPv4 uses the device's setting only. IPv6 uses that of all; where the device's own says otherwise, the
    /// kernel may decide.
    pub fn forwards(&self, link: u32, family: Family) -> bool {
        let is_on = |link| self.setting(link, family, |netconf| netconf.forwarding) == Some(true);
        match family {
            Family::V4 => is_on(device(link)),
            Family::V6 => is_on(NETCONFA_IFINDEX_ALL) && is_on(device(link)),
        }
    }

    /// How the source addresses of IPv4 packets received by a link are checked: the greater of the device's
    /// setting and that of all. 0 not, 1 strictly, 2 loosely.
    pub fn rp_filter(&self, link: u32) -> u8 {
        [NETCONFA_IFINDEX_ALL, device(link)]
            .into_iter()
            .filter_map(|link| self.setting(link, Family::V4, |netconf| netconf.rp_filter))
            .max()
            .unwrap_or(0)
    }

    fn setting<T>(
        &self,
        link: i32,
        family: Family,
        part: impl Fn(&Netconf) -> Option<T>,
    ) -> Option<T> {
        let is_it = |netconf: &&Netconf| netconf.link == link && netconf.family == family;
        // Of several, the last one holds.
        self.netconf.iter().rev().filter(is_it).find_map(part)
    }
}

fn device(link: u32) -> i32 {
    i32::try_from(link).unwrap_or(i32::MAX)
}

/// All that the judgement needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What is known already.
    pub kernel: Kernel,
    /// The interfaces in question, by number.
    pub interfaces: Vec<u32>,
    /// The kernel's version: 6, 6.
    pub version: (u32, u32),
    /// Privileges that this process does not have and would need.
    pub missing_capabilities: Vec<&'static str>,
    /// What could not be read, and why.
    pub unknown: Vec<String>,
    /// The chains of nftables.
    pub chains: Vec<Chain>,
    /// The flow tables of nftables.
    pub flow_tables: Vec<FlowTable>,
    /// The chains of legacy iptables.
    pub legacy: Legacy,
    /// IPsec.
    pub policies: Policies,
    /// The qdiscs of all devices.
    pub qdiscs: Vec<Qdisc>,
    /// Filters of traffic control at ingress, by device.
    pub ingress_filters: Vec<(u32, Filter)>,
    /// Filters of traffic control at egress, by device.
    pub egress_filters: Vec<(u32, Filter)>,
    /// Foreign BPF programs at tcx ingress.
    pub programs: Vec<Program>,
    /// BPF programs at tcx egress.
    pub egress_programs: Vec<Program>,
    /// What drivers say that they can do with XDP, by device.
    pub features: Vec<(u32, XdpFeatures)>,
    /// `fib_multipath_hash_policy` for IPv4 and IPv6.
    pub multipath_hash_policy: [u8; 2],
    /// `net.ipv4.nexthop_compat_mode`.
    pub repeats_next_hops: bool,
    /// Cores of this machine.
    pub cores: usize,
    /// What devices do for the kernel.
    pub offloads: Vec<Offloads>,
}

/// A foreign BPF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// On this device.
    pub link: u32,
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whether the program comes behind ours in the chain, and does not see what ours takes.
    pub is_behind: bool,
}

/// What a device does for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// The device.
    pub link: u32,
    /// Segments of a TCP stream are joined on receive.
    pub gro: bool,
    /// The device takes segments that are to be cut.
    pub tso: bool,
    /// The device takes VLAN tags off received frames.
    pub takes_tags_off: bool,
}

const NETCONFA_IFINDEX_ALL: i32 = -1;
