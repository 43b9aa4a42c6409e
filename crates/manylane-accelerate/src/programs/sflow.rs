//! Packets for sFlow: one in N of what each port receives, and packets that the kernel will discard (`sflow.h`).
//!
//! | memory | writer                            | readers                                       |
//! |--------|-----------------------------------|-----------------------------------------------|
//! | rates  | [`SflowRates`], in any one thread | programs                                      |
//! | counts | programs, each CPU its own        | any thread ([`SflowCounts`])                  |
//! | ring   | programs                          | [`SflowNotes`], which is readable while a note is there |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use manylane_io::bpf::BpfError;
use manylane_io::bpf::maps::{Maps, RingReader};
use manylane_sync::words::{Words, WordsMut};

use super::memory::PORTS;
use super::samples::SampledBy;

/// The memory that programs share for sFlow.
pub struct Sflow {
    /// What is noted.
    pub rates: SflowRates,
    /// What was noted.
    pub notes: SflowNotes,
    /// What was counted beside it.
    pub counts: SflowCounts,
}

/// Has programs note packets. Without a rate a packet costs them one load more.
pub struct SflowRates(WordsMut<u32>);

/// Reads what programs note.
pub struct SflowNotes(RingReader);

/// What programs count beside their notes.
#[derive(Clone)]
pub struct SflowCounts {
    words: Words<u64>,
    cpus: usize,
}

/// Counts of a port, of all CPUs together, since the program was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SflowCount {
    /// Packets that could have been samples.
    pub pool: u64,
    /// Samples that were noted.
    pub noted: u64,
    /// Samples that found no room in the ring.
    pub lost: u64,
    /// Reports of discarded packets that found no room, or were too many.
    pub unreported: u64,
}

/// A packet that a program has noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SflowNote {
    /// The ingress port's number.
    pub port: u16,
    /// The verdict's number.
    pub verdict: u8,
    /// The tier that forwards the packet.
    pub by: SampledBy,
    /// Its bytes, in all.
    pub len: u32,
    /// The packets on the wire that it stands for.
    pub packets: u32,
    /// How many samples these are.
    pub samples: u32,
    /// Whether it is a report of a discarded packet; it may be a sample, too.
    pub is_report: bool,
    /// One packet in how many is a sample.
    pub rate: u32,
    /// The ingress interface.
    pub interface: u32,
    /// The tag that the kernel took off: its type and second half.
    pub tag: Option<(u16, u16)>,
    /// The egress interface and the neighbour's Ethernet address, if a program or worker forwards it.
    pub egress: Option<(u32, [u8; 6])>,
    /// Whether it follows an entry of the flow table.
    pub is_tracked: bool,
    /// Its new ends, if it is translated.
    pub translated: Option<[(IpAddr, u16); 2]>,
    /// Its first bytes, as received, without that tag.
    pub header: Vec<u8>,
}

/// A rate that is none: programs reckon with twice as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("one packet in {0} cannot be sampled; 1 to {SFLOW_RATE_MAX} can")]
pub struct NoRate(pub u32);

/// The largest N.
pub const SFLOW_RATE_MAX: u32 = 1 << 24;

impl SflowRates {
    /// From now on one packet in `rate` that a port receives is noted; with `None` none is.
    pub fn set(&mut self, port: u16, rate: Option<u32>) -> Result<(), NoRate> {
        let rate = match rate {
            None => 0,
            Some(rate @ 1..=SFLOW_RATE_MAX) => rate,
            Some(rate) => return Err(NoRate(rate)),
        };
        if (1..PORTS).contains(&usize::from(port)) {
            self.0.publish(port.into(), rate);
        }
        Ok(())
    }

    /// The rate of a port, if it has one.
    pub fn of(&self, port: u16) -> Option<u32> {
        let rate = if usize::from(port) < PORTS { self.0.load(port.into()) } else { 0 };
        (rate > 0).then_some(rate)
    }

    /// Has packets of these verdicts reported, by each CPU at most `reports` in `ticks` of the kernel's.
    pub fn report(&mut self, verdicts: &[u8], reports: u32, ticks: u32) {
        // A packet that is forwarded is never reported: bit 0.
        let bits = verdicts.iter().fold(0, |bits, verdict| bits | 1u32 << (verdict & 31)) & !1;
        self.0.store(REPORTS, reports);
        self.0.store(PERIOD, ticks);
        self.0.publish(REPORTED, bits);
    }
}

impl SflowNotes {
    /// Hands notes to `take`, at most `max`. Returns how many.
    pub fn take(&mut self, max: usize, mut take: impl FnMut(SflowNote)) -> usize {
        for taken in 0..max {
            match self.0.next(SflowNote::read) {
                None => return taken,
                Some(note) => note.into_iter().for_each(&mut take),
            }
        }
        max
    }
}

