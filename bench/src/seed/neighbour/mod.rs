//! What does it cost to send to one neighbour from many cores?
//!
//! A frame: 64 bytes are written into it as by a device; then its way out finds the neighbour, writes
//! the link-layer header, and counts TTL and checksum down.
//!
//! | name       | the neighbour                                                                       |
//! |------------|-------------------------------------------------------------------------------------|
//! | `before`   | the header cache made anew for each frame: lock written, two atomics on its count   |
//! | `nocache`  | the source's fix (`DST_NOCACHE`): lock read                                         |
//! | `manylane` | next hop and adjacency, by index; a guard and a `quiescent` for each 64 frames      |
//!
//! `baseline/neighbour.rs` has the first two. All three do the same besides, in the same loop. Frames
//! are 2048 bytes apart, as in a region, so that all of a thread's lie in two sets of the first-level cache
//! (32 KiB in 8 ways: 16 lines for 64 frames) and come from the second. That is part of every row,
//! and of `fresh_ns`, which is the writing of the frames alone.
//!
//! | figure                               | what                                                      |
//! |--------------------------------------|-----------------------------------------------------------|
//! | `<name>_ns_1t`, `<name>_ns`          | a frame with one thread, with two (elapsed x threads / frames) |
//! | `<name>_cpu_ns_1t`, `<name>_cpu_ns`  | CPU time of all threads for it                            |
//! | `nocache_gain`, `manylane_gain`      | `before` over it, two threads; `_1t`: one                 |
//! | `manylane_gain_net`                  | the same, `fresh_ns` taken off both                       |
//! | `scaling_2`                          | frames of two threads for each of twice one thread's      |
//! | `forward_...`, `forward_..._b1`      | all of these of the whole forwarding path, by batches and frame by frame (`forward.rs` says what each favours) |
//! | `changing_ns`                        | `manylane` while another thread changes the address       |
//! | `changes_per_s`                      | how often it did so                                       |
//! | `mixed_frames`                       | frames with parts of two addresses: an error unless 0     |
//! | `<name>_shared_writes_per_frame`     | lines that two workers took from each other, counted in lockstep |
//! | `shared_writes_per_frame`            | manylane's: an error unless 0                             |
//! | `run_<name>_wall_s`, `_cpu_s`        | `--frames` frames by two threads; also `run_forward_...`  |
//!
//! Not asked here: more than one neighbour, more than two threads.
//!
//! Needs two cores with nothing else on them.

#![allow(clippy::disallowed_types, reason = "taken from `primitive`; clippy knows them by origin")]

mod forward;

use std::hint::{black_box, spin_loop};
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use manylane_frame::BATCH_MAX;
use manylane_frame::vocabulary::PortId;
use manylane_io::affinity;
use manylane_net::fib::{NextHop as Mark, NextHopId};
use manylane_net::neighbour::{
    Adjacencies, AdjacencyState, AdjacencyTable, AdjacencyWords, Header, Key, Rewrite,
};
use manylane_net::nexthop::{NextHop, NextHops, NextHopsMut};
use manylane_net::wire::ethernet::ether_type;
use manylane_sync::CacheAligned;
use manylane_sync::primitive::{AtomicU64, Ordering};
use manylane_sync::rcu::{Domain, Index, Reader};
use manylane_sync::words::WordsMut;
use nix::time::{ClockId, clock_gettime};

use super::{Plan, interleave};
use crate::baseline::neighbour::Table;
use crate::figure::{Output, Rounds};
use crate::forward::{FRAME_LEN, ipv4_template};
use crate::scale;
use crate::threads::{Lap, Share, Team};
use forward::Forwarding;

/// Measures and prints; with `frames`, so many by each way besides.
pub fn run(plan: &Plan, frames: Option<u64>, output: &Output) -> io::Result<()> {
    shared_writes(plan.quick, output)?;
    measure(plan, frames, output)
}

