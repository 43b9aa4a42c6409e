//! `doorbell`: a thread that gave work before the sleeper slept, or while it does, wakes it.
//!
//! Loom reports a wake-up that is lost as a deadlock. Loom sees this because both sides use fences: with `SeqCst`
//! accesses in their place it would report one that cannot be (it treats them as AcqRel).

use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use manylane_sync::doorbell::{Doorbell, Wake};
use manylane_sync::ring::{Consumer, ring};

use super::{Seen, explore};

/// What the tests do with a bell: the crate's own, or a twin of it.
trait Bell: Send + Sync + 'static {
    fn sleep(&self, has_work: impl FnOnce() -> bool) -> bool;
    fn ring(&self) -> bool;
}

/// One giver with two items, and two with one each: the sleeper gets all, or the model deadlocks.
#[test]
fn no_wake_up_is_lost() {
    static SLEPT: Seen = Seen::new("the sleeper slept");
    static AWAKE: Seen = Seen::new("a ring found the sleeper awake");
    explore("no_wake_up_is_lost, 1 giver x 1", None, || give(source(), 1, 1, &SLEPT, &AWAKE));
    // Complete it has 5,243,463 executions (184 s), and passed once.
    explore("no_wake_up_is_lost, 1 giver x 2", Some(4), || give(source(), 1, 2, &SLEPT, &AWAKE));
    explore("no_wake_up_is_lost, 2 givers x 1", Some(3), || give(source(), 2, 1, &SLEPT, &AWAKE));
    SLEPT.assert();
    AWAKE.assert();
}

#[test]
fn the_twin_of_the_doorbell_passes() {
    explore("doorbell twin", None, || give_one(Some(Ordering::SeqCst), Some(Ordering::SeqCst)));
}

macro_rules! mutant {
    ($name:ident, $sleeper:expr, $ringer:expr) => {
        #[test]
        #[should_panic(expected = "deadlock")]
        fn $name() {
            explore(stringify!($name), None, || give_one($sleeper, $ringer));
        }
    };
}

mutant!(mutant_without_the_sleepers_fence_a_wake_up_is_lost, None, Some(Ordering::SeqCst));
mutant!(mutant_without_the_ringers_fence_a_wake_up_is_lost, Some(Ordering::SeqCst), None);
mutant!(
    mutant_with_acq_rel_fences_a_wake_up_is_lost,
    Some(Ordering::AcqRel),
    Some(Ordering::AcqRel)
);

fn give_one(sleeper: Option<Ordering>, ringer: Option<Ordering>) {
    static UNUSED: Seen = Seen::new("");
    let wake = Eventfd::default();
    let twin = Twin { asleep: AtomicBool::new(false), wake, sleeper, ringer };
    give(twin, 1, 1, &UNUSED, &UNUSED);
}

fn give(bell: impl Bell, givers: u32, items_each: u32, slept: &'static Seen, awake: &'static Seen) {
    let bell = Arc::new(bell);
    let mut rings: Vec<Consumer<u32>> = (0..givers)
        .map(|_| {
            let (mut producer, consumer) = ring(items_each as usize);
            let bell = bell.clone();
            thread::spawn(move || {
                for item in 0..items_each {
                    producer.push(item).expect("the ring holds all items");
                    producer.submit();
                    if !bell.ring() {
                        awake.note();
                    }
                }
            });
            consumer
        })
        .collect();
    let mut got = 0;
    loop {
        for ring in &mut rings {
            while ring.pop().is_some() {
                got += 1;
            }
        }
        if got == givers * items_each {
            break;
        }
        if bell.sleep(|| rings.iter_mut().any(|ring| !ring.is_empty())) {
            slept.note();
        }
    }
}

/// An eventfd as far as a sleeper sees it: a wake that comes first ends the next sleep.
#[derive(Default)]
pub struct Eventfd {
    pending: Mutex<bool>,
    changed: Condvar,
}

impl Eventfd {
    pub fn wait(&self) {
        let mut pending = self.pending.lock().expect("no holder panics");
        while !*pending {
            pending = self.changed.wait(pending).expect("no holder panics");
        }
        *pending = false;
    }
}

impl Wake for Eventfd {
    fn wake(&self) {
        *self.pending.lock().expect("no holder panics") = true;
        self.changed.notify_one();
    }
}

fn source() -> Doorbell<Eventfd> {
    Doorbell::new(Eventfd::default())
}

impl Bell for Doorbell<Eventfd> {
    fn sleep(&self, has_work: impl FnOnce() -> bool) -> bool {
        Doorbell::sleep(self, has_work, || self.waker().wait()).is_some()
    }

    fn ring(&self) -> bool {
        Doorbell::ring(self)
    }
}

/// `Doorbell` with its fences as parameters.
struct Twin {
    asleep: AtomicBool,
    wake: Eventfd,
    sleeper: Option<Ordering>,
    ringer: Option<Ordering>,
}

impl Bell for Twin {
    fn sleep(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        if let Some(ordering) = self.sleeper {
            fence(ordering);
        }
        let sleeps = !has_work();
        if sleeps {
            self.wake.wait();
        }
        self.asleep.store(false, Ordering::Relaxed);
        sleeps
    }

    fn ring(&self) -> bool {
        if let Some(ordering) = self.ringer {
            fence(ordering);
        }
        let asleep = self.asleep.load(Ordering::Relaxed);
        if asleep {
            self.wake.wake();
        }
        asleep
    }
}
