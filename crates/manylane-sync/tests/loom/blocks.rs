//! `blocks`: its guarantees A to D, one test for each letter.
//!
//! The protocol runs as it is on the words of these tests, which can weaken one of its orderings by a step: those are
//! the mutants, without a twin.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use manylane_sync::blocks::{Lane, Reader, Statuses, Word, Writer, sleep, sleeps};
use manylane_sync::doorbell::{Doorbell, Wake};

use super::doorbell::Eventfd;
use super::{Seen, Watched, explore};

/// Three items through two blocks, and a reader that may find none, some or all of them.
#[test]
fn blocks_a_a_borrowed_block_is_whole() {
    static FULL: Seen = Seen::new("the reader had both blocks");
    static REUSED: Seen = Seen::new("a block was filled twice while both sides ran");
    explore("blocks_a", None, || items(Weak::NOTHING, 3, &FULL, &REUSED));
    FULL.assert();
    REUSED.assert();
}

/// As above, with one attempt more: something is lost, and then a block is free again.
#[test]
fn blocks_b_what_is_published_is_borrowed_once_and_in_order() {
    static FULL: Seen = Seen::new("the reader had both blocks");
    static AFTER: Seen = Seen::new("a block was filled again after a loss");
    explore("blocks_b", Some(4), || items(Weak::NOTHING, 4, &FULL, &AFTER));
    FULL.assert();
    AFTER.assert();
}

/// Two that would write at once.
#[test]
fn blocks_c_one_writer_at_a_time() {
    static REFUSED: Seen = Seen::new("one of them was refused");
    static BOTH: Seen = Seen::new("both wrote");
    explore("blocks_c", None, || two_writers(Weak::NOTHING, &REFUSED, &BOTH));
    REFUSED.assert();
    BOTH.assert();
}

/// By the writer itself, and by a thread between them that the writer wakes.
#[test]
fn blocks_d_a_sleeping_reader_is_woken() {
    static SLEPT: Seen = Seen::new("the reader slept");
    static AWAKE: Seen = Seen::new("the reader was found awake");
    explore("blocks_d, two parties", Some(3), || wake(Weak::NOTHING, &SLEPT, &AWAKE));
    SLEPT.assert();
    AWAKE.assert();
    explore("blocks_d, three parties", Some(2), || relay(Weak::NOTHING, 1, &SLEPT, &AWAKE));
    SLEPT.assert();
    AWAKE.assert();
    explore("blocks_d, three parties x 2", Some(2), || relay(Weak::NOTHING, 2, &SLEPT, &AWAKE));
    SLEPT.assert();
    AWAKE.assert();
}

static UNUSED: Seen = Seen::new("");

macro_rules! mutant {
    ($name:ident, $expected:literal, $model:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            explore(stringify!($name), Some(3), || $model);
        }
    };
}

