//! A router with AF_XDP sockets on a veth, and a kernel at its other end.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use manylane_frame::vocabulary::{Checksum, PortId, QueueId, WorkerId};
use manylane_frame::{Batch, Depot, Frame, Meta, Pool, Region, RegionConfig};
use manylane_io::namespace::{Host, Namespace};
use manylane_io::netlink::{LinkEnd, Netlink};
use manylane_io::poll::poll;
use manylane_io::port::Receiving;
use manylane_io::port::af_xdp::{
    AfXdp, AfXdpConfig, Closed, OpenError, Opened, Receiver, Transmitter, Umem,
};

use super::packet;

pub const FRAMES: u32 = 8192;
pub const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const OUR_V4: &str = "10.0.0.1:7000";
pub const PEER_V4: &str = "10.0.0.2:9000";
pub const OUR_V6: &str = "[fd00::1]:7000";
pub const PEER_V6: &str = "[fd00::2]:9000";

/// A router (this thread) with a veth `r0`, and a peer behind it; a region and its pool.
pub struct Lab {
    pub peer: Host,
    pub region: Region,
    pub umem: Umem,
    pub pool: Pool,
}

impl Lab {
    /// A wire with `queues` each way; `None` (and a line that says why) when we may not.
    pub fn new(queues: u32, frame_size: u32) -> Option<Lab> {
        let lab = Lab::silent(queues, frame_size, "0")?;
        super::address(&lab.peer, "p0", "fd00::2", 64);
        lab.peer_neighbour("fd00::1", OUR_MAC);
        Some(lab)
    }

    /// As above, for tests that count each packet: without IPv6, whose stack sends reports of multicast
    /// groups on its own.
    pub fn without_ipv6() -> Option<Lab> {
        Lab::silent(1, 2048, "1")
    }

    fn silent(queues: u32, frame_size: u32, disable_ipv6: &'static str) -> Option<Lab> {
        let peer = super::host("peer")?;
        Namespace::new_for_this_thread().map_err(super::skip).ok()?;
        manylane_io::sysctl::set("net/ipv6/conf/default/disable_ipv6", "1").expect("as root");
        super::setting(&peer, "net/ipv6/conf/default/disable_ipv6", disable_ipv6);
        super::silence(&peer);
        let end = LinkEnd::new("r0").queues(queues).mac(OUR_MAC);
        super::connect_here(end, &peer, LinkEnd::new("p0").queues(queues).mac(PEER_MAC));
        super::address(&peer, "p0", "10.0.0.2", 24);
        let region = Region::new(RegionConfig { frames: FRAMES, frame_size });
        let region = region.expect("32 MiB can be mapped");
        let depot = Depot::new(region.clone(), 4).expect("the first taker");
        let pool = depot.pool_of(FRAMES);
        let umem = Umem::new(region.clone());
        let lab = Lab { peer, region, umem, pool };
        lab.peer_neighbour("10.0.0.1", OUR_MAC);
        Some(lab)
    }

    /// Opens `r0` as port 3; `None` (and a line that says why) without AF_XDP.
    pub fn open(
        &mut self,
        owners: &[WorkerId],
        workers: usize,
        config: AfXdpConfig,
    ) -> Option<Opened> {
        self.open_receiving(Receiving { owners, elsewhere: &vec![None; workers] }, config)
    }

