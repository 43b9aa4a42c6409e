//! The lane: connections that the kernel's firewall and translation have decided about, and that programs forward.
//!
//! Where a router filters by connection or translates addresses, the kernel decides about each connection, and its
//! connection tracking (conntrack) remembers that. A thread of its own finds connections that are worth it, makes sure that the
//! kernel would do nothing else to their packets, and enters them in the flow table, which programs look into. An entry is a
//! lease on all of that: what changes takes it away, and then the kernel has the packets again.
//!
//! ```text
//!   program: 16th packet of a direction ─> candidate ─> conntrack: settled? ─> route, rules: as they are? ─> entry, approved
//!   program: 16 packets by another port ─> candidate ─────────────────> route, rules: as they are there? ─> approved there
//!   conntrack: ended ────────────────────────────────────────────────────────────────────────────────────> entry gone
//!   rules, ports, addresses, sets: changed ─> reviewed ──────────────────────────> approved anew, or gone
//!   each second: used? renewed in conntrack. Closing, idle? gone
//! ```
//!
//! | File            | Holds                                                                          |
//! |-----------------|--------------------------------------------------------------------------------|
//! | `thread.rs`     | the thread: what it hears, what it does, in which order                        |
//! | `terms.rs`      | what the mirror's thread says: families, ports, addresses, the generation      |
//! | `connection.rs` | whether a connection may be forwarded at all, and how long it lives unused     |
//! | `approve.rs`    | where a direction leaves, and whether the rules accept it                      |
//! | `admit.rs`      | candidates become entries                                                      |
//! | `watch.rs`      | what conntrack says later: ends, marks, and what it no longer has              |
//! | `sweep.rs`      | all entries, each second: used, renewed, closing, idle                         |
//! | `record.rs`     | what is remembered of an entry beside the table                                |
//! | `export.rs`     | flow records for collectors (IPFIX): what each entry has forwarded             |
//! | `listed.rs`     | the table, and the thread's state, as others see them                          |
//! | `explained.rs`  | what becomes of a packet whose connection decides                              |
//! | `kept.rs`       | connections without an entry: what keeps each in the kernel                    |
//! | `compared.rs`   | entries that differ from conntrack                                             |
//! | `refusal.rs`    | why a connection stays in the kernel, and what has been counted                |
//!
//! # What each thread may do
//!
//! The mirror's thread owns the word that says which generation of approvals programs may follow; this thread owns all
//! entries. To raise the generation is one store, and sends every connection to the kernel until this thread has looked at it
//! again. The mirror's thread does so whenever rules have changed, before it renews the programs' lease; this thread reads
//! the rules behind that. So no packet follows an approval by rules that are older than the lease.

mod admit;
mod approve;
mod compared;
mod connection;
mod explained;
mod export;
mod kept;
mod listed;
mod record;
mod refusal;
mod sweep;
mod terms;
#[cfg(test)]
mod tests;
mod thread;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use manylane_io::eventfd::EventFd;
use manylane_io::netlink::nftables::SetName;
use manylane_net::transit::Transit;
use manylane_net::transit::flows::{FlowsMut, Required};
use manylane_sync::rcu::Reader;

use crate::firewall;
use crate::programs::{Candidates, Counters, Ticks};
use crate::questions::{Questions, Who, question_queue};

pub(crate) use compared::{Compared, difference};
pub(crate) use explained::{Asked, said};
pub(crate) use export::{ExportTerms, now_ms};
pub(crate) use kept::Kept;
pub(crate) use listed::{Filter, PortNames, Sum, Sums};
pub(crate) use terms::{LanePort, LaneTerms};
pub(crate) use thread::LaneThread;

/// What the lane works with.
pub(crate) struct Parts {
    /// The table.
    pub flows: FlowsMut,
    /// What programs find.
    pub candidates: Candidates,
    /// What programs count.
    pub counters: Counters,
    /// Routes and neighbours.
    pub transit: Transit,
    /// A member of the tables' domain.
    pub reader: Reader,
    /// What to be strict about.
    pub options: firewall::Options,
    /// How long entries are kept after conntrack's notifications were lost.
    pub stale_limit: Duration,
    /// The kernel's ticks, by which programs note when an entry was used.
    pub ticks: Ticks,
    /// Where flow records go, if a collector is configured.
    pub export: Option<ExportTerms>,
    /// Rung when something waits for programs.
    pub reclaim: Arc<EventFd>,
    /// Rung when the lane wants something of the mirror's thread.
    pub mirror: Arc<EventFd>,
}

/// What the lane says to the mirror's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Families whose packets have to arrive where their source is routed to, since rules drop others.
    pub strict: Required,
    /// No entry can be trusted: another generation.
    pub generation: bool,
    /// When conntrack had nothing more to announce, and all of it had been carried out. Nothing before the first time.
    pub current: Option<Instant>,
}

/// The handle of the lane's thread, which ends with it.
pub(crate) struct Lane {
    questions: Arc<Questions<LaneThread>>,
    wanted: Arc<Mutex<Wanted>>,
    /// The terms that the thread has now.
    terms: LaneTerms,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts the thread, in the network namespace of the calling one.
    pub fn start(parts: Parts) -> io::Result<Lane> {
        let doorbell = Arc::new(EventFd::open()?);
        let (asked, questions) = question_queue(doorbell.clone(), WHO);
        let wanted = Arc::new(Mutex::new(Wanted::default()));
        let theirs = wanted.clone();
        let run = move || LaneThread::new(parts, doorbell, questions, theirs).run();
        let thread = Builder::new().name("lane".into()).spawn(run)?;
        let questions = Arc::new(asked);
        Ok(Lane { questions, wanted, terms: LaneTerms::default(), thread: Some(thread) })
    }

    /// Where others read what is in the lane.
    pub fn questions(&self) -> Arc<Questions<LaneThread>> {
        self.questions.clone()
    }

    /// Says on which terms connections may be forwarded, where that is new.
    pub fn set_terms(&mut self, terms: LaneTerms) {
        if self.terms != terms {
            self.terms = terms.clone();
            self.questions.tell(|lane| lane.set_terms(terms));
        }
    }

    /// Says that sets have other elements.
    pub fn elements_changed(&self, sets: BTreeSet<SetName>) {
        self.questions.tell(move |lane| lane.elements_changed(&sets));
    }

    /// What the lane wants; the wish for a generation is taken.
    pub fn take_wanted(&self) -> Wanted {
        let mut wanted = lock(&self.wanted);
        let taken = *wanted;
        wanted.generation = false;
        taken
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.questions.tell(LaneThread::end);
        if let Some(thread) = self.thread.take() {
            // The thread has panicked, and its message has said why.
            let _ = thread.join();
        }
    }
}

fn lock(wanted: &Mutex<Wanted>) -> MutexGuard<'_, Wanted> {
    wanted.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that answers questions about connections.
const WHO: Who = Who {
    thread: "the thread that looks after connections",
    help: "`manylane show mirror` says whether packets are forwarded; restart `manylane accelerate` if it stays so",
};
