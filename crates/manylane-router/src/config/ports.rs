//! All `[[port]]` tables: what ports must not share, and the wires between them.

use manylane_frame::vocabulary::PortId;
use serde_spanned::Spanned;

use super::Environment;
use super::capture::{NamedFile, check_files};
use super::driver::Driver;
use super::error::{Problem, Span};
use super::port::{self, Port};
use super::prefix::{InterfaceAddress, is_link_local};
use super::section::{Section, suggest};
use super::settings::{Frames, Workers};
use super::vlan::PlacedVlan;

/// A port and the places of what other ports are compared with.
pub(super) struct Placed<'a> {
    pub(super) port: Port,
    pub(super) name: Span,
    pub(super) interface: Option<Span>,
    pub(super) addresses: Vec<Span>,
    pub(super) vlans: Vec<PlacedVlan>,
    pub(super) peer: Option<Spanned<&'a str>>,
    pub(super) generate: Option<Span>,
    pub(super) files: Vec<NamedFile>,
}

pub(super) fn ports(
    file: &Section<'_>,
    workers: &Workers,
    frames: &Frames,
    environment: &Environment<'_>,
) -> Result<Vec<Port>, Problem> {
    let sections = file.tables("port", "[[port]]")?;
    if sections.is_empty() {
        return Err(Problem::new(
            0..0,
            "missing table [[port]] in the file",
            "this names no port",
            "add a [[port]] with `name`, `driver` and `addresses` for each interface",
        ));
    }
    if let Some(section) = sections.get(PORTS_MAX) {
        return Err(Problem::new(
            section.span(),
            "too many [[port]] tables",
            format!("this is port number {}", PORTS_MAX + 1),
            format!("a daemon has at most {PORTS_MAX} ports"),
        ));
    }
    let mut placed: Vec<Placed<'_>> = Vec::with_capacity(sections.len());
    let mut files = Vec::new();
    for section in &sections {
        let mut port = port::read(section, workers, frames, environment)?;
        check_against(&placed, &port)?;
        check_files(&files, &port.files)?;
        check_count(&placed, &port)?;
        files.append(&mut port.files);
        placed.push(port);
    }
    wire(&mut placed)?;
    Ok(placed.into_iter().map(|placed| placed.port).collect())
}

/// A port or sub-interface, and the places of what others are compared with.
#[derive(Clone, Copy)]
struct Place<'p> {
    section: &'static str,
    name: &'p str,
    name_span: &'p Span,
    addresses: &'p [InterfaceAddress],
    address_spans: &'p [Span],
}

impl Placed<'_> {
    /// The port and its sub-interfaces.
    fn places(&self) -> Vec<Place<'_>> {
        let port = Place {
            section: "[[port]]",
            name: &self.port.name,
            name_span: &self.name,
            addresses: &self.port.addresses,
            address_spans: &self.addresses,
        };
        let vlans = self.port.vlans.iter().zip(&self.vlans).map(|(vlan, placed)| Place {
            section: "[[port.vlan]]",
            name: &vlan.name,
            name_span: &placed.name,
            addresses: &vlan.addresses,
            address_spans: &placed.addresses,
        });
        std::iter::once(port).chain(vlans).collect()
    }
}

