//! Frames for benches: a generator without gaps, and where they end.
//!
//! The kernel runs the generator's program over and over on frames that it makes for it
//! (`BPF_F_TEST_XDP_LIVE_FRAMES`), and sends them where the program says: no packet of the kernel's, no system call,
//! some 150 ns for a frame. One call lasts as long as the generator does, because the end of each takes
//! milliseconds in which nothing is sent.
//!
//! On a veth pair the other end takes such frames only with GRO on (`ethtool -K IF gro on`) or with an XDP program
//! of its own; else all are lost, and only its receive queue's drops say so.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::Once;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use manylane_sync::words::{Words, WordsMut};

use manylane_io::affinity;
use manylane_io::bpf::call::{self, Kind, TestRun};
use manylane_io::bpf::maps::{self, Maps};
use manylane_io::bpf::{BpfError, object};
use manylane_io::interface::Interface;

/// What a generator sends.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// An Ethernet frame with UDP in IPv4 or IPv6, without tags, options or extension headers; 64 bytes at least.
    /// Checksums are the generator's: in IPv4 UDP goes without.
    pub frame: Vec<u8>,
    /// The destinations of frames.
    pub destinations: Destinations,
    /// Source ports by turns, from the frame's own up: all destinations, then all from the next port: as
    /// many flows as destinations times this.
    pub ports: u16,
    /// Frames a second; 0 for no limit.
    pub per_second: u64,
    /// The core that it runs on; any that the thread may use without.
    pub core: Option<usize>,
}

impl LiveOptions {
    /// Frames like this one, to one destination, of one flow, as fast as can be.
    pub fn new(frame: Vec<u8>, destination: IpAddr) -> LiveOptions {
        let destinations = Destinations::InTurn(vec![destination]);
        LiveOptions { frame, destinations, ports: 1, per_second: 0, core: None }
    }
}

/// The destinations of frames.
#[derive(Clone, Debug)]
pub enum Destinations {
    /// To one after another: of the frame's family. Those of IPv6 end in the same 64 bits, for the table to be small.
    InTurn(Vec<IpAddr>),
    /// To one of these each time, drawn anew.
    Drawn(Vec<IpAddr>),
    /// To one of 65,536 IPv4 addresses from 16.0.0.0 to 111.255.255.255 each time, far from each other. No table takes
    /// room in a cache beside the forwarder's.
    Spread,
    /// To one of the 65,536 addresses of 10.128.0.0/16 each time: to many hosts of few networks. Every cache has all
    /// that a forwarder's table says of these networks.
    Near,
}

impl Destinations {
    /// All destination addresses of frames.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self {
            Destinations::InTurn(list) | Destinations::Drawn(list) => list.clone(),
            Destinations::Spread => computed(SPREAD),
            Destinations::Near => computed(NEAR),
        }
    }
}

/// The addresses that `live.bpf.c` computes.
fn computed([first, factor]: [u64; 2]) -> Vec<IpAddr> {
    let address = |number: u64| first as u32 + (number * factor) as u32 % COMPUTED_WITHIN;
    (0..1 << 16).map(|number| Ipv4Addr::from_bits(address(number)).into()).collect()
}

/// Sends frames out of an interface until it is dropped, on a thread of its own.
pub struct LiveGenerator {
    state: Words<u64>,
    /// `None` only while dropping.
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Closed when the thread ends.
    ended: mpsc::Receiver<()>,
    /// Tells the thread to end.
    stop: Option<mpsc::Sender<()>>,
}

