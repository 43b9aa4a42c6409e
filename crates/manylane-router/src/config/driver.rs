//! What a port is made of: its driver, and the keys that only some drivers have.

use manylane_frame::BATCH_MAX;
use serde_spanned::Spanned;

use super::Environment;
use super::capture::PcapPort;
use super::error::{Problem, Span};
use super::memory::{MemoryPort, mac};
use super::section::Section;
use super::settings::Workers;

/// What a port is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Driver {
    /// A kernel interface, through AF_XDP sockets.
    AfXdp(AfXdpPort),
    /// A kernel interface, through packet sockets.
    AfPacket(AfPacketPort),
    /// A wire to the host's own stack.
    Tap(TapPort),
    /// A kernel interface, by the driver that serves it best; decided when the daemon starts.
    Auto(AutoPort),
    /// No device: capture files.
    Pcap(PcapPort),
    /// No device: a wire in this process.
    Memory(MemoryPort),
}

impl Driver {
    /// As the configuration and the API spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Driver::AfXdp(_) => "af_xdp",
            Driver::AfPacket(_) => "af_packet",
            Driver::Tap(_) => "tap",
            Driver::Auto(_) => "auto",
            Driver::Pcap(_) => "pcap",
            Driver::Memory(_) => "memory",
        }
    }

    /// The kernel's interface; no two ports share one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Driver::AfXdp(port) => Some(&port.interface),
            Driver::AfPacket(port) => Some(&port.interface),
            Driver::Tap(port) => Some(&port.interface),
            Driver::Auto(port) => Some(&port.interface),
            Driver::Pcap(_) | Driver::Memory(_) => None,
        }
    }

    /// Its receive queues, where the configuration says how many.
    pub fn queues(&self) -> Option<u16> {
        match self {
            Driver::AfXdp(_) | Driver::Auto(_) => None,
            Driver::AfPacket(port) => Some(port.queues),
            Driver::Tap(port) => Some(port.queues),
            Driver::Pcap(_) => Some(1),
            Driver::Memory(port) => Some(port.queues),
        }
    }
}

/// The part of an `af_xdp` port that no other driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpPort {
    /// The interface.
    pub interface: String,
    /// How the XDP program is attached.
    pub mode: AttachMode,
    /// Whether packets may lie in several frames, where the kernel can.
    pub multi_buffer: bool,
}

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// Native where the driver can, generic otherwise.
    Auto,
    /// In the driver, or not at all.
    Native,
    /// Behind the driver, as any interface can.
    Generic,
}

/// The part of an `af_packet` port that no other driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketPort {
    /// The interface.
    pub interface: String,
    /// Sockets that share the received packets, by flow. By default as many as owners are listed, or one for each
    /// worker.
    pub queues: u16,
    /// Packets that each has frames ready for: fewer only where frames are few.
    pub packets: u32,
}

impl AfPacketPort {
    /// For as many packets as a batch has.
    pub fn new(interface: String, queues: u16) -> AfPacketPort {
        AfPacketPort { interface, queues, packets: BATCH_MAX as u32 }
    }
}

/// The part of a `tap` port that no other driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapPort {
    /// The interface; made if none has this name.
    pub interface: String,
    /// Its queues. By default as many as owners are listed, or one.
    pub queues: u16,
    /// Our address on the wire. Without it, one made from the interface's, which is the host's.
    pub mac: Option<[u8; 6]>,
}

/// The part of an `auto` port that no other driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoPort {
    /// The interface.
    pub interface: String,
    /// Queues, if it comes to be `af_packet` and the port has no list of owners.
    pub queues: u16,
    /// Whether packets may lie in several frames, if it comes to be `af_xdp`.
    pub multi_buffer: bool,
}

/// The value of `driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    AfXdp,
    AfPacket,
    Tap,
    Auto,
    Pcap,
    Memory,
}

const KINDS: [(&str, Kind); 6] = [
    ("auto", Kind::Auto),
    ("af_xdp", Kind::AfXdp),
    ("af_packet", Kind::AfPacket),
    ("tap", Kind::Tap),
    ("pcap", Kind::Pcap),
    ("memory", Kind::Memory),
];

/// Keys that not every driver has, and whose they are.
const KEYS_OF: &[(&str, &[Kind])] = &[
    ("interface", &[Kind::Auto, Kind::AfXdp, Kind::AfPacket, Kind::Tap]),
    ("mode", &[Kind::AfXdp]),
    ("multi_buffer", &[Kind::Auto, Kind::AfXdp]),
    ("mac", &[Kind::Tap, Kind::Pcap, Kind::Memory]),
    ("queues", &[Kind::AfPacket, Kind::Tap, Kind::Memory]),
    ("peer", &[Kind::Memory]),
    ("generate", &[Kind::Memory]),
    ("read", &[Kind::Pcap]),
    ("timing", &[Kind::Pcap]),
    ("passes", &[Kind::Pcap]),
    ("bytes_max", &[Kind::Pcap]),
    ("write", &[Kind::Pcap]),
    ("snap_len", &[Kind::Pcap]),
    ("memory_bytes", &[Kind::Pcap]),
    // The kernel tells the others which checksums are complete.
    ("checksum", &[Kind::Auto, Kind::AfXdp, Kind::Pcap, Kind::Memory]),
    // The others have none of ours.
    ("rx_ring", &[Kind::Auto, Kind::AfXdp, Kind::Memory]),
    ("tx_ring", &[Kind::Auto, Kind::AfXdp, Kind::Memory]),
];

