//! What the kernel has and the model has not, and whether the tables say what the model does.
//!
//! A line begins with `+` for what only the kernel has, `-` for what only the model has, `!` for what is written
//! otherwise than it should be. In steady state no line is shown. While edits are pending, the last kind is
//! expected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use manylane_io::netlink::kernel::{Address, Family, Hop, Link, Neighbour, NextHopKind};
use manylane_net::fib::IpPrefix;
use manylane_net::nexthop::NextHop;

use super::status::kind_of;
use super::write::default_of;
use super::{Dump, Mirror};
use crate::attributes::RouteAttributes;
use crate::constants::{LOWER_UP, RUNNING, TABLE_MAIN, UP};
use crate::destination::Via;
use crate::family::{Bits, family_of, host};
use crate::kernel::{Kernel, mac_of};
use crate::names;
use crate::pause::Pause;
use crate::ports::shown;
use crate::routes::{Key, Routes};
use crate::rules;
use crate::table_writer::TableWriter;
use crate::targets::adjacency;

/// The most lines that are shown; the rest are counted.
const LINES_MAX: usize = 1000;

/// Lines, up to a bound.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    more: usize,
}

impl Lines {
    fn push(&mut self, line: impl FnOnce() -> String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(line());
        } else {
            self.more += 1;
        }
    }

    fn into_lines(mut self) -> Vec<String> {
        if self.more > 0 {
            self.lines.push(format!("and {} more", self.more));
        }
        self.lines
    }

    /// What only one of two has.
    fn sets<T: Ord>(
        &mut self,
        theirs: &BTreeSet<T>,
        ours: &BTreeSet<T>,
        show: impl Fn(&T) -> String,
    ) {
        theirs.difference(ours).for_each(|only| self.push(|| format!("+ {}", show(only))));
        ours.difference(theirs).for_each(|only| self.push(|| format!("- {}", show(only))));
    }
}

impl Mirror<dyn TableWriter> {
    /// How a dump, the model and the tables differ. With a million routes that takes a while, in which `meanwhile`
    /// is called again and again.
    pub fn diff(&mut self, dump: &Dump, meanwhile: &mut dyn FnMut()) -> Vec<String> {
        let mut lines = Lines::default();
        models(&dump.kernel, &self.kernel, &mut lines, &mut Pause::new(&mut *meanwhile));
        self.written(&mut lines, meanwhile);
        lines.into_lines()
    }

    /// How the tables differ from the model.
    pub fn diff_written(&mut self) -> Vec<String> {
        let mut lines = Lines::default();
        self.written(&mut lines, &mut || {});
        lines.into_lines()
    }

    fn written(&mut self, lines: &mut Lines, meanwhile: &mut dyn FnMut()) {
        let mut pause = Pause::new(meanwhile);
        let hosts = self.kernel.neighbours().map(|neighbour| host(neighbour.address));
        let defaults = [Family::V4, Family::V6].map(default_of);
        let others: BTreeSet<IpPrefix> = defaults.into_iter().chain(hosts).collect();
        let (v4, v6) = (self.kernel.v4.usual_prefixes(), self.kernel.v6.usual_prefixes());
        let routed = v4.chain(v6).filter(|prefix| !others.contains(prefix));
        for prefix in routed.chain(others.iter().copied()) {
            pause.step();
            self.written_prefix(prefix, lines);
        }
        self.writer.routes(&mut |prefix, _| {
            pause.step();
            let is_routed = match prefix {
                IpPrefix::V4(of) => self.kernel.v4.is_usual(of.addr().to_bits(), of.len()),
                IpPrefix::V6(of) => self.kernel.v6.is_usual(of.addr().to_bits(), of.len()),
            };
            if !is_routed && !others.contains(&prefix) {
                self.written_prefix(prefix, lines);
            }
        });
        self.written_words(lines);
        self.written_policy().into_iter().for_each(|line| lines.push(|| line));
    }

    /// Where a prefix leads.
    fn written_prefix(&self, prefix: IpPrefix, lines: &mut Lines) {
        let id = self.writer.route(prefix);
        let written = id.and_then(|id| self.targets.destination(id));
        let destination = self.view().resolve(prefix);
        let is_default = prefix.len() == 0;
        let is_kernels = id == Some(self.targets.kernel()) && self.prefixes.starved() > 0;
        let has_id = !is_default || id == Some(self.targets.default_of(family_of(prefix)));
        if (written != destination.as_ref() && !is_kernels) || !has_id {
            let say =
                |destination: Option<String>| destination.unwrap_or_else(|| "nothing".to_owned());
            lines.push(|| {
                let written = say(written.map(ToString::to_string));
                let destination = say(destination.map(|destination| destination.to_string()));
                format!("! {}: written {written}, should be {destination}", shown(prefix))
            });
        }
    }

