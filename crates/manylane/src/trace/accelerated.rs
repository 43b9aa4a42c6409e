//! A trace of `manylane accelerate`: its programs copy packets, and the kernel reports what becomes of those that are
//! left to it.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use manylane_api::Client;
use manylane_api::accelerate::AcceleratedPort;
use manylane_client::{AcceleratedCapture, CaptureOptions, Points, RemoteError, path_beside};
use manylane_frame::vocabulary::Point;
use manylane_net::filter::{Instruction, Program};
use rustix::time::{ClockId, clock_gettime};

use super::follow::{Follow, Packet};
use super::kernel::Kernel;
use super::page::{Names, Page};
use super::{Failure, TraceOptions};
use crate::capture::{Interrupt, LocalTime, since_1970};

/// Whether `manylane accelerate` listens.
pub(super) fn is_at(options: &TraceOptions) -> bool {
    AcceleratedCapture::is_at(&path_beside(&options.socket))
}

/// Follows packets until all are shown, the time is over, or the user has had enough.
pub(super) fn follow(
    options: &TraceOptions,
    filter: Vec<(u16, u8, u8, u32)>,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), Failure> {
    let path = path_beside(&options.socket);
    let ports = ports(options)?;
    let port = options.port.as_ref().map(|name| number(name, &ports)).transpose()?;
    let interrupt = Interrupt::by_signal().map_err(Failure::Signals)?;
    let process = AcceleratedCapture::process(&path).map_err(Failure::Remote)?;
    // Before the copies begin: what the kernel does to a copied packet is seen.
    let words = options.filter.join(" ");
    let mut kernel = Kernel::watch(process, words.trim(), options.port.as_deref());
    let filter = filter.into_iter().map(Instruction::from).collect();
    let wanted = CaptureOptions {
        // Transmitted packets have another port.
        port: None,
        points: Point::ALL.iter().fold(Points::NONE, |all, &point| all | Points::of(point)),
        filter: match words.trim() {
            "" => None,
            _ => Some(Program::new(filter).map_err(Failure::Program)?),
        },
        snap: SNAP,
    };
    let capture = AcceleratedCapture::open(&path, wanted).map_err(Failure::Remote)?;
    // Without a standard error no reader is left, here and below.
    for note in &kernel.notes {
        let _ = writeln!(notes, "{note}");
    }
    if let Some(note) = left_alone(&ports, port) {
        let _ = writeln!(notes, "{note}");
    }
    let _ = writeln!(notes, "looking for packets; Ctrl-C ends it");
    let names = Names {
        ports: ports.into_iter().map(|(number, name, tier)| (number, (name, tier))).collect(),
        devices: std::mem::take(&mut kernel.devices),
        rules: std::mem::take(&mut kernel.firewall),
        since_1970_ns: since_1970().as_nanos() as u64,
        sees: kernel.sees(),
    };
    let follow = Follow::new(options.count as usize, port, kernel.sees());
    let show = Show { names, json: options.json, time: LocalTime::of_this_machine(), shown: 0 };
    let deadline = options.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut trace = Running { capture, kernel, follow, show, answered: Instant::now() };
    let why = trace.turn(&interrupt, deadline, out)?;
    let Running { capture, kernel, follow, mut show, .. } = trace;
    // Nothing of the trace is left when the last line is written.
    let (lost, lost_copies) = (kernel.lost(), capture.statistics().lost);
    drop((kernel, capture));
    show.all(follow.rest(), out)?;
    if lost_copies > 0 {
        let _ = writeln!(notes, "{lost_copies} copies of packets were lost; use a filter");
    }
    if let Some(lost) = lost {
        let _ = writeln!(notes, "{lost}");
    }
    if let Some(why) = why {
        let _ = writeln!(notes, "{why} with {} of {} packets", show.complete(), options.count);
    }
    Ok(())
}

struct Running {
    capture: AcceleratedCapture,
    kernel: Kernel,
    follow: Follow,
    show: Show,
    /// When the daemon last showed that it lives.
    answered: Instant,
}

