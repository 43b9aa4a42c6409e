//! Ports that are files, and what wraps any port: copies into a file, faults.

use std::sync::Arc;

use manylane_frame::Pool;
use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_io::port::pcap::{FileConfig, FileCounts, Opened, PcapConfig, Writer, wall_clock};
use manylane_io::port::{Receiver, Transmitter, fault, tee};
use manylane_net::wire::ethernet::Mac;

use super::memory::{ROUTER, memory_mac};
use super::{Device, Halves, OpenPort, PortError, count_ended, facts};
use crate::config::{ChecksumPolicy, MEMORY_MTU, PcapPort, Port};
use manylane_worker::Clock;
use manylane_worker::stats::Stats;

pub(super) fn open_pcap(
    id: PortId,
    port: &Port,
    pcap: &PcapPort,
    owners: Vec<WorkerId>,
    workers: usize,
) -> Result<(OpenPort, Halves), PortError> {
    let mac = pcap.mac.map_or(memory_mac(id, ROUTER), Mac);
    let config = PcapConfig { file: named(&pcap.files.file, port), ..pcap.files.clone() };
    let Opened { receiver, transmitters, writer, .. } = Opened::open(id, workers, &config)
        .map_err(|source| PortError::Pcap { port: port.name.clone(), source })?;
    let halves = Halves {
        receivers: owners.iter().copied().zip([receiver]).collect(),
        transmitters,
        writers: writer.into_iter().collect(),
    };
    let facts = facts(port, mac, port.mtu.unwrap_or(MEMORY_MTU).into(), &halves);
    let repair = port.checksum != Some(ChecksumPolicy::Trust);
    let device = Device::Pcap(halves.writers.first().map(Writer::counts));
    let (config, lock, copies) = (port.clone(), None, None);
    Ok((OpenPort { config, facts, repair, owners, device, lock, copies }, halves))
}

/// Wraps a port's halves in the faults that its configuration says, between what [`copy`] made and the workers: copies
/// are of what is on the wire.
pub(super) fn fault(port: &Port, halves: Halves, clock: Clock) -> Halves {
    let faults = port.faults.clone();
    let receivers = halves.receivers.into_iter();
    let receivers = receivers.map(|(owner, queue)| match &faults.receive {
        Some(config) => {
            let queue = fault::Receiver::new(queue, config.clone());
            (owner, Receiver::Fault(Box::new(queue)))
        }
        None => (owner, queue),
    });
    let transmitters = (0..).map(WorkerId).zip(halves.transmitters);
    let transmitters = transmitters.map(|(worker, transmitter)| match &faults.transmit {
        Some(config) => {
            let clock = Box::new(move || clock.now_ns());
            let transmitter = fault::Transmitter::new(transmitter, worker, config.clone(), clock);
            Transmitter::Fault(Box::new(transmitter))
        }
        None => transmitter,
    });
    let (receivers, transmitters) = (receivers.collect(), transmitters.collect());
    Halves { receivers, transmitters, writers: halves.writers }
}

/// Wraps each half that is copied, if the configuration says so, with a lane into the file; returns what its writer counts.
pub(super) fn copy(
    id: PortId,
    port: &Port,
    halves: &mut Halves,
) -> Result<Option<Arc<FileCounts>>, PortError> {
    let Some(tee) = &port.tee else { return Ok(None) };
    let receivers = if tee.receives() { halves.receivers.len() } else { 0 };
    let transmitters = if tee.transmits() { halves.transmitters.len() } else { 0 };
    let clocks = (0..receivers + transmitters).map(|_| wall_clock()).collect();
    let (writer, lanes) = Writer::create(&tee.write, id, clocks, &named(&tee.file, port))
        .map_err(|source| PortError::Tee { port: port.name.clone(), source })?;
    let counts = writer.counts();
    halves.writers.push(writer);
    let mut lanes = lanes.into_iter().map(|lane| Transmitter::Pcap(Box::new(lane)));
    let queues = std::mem::take(&mut halves.receivers).into_iter().enumerate();
    let queues = queues.map(|(number, (owner, queue))| match number < receivers {
        true => {
            let lane = lanes.next().expect("there is one for each");
            (owner, Receiver::Tee(Box::new(tee::Receiver::new(queue, lane))))
        }
        false => (owner, queue),
    });
    halves.receivers = queues.collect();
    let transmitters = std::mem::take(&mut halves.transmitters).into_iter();
    let transmitters = transmitters.map(|transmitter| match lanes.next() {
        Some(lane) => Transmitter::Tee(Box::new(tee::Transmitter::new(transmitter, lane))),
        None => transmitter,
    });
    halves.transmitters = transmitters.collect();
    Ok(Some(counts))
}

/// The file calls the interface by the port's name.
fn named(file: &FileConfig, port: &Port) -> FileConfig {
    FileConfig { interface: port.name.clone(), ..file.clone() }
}

/// Takes a port's halves out of what wraps them. What was held before transmission is sent, or counted as
/// dropped where no place is free; what was held before receive was never received; files get their last
/// buffers.
pub fn unwrap(
    receivers: Vec<Receiver>,
    transmitters: Vec<Transmitter>,
    pool: &mut Pool,
    stats: &mut Stats,
    id: PortId,
) -> (Vec<Receiver>, Vec<Transmitter>) {
    let mut lanes = Vec::new();
    let receivers = receivers.into_iter().map(|queue| queue.unwrapped(pool, &mut lanes)).collect();
    let transmitters = transmitters.into_iter().map(|transmitter| {
        let mut ended = |fate, ingress| count_ended(stats, id, fate, ingress);
        transmitter.unwrapped(pool, &mut lanes, &mut ended)
    });
    (receivers, transmitters.collect())
}
