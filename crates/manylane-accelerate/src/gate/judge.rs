//! The judgement: what was found, what that means for one interface.

use manylane_io::netlink::kernel::{Family, Link};
use manylane_io::netlink::traffic::{Filter, Place, Qdisc};

use super::cure::Cure;
use super::facts::{Facts, Offloads};
use super::netfilter::Met;
use super::reason::{About, Concerns, Reason, Standing, Tier};
use super::terms::{Stateful, Terms};
use super::{driver, netfilter};

/// The families whose packets may be forwarded by connection only.
pub fn stateful(facts: &Facts, terms: Terms) -> Stateful {
    netfilter::in_namespace(facts, terms).stateful
}

/// Judges an interface.
pub fn judge(facts: &Facts, link: &Link, terms: Terms) -> Standing {
    let Met { reasons, notes: by_connection, .. } = netfilter::in_namespace(facts, terms);
    let mut found = everywhere(facts, reasons);
    found.extend(netfilter::at_device(facts, link));
    found.extend(device(facts, link));
    found.extend(forwarding(facts, link));
    found.extend(ingress_filters(facts, link));
    let (bypassed, reasons): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|reason| terms.bypass.covers(reason.about));
    let skipped = |reason| Reason { why: BYPASSED.into(), ..reason };
    let is_ingress = !reasons.iter().any(|reason| reason.concerns.has_ingress());
    let is_egress = !reasons.iter().any(|reason| reason.concerns.has_egress());
    let mut driver = driver::judge(facts, link);
    let mut notes: Vec<_> = by_connection.into_iter().map(Reason::everywhere).collect();
    notes.extend(self::notes(facts, link));
    match is_ingress || is_egress {
        true => notes.extend(speed(facts, link)),
        // Nothing is made faster by tuning what the kernel keeps.
        false => {
            notes.iter_mut().chain(driver.reasons_mut()).for_each(|found| found.command = None)
        }
    }
    Standing {
        interface: link.name.clone(),
        index: link.index,
        tier: match is_ingress {
            false => Tier::Kernel,
            true if driver.ingress.is_empty() && driver.auto.is_empty() => Tier::Driver,
            true => Tier::Ingress,
        },
        is_ingress,
        is_egress,
        link_up: has_link(link),
        reasons,
        bypassed: bypassed.into_iter().map(skipped).collect(),
        notes,
        driver,
    }
}

/// What concerns all interfaces of the namespace, the rules that packets meet among it.
fn everywhere(facts: &Facts, rules: Vec<Reason>) -> Vec<Reason> {
    let mut found = Vec::new();
    let (major, minor) = facts.version;
    if facts.version < OLDEST {
        found.push(Reason::new(
            About::KernelVersion,
            format!("Linux {major}.{minor}"),
            "programs can be attached at ingress, beside others, since Linux 6.6 (tcx): boot a newer one",
        ));
    }
    if !facts.missing_capabilities.is_empty() {
        found.push(Reason::new(
            About::Capabilities,
            format!("this process lacks {}", facts.missing_capabilities.join(", ")),
            "programs cannot be loaded or attached without: run it as root, or with these",
        ));
    }
    for what in &facts.unknown {
        found.push(Reason::new(
            About::Unknown,
            what,
            "what cannot be looked at may do something to packets",
        ));
    }
    found.extend(rules);
    found.extend(xfrm(facts));
    let rules = facts.kernel.refused_rules.iter();
    found.extend(rules.map(|refused| Reason::new(About::Rules, refused.what.clone(), refused.why)));
    found.into_iter().map(Reason::everywhere).collect()
}