    /// Words of ids, and slots.
    fn written_words(&self, lines: &mut Lines) {
        let view = self.view();
        let numbers: BTreeMap<Via, u32> = self.targets.slots().collect();
        for (id, destination, _) in self.targets.iter() {
            let Some(wanted) = self.targets.wanted(view, id) else { continue };
            let next_hop = self.writer.next_hop(id);
            let is_same = match (&wanted, next_hop) {
                (NextHop::Via(members), NextHop::Via(slot)) => {
                    matches!(&members[..], [(via, _)] if numbers.get(via) == Some(&slot))
                }
                (NextHop::Via(members), NextHop::Group(group)) => {
                    let wanted =
                        members.iter().map(|(via, weight)| (numbers.get(via).copied(), *weight));
                    let wanted: BTreeSet<_> = wanted.collect();
                    let written = self.writer.members(group);
                    let written = written.iter().map(|member| (Some(member.slot), member.weight));
                    wanted == written.collect()
                }
                (NextHop::Connected(port), NextHop::Connected(other)) => *port == other,
                (wanted, written) => kind_of(wanted) == kind_of(&written),
            };
            if !is_same {
                lines.push(|| {
                    let destination =
                        destination.map_or("no route".to_owned(), ToString::to_string);
                    format!(
                        "! {id} ({destination}): written {}, should be {}",
                        kind_of(&next_hop),
                        kind_of(&wanted)
                    )
                });
            }
        }
        for (via, slot) in self.targets.slots() {
            let (written, wanted) = (self.writer.adjacency(slot), adjacency(view, via));
            if written != wanted {
                lines.push(|| format!("! {via}: written {written:?}, should be {wanted:?}"));
            }
        }
    }
}

fn models(theirs: &Kernel, ours: &Kernel, lines: &mut Lines, pause: &mut Pause<impl FnMut()>) {
    let links = |kernel: &Kernel| kernel.links().map(link).collect();
    lines.sets(&links(theirs), &links(ours), |link| format!("link {link}"));
    let addresses = |kernel: &Kernel| kernel.addresses().map(|one| address(kernel, one)).collect();
    lines.sets(&addresses(theirs), &addresses(ours), |address: &String| {
        format!("address {address}")
    });
    let rules = |kernel: &Kernel| kernel.rules().map(rules::line).collect();
    lines.sets(&rules(theirs), &rules(ours), |rule: &String| rule.clone());
    let settings = |kernel: &Kernel| -> BTreeSet<String> {
        let is_there = |link: i32| link < 0 || kernel.link(link as u32).is_some();
        let all = kernel.links.netconf.values().filter(|settings| is_there(settings.link));
        all.map(|settings| format!("{settings:?}")).collect()
    };
    lines.sets(&settings(theirs), &settings(ours), |settings| settings.clone());
    let neighbours = |kernel: &Kernel| {
        kernel.neighbours().filter_map(|one| neighbour(kernel, one)).collect::<BTreeSet<String>>()
    };
    lines
        .sets(&neighbours(theirs), &neighbours(ours), |neighbour| format!("neighbour {neighbour}"));
    let objects = |kernel: &Kernel| -> BTreeSet<String> {
        kernel.next_hops().map(|object| object_line(kernel, object.id, &object.kind)).collect()
    };
    lines.sets(&objects(theirs), &objects(ours), |object| object.clone());
    routes(&theirs.v4, theirs, &ours.v4, ours, lines, pause);
    routes(&theirs.v6, theirs, &ours.v6, ours, lines, pause);
}

/// Routes key by key: where they differ, each side's whole list is compared.
fn routes<B: Bits>(
    theirs: &Routes<B>,
    their: &Kernel,
    ours: &Routes<B>,
    our: &Kernel,
    lines: &mut Lines,
    pause: &mut Pause<impl FnMut()>,
) {
    let mut common = 0;
    for key in theirs.keys() {
        pause.step();
        let there = ours.table(theirs.table_id(key.table)).map(|table| Key { table, ..key });
        let same = there.is_some_and(|there| {
            let mut others = ours.list(there);
            theirs.list(key).all(|index| {
                let other = others.next();
                other.is_some_and(|other| {
                    theirs.attributes(index).is_like(B::FAMILY, ours.attributes(other))
                })
            }) && others.next().is_none()
        });
        common += usize::from(same || there.is_some_and(|there| ours.has(there)));
        if same {
            continue;
        }
        let table = theirs.table_id(key.table);
        let own = |index: u32| route(their, table, key.prefix(), theirs.attributes(index));
        theirs.list(key).for_each(|index| lines.push(|| format!("+ {}", own(index))));
        for index in there.into_iter().flat_map(|there| ours.list(there)) {
            lines.push(|| format!("- {}", route(our, table, key.prefix(), ours.attributes(index))));
        }
    }
    if common == ours.keys().len() {
        return;
    }
    for key in ours.keys() {
        pause.step();
        let there = theirs.table(ours.table_id(key.table)).map(|table| Key { table, ..key });
        if !there.is_some_and(|there| theirs.has(there)) {
            let table = ours.table_id(key.table);
            for index in ours.list(key) {
                lines.push(|| {
                    format!("- {}", route(our, table, key.prefix(), ours.attributes(index)))
                });
            }
        }
    }
}

