//! manylane's own sockets.

use std::io::Write;
use std::thread::JoinHandle;

use manylane_frame::vocabulary::WorkerId;
use manylane_io::packet_ring::RingConfig;
use manylane_net::filter::{Instruction, Program};
use manylane_router::socket::{PacketSocket, protocol};
use manylane_worker::worker::Observers as WorkerObservers;

use super::contestant::{ALL, Drain, Matching, PORTS, SNAP, Sockets, Taps};
use crate::prelude::*;
use crate::router::{bell, no_sockets};

/// The product's, its figures without a prefix.
pub struct Own {
    sockets: manylane_router::socket::Sockets,
    /// Wanted sockets, which a thread reads on and on.
    read: Arc<Mutex<Vec<PacketSocket>>>,
    reads: Option<JoinHandle<()>>,
    /// What a capture keeps of a packet.
    snap: u32,
}

pub enum Open {
    Here(PacketSocket),
    /// Read by the thread of [`Own`], or by a capture's.
    Elsewhere,
}

impl Own {
    pub fn new(domain: &Domain) -> Own {
        Own::capturing(domain, SNAP)
    }

    /// For captures of up to `snap` bytes of each packet.
    pub fn capturing(domain: &Domain, snap: usize) -> Own {
        let bell = bell().expect("there are descriptors");
        let sockets = no_sockets(domain, &bell, Clock::start());
        Own { sockets, read: Arc::default(), reads: None, snap: snap as u32 }
    }

    fn read(&self) -> MutexGuard<'_, Vec<PacketSocket>> {
        self.read.lock().expect("the reading thread does not panic")
    }

    /// A socket of port 0.
    fn wanting(&self, filter: Program, ring: RingConfig) -> Result<PacketSocket> {
        let mut socket = self.sockets.open(protocol::NONE)?;
        socket.set_filter(filter)?;
        socket.set_ring(ring)?;
        socket.bind(Some(PortId(PORTS[0])), ALL)?;
        Ok(socket)
    }

    fn join_reader(&mut self) {
        self.read().clear();
        if let Some(thread) = self.reads.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.join_reader();
    }
}

impl Sockets for Own {
    type Socket = Open;

    fn prefix(&self) -> &'static str {
        ""
    }

    fn open(&mut self, protocol: u16) -> Result<Open> {
        Ok(Open::Here(self.sockets.open(protocol)?))
    }

    fn bind(&mut self, socket: &mut Open, port: Option<u16>, protocol: u16) -> Result {
        match socket {
            Open::Here(socket) => Ok(socket.bind(port.map(PortId), protocol)?),
            Open::Elsewhere => Err("it is bound already".into()),
        }
    }

    fn close(&mut self, socket: Open) -> Result {
        if matches!(socket, Open::Elsewhere) {
            self.join_reader();
        }
        Ok(())
    }
}

impl Taps for Own {
    type Reader = Reads;

    fn taps(&mut self, worker: WorkerId) -> Option<WorkerObservers> {
        Some(self.sockets.observers(worker, None))
    }

    fn want(&mut self, matching: Matching) -> Result<Open> {
        let socket = self.wanting(filter(matching, SNAP as u32), RING)?;
        self.read().push(socket);
        if self.reads.is_none() {
            let read = self.read.clone();
            self.reads = Some(thread::Builder::new().name("reader".into()).spawn(move || {
                let mut sockets = read.lock().expect("the reading thread does not panic");
                while !sockets.is_empty() {
                    for socket in &mut *sockets {
                        while socket.receive().is_some() {}
                    }
                    drop(sockets);
                    thread::yield_now();
                    sockets = read.lock().expect("the reading thread does not panic");
                }
            })?);
        }
        Ok(Open::Elsewhere)
    }

    fn capture(&mut self) -> Result<(Open, Reads)> {
        let socket = self.wanting(filter(Matching::EVERYTHING, self.snap), CAPTURE)?;
        Ok((Open::Elsewhere, Reads { socket, lost: Arc::default() }))
    }
}

pub struct Reads {
    socket: PacketSocket,
    lost: Arc<SharedCount>,
}

impl Drain for Reads {
    fn drain(&mut self, to: &mut impl Write) -> Result<u64> {
        let mut bytes = 0;
        while let Some(block) = self.socket.receive() {
            for packet in block.packets() {
                let record = &packet.record;
                let mut header = [0; 16];
                header[..8].copy_from_slice(&record.time_ns.to_ne_bytes());
                header[8..12].copy_from_slice(&(packet.bytes.len() as u32).to_ne_bytes());
                header[12..].copy_from_slice(&record.len.to_ne_bytes());
                to.write_all(&header)?;
                to.write_all(packet.bytes)?;
                bytes += (header.len() + packet.bytes.len()) as u64;
            }
        }
        self.lost.add(self.socket.statistics().lost);
        Ok(bytes)
    }

    fn lost(&self) -> Arc<SharedCount> {
        self.lost.clone()
    }
}

/// By the UDP source port, as a filter of tcpdump's would look at it.
fn filter(Matching { mask, value }: Matching, snap: u32) -> Program {
    const LDH: u16 = 0x28;
    const AND: u16 = 0x54;
    const JEQ: u16 = 0x15;
    const RET: u16 = 0x06;
    let compare =
        [(LDH, 0, 0, 34), (AND, 0, 0, mask), (JEQ, 0, 1, value), (RET, 0, 0, snap), (RET, 0, 0, 0)];
    let list: &[_] = if mask == 0 { &compare[3..4] } else { &compare };
    let instruction = |&(code, jt, jf, k)| Instruction { code, jt, jf, k };
    Program::new(list.iter().map(instruction).collect()).expect("it ends")
}

/// Of a socket that a thread reads on and on.
const RING: RingConfig = RingConfig { block_size: 64 << 10, blocks: 8, retire_ns: 1_000_000 };
/// Of a capture: 8 MiB for each worker.
const CAPTURE: RingConfig = RingConfig { block_size: 512 << 10, blocks: 16, retire_ns: 1_000_000 };
