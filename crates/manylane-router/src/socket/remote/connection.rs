//! One connection: a process, and the socket that it has opened.

use std::io::IoSlice;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use manylane_frame::vocabulary::{Point, PortId};
use manylane_io::eventfd::EventFd;
use manylane_io::packet_ring::{Lane, RingConfig, RingError, Watch};
use manylane_net::filter::{Instruction, Program};
use manylane_sync::doorbell::{Doorbell, Wake};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::ahead::{Ahead, Alarm, NoAlarm};
use super::closer::{Channel, Head};
use super::maker::Ring;
use super::overload::Spent;
use crate::socket::endpoint::{Wishes, snap_of};
use crate::socket::{Endpoint, Fanout, Owner, Points, SocketError, Sockets, protocol};
use manylane_client::message::{
    Answer, Bind, Counts, Join, Kind, Open, Port, REQUEST_MAX, Refusal, Request, Set,
};
use manylane_worker::hooks::Lanes;

/// What a connection needs of the server.
pub(super) struct ServerContext {
    pub sockets: Sockets,
    /// Of ports and sub-interfaces, by id.
    pub names: Box<[String]>,
    /// The bell of the thread that wakes readers.
    pub bell: Arc<Doorbell<EventFd>>,
    /// What was made for the next socket.
    pub ahead: Ahead,
}

/// A process that is connected.
pub(super) struct Connection {
    channel: Channel,
    pub owner: Owner,
    /// No other connection's, ever.
    pub number: u64,
    open: Option<Opened>,
    /// The request that waits while its ring is being made.
    waits: Option<Open>,
    /// A large ring that was made for it in vain.
    left: Option<Arc<Lanes>>,
    /// Until when its socket is neither opened nor changed.
    pub barred: Option<Instant>,
    life: Arc<()>,
}

struct Opened {
    endpoint: Endpoint,
    watch: Watch,
    /// Ours alone: the reader sleeps on it through an epoll instance.
    event: EventFd,
    /// What its reader last said of blocks that it did not show.
    stale: u64,
    /// What each worker had spent on it when [`Connection::spent`] last looked.
    time_ns: Box<[u64]>,
}

/// Whether a connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    HangUp,
    /// Until its ring is made, the connection is not read.
    Wait(RingConfig),
}

/// What comes of a request.
type Outcome = Result<Reply, Refusal>;

enum Reply {
    Answer(Answer, Descriptors),
    Wait(RingConfig),
}

/// Bytes of a ring that is made, and given back, between two other requests: a tenth of a millisecond.
const AT_ONCE: u64 = 1 << 20;

/// A descriptor each for the ring and for waking, which the first answer takes along.
type Descriptors = Option<[OwnedFd; 2]>;

impl Connection {
    pub fn new(channel: Channel, owner: Owner, number: u64) -> Connection {
        let life = Arc::new(());
        let (open, waits, left, barred) = (None, None, None, None);
        Connection { channel, owner, number, open, waits, left, barred, life }
    }

    /// Answers one request, if one has arrived: the work of a turn. `buffer` is one byte longer than a request may be.
    pub fn serve(&mut self, context: &ServerContext, buffer: &mut [u8]) -> Next {
        if self.waits.is_some() {
            return Next::HangUp; // The process has hung up itself: no other event matters now.
        }
        match self.channel.head() {
            Head::Message => {}
            Head::Nothing => return Next::Stay,
            Head::End => return Next::HangUp,
            Head::Descriptors => {
                let error = "a request brings no descriptors; send none".into();
                self.say(&Answer::Refused(bad(error)), None);
                return Next::HangUp;
            }
        }
        let len = match self.channel.receive(buffer) {
            Ok(0) => return Next::HangUp, // Nothing said, which is no request, or the end.
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Next::Stay,
            Err(_) => return Next::HangUp,
        };
        let outcome = if len > REQUEST_MAX {
            Err(bad(format!(
                "a request of more than {REQUEST_MAX} bytes; send a shorter packet or filter"
            )))
        } else {
            self.execute(context, &buffer[..len])
        };
        self.answer(outcome)
    }

    /// Its ring was made, or refused.
    pub fn made(&mut self, context: &ServerContext, made: Result<Ring, SocketError>) -> Next {
        let Some(open) = self.waits.take() else { return Next::Stay };
        let lanes = made.as_ref().ok().map(|(lanes, _)| lanes.clone());
        let outcome = made.map_err(refuse).and_then(|ring| self.open(context, open, Some(ring)));
        if outcome.is_err() {
            self.left = lanes; // A hook may have had it already.
        }
        self.answer(outcome)
    }

