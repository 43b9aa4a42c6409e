//! `[[port]]`, one by one: what can be checked without knowing the other ports.

use manylane_frame::vocabulary::WorkerId;
use serde_spanned::Spanned;

use super::Environment;
use super::capture::{Tee, pcap, tee};
use super::driver::{Driver, Kind, of_interface};
use super::error::{Problem, Span};
use super::fault::{Faults, faults};
use super::memory::{MEMORY_MTU, memory};
use super::ports::Placed;
use super::prefix::{self, InterfaceAddress};
use super::section::Section;
use super::settings::{Frames, Workers};
use super::sflow::port_rate;
use super::steering::PortSteering;
use super::vlan::{Vlan, vlans};

/// A port, as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name in routes, counters and messages; no other port has it.
    pub name: String,
    /// Our addresses on it, at least one, or none if it has sub-interfaces.
    pub addresses: Vec<InterfaceAddress>,
    /// Its sub-interfaces.
    pub vlans: Vec<Vlan>,
    /// Largest IP packet. Without it, the device's, or [`MEMORY_MTU`].
    pub mtu: Option<u16>,
    /// What to do about transport checksums. Without it, repair on a veth through AF_XDP and trust
    /// elsewhere.
    pub checksum: Option<ChecksumPolicy>,
    /// The owner of each receive queue, by index, where [`Driver::queues`] says how many. Without it,
    /// workers take turns. An AF_XDP port's queues are counted when it opens.
    pub queue_owners: Option<Vec<WorkerId>>,
    /// Whether the worker that receives also forwards. Without it, the number of queues decides.
    pub steering: Option<PortSteering>,
    /// Descriptors of a receive ring, a power of two.
    pub rx_ring: u32,
    /// Descriptors of a transmit ring, a power of two.
    pub tx_ring: u32,
    /// What the port is made of.
    pub driver: Driver,
    /// Why, where the configuration says `auto`: filled in by the daemon.
    pub chosen: Option<&'static str>,
    /// The file that its packets are copied to.
    pub tee: Option<Tee>,
    /// One packet in how many that it receives is a sample, in place of the rate in `[sflow]`.
    pub sflow_rate: Option<u32>,
    /// What is done to its packets on purpose.
    pub faults: Faults,
}

/// What a port does about transport checksums that it cannot know to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumPolicy {
    /// Complete those that are only a pseudo-header's sum.
    Repair,
    /// Leave them alone.
    Trust,
}

/// Reads one port.
pub(super) fn read<'a>(
    section: &Section<'a>,
    workers: &Workers,
    frames: &Frames,
    environment: &Environment<'_>,
) -> Result<Placed<'a>, Problem> {
    let name = section.required("name", "name the port, for example `name = \"lan\"`")?;
    check_name(&name, section.name())?;
    let kind = Kind::read(section)?;
    let (addresses, address_spans) = match section.key_span("vlan") {
        // All of its frames may be tagged.
        Some(_) if section.key_span("addresses").is_none() => Default::default(),
        _ => addresses(section)?,
    };
    let mtu = mtu(section, &addresses, frames)?;
    let (vlans, placed_vlans) = vlans(section, name.get_ref(), mtu)?.into_iter().unzip();
    let checksum = section.choice(
        "checksum",
        &[("repair", ChecksumPolicy::Repair), ("trust", ChecksumPolicy::Trust)],
    )?;

    let mut files = Vec::new();
    let (driver, interface, generate) = match kind {
        Kind::Memory => {
            let (port, generate) = memory(section, &addresses, mtu.unwrap_or(MEMORY_MTU), frames)?;
            (Driver::Memory(port), None, generate)
        }
        Kind::Pcap => (Driver::Pcap(pcap(section, checksum, &mut files)?), None, None),
        _ => {
            let (driver, interface) = of_interface(kind, section, workers, environment)?;
            (driver, Some(interface), None)
        }
    };
    let queue_owners = queue_owners(section, &driver, workers)?;
    let port = Port {
        name: (*name.get_ref()).into(),
        addresses,
        vlans,
        mtu,
        checksum,
        queue_owners,
        steering: section.choice("steering", PortSteering::WORDS)?,
        rx_ring: ring(section, "rx_ring", kind)?,
        tx_ring: ring(section, "tx_ring", kind)?,
        driver,
        chosen: None,
        tee: tee(section, &mut files)?,
        sflow_rate: port_rate(section)?,
        faults: faults(section)?,
    };
    let peer = section.text("peer")?;
    Ok(Placed {
        port,
        name: name.span(),
        interface,
        addresses: address_spans,
        vlans: placed_vlans,
        peer,
        generate,
        files,
    })
}

