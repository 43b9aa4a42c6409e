//! [`Files`]: where packets are written, file after file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use manylane_frame::vocabulary::{Point, PortId};

use super::local_time::LocalTime;
use super::options::UsageError;
use super::source::{Captured, PortName, Request};
use manylane_io::pcapng::{Interface, Section, Terms};

/// Where packets are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    StandardOutput,
    /// A file of this name, or of names that begin so.
    File(PathBuf),
    /// Files whose names strftime(3) makes of this.
    Pattern(String),
    /// A FIFO that another process has made for us to write to.
    Fifo(PathBuf),
}

/// When another file begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rotation {
    /// After this number of seconds (`-G`).
    pub(super) seconds: Option<u32>,
    /// When a file has more bytes than this (`-C`).
    pub(super) bytes: Option<u64>,
    /// This number of files (`-W`): by bytes, the first is then written anew; by time alone, that was all.
    pub(super) files: Option<u32>,
}

impl Target {
    /// A file, which with `-G` may have a pattern for a name.
    pub(super) fn file(path: &Path, is_pattern: bool) -> Result<Target, UsageError> {
        if !is_pattern {
            return Ok(Target::File(path.into()));
        }
        let Some(name) = path.to_str() else {
            return Err(UsageError::NameNotUtf8 { name: path.into() });
        };
        // A wrong pattern is refused before anything is opened.
        match LocalTime::of_this_machine().name(name, 0) {
            Ok(_) => Ok(Target::Pattern(name.to_owned())),
            Err(message) => Err(UsageError::TimePattern { name: name.to_owned(), message }),
        }
    }

    /// The name of the file that begins at `now_ns`, the `count`th since time has begun another.
    pub(super) fn name(
        &self,
        rotation: Rotation,
        count: u32,
        now_ns: u64,
        time: &LocalTime,
    ) -> PathBuf {
        let path = match self {
            Target::StandardOutput => return "standard output".into(),
            Target::Fifo(path) => return path.clone(),
            Target::File(path) => path.clone(),
            Target::Pattern(pattern) => {
                time.name(pattern, now_ns).expect("the pattern was tried before").into()
            }
        };
        // tcpdump's `MakeFilename`: with -W all have a number, as wide as the last one's; without, the first has
        // none.
        let digits = match (rotation.bytes, rotation.files) {
            (Some(_), Some(files)) if files > 1 => (files - 1).ilog10() as usize + 1,
            _ => 0,
        };
        if count == 0 && digits == 0 {
            return path;
        }
        let mut name = path.into_os_string();
        name.push(format!("{count:0digits$}"));
        name.into()
    }
}

/// Packets on their way into files.
pub(super) struct Files {
    target: Target,
    rotation: Rotation,
    terms: Terms,
    interfaces: Interfaces,
    time: LocalTime,
    /// The file at `path`; nothing after it was ended.
    section: Option<Section>,
    path: PathBuf,
    /// When time began another file last.
    period_ns: u64,
    /// How often time has begun another file.
    periods: u32,
    /// How often bytes have, since.
    count: u32,
    packets: u64,
    lost: Lost,
}

/// How many packets were lost.
#[derive(Default)]
struct Lost {
    so_far: u64,
    /// As a packet's block has already said.
    reported: u64,
    /// When the file began.
    before_file: u64,
}

/// Whether another packet has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Left,
    /// All files that the options want are written.
    None,
}

impl Files {
    /// Begins the first file, at the time `now_ns`. Its header describes the interfaces of `request` on `ports`.
    pub(super) fn create(
        target: Target,
        rotation: Rotation,
        request: &Request,
        ports: &[PortName],
        time: LocalTime,
        now_ns: u64,
    ) -> Result<Files, WriteError> {
        let mut files = Files {
            target,
            rotation,
            terms: Terms { snap: request.snap, filter: request.filter.clone() },
            interfaces: Interfaces::of(request, ports),
            time,
            section: None,
            path: PathBuf::new(),
            period_ns: now_ns,
            periods: 0,
            count: 0,
            packets: 0,
            lost: Lost::default(),
        };
        files.begin(now_ns)?;
        Ok(files)
    }

