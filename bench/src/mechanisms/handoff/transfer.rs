//! The floor: what moving a frame's two lines to another core and back takes.
//!
//! One core writes the line of the packet and that of the metadata, the other reads and writes both; indices go
//! through the product's rings, 64 at a time, and nothing else is done. Each prefetches what it is about to
//! touch. No hand-off of frames that the receiver writes can cost less than this, both sides
//! together, less what one core alone takes to write and read lines that it has.

use manylane_sync::words::{prefetch, prefetch_to_write};

use crate::prelude::*;

/// In circulation: as many as two workers have in their lists and between them.
const FRAMES: usize = 4096;

type Line = CacheAligned<AtomicU64>;

/// Two cores and the lines between them.
pub struct Transfer {
    lines: Vec<[Line; 2]>,
    first: Mutex<Side>,
    second: Mutex<Side>,
}

struct Side {
    from: Consumer<u32>,
    to: Producer<u32>,
}

impl Transfer {
    /// With all frames at the first core's side.
    pub fn new() -> Transfer {
        let (mut back, free) = ring(FRAMES);
        let (there, arrived) = ring(1024);
        (0..FRAMES as u32).for_each(|frame| back.push(frame).expect("it has room for all"));
        back.submit();
        let line = || CacheAligned(AtomicU64::new(0));
        Transfer {
            lines: (0..FRAMES).map(|_| [line(), line()]).collect(),
            first: Mutex::new(Side { from: free, to: there }),
            second: Mutex::new(Side { from: arrived, to: back }),
        }
    }

    /// Nanoseconds a frame.
    pub fn measure(&self, bench: &mut Bench) -> Result {
        let slice = bench.slice(2, |thread, lap| {
            let mut side = lock(if thread == 0 { &self.first } else { &self.second });
            let mut watch = lap.start();
            let mut frames = 0;
            while watch.look() < lap.length() {
                for _ in 0..8 {
                    frames += side.turn(&self.lines, thread == 0);
                }
            }
            // Both move the same frames: the side counts them where they come back.
            watch.share(if thread == 0 { 0 } else { frames })
        })?;
        bench.ns("transfer_ns", slice.map(|slice| slice.ns() / 2.0));
        Ok(())
    }
}

impl Side {
    fn turn(&mut self, lines: &[[Line; 2]], writes_only: bool) -> u64 {
        if self.to.room(BATCH_MAX) < BATCH_MAX || self.from.waiting() < BATCH_MAX {
            spin_loop();
            return 0;
        }
        let mut batch = [0; BATCH_MAX];
        for (place, frame) in batch.iter_mut().zip(self.from.pop_up_to(BATCH_MAX)) {
            *place = frame;
        }
        self.from.release();
        for line in batch.iter().flat_map(|&frame| &lines[frame as usize]) {
            if writes_only { prefetch_to_write(line) } else { prefetch(line) }
        }
        for &frame in &batch {
            for line in &lines[frame as usize] {
                // Relaxed: the rings order what is in the lines.
                let word = if writes_only { 1 } else { line.load(Ordering::Relaxed) };
                line.store(word + u64::from(frame), Ordering::Relaxed);
            }
        }
        let pushed = self.to.push_all(&mut batch.into_iter());
        debug_assert_eq!(pushed, BATCH_MAX);
        self.to.submit();
        BATCH_MAX as u64
    }
}
