//! The judgement about the driver tier: a program in the driver sees a frame before the kernel has made anything of
//! it, and what it forwards skips more than what is forwarded at tcx does.
//!
//! | What                                         | Why not                                              |
//! |----------------------------------------------|------------------------------------------------------|
//! | in: the driver runs no XDP programs          | ours would not run                                   |
//! | in: another XDP program is there             | a driver has one place                               |
//! | in: other programs at tcx ingress            | they are behind ours, and would not see its packets  |
//! | in: tags are taken off, or may be            | a frame of a VLAN would look like one of none        |
//! | out: the driver takes no redirected frames   | they would be lost                                   |
//! | out: a shaper, filters, programs (tcx)       | redirected frames pass these by, to the driver       |
//! | workers: an MTU that their frames are too short for | a flow would have two ways                    |
//! | `auto`: a software device                    | what stands beside its packets' bytes is not seen    |
//!
//! For the worker tier all of it is so, but that the driver need not take redirected frames.
//!
//! A veth hands over what the other end sent, with tags, checksums and segments beside the bytes as that end's offloads
//! have them, which this end cannot see. So the operator decides that, by name.

use crate::programs::WORKER_FRAME;
use manylane_io::netlink::XdpFeatures;
use manylane_io::netlink::kernel::Link;
use manylane_io::netlink::traffic::Place;

use super::cure::Cure;
use super::facts::{Facts, Program};
use super::judge::{PLAIN_QDISCS, listed};
use super::reason::{About, Concerns, DriverStanding, Reason};

/// Judges an interface.
pub(super) fn judge(facts: &Facts, link: &Link) -> DriverStanding {
    let of_link = facts.features.iter().find(|(index, _)| *index == link.index);
    let features = of_link.map(|(_, features)| *features).unwrap_or_default();
    let sends = sends(facts, link);
    let mut ingress = ingress(facts, link, features);
    if link.kind.is_some() {
        // `ingress` is right for a software device: no command leads into its driver.
        ingress.iter_mut().for_each(|found| found.command = None);
    }
    DriverStanding {
        ingress,
        egress: transmits(link, features).into_iter().chain(sends.iter().cloned()).collect(),
        auto: auto(link),
        sends,
        sockets: sockets(link).into_iter().collect(),
        takes_pieces: features.transmits_pieces,
    }
}

impl DriverStanding {
    /// All that was found.
    pub(super) fn reasons_mut(&mut self) -> impl Iterator<Item = &mut Reason> {
        let DriverStanding { ingress, egress, sends, auto, sockets, takes_pieces: _ } = self;
        [ingress, egress, sends, auto, sockets].into_iter().flatten()
    }

    /// What speaks against a tier in the driver that the operator has named: the device is a software device.
    pub fn warning(&self, tier: &str) -> Option<Reason> {
        let against = self.auto.first()?;
        let what = format!("the tier is set to {tier}, on {}", against.what);
        let why = "`ingress` is right for it: in its driver tags beside the bytes are lost, and packets with open \
                   checksums are left to `ingress` all the same";
        Some(no(against.about, what, why))
    }
}

fn ingress(facts: &Facts, link: &Link, features: XdpFeatures) -> Vec<Reason> {
    let name = &link.name;
    let mut found = Vec::new();
    if !features.redirects {
        let why = "packets can be forwarded in drivers that do";
        found.push(no(About::Driver, "the driver runs no XDP programs".into(), why));
    }
    if let Some(id) = link.xdp {
        let what = format!("XDP program {id} is on {name}");
        let why = "the driver holds one program, and that program stays";
        found.push(no(About::Programs, what, why));
    }
    for Program { id, name: program, .. } in on(&facts.programs, link) {
        let what = format!("program {id} ({program}) is attached at ingress of {name}");
        let why = "in the driver ours would be before it, and it would not see what ours takes";
        found.push(no(About::Programs, what, why));
    }
    found.extend(tags(facts, link));
    found.into_iter().map(|reason| reason.concerning(Concerns::Ingress)).collect()
}