impl Running {
    /// Returns why the trace ended early, if it did.
    fn turn(
        &mut self,
        interrupt: &Interrupt,
        deadline: Option<Instant>,
        out: &mut dyn Write,
    ) -> Result<Option<&'static str>, Failure> {
        loop {
            let left = deadline.map(|until| until.saturating_duration_since(Instant::now()));
            let ended = match self.capture.wait(interrupt.as_fd(), left) {
                Ok(false) => None,
                Ok(true) => Some("stopped"),
                Err(RemoteError::Gone { .. } | RemoteError::Refused(_)) => {
                    Some("the daemon has stopped")
                }
                Err(error) => return Err(Failure::Remote(error)),
            };
            let (now_ns, mut left_of_round) = (now_ns(), ROUND);
            self.capture.receive(|copied| {
                self.follow.copied(copied, now_ns);
                left_of_round -= 1;
                left_of_round > 0
            });
            self.kernel.drain(&mut self.follow, now_ns);
            self.show.all(self.follow.finish(now_ns), out)?;
            if self.follow.is_over() {
                return Ok(None);
            }
            if ended.is_some() {
                return Ok(ended);
            }
            if deadline.is_some_and(|until| Instant::now() >= until) {
                return Ok(Some("stopped"));
            }
            if self.answered.elapsed() >= PATIENCE {
                // A daemon that hangs leaves its programs to the kernel.
                self.capture.is_answered().map_err(Failure::Remote)?;
                self.answered = Instant::now();
            }
        }
    }
}

/// Where pages are written.
struct Show {
    names: Names,
    json: bool,
    time: LocalTime,
    shown: usize,
}

impl Show {
    fn all(&mut self, packets: Vec<Packet>, out: &mut dyn Write) -> Result<(), Failure> {
        for packet in packets {
            self.shown += usize::from(packet.end().is_some());
            let page = Page::of(&packet, &self.names);
            self.one(&page, out).map_err(Failure::Output)?;
        }
        Ok(())
    }

    fn one(&mut self, page: &Page, out: &mut dyn Write) -> io::Result<()> {
        match self.json {
            true => writeln!(out, "{}", serde_json::to_string(page)?)?,
            false => out.write_all(page.block(&mut self.time).as_bytes())?,
        }
        out.flush()
    }

    /// Packets that have left the programs.
    fn complete(&self) -> usize {
        self.shown
    }
}

/// Number, name and tier of each port. To a user without access to its API the daemon names no tiers.
fn ports(options: &TraceOptions) -> Result<Vec<(u16, String, String)>, Failure> {
    let asked = Client::new(&options.socket).ask::<Vec<AcceleratedPort>>("/v1/accelerate/ports");
    if let Ok(ports) = asked {
        return Ok(ports.into_iter().map(|port| (port.port, port.name, port.tier)).collect());
    }
    let ports = AcceleratedCapture::ports(&path_beside(&options.socket));
    let ports = ports.map_err(Failure::Remote)?.into_iter();
    Ok(ports.map(|port| (port.port, port.name, "manylane".into())).collect())
}

fn number(name: &str, ports: &[(u16, String, String)]) -> Result<u16, Failure> {
    let known = ports.iter().find(|(_, known, _)| known == name);
    known.map(|&(number, ..)| number).ok_or_else(|| Failure::NoPort {
        name: name.into(),
        ports: ports.iter().map(|(_, name, _)| name.clone()).collect::<Vec<_>>().join(", "),
    })
}

/// Ports whose packets no program sees.
fn left_alone(ports: &[(u16, String, String)], wanted: Option<u16>) -> Option<String> {
    let is_alone = |(number, _, tier): &&(u16, String, String)| {
        tier == "kernel" && wanted.is_none_or(|wanted| wanted == *number)
    };
    let names: Vec<_> = ports.iter().filter(is_alone).map(|(_, name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "note: packets that {} receive are not seen, since the kernel forwards them alone: `manylane show ports` \
             names the reason",
            names.join(", ")
        )
    })
}

/// Now, in nanoseconds of the monotonic clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Headers, and no more.
const SNAP: u32 = 256;
/// Packets before anything else is looked at.
const ROUND: u32 = 1 << 16;
/// How long the daemon may be silent before it has to answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_by_name_and_those_of_the_kernel_are_named() {
        let port = |number, name: &str, tier: &str| (number, name.to_owned(), tier.to_owned());
        let ports = [port(1, "lan", "driver"), port(2, "wan", "kernel")];
        assert_eq!(number("wan", &ports).ok(), Some(2));
        let error = number("dmz", &ports).map(drop).expect_err("there is none");
        assert!(error.to_string().contains("existing ports: lan, wan"), "{error}");
        assert_eq!(left_alone(&ports, Some(1)), None);
        for wanted in [None, Some(2)] {
            let note = left_alone(&ports, wanted).expect("one is alone");
            assert!(note.contains("that wan receive"), "{note}");
        }
    }
}