/// What can be measured, without what is counted.
pub fn measure(plan: &Plan, frames: Option<u64>, output: &Output) -> io::Result<()> {
    output.note("ns a frame to one neighbour; without a suffix, two threads");
    let lab = Lab::new();
    let forwarding = Forwarding::new()?;
    let rows: [(&str, &dyn Row); 3] =
        [("before", &lab.before), ("nocache", &lab.nocache), ("manylane", &lab.manylane)];
    let round = |team: &mut Team, rounds: &mut Rounds| {
        let fresh = lab.fresh.measure(team, 1)?;
        rounds.push("fresh_ns", "ns", fresh.map(|(ns, _)| ns));
        for threads in [1, 2] {
            for (name, row) in rows {
                push(rounds, name, "", threads, row.measure(team, threads)?);
            }
        }
        for threads in [1, 2] {
            for (lanes, order) in [(forwarding.ways(), ""), (forwarding.singly(), "_b1")] {
                for lanes in lanes {
                    let measured = lanes.measure(team, threads)?;
                    push(rounds, &format!("forward_{}", lanes.name), order, threads, measured);
                }
            }
        }
        lab.changing(team, rounds)
    };
    interleave(plan, output, round, |rounds| {
        for (prefix, order) in [("", ""), ("forward_", ""), ("forward_", "_b1")] {
            for (way, of) in [("nocache", "nocache"), ("manylane", "manylane")] {
                // The path's gain is `forward_gain`, as the mechanism's is `manylane_gain`.
                let name = match (prefix, way) {
                    ("forward_", "manylane") => "forward".into(),
                    _ => format!("{prefix}{way}"),
                };
                for (suffix, end) in [("", ""), ("_1t", "_1t")] {
                    let over = format!("{prefix}before_ns{order}{end}");
                    let under = format!("{prefix}{of}_ns{order}{end}");
                    rounds.ratio(&format!("{name}_gain{order}{suffix}"), &over, &under);
                }
            }
            for (name, way) in [("", "manylane"), ("before_", "before"), ("nocache_", "nocache")] {
                let two = format!("{prefix}{way}_ns{order}");
                rounds.ratio(
                    &format!("{prefix}{name}scaling_2{order}"),
                    &format!("{two}_1t"),
                    &two,
                );
            }
        }
        rounds.ratio_net("manylane_gain_net", "before_ns", "manylane_ns", "fresh_ns");
    })?;
    match frames {
        Some(frames) => whole_run(plan, frames, rows, &forwarding, output),
        None => Ok(()),
    }
}

fn push(
    rounds: &mut Rounds,
    name: &str,
    order: &str,
    threads: usize,
    measured: Option<(f64, f64)>,
) {
    let suffix = if threads == 1 { "_1t" } else { "" };
    rounds.push(&format!("{name}_ns{order}{suffix}"), "ns", measured.map(|(ns, _)| ns));
    rounds.push(&format!("{name}_cpu_ns{order}{suffix}"), "ns", measured.map(|(_, cpu_ns)| cpu_ns));
}

/// The child's figures, which are exact.
fn shared_writes(quick: bool, output: &Output) -> io::Result<()> {
    let counted = scale::counted(quick, Some("neighbour"))?;
    for (name, lines) in counted.others() {
        output.figure(name, "lines", &[*lines]);
    }
    Ok(())
}

/// The tables that frames go by, each with the one neighbour.
struct Lab {
    fresh: Fresh,
    before: Old<true>,
    nocache: Old<false>,
    manylane: Manylane,
}

impl Lab {
    fn new() -> Lab {
        let table = Arc::new(old_table());
        let (before, nocache) = (Old(table.clone()), Old(table));
        Lab { fresh: Fresh, before, nocache, manylane: Manylane::new() }
    }

