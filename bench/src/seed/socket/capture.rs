//! How fast captures are written to a file without loss: a worker forwards on one core, a reader has the other.

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use manylane_io::affinity;
use manylane_sync::counters::SharedCount;
use manylane_sync::primitive::{AtomicBool, Ordering};
use manylane_sync::rcu::Domain;
use manylane_sync::ring::{Consumer, Producer, ring};

use super::contestant::{Captures, Drain};
use super::load::{Arrival, Bed, Load};
use crate::figure::Rounds;

/// Bytes of a packet on the wire.
pub const LEN: usize = 1514;
/// Packets that may wait for the reader: 8 MiB.
const WAITING: usize = 4096;

/// What is measured.
pub struct Extent {
    /// How long packets come at each rate that is tried.
    pub slice: Duration,
    /// How many rates are tried, each in the middle of what is left.
    pub steps: usize,
}

/// Measures with packets cut to 128 bytes, and whole.
pub fn measure<C: Captures>(
    bed: &Bed,
    cores: &[usize],
    extent: &Extent,
    rounds: &mut Rounds,
    make: impl Fn(&Domain, usize) -> C,
) -> io::Result<()> {
    for (name, snap) in [("snap128", 128), ("full", LEN)] {
        let mut contestant = make(&bed.domain, snap);
        let load = Load::begin(bed, &cores[..1], LEN, |place| contestant.tap(place))?;
        let (socket, reader) = contestant.capture()?;
        let (mpps, load) = lossless(load, reader, cores[1], extent)?;
        contestant.close(socket)?;
        load.end()?;
        let named = |unit| format!("{}capture_{name}_{unit}", contestant.prefix());
        rounds.push(&named("mpps"), "Mpps", Some(mpps));
        rounds.push(&named("gbps"), "Gb/s", Some(mpps * snap as f64 * 8e-3));
    }
    Ok(())
}

/// The highest of the rates that were tried at which nothing was lost, in million packets a second.
fn lossless<R: Drain>(
    mut load: Load,
    reader: R,
    core: usize,
    extent: &Extent,
) -> io::Result<(f64, Load)> {
    let lost = reader.lost();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writes = scope.spawn(|| write(reader, core, &stop));
        let _stopping = Stopping(&stop);
        load.set(Arrival::Always);
        let (most, ()) = load.rate(|| rest(extent.slice))?;
        load.set(Arrival::Idle);
        let (mut least, mut most) = (0.0, most);
        for step in 0..extent.steps {
            let wanted = if step == 0 { most } else { (least + most) / 2.0 };
            let before = lost.load();
            load.set(Arrival::Every((1e6 / wanted).min(GAP_PS_MAX) as u64));
            let (rate, ()) = load.rate(|| rest(extent.slice))?;
            load.set(Arrival::Idle);
            match lost.load() == before {
                true => least = rate.max(least),
                false => most = wanted,
            }
            if least >= most {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        writes.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((least, load))
    })
}

fn rest(length: Duration) -> io::Result<()> {
    thread::sleep(length);
    Ok(())
}

/// Stops the reader, also when something else failed.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes what comes to a file that nobody else sees, over and over.
fn write(mut reader: impl Drain, core: usize, stop: &AtomicBool) -> io::Result<()> {
    affinity::pin(core)?;
    let name = format!("manylane-bench-{}", process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    let file = File::create(&path)?;
    fs::remove_file(path)?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        let bytes = reader.drain(&mut file)?;
        written += bytes;
        if bytes == 0 {
            thread::yield_now();
        }
        if written > FILE_BYTES {
            (written, _) = (0, file.rewind()?);
        }
    }
    file.flush()
}

/// A packet a millisecond: less is no rate.
const GAP_PS_MAX: f64 = 1e9;
/// Then it begins again: what a disk takes for ever is not the question.
const FILE_BYTES: u64 = 256 << 20;

/// A worker's end of what copies packets one by one.
pub struct Copying {
    empty: Consumer<Vec<u8>>,
    full: Producer<Vec<u8>>,
    lost: Arc<SharedCount>,
    snap: usize,
}

/// The reader's end.
pub struct Copied {
    empty: Producer<Vec<u8>>,
    full: Consumer<Vec<u8>>,
    lost: Arc<SharedCount>,
}

/// Buffers that go round between a worker and a reader.
pub fn copies(snap: usize) -> (Copying, Copied) {
    let (mut give, empty) = ring(WAITING);
    let (full, take) = ring(WAITING);
    for _ in 0..WAITING {
        give.push(Vec::with_capacity(LEN)).expect("there is room for all");
    }
    give.submit();
    let lost = Arc::new(SharedCount::default());
    let copying = Copying { empty, full, lost: lost.clone(), snap };
    (copying, Copied { empty: give, full: take, lost })
}

impl Copying {
    /// Copies a packet, or loses it.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) {
        let Some(mut buffer) = self.empty.pop() else {
            self.lost.add(1);
            return;
        };
        buffer.clear();
        buffer.extend_from_slice(&bytes[..bytes.len().min(self.snap)]);
        self.full.push(buffer).expect("there are no more buffers than places");
    }

    /// Shows what was copied in a batch.
    #[inline]
    pub fn submit(&mut self) {
        self.empty.release(); // First: the reader may give a buffer back at once.
        self.full.submit();
    }
}

impl Drain for Copied {
    fn drain(&mut self, to: &mut impl Write) -> io::Result<u64> {
        let mut bytes = 0;
        while let Some(buffer) = self.full.pop() {
            to.write_all(&[0; RECORD])?;
            to.write_all(&buffer)?;
            bytes += (RECORD + buffer.len()) as u64;
            self.empty.push(buffer).expect("there are no more buffers than places");
        }
        self.full.release();
        self.empty.submit();
        Ok(bytes)
    }

    fn lost(&self) -> Arc<SharedCount> {
        self.lost.clone()
    }
}

/// Bytes before each packet, as in a pcap file.
const RECORD: usize = 16;
