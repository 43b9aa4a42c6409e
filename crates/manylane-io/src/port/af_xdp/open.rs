//! Opening a port: program, sockets, rings, in the calling thread's network namespace.

use std::io;
use std::os::fd::AsFd;

use manylane_frame::Region;
use manylane_frame::vocabulary::{Checksum, PortId, QueueId, WorkerId};

use super::super::Receiving;
use super::AfXdpConfig;
use super::drain::Queue;
use super::error::{OpenError, RING_MAX, RING_MIN, TagsHidden, mtu_max};
use super::join::Joiner;
use super::lent::Lent;
use super::receiver::Receiver;
use super::ring::{ConsumerRing, Kind, ProducerRing};
use super::socket::{Socket, Transfer, is_busy};
use super::transmitter::{TransmitLosses, Transmitter};
use super::umem::{Bound, StepError, Umem};
use crate::bpf::{Mode, XskLink, XskProgram};
use crate::interface::{AllMulticast, Interface};

/// An open port, for the control thread: while it exists, frames arrive at its sockets.
///
/// [`AfXdp::close`] ends it, with all its parts. Dropping one of them closes its sockets as well,
/// but the frames that the kernel had stay lent for ever.
pub struct AfXdp {
    pub(super) port: PortId,
    pub(super) interface: Interface,
    /// The program and membership that bring frames to the sockets, if they are the port's own.
    pub(super) own: Option<(XskLink, AllMulticast)>,
    pub(super) transfer: Transfer,
}

/// A port and its parts.
pub struct Opened {
    /// The port, for the control thread to close.
    pub port: AfXdp,
    /// The device's properties, and how its queues were bound.
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
    /// Receive queues, each with a socket.
    pub queues: u32,
    /// Where the XDP program runs.
    pub mode: Mode,
    /// Whether the device reads and writes frames itself.
    pub zero_copy: bool,
    /// The most frames of a packet that is sent; 1 when a packet must lie in one frame, in both directions.
    pub frames_max: u8,
    /// If a packet must lie in one frame, why.
    pub single_because: Option<String>,
    /// What the port reports about received transport checksums.
    pub checksum: Checksum,
    /// Set if frames may arrive without the VLAN tags that they had on the wire.
    pub hidden_tags: Option<TagsHidden>,
}

impl AfXdp {
    /// Opens `interface` of the calling thread's network namespace.
    ///
    /// `receiving` has the owner of each receive queue; [`Interface::read`] returns their number.
    ///
    /// # Panics
    ///
    /// When an owner is not one of the workers.
    pub fn open(
        umem: &mut Umem,
        port: PortId,
        interface: &str,
        receiving: Receiving<'_>,
        config: AfXdpConfig,
    ) -> Result<Opened, OpenError> {
        let workers = receiving.workers();
        let owned = |owner: &WorkerId| usize::from(owner.0) < workers;
        assert!(receiving.owners.iter().all(owned), "an owner is not one of {workers} workers");
        config.check()?;
        let interface = Interface::read(interface).map_err(OpenError::Interface)?;
        check_owners(&interface, receiving.owners)?;
        let frames_max = if config.multi_buffer { chain_max(&interface) } else { 1 };
        check_mtu(&interface, umem.region(), frames_max)?;

        let program = XskProgram::load(interface.receive_queues).map_err(OpenError::Program)?;
        let link = program.attach(&interface, config.attach).map_err(OpenError::Program)?;
        let hidden_tags = TagsHidden::of(&interface, link.mode(), link.has_tags());
        if let Some(hidden) = hidden_tags.clone().filter(|_| config.vlans) {
            return Err(OpenError::TagsHidden(hidden));
        }
        let multicast = AllMulticast::join(&interface).map_err(OpenError::Interface)?;
        let lasting = interface.receive_queues;
        let mode = link.mode();
        let mut opening = Opening { umem, port, interface: &interface, config, mode, lasting };
        let (receivers, transmitters, way) = opening.bind_queues(receiving)?;

        let transfer = way.transfer;
        let facts = opening.facts(way, hidden_tags);
        let mut link = link;
        for receiver in &receivers {
            let queue = u32::from(receiver.queue.0);
            link.set_socket(queue, receiver.as_fd()).map_err(OpenError::Program)?;
        }
        let port = AfXdp { port, interface, own: Some((link, multicast)), transfer };
        Ok(Opened { port, facts, receivers, transmitters })
    }

