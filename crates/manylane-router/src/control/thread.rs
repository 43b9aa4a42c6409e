//! The control thread: the one writer of all tables, and its ends of the rings to the workers.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use manylane_io::poll;
use manylane_net::neighbour::{Key, Report};
use manylane_net::wire::ethernet::Mac;
use manylane_sync::ring::{Consumer, Producer};
use manylane_sync::words::Words;

use super::carriers::Carriers;
use super::closing::Closing;
use super::daemon::say;
use super::open::Bell;
use super::routing::{Effects, RETRY, Routing};
use super::steering::{self, Removal};
use crate::socket::Sockets;
use manylane_worker::stats::{StatsReader, WorkerCount};
use manylane_worker::worker::phase::RUN;
use manylane_worker::{Clock, Order};

/// The control thread.
pub(super) struct Control {
    pub routing: Arc<Mutex<Routing>>,
    pub links: Vec<Link>,
    pub bell: Bell,
    pub phase: Words<u32>,
    pub clock: Clock,
    /// The names of ports and sub-interfaces, by id.
    pub names: Vec<String>,
    pub steering: steering::Shared,
    /// Closes ports that are removed.
    pub closing: Closing<Removal>,
    /// The workers', by which load is measured.
    pub stats: Vec<StatsReader>,
    pub sockets: Sockets,
    /// Which ports have a carrier, if any has a device.
    pub carriers: Option<Carriers>,
}

/// The control thread's end of what it shares with one worker.
pub(super) struct Link {
    pub reported: Consumer<Report>,
    pub orders: Producer<Order>,
    pub bell: Bell,
}

impl Control {
    /// Applies what workers report and lets timers pass, until the phase says stop.
    pub fn run(mut self, mut effects: Effects) {
        while self.phase.load(0) == RUN {
            let now = self.clock.now();
            {
                let mut routing = lock(&self.routing);
                let places = self.links.first_mut().map(|first| first.orders.room(usize::MAX));
                routing
                    .give_places(places.unwrap_or(usize::MAX).saturating_sub(effects.orders.len()));
                for link in &mut self.links {
                    while let Some(report) = link.reported.pop() {
                        routing.handle(report, now, &mut effects);
                    }
                    link.reported.release();
                }
                follow_carriers(&mut self.carriers, &self.names, &mut routing, now, &mut effects);
                routing.tick(now, &mut effects);
            }
            self.tell(&mut effects);
            self.steer();
            self.sleep();
            if self.closing.has_panicked() {
                break;
            }
        }
        self.closing.finish(); // Of a daemon that has stopped, every device is free.
    }

    /// Hands orders to the first worker, and wakes those who may wait for what was published.
    fn tell(&mut self, effects: &mut Effects) {
        let ordered = !effects.orders.is_empty();
        if let Some(first) = self.links.first_mut() {
            // An order without a place waits here; meanwhile no more is ordered than places are free.
            let places = first.orders.room(effects.orders.len()).min(effects.orders.len());
            first.orders.push_all(&mut effects.orders.drain(..places));
            first.orders.submit();
        }
        for (number, link) in self.links.iter().enumerate() {
            if effects.published || (ordered && number == 0) {
                link.bell.ring();
            }
        }
        effects.published = false;
        for (Key { port, addr }, mac) in effects.duplicates.drain(..) {
            let (name, mac) = (&self.names[port.index()], Mac(mac));
            say(&format!(
                "{addr} on {name} is not ours alone: {mac} has it too. This router does not use it until no other \
                 station answers for it any more; `manylane show addresses` tells"
            ));
        }
        for (Key { port, addr }, mac) in effects.kept.drain(..) {
            let (name, mac) = (&self.names[port.index()], Mac(mac));
            say(&format!(
                "{addr} on {name} is not ours alone: {mac} claims it too. This router keeps it, and announces it again \
                 at most once in 10 s while others claim it. Find that station; `manylane show addresses` counts its claims"
            ));
        }
    }

    fn steer(&mut self) {
        let mut steering = self.steering.lock().expect("a thread that steers does not panic");
        steering.tend();
        if steering.deadline().is_some() {
            let busy = self.stats.iter().map(|stats| stats.worker(WorkerCount::BusyNs));
            steering.rebalance(&busy.collect::<Vec<_>>(), self.clock.now());
        }
        let removed = steering.take_removed();
        drop(steering);
        if let Some(removal) = removed {
            self.closing.give(removal);
        }
    }

    fn sleep(&mut self) {
        let now = self.clock.now();
        let steering = self.steering.lock().expect("a thread that steers does not panic");
        // Neither devices nor threads that end say so.
        let parting = steering.is_parting().then(|| now + RETRY);
        let rebalance = steering.deadline();
        drop(steering);
        let deadline = lock(&self.routing).deadline(now);
        // What closed sockets leave behind is released when the workers release it, which they do not report.
        let closed = self.sockets.tend().then(|| now + RETRY);
        let deadline = [deadline, rebalance, parting, closed].into_iter().flatten().min();
        let timeout = deadline.map(|deadline| deadline.saturating_sub(now));
        let Control { routing, links, phase, bell, steering, closing, carriers, .. } = self;
        let notices = carriers.as_ref().map(|carriers| carriers.notices().as_fd());
        let awaited: Vec<_> = [bell.waker().as_fd()].into_iter().chain(notices).collect();
        bell.sleep(
            || {
                phase.load(0) != RUN
                    || links.iter_mut().any(|link| !link.reported.is_empty())
                    || lock(routing).owes()
                    || steering.lock().expect("a thread that steers does not panic").has_tasks()
                    || closing.has_panicked()
            },
            // The one failure is ENOMEM: then it turns instead of sleeping.
            || poll::poll(&awaited, timeout).is_ok(),
        );
        bell.waker().drain();
    }
}

/// Takes routes by ports out that have lost their carrier, and back in when they have it again.
fn follow_carriers(
    carriers: &mut Option<Carriers>,
    names: &[String],
    routing: &mut Routing,
    now: Duration,
    effects: &mut Effects,
) {
    let Some(watch) = carriers else { return };
    let changes = watch.changes().unwrap_or_else(|error| {
        say(&format!("{error}; from now on, routes stay when a port loses its carrier"));
        *carriers = None;
        Vec::new()
    });
    for (port, has_carrier) in changes {
        routing.set_carrier(port, has_carrier, now, effects);
        let name = &names[port.index()];
        say(&match has_carrier {
            false => format!("{name} has no carrier: routes by it are out until it has one"),
            true => format!("{name} has a carrier again: routes by it are back"),
        });
    }
}

fn lock(routing: &Mutex<Routing>) -> MutexGuard<'_, Routing> {
    routing.lock().expect("a thread that edits the tables does not panic")
}