    /// A large ring that it did not come to have.
    pub fn take_left(&mut self) -> Option<Arc<Lanes>> {
        self.left.take()
    }

    /// For threads that work for the connection, as long as it exists.
    pub fn life(&self) -> Weak<()> {
        Arc::downgrade(&self.life)
    }

    /// What workers have spent on its socket since this was last asked, if bounds are for its user.
    pub fn spent(&mut self, place: usize) -> Option<Spent> {
        let user = self.owner.bounded_user()?;
        let open = self.open.as_mut()?;
        let since = |(lane, before): (&Arc<Lane>, &mut u64)| {
            let now = lane.time_ns();
            now.saturating_sub(mem::replace(before, now))
        };
        let lanes = &open.endpoint.lanes().of;
        let by_worker = lanes.iter().zip(&mut open.time_ns).map(since).collect();
        Some(Spent { place, user, by_worker })
    }

    /// Closes the socket, and gives the connection, which still is to be closed, and what may be dropped later. A process that has kept the ring's memfd, or a
    /// mapping of it, keeps none of its pages once workers have let go of the ring.
    pub fn close(self) -> (Channel, Option<Arc<Lanes>>) {
        let Some(open) = self.open else { return (self.channel, None) };
        let lanes = open.endpoint.lanes().clone();
        lanes.free_pages_at_end();
        drop(open);
        let later = (lanes.charge.bytes() > AT_ONCE).then_some(lanes);
        (self.channel, later)
    }

    /// Its end of a connection, of a daemon that ends: what was published can still be read.
    pub fn leave(self) -> Channel {
        self.channel
    }

    fn answer(&self, outcome: Outcome) -> Next {
        match outcome {
            Ok(Reply::Answer(answer, descriptors)) => self.say(&answer, descriptors),
            Ok(Reply::Wait(config)) => Next::Wait(config),
            Err(refusal) => self.say(&Answer::Refused(refusal), None),
        }
    }

    /// Sends an answer. Hangs up on a process that has not read the answers before.
    pub fn say(&self, answer: &Answer, descriptors: Descriptors) -> Next {
        let answer = serde_json::to_vec(answer).expect("all of an answer is JSON");
        let fds = descriptors.as_ref().map(|[ring, bell]| [ring.as_fd(), bell.as_fd()]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(fds) = &fds {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(fits, "the buffer has space for two");
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.channel, &[IoSlice::new(&answer)], &mut control, flags) {
            Ok(_) => Next::Stay,
            Err(_) => Next::HangUp,
        }
    }

    /// Wakes the reader, if it sleeps and something was published.
    pub fn wake(&mut self) {
        if let Some(Opened { watch, event, .. }) = &mut self.open
            && watch.take()
        {
            event.wake();
        }
    }

    /// Whether something was published that [`wake`](Self::wake) has not seen.
    pub fn is_waiting(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.watch.is_waiting())
    }

    fn execute(&mut self, context: &ServerContext, request: &[u8]) -> Outcome {
        let newline = request.iter().position(|&byte| byte == b'\n');
        let (request, tail) = match newline {
            Some(at) => (&request[..at], &request[at + 1..]),
            None => (request, &[][..]),
        };
        let request = serde_json::from_slice(request)
            .map_err(|error| bad(format!("it is no request of this version: {error}")))?;
        if !matches!(request, Request::Ports | Request::Statistics { .. } | Request::Send) {
            self.may_change()?;
        }
        match (request, &mut self.open) {
            (Request::Ports, _) => {
                let names = (0..).zip(&context.names);
                let ports = names.map(|(port, name)| Port { port, name: name.clone() }).collect();
                Ok(Reply::Answer(Answer::Ports { ports }, None))
            }
            (Request::Open(open), None) => {
                let config = open.ring();
                if context.sockets.ring_bytes(&config).map_err(refuse)? <= AT_ONCE {
                    return self.open(context, open, None);
                }
                Words::of(context, &open)?; // Or a large ring would be made for nothing.
                self.waits = Some(open);
                Ok(Reply::Wait(config))
            }
            (Request::Capture(_), _) => {
                Err(bad("only `manylane accelerate` has captures; say `open`".into()))
            }
            (Request::Open(_), Some(_)) => {
                Err(bad("a connection is one socket, and this one is open; connect again".into()))
            }
            (_, None) => Err(bad("the socket is not open; say `open` first".into())),
            (Request::Statistics { stale }, Some(open)) => {
                Ok(Reply::Answer(Answer::Statistics(open.counts(stale)), None))
            }
            (request, Some(open)) => {
                open.change(context, request, tail)?;
                let generation = open.endpoint.generation();
                Ok(Reply::Answer(Answer::Done { generation }, None))
            }
        }
    }

