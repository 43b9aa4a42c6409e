//! The exporter's thread: takes workers' notes, looks up their routes, and sends.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use manylane_export::sflow::{InterfaceCounters, Sender};
use manylane_frame::vocabulary::{DropReason, PortId};
use manylane_io::eventfd::EventFd;
use manylane_io::joined::Joined;
use manylane_io::netlink::Netlink;
use manylane_io::poll::poll;
use manylane_net::wire::ethernet::VLAN_TAG_LEN;
use manylane_worker::sampler::{End, Note, Noted, SamplerEnd};
use manylane_worker::stats::{PortCount, StatsReader};

use super::{Sampling, Sflow, lock, sample};
use crate::control::open::Bell;
use crate::control::routing::{PacketRoute, Routing};

/// A handle to the exporter's thread, which ends when the handle is dropped: what workers have noted is sent first.
pub(in crate::control) struct Exporter {
    _thread: Joined,
}

/// What the thread reads beside the notes.
pub(in crate::control) struct Source {
    pub routing: Arc<Mutex<Routing>>,
    /// All that counts packets of ports.
    pub stats: Vec<StatsReader>,
    /// By the number of a port with a device: its kernel interface, if it has one.
    pub interfaces: Vec<Option<String>>,
}

/// The thread's part, before it runs.
pub(in crate::control) struct Exporting {
    sflow: Arc<Sflow>,
    ends: Vec<SamplerEnd>,
    bell: Bell,
    source: Source,
    sender: Sender,
    ports: Vec<Port>,
    netlink: Option<Netlink>,
    next_poll: Instant,
}

/// A port with a device, as collectors know it.
struct Port {
    /// The kernel interface's number, or one beyond all of these.
    number: u32,
    interface: Option<String>,
}

impl Exporting {
    /// In the ports' network namespace. Returns the workers' samplers, too.
    pub fn new(Sampling { sflow, ends, bell, .. }: Sampling, source: Source) -> Exporting {
        // Without it, ports have numbers of our own, and count as up.
        let mut netlink = Netlink::open().ok();
        let mut port = |(place, interface): (u32, &Option<String>)| {
            let link = netlink.as_mut().zip(interface.as_deref());
            let link = link.and_then(|(netlink, name)| netlink.link(name).ok());
            let number = link.map_or(NUMBERS + place, |link| link.index);
            Port { number, interface: interface.clone() }
        };
        let ports = (0..).zip(&source.interfaces).map(&mut port).collect();
        let sender = Sender::new(&sflow.options.collectors, sflow.options.agent);
        *lock(&sflow.watches) = sender.watches();
        let next_poll = Instant::now();
        Exporting { sflow, ends, bell, source, sender, ports, netlink, next_poll }
    }
}

impl Exporter {
    /// Starts the thread in the calling thread's network namespace.
    pub fn start(mut exporting: Exporting) -> io::Result<Exporter> {
        let end = Arc::new(EventFd::open()?);
        let rung = end.clone();
        Ok(Exporter { _thread: Joined::start("sflow", end, move || exporting.run(&rung))? })
    }
}

impl Exporting {
    fn run(&mut self, end: &EventFd) {
        loop {
            let ends = end.drain();
            self.turn(Instant::now());
            if ends {
                return;
            }
            let wait = self.next_poll.saturating_duration_since(Instant::now()).min(AGENT_EVERY);
            let Exporting { ends, bell, .. } = self;
            let has_notes =
                |ends: &mut Vec<SamplerEnd>| ends.iter_mut().any(|end| !end.notes.is_empty());
            let awaited = [end.as_fd(), bell.waker().as_fd()];
            // The one failure is ENOMEM: then it turns instead of sleeping.
            bell.sleep(|| has_notes(ends), || poll(&awaited, Some(wait)).is_ok());
            bell.waker().drain();
            if has_notes(ends) {
                // So that one look at the routes and one datagram are for many notes.
                let _ = poll(&awaited[..1], Some(PACE));
            }
        }
    }

    fn turn(&mut self, now: Instant) {
        lock(&self.sflow.sent).agent = self.sender.find_agent();
        let mut notes = Vec::with_capacity(NOTES_AT_ONCE);
        for worker in 0..self.ends.len() {
            loop {
                let ring = &mut self.ends[worker].notes;
                notes.extend(ring.pop_up_to(NOTES_AT_ONCE));
                ring.release();
                self.export(&notes, now);
                if notes.len() < NOTES_AT_ONCE {
                    break;
                }
                notes.clear();
            }
            notes.clear();
        }
        if now >= self.next_poll {
            self.next_poll = now + self.sflow.options.polling;
            self.export_counters();
        }
        self.sender.finish();
    }

