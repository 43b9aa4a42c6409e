//! Routes that change while a worker holds packets (`nexthop` in `manylane-net`, `worker/dispatch.rs` in
//! `manylane`): a twin of both sides. Two flows wait, for a member of their group that has no address. The
//! control thread moves them to one that has, flow by flow, between two steps of the generation. Whatever
//! words the worker finds, each flow leaves in its order.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::{Seen, explore};

#[test]
fn a_flow_that_moves_keeps_its_order() {
    static MIDDLE: Seen = Seen::new("the worker held in the middle of a change");
    static BATCH: Seen = Seen::new("a flow moved while a batch was judged");
    explore("routes", None, || life(SOURCE, &MIDDLE, &BATCH));
    MIDDLE.assert();
    BATCH.assert();
}

macro_rules! mutant {
    ($name:ident, $rules:expr) => {
        #[test]
        #[should_panic(expected = "overtaken")]
        fn $name() {
            static UNUSED: Seen = Seen::new("");
            explore(stringify!($name), None, || life($rules, &UNUSED, &UNUSED));
        }
    };
}

mutant!(mutant_without_the_first_step_the_held_are_overtaken, Rules { first: None, ..SOURCE });
mutant!(
    mutant_a_relaxed_word_hides_the_step_before_it,
    Rules { word: Ordering::Relaxed, ..SOURCE }
);
mutant!(
    mutant_a_relaxed_second_step_is_seen_before_the_words,
    Rules { second: Some(Ordering::Relaxed), ..SOURCE }
);
mutant!(mutant_a_batch_is_not_looked_at_again, Rules { batch_again: false, ..SOURCE });
mutant!(mutant_an_odd_generation_is_like_another, Rules { odd_is_torn: false, ..SOURCE });
mutant!(mutant_the_oldest_is_looked_at_first, Rules { newest_first: false, ..SOURCE });

#[derive(Clone, Copy)]
struct Rules {
    /// The steps of the generation before and after the words.
    first: Option<Ordering>,
    second: Option<Ordering>,
    word: Ordering,
    /// Verdicts of a batch that routes changed under are looked up again.
    batch_again: bool,
    /// In the middle of a change, two looks at one generation may differ.
    odd_is_torn: bool,
    newest_first: bool,
}

const SOURCE: Rules = Rules {
    first: Some(Ordering::Release),
    second: Some(Ordering::Release),
    word: Ordering::Release,
    batch_again: true,
    odd_is_torn: true,
    newest_first: true,
};

const FLOWS: usize = 2;
/// A flow's word.
const WAITS: u32 = 0;
const LEAVES: u32 = 1;

struct Tables {
    generation: AtomicU32,
    words: [AtomicU32; FLOWS],
}

fn life(rules: Rules, middle: &'static Seen, in_batch: &'static Seen) {
    let tables = Arc::new(Tables {
        generation: AtomicU32::new(0),
        words: [AtomicU32::new(WAITS), AtomicU32::new(WAITS)],
    });
    let worker = {
        let tables = tables.clone();
        thread::spawn(move || {
            let mut worker =
                Worker { tables, rules, held_generation: 0, held: Vec::new(), left: [0; FLOWS] };
            worker.turn(&[(0, 0), (0, 1), (1, 0)], in_batch);
            if worker.held_generation == 1 && !worker.held.is_empty() {
                middle.note();
            }
            worker.turn(&[(1, 1)], in_batch);
            worker
        })
    };
    if let Some(step) = rules.first {
        tables.generation.store(1, step);
    }
    tables.words.iter().for_each(|word| word.store(LEAVES, rules.word));
    if let Some(step) = rules.second {
        tables.generation.store(2, step);
    }
    let mut worker = worker.join().expect("the worker does not panic");
    worker.turn(&[], in_batch);
    assert!(worker.held.is_empty(), "overtaken by the end");
}

/// Flow and sequence.
type Packet = (usize, u32);

/// As `Work` in `worker/dispatch.rs`, with one queue.
struct Worker {
    tables: Arc<Tables>,
    rules: Rules,
    /// At which generation all that is held was looked up.
    held_generation: u32,
    held: Vec<Packet>,
    /// How many of each flow have left.
    left: [u32; FLOWS],
}

impl Worker {
    fn turn(&mut self, batch: &[Packet], in_batch: &Seen) {
        let batch_generation = self.generation();
        let verdicts: Vec<u32> = batch.iter().map(|&packet| self.look_up(packet)).collect();
        if batch.len() > 2 && verdicts[0] != verdicts[1] {
            in_batch.note();
        }
        if !self.held.is_empty() && !self.is_current(self.held_generation) {
            self.reroute(Vec::new());
        }
        let batch = batch.iter().copied().zip(verdicts);
        if self.is_current(batch_generation) || !self.rules.batch_again {
            if self.held.is_empty() {
                self.held_generation = batch_generation;
            }
            batch.for_each(|(packet, verdict)| self.dispatch(packet, verdict));
        } else {
            self.reroute(batch.collect());
        }
    }

    /// Looks again at what is held and at what is newer, and dispatches all of it.
    fn reroute(&mut self, newer: Vec<(Packet, u32)>) {
        let held = std::mem::take(&mut self.held);
        let mut list: Vec<_> = held.into_iter().map(|packet| (packet, WAITS)).collect();
        list.extend(newer);
        self.held_generation = self.generation();
        let mut look = |(packet, verdict): &mut (Packet, u32)| {
            if *verdict == WAITS {
                *verdict = self.look_up(*packet);
            }
        };
        match self.rules.newest_first {
            true => list.iter_mut().rev().for_each(&mut look),
            false => list.iter_mut().for_each(&mut look),
        }
        list.into_iter().for_each(|(packet, verdict)| self.dispatch(packet, verdict));
    }

    fn dispatch(&mut self, (flow, sequence): Packet, verdict: u32) {
        if verdict == LEAVES {
            assert_eq!(sequence, self.left[flow], "flow {flow}: overtaken");
            self.left[flow] += 1;
        } else {
            self.held.push((flow, sequence));
        }
    }

    /// Whether a look at this generation, and one now, find equal routes.
    fn is_current(&self, batch_generation: u32) -> bool {
        let is_odd = batch_generation % 2 == 1 && self.rules.odd_is_torn;
        !is_odd && self.generation() == batch_generation
    }

    fn generation(&self) -> u32 {
        self.tables.generation.load(Ordering::Acquire)
    }

    fn look_up(&self, (flow, _): Packet) -> u32 {
        self.tables.words[flow].load(Ordering::Acquire)
    }
}
