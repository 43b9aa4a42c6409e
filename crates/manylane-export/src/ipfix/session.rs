//! A collector's transport session (RFC 7011, section 10): sequence numbers, and what is sent again and again.

use std::time::{Duration, Instant};

use super::message::MessageBuilder;
use super::record::{Exported, NotSent, Record, Sampling};
use super::template;
use crate::collector::{Collector, CollectorStatus, Load, Outcome, Transport};

/// What a session says of its exporter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub domain: u32,
    pub process: u32,
    /// How often templates are sent by UDP.
    pub templates_every: Duration,
    /// How often statistics are sent.
    pub statistics_every: Duration,
    /// One packet in how many is a sample, where all records are of samples.
    pub sampling: Option<u32>,
}

/// Sends records to one collector.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) collector: Collector,
    pub(super) identity: Identity,
    /// Data records that the collector was sent in this session, modulo 2^32.
    sequence: u32,
    /// The collector's session that this is about.
    pub(super) known: u64,
    /// The next message has to have templates.
    needs_templates: bool,
    /// When templates and statistics are sent next, also without records; at once without.
    templates_due: Option<Instant>,
    statistics_due: Option<Instant>,
    /// Records that no message has had room for in the queue to this thread.
    queue_lost: Load,
}

/// The moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub instant: Instant,
    /// Seconds since 1970.
    pub time: u32,
}

impl Session {
    pub(super) fn new(collector: Collector, identity: Identity) -> Session {
        Session {
            collector,
            identity,
            sequence: 0,
            known: 0,
            needs_templates: true,
            templates_due: None,
            statistics_due: None,
            queue_lost: Load::default(),
        }
    }

    /// What is due without records: a connection, templates, statistics.
    pub(super) fn tend(&mut self, now: Now, queue_lost: Load) {
        self.queue_lost = queue_lost;
        self.collector.tend(now.instant);
        if !self.collector.is_ready() {
            return;
        }
        let is_due = |due: Option<Instant>| due.is_none_or(|due| now.instant >= due);
        let is_new = self.collector.session() != self.known;
        let statistics = is_due(self.statistics_due);
        if statistics {
            self.statistics_due = Some(now.instant + self.identity.statistics_every);
        }
        if statistics || is_new || (self.is_udp() && is_due(self.templates_due)) {
            self.send(&[], statistics, now);
        }
    }

    /// Sends records, in as many messages as they need.
    pub(super) fn send_records(&mut self, records: &[Record], now: Now) {
        self.send(records, false, now);
    }

    /// The last of all.
    pub(super) fn finish(&mut self, now: Now, queue_lost: Load, until: Instant) {
        self.queue_lost = queue_lost;
        if self.collector.is_ready() {
            self.send(&[], true, now);
        }
        self.collector.finish(until);
    }

    fn send(&mut self, mut records: &[Record], mut statistics: bool, now: Now) {
        self.collector.tend(now.instant);
        loop {
            let (message, taken) = self.compose(records, statistics, now);
            if message.is_empty() {
                return;
            }
            match self.send_message(message, now) {
                // Composed anew, with templates.
                Outcome::Refused => {
                    let (message, taken) = self.compose(records, statistics, now);
                    let load = message.load();
                    if self.send_message(message, now) == Outcome::Refused {
                        self.collector.give_up(load);
                    }
                    records = &records[taken..];
                }
                Outcome::Sent | Outcome::Lost => records = &records[taken..],
            }
            statistics = false;
            if records.is_empty() {
                return;
            }
        }
    }

    /// A message with the first of these records, and how many they are.
    fn compose(
        &mut self,
        records: &[Record],
        statistics: bool,
        now: Now,
    ) -> (MessageBuilder, usize) {
        let is_new = self.collector.session() != self.known;
        if is_new && !self.is_udp() {
            self.sequence = 0;
        }
        self.known = self.collector.session();
        let is_due = self.templates_due.is_none_or(|due| now.instant >= due);
        let mut message = MessageBuilder::new(self.identity.domain, self.sequence, now.time);
        if is_new || self.needs_templates || (self.is_udp() && is_due) {
            self.templates_due = Some(now.instant + self.identity.templates_every);
            self.needs_templates = false;
            message.add_templates();
            if let Identity { domain, sampling: Some(rate), .. } = self.identity {
                // Behind the templates, a message has room for it.
                let _ = message.add_by(&template::SAMPLING, &Sampling { domain, rate });
            }
        }
        if statistics {
            let (exported, not_sent) = self.statistics();
            // A message has room for templates and these.
            let _ = message.add_by(&template::EXPORTED, &exported);
            let _ = message.add_by(&template::NOT_SENT, &not_sent);
        }
        let taken = records.iter().take_while(|record| message.add(record)).count();
        (message, taken)
    }

    fn send_message(&mut self, message: MessageBuilder, now: Now) -> Outcome {
        let (data_records, load) = (message.data_records(), message.load());
        let outcome = self.collector.send_load(&message.finish(), load, now.instant);
        match outcome {
            Outcome::Sent => self.sequence = self.sequence.wrapping_add(data_records),
            Outcome::Refused | Outcome::Lost => self.needs_templates = true,
        }
        outcome
    }

    fn statistics(&self) -> (Exported, NotSent) {
        let status = self.collector.status();
        let CollectorStatus { sent, sent_bytes, sent_records, .. } = status;
        let CollectorStatus { lost_records, lost_packets, lost_octets, .. } = status;
        let Identity { domain, process, .. } = self.identity;
        let exported =
            Exported { domain, messages: sent, flow_records: sent_records, octets: sent_bytes };
        let Load { records, packets, octets } = self.queue_lost;
        let not_sent = NotSent {
            process,
            flows: lost_records + records,
            packets: lost_packets + packets,
            octets: lost_octets + octets,
        };
        (exported, not_sent)
    }

    fn is_udp(&self) -> bool {
        self.collector.transport() == Transport::Udp
    }
}
