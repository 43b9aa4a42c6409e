//! The flow table, which the lane's thread reads out part by part: pages, and the comparison with conntrack.
//!
//! The lane's thread has other things to do: what takes longer than some milliseconds is done by the API's thread, between
//! two of its questions.

use std::cmp::Reverse;
use std::sync::Arc;

use manylane_api::ApiError;
use manylane_api::accelerate::{
    AskError, KernelFlows, KernelFlowsRequest, LaneStatus, TrackedFlow, TrackedFlows,
    TrackedFlowsDiff, TrackedFlowsRequest, TrackedSum, TransportProtocol, WhyFlow,
};
use manylane_io::netlink::NetlinkError;
use manylane_io::netlink::conntrack::{Conntrack, Tuple};
use manylane_net::transit::flows;
use manylane_net::wire::protocol;

use super::published::PortView;
use super::{kernel_flows, why};
use crate::lane::{Asked, Compared, Filter, LaneThread, PortNames, Sum, Sums, difference};
use crate::questions::Questions;

/// The lane's thread, if connections are forwarded.
pub(super) struct Tracked {
    lane: Option<Arc<Questions<LaneThread>>>,
}

impl Tracked {
    pub fn new(lane: Option<Arc<Questions<LaneThread>>>) -> Tracked {
        Tracked { lane }
    }

    /// The state of the thread and its table.
    pub fn status(&self) -> Result<LaneStatus, AskError> {
        let Some(lane) = &self.lane else { return Ok(LaneStatus::default()) };
        lane.ask(|lane| lane.status())
    }

    /// A page of the table.
    pub fn page(
        &self,
        request: &TrackedFlowsRequest,
        ports: &[PortView],
    ) -> Result<TrackedFlows, AskError> {
        let filter = filter(request, ports).map_err(AskError::BadQuestion)?;
        let Some(lane) = &self.lane else { return Ok(TrackedFlows::default()) };
        let status = self.status()?;
        let mut largest = Largest::new(request.offset.saturating_add(request.limit));
        let (mut sums, mut from) = (Sums::new(), Some(0));
        while let Some(place) = from {
            let asked = filter.clone();
            let part = lane.ask(move |lane| lane.part(&asked, place))?;
            largest.packets = largest.packets.wrapping_add(part.packets);
            largest.add(part.entries);
            for (key, sum) in part.sums {
                sums.entry(key).or_default().add(sum);
            }
            from = part.next;
        }
        let Largest { total, packets, bytes, .. } = largest;
        let sums = named_sums(&sums, &names(ports));
        let numbers = largest.page(request.offset);
        let mut flows: Vec<TrackedFlow> = Vec::new();
        let mut rest = numbers.as_slice();
        while !rest.is_empty() {
            let some = rest[..rest.len().min(DESCRIBED_AT_ONCE)].to_vec();
            let names = names(ports);
            let (described, done) = lane.ask(move |lane| lane.described(&some, &names))?;
            flows.extend(described);
            rest = &rest[done..];
        }
        let LaneStatus { used, capacity, .. } = status;
        let offset = request.offset as u64;
        Ok(TrackedFlows { total, packets, bytes, used, capacity, offset, sums, flows })
    }

    /// A page of the connections that the kernel forwards. Called in the router's namespace.
    pub fn kernel(
        &self,
        request: &KernelFlowsRequest,
        ports: &[PortView],
    ) -> Result<KernelFlows, AskError> {
        let KernelFlowsRequest { port, address, protocol, transport_port, translated, .. } =
            request.clone();
        let like = TrackedFlowsRequest {
            port,
            address,
            protocol,
            transport_port,
            translated,
            ..<_>::default()
        };
        let filter = filter(&like, ports).map_err(AskError::BadQuestion)?;
        let Some(lane) = &self.lane else {
            return Ok(KernelFlows { trouble: Some(NO_TABLE.into()), ..KernelFlows::default() });
        };
        let status = self.status()?;
        let page = kernel_flows::page(lane, &filter, request, &names(ports))?;
        Ok(KernelFlows { trouble: status.trouble, ..page })
    }

    /// Compares the table with conntrack. Called in the router's namespace.
    pub fn diff(&self) -> Result<TrackedFlowsDiff, AskError> {
        let Some(lane) = &self.lane else { return Ok(TrackedFlowsDiff::default()) };
        let (mut compared, mut suspects) = (0, Vec::new());
        let mut conntrack = None;
        let mut from = Some(0);
        while let Some(place) = from {
            let look = lane.ask(move |lane| lane.look(place))?;
            compared += look.entries.len() as u64;
            suspects.extend(differing(&mut conntrack, look.entries)?);
            from = look.next;
        }
        // What has ended between the two looks at it is no difference: the second look reads conntrack first, and
        // then the lane's table: its thread hears all that was announced until then.
        let mut differences = Vec::new();
        let mut total = 0;
        for suspects in suspects.chunks(LOOKED_AT_AGAIN) {
            let entries = suspects.iter().map(|(entry, _)| *entry).collect();
            let again = differing(&mut conntrack, entries)?;
            let entries: Vec<_> = again.iter().map(|(entry, _)| *entry).collect();
            let still = lane.ask(move |lane| lane.still(&entries))?;
            for ((_, how), _) in again.into_iter().zip(still).filter(|(_, still)| *still) {
                total += 1;
                if differences.len() < DIFFERENCES_MAX {
                    differences.push(how);
                }
            }
        }
        Ok(TrackedFlowsDiff { compared, differences, total })
    }

