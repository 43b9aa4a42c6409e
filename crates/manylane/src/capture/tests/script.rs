//! What the tests are made of: a daemon whose packets are known, and places to write to.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::rc::Rc;
use std::time::Instant;

use clap::Parser;
use jiff::tz::TimeZone;
use manylane_frame::vocabulary::{Point, PortId};
use pcap_file::pcapng::{Block, PcapNgReader};

use super::super::extcap;
use super::super::files::{Files, Room, Rotation, Target};
use super::super::local_time::LocalTime;
use super::super::run::Plan;
use super::super::source::See;
use super::super::*;

/// 10.1.0.1.5000 > 10.2.0.1.5001: UDP, length 18.
pub(in crate::capture) const UDP: &[u8] = &[
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x26, 0xbb,
    10, 1, 0, 1, 10, 2, 0, 1, 0x13, 0x88, 0x13, 0x89, 0, 26, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
    10, 11, 12, 13, 14, 15, 16, 17,
];

/// 2026-11-21 22:59:59 UTC, and seven nanoseconds.
pub(in crate::capture) const NOW: u64 = 1_795_301_999_000_000_007;
pub(in crate::capture) const SECOND: u64 = 1_000_000_000;

pub(in crate::capture) fn packet() -> Captured<'static> {
    Captured {
        time_ns: NOW,
        len: UDP.len() as u32,
        bytes: UDP,
        port: PortId(0),
        port_name: "wan",
        queue: 3,
        worker: 1,
        point: Point::Receive,
        reason: None,
        explanation: None,
    }
}

/// Writes a file of packets.
pub(in crate::capture) fn write_file<'a>(path: &Path, packets: impl Iterator<Item = Captured<'a>>) {
    let (target, time) = (Target::File(path.into()), LocalTime::of(TimeZone::UTC));
    let created = Files::create(target, Rotation::default(), &request(), &ports(), time, NOW);
    let mut files = created.unwrap();
    for packet in packets {
        assert_eq!(files.packet(&packet).unwrap(), Room::Left);
    }
    files.end(NOW).unwrap();
}

/// What tcpdump says of `file`.
pub(in crate::capture) fn tcpdump(words: &[&str], file: &Path) -> Option<String> {
    let output = installed(Command::new("tcpdump").args(words).arg(file).output())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Nothing without tcpdump on this machine.
pub(in crate::capture) fn installed<T>(begun: io::Result<T>) -> Option<T> {
    match begun {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: no tcpdump");
            eprintln!("SKIPPED no tcpdump to read with");
            None
        }
        begun => Some(begun.expect("tcpdump begins")),
    }
}

pub(in crate::capture) fn request() -> Request {
    Request { port: None, points: vec![Point::Receive], snap: SNAP_MAX, filter: None }
}

pub(in crate::capture) fn ports() -> Vec<PortName> {
    let port = |number, name: &str| PortName {
        id: PortId(number),
        name: name.into(),
        description: "memory".into(),
    };
    vec![port(0, "wan"), port(1, "lan")]
}

/// The times of a file's packets, in nanoseconds.
pub(in crate::capture) fn times(file: &Path) -> Vec<u64> {
    let mut reader = PcapNgReader::new(File::open(file).unwrap()).unwrap();
    let mut times = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(block) = block.unwrap().0 {
            times.push(block.timestamp.as_nanos() as u64);
        }
    }
    times
}

#[derive(Debug, Parser)]
#[command(name = "capture")]
pub(in crate::capture) struct Cli {
    #[command(flatten)]
    options: Options,
}

pub(in crate::capture) fn parse(words: &str) -> Result<Options, clap::Error> {
    let words = ["capture"].into_iter().chain(words.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.options)
}

pub(in crate::capture) fn plan(words: &str) -> Plan {
    Plan::of(&parse(words).unwrap()).unwrap()
}

/// What becomes of a capture, its lines, and what is said of them.
pub(in crate::capture) fn capture(
    words: &str,
    server: &Script,
) -> (Result<(), CaptureError>, String, String) {
    let interrupt = Interrupt::by_word().expect("eventfds are to be had");
    let (out, mut told) = (Shared::default(), Vec::new());
    let outcome = plan(words).execute(server, &interrupt, Box::new(out.clone()), &mut told);
    (outcome, out.text(), String::from_utf8(told).unwrap())
}

