//! Opening ports: from a configuration to receivers, transmitters, and what is known of each port.
//!
//! | File            | Holds                                                                   |
//! |-----------------|-------------------------------------------------------------------------|
//! | `queues.rs`     | how many queues each port has, and which workers own them               |
//! | `af_xdp.rs`     | ports by AF_XDP                                                         |
//! | `packet.rs`     | ports whose frames the kernel copies: packet sockets and TAP            |
//! | `memory.rs`     | ports of memory: wires, and hosts at a far end                          |
//! | `wrap.rs`       | ports that are files, and what wraps any port                           |
//! | `interfaces.rs` | what workers know of ports and sub-interfaces                           |
//! | `check.rs`, `notices.rs` | what a configuration would do, without opening a port           |

mod af_xdp;
mod check;
mod error;
mod interfaces;
mod lock;
mod memory;
mod notices;
mod packet;
mod queues;
mod wrap;

use std::sync::Arc;

use manylane_frame::vocabulary::{DropReason, Offload, PortId, WorkerId};
use manylane_frame::{HEADROOM, Pool};
use manylane_io::bpf::Mode;
use manylane_io::eventfd::EventFd;
use manylane_io::interface_lock::InterfaceLock;
use manylane_io::port::af_packet::AfPacket;
use manylane_io::port::af_xdp::{AfXdp, Umem};
use manylane_io::port::pcap::{FileCounts, Writer};
use manylane_io::port::tap::Tap;
use manylane_io::port::{Fate, Receiver, Transmitter};
use manylane_net::forward::PortFacts;
use manylane_net::generate::FarEndReader;
use manylane_net::wire::ethernet::Mac;
use manylane_sync::doorbell::Doorbell;

use crate::config::{Config, Driver, Port};
use manylane_worker::Clock;
use manylane_worker::stats::{PortCount, Stats};

pub use check::{check_devices, check_files};
pub use error::PortError;
pub use interfaces::routed;
pub use lock::lock;
pub use notices::{silenced_addresses, taken_interface};
pub use queues::owners;
pub use wrap::unwrap;

use interfaces::add_addresses;
use queues::elsewhere;

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
    /// While it is open, no other process forwards by its interface.
    pub lock: Option<InterfaceLock>,
    /// What the writer of its copies counts.
    pub copies: Option<Arc<FileCounts>>,
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
    /// Capture files: only the halves are to be closed. What the writer of its output counts.
    Pcap(Option<Arc<FileCounts>>),
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

/// Opens all ports, in the calling thread's network namespace. Each has its driver
/// ([`choose`](super::choose::choose)).
pub fn open(
    config: &Config,
    owners: Vec<Vec<WorkerId>>,
    umem: &mut Umem,
    bells: &[Bell],
    clock: Clock,
) -> Result<Vec<(OpenPort, Halves)>, PortError> {
    let mut wires = memory::Wires::build(config, &owners, bells);
    let mut open = Vec::new();
    let workers = bells.len();
    let elsewhere: Vec<_> =
        (0..owners.len()).map(|port| elsewhere(&owners, port, workers)).collect();
    let ports = config.ports.iter().zip(owners).zip(&elsewhere);
    for (number, ((port, owners), elsewhere)) in (0..).zip(ports) {
        let id = PortId(number);
        let (mut opened, mut halves) = match &port.driver {
            Driver::AfXdp(af_xdp) => {
                af_xdp::open_af_xdp(id, port, af_xdp, owners, elsewhere, umem)?
            }
            Driver::AfPacket(af_packet) => {
                packet::open_af_packet(id, port, af_packet, owners, umem.region(), workers)?
            }
            Driver::Tap(tap) => packet::open_tap(id, port, tap, owners, elsewhere, umem.region())?,
            Driver::Auto(_) => unreachable!("`choose` has left none"),
            Driver::Pcap(pcap) => wrap::open_pcap(id, port, pcap, owners, workers)?,
            Driver::Memory(memory) => {
                memory::open_memory(id, port, memory, owners, config, &mut wires, bells)?
            }
        };
        check_frames_max(&opened, config.frames.size)?;
        opened.copies = wrap::copy(id, port, &mut halves)?;
        open.push((opened, wrap::fault(port, halves, clock)));
    }
    Ok(open)
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
        Device::Pcap(_) => 0, // With its transmitters the lanes end.
        Device::AfPacket(port) => {
            let lost = packet::close_af_packet(*port, receivers, transmitters, pool);
            stats.count(id, PortCount::LostClosed, lost as u64);
            0
        }
        Device::Tap(port) => {
            packet::close_tap(*port, receivers, transmitters, pool);
            0
        }
        Device::AfXdp { port, .. } => {
            let ended = |fate, ingress| count_ended(stats, id, fate, ingress);
            let closed = af_xdp::close_af_xdp(*port, receivers, transmitters, pool, ended);
            stats.count(id, PortCount::LostClosed, closed.lost as u64);
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
