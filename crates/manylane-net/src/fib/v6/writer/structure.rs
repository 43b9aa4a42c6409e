//! What an edit changes of entries and leaves: one block, built anew, or nothing.

use super::super::tree::{HOST, INDEX, NODE, stride};
use super::super::{BUCKET_LEN, bucket, lower, plan, upper};
use super::Ipv6Writer;
use crate::fib::interval::{Interval, Owner, Span, intervals};
use crate::fib::rib::Bits;
use crate::fib::{EDIT_RETIRES, EditError, Ipv6Prefix};

/// Which half of the address a structure is over; for the lower one, in which /64.
#[derive(Clone, Copy)]
pub(super) enum Half {
    Upper,
    Lower(u64),
}

/// A block of keys, of prefix length `pos`, that a structure begins with, or an entry of it is for.
#[derive(Clone, Copy)]
struct Block {
    slot: Slot,
    first: u64,
    pos: u32,
    /// What the slot says.
    way: u32,
}

/// Where the word of a block is.
#[derive(Clone, Copy)]
enum Slot {
    Bucket(usize),
    Entry(usize),
    /// The word of the /64, in `hosts` and where its upper half leads.
    Host(u64),
}

/// What happened to a route.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Came,
    Went,
}

/// What a change of the structure has done.
#[derive(PartialEq, Eq)]
pub(super) enum Done {
    /// The words around the route are as the RIB says.
    Rebuilt,
    /// Nothing: the route ends where entries end, and only their values are to change.
    Nothing,
}

impl Ipv6Writer {
    /// Makes the structures around `prefix`, which has come or gone, what the RIB says. A short one has
    /// none. On an error only the values of what has gone are to change.
    pub(super) fn restructure(
        &mut self,
        prefix: Ipv6Prefix,
        change: Change,
    ) -> Result<Done, EditError> {
        let addr = prefix.addr().to_bits();
        let (upper, len) = (upper(addr), u32::from(prefix.len()));
        if len <= BUCKET_LEN {
            return Ok(Done::Nothing);
        }
        if self.limits.waiting_max - self.limbo.len() < EDIT_RETIRES {
            return Err(self.busy());
        }
        if len <= 64 {
            return self.restructure_half(
                self.bucket_block(upper),
                Half::Upper,
                (upper, len),
                change,
            );
        }
        let key = (lower(addr), len - 64);
        let network = u128::from(upper) << 64;
        match self.hosts.get(&upper).copied() {
            None => self.begin_host(upper),
            Some(_) if self.longer.within(network, network.last(64)).next().is_none() => {
                self.end_host(upper)
            }
            Some(way) => {
                let (slot, way) = (Slot::Host(upper), way & !HOST);
                let block = Block { slot, first: 0, pos: 0, way };
                self.restructure_half(block, Half::Lower(upper), key, change)
            }
        }
    }

    /// Whether lower halves in `prefix`, which are kept when the structure above them is built anew, have values of it.
    pub(super) fn has_hosts(&self, prefix: Ipv6Prefix) -> bool {
        let (first, last) = (upper(prefix.addr().to_bits()), upper(prefix.last().to_bits()));
        prefix.len() <= 64 && self.hosts.range(first..=last).next().is_some()
    }

    /// The first route longer than /64 in a /64.
    fn begin_host(&mut self, upper: u64) -> Result<Done, EditError> {
        let (cut, spans) = self.cut(Half::Lower(upper), 0, 0);
        let way = self.build(&cut, &spans, 0)?.value | HOST;
        self.hosts.insert(upper, way);
        let block = self.bucket_block(upper);
        match self.restructure_half(block, Half::Upper, (upper, 64), Change::Came) {
            Ok(Done::Rebuilt) => (),
            Ok(Done::Nothing) => self.set_upper(upper, Owner { value: way, depth: 0 }),
            Err(error) => {
                self.hosts.remove(&upper);
                self.trees.give_back(way); // No reader has found it.
                return Err(error);
            }
        }
        Ok(Done::Rebuilt)
    }

    /// The last one has gone.
    fn end_host(&mut self, upper: u64) -> Result<Done, EditError> {
        let way = self.hosts.remove(&upper).expect("the caller found it");
        let block = self.bucket_block(upper);
        match self.restructure_half(block, Half::Upper, (upper, 64), Change::Went) {
            Ok(Done::Rebuilt) => (),
            // The /64's boundaries stay, and its value becomes plain.
            Ok(Done::Nothing) | Err(EditError::Full { .. }) => {
                self.set_upper(upper, Owner::of(self.networks.longest(upper, 64)));
            }
            Err(busy) => {
                self.hosts.insert(upper, way);
                return Err(busy);
            }
        }
        self.retire(way);
        Ok(Done::Rebuilt)
    }