pub(in crate::capture) fn extcap(words: &str, server: &Script) -> Result<String, CaptureError> {
    let options = parse(words).unwrap();
    assert!(options.extcap.is_given(), "{words}");
    let mut out = Vec::new();
    extcap::run(&options, server, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// A daemon whose packets are known.
pub(in crate::capture) struct Script {
    steps: Rc<RefCell<VecDeque<Step>>>,
    pub(in crate::capture) statistics: Rc<RefCell<Statistics>>,
    pub(in crate::capture) asked: RefCell<Option<Request>>,
}

pub(in crate::capture) enum Step {
    /// These wait.
    Packets(Vec<Captured<'static>>),
    /// Something happens while the capture sleeps.
    Do(Box<dyn FnMut()>),
    /// The capture sleeps, and is woken.
    Wake(Wake),
    /// The capture sleeps until its time has come.
    Sleep,
}

impl Script {
    /// Each step is one look at the source; when none is left, the daemon has gone.
    pub(in crate::capture) fn new(steps: Vec<Step>) -> Script {
        let packets = |step: &Step| if let Step::Packets(some) = step { some.len() } else { 0 };
        let filtered = steps.iter().map(packets).sum::<usize>() as u64;
        let statistics = Statistics { filtered, lost: 0 };
        Script {
            steps: Rc::new(RefCell::new(steps.into())),
            statistics: Rc::new(RefCell::new(statistics)),
            asked: RefCell::default(),
        }
    }
}

impl Server for Script {
    fn ports(&self) -> Result<Vec<PortName>, OpenError> {
        Ok(ports())
    }

    fn check_filter(&self, filter: &str) -> Result<(), OpenError> {
        match filter {
            "udpp" => {
                let message = "syntax error".into();
                Err(OpenError::Filter { filter: filter.into(), message })
            }
            _ => Ok(()),
        }
    }

    fn open(&self, request: &Request) -> Result<Box<dyn Source>, OpenError> {
        self.check_filter(request.filter.as_deref().unwrap_or_default())?;
        *self.asked.borrow_mut() = Some(request.clone());
        let (steps, statistics) = (self.steps.clone(), self.statistics.clone());
        Ok(Box::new(Running { steps, statistics }))
    }
}

pub(in crate::capture) struct Running {
    steps: Rc<RefCell<VecDeque<Step>>>,
    statistics: Rc<RefCell<Statistics>>,
}

impl Source for Running {
    fn receive(&mut self, see: &mut See<'_>) -> io::Result<bool> {
        let mut steps = self.steps.borrow_mut();
        let Some(Step::Packets(packets)) = steps.front() else { return Ok(false) };
        // A capture that has had enough reads no more.
        let _ = packets.iter().try_for_each(see);
        steps.pop_front();
        Ok(true)
    }

    fn wait(&mut self, until: Option<Instant>, _: BorrowedFd<'_>) -> io::Result<Wake> {
        let step = self.steps.borrow_mut().pop_front();
        Ok(match step {
            Some(Step::Do(mut what)) => {
                what();
                Wake::Packets
            }
            Some(Step::Wake(wake)) => wake,
            Some(Step::Sleep) => {
                let until = until.expect("there is a time to wake at");
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                Wake::Time
            }
            Some(Step::Packets(_)) => unreachable!("packets waited, and it slept"),
            None => Wake::End,
        })
    }

    fn statistics(&mut self) -> Statistics {
        let Statistics { filtered, lost } = *self.statistics.borrow();
        Statistics { filtered: filtered + lost, lost }
    }
}

/// Somewhere to write to, and to look at afterwards.
#[derive(Clone, Default)]
pub(in crate::capture) struct Shared(Rc<RefCell<Vec<u8>>>);

impl Shared {
    pub(in crate::capture) fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).unwrap()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder of a test's own.
pub(in crate::capture) struct Place(pub(in crate::capture) PathBuf);

impl Place {
    pub(in crate::capture) fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("manylane-capture-{name}-{}", process::id()));
        fs::create_dir(&path).unwrap();
        Place(path)
    }

    pub(in crate::capture) fn fifo(&self) -> PathBuf {
        let path = self.0.join("fifo");
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    pub(in crate::capture) fn listed(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name =
            |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
