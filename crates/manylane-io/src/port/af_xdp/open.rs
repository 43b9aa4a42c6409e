//! Opening a port: checks, program and queues, in the calling thread's network namespace.

use std::os::fd::AsFd;

use manylane_frame::vocabulary::{Checksum, PortId, WorkerId};

use super::super::Receiving;
use super::AfXdpConfig;
use super::bind::{Opening, chain_max, check_mtu};
use super::error::{OpenError, RING_MAX, RING_MIN, TagsHidden};
use super::receiver::Receiver;
use super::socket::Transfer;
use super::transmitter::Transmitter;
use super::umem::Umem;
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
        AfXdp::check(&interface, umem.region().frame_size(), config.multi_buffer)?;

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
        let (receivers, transmitters, binding) = opening.bind_queues(receiving)?;

        let transfer = binding.transfer;
        let facts = opening.facts(binding, hidden_tags);
        let mut link = link;
        for receiver in &receivers {
            let queue = u32::from(receiver.queue.0);
            link.set_socket(queue, receiver.as_fd()).map_err(OpenError::Program)?;
        }
        let port = AfXdp { port, interface, own: Some((link, multicast)), transfer };
        Ok(Opened { port, facts, receivers, transmitters })
    }

    /// Checks what [`AfXdp::open`] checks before it loads a program, without opening anything: a packet of the interface's
    /// MTU has to fit into the frames that a packet may have.
    pub fn check(
        interface: &Interface,
        frame_size: u32,
        multi_buffer: bool,
    ) -> Result<(), OpenError> {
        let frames_max = if multi_buffer { chain_max(interface) } else { 1 };
        check_mtu(interface, frame_size, frames_max)
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
        check_mtu(interface, umem.region().frame_size(), 1)?;
        let mode = Mode::Native;
        let mut opening = Opening { umem, port, interface, config, mode, lasting };
        let (receivers, transmitters, binding) = opening.bind_queues(receiving)?;
        let transfer = binding.transfer;
        let facts = opening.facts(binding, None);
        let port = AfXdp { port, interface: interface.clone(), own: None, transfer };
        Ok(Opened { port, facts, receivers, transmitters })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface.name
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_are_powers_of_two() {
        let config = AfXdpConfig { tx_ring: 1000, ..AfXdpConfig::default() };
        assert!(matches!(config.check(), Err(OpenError::RingSize { ring: "tx_ring", .. })));
        assert!(AfXdpConfig::default().check().is_ok());
    }

    /// As for `lo`, whose MTU is 65536.
    #[test]
    fn an_mtu_is_checked_without_a_region() {
        let interface = |mtu| Interface {
            index: 1,
            name: "lo".into(),
            mac: [0; 6],
            mtu,
            is_up: true,
            is_running: true,
            driver: String::new(),
            receive_queues: 1,
            transmit_queues: 1,
            takes_tags_off: false,
        };
        for (mtu, frame_size, multi_buffer, good) in [
            (65_536, 2048, true, false),
            (32_238, 2048, true, true),
            (32_239, 2048, true, false),
            (32_239, 4096, true, true),
            (1774, 2048, false, true),
            (1775, 2048, false, false),
        ] {
            let checked = AfXdp::check(&interface(mtu), frame_size, multi_buffer);
            assert_eq!(checked.is_ok(), good, "{mtu} {frame_size} {multi_buffer}: {checked:?}");
        }
    }
}