fn xfrm(facts: &Facts) -> Vec<Reason> {
    let mut found = Vec::new();
    let policies = &facts.policies;
    for policy in &policies.transit {
        let ((source, from), (destination, to)) = (policy.source, policy.destination);
        let (direction, index) = (policy.direction, policy.index);
        let does = if policy.blocks { "blocks" } else { "for" };
        found.push(Reason::new(
            About::Xfrm,
            format!(
                "XFRM policy {index} ({direction}) {does} {source}/{from} to {destination}/{to}"
            ),
            "IPsec may protect or block routed packets, and is in the kernel: leaving them to the kernel is right",
        ));
    }
    for (is_blocked, direction) in
        [(policies.forward_is_blocked, "fwd"), (policies.out_is_blocked, "out")]
    {
        if is_blocked {
            found.push(Reason::new(
                About::Xfrm,
                format!("XFRM blocks by default ({direction})"),
                "the kernel drops routed packets that no policy allows, so leaving them to the kernel is right",
            ));
        }
    }
    found
}

/// What kind of device it is, and what belongs to it.
fn device(facts: &Facts, link: &Link) -> Vec<Reason> {
    let mut found = Vec::new();
    let name = &link.name;
    let no = |what: String, why: &str| Reason::new(About::Device, what, why);
    if link.flags & IFF_LOOPBACK != 0 {
        let why = "what this host sends to itself is not routed";
        found.push(no(format!("{name} is the loopback"), why));
    } else if link.mac.is_none_or(|mac| mac == [0; 6]) {
        let why = "frames are forwarded by their Ethernet addresses";
        found.push(no(format!("{name} has no Ethernet address"), why));
    }
    if link.index > INDEX_MAX {
        let why = "only numbers up to 65535 have a place in the tables";
        found.push(no(format!("{name} is interface number {}", link.index), why));
    }
    if let Some(master) = link.master {
        let upper = facts.kernel.links.iter().find(|link| link.index == master);
        let upper_name =
            upper.map_or_else(|| format!("interface {master}"), |link| link.name.clone());
        let kind = match (&link.member_kind, upper.and_then(|link| link.kind.as_ref())) {
            (Some(kind), _) | (None, Some(kind)) => format!("{kind} "),
            (None, None) => String::new(),
        };
        found.push(Reason::new(
            About::Member,
            format!("{name} is a member of {kind}{upper_name}"),
            format!(
                "its packets are {upper_name}'s, so leaving them to the kernel is right: accelerate {upper_name} \
                 if packets are routed there"
            ),
        ));
    }
    let children = facts.kernel.links.iter().filter(|other| {
        let takes = |kind: &String| TAKING.contains(&kind.as_str());
        other.lower == Some(link.index)
            && !other.lower_is_elsewhere
            && other.kind.as_ref().is_some_and(takes)
    });
    for child in children {
        let kind = child.kind.as_deref().unwrap_or_default();
        found.push(
            Reason::new(
                About::Parent,
                format!("{kind} {} is on {name}", child.name),
                "received packets may be for it, behind our program, so leaving them to the kernel is right",
            )
            .concerning(Concerns::Ingress),
        );
    }
    if link.flags & IFF_UP == 0 {
        found.push(
            Reason::new(About::Down, format!("{name} is down"), "nothing goes through it")
                .cure(Cure::LinkUp(name.clone())),
        );
    }
    found
}

/// Off for both families, the port has no work.
fn forwarding(facts: &Facts, link: &Link) -> Option<Reason> {
    if link.master.is_some() {
        return None; // Its packets are another device's, so its own setting is no news, and changing it no help.
    }
    let is_on = |family| facts.kernel.forwards(link.index, family);
    (!is_on(Family::V4) && !is_on(Family::V6)).then(|| {
        Reason::new(
            About::Forwarding,
            format!("forwarding is off on {}, IPv4 and IPv6", link.name),
            "the kernel does not route packets received there: right, unless this host is to be a router. IPv6 is \
             routed with net.ipv6.conf.all.forwarding, and router advertisements are then heeded only with accept_ra 2",
        )
        .concerning(Concerns::Ingress)
        .cure(Cure::Forwarding(link.name.clone()))
    })
}

fn ingress_filters(facts: &Facts, link: &Link) -> Option<Reason> {
    let list = listed(&facts.ingress_filters, link)?;
    Some(
        Reason::new(
            About::TrafficControl,
            format!("filters of traffic control at ingress of {}: {list}", link.name),
            "they run behind our program, and would not see the packets that it takes, so leaving them to the kernel \
             is right",
        )
        .concerning(Concerns::Ingress),
    )
}

