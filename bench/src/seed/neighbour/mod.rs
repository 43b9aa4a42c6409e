//! What does it cost to send to one neighbour from many cores?
//!
//! A frame: 64 bytes are written into it as by a device; then the neighbour is found, the link-layer
//! header written, and TTL and checksum are decremented.
//!
//! | name       | the neighbour                                                                       |
//! |------------|-------------------------------------------------------------------------------------|
//! | `before`   | the header cache made anew for each frame: lock written, two atomics on its count   |
//! | `nocache`  | the source's fix (`DST_NOCACHE`): lock read                                         |
//! | `manylane` | next hop and adjacency, by index; a guard and a `quiescent` for each 64 frames      |
//!
//! `baseline/neighbour.rs` has the first two. All three do the same besides, in the same loop. Frames
//! are 2048 bytes apart, as in a region, so that all of a thread's lie in two sets of the first-level cache
//! (32 KiB in 8 ways: 16 lines for 64 frames) and come from the second. These reads are part of every row,
//! and of `fresh_ns`, which is the writing of the frames alone.
//!
//! | figure                               | what                                                      |
//! |--------------------------------------|-----------------------------------------------------------|
//! | `<name>_ns_1t`, `<name>_ns`          | a frame with one thread, with two (elapsed x threads / frames) |
//! | `<name>_cpu_ns_1t`, `<name>_cpu_ns`  | CPU time of all threads for it                            |
//! | `nocache_gain`, `manylane_gain`      | `before` over it, two threads; `_1t`: one                 |
//! | `manylane_gain_net`                  | `manylane_gain`, `fresh_ns` taken off both                |
//! | `scaling_2`                          | frames of two threads for each of twice one thread's      |
//! | `forward_...`, `forward_..._b1`      | all of these of the whole forwarding path, by batches and frame by frame (`forward.rs` says what each favours) |
//! | `changing_ns`                        | `manylane` while another thread changes the address       |
//! | `changes_per_s`                      | how often it did so                                       |
//! | `mixed_frames`                       | frames with parts of two addresses: an error unless 0     |
//! | `<name>_shared_writes_per_frame`     | lines that two workers took from each other, counted in lockstep |
//! | `shared_writes_per_frame`            | manylane's: an error unless 0                             |
//! | `run_<name>_wall_s`, `_cpu_s`        | `--frames` frames by two threads; also `run_forward_...`  |
//!
//! Not measured here: more than one neighbour, more than two threads.
//!
//! Needs two cores with nothing else on them.

mod forward;
mod own;

use manylane_net::neighbour::AdjacencyState;

use super::{Plan, interleave};
use crate::baseline::neighbour::Table;
use crate::prelude::*;
use crate::scale;
use crate::threads::cpu_time;
use forward::Forwarding;
use own::{ADDRESS, MAC, OURS, Own};

/// Measures and prints; where the plan has a number of frames, sends these by each design besides.
pub fn run(plan: &Plan, output: &Output) -> Result {
    // The child's figures, which are exact.
    for row in scale::counted(plan.pace.quick, Some("neighbour"))? {
        output.show(row);
    }
    measure(plan, plan.frames(), output)
}

/// What can be measured, without what is counted.
pub fn measure(plan: &Plan, frames: Option<u64>, output: &Output) -> Result {
    output.note("ns a frame to one neighbour; without a suffix, two threads");
    let table = Arc::new(old_table());
    let (before, nocache) = (Old::<true>(table.clone()), Old::<false>(table));
    let manylane = Own::new(2);
    let forwarding = Forwarding::new()?;
    let rows: [(&str, &dyn Row); 3] =
        [("before", &before), ("nocache", &nocache), ("manylane", &manylane)];
    let round = |bench: &mut Bench| {
        let fresh = Fresh.measure(bench, 1)?;
        bench.ns("fresh_ns", fresh.map(|(ns, _)| ns));
        for threads in [1, 2] {
            for (name, row) in rows {
                let measured = row.measure(bench, threads)?;
                push(bench, name, "", threads, measured);
            }
        }
        for threads in [1, 2] {
            for (lanes, order) in [(&forwarding.batched, ""), (&forwarding.singly, "_b1")] {
                for lanes in lanes {
                    let measured = lanes.measure(bench, threads)?;
                    push(bench, &format!("forward_{}", lanes.name), order, threads, measured);
                }
            }
        }
        changing(&manylane, bench)
    };
    interleave(plan, output, round, |rounds| {
        for (prefix, order) in [("", ""), ("forward_", ""), ("forward_", "_b1")] {
            for way in ["nocache", "manylane"] {
                // The path's gain is `forward_gain`, as the mechanism's is `manylane_gain`.
                let name = match (prefix, way) {
                    ("forward_", "manylane") => "forward".into(),
                    _ => format!("{prefix}{way}"),
                };
                for end in ["", "_1t"] {
                    let [over, under] =
                        ["before", way].map(|of| format!("{prefix}{of}_ns{order}{end}"));
                    rounds.ratio(&format!("{name}_gain{order}{end}"), &over, &under);
                }
            }
            for (name, way) in [("", "manylane"), ("before_", "before"), ("nocache_", "nocache")] {
                let two = format!("{prefix}{way}_ns{order}");
                let name = format!("{prefix}{name}scaling_2{order}");
                rounds.ratio(&name, &format!("{two}_1t"), &two);
            }
        }
        rounds.ratio_net("manylane_gain_net", "before_ns", "manylane_ns", "fresh_ns");
    })?;
    match frames {
        Some(frames) => whole_run(plan, frames, rows, &forwarding, output),
        None => Ok(()),
    }
}

