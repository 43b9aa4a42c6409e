//! A child that sends frames of 64 bytes, and how many of them a second are counted.

use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use manylane::lab::Topology;
use manylane_io::affinity;
use manylane_io::interface::Interface;
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ipv4, protocol};

use crate::baseline::live::{self, Flows, HEADERS};
use crate::tcp::{Stop, mortal};

/// What a counter grew by, and in how many seconds.
pub fn rate(slice: Duration, count: impl Fn() -> io::Result<u64>) -> io::Result<(f64, f64)> {
    thread::sleep(slice / 4); // The generator starts, and queues fill.
    let (start, before) = (Instant::now(), count()?);
    thread::sleep(slice);
    let after = count()?;
    Ok(((after - before) as f64, start.elapsed().as_secs_f64()))
}

/// A child that sends from the client.
pub struct Generator(Child);

impl Generator {
    /// Starts it on a core.
    pub fn start(topology: &Topology, flows: Flows, core: usize) -> Result<Generator, Stop> {
        let mac = topology.mac("r1", "lan")?;
        let program = std::env::current_exe()?;
        let child = topology.host("client").run(move || {
            affinity::pin(core)?;
            let index = Interface::read("eth0").map_err(io::Error::other)?.index;
            let mut numbers = vec![u32::from(flows == Flows::Destinations), index];
            numbers.extend(mac.map(u32::from));
            let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
            let mut command = mortal(&program.to_string_lossy());
            command.args(["veth", "--live", &numbers.join(",")]).stdin(Stdio::null());
            command.spawn()
        })?;
        Ok(Generator(child))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the child does: `live` is whether there are many flows, the interface's index and the router's MAC address.
pub fn send(live: &str) -> io::Result<()> {
    let numbers: Result<Vec<u32>, _> = live.split(',').map(str::parse).collect();
    let Ok([many, interface, mac @ ..]) = numbers.as_deref() else {
        return Err(io::Error::other("flows, an index and a MAC address are needed"));
    };
    let mac: [u8; 6] = std::array::from_fn(|at| mac.get(at).map_or(0, |&byte| byte as u8));
    let flows = if *many == 1 { Flows::Destinations } else { Flows::One };
    live::send(&headers(mac), *interface, flows)
}

fn headers(mac: [u8; 6]) -> [u8; HEADERS] {
    let mut headers = [0; HEADERS];
    ethernet::emit(&mut headers, Mac(mac), Mac([2, 0, 0, 0, 0, 1]), ether_type::IPV4)
        .expect("it fits");
    let header = ipv4::Header {
        tos: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 64,
        protocol: protocol::UDP,
        source: Ipv4Addr::new(10, 1, 0, 1),
        destination: Ipv4Addr::new(10, 128, 0, 1),
    };
    header.emit(&mut headers[14..], 30).expect("it fits");
    headers[34] = 4; // Ports, and length below; without a checksum.
    headers[37] = 9;
    headers[39] = 30;
    headers
}