    /// What becomes of a packet whose connection decides; nothing where none does, or the thread is silent.
    pub fn why(&self, asked: Asked, ports: &[PortView]) -> Option<WhyFlow> {
        let names = names(ports);
        self.lane.as_ref()?.ask(move |lane| lane.why(&asked, &names)).ok().flatten()
    }
}

/// Those of the entries that differ from conntrack, and how.
fn differing(
    conntrack: &mut Option<Conntrack>,
    entries: Vec<Compared>,
) -> Result<Vec<(Compared, String)>, AskError> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let conntrack = match conntrack {
        Some(conntrack) => conntrack,
        None => conntrack.insert(Conntrack::open().map_err(unreadable)?),
    };
    let tuples: Vec<_> = entries.iter().map(|entry| as_asked(entry.tuples[0])).collect();
    let found = conntrack.get(&tuples).map_err(unreadable)?;
    let compare = |(entry, found): (Compared, Option<_>)| {
        difference(&entry, found.as_ref()).map(|how| (entry, how))
    };
    Ok(entries.into_iter().zip(found).filter_map(compare).collect())
}

/// The kernel does not let conntrack be read.
pub(super) fn unreadable(error: NetlinkError) -> AskError {
    AskError::Silent(ApiError {
        error: format!("conntrack cannot be read: {error}"),
        help: "try again; `conntrack -L` reads it, too".into(),
    })
}

fn as_asked(tuple: flows::Tuple) -> Tuple {
    let flows::Tuple { source, destination, source_port, destination_port, protocol } = tuple;
    Tuple { source, destination, source_port, destination_port, protocol }
}

/// The request in the lane's terms.
fn filter(request: &TrackedFlowsRequest, ports: &[PortView]) -> Result<Filter, ApiError> {
    let port = match &request.port {
        None => None,
        Some(name) => {
            let port = ports.iter().find(|port| port.name == *name);
            Some(port.ok_or_else(|| why::unknown(ports, name))?.number)
        }
    };
    Ok(Filter {
        // Ports have numbers from 1 on; 0 is none's.
        port: port.map(|number| u8::try_from(number).unwrap_or(0)),
        address: request.address,
        protocol: request.protocol.map(number),
        transport_port: request.transport_port,
        translated: request.translated,
    })
}

/// A protocol's number.
pub(super) fn number(protocol: TransportProtocol) -> u8 {
    match protocol {
        TransportProtocol::Tcp => protocol::TCP,
        TransportProtocol::Udp => protocol::UDP,
    }
}

fn names(ports: &[PortView]) -> PortNames {
    let named = |port: &PortView| {
        // Workers follow no connections: the program behind them does.
        let tier = if port.tier == "workers" { "ingress" } else { port.tier };
        Some((u8::try_from(port.number).ok()?, (port.name.clone(), tier)))
    };
    ports.iter().filter_map(named).collect()
}

/// The sums, with what their ports are called.
fn named_sums(sums: &Sums, names: &PortNames) -> Vec<TrackedSum> {
    let named = |(&(port, is_forwarded), sum): (&(u8, bool), &Sum)| {
        let nowhere = || (String::new(), "kernel");
        let (ingress, tier) = names.get(&port).cloned().unwrap_or_else(nowhere);
        let tier = if is_forwarded { tier } else { "kernel" }.into();
        let Sum { directions, packets, bytes } = *sum;
        TrackedSum { ingress, tier, directions, packets, bytes }
    };
    let mut all: Vec<TrackedSum> = Vec::new();
    for sum in sums.iter().map(named) {
        // A port without a tier is the kernel's, whatever has been approved.
        match all.iter_mut().find(|one| (&one.ingress, &one.tier) == (&sum.ingress, &sum.tier)) {
            None => all.push(sum),
            Some(one) => {
                one.directions += sum.directions;
                one.packets = one.packets.wrapping_add(sum.packets);
                one.bytes = one.bytes.wrapping_add(sum.bytes);
            }
        }
    }
    all
}

/// The largest of many entries, and what all have counted.
#[derive(Debug)]
struct Largest {
    keep: usize,
    entries: Vec<(u64, u32)>,
    total: u64,
    packets: u64,
    bytes: u64,
}

impl Largest {
    /// Keeps this many.
    fn new(keep: usize) -> Largest {
        Largest { keep, entries: Vec::new(), total: 0, packets: 0, bytes: 0 }
    }