/// What would be a frame of a VLAN, and could not be seen to be.
fn tags(facts: &Facts, link: &Link) -> Option<Reason> {
    let name = &link.name;
    if is_veth(link) {
        let mut all = facts.kernel.links.iter();
        let vlan = all.find(|other| other.vlan.is_some() && other.lower == Some(link.index))?;
        let what = format!("{} is a VLAN of {name}, a veth", vlan.name);
        let why = "its peer may keep tags out of the bytes, where a program in the driver does not see them";
        return Some(no(About::Offloads, what, why));
    }
    let mut all = facts.offloads.iter();
    let takes_off = all.find(|one| one.link == link.index)?.takes_tags_off;
    takes_off.then(|| {
        let what = format!("rx-vlan-offload is on on {name}");
        let why = "tags that the device takes off are not seen in the driver";
        no(About::Offloads, what, why).cure(Cure::Offload(name.clone(), "rxvlan", false))
    })
}

/// Whether redirected frames leave by it. What is sent by sockets needs no such driver.
fn transmits(link: &Link, features: XdpFeatures) -> Option<Reason> {
    if features.transmits {
        return None;
    }
    // Without the name: said once for many.
    let what = "the driver takes no redirected frames".to_owned();
    let found = match is_veth(link) {
        true => no(
            About::Driver,
            what,
            "a veth takes them only where its peer has GRO or an XDP program: `ingress` is right for it, and needs neither",
        ),
        false => no(About::Driver, what, "they would be lost (no XDP feature ndo-xmit)"),
    };
    Some(found.concerning(Concerns::Egress))
}

/// What frames straight to the device would skip: redirected frames, and frames that sockets send.
fn sends(facts: &Facts, link: &Link) -> Vec<Reason> {
    let name = &link.name;
    let mut found = Vec::new();
    let mut qdiscs = facts.qdiscs.iter();
    let root = qdiscs.find(|qdisc| qdisc.link == link.index && qdisc.place == Place::Root);
    if let Some(root) = root.filter(|root| !PLAIN_QDISCS.contains(&root.kind.as_str())) {
        let what = format!("qdisc {} on {name}", root.kind);
        found.push(no(About::TrafficControl, what, SKIPPED));
    }
    if let Some(list) = listed(&facts.egress_filters, link) {
        let what = format!("filters of traffic control at egress of {name}: {list}");
        found.push(no(About::TrafficControl, what, SKIPPED));
    }
    for Program { id, name: program, .. } in on(&facts.egress_programs, link) {
        let what = format!("program {id} ({program}) is attached at egress of {name}");
        found.push(no(About::Programs, what, SKIPPED));
    }
    found.into_iter().map(|reason| reason.concerning(Concerns::Egress)).collect()
}

/// Whether workers' frames are large enough.
fn sockets(link: &Link) -> Option<Reason> {
    let (name, mtu) = (&link.name, link.mtu);
    (mtu > WORKER_MTU).then(|| {
        let what = format!("the MTU of {name} is {mtu}, above {WORKER_MTU}");
        let why = "a packet in workers' memory is in one frame: with larger ones by another way, flows would be reordered";
        no(About::Mtu, what, why)
    })
}

fn auto(link: &Link) -> Vec<Reason> {
    let Some(kind) = &link.kind else { return Vec::new() };
    // Without the name: what holds for many interfaces is said once for all of them.
    let what = format!("a software device ({kind})");
    let why = "`ingress` is right for it: its driver does not see what stands beside a packet's bytes, such as a tag or \
               an open checksum";
    vec![no(About::Device, what, why)]
}

fn on<'f>(programs: &'f [Program], link: &Link) -> impl Iterator<Item = &'f Program> {
    let index = link.index;
    programs.iter().filter(move |program| program.link == index)
}

fn is_veth(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth")
}

fn no(about: About, what: String, why: &str) -> Reason {
    Reason::new(about, what, why)
}

const SKIPPED: &str = "what is redirected in drivers, or sent by workers, goes straight to the device, past it: another tier is right";
/// What fits a worker's frame, behind XDP's headroom and with an Ethernet header and a tag.
const WORKER_MTU: u32 = WORKER_FRAME - 256 - 18;
