//! What the count, and where it lies, are of a frame sent and received, in a loop of the bench and not in the product's
//! worker: many flows to one destination, by two threads.
//!
//! After the source's case (memcached and its clients on one machine, all by one route): each thread
//! sends to the other and receives from it. To send, it takes frames from its pool, writes 64 bytes into
//! each with the next flow's ports, looks the destination up, reads the dst (does the packet fit its
//! MTU?), holds it, and hands frame and reference on by a ring. The receiver reads the dst again (port
//! and header), writes the header, counts TTL and checksum down, lets the reference go, and gives the
//! frame back to its own pool. So each thread does as many gets as puts, all of one count.
//!
//! | figure             | the count                         | and the facts                              |
//! |--------------------|-----------------------------------|--------------------------------------------|
//! | `e2e_cas_shared_ns`| increment unless zero, in a loop  | two on its line, two before it (`layout.rs`) |
//! | `e2e_cas_split_ns` | as `e2e_cas_shared_ns`            | before it, and behind it                   |
//! | `e2e_rcuref_ns`    | `RcuRef`: the product's `DstRef`  | on lines of their own                      |
//! | `e2e_guard_ns`     | none: the receiver looks up again | on lines of their own                      |
//!
//! Elapsed time x threads / frames received. `e2e_layout_gain` is what the split alone brings,
//! `e2e_count_gain` what the count alone does, `end_to_end_gain` both together, and `uncounted_gain`
//! what is left to gain by not counting at all.
//!
//! Of each of the first three, the reference is to a dst of the same four words, which a lookup finds by
//! the same index.

use manylane_net::fib::{
    Ipv4Fib, Ipv4Prefix, Ipv4Sizes, Ipv4Tables, Ipv4Writer, Limits, NextHop as Mark,
};
use manylane_net::nexthop::NextHopsMut;
use manylane_net::nexthop::dst::{DstRef, Dsts, DstsMut, Facts, Flags};

use super::layout::{Route, Shared, Split, read};
use crate::baseline::refcount::CasRef;
use crate::prelude::*;
use manylane_lab::device::write_same;

const FLOWS: u16 = 4096;
/// Frames on their way between two threads at most.
const RING: usize = 512;
const MTU: u32 = 1500;
/// What the first word of a rebuilt dst says: its port, and its MTU above.
const FACTS: u64 = 1 | (MTU as u64) << 32;

/// What both threads of every row read.
pub struct EndToEnd {
    depot: Depot,
    fib: Ipv4Fib,
    domain: Domain,
    shared: Vec<Shared<CasRef>>,
    split: Vec<Split<CasRef>>,
    product: Dsts,
    _writers: (Ipv4Writer, DstsMut),
}

impl EndToEnd {
    /// A route to the destination, with a dst of each kind behind it.
    pub fn new() -> Result<EndToEnd> {
        let region = RegionConfig { frames: 4096, frame_size: 2048 };
        let region = Region::new(region)?;
        let domain = Domain::new(4);
        let hop = NextHopId::new(7).expect("it is small");
        let tables = Ipv4Tables::zeroed(Ipv4Sizes::for_long_routes(64));
        let mut ipv4 = Ipv4Writer::new(tables, &domain, Limits::default());
        let network = Ipv4Prefix::containing(DESTINATION, 24).expect("24 is a length");
        ipv4.insert(network, hop)?;
        let generation = NextHopsMut::new(WordsMut::zeroed(16)).generation();
        let mut dsts = DstsMut::new(domain.clone(), 16, 4, generation);
        let (port, flags) = (PortId(1), Flags::default());
        let facts = Facts { next_hop: hop, neighbour: Some(1), port, mtu: MTU, flags };
        dsts.publish(&facts)?;
        let mut shared: Vec<_> = (0..16).map(|_| Shared::new(CasRef::new(1))).collect();
        let mut split: Vec<_> = (0..16).map(|_| Split::new(CasRef::new(1))).collect();
        shared.iter_mut().for_each(|route| route.set_first(FACTS));
        split.iter_mut().for_each(|route| route.set_first(FACTS));
        Ok(EndToEnd {
            depot: Depot::new(region, 8).expect("the region is new"),
            fib: ipv4.reader(),
            domain,
            shared,
            split,
            product: dsts.reader(),
            _writers: (ipv4, dsts),
        })
    }

