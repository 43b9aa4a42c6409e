//! Looking: from sockets and `/proc` to [`Facts`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::thread;

use crate::programs::{self, DRIVER_NAME};
use manylane_io::interface::{self, Interface};
use manylane_io::iptables::{self, Legacy};
use manylane_io::netlink::kernel::{Family, Link, NextHop, NextHopKind};
use manylane_io::netlink::traffic::{Direction, Place, Qdisc};
use manylane_io::netlink::{Netlink, NetlinkError, XdpFeatures, nftables, xfrm};
use manylane_io::sysctl;

use super::{Facts, Gate, GateError, Heard, Kernel, Offloads, Program, Programs};
use manylane_mirror::refused_rules;

/// The links of these names, those that are there.
pub(crate) fn links<'k>(kernel: &'k Kernel, interfaces: &[String]) -> Vec<&'k Link> {
    interfaces.iter().filter_map(|name| kernel.link(name)).collect()
}

impl Kernel {
    /// Reads it from the kernel, in the calling thread's network namespace: for a caller without a mirror.
    pub fn read() -> Result<Kernel, GateError> {
        let mut netlink = Netlink::open()?;
        let wrapping = encapsulated(netlink.dump_next_hops()?.iter());
        let mut encapsulated_routes = 0;
        for family in [Family::V4, Family::V6] {
            netlink.dump_routes(family, None, |route| {
                let wraps = route.next_hop.is_some_and(|id| wrapping.contains(&id))
                    || route.hops.as_slice().iter().any(|hop| hop.is_encapsulated);
                encapsulated_routes += u64::from(wraps);
            })?;
        }
        let links = netlink.dump_links()?;
        Ok(Kernel {
            netconf: netlink.dump_netconf()?,
            refused_rules: refused_rules(&netlink.dump_rules()?, &links),
            links,
            encapsulated_routes,
        })
    }

    /// The names of all Ethernet interfaces.
    pub fn ethernet(&self) -> Vec<String> {
        let is_ethernet = |link: &&Link| link.mac.is_some_and(|mac| mac != [0; 6]);
        self.links.iter().filter(is_ethernet).map(|link| link.name.clone()).collect()
    }
}

/// The numbers of next-hop objects that encapsulate packets.
pub(crate) fn encapsulated<'a>(
    objects: impl Iterator<Item = &'a NextHop> + Clone,
) -> BTreeSet<u32> {
    let wraps =
        |object: &&NextHop| matches!(object.kind, NextHopKind::Via(hop) if hop.is_encapsulated);
    let mut found: BTreeSet<_> = objects.clone().filter(wraps).map(|object| object.id).collect();
    // A group has no groups in it.
    for object in objects {
        if let NextHopKind::Group { members, .. } = &object.kind
            && members.iter().any(|(id, _)| found.contains(id))
        {
            found.insert(object.id);
        }
    }
    found
}

/// The foreign programs at an interface's tcx ingress, for [`Gate::open`].
pub fn programs_of_others() -> Programs {
    Box::new(|link, name| {
        let interface = Interface::read(name).map_err(io::Error::other)?;
        let programs = programs::attached(&interface)?.programs;
        let ours = programs.iter().position(|(_, name)| name == programs::NAME);
        let others = programs.into_iter().enumerate().filter(|&(place, _)| Some(place) != ours);
        let program = |(place, (id, name))| {
            let is_behind = ours.is_some_and(|ours| place > ours);
            Program { link, id, name, is_behind }
        };
        Ok(others.map(program).collect())
    })
}

/// What sends no notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Polled {
    legacy: Result<Legacy, String>,
    pub(super) programs: Result<Vec<Program>, String>,
    egress_programs: Result<Vec<Program>, String>,
    /// Foreign XDP programs, by device: attachment by a link sends no notification.
    driver_programs: Result<BTreeMap<u32, u32>, String>,
    multipath_hash_policy: [u8; 2],
    repeats_next_hops: bool,
}

impl Polled {
    /// What has changed since an earlier look, or the first.
    pub(super) fn since(&self, before: Option<&Polled>) -> Heard {
        Heard {
            is_change: before != Some(self),
            rules: before.is_none_or(|before| before.legacy != self.legacy),
            ..Heard::default()
        }
    }
}

/// Reads it.
pub(super) fn polled(programs: &mut Programs, links: &[&Link]) -> Polled {
    let of_all = |programs: &mut dyn FnMut(&Link) -> io::Result<Vec<Program>>| {
        let mut all = Vec::new();
        for link in links {
            all.extend(programs(link).map_err(|error| {
                format!("the programs (tcx) of {} cannot be read: {error}", link.name)
            })?);
        }
        Ok(all)
    };
    // A kernel without a setting does as if it were 0: none of these protocols is there, or it is too old to ask.
    let number =
        |name: &str| sysctl::read(name).ok().and_then(|text| text.parse().ok()).unwrap_or(0u8);
    let policy = |version| number(&format!("net/{version}/fib_multipath_hash_policy"));
    Polled {
        legacy: iptables::legacy()
            .map_err(|error| format!("the tables of legacy iptables cannot be read: {error}")),
        programs: of_all(&mut |link| programs(link.index, &link.name)),
        egress_programs: of_all(&mut |link| egress_programs(link)),
        driver_programs: driver_programs()
            .map_err(|error| format!("the XDP programs of devices cannot be read: {error}")),
        multipath_hash_policy: ["ipv4", "ipv6"].map(policy),
        repeats_next_hops: number("net/ipv4/nexthop_compat_mode") != 0,
    }
}