mutant!(
    mutant_a_relaxed_publish_shows_half_a_block,
    "Causality violation",
    items(Weak { publish: true, ..Weak::NOTHING }, 3, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_relaxed_borrow_sees_half_a_block,
    "Causality violation",
    items(Weak { borrow: true, ..Weak::NOTHING }, 3, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_block_given_back_relaxed_is_written_while_it_is_read,
    "Causality violation",
    items(Weak { give_back: true, ..Weak::NOTHING }, 3, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_relaxed_look_writes_while_it_is_read,
    "Causality violation",
    items(Weak { look: true, ..Weak::NOTHING }, 3, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_relaxed_raise_lets_a_writer_in_too_early,
    "Causality violation",
    two_writers(Weak { raise: true, ..Weak::NOTHING }, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_relaxed_end_lets_a_writer_in_too_early,
    "Causality violation",
    two_writers(Weak { end: true, ..Weak::NOTHING }, &UNUSED, &UNUSED)
);
mutant!(
    mutant_a_raise_in_two_steps_lets_both_in,
    "Causality violation",
    two_writers(Weak { steps: true, ..Weak::NOTHING }, &UNUSED, &UNUSED)
);
mutant!(
    mutant_without_the_readers_fence_it_sleeps_on,
    "deadlock",
    wake(Weak { reader_fence: true, ..Weak::NOTHING }, &UNUSED, &UNUSED)
);
mutant!(
    mutant_without_the_wakers_fence_the_reader_sleeps_on,
    "deadlock",
    wake(Weak { waker_fence: true, ..Weak::NOTHING }, &UNUSED, &UNUSED)
);
mutant!(
    mutant_without_the_fence_between_the_reader_sleeps_on,
    "deadlock",
    relay(Weak { waker_fence: true, ..Weak::NOTHING }, 1, &UNUSED, &UNUSED)
);
/// A writer that tries so often to publish the next item, and a reader that takes what it finds.
fn items(weak: Weak, attempts: u32, full: &'static Seen, again: &'static Seen) {
    let (lane, mut reader, blocks) = rig(weak);
    let thread = {
        let blocks = blocks.clone();
        thread::spawn(move || {
            let mut writer = lane.writer().expect("nobody else writes");
            let mut refused = false;
            for _ in 0..attempts {
                if write(&mut writer, &blocks) {
                    if *writer.state() == 3 && (refused || attempts == 3) {
                        again.note();
                    }
                } else {
                    refused = true;
                    full.note();
                }
            }
            *writer.state()
        })
    };
    let mut next = 0;
    take(&mut reader, &blocks, &mut next);
    take(&mut reader, &blocks, &mut next);
    let written = thread.join().expect("the writer does not panic");
    for _ in 0..2 {
        take(&mut reader, &blocks, &mut next);
    }
    assert_eq!(next, written, "blocks were lost");
    assert!(!reader.is_waiting(), "a block was seen twice");
}

/// Two threads, each with a batch of one item.
fn two_writers(weak: Weak, refused: &'static Seen, both: &'static Seen) {
    let (lane, mut reader, blocks) = rig(weak);
    let lane = Arc::new(lane);
    let work = || {
        let (lane, blocks) = (lane.clone(), blocks.clone());
        move || {
            let Some(mut writer) = lane.writer() else {
                refused.note();
                return 0;
            };
            u32::from(write(&mut writer, &blocks))
        }
    };
    let thread = thread::spawn(work());
    let [mine, theirs] = [work()(), thread.join().expect("a writer does not panic")];
    if mine > 0 && theirs > 0 {
        both.note();
    }
    let mut next = 0;
    for _ in 0..2 {
        take(&mut reader, &blocks, &mut next);
    }
    assert_eq!(next, mine + theirs, "blocks were lost");
    let mut writer = lane.writer().expect("both are done");
    assert_eq!(*writer.state(), next, "what a writer left was lost");
}

/// The writer wakes the reader itself.
fn wake(weak: Weak, slept: &'static Seen, awake: &'static Seen) {
    let (lane, reader, blocks) = rig(weak);
    let [reading, waking] = Cell::sleeps(weak);
    let bell = Arc::new(Eventfd::default());
    {
        let (blocks, bell) = (blocks.clone(), bell.clone());
        thread::spawn(move || {
            let mut writer = lane.writer().expect("nobody else writes");
            assert!(write(&mut writer, &blocks), "the first block is the writer's");
            if sleeps(&waking) {
                bell.wake();
            } else {
                awake.note();
            }
        });
    }
    read(reader, &blocks, 1, &reading, &bell, slept);
}

/// A thread between them wakes the reader, and the writer wakes that.
fn relay(weak: Weak, items: u32, slept: &'static Seen, awake: &'static Seen) {
    let (lane, reader, blocks) = rig(weak);
    let [reading, waking] = Cell::sleeps(weak);
    let lane = Arc::new(lane);
    let bell = Arc::new(Eventfd::default());
    let between = Arc::new(Doorbell::new(Eventfd::default()));
    {
        let (lane, blocks, between) = (lane.clone(), blocks.clone(), between.clone());
        thread::spawn(move || {
            for _ in 0..items {
                let mut writer = lane.writer().expect("nobody else writes");
                assert!(write(&mut writer, &blocks), "there is a block for each item");
                drop(writer);
                between.ring();
            }
        });
    }
    {
        let bell = bell.clone();
        thread::spawn(move || {
            let mut seen = 0;
            while seen < items.into() {
                let published = lane.published();
                if published == seen {
                    between.sleep(|| lane.published() != seen, || between.waker().wait());
                } else {
                    seen = published;
                    if sleeps(&waking) {
                        bell.wake();
                    } else {
                        awake.note();
                    }
                }
            }
        });
    }
    read(reader, &blocks, items, &reading, &bell, slept);
}

/// Sleeps until all items are there.
fn read(
    mut reader: Reader<Side>,
    blocks: &[Watched; 2],
    items: u32,
    sleeps: &Cell,
    bell: &Eventfd,
    slept: &'static Seen,
) {
    let mut next = 0;
    loop {
        while take(&mut reader, blocks, &mut next) {}
        if next == items {
            break;
        }
        if sleep(sleeps, || reader.is_waiting(), || bell.wait()).is_some() {
            slept.note();
        }
    }
}

/// Publishes the next item, if a block is free for it.
fn write(writer: &mut Writer<'_, Side, u32>, blocks: &[Watched; 2]) -> bool {
    let Some(block) = writer.block() else { return false };
    blocks[block as usize].write(*writer.state());
    writer.publish();
    *writer.state() += 1;
    true
}

/// Borrows a block, if one is published, and looks at it twice.
fn take(reader: &mut Reader<Side>, blocks: &[Watched; 2], next: &mut u32) -> bool {
    let Some(held) = reader.borrow() else { return false };
    let item = &blocks[held.block() as usize];
    assert_eq!([item.read(), item.read()], [*next; 2], "out of order, or twice");
    *next += 1;
    true
}

/// A lane of two blocks of one item each, which `S` counts, and its reader.
fn rig(weak: Weak) -> (Lane<Side, u32>, Reader<Side>, Arc<[Watched; 2]>) {
    let statuses = [(); 2].map(|()| Cell::new());
    let writers = statuses.each_ref().map(|cell| Cell {
        load: weak.look,
        store: weak.publish,
        ..cell.clone()
    });
    let readers = statuses.map(|cell| Cell {
        load: weak.borrow,
        store: weak.give_back,
        ours: cell.theirs.clone(),
        theirs: cell.ours.clone(),
        ..cell
    });
    let taken = Cell { raise: weak.raise, store: weak.end, steps: weak.steps, ..Cell::new() };
    let blocks = Arc::new([Watched::new(0), Watched::new(0)]);
    (Lane::new(Side(writers), taken, Cell::new(), 0), Reader::new(Side(readers)), blocks)
}

/// What is a step weaker than in the source.
#[derive(Clone, Copy)]
struct Weak {
    publish: bool,
    borrow: bool,
    give_back: bool,
    look: bool,
    raise: bool,
    end: bool,
    /// `raise` is a load and a store.
    steps: bool,
    /// Without a fence.
    reader_fence: bool,
    waker_fence: bool,
}

impl Weak {
    const NOTHING: Weak = Weak {
        publish: false,
        borrow: false,
        give_back: false,
        look: false,
        raise: false,
        end: false,
        steps: false,
        reader_fence: false,
        waker_fence: false,
    };
}

/// The status words, as one side reaches them.
struct Side([Cell; 2]);

impl Statuses for Side {
    type Word = Cell;

    fn count(&self) -> u32 {
        2
    }

    fn status(&self, block: u32) -> &Cell {
        &self.0[block as usize]
    }
}

/// A word as one side reaches it: which of its accesses are weaker than requested.
#[derive(Clone)]
struct Cell {
    atomic: Arc<AtomicU64>,
    /// Words that one side only stores to and the other only loads, relaxed. Such words change nothing for the protocol, but
    /// loom takes notice: what a thread writes to a word just after it has loaded it, loom hides from threads that
    /// loaded that before (5. in `loom.rs`).
    ours: Arc<AtomicU64>,
    theirs: Arc<AtomicU64>,
    load: bool,
    store: bool,
    raise: bool,
    steps: bool,
    fence: bool,
}

impl Cell {
    fn new() -> Cell {
        let [atomic, ours, theirs] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
        Cell {
            atomic,
            ours,
            theirs,
            load: false,
            store: false,
            raise: false,
            steps: false,
            fence: false,
        }
    }

    /// The word `sleeps`, for the reader and for the thread that wakes it.
    fn sleeps(weak: Weak) -> [Cell; 2] {
        let cell = Cell::new();
        [weak.reader_fence, weak.waker_fence].map(|fence| Cell { fence, ..cell.clone() })
    }
}

fn relaxed_if(weak: bool, ordering: Ordering) -> Ordering {
    if weak { Ordering::Relaxed } else { ordering }
}

impl Word for Cell {
    fn load(&self, ordering: Ordering) -> u64 {
        self.theirs.load(Ordering::Relaxed);
        self.atomic.load(relaxed_if(self.load, ordering))
    }

    fn store(&self, value: u64, ordering: Ordering) {
        self.atomic.store(value, relaxed_if(self.store, ordering));
        self.ours.store(value, Ordering::Relaxed);
    }

    fn raise(&self, ordering: Ordering) -> bool {
        if self.steps {
            let low = self.atomic.load(ordering) == 0;
            if low {
                self.atomic.store(1, Ordering::Relaxed);
            }
            return low;
        }
        let ordering = relaxed_if(self.raise, ordering);
        self.atomic.compare_exchange(0, 1, ordering, Ordering::Relaxed).is_ok()
    }

    fn fence(&self, ordering: Ordering) {
        if !self.fence {
            fence(ordering);
        }
    }
}
