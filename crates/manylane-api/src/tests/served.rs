//! A daemon's API in a test: at a socket, at a port, and asked by hand.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;

use crate::server::accelerate;
use crate::{Bounds, Doors, Listen, Socket};

/// A server on a thread.
pub(crate) struct Served {
    folder: PathBuf,
    pub address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Ready when the server is to end.
pub(crate) type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What was answered.
pub(crate) struct Answer {
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    pub body: String,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Forwarder,
    Accelerator,
}

impl Served {
    /// Listens when this returns.
    pub fn start(kind: Kind, name: &str, listen: &Listen) -> Served {
        Served::bounded(kind, name, listen, Bounds::default())
    }

    /// With these bounds on clients.
    pub fn bounded(kind: Kind, name: &str, listen: &Listen, bounds: Bounds) -> Served {
        Served::answering(name, listen, bounds, async move |doors, stopped| match kind {
            Kind::Forwarder => crate::serve(doors, Arc::new(crate::sample::Sample), stopped).await,
            Kind::Accelerator => {
                let source = Arc::new(crate::sample::accelerate::Sample);
                accelerate::serve(doors, source, stopped).await
            }
        })
    }

    /// With answers of a test's own.
    pub fn answering<F>(
        name: &str,
        listen: &Listen,
        bounds: Bounds,
        serve: impl FnOnce(Doors, Stopped) -> F + Send + 'static,
    ) -> Served
    where
        F: Future<Output = io::Result<()>>,
    {
        let folder = folder(name);
        let socket = Socket::bind(&folder.join("api.sock")).unwrap();
        let door = listen.open().unwrap();
        let address = door.as_ref().map(|door| door.address().unwrap());
        let doors = Doors::new(socket, door).bounded(bounds);
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let stopped = Box::pin(async move { stopped.await.unwrap_or_default() });
            runtime.block_on(serve(doors, stopped)).unwrap();
        });
        Served { folder, address, stop: Some(stop), thread: Some(thread) }
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    /// A connection to the port.
    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address.unwrap()).unwrap()
    }

    /// From another address of this host.
    pub fn connect_from(&self, address: &str) -> TcpStream {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let from: SocketAddr = format!("{address}:0").parse().unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect(&self.address.unwrap().into()).unwrap();
        socket.into()
    }

    /// How often clients have reached a bound, by its name.
    pub fn reached(&self, bound: &str) -> u64 {
        let page = self.ask("GET", "/metrics", "").body;
        let series = format!("manylane_api_refused_total{{bound=\"{bound}\"}} ");
        let times = page.lines().find_map(|line| line.strip_prefix(&series));
        times.and_then(|times| times.parse().ok()).unwrap_or_else(|| panic!("{bound}: {page}"))
    }

    /// Asks at the socket.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let stream = UnixStream::connect(self.socket()).unwrap();
        exchange(stream, method, path, &["Host: manylane"], body)
    }

    /// Asks at the socket, with these headers too.
    pub fn ask_with(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        let stream = UnixStream::connect(self.socket()).unwrap();
        exchange(stream, method, path, &[&["Host: manylane"][..], headers].concat(), "")
    }

    /// Asks at the port, with these headers.
    pub fn ask_tcp(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        let stream = TcpStream::connect(self.address.unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        exchange(stream, method, path, headers, "")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A directory of a test's own.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("manylane-served-{}-{name}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A file with a token, of this mode.
pub(crate) fn token_file(folder: &Path, token: &str, mode: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("token");
    fs::write(&path, token).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

pub(crate) fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    headers.iter().for_each(|header| request += &format!("{header}\r\n"));
    request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let mut byte = [0];
    // A trace has no end; its head is enough.
    while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
        bytes.extend_from_slice(&byte);
    }
    let head = String::from_utf8(bytes).unwrap();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let mut body = String::new();
    if !head.contains("transfer-encoding: chunked") && method != "HEAD" {
        stream.read_to_string(&mut body).unwrap();
    }
    Answer { status, head, body }
}
