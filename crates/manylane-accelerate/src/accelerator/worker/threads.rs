//! The mirror thread's side of the workers.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::programs::{Grace, Workers};
use manylane_io::eventfd::EventFd;
use manylane_net::transit::Transit;
use manylane_sync::rcu::Domain;

use super::copies::WorkerCaptures;
use super::counts::{Rows, WorkerCounts};
use super::socket_manager::SocketManager;
use super::{WorkerDrops, WorkerOptions};

/// All workers, and the thread that manages their sockets.
pub(in super::super) struct WorkerThreads {
    orders: Sender<Order>,
    reports: Receiver<Report>,
    counts: WorkerCounts,
    manager: Option<JoinHandle<()>>,
}

/// What is needed to begin.
pub(in super::super) struct ThreadContext {
    pub worker_options: WorkerOptions,
    /// Taken by the socket_manager.
    pub workers: Option<Workers>,
    pub grace: Grace,
    pub domain: Domain,
    pub transit: Transit,
    /// Captures that want packets of workers.
    pub captures: WorkerCaptures,
    /// Rung when something was reports.
    pub doorbell: Arc<EventFd>,
    /// Where workers note what they drop, if a collector is to hear of it.
    pub drops: Option<Arc<WorkerDrops>>,
}

/// What the socket manager is to do.
pub(super) enum Order {
    /// Open the sockets of the interface of this number, which keeps its first `lasting` queues.
    Open { port: u16, name: String, index: u32, lasting: u32 },
    /// Empty and close them. Nothing may be handed up any more.
    Close { port: u16 },
    /// Close all, and end.
    End,
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Report {
    /// Workers have the port; its interface had this number.
    Opened { port: u16, index: u32, how: How },
    /// Why not.
    Refused { port: u16, why: String },
    /// No worker has the port any more.
    Closed { port: u16 },
}

/// How a port is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct How {
    pub queues: u32,
    pub workers: usize,
    /// The device reads and writes our memory itself.
    pub zero_copy: bool,
}

impl WorkerThreads {
    /// Starts the thread that does what is ordered. Workers start with the first port.
    pub fn start(mut context: ThreadContext) -> io::Result<WorkerThreads> {
        let (orders, ordered) = channel();
        let (report, reports) = channel();
        let rows: Vec<_> = (0..context.worker_options.workers).map(|_| Rows::new()).collect();
        let own = Rows::new();
        let counts = WorkerCounts::new(rows.iter().map(Rows::reader).collect(), own.reader());
        if let Some(workers) = &mut context.workers {
            workers.heartbeats.truncate(context.worker_options.workers);
        }
        let manager = Builder::new()
            .name("sockets".into())
            .spawn(move || SocketManager::new(context, rows, own, report).run(&ordered))?;
        Ok(WorkerThreads { orders, reports, counts, manager: Some(manager) })
    }

    /// What workers count.
    pub fn counts(&self) -> WorkerCounts {
        self.counts.clone()
    }

    /// Orders sockets for an interface, which had `lasting` queues before our program was attached.
    pub fn open(&self, port: u16, name: &str, index: u32, lasting: u32) {
        self.order(Order::Open { port, name: name.into(), index, lasting });
    }

    /// Orders them to be emptied and closed.
    pub fn close(&self, port: u16) {
        self.order(Order::Close { port });
    }

    /// What came of orders since the last call.
    pub fn reports(&self) -> impl Iterator<Item = Report> + '_ {
        self.reports.try_iter()
    }

    fn order(&self, order: Order) {
        // If it has panicked, nothing comes of it: the port stays as it is, and is published so.
        let _ = self.orders.send(order);
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.order(Order::End);
        let Some(manager) = self.manager.take() else { return };
        let end = Instant::now() + END_MAX;
        while !manager.is_finished() && Instant::now() < end {
            std::thread::sleep(END_PAUSE);
        }
        // A worker that hangs is not waited for: it ends with the process.
        if manager.is_finished() {
            // The thread has panicked, and its message has said why.
            let _ = manager.join();
        }
    }
}

/// How long ports may take to be emptied and closed at the end.
const END_MAX: Duration = Duration::from_secs(2);
const END_PAUSE: Duration = Duration::from_millis(1);