impl Gate {
    /// All that is judged by.
    pub(super) fn facts(
        &mut self,
        kernel: &Kernel,
        interfaces: &[String],
    ) -> Result<Facts, GateError> {
        let links = links(kernel, interfaces);
        let polled = polled(&mut self.programs, &links);
        self.polled = Some(polled.clone());
        let mut unknown = Vec::new();
        let mut facts = Facts {
            interfaces: links.iter().map(|link| link.index).collect(),
            version: version(&sysctl::read("kernel/osrelease")?),
            missing_capabilities: missing_capabilities(),
            chains: or_unknown(nftables::chains(), &mut unknown),
            flow_tables: or_unknown(nftables::flow_tables(), &mut unknown),
            legacy: or_unknown(polled.legacy, &mut unknown),
            policies: or_unknown(xfrm::policies(), &mut unknown),
            programs: or_unknown(polled.programs, &mut unknown),
            egress_programs: or_unknown(polled.egress_programs, &mut unknown),
            qdiscs: self.traffic.qdiscs()?,
            multipath_hash_policy: polled.multipath_hash_policy,
            repeats_next_hops: polled.repeats_next_hops,
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: with_programs(kernel, &or_unknown(polled.driver_programs, &mut unknown)),
            ..Facts::default()
        };
        for link in links {
            let holds_filters =
                |qdisc: &Qdisc| qdisc.link == link.index && qdisc.place == Place::Filters;
            if facts.qdiscs.iter().any(holds_filters) {
                for (side, to) in [
                    (Direction::Ingress, &mut facts.ingress_filters),
                    (Direction::Egress, &mut facts.egress_filters),
                ] {
                    let filters = or_unknown(self.traffic.filters(link.index, side), &mut unknown);
                    to.extend(filters.into_iter().map(|filter| (link.index, filter)));
                }
            }
            // Most devices say; what does not is not worth a note.
            if let Ok(read) = interface::Offloads::read(&link.name) {
                let interface::Offloads { gro, tso, takes_tags_off } = read;
                facts.offloads.push(Offloads { link: link.index, gro, tso, takes_tags_off });
            }
            // What is not known is not used.
            if let Ok(features) = XdpFeatures::read(link.index) {
                facts.features.push((link.index, features));
            }
        }
        facts.unknown = unknown;
        Ok(facts)
    }
}

fn egress_programs(link: &Link) -> io::Result<Vec<Program>> {
    let interface = Interface::read(&link.name).map_err(io::Error::other)?;
    let programs = programs::attached_egress(&interface)?.programs.into_iter();
    Ok(programs
        .map(|(id, name)| Program { link: link.index, id, name, is_behind: false })
        .collect())
}

/// Those that are not ours.
fn driver_programs() -> Result<BTreeMap<u32, u32>, NetlinkError> {
    let links = Netlink::open()?.dump_links()?;
    let is_ours = |id: u32| programs::program_name(id).is_ok_and(|name| name == DRIVER_NAME);
    let programs = links.iter().filter_map(|link| Some((link.index, link.xdp?)));
    Ok(programs.filter(|&(_, id)| !is_ours(id)).collect())
}

/// The same kernel with these XDP programs.
fn with_programs(kernel: &Kernel, programs: &BTreeMap<u32, u32>) -> Kernel {
    let mut kernel = kernel.clone();
    for link in &mut kernel.links {
        link.xdp = programs.get(&link.index).copied();
    }
    kernel
}

/// What was read; what was not is unknown, with its error.
fn or_unknown<T: Default>(read: Result<T, impl std::fmt::Display>, unknown: &mut Vec<String>) -> T {
    read.unwrap_or_else(|error| {
        unknown.push(error.to_string());
        T::default()
    })
}

/// `6.18.44-rc1` is 6, 18.
fn version(release: &str) -> (u32, u32) {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Capabilities that are needed to load and attach programs, and are not in effect (capabilities(7)).
pub(crate) fn missing_capabilities() -> Vec<&'static str> {
    let effective = fs::read_to_string("/proc/thread-self/status")
        .and_then(|status| effective(&status).ok_or_else(|| io::ErrorKind::InvalidData.into()))
        .unwrap_or(0);
    missing(effective)
}

fn effective(status: &str) -> Option<u64> {
    let word = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(word.trim(), 16).ok()
}

fn missing(effective: u64) -> Vec<&'static str> {
    let has = |number: u32| effective >> number & 1 == 1;
    // The older, wider one stands for the two newer ones.
    [
        ("CAP_BPF", has(CAP_BPF) || has(CAP_SYS_ADMIN)),
        ("CAP_NET_ADMIN", has(CAP_NET_ADMIN)),
        ("CAP_PERFMON", has(CAP_PERFMON) || has(CAP_SYS_ADMIN)),
    ]
    .into_iter()
    .filter_map(|(name, is_there)| (!is_there).then_some(name))
    .collect()
}

// linux/capability.h.
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_two_numbers_that_matter() {
        for (release, numbers) in [
            ("6.18.44", (6, 18)),
            ("6.6-rc1", (6, 6)),
            ("5.10.0-28-amd64", (5, 10)),
            ("what", (0, 0)),
        ] {
            assert_eq!(version(release), numbers, "{release}");
        }
    }

    #[test]
    fn capabilities_that_are_missing_are_named() {
        let all = effective("Name:\tx\nCapEff:\t000001ffffffffff\n").expect("it is there");
        assert_eq!(missing(all), [""; 0]);
        assert_eq!(missing(0), ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
        assert_eq!(missing(1 << CAP_SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert_eq!(missing(1 << CAP_BPF | 1 << CAP_NET_ADMIN), ["CAP_PERFMON"]);
    }
}
