//! Bounds on clients: how many connections one peer may have, how long each may keep its place, and how much memory
//! the API spends on all of them at a time. Each bound counts how often a client has reached it.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use nix::unistd::geteuid;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::document::Refusal;
use crate::model::ApiError;

/// What clients may take. `Bounds::default()` is what daemons use.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at a time, at the socket and by TCP each. Root and the daemon's own user need no place among them.
    pub connections: usize,
    /// Connections of one peer at a time: of a user, of an IPv4 address, of an IPv6 /64.
    pub per_peer: usize,
    /// Time until the head of a request is complete, from the connection or from the end of the answer before it.
    pub head: Duration,
    /// Time until the body of a request is complete.
    pub body: Duration,
    /// Time until a client takes some more of an answer.
    pub stalled: Duration,
    /// Bytes of a long list that a client takes in a second, once `stalled` is over.
    pub pace: u64,
    /// Long lists and large requests of all peers at a time. One peer has one; root needs no place here either.
    pub long: usize,
    /// How long a request waits until its peer, or others, are done with one of those.
    pub turn: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 64,
            per_peer: 16,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            stalled: Duration::from_secs(10),
            // A million routes are about 100 MB, which take six minutes at this pace.
            pace: 256 << 10,
            long: 2,
            // Shorter than the patience of the command line, which prints the refusal.
            turn: Duration::from_secs(8),
        }
    }
}

/// A bound that a client has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    PerPeer,
    Connections,
    Head,
    Body,
    Stalled,
    Pace,
    Turn,
    BodyBytes,
    Descriptors,
}

impl Bound {
    pub(super) const ALL: [Bound; 9] = [
        Bound::PerPeer,
        Bound::Connections,
        Bound::Head,
        Bound::Body,
        Bound::Stalled,
        Bound::Pace,
        Bound::Turn,
        Bound::BodyBytes,
        Bound::Descriptors,
    ];

    /// Its name in metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Bound::PerPeer => "peer_connections",
            Bound::Connections => "connections",
            Bound::Head => "no_request",
            Bound::Body => "slow_body",
            Bound::Stalled => "not_read",
            Bound::Pace => "read_slowly",
            Bound::Turn => "turn",
            Bound::BodyBytes => "too_large",
            Bound::Descriptors => "no_descriptor",
        }
    }

    /// What the log says of it; nothing of an idle connection, which any client may leave.
    const fn said(self) -> Option<&'static str> {
        Some(match self {
            Bound::PerPeer => "a client has all connections that one peer may have",
            Bound::Connections => "all places for connections are taken",
            Bound::Head => return None,
            Bound::Body => "a client did not complete its request in time",
            Bound::Stalled => "a client did not read its answer",
            Bound::Pace => "a client read a long list too slowly",
            Bound::Turn => "a request has waited too long for others to read long lists",
            Bound::BodyBytes => "a client sent more than a request may have",
            Bound::Descriptors => {
                "the process has no file descriptor left for a client (raise `LimitNOFILE`, or `ulimit -n`)"
            }
        })
    }
}

/// The bounds of a server, and how often each was reached.
pub(super) struct Limits {
    pub bounds: Bounds,
    reached: Mutex<[Reached; Bound::ALL.len()]>,
    long: Arc<Semaphore>,
}

#[derive(Clone, Copy, Default)]
struct Reached {
    times: u64,
    /// When the log last said so.
    said: Option<Instant>,
}

impl Limits {
    pub fn new(bounds: Bounds) -> Arc<Limits> {
        let long = Arc::new(Semaphore::new(bounds.long));
        Arc::new(Limits { bounds, reached: Mutex::default(), long })
    }

    /// Counts it, and has the log say so once a minute.
    pub fn reached(&self, bound: Bound) {
        let now = Instant::now();
        let times = {
            let reached = &mut unpoisoned(&self.reached)[bound as usize];
            reached.times += 1;
            if reached.said.is_some_and(|said| now.duration_since(said) < SAY_EVERY) {
                return;
            }
            reached.said = Some(now);
            reached.times
        };
        if let Some(said) = bound.said() {
            let line = format!("manylane: the API: {said} (number {times} since the start)\n");
            // The count stays where no log can be written.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }

    /// How often a bound was reached.
    pub fn times(&self, bound: Bound) -> u64 {
        unpoisoned(&self.reached)[bound as usize].times
    }
}

const SAY_EVERY: Duration = Duration::from_secs(60);

/// Where a connection comes from, as far as its sender cannot choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// A user of this host.
    User(u32),
    V4(Ipv4Addr),
    /// The first half of an address: the second is any host's to choose (RFC 4291 §2.5.1).
    V6(u64),
}

impl Peer {
    pub fn at(address: IpAddr) -> Peer {
        match address.to_canonical() {
            IpAddr::V4(address) => Peer::V4(address),
            IpAddr::V6(address) => Peer::V6((u128::from(address) >> 64) as u64),
        }
    }

    /// Whether it can do all that this process can, so that a bound protects nothing.
    fn is_trusted(self) -> bool {
        matches!(self, Peer::User(uid) if uid == 0 || uid == geteuid().as_raw())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::User(uid) => write!(f, "user {uid}"),
            Peer::V4(address) => write!(f, "{address}"),
            Peer::V6(half) => {
                let network = std::net::Ipv6Addr::from(u128::from(*half) << 64);
                write!(f, "the network {network}/64")
            }
        }
    }
}

/// The places of one door.
pub(super) struct Places {
    limits: Arc<Limits>,
    peers: Mutex<HashMap<Peer, Taken>>,
    freed: Notify,
}

