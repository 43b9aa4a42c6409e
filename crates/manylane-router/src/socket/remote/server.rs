//! The thread that serves other processes' sockets and wakes their readers.
//!
//! The thread waits for no connection: it answers one request of each in a turn; a connection that does not read its
//! answers is hung up on. Workers ring its bell after they have published a block whose reader sleeps; it wakes that
//! reader.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use manylane_io::eventfd::EventFd;
use manylane_sync::doorbell::Doorbell;
use manylane_sync::words::Words;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ahead::{Ahead, QUIET};
use super::closer::Closer;
use super::connection::{self, Connection, Next, ServerContext};
use super::listener::Listener;
use super::maker::Maker;
use super::overload::{BAR, WINDOW, excess};
use crate::socket::{Owner, SocketError, SocketLimits, Sockets};
use manylane_client::message::{Answer, Kind, REQUEST_MAX, Refusal};
use manylane_io::poll::poll;
use manylane_worker::hooks::Lanes;
use manylane_worker::worker::phase::{RUN, STOP};

/// The thread's body.
pub struct Server {
    context: ServerContext,
    limits: SocketLimits,
    listener: Listener,
    phase: Words<u32>,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections so far.
    numbers: u64,
    maker: Maker,
    closer: Closer,
    /// Large rings of closed sockets, which workers may be looking at.
    leaving: Vec<Arc<Lanes>>,
    /// Connections of each user.
    users: BTreeMap<u32, u32>,
    /// Closed to refuse a connection when no more descriptors are left.
    spare: Option<EventFd>,
    /// Until when no connection is accepted, since the system refused one.
    paused: Option<Instant>,
    /// What closed sockets leave behind waits for workers.
    tends: bool,
    /// Users that open and change no socket until then.
    barred: BTreeMap<u32, Instant>,
    /// When it last looked what sockets cost workers.
    looked: Instant,
    /// When a process last said something.
    heard: Instant,
    buffer: Box<[u8]>,
}

