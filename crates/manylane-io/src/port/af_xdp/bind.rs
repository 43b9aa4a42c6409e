//! Binding the queues of a port: sockets, rings, and the transfer mode that they share.

use std::io;
use std::os::fd::AsFd;

use manylane_frame::vocabulary::{Checksum, PortId, QueueId};

use super::super::Receiving;
use super::AfXdpConfig;
use super::drain::Queue;
use super::error::{OpenError, TagsHidden, mtu_max};
use super::join::Joiner;
use super::lent::Lent;
use super::open::Facts;
use super::receiver::Receiver;
use super::ring::{ConsumerRing, Kind, ProducerRing};
use super::socket::{Socket, Transfer, is_busy};
use super::transmitter::{TransmitLosses, Transmitter};
use super::umem::{Bound, StepError, Umem};
use crate::bpf::Mode;
use crate::interface::Interface;

/// How the queues of a port were bound.
pub(super) struct Binding {
    pub transfer: Transfer,
    /// Why a packet must lie in one frame, if so.
    single_because: Option<String>,
}

/// The shared parameters of all queues of a port that is being opened.
pub(super) struct Opening<'o> {
    pub umem: &'o mut Umem,
    pub port: PortId,
    pub interface: &'o Interface,
    pub config: AfXdpConfig,
    pub mode: Mode,
    /// Queues that exist as long as the interface does.
    pub lasting: u32,
}

impl Opening<'_> {
    /// Binds a socket to every receive queue, and one for each transmitter without a queue of its own.
    pub fn bind_queues(
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
        let single = check_mtu(self.interface, self.umem.region().frame_size(), 1).is_ok();
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

    /// The properties of the port, bound in this way.
    pub fn facts(
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
        match check_mtu(self.interface, self.umem.region().frame_size(), 1) {
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

pub(super) fn check_mtu(
    interface: &Interface,
    frame_size: u32,
    frames_max: u8,
) -> Result<(), OpenError> {
    let mtu = interface.mtu;
    if mtu > mtu_max(frame_size, frames_max) {
        let interface = interface.name.clone();
        return Err(OpenError::MtuTooLarge { interface, mtu, frame_size, frames_max });
    }
    Ok(())
}

/// The most frames of a packet that the device accepts.
pub(super) fn chain_max(interface: &Interface) -> u8 {
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
