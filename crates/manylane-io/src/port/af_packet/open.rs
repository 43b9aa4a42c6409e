//! Opening and closing a port, in the calling thread's network namespace.

use std::io;
use std::os::fd::AsFd;

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{BATCH_MAX, Pool, Region};

use super::super::vnet::{PACKET_MAX, check_packet_max, frames_for};
use super::error::OpenError;
use super::receiver::Receiver;
use super::socket::{Socket, Unbound};
use super::transmitter::Transmitter;
use crate::bpf::{MuteLink, MuteProgram};
use crate::interface::{AllMulticast, Interface};

/// How a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfPacketConfig {
    /// Bytes of the largest packet, with its Ethernet header: a packet that needs more frames than that is lost.
    /// Segments that the kernel has merged, or left for a device to cut, have up to 64 KiB, whatever the MTU.
    pub packet_max: u32,
    /// Packets that a queue has frames posted for, and receives per call: 1 to 64.
    pub packets: u32,
    /// Bytes that may wait in a queue, as the kernel counts them: about 700 for a small packet, and
    /// slightly more than its length for a large one.
    pub receive_buffer: u32,
    /// Bytes in flight through a device, for each worker.
    pub transmit_buffer: u32,
    /// Whether packets bypass the device's queueing discipline and captures. manylane then cuts segments itself.
    pub bypass: bool,
}

impl Default for AfPacketConfig {
    fn default() -> AfPacketConfig {
        AfPacketConfig {
            packet_max: PACKET_MAX,
            packets: BATCH_MAX as u32,
            receive_buffer: 8 << 20,
            transmit_buffer: 8 << 20,
            bypass: false,
        }
    }
}

impl AfPacketConfig {
    /// Frames of `frame_size` bytes that a queue keeps posted: a line of the pool's sum.
    pub fn frames_posted(&self, frame_size: u32) -> u32 {
        self.packets * frames_for(self.packet_max, frame_size) as u32
    }
}

/// An open port, for the control thread: while it exists, the host's own stack receives nothing from the device.
pub struct AfPacket {
    port: PortId,
    interface: Interface,
    link: MuteLink,
    _multicast: AllMulticast,
}

/// A port and its parts.
pub struct Opened {
    /// The port, for the control thread to close.
    pub port: AfPacket,
    /// The device's properties.
    pub facts: Facts,
    /// One for each queue, in order, for the queue's owner.
    pub receivers: Vec<Receiver>,
    /// One for each worker, in order.
    pub transmitters: Vec<Transmitter>,
}

/// The properties of an opened port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The device's number in its network namespace.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The MTU: the largest packet without the Ethernet header.
    pub mtu: u32,
    /// The driver's name.
    pub driver: String,
}

/// The frames and packets found when a port closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Frames posted for packets.
    pub posted: usize,
    /// Packets that waited in the sockets: these are lost.
    pub unread: usize,
}