impl LiveGenerator {
    /// Starts to send out of an interface of the calling thread's network namespace.
    pub fn start(interface: &Interface, options: LiveOptions) -> Result<LiveGenerator, BpfError> {
        let template = Template::of(&options.frame).map_err(|source| failed("load", source))?;
        const NONE: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
        let (destinations, drawn, [first_address, factor]) = match &options.destinations {
            Destinations::InTurn(list) => (&**list, 0, [0; 2]),
            Destinations::Drawn(list) => (&**list, 1, [0; 2]),
            Destinations::Spread => (NONE, 2, SPREAD),
            Destinations::Near => (NONE, 2, NEAR),
        };
        let words = template.destinations(destinations);
        let (words, lower) = words.map_err(|source| failed("load", source))?;
        let mut maps = Maps::default();
        let mut head: WordsMut<u64> = maps.add("live_head", HEAD_WORDS)?;
        let mut to: WordsMut<u64> = maps.add("live_to", words.len())?;
        let mut setting: WordsMut<u64> = maps.add("live_setting", SETTING_WORDS)?;
        let state: WordsMut<u64> = maps.add("live_state", STATE_WORDS)?;
        for (at, word) in template.head.into_iter().enumerate() {
            head.store(at, word);
        }
        words.into_iter().enumerate().for_each(|(at, word)| to.store(at, word));
        let interval = (16 * SECOND_NS).checked_div(options.per_second).unwrap_or(0);
        let is_ipv6 = u64::from(template.is_ipv6);
        let ports = u64::from(options.ports.max(1));
        let first = u64::from(template.port);
        let sum = template.sum + (lower & 0xffff_ffff) + (lower >> 32);
        let index = interface.index.into();
        let words =
            [index, is_ipv6, ports, first, sum, interval, lower, drawn, first_address, factor];
        words.into_iter().enumerate().for_each(|(at, word)| setting.store(at, word));
        let program = load(&maps, "xdp/generate", "live_generate")?;

        // One frame, to see an error.
        run(&program, &options.frame, 1).map_err(|source| failed("try", source))?;
        let (ending, ended) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let reader = state.reader();
        // The tables are the program's while it runs, and the state is written by it alone.
        let work = move || {
            let _tables = (head, to, setting, state, ending);
            affinity::name_thread("live");
            if let Some(core) = options.core {
                affinity::pin(core)?;
            }
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                match run(&program, &options.frame, i32::MAX as u32) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    outcome => outcome?,
                }
            }
            Ok(())
        };
        ignore_signal();
        let thread =
            thread::Builder::new().spawn(work).map_err(|source| failed("start", source))?;
        Ok(LiveGenerator { state: reader, thread: Some(thread), ended, stop: Some(stop) })
    }

    /// Frames handed to the interface so far; those that it lost too.
    pub fn sent(&self) -> u64 {
        self.state.load(SENT)
    }

    /// Ends it; an error if it had ended before.
    pub fn stop(mut self) -> io::Result<u64> {
        let outcome = self.end();
        outcome.map(|()| self.sent())
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        drop(self.stop.take());
        // A signal ends the system call. One that comes just before it does not: so again, until the thread ends.
        loop {
            // SAFETY: the thread has not been joined, so its handle is valid (pthread_kill(3)); the signal has a
            // handler, which does nothing.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), signal()) };
            match self.ended.recv_timeout(Duration::from_millis(1)) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => break,
            }
        }
        thread.join().expect("the generator does not panic")
    }
}

impl Drop for LiveGenerator {
    fn drop(&mut self) {
        let _ = self.end(); // A caller that needs the result calls `stop`.
    }
}

/// Counts and drops all frames that an interface receives, in its driver, until this is dropped.
pub struct LiveSink {
    _link: OwnedFd,
    counts: Words<u64>,
    cpus: usize,
}

impl LiveSink {
    /// Attaches it natively to an interface of the calling thread's network namespace.
    pub fn attach(interface: &Interface) -> Result<LiveSink, BpfError> {
        let cpus = maps::cpus().map_err(|source| failed("load", source))?;
        let mut maps = Maps::default();
        let counts: WordsMut<u64> = maps.add("live_dropped", cpus * CPU_WORDS)?;
        let program = load(&maps, "xdp/drop", "live_drop")?;
        let link = attach_native(&program, interface).map_err(|source| failed("attach", source))?;
        Ok(LiveSink { _link: link, counts: counts.reader(), cpus })
    }

    /// Frames and bytes, Ethernet headers included, that were dropped so far.
    pub fn dropped(&self) -> (u64, u64) {
        (0..self.cpus).fold((0, 0), |(frames, bytes), cpu| {
            let [more, larger] = self.counts.load_array(cpu * CPU_WORDS);
            (frames + more, bytes + larger)
        })
    }
}

/// Puts an XDP program into the driver of an interface of the calling thread's network namespace, until the link that
/// comes back is closed.
pub(super) fn attach_native(program: &OwnedFd, interface: &Interface) -> io::Result<OwnedFd> {
    let mut attributes = Link {
        program: program.as_raw_fd() as u32,
        interface: interface.index,
        attach: KIND.attach,
        flags: NATIVE,
    };
    // SAFETY: BPF_LINK_CREATE reads `union bpf_attr` as `Link` lays it out; no field is a pointer. The command
    // returns a descriptor.
    unsafe { call::open(LINK_CREATE, &mut attributes) }
}

/// What is the same in all frames.
struct Template {
    head: [u64; HEAD_WORDS],
    is_ipv6: bool,
    port: u16,
    /// What the checksum that is to be written covers, without destination and port, as words of 16 bits that lie
    /// in memory.
    sum: u64,
}

impl Template {
    fn of(frame: &[u8]) -> io::Result<Template> {
        let mut head: [u8; HEAD_BYTES] = match frame.first_chunk() {
            Some(head) => *head,
            None => return Err(wrong("a frame of 64 bytes or more")),
        };
        let is_ipv6 = match (head[12], head[13], head[14]) {
            (0x08, 0x00, 0x45) if head[23] == UDP => false,
            (0x86, 0xdd, 0x60..=0x6f) if head[20] == UDP => true,
            _ => return Err(wrong("UDP in IPv4 or IPv6, without options")),
        };
        let port_at = if is_ipv6 { 54 } else { 34 };
        let port = u16::from_be_bytes([head[port_at], head[port_at + 1]]);
        head[port_at..port_at + 2].fill(0);
        let sum = if is_ipv6 {
            let len = usize::from(u16::from_be_bytes([head[58], head[59]]));
            let payload = frame.get(62..54 + len).ok_or_else(|| wrong("all that UDP counts"))?;
            head[38..54].fill(0);
            head[60..62].fill(0);
            // The pseudo-header (RFC 8200 §8.1), then the header without its source port.
            let pseudo = sum(&head[22..38]) + sum(&head[58..60]) + sum(&[0, UDP]);
            pseudo + sum(&head[56..60]) + sum(payload)
        } else {
            head[24..26].fill(0);
            head[30..34].fill(0);
            head[40..42].fill(0);
            sum(&head[14..34])
        };
        let (words, _) = head.as_chunks::<8>();
        let head = std::array::from_fn(|word| u64::from_le_bytes(words[word]));
        Ok(Template { head, is_ipv6, port, sum })
    }

