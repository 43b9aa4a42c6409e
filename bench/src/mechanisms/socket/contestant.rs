//! What opens, binds and closes sockets: what each contestant has to offer, and the rebuilt ones. manylane's own are in
//! `own`.

use std::io::Write;

use manylane_frame::vocabulary::WorkerId;
use manylane_worker::worker::Observers as WorkerObservers;

use super::capture::{Copied, Copying, copies};
use crate::baseline::hook::{HookList, HookWalker, Wanted};
use crate::prelude::*;

/// `ETH_P_ALL`.
pub const ALL: u16 = 3;
/// Ports that sockets are bound to, by number.
pub const PORTS: [u16; 2] = [0, 1];
/// Bytes of a packet that a socket is given, at most.
pub const SNAP: usize = 128;

pub trait Sockets {
    type Socket;

    /// What its figures' names begin with.
    fn prefix(&self) -> &'static str;

    /// Nothing is done for a while, if so it is measured.
    fn rest(&self) {}

    /// A socket for a protocol: for [`ALL`], of all ports until it is bound; for 0, of none.
    fn open(&mut self, protocol: u16) -> Result<Self::Socket>;

    /// Binds it to a port, or to all. After that the old binding delivers nothing.
    fn bind(&mut self, socket: &mut Self::Socket, port: Option<u16>, protocol: u16) -> Result;

    fn close(&mut self, socket: Self::Socket) -> Result {
        drop(socket);
        Ok(())
    }
}

/// Which packets a filter lets pass, by the UDP source port, where packets are numbered: those of this value under this
/// mask.
#[derive(Clone, Copy, Debug)]
pub struct Matching {
    pub mask: u32,
    pub value: u32,
}

impl Matching {
    /// None: the number is compared, and no number of 16 bits is right.
    pub const NOTHING: Matching = Matching { mask: 0xffff, value: 0x1_0000 };
    /// One of sixteen.
    pub const SOMETHING: Matching = Matching { mask: 15, value: 5 };
    pub const EVERYTHING: Matching = Matching { mask: 0, value: 0 };
}

pub trait Taps: Sockets {
    type Reader: Drain;

    /// A worker's source that delivers to them.
    fn source(&mut self, source: Source) -> Source {
        source
    }

    fn taps(&mut self, _: WorkerId) -> Option<WorkerObservers> {
        None
    }

    /// A socket of port 0 with this filter and [`SNAP`]. Each packet is copied; a contestant with a ring empties it.
    fn want(&mut self, matching: Matching) -> Result<Self::Socket>;

    /// A socket of port 0 that wants everything, and its reader. Once, after the worker was made.
    fn capture(&mut self) -> Result<(Self::Socket, Self::Reader)>;
}

pub trait Drain: Send {
    /// Writes what has arrived, with a header for each packet; returns how many bytes.
    fn drain(&mut self, to: &mut impl Write) -> Result<u64>;

    /// How many packets found no place.
    fn lost(&self) -> Arc<SharedCount>;
}

/// The kernel's design, rebuilt (`baseline/hook.rs`).
pub struct Rebuilt {
    prefix: &'static str,
    list: HookList,
    /// A capture's two ends, until the worker and the reader have them.
    capture: (Option<Copying>, Option<Copied>),
}

impl Rebuilt {
    /// As it was before: to bind is always to unregister, to wait, to register.
    pub fn before(domain: &Domain) -> Rebuilt {
        let list = HookList::new(domain.clone(), false);
        Rebuilt { prefix: "before_", list, capture: (None, None) }
    }

    pub fn source(domain: &Domain) -> Rebuilt {
        let list = HookList::new(domain.clone(), true);
        Rebuilt { prefix: "source_", list, capture: (None, None) }
    }

    /// With a ring of buffers, each a packet, up to `snap` bytes of it.
    pub fn capturing(domain: &Domain, snap: usize) -> Rebuilt {
        let (copying, copied) = copies(snap);
        Rebuilt { capture: (Some(copying), Some(copied)), ..Rebuilt::source(domain) }
    }
}

impl Sockets for Rebuilt {
    type Socket = usize;

    fn prefix(&self) -> &'static str {
        self.prefix
    }

    fn open(&mut self, protocol: u16) -> Result<usize> {
        Ok(self.list.open(protocol))
    }

    fn bind(&mut self, socket: &mut usize, port: Option<u16>, protocol: u16) -> Result {
        self.list.bind(*socket, Wanted { port, protocol, ..Wanted::default() });
        Ok(())
    }

    fn close(&mut self, socket: usize) -> Result {
        self.list.close(socket);
        Ok(())
    }
}

impl Taps for Rebuilt {
    type Reader = Copied;

    fn source(&mut self, source: Source) -> Source {
        walk_behind(source, self.list.walker(), self.capture.0.take())
    }

    fn want(&mut self, Matching { mask, value }: Matching) -> Result<usize> {
        let socket = self.list.open(0);
        self.list.bind(socket, Wanted { port: Some(PORTS[0]), protocol: ALL, mask, value });
        Ok(socket)
    }

    fn capture(&mut self) -> Result<(usize, Copied)> {
        let socket = self.want(Matching::EVERYTHING)?;
        Ok((socket, self.capture.1.take().expect("it was made for a capture, and asked once")))
    }
}

/// A source whose packets the hooks see, as they arrive. Without a capture each copy overwrites the one before.
fn walk_behind(mut source: Source, walker: HookWalker, mut capture: Option<Copying>) -> Source {
    let mut copy = [0; SNAP];
    Box::new(move |pool: &mut Pool, batch: &mut Batch, now_ns| {
        let next = source(pool, batch, now_ns);
        let region = pool.region().view();
        for frame in batch.iter() {
            let bytes = region.bytes(frame);
            let number = u16::from_be_bytes([bytes[34], bytes[35]]);
            walker.walk(PORTS[0], number.into(), || match &mut capture {
                Some(capture) => capture.copy(bytes),
                None => {
                    let bytes = &bytes[..bytes.len().min(SNAP)];
                    copy[..bytes.len()].copy_from_slice(bytes);
                    black_box(&mut copy);
                }
            });
        }
        if let Some(capture) = &mut capture {
            capture.submit();
        }
        next
    })
}
