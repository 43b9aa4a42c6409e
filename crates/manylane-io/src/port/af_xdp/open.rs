//! Opening a port: program, sockets, rings, in the calling thread's network namespace.

use std::io;
use std::os::fd::AsFd;

use manylane_frame::Region;
use manylane_frame::vocabulary::{Checksum, PortId, QueueId, WorkerId};

use super::AfXdpConfig;
use super::error::{OpenError, RING_MAX, RING_MIN, mtu_max};
use super::lent::Lent;
use super::receiver::Receiver;
use super::ring::{ConsumerRing, Kind, ProducerRing};
use super::socket::{Socket, Transfer, is_busy};
use super::transmitter::{TransmitLosses, Transmitter};
use super::umem::{StepError, Umem};
use crate::bpf::{Mode, XskLink, XskProgram};
use crate::interface::{AllMulticast, Interface};

/// An open port, for the control thread: as long as it exists, frames come in by it.
///
/// It ends by [`AfXdp::close`], with all its parts. Dropping one of them closes its sockets as well,
/// but the frames that the kernel had stay lent for ever.
pub struct AfXdp {
    pub(super) port: PortId,
    pub(super) interface: Interface,
    pub(super) link: XskLink,
    pub(super) _multicast: AllMulticast,
    pub(super) transfer: Transfer,
}

/// A port and its parts.
pub struct Opened {
    /// For the control thread, to close it.
    pub port: AfXdp,
    /// What was found and decided.
    pub facts: Facts,
    /// One for each queue, in order: for its owner.
    pub receivers: Vec<Receiver>,
    /// One for each worker, in order.
    pub transmitters: Vec<Transmitter>,
}

/// What a port turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The device's number in its network namespace.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest packet without the Ethernet header.
    pub mtu: u32,
    /// The driver's name.
    pub driver: String,
    /// Receive queues, each with a socket.
    pub queues: u32,
    /// Where the XDP program runs.
    pub mode: Mode,
    /// Whether the device reads and writes frames itself.
    pub zero_copy: bool,
    /// What is known of received transport checksums.
    pub checksum: Checksum,
}

impl AfXdp {
    /// Opens `interface` of the calling thread's network namespace.
    ///
    /// `owners` says which worker owns each receive queue, by queue; there are `workers` of them.
    /// [`Interface::read`] tells the number of queues.
    ///
    /// # Panics
    ///
    /// When an owner is not one of the workers.
    pub fn open(
        umem: &mut Umem,
        port: PortId,
        interface: &str,
        workers: usize,
        owners: &[WorkerId],
        config: AfXdpConfig,
    ) -> Result<Opened, OpenError> {
        let owned = |owner: &WorkerId| usize::from(owner.0) < workers;
        assert!(owners.iter().all(owned), "an owner is not one of {workers} workers");
        config.check()?;
        let interface = Interface::read(interface).map_err(OpenError::Interface)?;
        check_interface(&interface, umem.region(), owners)?;

        let program = XskProgram::load(interface.receive_queues).map_err(OpenError::Program)?;
        let link = program.attach(&interface, config.attach).map_err(OpenError::Program)?;
        let multicast = AllMulticast::join(&interface).map_err(OpenError::Interface)?;
        let mut opening = Opening { umem, port, interface: &interface, config, mode: link.mode() };
        let (receivers, transmitters, transfer) = opening.bind_queues(workers, owners)?;

        let facts = opening.facts(transfer);
        let mut port = AfXdp { port, interface, link, _multicast: multicast, transfer };
        for receiver in &receivers {
            let queue = u32::from(receiver.queue.0);
            port.link.set_socket(queue, receiver.as_fd()).map_err(OpenError::Program)?;
        }
        Ok(Opened { port, facts, receivers, transmitters })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface.name
    }
}

/// What all queues of a port that is being opened need to know.
struct Opening<'o> {
    umem: &'o mut Umem,
    port: PortId,
    interface: &'o Interface,
    config: AfXdpConfig,
    mode: Mode,
}