impl Kind {
    /// Reads the key `driver`, and refuses keys of other drivers.
    pub(super) fn read(section: &Section<'_>) -> Result<Kind, Problem> {
        let help = "write `driver = \"auto\"` for an interface, or `driver = \"memory\"` for none";
        let text = section.required("driver", help)?;
        if WRAPS.contains(text.get_ref()) {
            let wrap = text.get_ref();
            return Err(Problem::new(
                text.span(),
                format!("`driver` `{wrap}` in [[port]] is no driver"),
                "it wraps a port of any driver",
                format!("choose the port's driver, and add [port.{wrap}] below it"),
            ));
        }
        let kind = section.choice("driver", &KINDS)?.expect("the key was just found to be there");
        for (key, kinds) in KEYS_OF.iter().filter(|(_, kinds)| !kinds.contains(&kind)) {
            section.refuse(key, &only(kinds), "remove the key, or change `driver`")?;
        }
        Ok(kind)
    }
}

/// Which drivers a key belongs to.
fn only(kinds: &[Kind]) -> String {
    let named = KINDS.iter().filter(|(_, kind)| kinds.contains(kind));
    let names: Vec<_> = named.map(|(name, _)| format!("`driver = \"{name}\"`")).collect();
    match &names[..] {
        [name] => format!("only a port with {name} has it"),
        [first @ .., last] => format!("only a port with {} or {last} has it", first.join(", ")),
        [] => unreachable!("every key is some driver's"),
    }
}

/// Reads what is peculiar to a driver of an interface.
pub(super) fn of_interface(
    kind: Kind,
    section: &Section<'_>,
    workers: &Workers,
    environment: &Environment<'_>,
) -> Result<(Driver, Span), Problem> {
    let help = "name the kernel's interface, for example `interface = \"eth0\"`";
    let name = section.required("interface", help)?;
    let span = name.span();
    // A TAP interface that does not exist is made.
    if kind == Kind::Tap {
        check_name(&name)?
    } else {
        check_presence(&name, environment)?
    };
    let interface = name.into_inner().to_owned();
    let queues = section.number::<u16>("queues", 1..=64)?.map(Spanned::into_inner);
    // Where only their owners are listed, the queues are as many.
    let owners = section.numbers::<u16>("workers", 0..=u64::from(u16::MAX))?;
    let owners = owners.map(|owners| owners.get_ref().len()).filter(|len| (1..=64).contains(len));
    let queues = queues.or(owners.map(|len| len as u16));
    let multi_buffer = section.boolean("multi_buffer")?.unwrap_or(true);
    let for_each_worker = workers.count().min(64) as u16;
    let driver = match kind {
        Kind::AfXdp => {
            let mode = section.choice("mode", &MODES)?.unwrap_or(AttachMode::Auto);
            Driver::AfXdp(AfXdpPort { interface, mode, multi_buffer })
        }
        Kind::AfPacket => {
            Driver::AfPacket(AfPacketPort::new(interface, queues.unwrap_or(for_each_worker)))
        }
        Kind::Tap => {
            let mac = mac(section)?;
            Driver::Tap(TapPort { interface, queues: queues.unwrap_or(1), mac })
        }
        Kind::Auto => Driver::Auto(AutoPort { interface, queues: for_each_worker, multi_buffer }),
        Kind::Pcap | Kind::Memory => unreachable!("neither has an interface"),
    };
    Ok((driver, span))
}

fn check_presence(name: &Spanned<&str>, environment: &Environment<'_>) -> Result<(), Problem> {
    (environment.interfaces)(name.get_ref()).map_err(|help| {
        let title = format!("`interface` `{}` in [[port]] does not exist", name.get_ref());
        Problem::new(name.span(), title, "not in this network namespace", help)
    })
}

/// What the kernel takes as a name (`dev_valid_name`).
fn check_name(name: &Spanned<&str>) -> Result<(), Problem> {
    let text = name.get_ref();
    let is_strange = |byte: u8| byte.is_ascii_whitespace() || b"/:%".contains(&byte);
    let why = match text.len() {
        0 => "empty",
        16.. => "too long",
        _ if [".", ".."].contains(text) || text.bytes().any(is_strange) => {
            "not a name that an interface can have"
        }
        _ => return Ok(()),
    };
    Err(Problem::new(
        name.span(),
        format!("`interface` `{text}` in [[port]] cannot be made"),
        why,
        "use 1 to 15 characters without space, `/`, `:` and `%`",
    ))
}

const MODES: [(&str, AttachMode); 3] =
    [("auto", AttachMode::Auto), ("native", AttachMode::Native), ("generic", AttachMode::Generic)];

/// What a reader of the documents may take for drivers.
const WRAPS: [&str; 2] = ["tee", "fault"];
