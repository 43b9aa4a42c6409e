//! Flow records of samples (IPFIX), for packets that are forwarded without an entry of the flow table: such packets are in
//! no exact record, and all others are in no sampled one.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use manylane_api::accelerate::{CollectorStatus, ExportStatus, SampledStatus};
use manylane_export::ipfix::{
    Ends, Exporter, ExporterOptions, ExporterWatch, SampledCounts, SampledFlows, SampledKey,
    SampledPacket, SampledTerms,
};
use manylane_net::wire::ip::{Fragment, View};
use manylane_net::wire::protocol;

use super::{lock, sample};
use crate::accelerator::IpfixOptions;
use crate::accelerator::export;
use crate::lane::now_ms;
use crate::programs::SflowNote;
use manylane_mirror::{RouteEnd, SampledRoute};

/// What the thread and the API share.
pub(super) struct Sampled {
    options: IpfixOptions,
    pub rate: u32,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    counts: SampledCounts,
    /// From the thread's start on.
    exporter: Option<ExporterWatch>,
}

/// What the thread has: the table of flows, and the sessions of their observation domain.
pub(super) struct SampledExport {
    flows: SampledFlows,
    exporter: Exporter,
    next_sweep: Instant,
}

impl Sampled {
    /// `None` unless the operator wants such records.
    pub fn new(options: &IpfixOptions) -> Option<Sampled> {
        let rate = options.sampling.filter(|_| !options.collectors.is_empty())?;
        Some(Sampled { options: options.clone(), rate, seen: Mutex::default() })
    }

    /// Adds what the API shows. `lost`: samples that found no room in the ring.
    pub fn show(&self, status: &mut ExportStatus, lost: u64) {
        let seen = lock(&self.seen);
        let SampledCounts { samples, flows, evicted } = seen.counts;
        let (domain, rate) = (self.options.sampled_domain(), self.rate);
        status.sampled = Some(SampledStatus { domain, rate, samples, flows, evicted, lost });
        let Some(exported) = seen.exporter.as_ref().map(ExporterWatch::status) else { return };
        status.queue_lost_records += exported.queue_lost.records;
        status.queue_lost_packets += exported.queue_lost.packets;
        let shown = |(address, one)| -> CollectorStatus {
            export::collector(address, "ipfix-sampled", one)
        };
        status.collectors.extend(exported.collectors.into_iter().map(shown));
    }
}

impl SampledExport {
    /// Starts the thread of the sessions.
    pub fn start(sampled: &Sampled) -> io::Result<SampledExport> {
        let Sampled { options, rate, .. } = sampled;
        let settings = ExporterOptions {
            domain: options.sampled_domain(),
            sampling: Some(*rate),
            ..ExporterOptions::default()
        };
        let exporter = Exporter::start(options.collectors.clone(), settings)?;
        lock(&sampled.seen).exporter = Some(exporter.watch());
        let IpfixOptions { active, inactive, .. } = *options;
        let terms = SampledTerms { rate: *rate, active, inactive, flows_max: FLOWS_MAX };
        let (flows, next_sweep) = (SampledFlows::new(terms), Instant::now());
        Ok(SampledExport { flows, exporter, next_sweep })
    }

    /// Adds a noted packet, if no entry has counted it. `ingress` is its interface.
    pub fn add(&mut self, note: &SflowNote, ingress: u32, route: Option<&SampledRoute>) {
        if let Some(packet) = packet(note, ingress, route) {
            self.flows.add(&packet, note.samples, note.rate, now_ms());
        }
    }

    /// Hands records over that are due.
    pub fn turn(&mut self, sampled: &Sampled, now: Instant) {
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            self.flows.sweep(now_ms());
        }
        self.exporter.sender().send(&self.flows.take());
        lock(&sampled.seen).counts = self.flows.counts();
    }

    /// Hands over the last records of all flows.
    pub fn end(&mut self, sampled: &Sampled) {
        self.flows.end_all();
        self.exporter.sender().send_waiting(&self.flows.take());
        lock(&sampled.seen).counts = self.flows.counts();
    }
}