impl Opening<'_> {
    fn bind_queues(
        &mut self,
        workers: usize,
        owners: &[WorkerId],
    ) -> Result<(Vec<Receiver>, Vec<Transmitter>, Transfer), OpenError> {
        let ways = self.transfers();
        let mut ways = ways.as_slice();
        let mut receivers = Vec::new();
        let mut transmitters: Vec<_> = (0..workers).map(|_| None).collect();
        for (queue, owner) in (0..).zip(owners) {
            // A worker transmits by the first of its queues. A device may have fewer transmit queues.
            let own = &mut transmitters[usize::from(owner.0)];
            let transmits = own.is_none() && queue < self.interface.transmit_queues;
            let (receiver, transmitter, transfer) = self.bind_queue(queue, transmits, ways)?;
            receivers.push(receiver);
            if transmits {
                *own = transmitter;
            }
            // What the first queue could, all must: the port is of one kind.
            ways = if transfer == Transfer::ZeroCopy { &ZERO_COPY_ONLY } else { &COPY_ONLY };
        }
        let transfer = ways[0];
        let first = receivers[0].socket.clone();
        let transmitters = transmitters
            .into_iter()
            .map(|own| own.map_or_else(|| self.bind_transmit_only(&first, transfer), Ok))
            .collect::<Result<_, _>>()?;
        Ok((receivers, transmitters, transfer))
    }

    /// The ways to try, best first.
    fn transfers(&self) -> Vec<Transfer> {
        // Generic XDP sees frames that the driver has copied already. Software devices cannot: asking
        // would register the region a second time only to be refused.
        let hopeless = self.mode == Mode::Generic
            || SOFTWARE_DRIVERS.contains(&self.interface.driver.as_str());
        match self.config.zero_copy && !hopeless {
            true => vec![Transfer::ZeroCopy, Transfer::Copy],
            false => vec![Transfer::Copy],
        }
    }

    fn bind_queue(
        &mut self,
        queue: u32,
        transmits: bool,
        ways: &[Transfer],
    ) -> Result<(Receiver, Option<Transmitter>, Transfer), OpenError> {
        let AfXdpConfig { rx_ring, tx_ring, fill_ring, completion_ring, .. } = self.config;
        let mut rings = vec![
            (Kind::Receive, rx_ring),
            (Kind::Fill, fill_ring),
            (Kind::Completion, completion_ring),
        ];
        if transmits {
            rings.push((Kind::Transmit, tx_ring));
        }
        let place = (self.interface.index, queue);
        let (socket, transfer) =
            self.umem.bind(place, &rings, ways).map_err(|error| self.refused(queue, error))?;
        let receiver = self.map_receiver(queue, &socket).map_err(|e| self.unmapped(queue, e))?;
        let transmitter = match transmits {
            true => Some(
                self.map_transmitter(queue, socket, transfer)
                    .map_err(|error| self.unmapped(queue, error))?,
            ),
            false => None,
        };
        Ok((receiver, transmitter, transfer))
    }

    fn bind_transmit_only(
        &self,
        first: &Socket,
        transfer: Transfer,
    ) -> Result<Transmitter, OpenError> {
        let place = (self.interface.index, 0);
        let socket = self
            .umem
            .bind_transmit_only(place, self.config.tx_ring, first)
            .map_err(|error| self.refused(0, error))?;
        self.map_transmitter(0, socket, transfer).map_err(|error| self.unmapped(0, error))
    }

    fn map_receiver(&self, queue: u32, socket: &Socket) -> io::Result<Receiver> {
        let AfXdpConfig { rx_ring, fill_ring, completion_ring, .. } = self.config;
        let (fd, offsets) = (socket.as_fd(), socket.ring_offsets()?);
        let region = self.umem.region();
        Ok(Receiver {
            receive: ConsumerRing::map(fd, Kind::Receive, rx_ring, &offsets)?,
            fill: ProducerRing::map(fd, Kind::Fill, fill_ring, &offsets)?,
            completion: ConsumerRing::map(fd, Kind::Completion, completion_ring, &offsets)?,
            socket: socket.clone(),
            region: region.clone(),
            posted: Lent::new(region),
            posted_count: 0,
            completed: Lent::new(region),
            returned: 0,
            port: self.port,
            queue: QueueId(queue as u16),
            checksum: self.checksum(),
            foreign: 0,
        })
    }

    fn map_transmitter(
        &self,
        queue: u32,
        socket: Socket,
        transfer: Transfer,
    ) -> io::Result<Transmitter> {
        let offsets = socket.ring_offsets()?;
        let region = self.umem.region();
        let entries = self.config.tx_ring;
        Ok(Transmitter {
            ring: ProducerRing::map(socket.as_fd(), Kind::Transmit, entries, &offsets)?,
            socket,
            region: region.clone(),
            sent: Lent::new(region),
            lent: 0,
            transfer,
            port: self.port,
            queue: QueueId(queue as u16),
            losses: TransmitLosses::default(),
        })
    }

    fn checksum(&self) -> Checksum {
        let by_driver = match self.interface.driver.as_str() {
            "veth" => Checksum::Unknown,
            _ => Checksum::Valid,
        };
        self.config.checksum.unwrap_or(by_driver)
    }

    fn facts(&self, transfer: Transfer) -> Facts {
        let Interface { index, mac, mtu, driver, receive_queues, .. } = self.interface;
        Facts {
            index: *index,
            mac: *mac,
            mtu: *mtu,
            driver: driver.clone(),
            queues: *receive_queues,
            mode: self.mode,
            zero_copy: transfer == Transfer::ZeroCopy,
            checksum: self.checksum(),
        }
    }

    fn refused(&self, queue: u32, (step, source): StepError) -> OpenError {
        let interface = self.interface.name.clone();
        match is_busy(&source) {
            true => OpenError::Busy { interface, queue },
            false => OpenError::Refused { interface, queue, step, source },
        }
    }

    fn unmapped(&self, queue: u32, source: io::Error) -> OpenError {
        self.refused(queue, ("map the rings", source))
    }
}