    pub fn round(&self, bench: &mut Bench) -> Result {
        self.row(bench, "cas_shared", &Looping(&self.shared))?;
        self.row(bench, "cas_split", &Looping(&self.split))?;
        self.row(bench, "rcuref", &Counted(&self.product))?;
        self.row(bench, "guard", &Uncounted(&self.product))
    }

    fn row<K: Keep>(&self, bench: &mut Bench, name: &str, keep: &K) -> Result {
        let slice = bench.slice_with(
            2,
            || Pair::new(&self.depot),
            |pair: &Pair<K::Held>, thread, lap| {
                let reader = self.domain.register().expect("there is a place for each thread");
                Side { lab: self, keep, reader, side: lock(&pair.0[thread]) }.run(&lap)
            },
        )?;
        bench.ns(&format!("e2e_{name}_ns"), ns_of(&slice));
        Ok(())
    }
}

/// A design that keeps the result of a lookup.
trait Keep: Sync {
    type Held: Send;

    /// Under the sender's guard: what the packet must fit, and what the frame carries along.
    fn hold(&self, guard: Guard<'_>, id: Index<'_, Mark>) -> (u32, Self::Held);

    /// Under the receiver's guard: the port.
    fn read(&self, guard: Guard<'_>, held: &Self::Held, look_up: impl FnOnce() -> u32) -> PortId;

    fn put(&self, guard: Guard<'_>, held: Self::Held);
}

struct Counted<'a>(&'a Dsts);

impl Keep for Counted<'_> {
    type Held = DstRef;

    #[inline(always)]
    fn hold(&self, guard: Guard<'_>, id: Index<'_, Mark>) -> (u32, DstRef) {
        let dst = self.0.borrow(guard, id, 0).expect("it is published");
        (dst.facts().mtu, self.0.hold(dst))
    }

    #[inline(always)]
    fn read(&self, _: Guard<'_>, held: &DstRef, _: impl FnOnce() -> u32) -> PortId {
        self.0.facts(held).port
    }

    #[inline(always)]
    fn put(&self, guard: Guard<'_>, held: DstRef) {
        self.0.put(guard, held);
    }
}

struct Uncounted<'a>(&'a Dsts);

impl Keep for Uncounted<'_> {
    type Held = ();

    #[inline(always)]
    fn hold(&self, guard: Guard<'_>, id: Index<'_, Mark>) -> (u32, ()) {
        (self.0.borrow(guard, id, 0).expect("it is published").facts().mtu, ())
    }

    #[inline(always)]
    fn read(&self, guard: Guard<'_>, (): &(), look_up: impl FnOnce() -> u32) -> PortId {
        let id: Index<'_, Mark> = Index::new(guard, look_up());
        self.0.borrow(guard, id, 0).expect("it is published").facts().port
    }

    #[inline(always)]
    fn put(&self, _: Guard<'_>, (): ()) {}
}

/// Of dsts by next-hop id, as many as the product's table has, with a count that is a loop.
struct Looping<'a, R>(&'a [R]);

impl<R: Route<CasRef>> Looping<'_, R> {
    /// Port and MTU, after all that a packet reads of a dst.
    #[inline(always)]
    fn facts(&self, id: u32) -> (PortId, u32) {
        let word = read(self.0[id as usize].fields());
        (PortId(word as u16), (word >> 32) as u32)
    }
}

impl<R: Route<CasRef>> Keep for Looping<'_, R> {
    type Held = u32;

    #[inline(always)]
    fn hold(&self, _: Guard<'_>, id: Index<'_, Mark>) -> (u32, u32) {
        let (_, mtu) = self.facts(id.raw());
        assert!(self.0[id.raw() as usize].count().get(), "the table keeps a reference");
        (mtu, id.raw())
    }

    #[inline(always)]
    fn read(&self, _: Guard<'_>, &held: &u32, _: impl FnOnce() -> u32) -> PortId {
        self.facts(held).0
    }

    #[inline(always)]
    fn put(&self, _: Guard<'_>, held: u32) {
        assert!(!self.0[held as usize].count().put(), "the table keeps a reference");
    }
}

