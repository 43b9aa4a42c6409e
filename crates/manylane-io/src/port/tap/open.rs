//! Opening and closing a port, in the calling thread's network namespace.

use manylane_frame::vocabulary::{PortId, QueueId};
use manylane_frame::{Pool, Region};

use super::super::Receiving;
use super::super::vnet::{PACKET_MAX, check_packet_max, frames_for};
use super::counter::Counter;
use super::device::{Queue, Steering};
use super::error::OpenError;
use super::receiver::Receiver;
use super::transmitter::Transmitter;
use crate::bpf::SteerProgram;
use crate::interface::{Interface, InterfaceError};
use crate::netlink::Netlink;

/// How a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Our address on the wire. `None` derives it from the host's, and makes it as unique and as stable.
    pub mac: Option<[u8; 6]>,
    /// Bytes of the largest packet, with its Ethernet header: a packet that needs more frames than that is
    /// lost. The host's segments have up to 64 KiB, whatever the MTU.
    pub packet_max: u32,
}

impl Default for TapConfig {
    fn default() -> TapConfig {
        TapConfig { mac: None, packet_max: PACKET_MAX }
    }
}

impl TapConfig {
    /// Frames of `frame_size` bytes that a queue keeps posted: a line of the pool's sum.
    pub fn frames_posted(&self, frame_size: u32) -> u32 {
        frames_for(self.buffer_bytes(), frame_size) as u32
    }

    /// One more than the largest packet: a packet that fills the whole buffer may have been truncated.
    fn buffer_bytes(&self) -> u32 {
        self.packet_max.saturating_add(1)
    }
}

/// An open port, for the control thread.
pub struct Tap {
    port: PortId,
    interface: String,
    _steering: Option<Steering>,
}

/// A port and its parts. An interface that the port created exists as long as one of them.
pub struct Opened {
    /// The port, for the control thread to close.
    pub port: Tap,
    /// The interface's properties.
    pub facts: Facts,
    /// One for each queue, in order, for the queue's owner.
    pub receivers: Vec<Receiver>,
    /// One for each worker, in order.
    pub transmitters: Vec<Transmitter>,
}

/// The properties of an opened port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The interface's number in its network namespace.
    pub index: u32,
    /// Our Ethernet address.
    pub mac: [u8; 6],
    /// The host's: the interface's own.
    pub host_mac: [u8; 6],
    /// The MTU: the largest packet without the Ethernet header.
    pub mtu: u32,
    /// Whether opening the port created the interface and set it up.
    pub created: bool,
}

impl Tap {
    /// Opens the TAP interface called `interface` of the calling thread's network namespace, with a queue
    /// for each owner. If it does not exist, this creates it and sets it up, and it is removed with the port.
    ///
    /// # Panics
    ///
    /// Without a queue, or when an owner is not one of the workers.
    pub fn open(
        region: &Region,
        port: PortId,
        interface: &str,
        receiving: Receiving<'_>,
        config: TapConfig,
    ) -> Result<Opened, OpenError> {
        let queues = receiving.owners.len() as u16;
        let transmit_queues = receiving.transmit_queues(queues);
        let name = || interface.to_owned();
        let refused = |(step, source)| OpenError::Refused { interface: name(), step, source };
        if interface.is_empty() || interface.len() > NAME_MAX {
            return Err(OpenError::Name { interface: name() });
        }
        let present = existing_tap(interface)?;
        config.check(interface, present.as_ref())?;

        let opened = open_queues(interface, queues).map_err(|error| {
            match (error.1.raw_os_error(), &present) {
                (Some(libc::EBUSY), _) => OpenError::Busy { interface: name() },
                (Some(libc::EINVAL | libc::E2BIG), Some(_)) => {
                    OpenError::OtherQueues { interface: name(), queues }
                }
                _ => refused(error),
            }
        })?;
        let steering = steer(interface, &opened)?;

        if present.is_none() {
            Netlink::open()
                .and_then(|mut netlink| netlink.set_up(interface))
                .map_err(|error| OpenError::Interface(error.into()))?;
        }
        let facts = Facts::read(interface, config, present.is_none())?;
        let transmitter = |queue: QueueId| {
            Transmitter::new(opened[usize::from(queue.0)].clone(), region, port, queue)
        };
        let transmitters = transmit_queues.into_iter().map(transmitter).collect();
        let counter = Counter::open(interface)
            .map_err(|source| OpenError::Counts { interface: name(), source })?;
        let mut counter = Some(counter);
        let receivers = (0..).zip(opened).map(|(number, queue)| {
            let number = QueueId(number);
            Receiver::new(queue, region, config.buffer_bytes(), port, number, counter.take())
        });
        let receivers = receivers.collect();
        let port = Tap { port, interface: name(), _steering: steering };
        Ok(Opened { port, facts, receivers, transmitters })
    }

    /// Checks what [`Tap::open`] checks before it opens a queue, without opening anything; returns the MTU that the
    /// interface has, or gets when it is created.
    pub fn check(interface: &str, config: TapConfig) -> Result<u32, OpenError> {
        let present = existing_tap(interface)?;
        config.check(interface, present.as_ref())?;
        Ok(present.map_or(NEW_TAP_MTU, |facts| facts.mtu))
    }

