//! Which devices are ports, and what may be done there.

use std::collections::BTreeMap;

use manylane_io::netlink::kernel::{Family, Link};
use manylane_net::fib::IpPrefix;
use manylane_net::transit::layout::flags;

use super::kernel::Kernel;

/// A device that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its index.
    pub link: u32,
    /// Its number in the tables, 1 to 255.
    pub number: u16,
    /// Packets may leave there: the gate's word.
    pub is_egress: bool,
}

/// The ports, by their devices.
#[derive(Default)]
pub(super) struct Ports(BTreeMap<u32, Port>);

impl Ports {
    /// The port that a device is.
    pub fn of(&self, link: u32) -> Option<Port> {
        self.0.get(&link).copied()
    }

    /// The number of the port that a device is; 0 for none.
    pub fn number(&self, link: u32) -> u16 {
        self.of(link).map_or(0, |port| port.number)
    }

    /// Exchanges all of them. Returns the devices whose number is another.
    pub fn set(&mut self, ports: &[Port]) -> Vec<u32> {
        let new: BTreeMap<u32, Port> = ports.iter().map(|port| (port.link, *port)).collect();
        let former = std::mem::replace(&mut self.0, new);
        let number = |ports: &BTreeMap<u32, Port>, link: &u32| ports.get(link).map(|p| p.number);
        let mut links: Vec<u32> = former.keys().chain(self.0.keys()).copied().collect();
        links.sort_unstable();
        links.dedup();
        links.retain(|link| number(&former, link) != number(&self.0, link));
        links
    }
}

/// What a port's flags follow from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortFacts {
    /// The gate's judgement: received packets may be forwarded.
    pub is_ingress: bool,
    /// Packets may leave there: the gate's word.
    pub is_egress: bool,
    /// The kernel forwards IPv4 there.
    pub forwards_v4: bool,
    /// The kernel forwards IPv6 there.
    pub forwards_v6: bool,
    /// IPv4's `rp_filter` as it takes effect: 0 none, 1 strict (or none of its addresses is IPv4's), 2 loose.
    pub rp_filter: u8,
    /// `send_redirects` as it takes effect.
    pub redirects_v4: bool,
    /// Redirects for IPv6, where they cannot be turned off.
    pub redirects_v6: bool,
}

/// The flags of a port, as the tables have them.
pub fn port_flags(facts: &PortFacts) -> u32 {
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    flag(facts.is_ingress, flags::INGRESS)
        | flag(facts.is_egress, flags::EGRESS)
        | flag(facts.forwards_v4, flags::FORWARDING_V4)
        | flag(facts.forwards_v6, flags::FORWARDING_V6)
        | flag(facts.rp_filter == 1, flags::RP_STRICT)
        // What later kernels may mean by other numbers is at least this.
        | flag(facts.rp_filter > 1, flags::RP_LOOSE)
        | flag(facts.redirects_v4, flags::REDIRECTS_V4)
        | flag(facts.redirects_v6, flags::REDIRECTS_V6)
}

/// `NETCONFA_IFINDEX_ALL`.
const ALL: i32 = -1;

impl Kernel {
    /// What a device's flags follow from, by the kernel's settings; what it does not tell by netlink, and what
    /// the gate says, is passed in. What was not heard is taken for what leaves most to the kernel.
    ///
    /// | setting            | takes effect                                                        |
    /// |--------------------|---------------------------------------------------------------------|
    /// | IPv4 `forwarding`  | the device's (`IN_DEV_FORWARD`)                                     |
    /// | IPv6 `forwarding`  | that of all (`ip6_forward`); a device with its own off is left alone |
    /// | `rp_filter`        | the maximum of all and the device's (`IN_DEV_RPFILTER`); where the device has no IPv4 address, |
    /// |                    | the kernel is content with nothing but a way back by it, also when loose (`__fib_validate_source`) |
    pub fn port_facts(&self, link: u32, gate: PortFacts) -> PortFacts {
        let device = i32::try_from(link).unwrap_or(i32::MAX);
        let forwards = |link: i32, family| {
            self.netconf(link, family).and_then(|settings| settings.forwarding).unwrap_or(false)
        };
        let rp_filter = |link: i32| {
            let settings = self.netconf(link, Family::V4);
            settings.and_then(|settings| settings.rp_filter).unwrap_or(0)
        };
        PortFacts {
            forwards_v4: forwards(device, Family::V4),
            forwards_v6: forwards(device, Family::V6) && forwards(ALL, Family::V6),
            rp_filter: match rp_filter(device).max(rp_filter(ALL)) {
                0 => 0,
                _ if !self.has_ipv4(link) => 1,
                set => set,
            },
            ..gate
        }
    }

    /// A device for a message: by its name, if it has one.
    pub(super) fn name(&self, link: u32) -> String {
        self.link(link).map_or_else(|| format!("if{link}"), |link: &Link| link.name.clone())
    }
}

/// A prefix, as ip-route(8) shows it.
pub(super) fn shown(prefix: IpPrefix) -> String {
    if prefix.len() == 0 { "default".to_owned() } else { prefix.to_string() }
}
