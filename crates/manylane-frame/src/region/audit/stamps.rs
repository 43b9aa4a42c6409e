//! The words, one for each frame, and what may become of them. In debug builds only.

use manylane_sync::primitive::{AtomicU64, Ordering};

use super::{Holder, Missing};
use crate::frame::Generation;
use crate::vocabulary::PortId;

/// The words of all frames.
pub(crate) struct Stamps(Box<[AtomicU64]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Out,
    Lent,
    Part,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Free => "free",
            State::Out => "out",
            State::Lent => "lent",
            State::Part => "part of a packet",
        }
    }
}

#[derive(Clone, Copy)]
struct Stamp {
    state: State,
    /// Whether the bytes are poison.
    poisoned: bool,
    generation: u32,
    holder: Holder,
}

impl Stamps {
    /// All frames are free, and have never been taken.
    pub fn new(frames: u32) -> Stamps {
        Stamps((0..frames).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether the bytes must be poison.
    pub fn taken(&self, index: u32, pool: u16) -> (Generation, bool) {
        let old = self.change(index, State::Free, "taken", None, |stamp| Stamp {
            state: State::Out,
            poisoned: false,
            generation: stamp.generation.wrapping_add(1),
            holder: Holder::Hand(pool),
        });
        (Generation(old.generation.wrapping_add(1)), old.poisoned)
    }

    pub fn given_back(&self, index: u32, generation: Generation, pool: u16) {
        let holder = Holder::Pool(pool);
        self.change(index, State::Out, "given back", Some(generation), |stamp| Stamp {
            state: State::Free,
            poisoned: true,
            holder,
            ..stamp
        });
    }

    pub fn lent(&self, index: u32, generation: Generation) {
        self.turn(index, State::Out, State::Lent, "lent", Some(generation));
    }

    pub fn reclaimed(&self, index: u32) -> Generation {
        self.turn(index, State::Lent, State::Out, "reclaimed", None)
    }

    pub fn joined(&self, index: u32, generation: Generation, first: u32) {
        self.change(index, State::Out, "joined to a packet", Some(generation), |stamp| Stamp {
            state: State::Part,
            holder: Holder::Chain(first),
            ..stamp
        });
    }

    pub fn parted(&self, index: u32) -> Generation {
        self.turn(index, State::Part, State::Out, "parted from its packet", None)
    }

    /// A handle is used.
    #[inline]
    pub fn used(&self, index: u32, generation: Generation) {
        let stamp = self.load(index);
        if stamp.state != State::Out || stamp.generation != generation.0 {
            wrong(index, "used", stamp, Some(generation));
        }
    }

    pub fn note(&self, index: u32, holder: Holder) {
        // Relaxed: the holder of a frame writes its word, and frames change hands with an ordering of their own.
        let stamp = Stamp { holder, ..self.load(index) };
        self.0[index as usize].store(pack(stamp), Ordering::Relaxed);
    }

    /// The frame's bytes are not the poison they were.
    pub fn spoilt(&self, index: u32, at: usize) -> ! {
        let holder = self.load(index).holder;
        panic!(
            "byte {at} of frame {index} was written while it was free: by a device, or through \
             an old pointer; now with {holder}"
        );
    }

    /// The frames that are not free.
    pub fn missing(&self) -> Vec<Missing> {
        let stamps = (0..self.0.len() as u32).map(|frame| (frame, self.load(frame)));
        let away = stamps.filter(|(_, stamp)| stamp.state != State::Free);
        away.map(|(frame, stamp)| Missing {
            frame,
            state: stamp.state.name(),
            holder: stamp.holder,
        })
        .collect()
    }

    fn turn(
        &self,
        index: u32,
        from: State,
        to: State,
        event: &str,
        generation: Option<Generation>,
    ) -> Generation {
        let to = |stamp: Stamp| Stamp { state: to, ..stamp };
        Generation(self.change(index, from, event, generation, to).generation)
    }

    fn change(
        &self,
        index: u32,
        from: State,
        event: &str,
        generation: Option<Generation>,
        to: impl FnOnce(Stamp) -> Stamp,
    ) -> Stamp {
        let old = self.load(index);
        if old.state != from || generation.is_some_and(|own| own.0 != old.generation) {
            wrong(index, event, old, generation);
        }
        let word = &self.0[index as usize];
        // Relaxed: as in `note`. An exchange, so that of two threads that both believe they hold the frame, on two
        // cores at once, one panics.
        let seen = word.swap(pack(to(old)), Ordering::Relaxed);
        if seen != pack(old) {
            wrong(index, event, unpack(seen), generation);
        }
        old
    }

    fn load(&self, index: u32) -> Stamp {
        // Relaxed: as in `note`.
        unpack(self.0[index as usize].load(Ordering::Relaxed))
    }
}

#[cold]
fn wrong(index: u32, event: &str, stamp: Stamp, generation: Option<Generation>) -> ! {
    let Stamp { state, holder, generation: now, .. } = stamp;
    let state = state.name();
    match generation {
        Some(Generation(own)) if own != now => panic!(
            "frame {index} cannot be {event}: the handle is of life {own}, and the frame in life \
             {now}, {state}, last held by {holder}"
        ),
        _ => panic!("frame {index} cannot be {event}: it is {state}, last held by {holder}"),
    }
}

/// State in bits 0 and 1, poisoned in 2, kind of holder in 4 to 7, its number in 8 to 31, generation
/// from 32 on.
fn pack(stamp: Stamp) -> u64 {
    let (kind, number) = match stamp.holder {
        Holder::None => (0, 0),
        Holder::Pool(number) => (1, number.into()),
        Holder::Hand(number) => (2, number.into()),
        Holder::Receive(port) => (3, port.0.into()),
        Holder::Transmit(port) => (4, port.0.into()),
        Holder::Wire(port) => (5, port.0.into()),
        Holder::Hold => (6, 0),
        Holder::Chain(first) => (7, first),
        Holder::Ring(number) => (8, number.into()),
    };
    let generation = u64::from(stamp.generation);
    let low = stamp.state as u32 | u32::from(stamp.poisoned) << 2 | kind << 4 | number << 8;
    generation << 32 | u64::from(low)
}

fn unpack(word: u64) -> Stamp {
    let number = word as u32 >> 8;
    let port = PortId(number as u16);
    Stamp {
        state: [State::Free, State::Out, State::Lent, State::Part][word as usize & 3],
        poisoned: word >> 2 & 1 == 1,
        generation: (word >> 32) as u32,
        holder: match word >> 4 & 15 {
            0 => Holder::None,
            1 => Holder::Pool(number as u16),
            2 => Holder::Hand(number as u16),
            3 => Holder::Receive(port),
            4 => Holder::Transmit(port),
            5 => Holder::Wire(port),
            6 => Holder::Hold,
            7 => Holder::Chain(number),
            _ => Holder::Ring(number as u16),
        },
    }
}