fn notes(facts: &Facts, link: &Link) -> Vec<Reason> {
    let mut notes = Vec::new();
    let kernel = &facts.kernel;
    let name = &link.name;
    let many = kernel.encapsulated_routes;
    if many > 0 {
        let what = match many {
            1 => "a route wraps packets (encap)".into(),
            many => format!("{many} routes wrap packets (encap)"),
        };
        let why = "packets of such routes, and of no other, stay in the kernel";
        notes.push(Reason::new(About::Encapsulation, what, why).everywhere());
    }
    for (version, policy) in ["ipv4", "ipv6"].into_iter().zip(facts.multipath_hash_policy) {
        if policy > 1 {
            notes.push(
                Reason::new(
                    About::Multipath,
                    format!("net.{version}.fib_multipath_hash_policy is {policy}"),
                    "only addresses (0), or addresses and ports (1), are hashed here: packets of multipath \
                     routes stay in the kernel",
                )
                .cure(Cure::HashPolicy(version))
                .everywhere(),
            );
        }
    }
    if facts.repeats_next_hops {
        notes.push(
            Reason::new(
                About::NextHops,
                "net.ipv4.nexthop_compat_mode is 1",
                "the kernel announces a change of a next-hop object for each route that uses it, which takes long to \
                 read with many",
            )
            .cure(Cure::QuietNextHops)
            .everywhere(),
        );
    }
    let off: Vec<_> = [(Family::V4, "IPv4"), (Family::V6, "IPv6")]
        .into_iter()
        .filter(|(family, _)| !kernel.forwards(link.index, *family))
        .collect();
    if let [(_, words)] = off[..] {
        notes.push(
            Reason::new(
                About::Forwarding,
                format!("forwarding of {words} is off"),
                "such packets are left to the kernel, which does not route them: right, unless they are to be routed",
            )
            .concerning(Concerns::Ingress),
        );
    }
    if link.flags & IFF_UP != 0 && !has_link(link) {
        let what = format!("the link of {name} has no carrier");
        let why =
            "no packet passes until it has: look at the cable, or at the device at its other end";
        notes.push(Reason::new(About::Down, what, why));
    }
    notes.extend(reverse_path(facts, link));
    notes.extend(programs(facts, link));
    notes.extend(egress_queueing(facts, link));
    notes
}

fn reverse_path(facts: &Facts, link: &Link) -> Option<Reason> {
    let (word, checked) = match facts.kernel.rp_filter(link.index) {
        0 => return None,
        1 => ("strict (1)", "does not lead out by this interface"),
        _ => ("loose (2)", "leads nowhere"),
    };
    Some(
        Reason::new(
            About::ReversePath,
            format!("rp_filter is {word} on {}", link.name),
            format!("the source of each IPv4 packet is looked up, too, as the kernel does; a packet whose source \
                     {checked} is left to the kernel, which drops it, as it should"),
        )
        .concerning(Concerns::Ingress),
    )
}

fn programs(facts: &Facts, link: &Link) -> Vec<Reason> {
    let name = &link.name;
    let mut notes = Vec::new();
    for program in facts.programs.iter().filter(|program| program.link == link.index) {
        notes.push(
            Reason::new(
                About::Programs,
                format!(
                    "program {} ({}) is attached at ingress of {name}",
                    program.id, program.name
                ),
                match program.is_behind {
                    true => "it was attached behind ours, which moves behind it",
                    false => {
                        "it runs before ours and stays: what it decides for good, ours does not see"
                    }
                },
            )
            .concerning(Concerns::Ingress),
        );
    }
    if let Some(id) = link.xdp {
        notes.push(
            Reason::new(
                About::Programs,
                format!("XDP program {id} is on {name}"),
                "it runs before ours and stays: ours does not see the packets that it takes",
            )
            .concerning(Concerns::Ingress),
        );
    }
    notes
}