    /// Opens the sockets of `interface` only: another program in its driver directs frames to them, of
    /// packets in one frame each. The parts of `config` about programs, tags and several frames have no effect.
    ///
    /// `lasting` is how many queues existed before that program was attached. virtio-net adds queues for a
    /// program; those are never bound with zero copy: virtio-net removes them with the program without releasing their
    /// sockets' memory (Linux 6.18, "Failed to disable zero-copy!"), and the next program makes the kernel use it.
    ///
    /// # Panics
    ///
    /// When an owner is not one of the workers.
    pub fn open_sockets(
        umem: &mut Umem,
        port: PortId,
        interface: &Interface,
        receiving: Receiving<'_>,
        lasting: u32,
        config: AfXdpConfig,
    ) -> Result<Opened, OpenError> {
        let workers = receiving.workers();
        let owned = |owner: &WorkerId| usize::from(owner.0) < workers;
        assert!(receiving.owners.iter().all(owned), "an owner is not one of {workers} workers");
        let config = AfXdpConfig { multi_buffer: false, ..config };
        config.check()?;
        check_owners(interface, receiving.owners)?;
        check_mtu(interface, umem.region(), 1)?;
        let mode = Mode::Native;
        let mut opening = Opening { umem, port, interface, config, mode, lasting };
        let (receivers, transmitters, way) = opening.bind_queues(receiving)?;
        let transfer = way.transfer;
        let facts = opening.facts(way, None);
        let port = AfXdp { port, interface: interface.clone(), own: None, transfer };
        Ok(Opened { port, facts, receivers, transmitters })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface.name
    }
}

/// How the queues of a port were bound.
struct Binding {
    transfer: Transfer,
    /// Why a packet must lie in one frame, if so.
    single_because: Option<String>,
}

/// The shared parameters of all queues of a port that is being opened.
struct Opening<'o> {
    umem: &'o mut Umem,
    port: PortId,
    interface: &'o Interface,
    config: AfXdpConfig,
    mode: Mode,
    /// Queues that exist as long as the interface does.
    lasting: u32,
}

