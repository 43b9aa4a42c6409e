//! Capture files: what only a `pcap` port has, and `[port.tee]`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use manylane_frame::vocabulary::Checksum;
use manylane_io::port::pcap::{FileConfig, PcapConfig, ReplayConfig, Timing};
use serde_spanned::Spanned;

use super::error::{Problem, Span};
use super::memory::mac;
use super::port::ChecksumPolicy;
use super::section::Section;

/// The part of a `pcap` port that no other driver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapPort {
    /// Its address. Without it, one made from the port's number.
    pub mac: Option<[u8; 6]>,
    /// The files.
    pub files: PcapConfig,
}

/// Copies of a port's packets, in a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tee {
    /// The capture that is written.
    pub write: PathBuf,
    /// Which packets are copied.
    pub direction: Directions,
    /// How they are written.
    pub file: FileConfig,
}

/// What is copied of a port's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Those that are received, and those that are transmitted.
    Both,
    /// Those that are received.
    Receive,
    /// Those that are transmitted.
    Transmit,
}

impl Tee {
    /// Whether received packets are copied.
    pub fn receives(&self) -> bool {
        self.direction != Directions::Transmit
    }

    /// Whether transmitted packets are copied.
    pub fn transmits(&self) -> bool {
        self.direction != Directions::Receive
    }
}

/// A file that a port names, and where.
pub(super) struct NamedFile {
    pub(super) path: PathBuf,
    pub(super) span: Span,
    pub(super) written: bool,
}

/// Reads what a `pcap` port has of its own.
pub(super) fn pcap(
    section: &Section<'_>,
    checksum: Option<ChecksumPolicy>,
    files: &mut Vec<NamedFile>,
) -> Result<PcapPort, Problem> {
    let mac = mac(section)?;
    let read = file(section, "read", false, files)?;
    let write = file(section, "write", true, files)?;
    if read.is_none() && write.is_none() {
        let help = "name a capture: `read = \"in.pcap\"`, `write = \"out.pcapng\"`, or both";
        return Err(section.missing("read", help));
    }
    for (needed, file, keys) in [("read", &read, READ_KEYS), ("write", &write, WRITE_KEYS)] {
        for key in keys.iter().filter(|_| file.is_none()) {
            let why = format!("the port has no `{needed}`");
            section.refuse(key, &why, &format!("remove the key, or add `{needed}`"))?;
        }
    }
    let replay = ReplayConfig {
        timing: section.choice("timing", &TIMINGS)?.unwrap_or_default(),
        passes: match section.number::<u32>("passes", 0..=u64::from(u32::MAX))? {
            Some(passes) => NonZeroU32::new(passes.into_inner()),
            None => Some(NonZeroU32::MIN),
        },
        checksum: match checksum {
            Some(ChecksumPolicy::Trust) => Checksum::Valid,
            Some(ChecksumPolicy::Repair) | None => Checksum::Unknown,
        },
    };
    let bytes_max = section.number("bytes_max", 1024..=1 << 40)?;
    let bytes_max = bytes_max.map_or(PcapConfig::default().bytes_max, Spanned::into_inner);
    let file = written(section)?;
    Ok(PcapPort { mac, files: PcapConfig { read, replay, bytes_max, write, file } })
}

/// Reads `[port.tee]`, if it is there.
pub(super) fn tee(
    section: &Section<'_>,
    files: &mut Vec<NamedFile>,
) -> Result<Option<Tee>, Problem> {
    let section = section.table("tee", "[port.tee]")?;
    if !section.is_present() {
        return Ok(None);
    }
    let help = "name the capture, for example `write = \"lan.pcapng\"`";
    let write = file(&section, "write", true, files)?;
    let write = write.ok_or_else(|| section.missing("write", help))?;
    let direction = section.choice("direction", &DIRECTIONS)?.unwrap_or(Directions::Both);
    Ok(Some(Tee { write, direction, file: written(&section)? }))
}

fn file(
    section: &Section<'_>,
    key: &str,
    written: bool,
    files: &mut Vec<NamedFile>,
) -> Result<Option<PathBuf>, Problem> {
    let Some(text) = section.text(key)? else { return Ok(None) };
    if text.get_ref().is_empty() || text.get_ref().contains('\0') {
        return Err(Problem::new(
            text.span(),
            format!("`{key}` in {} cannot be a file's path", section.name()),
            if text.get_ref().is_empty() { "empty" } else { "contains a zero" },
            "name a capture file, from the root or from where the daemon is started",
        ));
    }
    let path = PathBuf::from(*text.get_ref());
    files.push(NamedFile { path: path.clone(), span: text.span(), written });
    Ok(Some(path))
}

/// How a capture is written; what it calls the interface is the port's name, which comes later.
fn written(section: &Section<'_>) -> Result<FileConfig, Problem> {
    let file = FileConfig::default();
    let snap_len = section.number("snap_len", 14..=u64::from(file.snap_len))?;
    let memory_bytes = section.number("memory_bytes", MEMORY_MIN..=MEMORY_MAX)?;
    Ok(FileConfig {
        snap_len: snap_len.map_or(file.snap_len, Spanned::into_inner),
        memory_bytes: memory_bytes.map_or(file.memory_bytes, Spanned::into_inner),
        ..file
    })
}

/// No file is written that this port or another reads or writes too: as far as their names tell.
pub(super) fn check_files(earlier: &[NamedFile], ours: &[NamedFile]) -> Result<(), Problem> {
    for (index, file) in ours.iter().enumerate() {
        let others = earlier.iter().chain(&ours[..index]);
        let mut same = others.filter(|other| other.path == file.path);
        let Some(other) = same.find(|other| other.written || file.written) else { continue };
        let path = file.path.display();
        let label = if file.written { "written here" } else { "read here" };
        let also = if other.written { "and written here" } else { "and read here" };
        return Err(Problem::new(
            file.span.clone(),
            format!("`{path}` in [[port]] is used twice"),
            label,
            "give each capture that is written a file of its own",
        )
        .also(other.span.clone(), also));
    }
    Ok(())
}

const TIMINGS: [(&str, Timing); 2] = [("original", Timing::Original), ("fast", Timing::Fast)];

const DIRECTIONS: [(&str, Directions); 3] = [
    ("both", Directions::Both),
    ("receive", Directions::Receive),
    ("transmit", Directions::Transmit),
];

/// Keys without a meaning where nothing is read.
const READ_KEYS: &[&str] = &["timing", "passes", "bytes_max"];
/// The same where nothing is written.
const WRITE_KEYS: &[&str] = &["snap_len", "memory_bytes"];

/// Two buffers of 256 KiB: one is filled while the other is written.
const MEMORY_MIN: u64 = 512 << 10;
const MEMORY_MAX: u64 = 1 << 30;
