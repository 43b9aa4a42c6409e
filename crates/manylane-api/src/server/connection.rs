//! One connection: hyper's, with deadlines that count while the client reads nothing, too.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::bounds::{Asker, Bound, Limits};

/// A connection as the server uses it.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Has the kernel forget what the client has not taken: it would keep that for a client that reads nothing.
    fn abandon(&self);
}

/// Answers the requests of one connection until it ends, a deadline passes, or `ended` is ready.
pub(super) async fn serve(
    stream: impl Stream,
    router: Router,
    asker: Asker,
    ended: impl Future<Output = ()>,
) {
    let limits = asker.limits.clone();
    let stream = Held { stream, limits: limits.clone(), stalled: None };
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(asker.clone());
        let answer = TowerToHyperService::new(router.clone()).call(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.bounds.head).max_buf_size(BUFFER_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ended => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A client may leave at any moment, and nothing is left to tell it.
    if served.is_err_and(|error| error.is_timeout()) {
        limits.reached(Bound::Head);
    }
}

/// Bytes of a request's head, and of answers that wait for the socket, for each connection.
const BUFFER_MAX: usize = 64 << 10;

/// A stream whose client has to read.
struct Held<S: Stream> {
    stream: S,
    limits: Arc<Limits>,
    /// Runs while an answer waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: Stream> Held<S> {
    /// After a write that the client would not take: an error when it has not taken any for too long.
    fn poll_stalled<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let patience = self.limits.bounds.stalled;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stalled.as_mut().poll(context));
        // Polled once more, it is not yet over.
        stalled.as_mut().reset(Instant::now() + patience);
        self.limits.reached(Bound::Stalled);
        self.stream.abandon();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: Stream> AsyncRead for Held<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Stream> AsyncWrite for Held<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(written) => {
                self.stalled = None;
                Poll::Ready(written)
            }
            Poll::Pending => self.poll_stalled(context),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
