//! How fast captures are written to a file without loss: a worker forwards on one core, a reader has the other.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, Write};
use std::process;

use super::contestant::{Drain, Taps};
use super::load::Load;
use crate::prelude::*;
use crate::router::Ground;

/// Bytes of a packet on the wire.
pub const LEN: usize = 1514;
/// Packets that may wait for the reader: 8 MiB.
const WAITING: usize = 4096;

pub struct Extent {
    /// How long packets arrive at each rate that is tried.
    pub slice: Duration,
    /// How many rates are tried, each in the middle of what is left.
    pub steps: usize,
}

/// Measures with packets cut to 128 bytes, and whole.
pub fn measure<C: Taps>(
    ground: &Ground,
    bench: &mut Bench,
    extent: &Extent,
    make: impl Fn(&Domain, usize) -> C,
) -> Result {
    let [first, second] = [bench.cores()[0], bench.cores()[1]];
    for (name, snap) in [("snap128", 128), ("full", LEN)] {
        let mut contestant = make(&ground.domain, snap);
        let load = Load::begin(ground, &[first], LEN, &mut contestant)?;
        let (socket, reader) = contestant.capture()?;
        let (mpps, load) = lossless(load, reader, second, extent)?;
        contestant.close(socket)?;
        load.end()?;
        let named = |unit| format!("{}capture_{name}_{unit}", contestant.prefix());
        bench.push(&named("mpps"), "Mpps", Some(mpps));
        bench.push(&named("gbps"), "Gb/s", Some(mpps * snap as f64 * 8e-3));
    }
    Ok(())
}

/// The highest of the rates that were tried at which nothing was lost, in million packets a second.
fn lossless<R: Drain>(
    mut load: Load,
    reader: R,
    core: usize,
    extent: &Extent,
) -> Result<(f64, Load)> {
    let lost = reader.lost();
    let stop = AtomicBool::new(false);
    let rest = || {
        thread::sleep(extent.slice);
        Ok(())
    };
    thread::scope(|scope| {
        let writes = scope.spawn(|| write(reader, core, &stop));
        let _stopping = Stopping(&stop);
        load.set(Arrival::Always);
        let (most, ()) = load.rate(rest)?;
        load.set(Arrival::Off);
        let (mut least, mut most) = (0.0, most);
        for step in 0..extent.steps {
            let wanted = if step == 0 { most } else { (least + most) / 2.0 };
            let before = lost.load();
            load.set(Arrival::Every((1e6 / wanted).min(GAP_PS_MAX) as u64));
            let (rate, ()) = load.rate(rest)?;
            load.set(Arrival::Off);
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

/// Writes what arrives to a file without a name, over and over.
fn write(mut reader: impl Drain, core: usize, stop: &AtomicBool) -> Result {
    affinity::pin(core)?;
    let path = std::env::temp_dir().join(format!("manylane-bench-capture-{}", process::id()));
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
    Ok(file.flush()?)
}

/// A packet a millisecond: less is no rate.
const GAP_PS_MAX: f64 = 1e9;
/// Then the file begins again: how long a disk takes so much is not the question.
const FILE_BYTES: u64 = 256 << 20;

/// A worker's end of what copies packets one by one.
pub struct Copying {
    empty: Consumer<Vec<u8>>,
    full: Producer<Vec<u8>>,
    lost: Arc<SharedCount>,
    snap: usize,
}

pub struct Copied {
    empty: Producer<Vec<u8>>,
    full: Consumer<Vec<u8>>,
    lost: Arc<SharedCount>,
}

/// Buffers that circulate between a worker and a reader.
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
    fn drain(&mut self, to: &mut impl Write) -> Result<u64> {
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