/// A route, as ip-route(8) shows it.
pub(super) fn route(
    kernel: &Kernel,
    table: u32,
    prefix: IpPrefix,
    attributes: &RouteAttributes,
) -> String {
    let kind = match attributes.kind {
        1 => "",
        2 => "local ",
        3 => "broadcast ",
        4 => "anycast ",
        5 => "multicast ",
        6 => "blackhole ",
        7 => "unreachable ",
        8 => "prohibit ",
        9 => "throw ",
        _ => "unknown ",
    };
    let mut line = format!("{kind}{}", shown(prefix));
    if let Some((address, len)) = attributes.source {
        line += &format!(" from {address}/{len}");
    }
    if attributes.tos != 0 {
        line += &format!(" tos {:#x}", attributes.tos);
    }
    if let Some(object) = attributes.next_hop {
        line += &format!(" nhid {object}");
    }
    match &*attributes.hops {
        [hop] if hop.weight <= 1 => line += &hop_text(kernel, hop),
        hops => {
            for hop in hops {
                line += &format!(" nexthop{} weight {}", hop_text(kernel, hop), hop.weight);
            }
        }
    }
    if table != TABLE_MAIN {
        line += &format!(" table {}", names::table(table));
    }
    line += &format!(" proto {}", names::protocol(attributes.protocol));
    if attributes.scope != 0 {
        line += &format!(" scope {}", names::scope(attributes.scope));
    }
    if attributes.is_expiring {
        line += " expires";
    }
    if attributes.priority != 0 {
        line += &format!(" metric {}", attributes.priority);
    }
    if let Some(mtu) = attributes.mtu {
        line += &format!(" mtu {mtu}");
    }
    line
}

fn hop_text(kernel: &Kernel, hop: &Hop) -> String {
    let mut text = String::new();
    if hop.is_encapsulated {
        text += " encap";
    }
    if let Some(gateway) = hop.gateway {
        text += &format!(" via {gateway}");
    }
    if hop.link != 0 {
        text += &format!(" dev {}", kernel.name(hop.link));
    }
    text
}

/// What of a link matters here.
fn link(link: &Link) -> String {
    let state = match (link.flags & UP != 0, link.flags & (RUNNING | LOWER_UP) != 0) {
        (false, _) => "down",
        (true, false) => "up, no carrier",
        (true, true) => "up",
    };
    let mac = link.mac.map_or("no address".to_owned(), mac);
    format!("{} {}: {state}, mtu {}, {mac}", link.index, link.name, link.mtu)
}

fn address(kernel: &Kernel, address: &Address) -> String {
    format!("{}/{} dev {}", address.address, address.prefix_len, kernel.name(address.link))
}

/// A neighbour that can be sent to. What state it is in otherwise changes all the time.
fn neighbour(kernel: &Kernel, neighbour: &Neighbour) -> Option<String> {
    let address = mac_of(neighbour)?;
    Some(format!(
        "{} dev {} lladdr {}",
        neighbour.address,
        kernel.name(neighbour.link),
        mac(address)
    ))
}

fn object_line(kernel: &Kernel, id: u32, kind: &NextHopKind) -> String {
    match kind {
        NextHopKind::Via(hop) => format!("nexthop {id}{}", hop_text(kernel, hop)),
        NextHopKind::Blackhole => format!("nexthop {id} blackhole"),
        NextHopKind::Fdb => format!("nexthop {id} fdb"),
        NextHopKind::Group { members, is_resilient } => {
            let members: Vec<String> =
                members.iter().map(|(id, weight)| format!("{id},{weight}")).collect();
            let resilient = if *is_resilient { " type resilient" } else { "" };
            format!("nexthop {id} group {}{resilient}", members.join("/"))
        }
    }
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Where an address is written, for a message.
pub(super) fn neighbour_state(kernel: &Kernel, link: u32, address: IpAddr) -> String {
    let Some(neighbour) = kernel.neighbour(link, address) else { return "unknown".to_owned() };
    let state = names::neighbour_state(neighbour.state);
    match neighbour.mac {
        Some(address) => format!("{state} {}", mac(address)),
        None => state.to_owned(),
    }
}
