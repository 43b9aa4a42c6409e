//! Opening ports of memory: wires between two of them, and hosts at the far end of the others.

use manylane_frame::vocabulary::{Checksum, PortId, QueueId, WorkerId};
use manylane_frame::{Batch, Pool};
use manylane_io::port::memory::{self, Next};
use manylane_io::port::{Receiver, Transmitter};
use manylane_net::generate::{
    Expected, FarEnd, FarEndConfig, FarEndReader, Link, Pace, Stream, StreamId,
};
use manylane_net::wire::ethernet::Mac;
use manylane_net::wire::flow::frame_hash;
use manylane_sync::doorbell::Wake;

use super::{Bell, Device, Halves, OpenPort, PortError, facts};
use crate::config::{ChecksumPolicy, Config, Driver, MEMORY_MTU, MemoryPort, Port};

pub(super) fn open_memory(
    id: PortId,
    port: &Port,
    memory: &MemoryPort,
    owners: Vec<WorkerId>,
    config: &Config,
    wires: &mut Wires,
    bells: &[Bell],
) -> Result<(OpenPort, Halves), PortError> {
    let mac = memory.mac.map_or(memory_mac(id, ROUTER), Mac);
    let repair = port.checksum == Some(ChecksumPolicy::Repair);
    let checksum = if repair { Checksum::Unknown } else { Checksum::Valid };
    let (receivers, transmitters, reader) = match memory.peer {
        Some(peer) => (wires.take_receivers(id), wires.take_transmitters(peer), None),
        None => {
            let (receivers, transmitters, reader) = far_end(id, port, mac, config, &owners, bells)?;
            (receivers, transmitters, Some(reader))
        }
    };
    let receivers = receivers.into_iter().map(|queue| queue.with_checksum(checksum));
    let receivers = owners.iter().copied().zip(receivers.map(Receiver::Memory));
    let halves = Halves {
        receivers: receivers.collect(),
        transmitters: transmitters.into_iter().map(Transmitter::Memory).collect(),
        writers: Vec::new(),
    };
    let facts = facts(port, mac, port.mtu.unwrap_or(MEMORY_MTU).into(), &halves);
    let device = Device::Memory(reader);
    Ok((
        OpenPort { config: port.clone(), facts, repair, owners, device, lock: None, copies: None },
        halves,
    ))
}

/// The hosts at the far end of a memory port: they generate, check, and answer ARP and ND.
fn far_end(
    id: PortId,
    port: &Port,
    router: Mac,
    config: &Config,
    owners: &[WorkerId],
    bells: &[Bell],
) -> Result<(Vec<memory::Receiver>, Vec<memory::Transmitter>, FarEndReader), PortError> {
    let FarEnd { feeds, sinks, reader } = FarEnd::new(&FarEndConfig {
        link: Link { hosts: memory_mac(id, HOSTS), router },
        stream: stream(id, port),
        expected: expected(config),
        queues: owners.len() as u16,
        sinks: bells.len() as u16,
        frame_size: config.frames.size,
    })
    .map_err(|source| PortError::FarEnd { port: port.name.clone(), source })?;
    let receivers = (0..).map(QueueId).zip(feeds).map(|(queue, mut feed)| {
        let source = move |pool: &mut Pool, batch: &mut Batch, now_ns| match feed
            .fill(pool, batch, now_ns)
        {
            Pace::More => Next::More,
            Pace::After(wait_ns) => Next::After(wait_ns),
            Pace::Idle => Next::Doorbell,
            Pace::Done => Next::Done,
        };
        memory::Receiver::from_source(id, queue, Box::new(source))
    });
    // Answers are fed by the first queue: its owner must hear of them.
    let first = &bells[usize::from(owners[0].0)];
    let transmitters = sinks.into_iter().map(|mut sink| {
        let bell = first.clone();
        memory::Transmitter::into_sink(Box::new(move |region, frames| {
            if sink.take(region, frames) {
                // Not `ring`: the owner's last look before it sleeps does not see what a feed has. A
                // wake also ends a sleep that has not begun. Answers are few.
                bell.waker().wake();
            }
        }))
    });
    Ok((receivers.collect(), transmitters.collect(), reader))
}

/// What a port's generator sends.
fn stream(id: PortId, port: &Port) -> Option<Stream> {
    let Driver::Memory(memory) = &port.driver else { return None };
    memory.generate.as_ref().map(|generate| Stream {
        id: StreamId(id.0),
        source: generate.source,
        destination: generate.destination.network(),
        destination_len: generate.destination.length(),
        flows: generate.flows,
        size: generate.size,
        packets: generate.packets,
        packets_per_second: generate.packets_per_second,
        seed: generate.seed,
    })
}

/// Every stream of the daemon may arrive at every far end.
fn expected(config: &Config) -> Vec<Expected> {
    let streams = (0..).map(PortId).zip(&config.ports).filter_map(|(id, port)| stream(id, port));
    streams.map(|stream| stream.expected()).collect()
}

/// The wires between memory ports, each end taken once.
pub(super) struct Wires {
    /// By the port that receives.
    receivers: Vec<Option<Vec<memory::Receiver>>>,
    /// By the port that receives at the other end.
    transmitters: Vec<Option<Vec<memory::Transmitter>>>,
}

impl Wires {
    pub(super) fn build(config: &Config, owners: &[Vec<WorkerId>], bells: &[Bell]) -> Wires {
        let mut wires = Wires { receivers: Vec::new(), transmitters: Vec::new() };
        for (number, (port, owners)) in (0..).zip(config.ports.iter().zip(owners)) {
            let is_wired = matches!(&port.driver, Driver::Memory(memory) if memory.peer.is_some());
            let ends = is_wired.then(|| {
                let bells: Vec<Bell> =
                    owners.iter().map(|owner| bells[usize::from(owner.0)].clone()).collect();
                let workers = config.workers.count();
                memory::wires(PortId(number), workers, &bells, port.rx_ring as usize, frame_hash)
            });
            let (receivers, transmitters) = ends.unzip();
            wires.receivers.push(receivers);
            wires.transmitters.push(transmitters);
        }
        wires
    }

    fn take_receivers(&mut self, port: PortId) -> Vec<memory::Receiver> {
        self.receivers[port.index()].take().expect("a wired port's receivers are taken once")
    }

    fn take_transmitters(&mut self, to: PortId) -> Vec<memory::Transmitter> {
        self.transmitters[to.index()].take().expect("a wire has one other end")
    }
}

pub(super) const ROUTER: u8 = 0x01;
const HOSTS: u8 = 0x02;

/// A locally administered address for one end of a memory port.
pub(super) fn memory_mac(id: PortId, end: u8) -> Mac {
    let [high, low] = id.0.to_be_bytes();
    Mac([0x02, 0x6d, 0x6c, end, high, low])
}