    /// Closes the port and returns every frame to `pool`; returns how many frames.
    ///
    /// # Panics
    ///
    /// When a part is not of this port.
    pub fn close(
        self,
        receivers: Vec<Receiver>,
        transmitters: Vec<Transmitter>,
        pool: &mut Pool,
    ) -> usize {
        let ours = |port: PortId| assert_eq!(port, self.port, "a part of another port");
        transmitters.iter().for_each(|transmitter| ours(transmitter.port));
        receivers.iter().for_each(|receiver| ours(receiver.port));
        receivers.into_iter().map(|receiver| receiver.close(pool)).sum()
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface
    }
}

impl TapConfig {
    fn check(&self, interface: &str, present: Option<&Interface>) -> Result<(), OpenError> {
        let TapConfig { packet_max, mac } = *self;
        let mtu = present.map_or(NEW_TAP_MTU, |facts| facts.mtu);
        check_packet_max(packet_max, mtu).map_err(|least| {
            let interface = interface.into();
            OpenError::PacketMax { interface, packet_max, least }
        })?;
        match mac {
            Some(mac) if mac[0] & GROUP != 0 || mac == [0; 6] => {
                Err(OpenError::NoStation { interface: interface.into(), mac })
            }
            _ => Ok(()),
        }
    }
}

impl Facts {
    fn read(interface: &str, config: TapConfig, created: bool) -> Result<Facts, OpenError> {
        let Interface { index, mac: host_mac, mtu, .. } =
            Interface::read(interface).map_err(OpenError::Interface)?;
        let mac = config.mac.unwrap_or_else(|| opposite(host_mac));
        if mac == host_mac {
            return Err(OpenError::SameMac { interface: interface.to_owned() });
        }
        Ok(Facts { index, mac, host_mac, mtu, created })
    }
}

/// The properties of the TAP interface called `interface`; `None` when no interface has that name.
fn existing_tap(interface: &str) -> Result<Option<Interface>, OpenError> {
    match Interface::read(interface) {
        Ok(facts) if facts.driver != "tun" => {
            Err(OpenError::NotTap { interface: interface.to_owned(), driver: facts.driver })
        }
        Ok(facts) => Ok(Some(facts)),
        Err(InterfaceError::NoSuchInterface { .. }) => Ok(None),
        Err(error) => Err(OpenError::Interface(error)),
    }
}

/// Lets our program select queues, where the interface has several.
fn steer(interface: &str, queues: &[Queue]) -> Result<Option<Steering>, OpenError> {
    let [first, _, ..] = queues else { return Ok(None) };
    let mut program = SteerProgram::load().map_err(OpenError::Program)?;
    let steering = first.steer_by(program.fd()).map_err(|source| OpenError::Refused {
        interface: interface.to_owned(),
        step: "steer flows to queues",
        source,
    })?;
    Ok(Some(steering))
}

/// Opens the queues. A single one may belong to an interface created with several.
fn open_queues(interface: &str, queues: u16) -> Result<Vec<Queue>, super::device::StepError> {
    if queues > 1 {
        return (0..queues).map(|_| Queue::open(interface, true)).collect();
    }
    let queue = match Queue::open(interface, false) {
        Err((_, error)) if error.raw_os_error() == Some(libc::EINVAL) => {
            Queue::open(interface, true)
        }
        outcome => outcome,
    };
    queue.map(|queue| vec![queue])
}

/// Derives our end's address from the host's: locally administered, and different.
fn opposite(mut mac: [u8; 6]) -> [u8; 6] {
    mac[0] = (mac[0] | LOCAL) ^ ANOTHER;
    mac
}

/// IEEE 802-2014, 8.2.2: the group bit, and the locally-administered bit.
const GROUP: u8 = 1;
const LOCAL: u8 = 2;
/// A bit without a meaning in a locally administered address.
const ANOTHER: u8 = 4;
/// The longest name: IFNAMSIZ, less its zero.
const NAME_MAX: usize = 15;
/// `ether_setup`.
const NEW_TAP_MTU: u32 = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    /// 1792 bytes fill a frame to its end, which would look like a part of a larger packet.
    #[test]
    fn a_packet_that_fills_its_frames_has_one_to_spare() {
        let frames = |packet_max| TapConfig { packet_max, mac: None }.frames_posted(2048);
        assert_eq!((frames(1791), frames(1792)), (1, 2));
        assert_eq!(frames(PACKET_MAX), 33);
    }

    #[test]
    fn our_end_has_an_address_of_its_own() {
        for host in [[0x52, 0x54, 0, 1, 2, 3], [0; 6], [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff]] {
            let ours = opposite(host);
            assert_ne!(ours, host);
            assert_eq!((ours[0] & GROUP, ours[0] & LOCAL), (0, LOCAL));
            assert_eq!(ours[1..], host[1..]);
        }
    }
}