/// What a record says of a packet; `None` of a packet that was not forwarded, or that an entry has counted.
fn packet(note: &SflowNote, ingress: u32, route: Option<&SampledRoute>) -> Option<SampledPacket> {
    let (egress, _) = note.egress.filter(|_| !note.is_tracked)?;
    let view = View::quoted(note.header.get(ETHERNET..)?)?;
    let (source, destination, class) = match &view {
        View::V4(view) => (view.source().into(), view.destination().into(), view.tos()),
        View::V6(view) => (view.source().into(), view.destination().into(), view.traffic_class()),
    };
    // Extension headers may be longer than what is noted.
    let transport = view.transport();
    let number = transport.map_or(protocol::NO_NEXT_HEADER, |transport| transport.protocol);
    let begins = transport.filter(|transport| transport.fragment != Fragment::Later);
    let bytes = begins.and_then(|transport| view.packet().get(transport.offset..));
    let bytes = bytes.unwrap_or_default();
    let ports = bytes.first_chunk().filter(|_| protocol::has_ports(number));
    let [from, to] =
        ports.map_or([0; 2], |[a, b, c, d]| [[*a, *b], [*c, *d]].map(u16::from_be_bytes));
    let flags = bytes.get(TCP_FLAGS..TCP_FLAGS + 2).filter(|_| number == protocol::TCP);
    let route = route.filter(|route| route.end == RouteEnd::Host);
    Some(SampledPacket {
        key: SampledKey {
            ends: Ends::new((source, from), (destination, to)),
            protocol: number,
            class,
            interfaces: [ingress, egress],
        },
        octets: match note.packets {
            // Padding is not counted.
            0 | 1 => view.packet_len() as u64,
            _ => u64::from(sample::wire_len(note)).saturating_sub(ETHERNET as u64),
        },
        tcp_flags: flags.map_or(0, |flags| u16::from_be_bytes([flags[0], flags[1]]) & 0xfff),
        next_hop: route.and_then(|route| route.next_hop),
        prefix_lens: route.map_or([0; 2], |route| [route.source_len, route.destination_len]),
    })
}

/// Flows of samples at once: 16 MiB.
const FLOWS_MAX: usize = 1 << 16;
/// How often timeouts are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Bytes of Ethernet's header.
const ETHERNET: usize = 14;
/// Where TCP's header has its flags.
const TCP_FLAGS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::SampledBy;

    /// A frame with padding behind 10.1.0.1:4000 > 10.2.0.1:53, or from fd00::1 to fd00::2.
    fn note(is_ipv6: bool, protocol: u8) -> SflowNote {
        let mut header = vec![0; 12];
        if is_ipv6 {
            header.extend([0x86, 0xdd, 0x6b, 0x80, 0, 0, 0, 20, protocol, 64]);
            let address = |last: u8| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
            header.extend([address(1), address(2)].concat());
        } else {
            header.extend([8, 0, 0x45, 0xb8, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
            header.extend([10, 1, 0, 1, 10, 2, 0, 1]);
        }
        header.extend([0x0f, 0xa0, 0, 53, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x12, 0, 0, 0, 0, 0, 0]);
        header.resize(header.len() + 6, 0xee);
        SflowNote {
            port: 1,
            verdict: 0,
            by: SampledBy::Driver,
            len: header.len() as u32,
            packets: 1,
            samples: 1,
            is_report: false,
            rate: 100,
            interface: 3,
            tag: None,
            egress: Some((4, [2; 6])),
            is_tracked: false,
            translated: None,
            header,
        }
    }

    #[test]
    fn a_note_says_what_its_flow_is() {
        for (is_ipv6, bytes) in [(false, 40), (true, 60)] {
            let (next_hop, end) = (Some([10, 2, 0, 9].into()), RouteEnd::Host);
            let route = SampledRoute {
                source_len: 24,
                destination_len: 16,
                next_hop,
                end,
                vlans: [None; 2],
            };
            let tcp =
                packet(&note(is_ipv6, protocol::TCP), 3, Some(&route)).expect("it is forwarded");
            let ports = [tcp.key.ends.source.port(), tcp.key.ends.destination.port()];
            assert_eq!((ports, tcp.key.protocol, tcp.key.class), ([4000, 53], 6, 0xb8));
            assert_eq!((tcp.octets, tcp.tcp_flags, tcp.key.interfaces), (bytes, 0x012, [3, 4]));
            assert_eq!((tcp.next_hop, tcp.prefix_lens), (next_hop, [24, 16]));
            let icmp = packet(&note(is_ipv6, protocol::ICMP), 3, None).expect("it is forwarded");
            assert_eq!((icmp.key.ends.source.port(), icmp.tcp_flags), (0, 0));
            assert_eq!((icmp.next_hop, icmp.prefix_lens), (None, [0, 0]));
        }
        // A later fragment has no ports, and one of a packet of segments has its own length.
        let mut later = note(false, protocol::UDP);
        later.header[ETHERNET + 7] = 1;
        let ends = packet(&later, 3, None).expect("it is forwarded").key.ends;
        assert_eq!((ends.source.port(), ends.destination.port()), (0, 0));
        let segments = SflowNote { packets: 10, len: 54 + 10 * 1000, ..note(false, protocol::TCP) };
        assert_eq!(packet(&segments, 3, None).expect("it is forwarded").octets, 1040);
    }

    #[test]
    fn what_an_entry_counts_and_what_the_kernel_forwards_has_no_sampled_record() {
        let plain = note(false, protocol::UDP);
        assert!(packet(&plain, 3, None).is_some());
        assert_eq!(packet(&SflowNote { is_tracked: true, ..plain.clone() }, 3, None), None);
        assert_eq!(packet(&SflowNote { egress: None, verdict: 9, ..plain.clone() }, 3, None), None);
        for len in 0..plain.header.len() {
            let short = SflowNote { header: plain.header[..len].to_vec(), ..plain.clone() };
            let _ = packet(&short, 3, None);
        }
    }
}