    /// More entries: bytes and number.
    fn add(&mut self, entries: Vec<(u64, u32)>) {
        self.total += entries.len() as u64;
        self.bytes = entries.iter().fold(self.bytes, |sum, one| sum.wrapping_add(one.0));
        self.entries.extend(entries);
        if self.entries.len() / 2 > self.keep.max(KEPT_AT_LEAST) {
            self.entries.select_nth_unstable_by_key(self.keep, order);
            self.entries.truncate(self.keep);
        }
    }

    /// The numbers of those kept from `offset` on, the largest first.
    fn page(mut self, offset: usize) -> Vec<u32> {
        self.entries.sort_unstable_by_key(order);
        self.entries.iter().take(self.keep).skip(offset).map(|&(_, number)| number).collect()
    }
}

/// The largest first; of equal ones always the same.
fn order(&(bytes, number): &(u64, u32)) -> (Reverse<u64>, u32) {
    (Reverse(bytes), number)
}

const NO_TABLE: &str = "manylane was started without a flow table (`--flows 0`): the kernel forwards all connections of a router with rules";
/// Entries that one question describes, at most.
const DESCRIBED_AT_ONCE: usize = 128;
/// Entries that are compared a second time by one question.
const LOOKED_AT_AGAIN: usize = 512;
/// Lines of a comparison.
const DIFFERENCES_MAX: usize = 1000;
/// Fewer entries are not worth a selection.
const KEPT_AT_LEAST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> Vec<PortView> {
        let port = |number, name: &str, tier| PortView {
            number,
            name: name.into(),
            tier,
            ..PortView::default()
        };
        vec![port(1, "lan", "driver"), port(2, "wan", "ingress")]
    }

    #[test]
    fn pages_one_after_the_other_are_all_entries_from_the_largest_on() {
        // Two entries of each size.
        let entries: Vec<(u64, u32)> =
            (0..20_000).map(|number| (number / 2, number as u32)).collect();
        let page = |offset: usize, limit: usize| {
            let mut largest = Largest::new(offset + limit);
            entries.chunks(1000).for_each(|part| largest.add(part.to_vec()));
            assert_eq!((largest.total, largest.bytes), (20_000, 2 * (0..10_000).sum::<u64>()));
            largest.page(offset)
        };
        let pages: Vec<u32> = (0..20).flat_map(|number| page(number * 1000, 1000)).collect();
        let mut all = entries.clone();
        all.sort_by_key(order);
        assert_eq!(pages, all.iter().map(|one| one.1).collect::<Vec<_>>());
        assert_eq!(page(0, 3), [19_998, 19_999, 19_996]);
        assert_eq!(page(20_000, 3), Vec::<u32>::new());
        assert_eq!(page(19_999, 3).len(), 1);
    }

    #[test]
    fn a_request_names_ports_that_there_are() {
        let request = TrackedFlowsRequest { port: Some("wan".into()), ..Default::default() };
        assert_eq!(filter(&request, &ports()), Ok(Filter { port: Some(2), ..Filter::default() }));
        let request = TrackedFlowsRequest { port: Some("dmz".into()), ..Default::default() };
        let error = filter(&request, &ports()).expect_err("it is no port");
        assert_eq!(error.help, "name one of lan, wan");
        let request = TrackedFlowsRequest {
            protocol: Some(TransportProtocol::Udp),
            translated: Some(true),
            ..Default::default()
        };
        let wanted = Filter { protocol: Some(17), translated: Some(true), ..Filter::default() };
        assert_eq!(filter(&request, &ports()), Ok(wanted));
    }

    #[test]
    fn sums_have_the_name_of_their_port_and_its_tier() {
        let sum = |directions| Sum { directions, packets: 10, bytes: 600 };
        let sums = Sums::from([
            ((1, false), sum(1)),
            ((1, true), sum(2)),
            ((2, true), sum(3)),
            ((9, false), sum(4)),
            ((9, true), sum(5)),
        ]);
        let named = named_sums(&sums, &names(&ports()));
        let shown: Vec<_> =
            named.iter().map(|one| (&*one.ingress, &*one.tier, one.directions)).collect();
        let wanted =
            [("lan", "kernel", 1), ("lan", "driver", 2), ("wan", "ingress", 3), ("", "kernel", 9)];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn without_a_lane_there_are_no_flows() {
        let none = Tracked::new(None);
        assert_eq!(none.status(), Ok(LaneStatus::default()));
        let page = none.page(&TrackedFlowsRequest::default(), &ports());
        assert_eq!(page, Ok(TrackedFlows::default()));
        assert_eq!(none.diff(), Ok(TrackedFlowsDiff::default()));
        let kernel = none.kernel(&KernelFlowsRequest::default(), &ports()).expect("no thread");
        assert!(kernel.trouble.is_some_and(|said| said.contains("--flows 0")));
    }
}
