//! The exporter's thread: takes notes, queries the mirror's thread for their routes, and sends.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manylane_export::sflow::{DiscardedPacket, REPORTS, Sender};
use manylane_io::eventfd::EventFd;
use manylane_io::joined::Joined;
use manylane_io::netlink::Netlink;
use manylane_io::poll::poll;

use super::ipfix::SampledExport;
use super::{SflowState, counters, lock, sample};
use crate::accelerator::published::{PortView, Published};
use crate::programs::{SflowNote, SflowNotes, Ticks};
use manylane_mirror::{RouteQuery, SampledRoute};

/// A handle to the exporter's thread, which ends when the handle is dropped.
pub(in crate::accelerator) struct Exporter {
    _thread: Joined,
}

/// What the thread has.
struct Exporting {
    published: Arc<Published>,
    state: Arc<SflowState>,
    notes: SflowNotes,
    doorbell: Arc<EventFd>,
    sender: Sender,
    sampled: Option<SampledExport>,
    netlink: Netlink,
    next_poll: Instant,
}

impl Exporter {
    /// Starts the thread in the calling thread's network namespace.
    pub fn start(
        published: Arc<Published>,
        state: Arc<SflowState>,
        netlink: Netlink,
    ) -> io::Result<Exporter> {
        let doorbell = Arc::new(EventFd::open()?);
        let ticks = Ticks::open()?;
        let notes = lock(&state.notes).take();
        let notes = notes.ok_or_else(|| io::Error::other("the exporter was started before"))?;
        let sender = Sender::new(&state.options.collectors, state.options.agent);
        *lock(&state.watches) = sender.watches();
        let sampled = state.sampled.as_ref().map(SampledExport::start).transpose()?;
        let second = (1_000_000_000 / ticks.length_ns().max(1)) as u32;
        if state.is_sflow() {
            lock(&state.rates).words.report(&sample::DISCARDED, REPORTS, second);
        }
        state.set_rates(&published.view().ports.clone());
        let (next_poll, own) = (Instant::now(), doorbell.clone());
        let mut exporting = Exporting {
            published,
            state,
            notes,
            doorbell: own,
            sender,
            sampled,
            netlink,
            next_poll,
        };
        Ok(Exporter { _thread: Joined::start("sflow", doorbell, move || exporting.run())? })
    }
}

impl Exporting {
    fn run(&mut self) {
        loop {
            let ends = self.doorbell.drain();
            self.turn(Instant::now());
            if ends {
                if let (Some(export), Some(sampled)) = (&mut self.sampled, &self.state.sampled) {
                    export.end(sampled);
                }
                return;
            }
            let wait = self.next_poll.saturating_duration_since(Instant::now()).min(RATES_EVERY);
            // The one failure is ENOMEM: then it turns instead of sleeping.
            let fds = [self.doorbell.as_fd(), self.notes.as_fd()];
            let ready = poll(&fds, Some(wait));
            if ready.is_ok_and(|ready| ready.any()) {
                // So that one question and one datagram are for many notes.
                let _ = poll(&fds[..1], Some(PACE));
            }
        }
    }

    fn turn(&mut self, now: Instant) {
        let ports = self.published.view().ports.clone();
        self.state.set_rates(&ports);
        lock(&self.state.sent).agent = self.sender.find_agent();
        loop {
            let mut notes = Vec::new();
            let taken = self.notes.take(NOTES_AT_ONCE, |note| notes.push(note));
            if !notes.is_empty() {
                self.export(&notes, &ports, now);
            }
            if taken < NOTES_AT_ONCE {
                break;
            }
        }
        if let (Some(export), Some(sampled)) = (&mut self.sampled, &self.state.sampled) {
            export.turn(sampled, now);
        }
        self.export_worker_drops(&ports, now);
        if now >= self.next_poll {
            self.next_poll = now + self.state.options.polling;
            if self.state.is_sflow() {
                self.export_counters(&ports);
            }
        }
        self.sender.finish();
    }

