//! Readers of captures: ours, on a thread of this process, and tcpdump.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

use manylane_client::{AcceleratedCapture, CaptureOptions, path_beside};
use manylane_io::eventfd::EventFd;
use manylane_lab::Host;
use manylane_lab::tools::mortal;
use manylane_sync::doorbell::Wake;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::prelude::*;

/// Opens a capture of the daemon whose API is there.
pub fn open(api: &Path, options: CaptureOptions) -> Result<AcceleratedCapture> {
    Ok(AcceleratedCapture::open(&path_beside(api), options)?)
}

/// Reads a capture on a core, and writes packets to `/dev/null`.
pub struct Reading {
    counts: Arc<Counts>,
    stop: Arc<EventFd>,
    thread: thread::JoinHandle<Result>,
}

#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    lost: AtomicU64,
}

impl Reading {
    pub fn start(mut capture: AcceleratedCapture, core: usize) -> Result<Reading> {
        let counts = Arc::new(Counts::default());
        let stop = Arc::new(EventFd::open()?);
        let (shared, end) = (counts.clone(), stop.clone());
        let thread = thread::Builder::new().name("reader".into()).spawn(move || {
            affinity::pin(core)?;
            let mut file = BufWriter::with_capacity(1 << 16, File::create("/dev/null")?);
            let (mut taken, mut failed) = (0, None);
            loop {
                let mut left = ROUND;
                let is_any = capture.receive(|copied| {
                    let mut header = [0; 16];
                    header[..8].copy_from_slice(&copied.time_ns.to_ne_bytes());
                    header[8..12].copy_from_slice(&(copied.bytes.len() as u32).to_ne_bytes());
                    header[12..].copy_from_slice(&copied.len.to_ne_bytes());
                    let written =
                        file.write_all(&header).and_then(|()| file.write_all(copied.bytes));
                    failed = failed.take().or(written.err());
                    taken += 1;
                    left -= 1;
                    left > 0
                });
                if let Some(error) = failed.take() {
                    return Err(error.into());
                }
                shared.taken.store(taken, Ordering::Relaxed);
                shared.lost.store(capture.statistics().lost, Ordering::Relaxed);
                if !is_any && capture.wait(end.as_fd(), None)? {
                    return Ok(());
                }
            }
        })?;
        Ok(Reading { counts, stop, thread })
    }

    /// Packets that were read.
    pub fn taken(&self) -> u64 {
        self.counts.taken.load(Ordering::Relaxed)
    }

    /// Packets that found no room.
    pub fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// Ends the capture when nothing waits any more.
    pub fn stop(self) -> Result {
        self.stop.wake();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// A running tcpdump of what an interface receives.
pub struct TcpDump {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl TcpDump {
    /// Starts it on a core of a host, and waits until it captures.
    pub fn start(host: &Host, interface: &str, core: usize) -> Result<TcpDump> {
        let mut command = mortal("taskset");
        command.args(["-c", &core.to_string(), "tcpdump", "-n", "-i", interface, "-Q", "in"]);
        command.args(["-B", ROOM_KIB, "-w", "/dev/null"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = host.run(move || command.spawn())?;
        let said = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut tcpdump = TcpDump { child, said };
        loop {
            let line = tcpdump.line()?;
            if line.contains("listening on") {
                return Ok(tcpdump);
            }
            if line.is_empty() {
                return Err("tcpdump does not capture".into());
            }
        }
    }

    /// Ends it as Ctrl-C does: packets that it has written, received and lost.
    pub fn stop(mut self) -> Result<[u64; 3]> {
        kill(Pid::from_raw(self.child.id().try_into()?), Signal::SIGINT)?;
        let mut counts = [None; 3];
        let ends =
            [" packets captured", " packets received by filter", " packets dropped by kernel"];
        loop {
            let line = self.line()?;
            for (end, count) in ends.iter().zip(&mut counts) {
                // `1 packet captured`.
                let number = line.trim().replace(" packet ", " packets ");
                let number = number.strip_suffix(end).and_then(|number| number.parse().ok());
                *count = count.or(number);
            }
            if let [Some(written), Some(received), Some(lost)] = counts {
                return Ok([written, received, lost]);
            }
            if line.is_empty() {
                return Err(format!("tcpdump's last words: {counts:?}").into());
            }
        }
    }

    /// The next line; an empty one at the end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for TcpDump {
    fn drop(&mut self) {
        // Both may fail, and without harm: the child has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Packets before anything else is looked at.
const ROUND: u32 = 1 << 14;
/// As much as a capture of ours has for the packets of one of two cores.
const ROOM_KIB: &str = "32768";