fn push(bench: &mut Bench, name: &str, order: &str, threads: usize, measured: Option<(f64, f64)>) {
    let end = if threads == 1 { "_1t" } else { "" };
    bench.ns(&format!("{name}_ns{order}{end}"), measured.map(|(ns, _)| ns));
    bench.ns(&format!("{name}_cpu_ns{order}{end}"), measured.map(|(_, cpu_ns)| cpu_ns));
}

/// The address changes every millisecond. Its bytes, and those of our own address that go with it, are all equal: a
/// header in which two differ is a mixture of two.
fn changing(manylane: &Own, bench: &mut Bench) -> Result {
    const EVERY: Duration = Duration::from_millis(1);
    let [mixed, changes] = [const { CacheAligned(AtomicU64::new(0)) }; 2];
    manylane.set_address([0; 6], [0; 6]);
    let slice = bench.slice(2, |thread, lap| match thread {
        0 => {
            let (mut reader, mut frames) = (manylane.join(), Frames::new());
            let mut found = 0;
            let share = lap.run(|| {
                manylane.batch(&mut reader, &mut frames);
                let is_mixed = |head: &&[u8; 34]| !head[..12].iter().all(|byte| *byte == head[0]);
                found += frames.heads().filter(is_mixed).count();
            });
            // Relaxed, and below: the threads' ends order.
            mixed.fetch_add(found as u64, Ordering::Relaxed);
            share
        }
        _ => {
            let mut next = Instant::now() + EVERY;
            let mut made = 0;
            let share = lap.run_of(1, || {
                if Instant::now() >= next {
                    next += EVERY;
                    made += 1;
                    manylane.set_address([made as u8; 6], [made as u8; 6]);
                }
                spin_loop();
            });
            changes.fetch_add(made, Ordering::Relaxed);
            share
        }
    })?;
    manylane.set_address(MAC, OURS);
    let mixed = mixed.load(Ordering::Relaxed);
    if mixed > 0 {
        return Err(format!("{mixed} frames have parts of two addresses").into());
    }
    bench.push("mixed_frames", "count", Some(mixed as f64));
    let reader = slice.as_ref().map(|slice| slice.of(0));
    bench.ns("changing_ns", reader.map(Share::ns));
    let seconds = reader.map(|share| share.ns() * share.operations() as f64 / 1e9);
    let changes = changes.load(Ordering::Relaxed) as f64;
    bench.push("changes_per_s", "1/s", seconds.map(|seconds| changes / seconds));
    Ok(())
}

fn old_table() -> Table {
    Table::new(&[(ADDRESS.into(), MAC)], OURS)
}

struct Frames {
    slots: Vec<Slot>,
    template: [u8; FRAME_LEN],
}

/// 2048 bytes. The packet takes a line of them, behind the headroom.
#[repr(align(64))]
struct Slot([u8; 2048]);

const HEAD: usize = 256;

impl Frames {
    fn new() -> Frames {
        let slots = (0..BATCH_MAX).map(|_| Slot([0; 2048])).collect();
        Frames { slots, template: ipv4_template(DESTINATION, FRAME_LEN).0 }
    }

    /// Writes each frame, and gives it to `go`.
    #[inline(always)]
    fn each(&mut self, mut go: impl FnMut(&mut [u8; 34])) {
        for Slot(slot) in &mut self.slots {
            let packet = slot[HEAD..].first_chunk_mut::<FRAME_LEN>().expect("the slot is longer");
            *packet = self.template;
            // What a device has written is in memory, whatever is written over it next.
            go(black_box(packet).first_chunk_mut().expect("the frame is longer"));
        }
    }

    /// What the frames begin with.
    fn heads(&self) -> impl Iterator<Item = &[u8; 34]> {
        self.slots.iter().map(|Slot(slot)| slot[HEAD..].first_chunk().expect("the slot is longer"))
    }
}

/// Counts TTL and checksum down, as the product does (RFC 1141).
#[inline(always)]
fn age(head: &mut [u8; 34]) {
    head[22] -= 1;
    let sum = u32::from(u16::from_be_bytes([head[24], head[25]])) + 0x0100;
    let sum = (sum + u32::from(sum >= 0xffff)) as u16;
    [head[24], head[25]] = sum.to_be_bytes();
}

/// A design's loop.
trait Way: Sync {
    type Own;