pub(super) fn check_name(name: &Spanned<&str>, section: &str) -> Result<(), Problem> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let text = name.get_ref();
    if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(());
    }
    let why = match text.len() {
        0 => "empty",
        NAME_MAX.. if text.bytes().all(plain) => "too long",
        _ => "has a character that no name has",
    };
    Err(Problem::new(
        name.span(),
        format!("`name` in {section} cannot be a port's name"),
        why,
        format!("use 1 to {NAME_MAX} letters, digits, `-`, `_` or `.`"),
    ))
}

pub(super) fn addresses(
    section: &Section<'_>,
) -> Result<(Vec<InterfaceAddress>, Vec<Span>), Problem> {
    let help = "list our addresses here, for example `addresses = [\"10.1.0.254/24\"]`";
    let list = section.texts("addresses")?.ok_or_else(|| section.missing("addresses", help))?;
    if list.get_ref().is_empty() {
        let title = format!("`addresses` in {} is empty", section.name());
        return Err(Problem::new(list.span(), title, "none", help));
    }
    let mut addresses = Vec::new();
    let mut spans: Vec<Span> = Vec::new();
    for text in list.get_ref() {
        let address = address(text)?;
        let same = |other: &InterfaceAddress| other.address == address.address;
        if let Some(first) = addresses.iter().position(same) {
            return Err(Problem::new(
                text.span(),
                format!(
                    "duplicate address {} in `addresses` in {}",
                    address.address,
                    section.name()
                ),
                "a second time on this port",
                "remove one of the two",
            )
            .also(spans[first].clone(), "first here"));
        }
        addresses.push(address);
        spans.push(text.span());
    }
    Ok((addresses, spans))
}

fn address(text: &Spanned<&str>) -> Result<InterfaceAddress, Problem> {
    let title = format!("`{}` in `addresses` cannot be a port's address", text.get_ref());
    let parsed = prefix::parse(text.get_ref()).map_err(|why| {
        let help = "write an address and the length of its network, for example `10.1.0.254/24`";
        Problem::new(text.span(), &title, why, help)
    })?;
    if let Some(why) = prefix::not_unicast(parsed.address) {
        let help = "give the port a unicast address of the network it is in";
        return Err(Problem::new(text.span(), title, why, help));
    }
    if parsed.length == 0 {
        let help = "write the length of the port's own network; for a default route use [[route]]";
        return Err(Problem::new(text.span(), title, "the network would be everything", help));
    }
    if let Some(why) = parsed.not_a_host(parsed.address) {
        let help = format!("write a host's address in {}", parsed.prefix());
        return Err(Problem::new(text.span(), title, why, help));
    }
    Ok(parsed)
}

fn mtu(
    section: &Section<'_>,
    addresses: &[InterfaceAddress],
    frames: &Frames,
) -> Result<Option<u16>, Problem> {
    let Some(mtu) = section.number::<u16>("mtu", IPV4_MTU_LEAST.into()..=9000)? else {
        return Ok(None);
    };
    smallest_mtu(mtu.span(), section.name(), *mtu.get_ref(), addresses)?;
    let fits = |size: u32| u32::from(*mtu.get_ref()) + FRAME_OVERHEAD <= size;
    // All drivers take packets in several frames, unless the configuration forbids it.
    if fits(frames.size) || section.boolean("multi_buffer")? != Some(false) {
        return Ok(Some(mtu.into_inner()));
    }
    let help = if fits(4096) {
        "set `size = 4096` in [frames], or `multi_buffer = true`".into()
    } else {
        let most = 4096 - FRAME_OVERHEAD;
        format!("set `multi_buffer = true`, or at most {most} with `size = 4096` in [frames]")
    };
    Err(Problem::new(
        mtu.span(),
        "`mtu` in [[port]] is more than a frame holds",
        format!("{} bytes fit into a frame of {}", frames.size - FRAME_OVERHEAD, frames.size),
        help,
    ))
}

