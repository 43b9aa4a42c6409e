//! A connection of UDP, whose packets arrive before others are sent: none is lost for want of room. One that a router drops,
//! as it may while its decision changes, is sent again.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use manylane_api::Client;
use manylane_api::accelerate::{TrackedFlow, TrackedFlows, TrackedFlowsRequest};
use manylane_lab::Topology;
use manylane_lab::accelerated::Accelerated;

/// Bytes of a payload.
pub const PAYLOAD: usize = 100;
/// Bytes of its packet, in IPv4 and IPv6.
pub const PACKETS: [u64; 2] = [20 + 8 + PAYLOAD as u64, 40 + 8 + PAYLOAD as u64];
/// The port of the server's end.
pub const SERVER_PORT: u16 = 9000;

pub struct Talk {
    client: UdpSocket,
    server: UdpSocket,
}

impl Talk {
    pub fn open(topology: &Topology, [client, server]: [IpAddr; 2]) -> Talk {
        let at = |host: &str, address: IpAddr, port: u16| {
            let end = SocketAddr::new(address, port);
            topology.host(host).run(move || UdpSocket::bind(end)).expect("the address is there")
        };
        let (client, server) = (at("client", client, 4000), at("server", server, SERVER_PORT));
        client.connect(server.local_addr().expect("it is bound")).expect("a route leads there");
        server.set_read_timeout(Some(LOST_AFTER)).expect("it is open");
        Talk { client, server }
    }

    /// Datagrams of the client that arrive.
    pub fn tell(&self, count: u64) {
        let mut bytes = [0; PAYLOAD];
        let mut left = count;
        while left > 0 {
            let some = left.min(AT_ONCE);
            for _ in 0..some {
                self.client.send(&bytes).expect("it is sent");
            }
            for _ in 0..some {
                while self.server.recv(&mut bytes).is_err() {
                    self.client.send(&bytes).expect("it is sent");
                }
            }
            left -= some;
        }
    }

    /// Datagrams, each with an answer.
    pub fn ask(&self, count: u64) {
        let mut bytes = [0; PAYLOAD];
        for _ in 0..count {
            self.client.send(&bytes).expect("it is sent");
            let from = loop {
                match self.server.recv_from(&mut bytes) {
                    Ok((_, from)) => break from,
                    Err(_) => self.client.send(&bytes).expect("it is sent"),
                };
            };
            self.server.send_to(&bytes, from).expect("it is sent");
            self.client.recv(&mut bytes).expect("it arrives");
        }
    }
}

/// The lane's entries of such connections.
pub fn tracked(accelerated: &Accelerated) -> Vec<TrackedFlow> {
    let request = TrackedFlowsRequest { transport_port: Some(SERVER_PORT), ..Default::default() };
    let client = Client::new(&accelerated.socket());
    let flows = client.post::<TrackedFlows>("/v1/accelerate/flows/table", &request);
    flows.expect("the lane's thread answers").flows
}

/// Nothing tells that a datagram is lost.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// Fewer than a veth keeps for its other end.
const AT_ONCE: u64 = 32;