impl AsFd for SflowNotes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl SflowCounts {
    /// The counts of a port. Zeroes for a port that cannot be.
    pub fn port(&self, port: u16) -> SflowCount {
        let mut sum = SflowCount::default();
        if usize::from(port) >= PORTS {
            return sum;
        }
        for cpu in 0..self.cpus {
            let at = (cpu * PORTS + usize::from(port)) * WORDS;
            let [skip, skips, lost, unreported, _, _, noted, _] =
                self.words.load_array::<WORDS>(at);
            // What is left of the present skip has not passed.
            sum.pool = sum.pool.wrapping_add(skips.wrapping_sub(skip & 0xffff_ffff));
            sum.noted = sum.noted.wrapping_add(noted);
            sum.lost = sum.lost.wrapping_add(lost);
            sum.unreported = sum.unreported.wrapping_add(unreported);
        }
        sum
    }
}

impl SflowNote {
    /// A `struct sflow_note`. `None` for anything shorter.
    fn read(bytes: &[u8]) -> Option<SflowNote> {
        let (head, header) = bytes.split_first_chunk::<HEAD>()?;
        let long = |at: usize| u64::from_ne_bytes(*head[at..].first_chunk().expect("it is there"));
        let short = |at: usize| u32::from_ne_bytes(*head[at..].first_chunk().expect("it is there"));
        let what = long(0);
        let is = |bit: u64| what >> bit & 1 != 0;
        let verdict = (what >> 8) as u8;
        let mac: [u8; 6] = *head[36..].first_chunk().expect("it is there");
        let ports = [head[56..58].try_into(), head[58..60].try_into()];
        let ports = ports.map(|port| u16::from_be_bytes(port.expect("two bytes")));
        let addresses: [IpAddr; 2] = if is(IS_V6) {
            let address = |at: usize| {
                let octets: [u8; 16] = *head[at..].first_chunk().expect("it is there");
                IpAddr::V6(Ipv6Addr::from(octets))
            };
            // The source of what comes the other way is the destination.
            [address(80), address(64)]
        } else {
            let address = |at: usize| {
                let octets: [u8; 4] = *head[at..].first_chunk().expect("it is there");
                IpAddr::V4(Ipv4Addr::from(octets))
            };
            [address(48), address(52)]
        };
        Some(SflowNote {
            port: (what & 0xff) as u16,
            verdict,
            by: SampledBy::of(what),
            len: (what >> 32) as u32,
            packets: short(8),
            samples: short(12),
            is_report: is(IS_REPORT),
            rate: short(16),
            interface: short(24),
            tag: is(IS_TAGGED)
                .then(|| (if is(IS_802_1AD) { 0x88a8 } else { 0x8100 }, short(28) as u16)),
            egress: (verdict == 0).then(|| (short(32), mac)),
            is_tracked: is(IS_TRACKED),
            translated: is(IS_TRANSLATED)
                .then(|| [(addresses[0], ports[0]), (addresses[1], ports[1])]),
            header: header[..header.len().min(short(20) as usize)].to_vec(),
        })
    }
}

/// Makes the memory for `cpus` CPUs, and adds it to `maps`.
pub(super) fn create(maps: &mut Maps, cpus: usize) -> Result<Sflow, BpfError> {
    let rates = maps.add("sflow_rates", PORTS + 16)?;
    let counts = maps.add::<u64>("sflow_counts", cpus * PORTS * WORDS)?;
    // Programs alone read and write it.
    maps.add::<u64>("sflow_kept", cpus * KEPT_WORDS)?;
    let ring = maps.add_ring("sflow_ring", RING_BYTES)?;
    Ok(Sflow {
        rates: SflowRates(rates),
        notes: SflowNotes(ring),
        counts: SflowCounts { words: counts.reader(), cpus },
    })
}

// As in `sflow.h`.
const REPORTED: usize = PORTS;
const REPORTS: usize = PORTS + 1;
const PERIOD: usize = PORTS + 2;
const WORDS: usize = 8;
const KEPT_WORDS: usize = 24;
/// Bytes in front of the packet's.
const HEAD: usize = 96;
const IS_TAGGED: u64 = 24;
const IS_802_1AD: u64 = 25;
const IS_TRANSLATED: u64 = 26;
const IS_V6: u64 = 27;
const IS_REPORT: u64 = 28;
const IS_TRACKED: u64 = 29;

/// Room for some 4,500 notes: 50 ms of 90,000 samples a second.
const RING_BYTES: u32 = 1 << 20;