    fn export(&mut self, notes: &[Note], now: Instant) {
        if notes.is_empty() {
            return;
        }
        let found: Vec<_> = {
            let routing = self.routing();
            notes.iter().map(|note| found(&routing, note)).collect()
        };
        for (note, (route, egress)) in notes.iter().zip(found) {
            let Some(&Port { number: input, .. }) = self.ports.get(note.port.index()) else {
                continue;
            };
            let count = self.sflow.count(note.port);
            match note.noted {
                Noted::Sample { samples, rate, end } => {
                    let output = egress.and_then(|(port, vlan)| {
                        self.ports.get(port.index()).map(|port| (port.number, vlan))
                    });
                    let route = route.as_ref();
                    let facts = sample::Facts { input, rate, end, route, output, count };
                    let flow = sample::flow(note, &facts);
                    (0..samples).for_each(|_| self.sender.add_flow(&flow));
                    lock(&self.sflow.sent).samples += u64::from(samples);
                }
                Noted::Dropped(reason) => {
                    let unreported = count.unreported + lock(&self.sflow.sent).unreported;
                    let packet = sample::discarded(note, input, reason, unreported);
                    let Some(packet) = packet else { continue };
                    let is_reported = self.sender.add_discarded(&packet, now);
                    let mut sent = lock(&self.sflow.sent);
                    match is_reported {
                        true => sent.discarded += 1,
                        false => sent.unreported += 1,
                    }
                }
            }
        }
    }

    fn export_counters(&mut self) {
        for place in 0..self.ports.len() {
            let id = PortId(place as u16);
            if self.routing().is_removed(id) {
                continue;
            }
            let sample = self.counters(id);
            self.sender.add_counters(&sample);
        }
    }

    /// What manylane has counted of a port and its sub-interfaces. A port of memory or of files is up.
    fn counters(&mut self, id: PortId) -> InterfaceCounters {
        let Exporting { source, ports, netlink, .. } = self;
        let Port { number, interface } = &ports[id.index()];
        let named = netlink.as_mut().zip(interface.as_deref());
        let link = named.and_then(|(netlink, name)| netlink.link(name).ok());
        let below: Vec<PortId> = {
            let routing = source.routing.lock().expect(UNHARMED);
            routing.of_device(id).collect()
        };
        let sum = |ids: &[PortId], what| {
            let of = |&id: &PortId| source.stats.iter().map(move |stats| stats.port(id, what));
            // Levels may be counted down by another worker than counted up: wrapping is right.
            ids.iter().flat_map(of).fold(0, u64::wrapping_add)
        };
        let dropped = |&id: &PortId| {
            let of = move |stats: &StatsReader| {
                DropReason::ALL.iter().map(|&reason| stats.dropped(id, reason)).sum::<u64>()
            };
            source.stats.iter().map(of).sum::<u64>()
        };
        let own = [id];
        let lost = sum(&own, PortCount::LostRingFull) + sum(&own, PortCount::LostNoBuffer);
        InterfaceCounters {
            interface: *number,
            speed: interface.as_deref().and_then(speed).unwrap_or(0),
            full_duplex: None,
            is_admin_up: link.as_ref().is_none_or(|link| link.is_up),
            is_up: link.as_ref().is_none_or(|link| link.is_up && link.is_running),
            is_promiscuous: false,
            in_bytes: sum(&below, PortCount::ReceivedBytes),
            in_packets: sum(&below, PortCount::Received),
            in_group: None,
            in_dropped: below.iter().map(dropped).sum::<u64>() + lost,
            in_errors: sum(&own, PortCount::LostInvalid),
            out_bytes: sum(&own, PortCount::SentBytes),
            out_packets: sum(&own, PortCount::Sent),
            out_dropped: sum(&own, PortCount::LostTransmit),
            out_errors: 0,
        }
    }

    fn routing(&self) -> std::sync::MutexGuard<'_, Routing> {
        self.source.routing.lock().expect(UNHARMED)
    }
}

/// The route of a sample that is forwarded, and the port whose device it leaves by, with the VLAN there.
fn found(routing: &Routing, note: &Note) -> (Option<PacketRoute>, Option<(PortId, u16)>) {
    let Noted::Sample { end, .. } = note.noted else { return (None, None) };
    let question = sample::question(note, end);
    let route = question
        .and_then(|(source, destination, sent)| routing.packet_route(source, destination, sent));
    let vlan = route.and_then(|route| routing.facts(route.port).vlan);
    let vlan = vlan.map_or(0, |vlan| {
        let tag = &vlan.tags.as_bytes()[..VLAN_TAG_LEN];
        u16::from_be_bytes([tag[2], tag[3]])
    });
    let device = match end {
        End::Leaves(device, _) => Some(device),
        End::Waits => route.map(|route| routing.device(route.port)),
        End::Delivered | End::Dropped(_) => None,
    };
    (route, device.map(|device| (device, vlan)))
}

/// Bits in a second, if the driver tells.
fn speed(interface: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let megabits: i64 = text.trim().parse().ok()?;
    u64::try_from(megabits).ok()?.checked_mul(1_000_000)
}

const UNHARMED: &str = "a thread that edits the tables does not panic";
/// Ports without a kernel interface have numbers from this on. Kernel interfaces have smaller ones, and a data source has
/// 24 bits.
const NUMBERS: u32 = 1 << 23;
/// How long notes wait for others: the standard lets a sample wait for a second.
const PACE: Duration = Duration::from_millis(50);
/// Notes for which the lock on the routes is taken once.
const NOTES_AT_ONCE: usize = 256;
/// How often the address is looked for by which collectors are reached, until it is known.
const AGENT_EVERY: Duration = Duration::from_secs(1);