    fn export(&mut self, notes: &[SflowNote], ports: &[PortView], now: Instant) {
        let ingress = |note: &SflowNote| {
            let port = ports.iter().find(|port| port.number == note.port);
            port.and_then(|port| port.index).unwrap_or(note.interface)
        };
        let questions: Vec<_> =
            notes.iter().map(|note| sample::question(note, ingress(note))).collect();
        let routes = self.routes(questions);
        for (note, route) in notes.iter().zip(routes) {
            let (interface, route) = (ingress(note), route.as_ref());
            if let Some(export) = &mut self.sampled {
                export.add(note, interface, route);
            }
            if !self.state.is_sflow() {
                continue;
            }
            let samples = self.state.samples_of(note);
            let count = self.state.count(note.port);
            if samples > 0 {
                let flow = sample::flow(note, interface, route, count);
                for _ in 0..samples {
                    self.sender.add_flow(&flow);
                }
                lock(&self.state.sent).samples += u64::from(samples);
            }
            if !note.is_report {
                continue;
            }
            let unreported = count.unreported.wrapping_add(lock(&self.state.sent).unreported);
            let Some(packet) = sample::discarded(note, interface, route, unreported) else {
                continue;
            };
            self.report(&packet, now);
        }
    }

    /// Reports what workers have dropped. What a worker decides has no other reason than what a program decides.
    fn export_worker_drops(&mut self, ports: &[PortView], now: Instant) {
        let (mut notes, mut unsent) = (Vec::new(), Vec::new());
        for dropped in self.state.worker_drops.take() {
            match dropped.verdict {
                Some(verdict) => notes.push(sample::of_worker(&dropped, verdict)),
                None => unsent.push(dropped),
            }
        }
        if !notes.is_empty() {
            self.export(&notes, ports, now);
        }
        for dropped in unsent {
            let port = ports.iter().find(|port| port.number == dropped.port);
            let Some(ingress) = port.and_then(|port| port.index) else { continue };
            let count = self.state.count(dropped.port);
            let unreported = count.unreported.wrapping_add(lock(&self.state.sent).unreported);
            self.report(&sample::unsent(&dropped, ingress, unreported), now);
        }
    }

    /// Sends a discarded packet, unless this second has had too many.
    fn report(&mut self, packet: &DiscardedPacket, now: Instant) {
        let is_reported = self.sender.add_discarded(packet, now);
        let mut sent = lock(&self.state.sent);
        match is_reported {
            true => sent.discarded += 1,
            false => sent.unreported += 1,
        }
    }

    /// The routes, as the mirror's thread knows them; none without its answer.
    fn routes(&self, questions: Vec<Option<RouteQuery>>) -> Vec<Option<SampledRoute>> {
        let len = questions.len();
        let answer = self.published.questions.ask_within(PATIENCE, move |thread| {
            let route = |question: &RouteQuery| thread.mirror.sampled_route(question);
            questions.iter().map(|question| question.as_ref().map(route)).collect::<Vec<_>>()
        });
        answer.unwrap_or_else(|_| vec![None; len])
    }

    fn export_counters(&mut self, ports: &[PortView]) {
        let front: Vec<_> = ports.iter().map(|port| self.published.in_front(port.number)).collect();
        // Without an answer nothing is known of any.
        let kernel = self.netlink.statistics().unwrap_or_default();
        for (port, counts) in ports.iter().zip(front) {
            let of_port = kernel.iter().find(|link| Some(link.index) == port.index);
            let Some(of_port) = of_port else { continue };
            let shown = self.published.interface(&counts, of_port);
            self.sender.add_counters(&counters::sample(port, of_port.index, &shown));
        }
    }
}

/// How long notes wait for others: the standard lets a sample wait for a second.
const PACE: Duration = Duration::from_millis(50);
/// Notes in one question to the mirror's thread.
const NOTES_AT_ONCE: usize = 256;
/// How long it may take for that.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often ports that are new receive their rate.
const RATES_EVERY: Duration = Duration::from_secs(1);