/// Refuses an MTU that IPv6 forbids, on a port with IPv6 addresses (RFC 8200 §5).
pub(super) fn smallest_mtu(
    span: Span,
    section: &str,
    mtu: u16,
    addresses: &[InterfaceAddress],
) -> Result<(), Problem> {
    if mtu >= mtu_least(addresses) {
        return Ok(());
    }
    Err(Problem::new(
        span,
        format!("`mtu` in {section} is too small for IPv6"),
        "less than 1280",
        "choose a number from 1280 to 9000, or remove the IPv6 addresses of this port",
    ))
}

/// The least MTU of an interface with these addresses.
pub(crate) fn mtu_least(addresses: &[InterfaceAddress]) -> u16 {
    match addresses.iter().all(|address| address.address.is_ipv4()) {
        true => IPV4_MTU_LEAST,
        false => IPV6_MTU_LEAST,
    }
}

fn ring(section: &Section<'_>, key: &str, kind: Kind) -> Result<u32, Problem> {
    // A batch; for a device, two: one is handled while another comes.
    let least = if kind == Kind::Memory { 64 } else { 128 };
    let Some(len) = section.number::<u32>(key, least..=8192)? else { return Ok(2048) };
    if len.get_ref().is_power_of_two() {
        return Ok(len.into_inner());
    }
    let above = len.get_ref().next_power_of_two();
    Err(Problem::new(
        len.span(),
        format!("`{key}` in [[port]] is not a power of two"),
        "a ring's length is 128, 256, 512 and so on",
        format!("choose {} or {above}", above / 2),
    ))
}

fn queue_owners(
    section: &Section<'_>,
    driver: &Driver,
    workers: &Workers,
) -> Result<Option<Vec<WorkerId>>, Problem> {
    let Some(owners) = section.numbers::<u16>("workers", 0..=u64::from(u16::MAX))? else {
        return Ok(None);
    };
    let count = workers.started;
    if let Some(wrong) =
        owners.get_ref().iter().find(|&owner| usize::from(*owner.get_ref()) >= count)
    {
        let range = if count == 1 { "0".into() } else { format!("0 to {}", count - 1) };
        return Err(Problem::new(
            wrong.span(),
            format!("no such worker for `workers` in {}", section.name()),
            format!("the workers are {range}"),
            format!("choose {range}, or raise `count` in [workers]"),
        ));
    }
    let (queues, wanted) = match driver.queues() {
        Some(queues) => (queues.into()..=queues.into(), format!("the port has {queues}")),
        None => (1..=QUEUES_MAX, format!("a port has 1 to {QUEUES_MAX}")),
    };
    if !queues.contains(&owners.get_ref().len()) {
        return Err(Problem::new(
            owners.span(),
            "`workers` in [[port]] has another length than the port has queues",
            format!("for {} queues; {wanted}", owners.get_ref().len()),
            "list one worker for each queue, or leave `workers` out",
        ));
    }
    Ok(Some(owners.get_ref().iter().map(|owner| WorkerId(*owner.get_ref())).collect()))
}

/// In front of a packet in its frame: 256 bytes that AF_XDP keeps (`XDP_PACKET_HEADROOM`), the
/// Ethernet header and one VLAN tag.
const FRAME_OVERHEAD: u32 = 256 + 14 + 4;
/// RFC 791 §3.1: a packet of this many bytes passes every link.
pub(super) const IPV4_MTU_LEAST: u16 = 68;
/// RFC 8200 §5: for IPv6, a packet of this many bytes.
pub(super) const IPV6_MTU_LEAST: u16 = 1280;
/// As long as an interface's name (`IFNAMSIZ` less its zero).
const NAME_MAX: usize = 15;
const QUEUES_MAX: usize = 256;
