//! Opening and closing ports whose frames the kernel copies: packet sockets and TAP.

use manylane_frame::vocabulary::{PortId, QueueId, WorkerId};
use manylane_frame::{Pool, Region};
use manylane_io::port::af_packet::{AfPacket, AfPacketConfig};
use manylane_io::port::tap::{Tap, TapConfig};
use manylane_io::port::{Receiver, Receiving, Transmitter};
use manylane_net::wire::ethernet::Mac;

use super::{Device, Halves, OpenPort, PortError, facts, mtu};
use crate::config::{AfPacketPort, Port, TapPort};

pub(super) fn open_af_packet(
    id: PortId,
    port: &Port,
    af_packet: &AfPacketPort,
    owners: Vec<WorkerId>,
    region: &Region,
    workers: usize,
) -> Result<(OpenPort, Halves), PortError> {
    let AfPacketPort { interface, queues, packets } = af_packet;
    let config = AfPacketConfig { packets: *packets, ..AfPacketConfig::default() };
    let opened = AfPacket::open(region, id, interface, workers, *queues, config)
        .map_err(|source| PortError::AfPacket { port: port.name.clone(), source })?;
    let mtu = mtu(port, opened.facts.mtu)?;
    let receivers = opened.receivers.into_iter().map(|queue| Receiver::AfPacket(Box::new(queue)));
    let transmitters = opened.transmitters.into_iter();
    let transmitters = transmitters.map(|transmitter| Transmitter::AfPacket(Box::new(transmitter)));
    let halves = Halves {
        receivers: owners.iter().copied().zip(receivers).collect(),
        transmitters: transmitters.collect(),
        writers: Vec::new(),
    };
    let facts = facts(port, Mac(opened.facts.mac), mtu, &halves);
    let device = Device::AfPacket(Box::new(opened.port));
    let (config, repair, lock) = (port.clone(), false, None);
    Ok((OpenPort { config, facts, repair, owners, device, lock, copies: None }, halves))
}

pub(super) fn open_tap(
    id: PortId,
    port: &Port,
    tap: &TapPort,
    owners: Vec<WorkerId>,
    elsewhere: &[Option<QueueId>],
    region: &Region,
) -> Result<(OpenPort, Halves), PortError> {
    let TapPort { interface, mac, .. } = tap;
    let config = TapConfig { mac: *mac, ..TapConfig::default() };
    let receiving = Receiving { owners: &owners, elsewhere };
    let opened = Tap::open(region, id, interface, receiving, config)
        .map_err(|source| PortError::Tap { port: port.name.clone(), source })?;
    let mtu = mtu(port, opened.facts.mtu)?;
    let receivers = opened.receivers.into_iter().map(|queue| Receiver::Tap(Box::new(queue)));
    let transmitters = opened.transmitters.into_iter();
    let transmitters = transmitters.map(|transmitter| Transmitter::Tap(Box::new(transmitter)));
    let halves = Halves {
        receivers: owners.iter().copied().zip(receivers).collect(),
        transmitters: transmitters.collect(),
        writers: Vec::new(),
    };
    let facts = facts(port, Mac(opened.facts.mac), mtu, &halves);
    let device = Device::Tap(Box::new(opened.port));
    let (config, repair, lock) = (port.clone(), false, None);
    Ok((OpenPort { config, facts, repair, owners, device, lock, copies: None }, halves))
}

/// Closes a port of packet sockets; `pool` takes its frames back. What it was given to send has left. Returns how many
/// packets its sockets had.
pub(super) fn close_af_packet(
    port: AfPacket,
    receivers: Vec<Receiver>,
    transmitters: Vec<Transmitter>,
    pool: &mut Pool,
) -> usize {
    let receivers = receivers.into_iter().filter_map(|receiver| match receiver {
        Receiver::AfPacket(queue) => Some(*queue),
        _ => None,
    });
    let transmitters = transmitters.into_iter().filter_map(|transmitter| match transmitter {
        Transmitter::AfPacket(transmitter) => Some(*transmitter),
        _ => None,
    });
    port.close(receivers.collect(), transmitters.collect(), pool).unread
}

/// Closes a TAP port, alike.
pub(super) fn close_tap(
    port: Tap,
    receivers: Vec<Receiver>,
    transmitters: Vec<Transmitter>,
    pool: &mut Pool,
) {
    let receivers = receivers.into_iter().filter_map(|receiver| match receiver {
        Receiver::Tap(queue) => Some(*queue),
        _ => None,
    });
    let transmitters = transmitters.into_iter().filter_map(|transmitter| match transmitter {
        Transmitter::Tap(transmitter) => Some(*transmitter),
        _ => None,
    });
    port.close(receivers.collect(), transmitters.collect(), pool);
}
