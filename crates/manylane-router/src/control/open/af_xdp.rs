//! Opening and closing ports by AF_XDP.

use manylane_frame::Pool;
use manylane_frame::vocabulary::{Checksum, PortId, QueueId, WorkerId};
use manylane_io::bpf::{Attach, Mode};
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, Closed, Umem};
use manylane_io::port::{Fate, Receiver, Receiving, Transmitter};
use manylane_net::wire::ethernet::Mac;

use super::{Device, Halves, OpenPort, PortError, facts, mtu};
use crate::config::{AfXdpPort, AttachMode, ChecksumPolicy, Port};
use crate::control::daemon::say;

pub(super) fn open_af_xdp(
    id: PortId,
    port: &Port,
    af_xdp: &AfXdpPort,
    owners: Vec<WorkerId>,
    elsewhere: &[Option<QueueId>],
    umem: &mut Umem,
) -> Result<(OpenPort, Halves), PortError> {
    let checksum = port.checksum.map(|policy| match policy {
        ChecksumPolicy::Repair => Checksum::Unknown,
        ChecksumPolicy::Trust => Checksum::Valid,
    });
    let config = AfXdpConfig {
        rx_ring: port.rx_ring,
        tx_ring: port.tx_ring,
        fill_ring: port.rx_ring,
        completion_ring: port.tx_ring,
        checksum,
        attach: match af_xdp.mode {
            AttachMode::Auto => Attach::Best,
            AttachMode::Native => Attach::Only(Mode::Native),
            AttachMode::Generic => Attach::Only(Mode::Generic),
        },
        multi_buffer: af_xdp.multi_buffer,
        vlans: !port.vlans.is_empty(),
        ..AfXdpConfig::default()
    };
    let receiving = Receiving { owners: &owners, elsewhere };
    let opened = AfXdp::open(umem, id, &af_xdp.interface, receiving, config)
        .map_err(|source| PortError::AfXdp { port: port.name.clone(), source })?;
    if let Some(hidden) = &opened.facts.hidden_tags {
        say(&format!("port `{}`: {}", port.name, hidden.warning()));
    }
    let mtu = mtu(port, opened.facts.mtu)?;
    let repair = opened.facts.checksum == Checksum::Unknown;
    let device = Device::AfXdp {
        port: Box::new(opened.port),
        mode: opened.facts.mode,
        zero_copy: opened.facts.zero_copy,
        single_because: opened.facts.single_because,
    };
    let receivers = opened.receivers.into_iter().map(|queue| Receiver::AfXdp(Box::new(queue)));
    let halves = Halves {
        receivers: owners.iter().copied().zip(receivers).collect(),
        transmitters: opened
            .transmitters
            .into_iter()
            .map(|queue| Transmitter::AfXdp(Box::new(queue)))
            .collect(),
        writers: Vec::new(),
    };
    let facts = facts(port, Mac(opened.facts.mac), mtu, &halves);
    Ok((
        OpenPort { config: port.clone(), facts, repair, owners, device, lock: None, copies: None },
        halves,
    ))
}

/// Closes a port; `ended` is called for each packet that the kernel had, with the port that received it.
pub(super) fn close_af_xdp(
    port: AfXdp,
    receivers: Vec<Receiver>,
    transmitters: Vec<Transmitter>,
    pool: &mut Pool,
    mut ended: impl FnMut(Fate, PortId),
) -> Closed {
    let receivers = receivers.into_iter().filter_map(|receiver| match receiver {
        Receiver::AfXdp(queue) => Some(*queue),
        _ => None,
    });
    let transmitters = transmitters.into_iter().filter_map(|transmitter| match transmitter {
        Transmitter::AfXdp(queue) => Some(*queue),
        _ => None,
    });
    let (receivers, transmitters) = (receivers.collect(), transmitters.collect());
    port.close(receivers, transmitters, pool, |fate, meta| ended(fate, meta.ingress))
}
