//! Opening ports: from a configuration to receivers, transmitters, and what is known of each port.

mod error;
mod interfaces;
mod packet;
mod wrap;

use std::sync::Arc;

use manylane_frame::vocabulary::{Checksum, DropReason, Offload, PortId, QueueId, WorkerId};
use manylane_frame::{Batch, HEADROOM, Pool};
use manylane_io::bpf::{Attach, Mode};
use manylane_io::eventfd::EventFd;
use manylane_io::interface::Interface;
use manylane_io::port::af_packet::AfPacket;
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, Umem};
use manylane_io::port::memory::{self, Next};
use manylane_io::port::pcap::Writer;
use manylane_io::port::tap::Tap;
use manylane_io::port::{Fate, Receiver, Receiving, Transmitter};
use manylane_net::forward::PortFacts;
use manylane_net::generate::{
    Expected, FarEnd, FarEndConfig, FarEndReader, Link, Pace, Stream, StreamId,
};
use manylane_net::wire::ethernet::Mac;
use manylane_net::wire::flow::frame_hash;
use manylane_sync::doorbell::{Doorbell, Wake};

use crate::config::{
    AfXdpPort, AttachMode, ChecksumPolicy, Config, Driver, MEMORY_MTU, MemoryPort, Port,
};
use manylane_worker::Clock;
use manylane_worker::stats::{PortCount, Stats};

pub use error::PortError;
pub use interfaces::routed;
pub use wrap::unwrap;

use super::daemon::say;
use interfaces::add_addresses;

/// A worker's doorbell.
pub type Bell = Arc<Doorbell<EventFd>>;

/// An open port, as the control thread keeps it.
pub struct OpenPort {
    /// The configuration it was opened by.
    pub config: Port,
    /// What the rules must know of it.
    pub facts: PortFacts,
    /// Whether its frames may carry transport checksums that are not complete.
    pub repair: bool,
    /// Which worker owns each receive queue.
    pub owners: Vec<WorkerId>,
    /// What is peculiar to its driver.
    pub device: Device,
}

/// What is peculiar to a driver.
pub enum Device {
    /// A network device.
    AfXdp {
        /// To close it by.
        port: Box<AfXdp>,
        /// Where its XDP program runs.
        mode: Mode,
        /// Whether it reads and writes frames itself.
        zero_copy: bool,
        /// Why packets may not lie in several frames, if so.
        single_because: Option<String>,
    },
    /// A network device, through packet sockets: to close it by.
    AfPacket(Box<AfPacket>),
    /// A TAP interface: to close it by.
    Tap(Box<Tap>),
    /// Capture files: only the halves are to be closed.
    Pcap,
    /// Memory; what the hosts at its far end count, unless the far end is another port.
    Memory(Option<FarEndReader>),
}

/// The parts of a port that go to workers: receivers with their owners, a transmitter for each worker.
pub struct Halves {
    /// One for each receive queue.
    pub receivers: Vec<(WorkerId, Receiver)>,
    /// One for each worker.
    pub transmitters: Vec<Transmitter>,
    /// What writes the port's captures: each wants a thread of its own.
    pub writers: Vec<Writer>,
}

/// How many queues each port has and which workers own them, before anything is opened: the region's size
/// depends on it.
pub fn owners(config: &Config) -> Result<Vec<Vec<WorkerId>>, PortError> {
    let mut next = (0..config.workers.started as u16).map(WorkerId).cycle();
    let mut all = Vec::new();
    for port in &config.ports {
        let queues = match (port.driver.queues(), port.driver.interface()) {
            (None, Some(interface)) => {
                let read = Interface::read(interface);
                let name = port.name.clone();
                read.map_err(|source| PortError::Interface { port: name, source })?.receive_queues
                    as usize
            }
            (queues, _) => queues.unwrap_or(1).into(),
        };
        let owners = match &port.queue_owners {
            Some(owners) if owners.len() != queues => {
                let (port, owners) = (port.name.clone(), owners.len());
                return Err(PortError::Queues { port, owners, queues });
            }
            Some(owners) => owners.clone(),
            None => next.by_ref().take(queues).collect(),
        };
        all.push(owners);
    }
    Ok(all)
}