/// Egress queueing is passed through as before: a note, since operators want to know.
fn egress_queueing(facts: &Facts, link: &Link) -> Vec<Reason> {
    let name = &link.name;
    let mut notes = Vec::new();
    let is_root = |qdisc: &&Qdisc| qdisc.link == link.index && qdisc.place == Place::Root;
    if let Some(root) = facts.qdiscs.iter().find(is_root)
        && !PLAIN_QDISCS.contains(&root.kind.as_str())
    {
        notes.push(
            Reason::new(
                About::TrafficControl,
                format!("qdisc {} on {name}", root.kind),
                "what we send out here is queued by it, as what the kernel forwards",
            )
            .concerning(Concerns::Egress),
        );
    }
    if let Some(list) = listed(&facts.egress_filters, link) {
        notes.push(
            Reason::new(
                About::TrafficControl,
                format!("filters of traffic control at egress of {name}: {list}"),
                "what we send out here goes through them, as what the kernel forwards",
            )
            .concerning(Concerns::Egress),
        );
    }
    notes
}

/// What would make it faster, or surprises.
fn speed(facts: &Facts, link: &Link) -> Vec<Reason> {
    let name = &link.name;
    let mut notes = Vec::new();
    let others = facts.kernel.links.iter().filter(|other| facts.interfaces.contains(&other.index));
    if let Some(least) = others.min_by_key(|other| other.mtu)
        && least.mtu < link.mtu
    {
        notes.push(
            Reason::new(
                About::Mtu,
                format!("the MTU of {name} is {}, that of {} is {}", link.mtu, least.name, least.mtu),
                "packets longer than the egress port takes are left to the kernel, to cut or to refuse",
            )
            .concerning(Concerns::Ingress),
        );
    }
    let (receive, _) = link.queues;
    let is_veth = link.kind.as_deref() == Some("veth");
    // Other software devices have no queues to be set.
    if receive == 1 && facts.cores > 1 && (link.kind.is_none() || is_veth) {
        notes.push(
            Reason::new(
                About::Queues,
                format!("{name} has one receive queue, and this machine {} cores", facts.cores),
                "one core forwards all packets received here",
            )
            .concerning(Concerns::Ingress)
            .cure(Cure::Queues(name.clone(), facts.cores)),
        );
    }
    let its = |offloads: &&Offloads| offloads.link == link.index;
    if let Some(offloads) = facts.offloads.iter().find(its) {
        let hint = |what: &str, why: &str, switch: &'static str| {
            Reason::new(About::Offloads, format!("{what} is off on {name}"), why)
                .cure(Cure::Offload(name.clone(), switch, true))
        };
        if !offloads.tso {
            let why = "segments of TCP are cut in software before they leave";
            notes.push(hint("tcp-segmentation-offload", why, "tso").concerning(Concerns::Egress));
        }
        // A veth hands over what the other end sent, in whole segments.
        if !offloads.gro && !is_veth {
            let why = "TCP is forwarded packet by packet, not by segments of many";
            notes.push(hint("generic-receive-offload", why, "gro").concerning(Concerns::Ingress));
        }
    }
    notes
}

/// `u32 (preference 49152), bpf (preference 1)`, for the filters on the link.
pub(super) fn listed(filters: &[(u32, Filter)], link: &Link) -> Option<String> {
    let its = filters.iter().filter(|(index, _)| *index == link.index);
    let words: Vec<_> = its
        .map(|(_, filter)| format!("{} (preference {})", filter.kind, filter.preference))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Whether the link is up and has a carrier: without, no packet passes.
pub(crate) fn has_link(link: &Link) -> bool {
    link.flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP
}

const BYPASSED: &str = "packets that we forward skip it, by the operator's word";
/// tcx, and links of its programs.
const OLDEST: (u32, u32) = (6, 6);
/// Places of the table from device to port.
const INDEX_MAX: u32 = 65_535;
/// Devices that take packets received by another one (`netdev_rx_handler_register`).
const TAKING: [&str; 5] = ["macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"];
/// Qdiscs that only queue: the kernel's own choice.
pub(super) const PLAIN_QDISCS: [&str; 6] =
    ["noqueue", "noop", "mq", "pfifo_fast", "fq_codel", "pfifo"];
// linux/if.h.
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
const IFF_LOWER_UP: u32 = 1 << 16;