impl AfXdpConfig {
    fn check(&self) -> Result<(), OpenError> {
        for (ring, entries) in [
            ("rx_ring", self.rx_ring),
            ("tx_ring", self.tx_ring),
            ("fill_ring", self.fill_ring),
            ("completion_ring", self.completion_ring),
        ] {
            if !entries.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&entries) {
                return Err(OpenError::RingSize { ring, entries });
            }
        }
        Ok(())
    }
}

fn check_interface(
    interface: &Interface,
    region: &Region,
    owners: &[WorkerId],
) -> Result<(), OpenError> {
    let name = || interface.name.clone();
    let queues = interface.receive_queues;
    if owners.len() != queues as usize || queues == 0 {
        return Err(OpenError::Owners { interface: name(), queues, owners: owners.len() });
    }
    let (mtu, frame_size) = (interface.mtu, region.frame_size());
    if mtu > mtu_max(frame_size) {
        return Err(OpenError::MtuTooLarge { interface: name(), mtu, frame_size });
    }
    Ok(())
}

const ZERO_COPY_ONLY: [Transfer; 1] = [Transfer::ZeroCopy];
const COPY_ONLY: [Transfer; 1] = [Transfer::Copy];

/// Drivers of devices without memory of their own; `lo` has none at all.
const SOFTWARE_DRIVERS: [&str; 3] = ["veth", "tun", ""];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_are_powers_of_two() {
        let config = AfXdpConfig { tx_ring: 1000, ..AfXdpConfig::default() };
        assert!(matches!(config.check(), Err(OpenError::RingSize { ring: "tx_ring", .. })));
        assert!(AfXdpConfig::default().check().is_ok());
    }
}
