//! All `[[port]]` tables: what ports must not share, and the wires between them.

use manylane_frame::vocabulary::PortId;
use serde_spanned::Spanned;

use super::Environment;
use super::capture::{NamedFile, check_files};
use super::driver::Driver;
use super::error::{Problem, Span};
use super::port::{self, Port};
use super::prefix::is_link_local;
use super::section::{Section, suggest};
use super::settings::{Frames, Workers};

/// A port and the places of what other ports are compared with.
pub(super) struct Placed<'a> {
    pub(super) port: Port,
    pub(super) name: Span,
    pub(super) interface: Option<Span>,
    pub(super) addresses: Vec<Span>,
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
    let sections = file.tables("port", "[[port]]", port::KEYS)?;
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
        files.append(&mut port.files);
        placed.push(port);
    }
    wire(&mut placed)?;
    Ok(placed.into_iter().map(|placed| placed.port).collect())
}

/// Compares a port with those before it.
fn check_against(earlier: &[Placed<'_>], port: &Placed<'_>) -> Result<(), Problem> {
    for other in earlier {
        if other.port.name == port.port.name {
            return Err(Problem::new(
                port.name.clone(),
                format!("duplicate `name` `{}` in [[port]]", port.port.name),
                "a second port of this name",
                "give each port a name of its own",
            )
            .also(other.name.clone(), "first here"));
        }
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
        check_addresses(other, port)?;
    }
    Ok(())
}

fn check_addresses(earlier: &Placed<'_>, port: &Placed<'_>) -> Result<(), Problem> {
    for (ours, here) in port.port.addresses.iter().zip(&port.addresses) {
        for (theirs, there) in earlier.port.addresses.iter().zip(&earlier.addresses) {
            let also = format!("here on `{}`", earlier.port.name);
            // A link-local network is one link's: every port may be in it (RFC 4291 §2.5.6).
            if is_link_local(ours.address) && is_link_local(theirs.address) {
                continue;
            }
            if ours.address == theirs.address {
                return Err(Problem::new(
                    here.clone(),
                    format!("duplicate address {} in `addresses` in [[port]]", ours.address),
                    "a second port with this address",
                    "give each port an address of its own",
                )
                .also(there.clone(), also));
            }
            if ours.prefix().overlaps(theirs.prefix()) {
                return Err(Problem::new(
                    here.clone(),
                    format!("overlapping networks in `addresses` of `{}`", port.port.name),
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