    /// Writes a packet, in another file if it is time.
    pub(super) fn packet(&mut self, packet: &Captured<'_>) -> Result<Room, WriteError> {
        if self.is_over(packet.time_ns) {
            if self.is_last() {
                return Ok(Room::None);
            }
            self.period_ns = packet.time_ns;
            self.periods = self.periods.saturating_add(1);
            self.count = 0;
            self.begin(packet.time_ns)?;
        }
        if let (Some(most), Some(section)) = (self.rotation.bytes, &self.section)
            && section.bytes() > most
        {
            self.count = self.count.wrapping_add(1);
            if self.rotation.files.is_some_and(|files| self.count >= files) {
                self.count = 0;
            }
            self.begin(packet.time_ns)?;
        }
        let (interface, new) = self.interfaces.number(packet);
        let (terms, section) = (&self.terms, self.section.as_mut().expect("a file has begun"));
        let described = new.map_or(Ok(()), |new| section.describe(new, terms));
        let lost = self.lost.so_far - self.lost.reported;
        let written = described.and_then(|()| section.packet(interface, packet, lost));
        written.map_err(|source| self.failed(source))?;
        self.lost.reported = self.lost.so_far;
        self.packets += 1;
        Ok(Room::Left)
    }

    /// Tells how many packets were lost so far.
    pub(super) fn lost(&mut self, lost: u64) {
        self.lost.so_far = lost.max(self.lost.so_far);
    }

    /// Hands what was written to the kernel.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        let flushed = self.section.as_mut().map_or(Ok(()), Section::flush);
        flushed.map_err(|source| self.failed(source))
    }

    /// When the last file has lasted long enough.
    pub(super) fn until_ns(&self) -> Option<u64> {
        let seconds = self.rotation.seconds.filter(|_| self.is_last())?;
        Some(self.period_ns.saturating_add(u64::from(seconds) * 1_000_000_000))
    }

    /// Ends the last file.
    pub(super) fn end(&mut self, now_ns: u64) -> Result<(), WriteError> {
        let Some(section) = self.section.take() else { return Ok(()) };
        let lost = self.lost.so_far - self.lost.before_file;
        section.end(lost, now_ns).map_err(|source| self.failed(source))
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let lasted = now_ns.saturating_sub(self.period_ns);
        self.rotation.seconds.is_some_and(|most| lasted >= u64::from(most) * 1_000_000_000)
    }

    /// Whether no other file is to begin by time.
    fn is_last(&self) -> bool {
        let Rotation { bytes, files, .. } = self.rotation;
        bytes.is_none() && files.is_some_and(|files| self.periods + 1 >= files)
    }

    /// Ends one file and begins the next, which may have the same name.
    fn begin(&mut self, now_ns: u64) -> Result<(), WriteError> {
        self.end(now_ns)?;
        self.lost.before_file = self.lost.so_far;
        self.path = self.target.name(self.rotation, self.count, now_ns, &self.time);
        let opened: io::Result<Box<dyn Write + Send>> = match &self.target {
            // Not by the library's buffer of lines, which would search packets for their ends.
            Target::StandardOutput => match io::stdout().as_fd().try_clone_to_owned() {
                Ok(fd) => Ok(Box::new(File::from(fd))),
                Err(error) => Err(error),
            },
            Target::Fifo(path) => match OpenOptions::new().write(true).open(path) {
                Ok(file) => Ok(Box::new(file)),
                Err(error) => Err(error),
            },
            Target::File(_) | Target::Pattern(_) => match File::create(&self.path) {
                Ok(file) => Ok(Box::new(file)),
                Err(error) => Err(error),
            },
        };
        let file =
            opened.map_err(|source| WriteError::Create { path: self.path.clone(), source })?;
        let begun = Section::begin(file, &self.interfaces.list, &self.terms, now_ns);
        self.section = Some(begun.map_err(|source| self.failed(source))?);
        Ok(())
    }

    #[cold]
    fn failed(&self, source: io::Error) -> WriteError {
        WriteError::Write { path: self.path.clone(), packets: self.packets, source }
    }
}