struct Taken {
    connections: usize,
    long: Arc<Semaphore>,
}

/// A connection's place. Dropping it frees the place.
pub(super) struct Place {
    places: Arc<Places>,
    pub asker: Asker,
}

/// The peer of a request, as handlers see it.
#[derive(Clone)]
pub(super) struct Asker {
    pub limits: Arc<Limits>,
    peer: Peer,
    long: Arc<Semaphore>,
}

/// The right to be sent a long list, or to send a large request.
pub(super) struct Turn {
    _of_peer: OwnedSemaphorePermit,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Places {
    pub fn new(limits: Arc<Limits>) -> Arc<Places> {
        Arc::new(Places { limits, peers: Mutex::default(), freed: Notify::new() })
    }

    /// A place for a peer's connection, or the bound that keeps it out.
    pub fn take(self: &Arc<Places>, peer: Peer) -> Result<Place, Bound> {
        let Bounds { connections, per_peer, .. } = self.limits.bounds;
        let mut peers = unpoisoned(&self.peers);
        if peers.get(&peer).is_some_and(|taken| taken.connections >= per_peer) {
            return Err(Bound::PerPeer);
        }
        if !peer.is_trusted() && taken(&peers) >= connections {
            return Err(Bound::Connections);
        }
        let new = || Taken { connections: 0, long: Arc::new(Semaphore::new(1)) };
        let taken = peers.entry(peer).or_insert_with(new);
        taken.connections += 1;
        let long = taken.long.clone();
        let asker = Asker { limits: self.limits.clone(), peer, long };
        Ok(Place { places: self.clone(), asker })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Ready when a peer's connection finds a place, if the peer itself has not all of its own.
    pub async fn room(&self) {
        while taken(&unpoisoned(&self.peers)) >= self.limits.bounds.connections {
            self.freed.notified().await;
        }
    }
}

/// Places that peers have taken.
fn taken(peers: &HashMap<Peer, Taken>) -> usize {
    let others = peers.iter().filter(|(peer, _)| !peer.is_trusted());
    others.map(|(_, taken)| taken.connections).sum()
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = unpoisoned(&self.places.peers);
        if let Some(taken) = peers.get_mut(&self.asker.peer) {
            taken.connections -= 1;
            if taken.connections == 0 {
                peers.remove(&self.asker.peer);
            }
        }
        drop(peers);
        self.places.freed.notify_one();
    }
}

impl Asker {
    /// A client that only gets the answer that it has no place.
    pub fn of_no_place(limits: Arc<Limits>, peer: Peer) -> Asker {
        Asker { limits, peer, long: Arc::new(Semaphore::new(0)) }
    }

    /// Waits until this peer has no other long list or large request, and few others have one.
    pub async fn turn(&self) -> Result<Turn, Refusal> {
        let turn = async {
            let of_peer = self.long.clone().acquire_owned().await.expect("no task closes it");
            let of_all = match self.peer.is_trusted() {
                true => None,
                false => {
                    let all = self.limits.long.clone();
                    Some(all.acquire_owned().await.expect("no task closes it"))
                }
            };
            Turn { _of_peer: of_peer, _of_all: of_all }
        };
        timeout(self.limits.bounds.turn, turn).await.map_err(|_| {
            self.limits.reached(Bound::Turn);
            let error = "another long list or large request is not done yet".into();
            let help = "a peer has one at a time: read its answer to the end, and try again".into();
            (StatusCode::SERVICE_UNAVAILABLE, Json(ApiError { error, help }))
        })
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(connections: usize, per_peer: usize) -> Arc<Places> {
        let bounds = Bounds { connections, per_peer, ..Bounds::default() };
        Places::new(Limits::new(bounds))
    }

    #[test]
    fn one_peer_cannot_have_all_places() {
        let places = places(3, 2);
        let at = |text: &str| Peer::at(text.parse().expect("an address"));
        let _first = places.take(at("192.0.2.1")).expect("it is free");
        let second = places.take(at("::ffff:192.0.2.1")).expect("it is free");
        assert_eq!(places.take(at("192.0.2.1")).err(), Some(Bound::PerPeer));
        let _other = places.take(at("192.0.2.2")).expect("one peer has two only");
        assert_eq!(places.take(at("192.0.2.3")).err(), Some(Bound::Connections));
        drop(second);
        places.take(at("192.0.2.1")).expect("it is free again");
    }

    /// A host chooses the second half of its address, so that half must not bring places.
    #[test]
    fn all_addresses_of_an_ipv6_network_are_one_peer() {
        let places = places(64, 2);
        let at = |text: &str| Peer::at(text.parse().expect("an address"));
        let _first = places.take(at("2001:db8::1")).expect("it is free");
        let _second = places.take(at("2001:db8::ffff:2")).expect("it is free");
        assert_eq!(places.take(at("2001:db8::3")).err(), Some(Bound::PerPeer));
        places.take(at("2001:db8:0:1::1")).expect("that is another network");
        assert_eq!(at("2001:db8::3").to_string(), "the network 2001:db8::/64");
    }

    #[test]
    fn other_users_cannot_keep_root_out() {
        let places = places(2, 2);
        let _both = [1234, 1235].map(|user| places.take(Peer::User(user)).expect("it is free"));
        assert_eq!(places.take(Peer::User(1236)).err(), Some(Bound::Connections));
        let _root = [0, 0].map(|root| places.take(Peer::User(root)).expect("root needs none"));
        assert_eq!(places.take(Peer::User(0)).err(), Some(Bound::PerPeer));
    }

    impl fmt::Debug for Place {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a place of {}", self.asker.peer)
        }
    }
}
