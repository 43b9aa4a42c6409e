//! Opening a port: program, sockets, rings, in the calling thread's network namespace.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use manylane_frame::vocabulary::{Checksum, PortId, QueueId, WorkerId};
use manylane_frame::{HEADROOM, Region};

use super::AfXdpConfig;
use super::lent::Lent;
use super::receiver::Receiver;
use super::ring::{ConsumerRing, Kind, ProducerRing};
use super::socket::{Socket, Transfer, is_busy};
use super::transmitter::{TransmitLosses, Transmitter};
use super::umem::{StepError, Umem};
use crate::bpf::{BpfError, Mode, XskLink, XskProgram};
use crate::interface::{AllMulticast, Interface, InterfaceError};

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

/// The largest MTU whose packets fit a frame, with their Ethernet header and a tag.
fn mtu_max(frame_size: u32) -> u32 {
    frame_size - u32::from(HEADROOM) - ETHERNET_AND_TAG
}

/// Why a port did not open.
#[non_exhaustive]
#[derive(Debug)]
pub enum OpenError {
    /// The interface does not exist here, or does not tell about itself.
    Interface(InterfaceError),
    /// The interface has another number of receive queues than owners were named.
    Owners {
        /// The interface.
        interface: String,
        /// Its receive queues.
        queues: u32,
        /// The owners named.
        owners: usize,
    },
    /// Packets of the interface's MTU do not fit a frame.
    MtuTooLarge {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// Bytes of a frame.
        frame_size: u32,
    },
    /// A ring's size is no power of two, or out of bounds.
    RingSize {
        /// The setting.
        ring: &'static str,
        /// Its value.
        entries: u32,
    },
    /// The XDP program did not load or attach.
    Program(BpfError),
    /// A queue belongs to another AF_XDP socket, and did so for two seconds.
    Busy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The kernel refused a step.
    Refused {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What was to be done, to be read after "cannot".
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether this machine or user has no AF_XDP at all, so that another interface would fare no
    /// better.
    pub fn is_unavailable(&self) -> bool {
        match self {
            OpenError::Refused { source, .. } => matches!(
                source.raw_os_error(),
                Some(libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT | libc::ENOSYS)
            ),
            OpenError::Program(BpfError::Load(_)) => true,
            _ => false,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Interface(error) => error.fmt(f),
            OpenError::Program(error) => error.fmt(f),
            OpenError::Owners { interface, queues, owners } => write!(
                f,
                "{interface} has {queues} receive queues and {owners} have an owner; each needs one"
            ),
            OpenError::MtuTooLarge { interface, mtu, frame_size } => {
                let (here, most) = (mtu_max(*frame_size), mtu_max(4096));
                write!(
                    f,
                    "{interface}: an MTU of {mtu} needs larger frames than {frame_size} bytes"
                )?;
                match *frame_size < 4096 {
                    true if *mtu <= most => {
                        write!(
                            f,
                            "; set frame_size = 4096, or ip link set dev {interface} mtu {here}"
                        )
                    }
                    true => write!(
                        f,
                        "; ip link set dev {interface} mtu {most} and frame_size = 4096, or mtu {here}"
                    ),
                    false => write!(f, "; ip link set dev {interface} mtu {most}"),
                }
            }
            OpenError::RingSize { ring, entries } => {
                write!(f, "{ring} = {entries}: take a power of two from {RING_MIN} to {RING_MAX}")
            }
            OpenError::Busy { interface, queue } => write!(
                f,
                "queue {queue} of {interface} belongs to another AF_XDP socket; `ss --xdp -p` shows \
                 whose, end that program"
            ),
            OpenError::Refused { interface, queue, step, source } => {
                write!(f, "{interface} queue {queue}: cannot {step}: {source}")?;
                match next_step(source) {
                    Some(next) => write!(f, "; {next}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Interface(error) => Some(error),
            OpenError::Program(error) => Some(error),
            OpenError::Refused { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> Option<&'static str> {
    Some(match source.raw_os_error()? {
        libc::EPERM | libc::EACCES => "needs root (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)",
        libc::EAFNOSUPPORT => "this kernel is built without CONFIG_XDP_SOCKETS",
        libc::ENOBUFS | libc::ENOMEM => {
            "raise the limit of locked memory (`ulimit -l`, LimitMEMLOCK=), or take fewer frames"
        }
        libc::ENODEV => "the interface is gone",
        libc::EOPNOTSUPP => "the driver cannot; try zero_copy = false",
        _ => return None,
    })
}

const ZERO_COPY_ONLY: [Transfer; 1] = [Transfer::ZeroCopy];
const COPY_ONLY: [Transfer; 1] = [Transfer::Copy];

/// Drivers of devices without memory of their own; `lo` has none at all.
const SOFTWARE_DRIVERS: [&str; 3] = ["veth", "tun", ""];

/// An Ethernet header and one 802.1Q tag.
const ETHERNET_AND_TAG: u32 = 14 + 4;

/// Two batches; the kernel's own least is 1.
const RING_MIN: u32 = 128;
/// Beyond, a ring holds more than any region should lend to one queue.
const RING_MAX: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_that_does_not_fit_names_its_cures() {
        let text = |mtu, frame_size| {
            OpenError::MtuTooLarge { interface: "eth0".into(), mtu, frame_size }.to_string()
        };
        let small = text(3000, 2048);
        assert!(small.contains("frame_size = 4096"), "{small}");
        assert!(small.contains("mtu 1774"), "{small}");
        let jumbo = text(9000, 2048);
        assert!(jumbo.contains("mtu 3822 and frame_size = 4096"), "{jumbo}");
        let jumbo = text(9000, 4096);
        assert!(jumbo.ends_with("mtu 3822"), "{jumbo}");
    }

    #[test]
    fn ring_sizes_are_powers_of_two() {
        let config = AfXdpConfig { tx_ring: 1000, ..AfXdpConfig::default() };
        assert!(matches!(config.check(), Err(OpenError::RingSize { ring: "tx_ring", .. })));
        assert!(AfXdpConfig::default().check().is_ok());
    }
}