/// The interfaces of a file: one for each port, and one more for what is dropped there, and for what is left to the kernel,
/// since that was not on the wire: `wan`, `wan:drop`, `wan:kernel`. Whether a packet was received or transmitted is in its flags.
struct Interfaces {
    list: Vec<Interface>,
    /// By port: the number of its own, of its drops', and of the kernel's; [`UNKNOWN`] for none yet.
    numbers: Vec<[u32; 3]>,
}

impl Interfaces {
    fn of(request: &Request, ports: &[PortName]) -> Interfaces {
        let mut interfaces = Interfaces { list: Vec::new(), numbers: Vec::new() };
        let wanted = |port: &&PortName| request.port.as_ref().is_none_or(|name| *name == port.name);
        for port in ports.iter().filter(wanted) {
            for kind in [Kind::Wire, Kind::Drop, Kind::Kernel] {
                if request.points.iter().any(|&point| Kind::of(point) == kind) {
                    interfaces.add(port.id, &port.name, &port.description, kind);
                }
            }
        }
        interfaces
    }

    /// The number of the packet's interface, and what is to be said of it if it is new.
    fn number(&mut self, packet: &Captured<'_>) -> (u32, Option<&Interface>) {
        let kind = Kind::of(packet.point);
        let known = self.numbers.get(packet.port.index()).map(|all| all[kind as usize]);
        match known {
            Some(number) if number != UNKNOWN => (number, None),
            _ => {
                let number = self.add(packet.port, packet.port_name, "", kind);
                (number, self.list.last())
            }
        }
    }

    fn add(&mut self, port: PortId, name: &str, description: &str, kind: Kind) -> u32 {
        let number = self.list.len() as u32; // At most three for each of 65,536 ports.
        self.list.push(match kind {
            Kind::Wire => Interface { name: name.to_owned(), description: description.to_owned() },
            Kind::Kernel => Interface {
                name: format!("{name}:kernel"),
                description: format!(
                    "Packets received by {name} and left to the kernel; the comment tells why"
                ),
            },
            Kind::Drop => Interface {
                name: format!("{name}:drop"),
                description: format!(
                    "Packets received by {name} and dropped; the comment tells why"
                ),
            },
        });
        if self.numbers.len() <= port.index() {
            self.numbers.resize(port.index() + 1, [UNKNOWN; 3]);
        }
        self.numbers[port.index()][kind as usize] = number;
        number
    }
}

/// What an interface of a file stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wire,
    Drop,
    Kernel,
}

impl Kind {
    fn of(point: Point) -> Kind {
        match point {
            Point::Receive | Point::Transmit => Kind::Wire,
            Point::Drop => Kind::Drop,
            Point::Kernel => Kind::Kernel,
        }
    }
}

const UNKNOWN: u32 = u32::MAX;

/// Why packets cannot be written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file cannot be made, or not be emptied.
    #[error(
        "cannot write the capture {}: {source}; name a file that you may write with -w",
        .path.display()
    )]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file takes no more.
    #[error(
        "cannot write the capture {} any more, after {packets} packets: {source}; make room (`df` shows it), or name \
         another file with -w",
        .path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// How many packets were written so far, into all files.
        packets: u64,
        /// What the system says.
        source: io::Error,
    },
}

impl WriteError {
    /// Whether the reader of a pipe has had enough.
    pub(super) fn is_closed(&self) -> bool {
        let (WriteError::Create { source, .. } | WriteError::Write { source, .. }) = self;
        source.kind() == io::ErrorKind::BrokenPipe
    }
}
