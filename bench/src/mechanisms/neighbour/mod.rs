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
use forward::Forwarding;
use own::{ADDRESS, MAC, OURS, Own};

/// Measures and prints; where the plan has a number of frames, sends these by each design besides.
pub fn run(plan: &Plan, output: &Output) -> Result {
    // The child's figures, which are exact.
    for row in scale::counted(plan.pace.quick, Some("neighbour"))? {
        output.show(row);
    }
    output.note("ns a frame to one neighbour; without a suffix, two threads");
    let (table, manylane) = (old_table(), Own::new(2));
    let forwarding = Forwarding::new()?;
    // Each loop is compiled for its design alone; what is dynamic is which loop runs.
    let mut rows: Vec<(&str, &str, Box<Loop<'_>>)> = vec![
        ("before", "", Box::new(|_, lap| old(lap, &table, Table::before))),
        ("nocache", "", Box::new(|_, lap| old(lap, &table, Table::nocache))),
        ("manylane", "", Box::new(|_, lap| by_ours(&manylane, lap))),
    ];
    for lanes in &forwarding.all {
        rows.push((&lanes.name, lanes.order, Box::new(|thread, lap| lanes.run(thread, lap))));
    }
    let round = |bench: &mut Bench| {
        bench.time("fresh_ns", 1, |_, lap| sent(&lap, |frames| frames.each(|_| ())))?;
        for (threads, end) in [(1, "_1t"), (2, "")] {
            for (name, order, row) in &rows {
                let (ns, cpu_ns) =
                    bench.with_cpu(threads, |number, lap| row(number, &lap))?.unzip();
                bench.ns(&format!("{name}_ns{order}{end}"), ns);
                bench.ns(&format!("{name}_cpu_ns{order}{end}"), cpu_ns);
            }
        }
        let net = |name: &str| Some(bench.rounds.last(name)? - bench.rounds.last("fresh_ns")?);
        let net = net("before_ns").zip(net("manylane_ns")).map(|(before, ours)| before / ours);
        bench.push("manylane_gain_net", "x", net);
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
    })?;
    let Some(frames) = plan.frames() else { return Ok(()) };
    // Half of the frames by each thread.
    let bench = Bench::new(&plan.cores, plan.pace.quick)?;
    for (name, _, row) in rows.iter().filter(|(_, order, _)| order.is_empty()) {
        let (ns, cpu_ns) = bench.whole(frames / 2, |number, lap| row(number, &lap))?;
        let seconds = |ns: f64| [ns * frames as f64 / 1e9];
        output.figure(&format!("run_{name}_wall_s"), "s", &seconds(ns / 2.0));
        output.figure(&format!("run_{name}_cpu_s"), "s", &seconds(cpu_ns));
    }
    output.figure("run_frames", "count", &[frames as f64]);
    Ok(())
}

/// What a thread, by its number, does for a slice.
type Loop<'a> = dyn Fn(usize, &Lap<'_>) -> Share + Sync + 'a;

/// The address changes every millisecond. Its bytes, and those of our own address that go with it, are all equal: a
/// header in which two differ is a mixture of two.
fn changing(manylane: &Own, bench: &mut Bench) -> Result {
    const EVERY: Duration = Duration::from_millis(1);
    let [mixed, changes] = [const { CacheAligned(AtomicU64::new(0)) }; 2];
    manylane.set_address([0; 6], [0; 6]);
    let slice = bench.slice(2, |thread, lap| match thread {
        0 => {
            let (mut sender, mut frames) = (join(manylane), Frames::new());
            let mut found = 0;
            let share = lap.run(|| {
                send(manylane, &mut sender, &mut frames);
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

/// Sends batches for a slice, and looks at the frames of the last one.
#[inline(always)]
fn sent(lap: &Lap<'_>, mut batch: impl FnMut(&mut Frames)) -> Share {
    let mut frames = Frames::new();
    let share = lap.run_of(BATCH_MAX as u64, || batch(&mut frames));
    frames.check();
    share
}

impl Frames {
    /// Each frame is for the neighbour, is a hop older, and its checksum is right.
    fn check(&self) {
        let mut expected = self.template;
        if self.heads().all(|head| head[..] == expected[..34]) {
            return; // Only written, for `fresh_ns`.
        }
        expected[..6].copy_from_slice(&MAC);
        expected[6..12].copy_from_slice(&OURS);
        age(expected.first_chunk_mut().expect("it is longer"));
        for head in self.heads() {
            assert_eq!(head[..], expected[..34], "the frame has the neighbour's header");
        }
    }
}

/// As the kernel had it, before or with the source's fix.
#[inline(always)]
fn old(lap: &Lap<'_>, table: &Table, make: impl Fn(&Table, u32, &mut [u8; 14]) -> bool) -> Share {
    let address = black_box(ADDRESS.into()); // The compiler must not know it.
    sent(lap, |frames| {
        frames.each(|head| {
            age(head);
            let known = make(table, address, head.first_chunk_mut().expect("it is longer"));
            assert!(known, "the table has the neighbour");
        });
    })
}

fn by_ours(manylane: &Own, lap: &Lap<'_>) -> Share {
    let mut sender = join(manylane);
    sent(lap, |frames| send(manylane, &mut sender, frames))
}

/// A thread that sends: a reader, and the id that its lookups find.
fn join(manylane: &Own) -> (Reader, u32) {
    let reader = manylane.domain.register().expect("there is a place for each thread");
    (reader, black_box(manylane.id()))
}

/// Sends a batch. One guard and one `quiescent` for all, as in a worker's turn.
#[inline(always)]
fn send(manylane: &Own, (reader, id): &mut (Reader, u32), frames: &mut Frames) {
    let guard = reader.guard();
    frames.each(|head| {
        let adjacency = manylane.adjacency(guard, *id);
        let len = u32::from(u16::from_be_bytes([head[16], head[17]]));
        assert!(adjacency.state() == AdjacencyState::Resolved && len <= adjacency.mtu());
        age(head);
        adjacency.write_ethernet(head.first_chunk_mut().expect("it is longer"));
    });
    reader.quiescent();
}