    pub fn open_receiving(
        &mut self,
        receiving: Receiving<'_>,
        config: AfXdpConfig,
    ) -> Option<Opened> {
        match AfXdp::open(&mut self.umem, PortId(3), "r0", receiving, config) {
            Ok(opened) => Some(opened),
            Err(error) if error.is_unavailable() => {
                super::skip(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub fn try_open(
        &mut self,
        owners: &[WorkerId],
        config: AfXdpConfig,
    ) -> Result<Opened, OpenError> {
        let receiving = Receiving { owners, elsewhere: &[None] };
        AfXdp::open(&mut self.umem, PortId(3), "r0", receiving, config)
    }

    pub fn close(
        &mut self,
        port: AfXdp,
        receivers: Vec<Receiver>,
        transmitters: Vec<Transmitter>,
    ) -> Closed {
        port.close(receivers, transmitters, &mut self.pool, |_, _| ())
    }

    /// Every frame is free again: the conservation of frames (I2).
    pub fn assert_all_home(&mut self) {
        let frames: Vec<_> = std::iter::from_fn(|| self.pool.take()).collect();
        let count = frames.len();
        frames.into_iter().for_each(|frame| self.pool.give_back(frame));
        assert_eq!(count, FRAMES as usize);
    }

    pub fn peer_sends(&self, from: &'static str, to: &'static str, payload: &[u8], count: usize) {
        let payload = payload.to_vec();
        self.peer.run(move || {
            let socket = UdpSocket::bind(from).expect("the address is the peer's");
            let (no_check, fd): (i32, _) = (1, socket.as_raw_fd());
            if from.starts_with("10.") {
                // A checksum would be left to the device; without, the far end takes it as it is.
                // SAFETY: setsockopt(2) reads the 4 bytes of `no_check`.
                let set = unsafe {
                    let value = (&raw const no_check).cast();
                    libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, value, 4)
                };
                assert_eq!(set, 0);
            }
            for _ in 0..count {
                socket.send_to(&payload, to).expect("the neighbour is known");
            }
        });
    }

    pub fn peer_socket(&self, address: &'static str) -> UdpSocket {
        let socket = self.peer.run(move || UdpSocket::bind(address)).expect("it is the peer's");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");
        socket
    }

    pub fn peer_neighbour(&self, address: &'static str, mac: [u8; 6]) {
        let address = address.parse().expect("the test wrote it");
        self.peer
            .run(move || Netlink::open().and_then(|mut nl| nl.add_neighbour("p0", address, mac)))
            .expect("root may");
    }

    pub fn peer_route(&self, to: &'static str, prefix_length: u8, gateway: &'static str) {
        use manylane_io::netlink::Route;
        let [to, gateway] = [to, gateway].map(|text| text.parse().expect("the test wrote it"));
        let route = Route::via(to, prefix_length, gateway);
        self.peer
            .run(move || Netlink::open().and_then(|mut netlink| netlink.add_route(&route)))
            .expect("the gateway is on the link");
    }

    pub fn set_mtu(&self, mtu: u32) {
        set_mtu("r0", mtu);
        self.peer.run(move || set_mtu("p0", mtu));
    }

    /// Frames for the peer, as if received by port 9; each carries its number.
    pub fn datagrams(&mut self, from: &str, to: &str, count: u8) -> Batch {
        self.datagrams_to(PEER_MAC, from, to, count)
    }

    pub fn datagrams_to(&mut self, mac: [u8; 6], from: &str, to: &str, count: u8) -> Batch {
        let [from, to] = [from, to].map(|text| text.parse::<SocketAddr>().expect("an address"));
        let mut batch = Batch::new();
        for number in 0..count {
            let bytes = packet::udp((OUR_MAC, from), (mac, to), &[number]);
            let frame = self.packet(&bytes, bytes.len());
            batch.push(frame).expect("a batch holds 64");
        }
        batch
    }

    /// A packet of `bytes`, as if received by port 9, with `part` of them in each frame.
    pub fn packet(&mut self, bytes: &[u8], part: usize) -> Frame {
        let mut packet: Option<Frame> = None;
        for bytes in bytes.chunks(part) {
            let frame = self.part(bytes);
            match &mut packet {
                Some(packet) => self.region.view().append(packet, frame).expect("at most 64"),
                None => packet = Some(frame),
            }
        }
        packet.expect("there are bytes")
    }

    /// A single frame.
    pub fn part(&mut self, bytes: &[u8]) -> Frame {
        let mut frame = self.pool.take().expect("there are plenty");
        self.region.set_window(&mut frame, 256, 256 + bytes.len() as u16);
        self.region.bytes_mut(&mut frame).copy_from_slice(bytes);
        self.region.set_ingress(&mut frame, PortId(9), QueueId(0), Checksum::Valid);
        frame
    }

    /// The bytes of a packet, from all its frames.
    pub fn bytes(&self, frame: &Frame) -> Vec<u8> {
        self.region.view().parts(frame).flatten().copied().collect()
    }
}

pub fn parts(opened: Opened) -> (AfXdp, Vec<Receiver>, Vec<Transmitter>) {
    (opened.port, opened.receivers, opened.transmitters)
}

/// Receives until `count` frames for a host are in `batch`. Others, with which IPv6 stacks tell each
/// other which groups they listen to, are given back.
pub fn receive(lab: &mut Lab, receivers: &mut [Receiver], batch: &mut Batch, count: usize) {
    while batch.len() < count {
        let fds: Vec<_> = receivers.iter().map(|receiver| receiver.as_fd()).collect();
        let ready = poll(&fds, Some(Duration::from_secs(5))).expect("the sockets are open");
        assert!(ready.any(), "{} of {count} came", batch.len());
        for receiver in receivers.iter_mut() {
            let mut fresh = Batch::new();
            receiver.receive(&mut lab.pool, &mut fresh);
            for frame in fresh.drain() {
                let is_for_group = lab.region.bytes(&frame)[0] & 1 == 1;
                match is_for_group {
                    true => lab.pool.give_back(frame),
                    false => batch.push(frame).expect("the tests send no more than a batch"),
                }
            }
        }
    }
    assert_eq!(batch.len(), count);
}

/// Reclaims until `count` frames are back.
pub fn reclaim(
    receiver: &mut Receiver,
    pool: &mut Pool,
    count: usize,
    mut completed: impl FnMut(&Meta),
) {
    let mut reclaimed = 0;
    wait_until(|| {
        reclaimed += receiver.reclaim(pool, &mut completed);
        reclaimed == count
    });
}

pub fn payload(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = [0; 1 << 16];
    let (length, _) = socket.recv_from(&mut bytes).expect("a datagram comes");
    bytes[..length].to_vec()
}

/// Sets the MTU of a link of the calling thread's namespace.
pub fn set_mtu(name: &str, mtu: u32) {
    Netlink::open().and_then(|mut netlink| netlink.set_mtu(name, mtu)).expect("veth can");
}

pub fn set_up(up: bool) {
    let mut netlink = Netlink::open().expect("netlink is always there");
    if up { netlink.set_up("r0") } else { netlink.set_down("r0") }.expect("root may");
}

pub fn wait_until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !done() {
        assert!(Instant::now() < end, "it did not happen in five seconds");
        std::thread::yield_now();
    }
}
