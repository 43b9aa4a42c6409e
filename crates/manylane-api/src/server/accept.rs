//! Accepting connections: each peer has its places, and a process without descriptors continues when it has some again.

use std::fs::File;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Json, Router};
use nix::libc;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::bounds::{Asker, Bound, Limits, Peer, Places};
use super::connection::{self, Stream};
use crate::model::ApiError;

/// A listener.
pub(super) trait Entrance: Send {
    type Stream: Stream;

    /// Whether clients wait in the kernel while all places are taken. Otherwise they are refused: root must not wait
    /// behind them.
    const WAITS: bool;

    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Entrance for UnixListener {
    type Stream = UnixStream;
    const WAITS: bool = false;

    async fn accept(&mut self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = UnixListener::accept(self).await?;
        let peer = Peer::User(stream.peer_cred()?.uid());
        Ok((stream, peer))
    }
}

impl Stream for UnixStream {
    // Unix sockets forget it anyhow.
    fn abandon(&self) {}
}

impl Entrance for TcpListener {
    type Stream = TcpStream;
    const WAITS: bool = true;

    async fn accept(&mut self) -> io::Result<(TcpStream, Peer)> {
        let (stream, address): (TcpStream, SocketAddr) = TcpListener::accept(self).await?;
        Ok((stream, Peer::at(address.ip())))
    }
}

impl Stream for TcpStream {
    fn abandon(&self) {
        // tcp(7): closing then sends a reset. Refused, the kernel keeps the bytes until it gives the client up.
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

/// Accepts connections until `ended` is true, and then answers the requests that have begun.
pub(super) async fn serve<E: Entrance>(
    mut entrance: E,
    router: Router,
    limits: Arc<Limits>,
    ended: watch::Receiver<bool>,
) {
    let places = Places::new(limits.clone());
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let mut connections = JoinSet::new();
    let mut reserve = Reserve::new();
    let mut is_over = ended.clone();
    loop {
        let next = next(&mut entrance, &places, &mut reserve);
        let (stream, peer) = tokio::select! {
            // The sender is dropped only together with this future.
            _ = is_over.wait_for(|is_over| *is_over) => break,
            Some(_) = connections.join_next() => {
                reserve.pause = None;
                continue;
            }
            accepted = next => match accepted {
                Ok(accepted) => accepted,
                // accept(2): the client has gone, or the network has failed it.
                Err(_) => continue,
            },
        };
        let over = over(ended.clone());
        match places.take(peer) {
            Ok(place) => {
                let router = router.clone();
                connections.spawn(async move {
                    connection::serve(stream, router, place.asker.clone(), over).await;
                    drop(place);
                });
            }
            Err(bound) => {
                limits.reached(bound);
                // Beyond this number a client is refused without a word.
                let Ok(refusal) = refusals.clone().try_acquire_owned() else { continue };
                let asker = Asker::of_no_place(limits.clone(), peer);
                connections.spawn(async move {
                    connection::serve(stream, refusing(bound, peer), asker, over).await;
                    drop(refusal);
                });
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Clients that get the answer at a time that no place is free.
const REFUSALS_MAX: usize = 16;

async fn over(mut ended: watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

/// The next connection. Dropping this future loses none.
async fn next<E: Entrance>(
    entrance: &mut E,
    places: &Places,
    reserve: &mut Reserve,
) -> io::Result<(E::Stream, Peer)> {
    loop {
        if let Some(until) = reserve.pause {
            sleep_until(until).await;
            reserve.pause = None;
        }
        if E::WAITS {
            places.room().await;
        }
        match entrance.accept().await {
            Err(error) if is_exhausted(&error) => {
                places.limits().reached(Bound::Descriptors);
                reserve.spend(entrance).await;
            }
            accepted => return accepted,
        }
    }
}

/// accept(2): no descriptor of the process, or of the system, or no memory of the kernel is left.
fn is_exhausted(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number.is_some_and(|no| [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].contains(&no))
}

/// A descriptor that is kept for the moment in which no other is left: with it the client that waits is accepted, and
/// closed. Otherwise the listener would stay readable, and the thread would spin.
struct Reserve {
    descriptor: Option<File>,
    /// Nothing is accepted until then, unless a connection ends.
    pause: Option<Instant>,
}

impl Reserve {
    fn new() -> Reserve {
        Reserve { descriptor: File::open("/dev/null").ok(), pause: None }
    }

    async fn spend(&mut self, entrance: &mut impl Entrance) {
        drop(self.descriptor.take());
        let closed = timeout(Duration::ZERO, entrance.accept()).await;
        let was_closed = matches!(&closed, Ok(Ok(_)));
        drop(closed);
        self.descriptor = File::open("/dev/null").ok();
        if !was_closed || self.descriptor.is_none() {
            self.pause = Some(Instant::now() + PAUSE);
        }
    }
}

/// Descriptors that other threads close make no event here.
const PAUSE: Duration = Duration::from_millis(100);

/// What a client without a place is answered.
fn refusing(bound: Bound, peer: Peer) -> Router {
    let error = match bound {
        Bound::PerPeer => format!("{peer} has all connections to the API that one peer may have"),
        _ => "other clients have all connections to the API".to_owned(),
    };
    let help =
        "close some, or try again later; /metrics counts them as manylane_api_refused".into();
    let error = ApiError { error, help };
    Router::new().fallback(async move || {
        let close = [(header::CONNECTION, "close")];
        (StatusCode::SERVICE_UNAVAILABLE, close, Json(error)).into_response()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as Client;
    use std::thread;

    use axum::routing::get;

    use super::*;
    use crate::Bounds;

    /// Fails as the test says, accepts the connections of the test, and then waits.
    struct Failing {
        errors: u32,
        number: i32,
        streams: VecDeque<UnixStream>,
    }

    impl Entrance for Failing {
        type Stream = UnixStream;
        const WAITS: bool = true;

        async fn accept(&mut self) -> io::Result<(UnixStream, Peer)> {
            if self.errors > 0 {
                self.errors -= 1;
                return Err(io::Error::from_raw_os_error(self.number));
            }
            match self.streams.pop_front() {
                Some(stream) => Ok((stream, Peer::User(1))),
                None => std::future::pending().await,
            }
        }
    }

    /// Each failed call costs a pause or a client, so the thread does not spin; and then clients are answered again.
    #[test]
    fn a_process_without_descriptors_answers_again_when_it_has_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        for (number, errors) in [(libc::EMFILE, 1), (libc::EMFILE, 7), (libc::ENFILE, 4)] {
            runtime.block_on(async {
                let pair = || {
                    let (client, served) = Client::pair().expect("two ends");
                    served.set_nonblocking(true).expect("it is ours");
                    (client, UnixStream::from_std(served).expect("a runtime"))
                };
                let ((mut turned_away, first), (mut client, served)) = (pair(), pair());
                // The first call that succeeds may be the one with the reserve.
                let is_spent = errors % 2 == 1;
                let streams = if is_spent { vec![first, served] } else { vec![served] };
                let entrance = Failing { errors, number, streams: streams.into() };
                let limits = Limits::new(Bounds::default());
                let router = Router::new().route("/", get(async || "here"));
                let (end, ended) = watch::channel(false);
                let serving = tokio::spawn(serve(entrance, router, limits.clone(), ended));
                let asking = thread::spawn(move || {
                    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                    client.write_all(request.as_bytes()).expect("it is accepted");
                    let mut answer = String::new();
                    client.read_to_string(&mut answer).expect("it is answered");
                    end.send(true).expect("it serves");
                    answer
                });
                serving.await.expect("it ends");
                let answer = asking.join().expect("it is answered");
                assert!(answer.ends_with("here"), "{answer}");
                // Two calls for each time: with nothing left, and with the reserve.
                assert_eq!(limits.times(Bound::Descriptors), u64::from(errors.div_ceil(2)));
                if is_spent {
                    assert_eq!(turned_away.read(&mut [0]).expect("it is closed"), 0);
                }
            });
        }
    }
}