    /// Destinations as the program writes them: what differs, and what is the same.
    fn destinations(&self, list: &[IpAddr]) -> io::Result<(Vec<u64>, u64)> {
        let words = |destination: &IpAddr| match destination {
            IpAddr::V4(to) if !self.is_ipv6 => Ok((u32::from_le_bytes(to.octets()).into(), 0)),
            IpAddr::V6(to) if self.is_ipv6 => {
                let bits = u128::from_le_bytes(to.octets());
                Ok((bits as u64, (bits >> 64) as u64))
            }
            _ => Err(wrong("destinations of the frame's family")),
        };
        let words = list.iter().map(words).collect::<io::Result<Vec<(u64, u64)>>>()?;
        let lower = words.first().map_or(0, |words| words.1);
        match words.iter().all(|words| words.1 == lower) {
            true => Ok((words.into_iter().map(|words| words.0).collect(), lower)),
            false => Err(wrong("destinations that end in the same 64 bits")),
        }
    }
}

/// Words of 16 bits as they lie in memory, added up; an odd byte is the first of its word.
fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 8;
    bytes.chunks(2).map(word).sum()
}

fn wrong(wanted: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("the generator wants {wanted}"))
}

/// The program in a section of the object.
fn load(maps: &Maps, section: &str, name: &str) -> Result<OwnedFd, BpfError> {
    let program = object::program(OBJECT, section, |name| maps.meant(name));
    let program = program.map_err(|source| failed("load", source))?;
    program.load(KIND, name).map_err(|complaint| failed_with("load", complaint.into()))
}

/// Runs the generator so often, or until a signal comes.
fn run(program: &OwnedFd, frame: &[u8], repeat: u32) -> io::Result<()> {
    let mut context = [0, frame.len() as u32, 0, 0, 0, 0]; // `struct xdp_md`: data, and its end.
    let mut run = TestRun {
        program: program.as_raw_fd() as u32,
        data_in_len: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat,
        context_in_len: size_of_val(&context) as u32,
        context_in: context.as_mut_ptr() as u64,
        flags: LIVE_FRAMES,
        batch: BATCH,
        ..TestRun::default()
    };
    // SAFETY: BPF_PROG_TEST_RUN reads and writes `union bpf_attr` as `TestRun` lays it out, and reads `data_in_len`
    // bytes of `frame` and `context_in_len` of `context`, which outlive the call. No live frame returns to us.
    unsafe { run.call() }
}

fn failed(step: &'static str, source: io::Error) -> BpfError {
    failed_with(step, source.into())
}

fn failed_with(step: &'static str, source: Box<dyn std::error::Error + Send + Sync>) -> BpfError {
    BpfError::Program { program: "the generator of frames", step, needs: "Linux 5.18", source }
}

/// What ends the generator's system call: a signal without another use, with a handler that does nothing.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 1
}

fn ignore_signal() {
    extern "C" fn nothing(_: libc::c_int) {}
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: `action` is whole, and its handler does nothing that a handler may not (signal-safety(7)).
        unsafe { libc::sigaction(signal(), &action, std::ptr::null_mut()) };
    });
}

/// `union bpf_attr` for BPF_LINK_CREATE, up to what we say.
#[repr(C)]
struct Link {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("live.bpf.o");

/// `BPF_PROG_TYPE_XDP`, `BPF_XDP`.
pub(super) const KIND: Kind = Kind { program: 6, attach: 37, flags: 0, interface: 0 };

// As in `live.bpf.c`.
const HEAD_BYTES: usize = 64;
const HEAD_WORDS: usize = HEAD_BYTES / 8;
const SETTING_WORDS: usize = 10;
/// First address, and what an address's number is multiplied with: Knuth's multiplier, by which numbers that are near
/// each other go far apart.
const SPREAD: [u64; 2] = [0x1000_0000, 2_654_435_761];
const NEAR: [u64; 2] = [0x0a80_0000, 1];
const COMPUTED_WITHIN: u32 = 0x6000_0000;
const STATE_WORDS: usize = 8;
const SENT: usize = 2;
const CPU_WORDS: usize = 32;

const UDP: u8 = 17;
const SECOND_NS: u64 = 1_000_000_000;
/// Frames that are sent at once.
const BATCH: u32 = 64;

// linux/bpf.h, linux/if_link.h.
const LINK_CREATE: libc::c_int = 28;
const LIVE_FRAMES: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;