/// Refuses more ports and sub-interfaces than numbers exist.
fn check_count(earlier: &[Placed<'_>], port: &Placed<'_>) -> Result<(), Problem> {
    let before: usize = earlier.iter().map(|other| 1 + other.vlans.len()).sum();
    match port.vlans.get(INTERFACES_MAX.saturating_sub(before + 1)) {
        Some(vlan) => Err(Problem::new(
            vlan.tags.clone(),
            "too many [[port]] and [[port.vlan]] tables",
            format!("this is number {}", INTERFACES_MAX + 1),
            format!("a daemon has at most {INTERFACES_MAX} ports and sub-interfaces together"),
        )),
        None => Ok(()),
    }
}

/// Compares a port with those before it, and its sub-interfaces with each other too.
fn check_against(earlier: &[Placed<'_>], port: &Placed<'_>) -> Result<(), Problem> {
    let mut before: Vec<Place<'_>> = earlier.iter().flat_map(Placed::places).collect();
    for place in port.places() {
        if let Some(other) = before.iter().find(|other| other.name == place.name) {
            return Err(Problem::new(
                place.name_span.clone(),
                format!("duplicate `name` `{}` in {}", place.name, place.section),
                "a second port of this name",
                "give each port a name of its own",
            )
            .also(other.name_span.clone(), "first here"));
        }
        before.push(place);
    }
    for other in earlier {
        if let (Some(ours), Some(theirs)) =
            (port.port.driver.interface(), other.port.driver.interface())
            && ours == theirs
            && let (Some(here), Some(there)) = (&port.interface, &other.interface)
        {
            return Err(Problem::new(
                here.clone(),
                format!("duplicate `interface` `{ours}` in [[port]]"),
                "a second port on this interface",
                "an interface is one port: put its addresses into one [[port]]",
            )
            .also(there.clone(), "first here"));
        }
    }
    let first = before.len() - port.places().len();
    for (at, place) in before.iter().enumerate().skip(first) {
        before[..at].iter().try_for_each(|other| check_addresses(other, place))?;
    }
    Ok(())
}

fn check_addresses(earlier: &Place<'_>, port: &Place<'_>) -> Result<(), Problem> {
    for (ours, here) in port.addresses.iter().zip(port.address_spans) {
        for (theirs, there) in earlier.addresses.iter().zip(earlier.address_spans) {
            let also = format!("here on `{}`", earlier.name);
            // A link-local network is one link's: every port may be in it (RFC 4291 §2.5.6).
            if is_link_local(ours.address) && is_link_local(theirs.address) {
                continue;
            }
            if ours.address == theirs.address {
                return Err(Problem::new(
                    here.clone(),
                    format!(
                        "duplicate address {} in `addresses` in {}",
                        ours.address, port.section
                    ),
                    "a second port with this address",
                    "give each port an address of its own",
                )
                .also(there.clone(), also));
            }
            if ours.prefix().overlaps(theirs.prefix()) {
                return Err(Problem::new(
                    here.clone(),
                    format!("overlapping networks in `addresses` of `{}`", port.name),
                    format!("{} overlaps {}", ours.prefix(), theirs.prefix()),
                    "a network is behind one port: change an address or a length",
                )
                .also(there.clone(), also));
            }
        }
    }
    Ok(())
}

/// Ties both ends of each wire together. A `peer` named on one side counts for both.
fn wire(placed: &mut [Placed<'_>]) -> Result<(), Problem> {
    let mut ends: Vec<Option<(usize, Span)>> = vec![None; placed.len()];
    for (index, port) in placed.iter().enumerate() {
        let Some(name) = &port.peer else { continue };
        let complain = |label: String, help: &str| {
            let title = format!("`peer` `{}` in [[port]] cannot be the other end", name.get_ref());
            Problem::new(name.span(), title, label, help)
        };
        let Some(peer) = placed.iter().position(|other| other.port.name == *name.get_ref()) else {
            let names = placed.iter().map(|other| other.port.name.as_str());
            return Err(complain("no port has this name".into(), &suggest(name.get_ref(), names)));
        };
        if peer == index {
            return Err(complain("the port itself".into(), "name another memory port"));
        }
        if !matches!(placed[peer].port.driver, Driver::Memory(_)) {
            let help = "name a port with `driver = \"memory\"`";
            return Err(complain("not a memory port".into(), help));
        }
        if let Some(generate) = port.generate.as_ref().or(placed[peer].generate.as_ref()) {
            let help = "a port has one far end: remove `peer` or [port.generate]";
            return Err(complain("a wire with a generator on it".into(), help)
                .also(generate.clone(), "the generator"));
        }
        for (one, other) in [(index, peer), (peer, index)] {
            match &ends[one] {
                Some((taken, first)) if *taken != other => {
                    let label = format!(
                        "`{}` is wired to `{}`",
                        placed[one].port.name, placed[*taken].port.name
                    );
                    let help = "a wire has two ends: let both ports name each other";
                    return Err(complain(label, help).also(first.clone(), "by this"));
                }
                _ => ends[one] = Some((other, name.span())),
            }
        }
    }
    for (port, end) in placed.iter_mut().zip(ends) {
        if let Driver::Memory(memory) = &mut port.port.driver {
            let id = |(peer, _)| PortId(u16::try_from(peer).expect("at most `PORTS_MAX` ports"));
            memory.peer = end.map(id);
        }
    }
    Ok(())
}

const PORTS_MAX: usize = 256;
/// Below `control::routing::PORTS_MAX`.
const INTERFACES_MAX: usize = 1000;
