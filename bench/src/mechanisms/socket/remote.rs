//! manylane's sockets from outside: by the daemon's socket, as another process has them. (The client is a thread of
//! the bench: what an address space more costs at a switch is not in it.)

use std::path::PathBuf;
use std::process;

use manylane_client::{Options, RemoteSocket, path_beside};
use manylane_io::packet_ring::RingConfig;
use manylane_router::config::Environment;
use manylane_router::control::Daemon;
use manylane_router::socket::remote::Listener;

use super::contestant::Sockets;
use crate::network::{start, stop};
use crate::prelude::*;

/// A daemon with a worker and two ports in memory, and its sockets.
pub struct Remote {
    prefix: &'static str,
    ring: RingConfig,
    rest: Duration,
    daemon: Option<Daemon>,
    path: PathBuf,
}

impl Remote {
    /// Its worker, on this core, sleeps, or forwards as fast as it can. Its other threads run where the caller does.
    pub fn new(core: usize, forwards: bool) -> Result<Remote> {
        // This thread may have another core only.
        let environment = Environment { cores: vec![core as u16], ..Environment::of_this_thread() };
        let mut daemon = start(&text(core, forwards), &environment)?;
        let api = std::env::temp_dir().join(format!("manylane-bench-remote-{}", process::id()));
        let path = path_beside(&api);
        daemon.listen(Listener::bind(&api)?)?;
        let (ring, rest, daemon) = (Options::default().ring, Duration::ZERO, Some(daemon));
        Ok(Remote { prefix: "remote_", ring, rest, daemon, path })
    }

    /// With the smallest rings from now on: only the calls remain.
    pub fn with_small_rings(mut self) -> Remote {
        self.prefix = "remote_small_";
        self.ring = RingConfig { block_size: 4096, blocks: 2, ..self.ring };
        self
    }

    /// As at first, but with a pause before each socket.
    pub fn with_pauses(mut self) -> Remote {
        self.prefix = "remote_paused_";
        self.ring = Options::default().ring;
        self.rest = Duration::from_millis(20);
        self
    }

    /// Ends the daemon. An error when it cannot account for a packet.
    pub fn end(mut self) -> Result {
        self.daemon.take().map_or(Ok(()), stop)
    }
}

impl Sockets for Remote {
    type Socket = RemoteSocket;

    fn prefix(&self) -> &'static str {
        self.prefix
    }

    fn rest(&self) {
        if !self.rest.is_zero() {
            thread::sleep(self.rest);
        }
    }

    fn open(&mut self, protocol: u16) -> Result<RemoteSocket> {
        let options = Options { protocol, ring: self.ring, ..Options::default() };
        Ok(RemoteSocket::open(&self.path, &options)?)
    }

    fn bind(&mut self, socket: &mut RemoteSocket, port: Option<u16>, protocol: u16) -> Result {
        Ok(socket.bind(port.map(|port| PORTS[usize::from(port)]), protocol)?)
    }
}

const PORTS: [&str; 2] = ["west", "east"];

fn text(core: usize, forwards: bool) -> String {
    let mut text = format!("[workers]\ncores = [{core}]\nidle_spin_us = 50\n");
    for (number, (name, other)) in PORTS.iter().zip([2, 1]).enumerate() {
        let own = number + 1;
        text += &format!(
            "[[port]]\nname = \"{name}\"\ndriver = \"memory\"\nworkers = [0]\n\
             steering = \"queue\"\naddresses = [\"10.{own}.0.254/24\"]\n"
        );
        if forwards {
            text += &format!(
                "[port.generate]\nsource = \"10.{own}.0.1\"\ndestination = \"10.{other}.0.1/32\"\n\
                 flows = 8\nsize = 64\n"
            );
        }
    }
    text
}