impl Server {
    /// Serves processes that connect to `listener`, to ports of these names by id, until the phase says stop and the
    /// bell is rung.
    pub(crate) fn new(
        listener: Listener,
        sockets: Sockets,
        names: Box<[String]>,
        bell: Arc<Doorbell<EventFd>>,
        phase: Words<u32>,
    ) -> std::io::Result<Server> {
        raise_descriptors(sockets.limits().max);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let ready = epoll::EventFlags::IN;
        epoll::add(&epoll, bell.waker(), epoll::EventData::new_u64(BELL), ready)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), ready)?;
        let maker = Maker::start(sockets.clone(), bell.clone())?;
        epoll::add(&epoll, &maker, epoll::EventData::new_u64(MAKER), ready)?;
        Ok(Server {
            limits: sockets.limits(),
            context: ServerContext { sockets, names, bell, ahead: Ahead::default() },
            listener,
            phase,
            epoll,
            connections: Vec::new(),
            free: Vec::new(),
            numbers: 0,
            maker,
            closer: Closer::default(),
            leaving: Vec::new(),
            users: BTreeMap::new(),
            spare: Some(EventFd::open()?),
            paused: None,
            tends: false,
            barred: BTreeMap::new(),
            looked: Instant::now(),
            heard: Instant::now(),
            buffer: vec![0; REQUEST_MAX + 1].into(),
        })
    }

    /// Serves while the phase says so. Says when it serves no client any more, and wakes readers until the phase says stop.
    pub(crate) fn run(mut self, left: &Sender<()>) {
        let mut events = Vec::with_capacity(EVENTS);
        while self.phase.load(0) == RUN {
            self.connections.iter_mut().flatten().for_each(Connection::wake);
            self.tend();
            self.resume();
            self.bound_time();
            self.sleep(&mut events);
            self.make_ahead(&events);
            for event in events.drain(..) {
                match event.data.u64() {
                    BELL => _ = self.context.bell.waker().drain(),
                    LISTENER => self.accept(),
                    MAKER => self.give_made(),
                    place => self.serve(place as usize),
                }
            }
        }
        self.listener.end();
        while let Ok((channel, _)) = self.listener.accept() {
            self.closer.close(channel); // The server has not served this one.
        }
        let _ = left.send(()); // A daemon that has not waited for it.
        let Server { context, phase, connections, .. } = &mut self;
        loop {
            let stops = phase.load(0) == STOP;
            connections.iter_mut().flatten().for_each(Connection::wake);
            if stops {
                break; // And what was published last has been seen.
            }
            let has_work = || {
                phase.load(0) == STOP || connections.iter().flatten().any(Connection::is_waiting)
            };
            context.bell.sleep(has_work, || poll(&[context.bell.waker().as_fd()], None));
            context.bell.waker().drain();
        }
        for connection in self.connections.drain(..).flatten() {
            self.closer.close(connection.leave());
        }
    }

    /// Closes sockets of users but root that took too much of a worker's time, and says why.
    fn bound_time(&mut self) {
        let window = self.looked.elapsed();
        if window < WINDOW || !self.has_users() {
            return;
        }
        self.looked = Instant::now();
        let open = self.connections.iter_mut().enumerate();
        let spent: Vec<_> = open.filter_map(|(place, one)| one.as_mut()?.spent(place)).collect();
        let max = self.limits.time_max;
        for over in excess(&spent, window, max) {
            let Some(connection) = &self.connections[over.place] else { continue };
            let time = SocketError::Time { worker: over.worker, percent: over.percent, max };
            connection.say(&Answer::Refused(connection::refuse(time)), None);
            self.context.sockets.count_closed_for_time();
            let owner = connection.owner;
            self.hang_up(over.place);
            self.bar(owner);
        }
    }

    /// Has a user's sockets neither opened nor changed for a while.
    fn bar(&mut self, owner: Owner) {
        let (Some(user), now) = (owner.bounded_user(), Instant::now()) else { return };
        self.barred.retain(|_, until| *until > now);
        self.barred.insert(user, now + BAR);
        let open = self.connections.iter_mut().flatten();
        let own = open.filter(|one| one.owner.bounded_user() == Some(user));
        own.for_each(|one| one.barred = Some(now + BAR));
    }

    /// Whether users are connected that bounds are for.
    fn has_users(&self) -> bool {
        self.users.keys().any(|&user| user != 0)
    }

    fn sleep(&self, events: &mut Vec<epoll::Event>) {
        let Server { context, phase, connections, epoll, .. } = self;
        let watches = self.has_users().then(|| WINDOW.saturating_sub(self.looked.elapsed()));
        let retry = (self.tends || self.paused.is_some()).then_some(RETRY).or(watches);
        let quiet = context.ahead.is_wanting().then(|| QUIET.saturating_sub(self.heard.elapsed()));
        let retry = retry.into_iter().chain(quiet).min();
        let wait = |timeout: Option<Duration>, events: &mut Vec<epoll::Event>| {
            let timeout = timeout.map(|timeout| Timespec::try_from(timeout).expect("it is short"));
            // A signal, or ENOMEM: then it turns instead of sleeping.
            let _ = epoll::wait(epoll, spare_capacity(events), timeout.as_ref());
        };
        let has_work =
            || phase.load(0) != RUN || connections.iter().flatten().any(Connection::is_waiting);
        if context.bell.sleep(has_work, || wait(retry, events)).is_none() {
            // Readers to wake do not keep others from being heard.
            wait(Some(Duration::ZERO), events);
        }
    }

    /// Makes what the next socket needs, if no process has said anything for a while.
    fn make_ahead(&self, events: &[epoll::Event]) {
        let ServerContext { ahead, sockets, .. } = &self.context;
        let nobody_waits = || events.iter().all(|event| event.data.u64() == BELL);
        if ahead.is_wanting() && nobody_waits() && self.heard.elapsed() >= QUIET {
            ahead.make(sockets);
        }
    }

    /// Lets go of what closed sockets have left.
    fn tend(&mut self) {
        if self.tends {
            let waits = self.context.sockets.tend();
            let Server { leaving, maker, .. } = self;
            for at in (0..leaving.len()).rev() {
                if Arc::strong_count(&leaving[at]) == 1 {
                    maker.drop(leaving.swap_remove(at));
                }
            }
            self.tends = waits || !self.leaving.is_empty();
        }
    }

    /// Answers those whose ring was made.
    fn give_made(&mut self) {
        while let Some((number, made)) = self.maker.take() {
            let whose = self.connections.iter_mut().flatten().find(|one| one.number == number);
            let Some(connection) = whose else {
                // The process has hung up meanwhile.
                if let Ok((lanes, _)) = made {
                    self.maker.drop(lanes);
                }
                continue;
            };
            let next = connection.made(&self.context, made);
            self.leaving.extend(connection.take_left());
            self.tends = true; // The socket may have been refused.
            let place = self
                .connections
                .iter()
                .position(|one| one.as_ref().is_some_and(|one| one.number == number));
            let place = place.expect("it was just found");
            self.watch(place, epoll::EventFlags::IN);
            self.go_on(place, next);
        }
    }

    /// What is looked for at a connection; its end always is.
    fn watch(&self, place: usize, flags: epoll::EventFlags) {
        if let Some(connection) = &self.connections[place] {
            let data = epoll::EventData::new_u64(place as u64);
            // The connection exists, so nothing is to be refused.
            let _ = epoll::modify(&self.epoll, connection, data, flags);
        }
    }

    /// Accepts connections that wait, a few at a time.
    fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            if self.closer.waiting() >= CLOSING_MAX {
                return self.pause();
            }
            match self.listener.accept() {
                Ok((channel, owner)) => {
                    self.numbers += 1;
                    let admitted = self.admit(Connection::new(channel, owner, self.numbers));
                    // Most have said what they want when they are let in.
                    if let Some(place) = admitted {
                        self.serve(place);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    if let Ok((channel, owner)) = self.listener.accept() {
                        let connection = Connection::new(channel, owner, 0);
                        self.refuse(connection, Kind::System, NO_DESCRIPTOR.into());
                    }
                    self.spare = EventFd::open().ok();
                }
                Err(_) => return self.pause(),
            }
        }
    }

    /// Accepts nothing for a while. The listener would be ready again at once.
    fn pause(&mut self) {
        let _ = epoll::delete(&self.epoll, &self.listener);
        self.paused = Some(Instant::now() + PAUSE);
    }

    /// Listens again after a while.
    fn resume(&mut self) {
        if self.paused.is_some_and(|until| Instant::now() >= until) {
            self.spare = self.spare.take().or_else(|| EventFd::open().ok());
            let ready = epoll::EventFlags::IN;
            let added =
                epoll::add(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), ready);
            self.paused = added.is_err().then(|| Instant::now() + PAUSE);
        }
    }

    /// Lets a connection in, or refuses it. Its place.
    fn admit(&mut self, mut connection: Connection) -> Option<usize> {
        let Owner::Process { uid, .. } = connection.owner else { unreachable!("it has connected") };
        let SocketLimits { max, per_user_max, .. } = self.limits;
        let (all, own) =
            (self.connections.len() - self.free.len(), self.users.get(&uid).copied().unwrap_or(0));
        if all >= max as usize {
            let error = format!(
                "{max} packet sockets are open already; close one, or raise `max` in [sockets]"
            );
            self.refuse(connection, Kind::TooMany, error);
            return None;
        }
        if uid != 0 && own >= per_user_max {
            let error = format!(
                "user {uid} has {per_user_max} packet sockets already; close one, or raise `per_user_max` in [sockets]"
            );
            self.refuse(connection, Kind::TooMany, error);
            return None;
        }
        let place = self.free.pop().unwrap_or(self.connections.len());
        let data = epoll::EventData::new_u64(place as u64);
        if let Err(error) = epoll::add(&self.epoll, &connection, data, epoll::EventFlags::IN) {
            self.free.extend((place < self.connections.len()).then_some(place));
            let error = format!("the daemon cannot watch it: {error}; try again");
            self.refuse(connection, Kind::System, error);
            return None;
        }
        *self.users.entry(uid).or_default() += 1;
        connection.barred = self.barred.get(&uid).copied();
        match self.connections.get_mut(place) {
            Some(free) => *free = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        Some(place)
    }

    fn serve(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        let next = connection.serve(&self.context, &mut self.buffer);
        self.tends = true; // What was published before is let go of.
        self.heard = Instant::now();
        self.go_on(place, next);
    }

    fn go_on(&mut self, place: usize, next: Next) {
        match next {
            Next::Stay => {}
            Next::Wait(config) => {
                // One request at a time: the next waits in the connection.
                self.watch(place, epoll::EventFlags::empty());
                let one = self.connections[place].as_ref().expect("it has just asked");
                self.maker.make(one.number, one.owner, config, one.life());
            }
            Next::HangUp => self.hang_up(place),
        }
    }

    /// Closes the socket, and the connection, which so leaves the epoll instance.
    fn hang_up(&mut self, place: usize) {
        let Some(connection) = self.connections[place].take() else { return };
        let Owner::Process { uid, .. } = connection.owner else { unreachable!("it has connected") };
        let (channel, later) = connection.close();
        self.leaving.extend(later);
        self.closer.close(channel);
        self.free.push(place);
        self.tends = true;
        if let Some(own) = self.users.get_mut(&uid) {
            *own -= 1;
            if *own == 0 {
                self.users.remove(&uid);
            }
        }
    }
}

