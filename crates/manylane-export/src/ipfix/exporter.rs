//! The thread that sends what other threads hand over.
//!
//! Those threads never wait: a queue of [`QUEUE_MAX`] records at most is between them and this thread, and records that
//! find no room are counted as lost.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::record::Record;
use super::session::{Identity, Now, Session};
use crate::collector::{Collector, CollectorStatus, Destination, Load, Watch};

/// How records are exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExporterOptions {
    /// The observation domain's number.
    pub domain: u32,
    /// How often templates are sent by UDP, where a collector may have begun since.
    pub templates_every: Duration,
    /// How often statistics are sent.
    pub statistics_every: Duration,
    /// Where all records are of samples: one packet in how many is a sample. Sent with the templates.
    pub sampling: Option<u32>,
}

impl Default for ExporterOptions {
    fn default() -> ExporterOptions {
        let [templates_every, statistics_every] = [20, 60].map(Duration::from_secs);
        ExporterOptions { domain: 1, templates_every, statistics_every, sampling: None }
    }
}

/// The thread's handle. The thread ends with it, when all that was handed over before has been sent.
#[derive(Debug)]
pub struct Exporter {
    sender: RecordSender,
    watch: ExporterWatch,
    thread: Option<JoinHandle<()>>,
}

/// Hands records over, from any thread.
#[derive(Clone, Debug)]
pub struct RecordSender {
    queue: SyncSender<Item>,
    lost: Arc<Mutex<Load>>,
}

/// What others see of an exporter.
#[derive(Clone, Debug)]
pub struct ExporterWatch {
    collectors: Vec<Watch>,
    lost: Arc<Mutex<Load>>,
}

/// How an exporter does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportStatus {
    /// Each collector, with its address.
    pub collectors: Vec<(String, CollectorStatus)>,
    /// What the queue had no room for: no collector has been sent it.
    pub queue_lost: Load,
}

#[derive(Debug)]
enum Item {
    Records(Vec<Record>),
    End,
}

impl Exporter {
    /// Starts the thread, in the network namespace of the calling one.
    pub fn start(destinations: Vec<Destination>, options: ExporterOptions) -> io::Result<Exporter> {
        let (queue, items) = sync_channel(QUEUE_MAX / RECORDS_AT_ONCE);
        let lost = Arc::<Mutex<Load>>::default();
        let collectors: Vec<_> = destinations.into_iter().map(Collector::new).collect();
        let watches = collectors.iter().map(Collector::watch).collect();
        let watch = ExporterWatch { collectors: watches, lost: lost.clone() };
        let ExporterOptions { domain, templates_every, statistics_every, sampling } = options;
        let process = std::process::id();
        let identity = Identity { domain, process, templates_every, statistics_every, sampling };
        let sessions = collectors.into_iter().map(|one| Session::new(one, identity)).collect();
        let theirs = lost.clone();
        let thread = Builder::new().name("ipfix".into());
        let thread = thread.spawn(move || run(sessions, &items, &theirs))?;
        Ok(Exporter { sender: RecordSender { queue, lost }, watch, thread: Some(thread) })
    }

    /// By which other threads hand records over.
    pub fn sender(&self) -> RecordSender {
        self.sender.clone()
    }

    /// What others see of it.
    pub fn watch(&self) -> ExporterWatch {
        self.watch.clone()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // The thread takes items without waiting for anything, so the queue has room soon.
        let _ = self.sender.queue.send(Item::End);
        if let Some(thread) = self.thread.take() {
            // The thread has panicked, and its message has said why.
            let _ = thread.join();
        }
    }
}

impl RecordSender {
    /// Hands records over. What the queue has no room for is lost, and counted. Never waits.
    pub fn send(&self, records: &[Record]) {
        for part in records.chunks(RECORDS_AT_ONCE) {
            if let Err(error) = self.queue.try_send(Item::Records(part.to_vec())) {
                match error {
                    TrySendError::Full(_) | TrySendError::Disconnected(_) => self.lose(part),
                }
            }
        }
    }

    /// Hands records over, and waits for room: for a thread that ends, and has nothing else to do.
    pub fn send_waiting(&self, records: &[Record]) {
        for part in records.chunks(RECORDS_AT_ONCE) {
            if self.queue.send(Item::Records(part.to_vec())).is_err() {
                self.lose(part);
            }
        }
    }

    fn lose(&self, records: &[Record]) {
        let mut lost = lock(&self.lost);
        for record in records {
            *lost += record.load();
        }
    }
}

impl ExporterWatch {
    /// How it does.
    pub fn status(&self) -> ExportStatus {
        let of = |one: &Watch| (one.destination().address().to_string(), one.status());
        let collectors = self.collectors.iter().map(of).collect();
        ExportStatus { collectors, queue_lost: *lock(&self.lost) }
    }
}

fn run(mut sessions: Vec<Session>, items: &Receiver<Item>, lost: &Mutex<Load>) {
    let mut next_tend = Instant::now();
    loop {
        let now = now();
        if now.instant >= next_tend {
            next_tend = now.instant + TEND_EVERY;
            let lost = *lock(lost);
            sessions.iter_mut().for_each(|session| session.tend(now, lost));
        }
        match items.recv_timeout(next_tend.saturating_duration_since(now.instant)) {
            Ok(Item::Records(records)) => {
                let now = self::now();
                sessions.iter_mut().for_each(|session| session.send_records(&records, now));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Item::End) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let now = now();
    let lost = *lock(lost);
    for session in &mut sessions {
        session.finish(now, lost, now.instant + FINISH_WITHIN);
    }
}

fn now() -> Now {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // RFC 7011 counts modulo 2^32; a clock before 1970 is none.
    let time = since.map_or(0, |since| since.as_secs() as u32);
    Now { instant: Instant::now(), time }
}

fn lock(load: &Mutex<Load>) -> MutexGuard<'_, Load> {
    load.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records between the threads: 12 MiB.
const QUEUE_MAX: usize = 1 << 16;
/// Records of an item.
const RECORDS_AT_ONCE: usize = 256;
/// How often connections, templates and statistics are looked at.
const TEND_EVERY: Duration = Duration::from_secs(1);
/// How long a TCP connection may take the last messages.
const FINISH_WITHIN: Duration = Duration::from_millis(500);
