//! A collector that reads and forgets.

use std::net::UdpSocket;

use manylane_export::{CollectorAddress, Destination, Transport};
use manylane_lab::Host;

use super::Place;
use crate::prelude::*;

/// In a host's namespace, on its loopback interface, until it is dropped.
pub struct Collector {
    destination: Destination,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Collector {
    /// Its thread runs on `core`.
    pub fn start(host: &Host, core: usize) -> Result<Collector> {
        let socket = host.run(|| UdpSocket::bind("127.0.0.1:0"))?;
        socket.set_read_timeout(Some(LOOK))?;
        let address = format!("udp://{}", socket.local_addr()?);
        let address = CollectorAddress::parse(&address, &[Transport::Udp], 0)?;
        let destination = Destination::resolve(&[address])?.remove(0);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = thread::spawn(move || {
            let _ = affinity::pin(core); // On another core it does no harm.
            let mut datagram = [0; 1 << 16];
            while !over.load(Ordering::Relaxed) {
                // What is not there yet comes later.
                let _ = socket.recv(&mut datagram);
            }
        });
        Ok(Collector { destination, is_over, thread: Some(thread) })
    }

    /// For an exporter's options.
    pub fn destination(&self) -> Destination {
        self.destination.clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until the daemon has sent something to its collector. An error says that it lost something.
pub fn check_that_it_exports(place: &Place) -> Result {
    let patience = Instant::now() + PATIENCE;
    loop {
        let status = place.source().export();
        let sflow = status.sflow.as_ref();
        let lost_samples: u64 =
            sflow.iter().flat_map(|sflow| &sflow.ports).map(|port| port.lost).sum();
        let of_collectors: u64 = status
            .collectors
            .iter()
            .map(|collector| collector.lost_messages + collector.refused_messages)
            .sum();
        if lost_samples + of_collectors + status.queue_lost_records > 0 {
            return Err(format!("what was exported is not whole: {status:#?}").into());
        }
        if status.collectors.iter().any(|collector| collector.sent_records > 0) {
            return Ok(());
        }
        if Instant::now() > patience {
            return Err(format!("nothing is exported: {status:#?}").into());
        }
        thread::sleep(LOOK); // Exporters send by time, and notify no one.
    }
}

const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);