/// Both threads' ends of two rings.
struct Pair<H: Send>([Mutex<Ends<H>>; 2]);

struct Ends<H: Send> {
    pool: Pool,
    sent: Producer<(Frame, H)>,
    received: Consumer<(Frame, H)>,
    batch: Batch,
    flow: u16,
}

impl<H: Send> Pair<H> {
    fn new(depot: &Depot) -> Pair<H> {
        let ((to_second, from_first), (to_first, from_second)) = (ring(RING), ring(RING));
        let ends = |sent, received, flow| {
            Mutex::new(Ends { pool: depot.pool(), sent, received, batch: Batch::new(), flow })
        };
        Pair([ends(to_second, from_second, 0), ends(to_first, from_first, FLOWS / 2)])
    }
}

/// Frames that are left in the rings return to their pools. (Their references stay: no code reads their number.)
impl<H: Send> Drop for Pair<H> {
    fn drop(&mut self) {
        for ends in &mut self.0 {
            let Ends { pool, received, .. } = &mut *lock(ends);
            while let Some((frame, _)) = received.pop() {
                pool.give_back(frame);
            }
        }
    }
}

struct Side<'a, K: Keep> {
    lab: &'a EndToEnd,
    keep: &'a K,
    reader: Reader,
    side: MutexGuard<'a, Ends<K::Held>>,
}

impl<K: Keep> Side<'_, K> {
    fn run(&mut self, lap: &Lap<'_>) -> Share {
        let template = ipv4_template(DESTINATION, FRAME_LEN).0;
        let mut watch = lap.start();
        let mut received = 0;
        loop {
            for _ in 0..8 {
                self.send(&template);
                received += self.receive();
                self.reader.quiescent();
            }
            if watch.look() >= lap.length() {
                return watch.share(received.max(1));
            }
        }
    }

    /// A batch, or what finds room.
    #[inline(always)]
    fn send(&mut self, template: &Head) {
        let (guard, EndToEnd { fib, .. }, keep) = (self.reader.guard(), self.lab, self.keep);
        let Ends { pool, sent, batch, flow, .. } = &mut *self.side;
        let wanted = sent.room(BATCH_MAX);
        pool.take_into(batch, wanted);
        write_same(pool, batch, FRAME_LEN, template, |bytes| {
            *flow = (*flow + 1) % FLOWS;
            bytes[34..36].copy_from_slice(&flow.to_be_bytes());
        });
        let region = pool.region().view();
        let mut packets = batch.drain().map(|mut frame| {
            let bytes = region.bytes_mut(&mut frame);
            let id = fib.lookup(guard, destination(bytes));
            let (mtu, held) = keep.hold(guard, id);
            assert!(bytes.len() as u32 - 14 <= mtu, "it fits");
            (frame, held)
        });
        sent.push_all(&mut packets);
        drop(packets);
        sent.submit();
    }

    /// What has come, up to a batch.
    #[inline(always)]
    fn receive(&mut self) -> u64 {
        let (guard, EndToEnd { fib, .. }, keep) = (self.reader.guard(), self.lab, self.keep);
        let Ends { pool, received, .. } = &mut *self.side;
        let mut packets = 0;
        for (mut frame, held) in received.pop_up_to(BATCH_MAX) {
            let bytes = pool.region().view().bytes_mut(&mut frame);
            let to = destination(bytes);
            let port = keep.read(guard, &held, || fib.lookup(guard, to).raw());
            bytes[..6].copy_from_slice(&[2, 0, 0, 0, 1, port.0 as u8]);
            bytes[22] -= 1;
            let sum = u32::from(u16::from_be_bytes([bytes[24], bytes[25]])) + 0x0100;
            let sum = (sum + u32::from(sum >= 0xffff)) as u16;
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            pool.give_back(frame);
            keep.put(guard, held);
            packets += 1;
        }
        received.release();
        packets
    }
}

#[inline(always)]
fn destination(bytes: &[u8]) -> u32 {
    bytes[30..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