/// Opens all ports, in the calling thread's network namespace. Each has its driver
/// ([`choose`](super::choose::choose)).
pub fn open(
    config: &Config,
    owners: Vec<Vec<WorkerId>>,
    umem: &mut Umem,
    bells: &[Bell],
    clock: Clock,
) -> Result<Vec<(OpenPort, Halves)>, PortError> {
    let mut wires = Wires::lay(config, &owners, bells);
    let mut open = Vec::new();
    let workers = bells.len();
    let elsewhere: Vec<_> =
        (0..owners.len()).map(|port| elsewhere(&owners, port, workers)).collect();
    let ports = config.ports.iter().zip(owners).zip(&elsewhere);
    for (number, ((port, owners), elsewhere)) in (0..).zip(ports) {
        let id = PortId(number);
        let (opened, halves) = match &port.driver {
            Driver::AfXdp(af_xdp) => open_af_xdp(id, port, af_xdp, owners, elsewhere, umem)?,
            Driver::AfPacket(af_packet) => {
                packet::open_af_packet(id, port, af_packet, owners, umem.region(), workers)?
            }
            Driver::Tap(tap) => packet::open_tap(id, port, tap, owners, elsewhere, umem.region())?,
            Driver::Auto(_) => unreachable!("`choose` has left none"),
            Driver::Pcap(pcap) => wrap::open_pcap(id, port, pcap, owners, workers)?,
            Driver::Memory(memory) => {
                open_memory(id, port, memory, owners, config, &mut wires, bells)?
            }
        };
        check_frames_max(&opened, config.frames.size)?;
        open.push((opened, wrap::wrap(id, port, halves, clock)?));
    }
    Ok(open)
}

/// For each worker, the first queue that it owns of the first other port than `port` where it owns any.
fn elsewhere(owners: &[Vec<WorkerId>], port: usize, workers: usize) -> Vec<Option<QueueId>> {
    let others = owners[..port].iter().chain(&owners[port + 1..]);
    let mut first = vec![None; workers];
    for (queue, owner) in others.flat_map(|owners| (0..).map(QueueId).zip(owners)) {
        first[usize::from(owner.0)].get_or_insert(queue);
    }
    first
}

/// Closes a port whose halves were [unwrapped](unwrap); `pool` takes its frames back, and what the kernel
/// had is counted in `stats`.
pub fn close(
    port: OpenPort,
    receivers: Vec<Receiver>,
    transmitters: Vec<Transmitter>,
    pool: &mut Pool,
    stats: &mut Stats,
    id: PortId,
) -> usize {
    match port.device {
        Device::Memory(_) => {
            for receiver in receivers {
                if let Receiver::Memory(queue) = receiver {
                    queue.close(pool);
                }
            }
            0
        }
        Device::Pcap => 0, // With its transmitters the lanes end.
        Device::AfPacket(port) => {
            packet::close_af_packet(*port, receivers, transmitters, pool);
            0
        }
        Device::Tap(port) => {
            packet::close_tap(*port, receivers, transmitters, pool);
            0
        }
        Device::AfXdp { port, .. } => {
            let receivers = receivers.into_iter().filter_map(|receiver| match receiver {
                Receiver::AfXdp(queue) => Some(*queue),
                _ => None,
            });
            let transmitters =
                transmitters.into_iter().filter_map(|transmitter| match transmitter {
                    Transmitter::AfXdp(queue) => Some(*queue),
                    _ => None,
                });
            let (receivers, transmitters) = (receivers.collect(), transmitters.collect());
            let closed = port.close(receivers, transmitters, pool, |fate, meta| {
                count_ended(stats, id, fate, meta.ingress);
            });
            closed.held
        }
    }
}

/// Counts a packet that was to be sent by `id` when that closed.
fn count_ended(stats: &mut Stats, id: PortId, fate: Fate, ingress: PortId) {
    stats.count(id, PortCount::Completed, 1);
    match fate {
        Fate::Transmitted => stats.count(ingress, PortCount::Transmitted, 1),
        Fate::Dropped => stats.dropped(ingress, DropReason::PortDown),
    }
}