    /// The address changes every millisecond. Its bytes, and those of our own address that go with it,
    /// are all the same: a header in which two differ is of two.
    fn changing(&self, team: &mut Team, rounds: &mut Rounds) -> io::Result<()> {
        const EVERY: Duration = Duration::from_millis(1);
        let [mixed, changes] = [const { CacheAligned(AtomicU64::new(0)) }; 2];
        let manylane = &self.manylane;
        manylane.set_address([0; 6], [0; 6]);
        let slice = team.slice(2, |thread, lap| match thread {
            0 => {
                let (mut reader, mut frames) = (manylane.join(), Frames::new());
                let mut found = 0;
                let share = lap.run(|| {
                    manylane.batch(&mut reader, &mut frames);
                    found += frames
                        .heads()
                        .filter(|head| !head[..12].iter().all(|byte| *byte == head[0]))
                        .count();
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
            return Err(io::Error::other(format!("{mixed} frames have parts of two addresses")));
        }
        rounds.push("mixed_frames", "count", Some(mixed as f64));
        let reader = slice.as_ref().map(|slice| slice.of(0));
        rounds.push("changing_ns", "ns", reader.map(Share::ns));
        let seconds = reader.map(|share| share.ns() * share.operations() as f64 / 1e9);
        let changes = changes.load(Ordering::Relaxed) as f64;
        rounds.push("changes_per_s", "1/s", seconds.map(|seconds| changes / seconds));
        Ok(())
    }
}

/// The neighbour.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
const MAC: [u8; 6] = [2, 0x10, 0x10, 0x10, 0x10, 1];
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0x12];

fn old_table() -> Table {
    Table::new(&[(ADDRESS.into(), MAC)], OURS)
}

/// A thread's frames.
struct Frames {
    slots: Vec<Slot>,
    template: [u8; FRAME_LEN],
}

/// 2048 bytes, of which the packet takes a line behind the headroom.
#[repr(align(64))]
struct Slot([u8; 2048]);

const HEAD: usize = 256;

impl Frames {
    fn new() -> Frames {
        let slots = (0..BATCH_MAX).map(|_| Slot([0; 2048])).collect();
        Frames { slots, template: ipv4_template(Ipv4Addr::new(198, 51, 100, 9), FRAME_LEN).0 }
    }

    /// Writes each frame, and lets it go out.
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

/// A way out.
trait Way: Sync {
    /// What each thread has of its own.
    type Own;

    fn join(&self) -> Self::Own;

    /// [`BATCH_MAX`] frames.
    fn batch(&self, own: &mut Self::Own, frames: &mut Frames);
}

/// A way's loop, compiled for it alone.
trait Row: Sync {
    /// Nanoseconds a frame, and of CPU time. An error when the frames are not what they should be.
    fn measure(&self, team: &mut Team, threads: usize) -> io::Result<Option<(f64, f64)>>;

    /// Sends so many.
    fn send(&self, frames: u64);
}

impl<W: Way> Row for W {
    fn measure(&self, team: &mut Team, threads: usize) -> io::Result<Option<(f64, f64)>> {
        timed(team, threads, |_, lap| {
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
            assert_eq!(head[..], expected[..34], "the frame goes to the neighbour");
        }
    }
}

/// Nanoseconds a frame, and of CPU time of all threads.
fn timed(
    team: &mut Team,
    threads: usize,
    work: impl Fn(usize, Lap<'_>) -> Share + Sync,
) -> io::Result<Option<(f64, f64)>> {
    let cpu = [const { CacheAligned(AtomicU64::new(0)) }; 2];
    let slice = team.slice(threads, |thread, lap| {
        let start = cpu_time();
        let share = work(thread, lap);
        let used = cpu_time().saturating_sub(start);
        // Relaxed: the thread's end orders.
        cpu[thread].store(used.as_nanos() as u64, Ordering::Relaxed);
        share
    })?;
    let cpu_ns: u64 = cpu[..threads].iter().map(|cpu| cpu.load(Ordering::Relaxed)).sum();
    Ok(slice.map(|slice| (slice.ns(), cpu_ns as f64 / slice.operations() as f64)))
}

/// What the kernel says that this thread has used.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// The writing of the frames alone.
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

/// As it is in the product.
struct Manylane {
    domain: Domain,
    next_hops: NextHops,
    adjacencies: Adjacencies,
    table: Mutex<AdjacencyTable>,
    _next_hops: NextHopsMut,
}

const SLOT: u32 = 1;

impl Manylane {
    fn new() -> Manylane {
        let domain = Domain::new(2);
        let mut next_hops = NextHopsMut::new(WordsMut::zeroed(16));
        next_hops.set(hop(), NextHop::Via(SLOT));
        let table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(16));
        let manylane = Manylane {
            domain,
            next_hops: next_hops.reader(),
            adjacencies: table.reader(),
            table: Mutex::new(table),
            _next_hops: next_hops,
        };
        manylane.set_address(MAC, OURS);
        manylane
    }

    fn set_address(&self, mac: [u8; 6], ours: [u8; 6]) {
        let key = Key { port: PortId(1), addr: ADDRESS.into() };
        let header = Header::ethernet(mac, ours, ether_type::IPV4);
        let rewrite =
            Rewrite { key, egress: key.port, state: AdjacencyState::Resolved, header, mtu: 1500 };
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.publish(SLOT, &rewrite).expect("readers are quiescent more often than it changes");
    }
}

fn hop() -> NextHopId {
    NextHopId::new(7).expect("it is small")
}

impl Way for Manylane {
    type Own = (Reader, u32);

    fn join(&self) -> Self::Own {
        let reader = self.domain.register().expect("there is a place for each thread");
        (reader, black_box(hop().raw().into()))
    }

    /// One guard and one `quiescent` for all, as in a worker's turn.
    #[inline(always)]
    fn batch(&self, (reader, id): &mut Self::Own, frames: &mut Frames) {
        let guard = reader.guard();
        frames.each(|head| {
            let id: Index<'_, Mark> = Index::new(guard, *id);
            let neighbour = self.next_hops.via(guard, id).expect("it leads to a neighbour");
            let adjacency = self.adjacencies.load(guard, neighbour);
            let len = u32::from(u16::from_be_bytes([head[16], head[17]]));
            assert!(adjacency.state() == AdjacencyState::Resolved && len <= adjacency.mtu());
            age(head);
            adjacency.write_ethernet(head.first_chunk_mut().expect("it is longer"));
        });
        reader.quiescent();
    }
}

/// So many frames by each way, half of them by each thread.
fn whole_run(
    plan: &Plan,
    frames: u64,
    rows: [(&str, &dyn Row); 3],
    forwarding: &Forwarding,
    output: &Output,
) -> io::Result<()> {
    let team = Team::new(plan.cores, plan.quick)?;
    for (name, row) in rows {
        by_two(&team, &format!("run_{name}"), output, |_| row.send(frames / 2))?;
    }
    for lanes in forwarding.ways() {
        by_two(&team, &format!("run_forward_{}", lanes.name), output, |thread| {
            lanes.send(thread, frames / 2);
        })?;
    }
    output.figure("run_frames", "count", &[(frames / 2 * 2) as f64]);
    Ok(())
}

/// Wall and CPU seconds of what two threads do.
fn by_two(team: &Team, name: &str, output: &Output, work: impl Fn(usize) + Sync) -> io::Result<()> {
    let start_line = Barrier::new(2);
    let times: io::Result<Vec<_>> = thread::scope(|scope| {
        let member = |(thread, &core): (usize, &usize)| {
            let (work, start_line) = (&work, &start_line);
            scope.spawn(move || {
                let pinned = affinity::pin(core);
                start_line.wait();
                let (start, cpu) = (Instant::now(), cpu_time());
                work(thread);
                pinned.map(|()| (start, Instant::now(), cpu_time() - cpu))
            })
        };
        let running: Vec<_> = team.cores().iter().enumerate().map(member).collect();
        let ended = running.into_iter().map(|thread| thread.join().expect("frames go out"));
        ended.collect()
    });
    let times = times?;
    let (start, end) = times
        .iter()
        .fold((times[0].0, times[0].1), |(start, end), time| (start.min(time.0), end.max(time.1)));
    let cpu: Duration = times.iter().map(|time| time.2).sum();
    output.figure(&format!("{name}_wall_s"), "s", &[(end - start).as_secs_f64()]);
    output.figure(&format!("{name}_cpu_s"), "s", &[cpu.as_secs_f64()]);
    Ok(())
}
