//! A router and a peer behind a veth pair, and what both do.

use super::*;

/// A router (this thread) with a veth `r0`, and a peer behind it, without IPv6's own chatter; a region
/// and its pool.
pub(super) struct Lab {
    pub peer: Host,
    pub region: Region,
    pub pool: Pool,
    pub frames: u32,
}

impl Lab {
    /// `None` (and a line that says why) when we may not.
    pub fn new(frame_size: u32) -> Option<Lab> {
        Lab::with_frames(frame_size, FRAMES)
    }

    pub fn with_frames(frame_size: u32, frames: u32) -> Option<Lab> {
        let peer = common::host("peer")?;
        Namespace::new_for_this_thread().map_err(common::skip).ok()?;
        manylane_io::sysctl::set("net/ipv6/conf/default/disable_ipv6", "1").expect("as root");
        common::setting(&peer, "net/ipv6/conf/default/disable_ipv6", "1");
        let end = LinkEnd::new("r0").mac(OUR_MAC);
        common::connect_here(end, &peer, LinkEnd::new("p0").mac(PEER_MAC));
        common::address(&peer, "p0", "10.0.0.2", 24);
        let region = Region::new(RegionConfig { frames, frame_size });
        let region = region.expect("32 MiB can be mapped");
        let depot = Depot::new(region.clone(), 4).expect("the first taker");
        let pool = depot.pool_of(frames);
        let ours = "10.0.0.1".parse().expect("it is one");
        peer.run(move || Netlink::open().and_then(|mut nl| nl.add_neighbour("p0", ours, OUR_MAC)))
            .expect("root may");
        Some(Lab { peer, region, pool, frames })
    }

    /// Opens `r0` as port 3; `None` (and a line that says why) without AF_PACKET.
    pub fn open(&mut self, queues: u16, workers: usize, config: AfPacketConfig) -> Option<Opened> {
        match AfPacket::open(&self.region, PortId(3), "r0", workers, queues, config) {
            Ok(opened) => Some(opened),
            Err(error) if error.is_unavailable() => {
                common::skip(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A port at the peer's end, to send by.
    pub fn far_port(&self) -> ((AfPacket, Vec<Receiver>), Vec<Transmitter>) {
        let region = self.region.clone();
        let open =
            move || AfPacket::open(&region, PortId(9), "p0", 1, 1, AfPacketConfig::default());
        let Opened { port, receivers, transmitters, .. } = self.peer.run(open).expect("as ours");
        ((port, receivers), transmitters)
    }

    pub fn close_far(
        &mut self,
        (port, receivers): (AfPacket, Vec<Receiver>),
        exit: Vec<Transmitter>,
    ) {
        port.close(receivers, exit, &mut self.pool);
    }

    /// Receives until `count` packets are there, no more.
    pub fn receive(&mut self, receivers: &mut [Receiver], count: usize) -> Batch {
        let mut batch = Batch::new();
        while batch.len() < count {
            let fds: Vec<_> = receivers.iter().map(|receiver| receiver.as_fd()).collect();
            let ready = poll(&fds, Some(Duration::from_secs(5))).expect("the sockets are open");
            assert!(ready.any(), "{} of {count} came", batch.len());
            for receiver in receivers.iter_mut() {
                receiver.receive(&mut self.pool, &mut batch);
            }
        }
        assert_eq!(batch.len(), count);
        batch
    }

    pub fn peer_sends(&self, payload: &[u8], count: usize) {
        let payload = payload.to_vec();
        self.peer.run(move || {
            let socket = UdpSocket::bind("10.0.0.2:0").expect("the address is the peer's");
            for _ in 0..count {
                socket.send_to(&payload, OUR_V4).expect("the neighbour is known");
            }
        });
    }

    /// Sends `payload` as datagrams of `size` bytes that the device is to cut (udp(7), `UDP_SEGMENT`).
    pub fn peer_sends_segments(&self, payload: &[u8], size: i32) {
        let payload = payload.to_vec();
        self.peer.run(move || {
            let socket = UdpSocket::bind(PEER_V4).expect("the address is the peer's");
            let fd = socket.as_raw_fd();
            // SAFETY: setsockopt(2) reads the 4 bytes of `size`.
            let set = unsafe {
                let value = (&raw const size).cast();
                libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, value, 4)
            };
            assert_eq!(set, 0);
            socket.send_to(&payload, OUR_V4).expect("the neighbour is known");
        });
    }

    pub fn peer_socket(&self, address: &'static str) -> UdpSocket {
        self.peer.run(move || UdpSocket::bind(address)).expect("it is the peer's")
    }

    /// A datagram from the peer to us.
    pub fn datagram(&self, payload: &[u8]) -> Vec<u8> {
        let [from, to] = [PEER_V4, OUR_V4].map(|text| text.parse::<SocketAddr>().expect("one"));
        packet::udp((PEER_MAC, from), (OUR_MAC, to), payload)
    }

    /// A packet in `parts` frames; the first begins at 300.
    pub fn chain(&mut self, bytes: &[u8], parts: usize) -> Frame {
        let view = self.region.view();
        let mut packet: Option<Frame> = None;
        for part in bytes.chunks(bytes.len().div_ceil(parts)) {
            let mut frame = self.pool.take().expect("there are plenty");
            let head = if packet.is_none() { 300 } else { 0 };
            view.set_window(&mut frame, head, head + part.len() as u16);
            view.set_ingress(&mut frame, PortId(9), QueueId(0), Checksum::Valid);
            view.bytes_mut(&mut frame).copy_from_slice(part);
            match &mut packet {
                Some(first) => view.append(first, frame).expect("a chain has 64"),
                None => packet = Some(frame),
            }
        }
        packet.expect("there is a part")
    }

    pub fn bytes(&self, frame: &Frame) -> Vec<u8> {
        self.region.view().parts(frame).flatten().copied().collect()
    }

    /// Every frame is free again: the conservation of frames (I2).
    pub fn assert_all_home(&mut self) {
        assert_eq!(all_home(&mut self.pool), self.frames as usize);
    }
}

pub(super) fn end(opened: Opened) -> (AfPacket, End) {
    let Opened { port, receivers, mut transmitters, .. } = opened;
    let receivers = receivers.into_iter().map(|r| port::Receiver::AfPacket(Box::new(r)));
    let transmitter = transmitters.pop().expect("one worker, one transmitter");
    let transmitter = port::Transmitter::AfPacket(Box::new(transmitter));
    (port, End { receivers: receivers.collect(), transmitter })
}

pub(super) fn close(port: AfPacket, end: End, pool: &mut Pool) {
    let receivers = end.receivers.into_iter().map(|receiver| match receiver {
        port::Receiver::AfPacket(receiver) => *receiver,
        _ => unreachable!("`end` made it"),
    });
    port.close(receivers.collect(), Vec::new(), pool);
}

/// How many frames are free: each taken once and given back.
pub(super) fn all_home(pool: &mut Pool) -> usize {
    let frames: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    let count = frames.len();
    frames.into_iter().for_each(|frame| pool.give_back(frame));
    count
}

pub(super) fn payload(socket: &UdpSocket) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");
    let mut bytes = [0; 2048];
    let (length, _) = socket.recv_from(&mut bytes).expect("a datagram comes");
    bytes[..length].to_vec()
}

pub(super) fn wait_until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !done() {
        assert!(Instant::now() < end, "it did not happen in five seconds");
        std::thread::yield_now();
    }
}