fn open_af_xdp(
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
    Ok((OpenPort { config: port.clone(), facts, repair, owners, device }, halves))
}

fn open_memory(
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
    Ok((OpenPort { config: port.clone(), facts, repair, owners, device }, halves))
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
struct Wires {
    /// By the port that receives.
    receivers: Vec<Option<Vec<memory::Receiver>>>,
    /// By the port that receives at the other end.
    transmitters: Vec<Option<Vec<memory::Transmitter>>>,
}

impl Wires {
    fn lay(config: &Config, owners: &[Vec<WorkerId>], bells: &[Bell]) -> Wires {
        let mut wires = Wires { receivers: Vec::new(), transmitters: Vec::new() };
        for (number, (port, owners)) in (0..).zip(config.ports.iter().zip(owners)) {
            let is_wired = matches!(&port.driver, Driver::Memory(memory) if memory.peer.is_some());
            let laid = is_wired.then(|| {
                let bells: Vec<Bell> =
                    owners.iter().map(|owner| bells[usize::from(owner.0)].clone()).collect();
                let workers = config.workers.count();
                memory::wires(PortId(number), workers, &bells, port.rx_ring as usize, frame_hash)
            });
            let (receivers, transmitters) = laid.unzip();
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

const LINK_HEADER: usize = manylane_net::wire::ethernet::HEADER_LEN;

/// Whether the largest packet lies in as many frames as the port takes.
fn check_frames_max(port: &OpenPort, frame_size: u32) -> Result<(), PortError> {
    let PortFacts { mtu, offload: Offload { frames_max, .. }, .. } = port.facts;
    let room = (frame_size - u32::from(HEADROOM)) * u32::from(frames_max);
    let mtu_max = room.saturating_sub(LINK_HEADER as u32 + TAG);
    if mtu > mtu_max {
        let port = port.config.name.clone();
        return Err(PortError::FramesMax { port, mtu, frames_max, mtu_max });
    }
    Ok(())
}

/// Bytes of an 802.1Q tag.
const TAG: u32 = 4;

/// The largest IP packet, if the device takes it.
fn mtu(port: &Port, device_mtu: u32) -> Result<u32, PortError> {
    // No IP packet is larger, though a device may take more (`lo`: 65536).
    let device_mtu = device_mtu.min(u16::MAX.into());
    let mtu = port.mtu.map_or(device_mtu, u32::from);
    match mtu <= device_mtu {
        true => Ok(mtu),
        false => Err(PortError::Mtu { port: port.name.clone(), mtu, device_mtu }),
    }
}

fn facts(port: &Port, mac: Mac, mtu: u32, halves: &Halves) -> PortFacts {
    // A port's transmitters are all alike.
    let offload = halves.transmitters.first().map_or(Offload::NONE, Transmitter::offload);
    let mut facts = PortFacts {
        mac,
        mtu,
        offload,
        ipv4: Vec::new(),
        ipv6: Vec::new(),
        link_local: None,
        vlan: None,
        vlans: Vec::new(),
        anycast: Vec::new(),
    };
    add_addresses(&mut facts, &port.addresses);
    facts
}

const ROUTER: u8 = 0x01;
const HOSTS: u8 = 0x02;

/// A locally administered address for one end of a memory port.
fn memory_mac(id: PortId, end: u8) -> Mac {
    let [high, low] = id.0.to_be_bytes();
    Mac([0x02, 0x6d, 0x6c, end, high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_receives_elsewhere_is_its_first_queue_of_the_first_other_port() {
        let owners: Vec<Vec<_>> = [&[0, 1, 0, 1][..], &[0], &[2, 2, 1]]
            .map(|owners| owners.iter().copied().map(WorkerId).collect())
            .into();
        let all = |port| -> Vec<_> {
            elsewhere(&owners, port, 4).iter().map(|queue| queue.map(|queue| queue.0)).collect()
        };
        assert_eq!(all(0), [Some(0), Some(2), Some(0), None]);
        assert_eq!(all(1), [Some(0), Some(1), Some(0), None]);
        assert_eq!(all(2), [Some(0), Some(1), None, None]);
    }
}
