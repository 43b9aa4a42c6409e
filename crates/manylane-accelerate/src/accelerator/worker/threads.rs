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

use super::Manning;
use super::counts::{Rows, WorkerCounts};
use super::socket_manager::Staff;

/// All workers, and who looks after them.
pub(in super::super) struct Crew {
    orders: Sender<Order>,
    told: Receiver<Told>,
    counts: WorkerCounts,
    staff: Option<JoinHandle<()>>,
}

/// What is needed to begin.
pub(in super::super) struct Tools {
    pub manning: Manning,
    /// Taken by the staff.
    pub workers: Option<Workers>,
    pub grace: Grace,
    pub domain: Domain,
    pub transit: Transit,
    /// Rung when something was told.
    pub bell: Arc<EventFd>,
}

/// What the staff is to do.
pub(super) enum Order {
    /// Open the sockets of an interface, which has this number, and so many queues that last.
    Open { port: u16, name: String, index: u32, lasting: u32 },
    /// Empty and close them. Nothing may be handed up any more.
    Close { port: u16 },
    /// Close all, and end.
    End,
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Told {
    /// Workers have the port; its interface had this number.
    Opened { port: u16, index: u32, how: How },
    /// Why not.
    Refused { port: u16, why: String },
    /// It is nobody's any more.
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

impl Crew {
    /// Starts the thread that does what is ordered. Workers start with the first port.
    pub fn start(mut tools: Tools) -> io::Result<Crew> {
        let (orders, ordered) = channel();
        let (tell, told) = channel();
        let rows: Vec<_> = (0..tools.manning.workers).map(|_| Rows::new()).collect();
        let own = Rows::new();
        let counts = WorkerCounts::new(rows.iter().map(Rows::reader).collect(), own.reader());
        if let Some(workers) = &mut tools.workers {
            workers.beats.truncate(tools.manning.workers);
        }
        let staff = Builder::new()
            .name("staff".into())
            .spawn(move || Staff::new(tools, rows, own, tell).run(&ordered))?;
        Ok(Crew { orders, told, counts, staff: Some(staff) })
    }

    /// What workers count.
    pub fn counts(&self) -> WorkerCounts {
        self.counts.clone()
    }

    /// Orders sockets for an interface, which had so many queues before our program came.
    pub fn open(&self, port: u16, name: &str, index: u32, lasting: u32) {
        self.order(Order::Open { port, name: name.into(), index, lasting });
    }

    /// Orders them to be emptied and closed.
    pub fn close(&self, port: u16) {
        self.order(Order::Close { port });
    }

    /// What came of orders since the last call.
    pub fn told(&self) -> impl Iterator<Item = Told> + '_ {
        self.told.try_iter()
    }

    fn order(&self, order: Order) {
        // If it has panicked, nothing comes of it: the port stays as it is, and is shown so.
        let _ = self.orders.send(order);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.order(Order::End);
        let Some(staff) = self.staff.take() else { return };
        let end = Instant::now() + END_MAX;
        while !staff.is_finished() && Instant::now() < end {
            std::thread::sleep(END_PAUSE);
        }
        // A worker that hangs is not waited for: it ends with the process.
        if staff.is_finished() {
            // It has panicked: what it said then is all there is to say.
            let _ = staff.join();
        }
    }
}

/// How long ports may take to be emptied and closed at the end.
const END_MAX: Duration = Duration::from_secs(2);
const END_PAUSE: Duration = Duration::from_millis(1);