impl Opening<'_> {
    fn bind_queues(
        &mut self,
        receiving: Receiving<'_>,
    ) -> Result<(Vec<Receiver>, Vec<Transmitter>, Binding), OpenError> {
        let mut allowed = self.transfers();
        let mut transfers = Vec::new();
        let mut single_because = None;
        let mut receivers = Vec::new();
        let transmit_queues = receiving.transmit_queues(self.queues_both_ways());
        let mut transmitters: Vec<_> = transmit_queues.iter().map(|_| None).collect();
        for (queue, owner) in (0..).zip(receiving.owners) {
            // A worker that sends by a queue of its own needs no other socket for that.
            let owner = usize::from(owner.0);
            let transmits = u32::from(transmit_queues[owner].0) == queue;
            let copied = [Transfer::Copy];
            let is_lent = queue >= self.lasting && allowed[0] == Transfer::ZeroCopy;
            let own = if is_lent { &copied[..] } else { &allowed };
            let (receiver, transmitter, binding) = self.bind_queue(queue, transmits, own)?;
            receivers.push(receiver);
            if transmits {
                transmitters[owner] = transmitter;
            }
            transfers.push(binding.transfer);
            // All lasting queues must match the first: the port has one transfer mode.
            if !is_lent {
                allowed = vec![binding.transfer];
            }
            single_because = single_because.or(binding.single_because);
        }
        let mut transmitters: Vec<_> = transmitters
            .into_iter()
            .zip(transmit_queues)
            .map(|(own, queue)| {
                let first = &receivers[usize::from(queue.0)];
                let transfer = transfers[usize::from(queue.0)];
                own.map_or_else(|| self.bind_transmit_only(first, transfer), Ok)
            })
            .collect::<Result<_, _>>()?;
        count_drained_frames(&mut receivers, &mut transmitters);
        Ok((receivers, transmitters, Binding { transfer: transfers[0], single_because }))
    }

    /// How many queues both receive and transmit: completions arrive on a receiver's rings.
    fn queues_both_ways(&self) -> u16 {
        let Interface { receive_queues, transmit_queues, .. } = self.interface;
        (*receive_queues).min(*transmit_queues).max(1) as u16
    }

    /// The transfer modes to try, best first.
    fn transfers(&self) -> Vec<Transfer> {
        let single = check_mtu(self.interface, self.umem.region(), 1).is_ok();
        // Generic XDP gets frames that the driver has copied already. Software devices cannot do zero-copy: an attempt
        // would register the region a second time only to be refused.
        let hopeless = self.mode == Mode::Generic
            || SOFTWARE_DRIVERS.contains(&self.interface.driver.as_str());
        let zero_copy = self.config.zero_copy && !hopeless;
        let modes = [
            (Transfer::ZeroCopy, zero_copy && single),
            (Transfer::CopyChains, self.config.multi_buffer),
            (Transfer::Copy, single),
        ];
        modes.into_iter().filter(|mode| mode.1).map(|mode| mode.0).collect()
    }

    fn bind_queue(
        &mut self,
        queue: u32,
        transmits: bool,
        allowed: &[Transfer],
    ) -> Result<(Receiver, Option<Transmitter>, Binding), OpenError> {
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
        let bound = self.umem.bind(place, &rings, allowed);
        let Bound { socket, transfer, refused } =
            bound.map_err(|error| self.not_bound(queue, allowed, error))?;
        let receiver =
            self.map_receiver(queue, &socket, transfer).map_err(|e| self.unmapped(queue, e))?;
        let transmitter = match transmits {
            true => Some(
                self.map_transmitter(queue, socket, transfer)
                    .map_err(|error| self.unmapped(queue, error))?,
            ),
            false => None,
        };
        let single_because = match transfer {
            Transfer::CopyChains => None,
            Transfer::ZeroCopy => Some("zero-copy: the device takes a packet in one frame".into()),
            Transfer::Copy => Some(match refused {
                Some((step, error)) if self.config.multi_buffer => {
                    format!("the kernel refused to {step} with XDP_USE_SG: {error}")
                }
                _ => "multi_buffer = false".into(),
            }),
        };
        Ok((receiver, transmitter, Binding { transfer, single_because }))
    }

    fn bind_transmit_only(
        &self,
        first: &Receiver,
        transfer: Transfer,
    ) -> Result<Transmitter, OpenError> {
        let queue = first.queue.0.into();
        let place = (self.interface.index, queue);
        let socket = self
            .umem
            .bind_transmit_only(place, self.config.tx_ring, &first.socket)
            .map_err(|error| self.refused(queue, error))?;
        self.map_transmitter(queue, socket, transfer).map_err(|error| self.unmapped(queue, error))
    }

    fn map_receiver(
        &self,
        queue: u32,
        socket: &Socket,
        transfer: Transfer,
    ) -> io::Result<Receiver> {
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
            completed_count: None,
            port: self.port,
            queue: QueueId(queue as u16),
            checksum: self.checksum(),
            joiner: Joiner::new(self.packet_max()),
            takes_chains: transfer == Transfer::CopyChains,
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
            drain_mark: 0,
            is_refused: false,
            ring: ProducerRing::map(socket.as_fd(), Kind::Transmit, entries, &offsets)?,
            socket,
            region: region.clone(),
            sent: Lent::new(region),
            lent: 0,
            drain: None,
            transfer,
            frames_max: self.frames_max(transfer),
            spare: 0,
            port: self.port,
            queue: QueueId(queue as u16),
            losses: TransmitLosses::default(),
        })
    }

    /// Bytes of the largest accepted packet among those in several frames.
    fn packet_max(&self) -> usize {
        match self.mode {
            Mode::Native => usize::MAX,
            // Generic XDP also gets packets that a stack on the same host left to its device to segment, without
            // metadata. Such a packet is larger than the MTU allows, which identifies it.
            Mode::Generic => (self.interface.mtu + ETHERNET_AND_TAGS) as usize,
        }
    }

    fn frames_max(&self, transfer: Transfer) -> u8 {
        if transfer == Transfer::CopyChains { chain_max(self.interface) } else { 1 }
    }

    fn checksum(&self) -> Checksum {
        let by_driver = match self.interface.driver.as_str() {
            "veth" => Checksum::Unknown,
            _ => Checksum::Valid,
        };
        self.config.checksum.unwrap_or(by_driver)
    }

    fn facts(
        &self,
        Binding { transfer, single_because }: Binding,
        hidden_tags: Option<TagsHidden>,
    ) -> Facts {
        let Interface { index, mac, mtu, driver, receive_queues, .. } = self.interface;
        Facts {
            index: *index,
            mac: *mac,
            mtu: *mtu,
            driver: driver.clone(),
            queues: *receive_queues,
            mode: self.mode,
            zero_copy: transfer == Transfer::ZeroCopy,
            frames_max: self.frames_max(transfer),
            single_because,
            checksum: self.checksum(),
            hidden_tags,
        }
    }

    /// The error when none of the `allowed` modes worked.
    fn not_bound(&self, queue: u32, allowed: &[Transfer], (step, source): StepError) -> OpenError {
        // A kernel before 6.6 answers so, since it does not know the flag: packets must lie in one frame.
        let unknown =
            allowed == [Transfer::CopyChains] && source.raw_os_error() == Some(libc::EINVAL);
        match check_mtu(self.interface, self.umem.region(), 1) {
            Err(too_large) if unknown => too_large,
            _ => self.refused(queue, (step, source)),
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

/// Gives transmitters the counts by which they see what has drained, if they send by different queues.
fn count_drained_frames(receivers: &mut [Receiver], transmitters: &mut [Transmitter]) {
    let first = transmitters.first().map(|transmitter| transmitter.queue);
    if transmitters.iter().all(|transmitter| Some(transmitter.queue) == first) {
        return;
    }
    let mut queues: Vec<_> = receivers.iter().map(|_| Queue::default()).collect();
    for (receiver, queue) in receivers.iter_mut().zip(&mut queues) {
        receiver.completed_count = Some(queue.completed());
    }
    let queue = |transmitter: &Transmitter| usize::from(transmitter.queue.0);
    let counts: Vec<_> = transmitters.iter().map(|own| queues[queue(own)].submitted()).collect();
    for (transmitter, own) in transmitters.iter_mut().zip(counts) {
        transmitter.drain = Some(queues[queue(transmitter)].drain(own));
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

fn check_owners(interface: &Interface, owners: &[WorkerId]) -> Result<(), OpenError> {
    let queues = interface.receive_queues;
    if owners.len() != queues as usize || queues == 0 {
        let interface = interface.name.clone();
        return Err(OpenError::Owners { interface, queues, owners: owners.len() });
    }
    Ok(())
}

fn check_mtu(interface: &Interface, region: &Region, frames_max: u8) -> Result<(), OpenError> {
    let (mtu, frame_size) = (interface.mtu, region.frame_size());
    if mtu > mtu_max(frame_size, frames_max) {
        let interface = interface.name.clone();
        return Err(OpenError::MtuTooLarge { interface, mtu, frame_size, frames_max });
    }
    Ok(())
}

/// The most frames of a packet that the device accepts.
fn chain_max(interface: &Interface) -> u8 {
    // The kernel copies the first frame into the linear part of its packet and each other one into one of 17
    // further parts (`MAX_SKB_FRAGS`); for some drivers the first as well (`IFF_TX_SKB_NO_LINEAR`).
    if NO_LINEAR_DRIVERS.contains(&interface.driver.as_str()) { 17 } else { 18 }
}

/// An Ethernet header and two tags.
const ETHERNET_AND_TAGS: u32 = 14 + 2 * 4;

/// Drivers of devices without memory of their own; `lo` has no driver name.
const SOFTWARE_DRIVERS: [&str; 3] = ["veth", "tun", ""];

/// Drivers that have the kernel leave the linear part of a packet empty (`IFF_TX_SKB_NO_LINEAR`).
const NO_LINEAR_DRIVERS: [&str; 1] = ["virtio_net"];

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