    /// The edit for one half: down the entries to the block that the route's end is inside of, which is built anew; or
    /// a larger block whose strides are due.
    fn restructure_half(
        &mut self,
        mut block: Block,
        half: Half,
        (key, len): (u64, u32),
        change: Change,
    ) -> Result<Done, EditError> {
        let mut passed = Passed::default();
        let mut is_aligned = false;
        while block.way & INDEX != 0 {
            let shape = self.trees.shape(block.way);
            let is_over = change == Change::Went && shape.routes == 1;
            if is_over || shape.edits_left == 0 {
                // Without room for it later will do.
                shape.edits_left = plan::EDITS_MIN;
                if self.rebuild(block, half).is_ok() {
                    self.count(&passed, change);
                    return Ok(Done::Rebuilt);
                }
            }
            passed.push(block.way);
            let pos = block.pos + stride(block.way);
            if len <= pos {
                is_aligned = true;
                break;
            }
            let (at, way) = self.trees.entry(block.way, key << block.pos);
            block = Block { slot: Slot::Entry(at), first: key.first(pos as u8), pos, way };
        }
        let done = if is_aligned { Ok(Done::Nothing) } else { self.rebuild(block, half) };
        // What was removed stays removed, also without room, when its boundaries stay.
        let is_gone = change == Change::Went && matches!(done, Err(EditError::Full { .. }));
        if done.is_ok() || is_gone {
            self.count(&passed, change);
        }
        done
    }

    /// Writes and publishes what the RIB says of `block`, and retires what was there. On an error
    /// nothing has changed.
    fn rebuild(&mut self, block: Block, half: Half) -> Result<Done, EditError> {
        let (cut, spans) = self.cut(half, block.first, block.pos);
        let owner = self.build(&cut, &spans, block.pos)?;
        match block.slot {
            Slot::Bucket(bucket) => self.publish(bucket, owner),
            Slot::Entry(at) => self.trees.set_entry(at, owner),
            Slot::Host(upper) => {
                let way = owner.value | HOST;
                self.hosts.insert(upper, way);
                self.set_upper(upper, Owner { value: way, depth: 0 });
            }
        }
        if block.way & NODE != 0 && block.way & HOST == 0 {
            self.retire(block.way);
        }
        Ok(Done::Rebuilt)
    }

    fn count(&mut self, passed: &Passed, change: Change) {
        for &way in &passed.ways[..passed.len] {
            let shape = self.trees.shape(way);
            shape.routes = match change {
                Change::Came => shape.routes + 1,
                Change::Went => shape.routes - 1,
            };
            shape.edits_left = shape.edits_left.saturating_sub(1);
        }
    }

    fn bucket_block(&self, upper: u64) -> Block {
        let bucket = bucket(upper);
        let (first, way) = (upper.first(BUCKET_LEN as u8), self.direct.load(bucket));
        Block { slot: Slot::Bucket(bucket), first, pos: BUCKET_LEN, way }
    }

    /// Overwrites what is said of the /64 `upper`.
    fn set_upper(&mut self, upper: u64, owner: Owner) {
        let block = self.bucket_block(upper);
        self.trees.set(block.way, upper, block.pos, owner);
    }

    /// The intervals of a block, and the longer routes in it that made them.
    pub(super) fn cut(&self, half: Half, first: u64, pos: u32) -> (Vec<Interval>, Vec<Span>) {
        let last = first.last(pos as u8);
        let span = |first: u64, len: u8, owner| Span { first, last: first.last(len), owner };
        let mut spans: Vec<Span> = Vec::new();
        let base = match half {
            Half::Upper => {
                let routes = self.networks.within(first, last);
                let longer = routes.filter(|route| u32::from(route.1) > pos);
                spans.extend(
                    longer.map(|(first, len, id)| span(first, len, Owner::of(Some((len, id))))),
                );
                let hosts = self.hosts.range(first..=last);
                let routes = spans.len();
                spans.extend(
                    hosts.map(|(&upper, &way)| span(upper, 64, Owner { value: way, depth: 0 })),
                );
                if spans.len() > routes {
                    // Stable: a /64's lower half stays behind its route, in whose place it is found.
                    spans.sort_by_key(|span| (span.first, !span.last));
                }
                self.networks.longest(first, pos as u8)
            }
            Half::Lower(upper) => {
                let network = u128::from(upper) << 64;
                let within = (network | u128::from(first), network | u128::from(last));
                let routes = self.longer.within(within.0, within.1);
                let longer = routes.filter(|route| u32::from(route.1) > 64 + pos);
                spans.extend(longer.map(|(addr, len, id)| {
                    span(lower(addr), len - 64, Owner::of(Some((len, id))))
                }));
                self.longest(within.0, 64 + pos as u8)
            }
        };
        (intervals((first, last), Owner::of(base), spans.iter().copied()), spans)
    }
}

/// The structures on the way to a change, each by the word that leads there: at most one for each four
/// bits.
#[derive(Default)]
struct Passed {
    ways: [u32; 16],
    len: usize,
}

impl Passed {
    fn push(&mut self, way: u32) {
        self.ways[self.len] = way;
        self.len += 1;
    }
}
