//! Captures for other processes: `manylane capture` and others connect beside the API's socket, as with `manylane run`.
//!
//! One connection is one capture, which ends with it, however its process ends. The answer brings the descriptors of the
//! rings, of programs and of workers: this thread never touches a packet. `manylane_client::message` is what travels.

mod connection;
mod drops;
mod open;

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

use manylane_api::{BindError, socket};
use manylane_client::path_beside;
use manylane_io::eventfd::EventFd;
use manylane_io::poll::poll;
use manylane_io::rights::pass_rights;
use manylane_sync::doorbell::Wake;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};

use self::connection::{Connection, Context, Next};
pub(super) use self::drops::begin as begin_drops;
use self::open::Open;
use super::published::Published;

/// A socket that listens for others. Dropping it removes the file.
pub(super) struct Listener {
    path: PathBuf,
    fd: OwnedFd,
}

impl Listener {
    /// Listens beside the API's socket, for its owner and the group `manylane-capture`.
    pub fn bind(api: &Path) -> Result<Listener, BindError> {
        let path = path_beside(api);
        let fd = socket::listen(&path, socket2::Type::SEQPACKET, GROUP)?.into();
        // Older kernels do not know it: what comes is closed when its message is read.
        let _ = pass_rights(&fd, false);
        Ok(Listener { path, fd })
    }

    fn accept(&self) -> Result<Connection, Errno> {
        let fd = accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let user = socket_peercred(&fd)?.uid;
        Ok(Connection::new(fd, user.as_raw()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A file that is gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

/// The thread that serves captures, until it is dropped.
pub(super) struct Captures {
    /// Gone when the thread is to end.
    keeps_running: Option<Sender<()>>,
    bell: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Captures {
    /// Serves at `listener`.
    pub fn start(listener: Listener, published: Arc<Published>) -> io::Result<Captures> {
        let bell = Arc::new(EventFd::open()?);
        let (keeps_running, ends) = channel();
        let targets = published.targets();
        let targets = targets.ok_or_else(|| io::Error::other("the programs are not loaded"))?;
        targets.set_bell(bell.clone());
        let context = Context { targets, published };
        let mut server = Server { listener, context, connections: Vec::new(), bell: bell.clone() };
        let thread = Builder::new().name("captures".into()).spawn(move || {
            while ends.try_recv() != Err(TryRecvError::Disconnected) {
                server.turn();
            }
        })?;
        Ok(Captures { keeps_running: Some(keeps_running), bell, thread: Some(thread) })
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        drop(self.keeps_running.take());
        self.bell.wake();
        if let Some(thread) = self.thread.take() {
            // The thread has panicked, and its message has said why; forwarding does not need it.
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: Listener,
    context: Context,
    connections: Vec<Connection>,
    bell: Arc<EventFd>,
}

impl Server {
    /// Sleeps until something happens, and serves it.
    fn turn(&mut self) {
        let accepts = self.connections.len() < CONNECTIONS;
        let mut all: Vec<BorrowedFd<'_>> = vec![self.bell.as_fd()];
        all.extend(self.connections.iter().map(AsFd::as_fd));
        if accepts {
            all.push(self.listener.fd.as_fd());
        }
        // The one failure is ENOMEM: then it looks at all.
        let ready = poll(&all, None).ok();
        let count = self.connections.len();
        let is_ready = |place: usize| ready.is_none_or(|ready| ready.is_ready(place));
        let rings = is_ready(0);
        let has_more = accepts && is_ready(count + 1);
        if rings {
            self.bell.drain();
        }
        let mut place = 0;
        let Server { connections, context, .. } = self;
        let users: Vec<_> = connections.iter().filter_map(Connection::capturing_user).collect();
        let mut buffer = vec![0; connection::BUFFER];
        connections.retain_mut(|connection| {
            place += 1;
            // A program has come: captures are to see its packets, too.
            let mut next = if rings { connection.extend() } else { Next::Stay };
            if next == Next::Stay && is_ready(place) {
                next = connection.serve(context, &users, &mut buffer);
            }
            next == Next::Stay
        });
        if has_more && let Ok(connection) = self.listener.accept() {
            self.connections.push(connection);
        }
    }
}

/// The group whose members may capture.
const GROUP: &str = "manylane-capture";
/// Connections at once: more wait.
const CONNECTIONS: usize = 64;