impl AfPacket {
    /// Opens `interface` of the calling thread's network namespace with `queues` queues. The kernel distributes packets
    /// among them by flow hash; both directions of a flow get one queue.
    ///
    /// # Panics
    ///
    /// Without a queue, or when `packets` is out of bounds.
    pub fn open(
        region: &Region,
        port: PortId,
        interface: &str,
        workers: usize,
        queues: u16,
        config: AfPacketConfig,
    ) -> Result<Opened, OpenError> {
        assert!(queues > 0, "a port has a queue");
        assert!((1..=BATCH_MAX as u32).contains(&config.packets), "1 to 64 packets");
        let interface = Interface::read(interface).map_err(OpenError::Interface)?;
        config.check(&interface)?;
        let program = MuteProgram::load().map_err(OpenError::Program)?;
        let refused = |step| {
            let interface = interface.name.clone();
            move |source| OpenError::Refused { interface, step, source }
        };
        let mut sockets = Vec::new();
        for _ in 0..queues {
            let socket = receiving(&interface, &config).map_err(refused("open a packet socket"))?;
            sockets.push(socket);
        }
        if let [first, others @ ..] = sockets.as_slice()
            && !others.is_empty()
        {
            let join = |socket: &Socket, group| {
                socket.join_fanout(group).map_err(refused("share packets among queues"))
            };
            let group = join(first, None)?;
            others.iter().try_for_each(|socket| join(socket, Some(group)).map(|_| ()))?;
        }
        let transmitters = (0..workers)
            .map(|_| sending(&interface, &config))
            .map(|socket| Ok(Transmitter::new(socket?, region, config.bypass, port)))
            .collect::<io::Result<_>>()
            .map_err(refused("open a packet socket"))?;
        let multicast = AllMulticast::join(&interface).map_err(OpenError::Interface)?;
        // From here on the host's stack receives nothing from the device; the sockets start below.
        let link = program.attach(&interface).map_err(OpenError::Program)?;
        for socket in &sockets {
            socket.unshut().map_err(refused("open a packet socket"))?;
        }
        let receivers = (0..)
            .zip(sockets)
            .map(|(queue, socket)| Receiver::new(socket, region, &config, port, QueueId(queue)))
            .collect();
        let Interface { index, mac, mtu, driver, .. } = interface.clone();
        let facts = Facts { index, mac, mtu, driver };
        let port = AfPacket { port, interface, link, _multicast: multicast };
        Ok(Opened { port, facts, receivers, transmitters })
    }

    /// Checks what [`AfPacket::open`] checks before it opens a socket, without opening anything; returns the interface's
    /// MTU.
    pub fn check(interface: &str, config: AfPacketConfig) -> Result<u32, OpenError> {
        let interface = Interface::read(interface).map_err(OpenError::Interface)?;
        config.check(&interface).map(|()| interface.mtu)
    }

    /// Closes the port and returns every frame to `pool`. The host's own stack receives from the device again.
    ///
    /// # Panics
    ///
    /// When a part is not of this port.
    pub fn close(
        self,
        receivers: Vec<Receiver>,
        transmitters: Vec<Transmitter>,
        pool: &mut Pool,
    ) -> Closed {
        let ours = |port: PortId| assert_eq!(port, self.port, "a part of another port");
        transmitters.iter().for_each(|transmitter| ours(transmitter.port));
        receivers.iter().for_each(|receiver| ours(receiver.port));
        // From here on the stack receives, and no socket does: what each of them has can be counted.
        self.link.release(receivers.iter().map(AsFd::as_fd));
        let mut closed = Closed::default();
        for receiver in receivers {
            let (posted, unread) = receiver.close(pool);
            closed.posted += posted;
            closed.unread += unread;
        }
        closed
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface.name
    }
}

impl AfPacketConfig {
    fn check(&self, interface: &Interface) -> Result<(), OpenError> {
        let AfPacketConfig { packet_max, .. } = *self;
        check_packet_max(packet_max, interface.mtu).map_err(|least| {
            let interface = interface.name.clone();
            OpenError::PacketMax { interface, packet_max, least }
        })
    }
}

/// A bound receiving socket that accepts nothing yet: until all sockets of a fanout group have joined, each would get
/// packets that belong to another.
fn receiving(interface: &Interface, config: &AfPacketConfig) -> io::Result<Socket> {
    let socket = Unbound::open()?;
    socket.set(libc::PACKET_VNET_HDR, 1)?;
    socket.set(libc::PACKET_AUXDATA, 1)?;
    socket.set(libc::PACKET_IGNORE_OUTGOING, 1)?;
    socket.set_buffer(libc::SO_RCVBUFFORCE, config.receive_buffer)?;
    socket.shut()?;
    socket.bind(interface.index, libc::ETH_P_ALL as u16)
}

/// A socket that receives nothing.
fn sending(interface: &Interface, config: &AfPacketConfig) -> io::Result<Socket> {
    let socket = Unbound::open()?;
    socket.set(libc::PACKET_VNET_HDR, 1)?;
    socket.set_buffer(libc::SO_SNDBUFFORCE, config.transmit_buffer)?;
    if config.bypass {
        socket.set(libc::PACKET_QDISC_BYPASS, 1)?;
    }
    socket.bind(interface.index, 0)
}