    /// Whether its user may open and change sockets now.
    fn may_change(&mut self) -> Result<(), Refusal> {
        let (Some(user), Some(until)) = (self.owner.bounded_user(), self.barred) else {
            return Ok(());
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.barred = None;
            return Ok(());
        }
        Err(refuse(SocketError::Barred { user, seconds: left.as_secs() + 1 }))
    }

    /// Opens its socket, with this ring or one that is made now.
    fn open(&mut self, context: &ServerContext, open: Open, ring: Option<Ring>) -> Outcome {
        let (opened, descriptors) = Opened::new(context, self.owner, open, ring)?;
        let generation = opened.endpoint.generation();
        self.open = Some(opened);
        Ok(Reply::Answer(Answer::Opened { generation }, Some(descriptors)))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Opened {
    fn new(
        context: &ServerContext,
        owner: Owner,
        open: Open,
        ring: Option<Ring>,
    ) -> Result<(Opened, [OwnedFd; 2]), Refusal> {
        let Words { port, wanted, fanout } = Words::of(context, &open)?;
        let config = open.ring();
        let (ahead, alarm) = match ring {
            None => context.ahead.take(config).unzip(),
            Some(_) => (None, None),
        };
        let Alarm { event, bell } = alarm.map_or_else(Alarm::new, Ok).map_err(no_alarm)?;
        let (lanes, memfd) = match ring {
            Some(ring) => ring,
            None => {
                let made = context.sockets.make_shared(owner, &config, &context.bell, ahead);
                made.map_err(refuse)?
            }
        };
        let opened = context.sockets.endpoint(owner, lanes, protocol::NONE);
        let (mut endpoint, _) = opened.map_err(refuse)?;
        let bound = endpoint.change(|wishes| {
            (wishes.port, wishes.protocol) = (port, open.bind.protocol);
            wanted.change(wishes);
        });
        bound.map_err(refuse)?;
        if let Some((group, mode)) = fanout {
            endpoint.join_fanout(group, mode).map_err(refuse)?;
        }
        let watch = Watch::new(&endpoint.lanes().of);
        let time_ns = endpoint.lanes().of.iter().map(|_| 0).collect();
        Ok((Opened { endpoint, watch, event, stale: 0, time_ns }, [memfd, bell]))
    }

    fn change(
        &mut self,
        context: &ServerContext,
        request: Request,
        tail: &[u8],
    ) -> Result<(), Refusal> {
        let endpoint = &mut self.endpoint;
        match request {
            Request::Bind(bind) => endpoint.bind(context.port(&bind)?, bind.protocol),
            Request::Set(set) => {
                let wanted = Wanted::of(&set)?;
                let points = endpoint.wishes.points;
                match endpoint.group {
                    Some(_) if wanted.points.is_some_and(|wanted| wanted != points) => {
                        Err(SocketError::InGroup)
                    }
                    _ => endpoint.change(|wishes| wanted.change(wishes)),
                }
            }
            Request::Join(join) => {
                let (group, mode) = mode_of(&join)?;
                endpoint.join_fanout(group, mode)
            }
            Request::Leave => endpoint.leave_fanout(),
            Request::Send if !context.sockets.limits().send => Err(SocketError::MayNotSend),
            Request::Send => endpoint.send(tail),
            Request::Open(_)
            | Request::Capture(_)
            | Request::Statistics { .. }
            | Request::Ports => {
                unreachable!("they change nothing, and are answered elsewhere")
            }
        }
        .map_err(refuse)
    }

    fn counts(&mut self, stale: Option<u64>) -> Counts {
        let lanes = self.endpoint.lanes();
        if let Some(stale) = stale {
            // What it says of itself is believed as far as it cannot be less than before.
            lanes.stale.add(stale.saturating_sub(self.stale));
            self.stale = self.stale.max(stale);
        }
        let (totals, contended, _) = lanes.counted();
        Counts::of(totals, contended)
    }
}

impl ServerContext {
    fn port(&self, bind: &Bind) -> Result<Option<PortId>, Refusal> {
        let Some(name) = &bind.port else { return Ok(None) };
        match (0..).zip(&self.names).find(|(_, known)| *known == name) {
            Some((id, _)) => Ok(Some(PortId(id))),
            None => Err(Refusal {
                kind: Kind::NoSuchPort,
                error: format!("port `{name}` does not exist; `manylane show ports` lists them"),
            }),
        }
    }
}

/// What an [`Open`] says, checked: all that can be wrong with it, before anything would have to be undone.
struct Words {
    port: Option<PortId>,
    wanted: Wanted,
    fanout: Option<(u16, Fanout)>,
}

impl Words {
    fn of(context: &ServerContext, open: &Open) -> Result<Words, Refusal> {
        let fanout = open.fanout.as_ref().map(mode_of).transpose()?;
        Ok(Words { port: context.port(&open.bind)?, wanted: Wanted::of(&open.set)?, fanout })
    }
}

/// What a [`Set`] says, checked.
struct Wanted {
    points: Option<Points>,
    filter: Option<Arc<Program>>,
    snap: Option<u32>,
}

impl Wanted {
    fn of(set: &Set) -> Result<Wanted, Refusal> {
        let points = set.points.as_ref().map(|names| points_of(names)).transpose()?;
        let filter = set.filter.as_ref().map(|tuples| {
            let instruction = |&(code, jt, jf, k): &_| Instruction { code, jt, jf, k };
            Program::new(tuples.iter().map(instruction).collect())
        });
        let filter = filter.transpose().map_err(|error| Refusal {
            kind: Kind::Filter,
            error: format!("the filter is refused: {error}"),
        })?;
        Ok(Wanted { points, filter: filter.map(Arc::new), snap: set.snap.map(snap_of) })
    }

    fn change(self, wishes: &mut Wishes) {
        let Wanted { points, filter, snap } = self;
        wishes.points = points.unwrap_or(wishes.points);
        wishes.snap = snap.unwrap_or(wishes.snap);
        if let Some(filter) = filter {
            wishes.filter = filter;
        }
    }
}

fn points_of(names: &[String]) -> Result<Points, Refusal> {
    names.iter().try_fold(Points::NONE, |points, name| {
        let known = Point::ALL.iter().find(|point| point.name() == name);
        let known = known.filter(|point| **point != Point::Kernel);
        let known = known.ok_or_else(|| {
            bad(format!("no point has the name `{name}`; known are rx, tx and drop"))
        })?;
        Ok(points | Points::of(*known))
    })
}

fn mode_of(join: &Join) -> Result<(u16, Fanout), Refusal> {
    let known = Fanout::WORDS.iter().find(|(word, _)| *word == join.mode);
    let words: Vec<_> = Fanout::WORDS.iter().map(|(word, _)| *word).collect();
    let known = known.ok_or_else(|| {
        bad(format!("no fanout mode has the name `{}`; known are {}", join.mode, words.join(", ")))
    })?;
    Ok((join.group, known.1))
}

fn no_alarm(error: NoAlarm) -> Refusal {
    match error {
        NoAlarm::Event(error) => refuse(error),
        NoAlarm::Bell(error) => Refusal {
            kind: Kind::System,
            error: format!("the daemon's system has no descriptor for it: {error}; close sockets"),
        },
    }
}

fn bad(error: String) -> Refusal {
    Refusal { kind: Kind::BadRequest, error }
}

pub(super) fn refuse(error: SocketError) -> Refusal {
    let kind = match &error {
        SocketError::TooMany { .. } => Kind::TooMany,
        SocketError::Memory { .. } | SocketError::UserMemory { .. } => Kind::Memory,
        SocketError::Wake(_) | SocketError::Ring(RingError::Refused { .. }) => Kind::System,
        SocketError::Ring(_) => Kind::Ring,
        SocketError::NoSuchPort(_) => Kind::NoSuchPort,
        SocketError::Busy | SocketError::SendFull => Kind::Busy,
        SocketError::GroupDiffers | SocketError::GroupFull | SocketError::InGroup => Kind::Fanout,
        SocketError::NotBound => Kind::NotBound,
        SocketError::Length { .. } => Kind::Length,
        SocketError::Filters { .. }
        | SocketError::UserFilters { .. }
        | SocketError::Barred { .. }
        | SocketError::Time { .. } => Kind::Cost,
        SocketError::MayNotSend => Kind::Forbidden,
    };
    Refusal { kind, error: error.to_string() }
}