    fn join(&self) -> Self::Own;

    /// [`BATCH_MAX`] frames.
    fn batch(&self, own: &mut Self::Own, frames: &mut Frames);
}

/// A way's loop, compiled for it alone.
trait Row: Sync {
    /// Nanoseconds a frame, and of CPU time. An error when the frames are not what they should be.
    fn measure(&self, bench: &mut Bench, threads: usize) -> Result<Option<(f64, f64)>>;

    fn send(&self, frames: u64);
}

impl<W: Way> Row for W {
    fn measure(&self, bench: &mut Bench, threads: usize) -> Result<Option<(f64, f64)>> {
        bench.with_cpu(threads, |_, lap| {
            let (mut own, mut frames) = (self.join(), Frames::new());
            let share = lap.run_of(BATCH_MAX as u64, || self.batch(&mut own, &mut frames));
            frames.check();
            share
        })
    }

    fn send(&self, frames: u64) {
        let (mut own, mut memory) = (self.join(), Frames::new());
        (0..frames.div_ceil(BATCH_MAX as u64)).for_each(|_| self.batch(&mut own, &mut memory));
        memory.check();
    }
}

impl Frames {
    /// Each frame is for the neighbour, is a hop older, and its checksum is right.
    fn check(&self) {
        let mut expected = self.template;
        if self.heads().all(|head| head[..] == expected[..34]) {
            return; // Only written, by `Fresh`.
        }
        expected[..6].copy_from_slice(&MAC);
        expected[6..12].copy_from_slice(&OURS);
        age(expected.first_chunk_mut().expect("it is longer"));
        for head in self.heads() {
            assert_eq!(head[..], expected[..34], "the frame has the neighbour's header");
        }
    }
}

struct Fresh;

impl Way for Fresh {
    type Own = ();

    fn join(&self) {}

    #[inline(always)]
    fn batch(&self, (): &mut (), frames: &mut Frames) {
        frames.each(|_| ());
    }
}

/// As the kernel had it, before or with the source's fix.
struct Old<const BEFORE: bool>(Arc<Table>);

impl<const BEFORE: bool> Way for Old<BEFORE> {
    /// The address, which the compiler must not know.
    type Own = u32;

    fn join(&self) -> u32 {
        black_box(ADDRESS.into())
    }

    #[inline(always)]
    fn batch(&self, address: &mut u32, frames: &mut Frames) {
        frames.each(|head| {
            age(head);
            let header = head.first_chunk_mut().expect("it is longer");
            let known = match BEFORE {
                true => self.0.before(*address, header),
                false => self.0.nocache(*address, header),
            };
            assert!(known, "the table has the neighbour");
        });
    }
}

impl Way for Own {
    type Own = (Reader, u32);

    fn join(&self) -> Self::Own {
        let reader = self.domain.register().expect("there is a place for each thread");
        (reader, black_box(self.id()))
    }

    /// One guard and one `quiescent` for all, as in a worker's turn.
    #[inline(always)]
    fn batch(&self, (reader, id): &mut Self::Own, frames: &mut Frames) {
        let guard = reader.guard();
        frames.each(|head| {
            let adjacency = self.adjacency(guard, *id);
            let len = u32::from(u16::from_be_bytes([head[16], head[17]]));
            assert!(adjacency.state() == AdjacencyState::Resolved && len <= adjacency.mtu());
            age(head);
            adjacency.write_ethernet(head.first_chunk_mut().expect("it is longer"));
        });
        reader.quiescent();
    }
}

/// `frames` frames by each design, half of them by each thread.
fn whole_run(
    plan: &Plan,
    frames: u64,
    rows: [(&str, &dyn Row); 3],
    forwarding: &Forwarding,
    output: &Output,
) -> Result {
    let bench = Bench::new(&plan.cores, plan.pace.quick)?;
    for (name, row) in rows {
        by_two(&bench, &format!("run_{name}"), output, |_| row.send(frames / 2))?;
    }
    for lanes in &forwarding.batched {
        by_two(&bench, &format!("run_forward_{}", lanes.name), output, |thread| {
            lanes.send(thread, frames / 2);
        })?;
    }
    output.figure("run_frames", "count", &[(frames / 2 * 2) as f64]);
    Ok(())
}

/// Wall and CPU seconds of what two threads do.
fn by_two(bench: &Bench, name: &str, output: &Output, work: impl Fn(usize) + Sync) -> Result {
    let times = bench.once(|thread| {
        let (start, cpu) = (Instant::now(), cpu_time());
        work(thread);
        (start, Instant::now(), cpu_time() - cpu)
    })?;
    let (one, other) = (times[0], times[1]);
    let wall = one.1.max(other.1) - one.0.min(other.0);
    output.figure(&format!("{name}_wall_s"), "s", &[wall.as_secs_f64()]);
    output.figure(&format!("{name}_cpu_s"), "s", &[(one.2 + other.2).as_secs_f64()]);
    Ok(())
}