/// Lets the process have as many descriptors as its sockets take, as far as it may: two each, a connection and an
/// eventfd. A process that finds none left is refused.
fn raise_descriptors(sockets_max: u32) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(u64::from(sockets_max) * 2 + OTHERS);
    if limit.current.is_some_and(|now| now < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

/// Descriptors of ports and threads: 256 ports of a few queues.
const OTHERS: u64 = 4096;

impl Server {
    /// Sends the reason, and hangs up. A process that does not read the reason still sees the hang-up.
    fn refuse(&mut self, connection: Connection, kind: Kind, error: String) {
        connection.say(&Answer::Refused(Refusal { kind, error }), None);
        self.closer.close(connection.leave());
    }
}

const NO_DESCRIPTOR: &str = "the daemon has no descriptors left; close packet sockets, or raise the limit it is started with (`ulimit -n`)";

/// What the bell, the listener and the maker are called among the places of connections.
const BELL: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const MAKER: u64 = u64::MAX - 2;

/// Requests that are answered in a turn, before readers are woken.
const EVENTS: usize = 64;
/// Connections that are let in in a turn.
const ACCEPTED: usize = 16;
/// Connections that may wait for a descriptor to close: from there on none is accepted.
const CLOSING_MAX: u64 = 256;
/// How soon to look whether workers have let go of what closed sockets leave behind: they do not say so.
const RETRY: Duration = Duration::from_millis(1);
/// How long no connection is accepted after the system has refused one.
const PAUSE: Duration = Duration::from_millis(100);
