//! Connections that the kernel forwards: the lane's thread explains conntrack's list, some connections at a time.
//!
//! One request reads [`READ_MAX`] connections at most, and has [`EXPLAINED_MAX`] explained at most; the answer says so if
//! conntrack has more.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use manylane_api::accelerate::{AskError, KernelFlows, KernelFlowsRequest, LaneCount};
use manylane_io::netlink::conntrack::{Connection, Conntrack};
use manylane_io::sysctl;
use manylane_net::transit::flows::Tuple;

use super::tracked::unreadable;
use crate::lane::{Filter, Kept, LaneThread, PortNames};
use crate::questions::Questions;

/// A page of them. Called in the router's namespace.
pub(super) fn page(
    lane: &Questions<LaneThread>,
    filter: &Filter,
    request: &KernelFlowsRequest,
    names: &PortNames,
) -> Result<KernelFlows, AskError> {
    let port = filter.port;
    let explain = |connections: Vec<Connection>| {
        let names = names.clone();
        lane.ask(move |lane| {
            let kept = lane.kept(&connections, port, &names);
            (kept, connections)
        })
    };
    let mut listing = Listing::new(filter, request, explain);
    let conntrack = Conntrack::open().map_err(unreadable)?;
    let mut failure = None;
    let walked = conntrack.dump_until(|connection| {
        listing.add(connection).unwrap_or_else(|error| {
            failure = Some(error);
            ControlFlow::Break(())
        })
    });
    match failure {
        Some(error) => Err(error),
        None => walked.map_err(unreadable),
    }?;
    let answer = listing.finish()?;
    Ok(KernelFlows { counts: sysctl::read(COUNTING).is_ok_and(|value| value != "0"), ..answer })
}

/// The answer, while conntrack's list is read.
struct Listing<'r, E> {
    /// Without its port, which the lane's thread finds out.
    filter: Filter,
    request: &'r KernelFlowsRequest,
    explain: E,
    answer: KernelFlows,
    /// How many connections each reason keeps, and what it means.
    reasons: BTreeMap<String, (&'static str, u64)>,
    /// Connections that have not been explained.
    batch: Vec<Connection>,
    explained: usize,
}

impl<'r, E> Listing<'r, E>
where
    E: FnMut(Vec<Connection>) -> Result<(Kept, Vec<Connection>), AskError>,
{
    /// `explain` explains connections, some of them at least, and gives all of them back.
    fn new(filter: &Filter, request: &'r KernelFlowsRequest, explain: E) -> Listing<'r, E> {
        let answer = KernelFlows { offset: request.offset as u64, ..KernelFlows::default() };
        Listing {
            filter: Filter { port: None, ..filter.clone() },
            request,
            explain,
            answer,
            reasons: BTreeMap::new(),
            batch: Vec::new(),
            explained: 0,
        }
    }

    /// The next connection of the list. Breaks when enough have been read.
    fn add(&mut self, connection: Connection) -> Result<ControlFlow<()>, AskError> {
        if self.answer.read >= READ_MAX || self.explained >= EXPLAINED_MAX {
            self.answer.is_truncated = true;
            return Ok(ControlFlow::Break(()));
        }
        self.answer.read += 1;
        let tuples = [connection.original, connection.reply].map(|tuple| Tuple {
            source: tuple.source,
            destination: tuple.destination,
            source_port: tuple.source_port,
            destination_port: tuple.destination_port,
            protocol: tuple.protocol,
        });
        if self.filter.takes(tuples, [[0; 2]; 2]) {
            self.batch.push(connection);
        }
        if self.batch.len() >= EXPLAINED_AT_ONCE {
            self.explain()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Has all of the batch explained.
    fn explain(&mut self) -> Result<(), AskError> {
        while !self.batch.is_empty() {
            let (kept, mut rest) = (self.explain)(std::mem::take(&mut self.batch))?;
            rest.drain(..kept.done);
            self.batch = rest;
            self.take(kept);
        }
        Ok(())
    }

    fn take(&mut self, kept: Kept) {
        let KernelFlowsRequest { reason, offset, limit, .. } = self.request;
        self.answer.tracked += kept.tracked;
        self.answer.local += kept.local;
        self.answer.unneeded += kept.unneeded;
        self.explained += kept.flows.len();
        for (flow, meaning) in kept.flows {
            if reason.as_ref().is_some_and(|reason| *reason != flow.reason) {
                continue;
            }
            let (_, count) = self.reasons.entry(flow.reason.clone()).or_insert((meaning, 0));
            *count += 1;
            let place = self.answer.total as usize;
            self.answer.total += 1;
            if (*offset..offset.saturating_add(*limit)).contains(&place) {
                self.answer.flows.push(flow);
            }
        }
    }

    /// The answer.
    fn finish(mut self) -> Result<KernelFlows, AskError> {
        self.explain()?;
        let count = |(reason, (meaning, total)): (String, (&str, u64))| LaneCount {
            reason,
            explanation: meaning.into(),
            total,
        };
        self.answer.reasons = self.reasons.into_iter().map(count).collect();
        self.answer.reasons.sort_by_key(|one| Reverse(one.total));
        Ok(self.answer)
    }
}

/// Whether conntrack counts packets of connections that begin.
const COUNTING: &str = "net/netfilter/nf_conntrack_acct";
/// Connections that one request reads: a second of the kernel's time, and of the API's thread.
const READ_MAX: u64 = 1 << 19;
/// Connections of the kernel that one request has explained: some microseconds of the lane's thread each.
const EXPLAINED_MAX: usize = 1 << 14;
/// Connections that one question is about.
const EXPLAINED_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use manylane_api::accelerate::KernelFlow;
    use manylane_io::netlink::conntrack::{self, Status};

    /// A connection of UDP by its number: each third one has an entry, and each second one of the others a rule.
    fn connection(number: u32) -> Connection {
        let ends = |ports: [u16; 2]| conntrack::Tuple {
            source: (0x0a00_0000 + number).to_be_bytes().into(),
            destination: [192, 0, 2, 1].into(),
            source_port: ports[0],
            destination_port: ports[1],
            protocol: 17,
        };
        let (original, reply) = (ends([4000, 53]), ends([53, 4000]));
        let reply = conntrack::Tuple {
            source: original.destination,
            destination: original.source,
            ..reply
        };
        fixtures::connection([original, reply], number, Status::SEEN_REPLY)
    }

    /// As a thread that is busy: of each question it does a half.
    fn explained(connections: Vec<Connection>) -> Result<(Kept, Vec<Connection>), AskError> {
        let mut kept = Kept { done: connections.len().div_ceil(2), ..Kept::default() };
        for connection in &connections[..kept.done] {
            let reason = if connection.id.is_multiple_of(2) { "rules" } else { "candidate" };
            match connection.id % 3 {
                0 => kept.tracked += 1,
                _ => kept.flows.push((
                    KernelFlow { id: connection.id, reason: reason.into(), ..Default::default() },
                    "so it is",
                )),
            }
        }
        Ok((kept, connections))
    }

    fn listed(filter: &Filter, request: &KernelFlowsRequest, count: u32) -> KernelFlows {
        let mut listing = Listing::new(filter, request, explained);
        for number in 0..count {
            if listing.add(connection(number)).expect("it answers").is_break() {
                break;
            }
        }
        listing.finish().expect("it answers")
    }

    #[test]
    fn pages_one_after_the_other_are_all_connections_once() {
        let all = Filter::default();
        let page = |offset| {
            let request = KernelFlowsRequest { limit: 100, offset, ..Default::default() };
            let page = listed(&all, &request, 900);
            assert_eq!((page.read, page.tracked, page.total), (900, 300, 600));
            assert!(!page.is_truncated);
            page.flows.into_iter().map(|flow| flow.id).collect::<Vec<_>>()
        };
        let pages: Vec<u32> = (0..7).flat_map(|number| page(number * 100)).collect();
        let wanted: Vec<u32> = (0..900).filter(|number| number % 3 != 0).collect();
        assert_eq!(pages, wanted);
    }

    #[test]
    fn reasons_are_counted_over_all_pages_and_choose_among_them() {
        let request = KernelFlowsRequest { limit: 1, ..Default::default() };
        let page = listed(&Filter::default(), &request, 7);
        let counts = page.reasons.iter().map(|one| (&*one.reason, one.total));
        assert_eq!(counts.collect::<Vec<_>>(), [("candidate", 2), ("rules", 2)]);
        assert_eq!(page.reasons[0].explanation, "so it is");
        let request = KernelFlowsRequest { reason: Some("rules".into()), ..Default::default() };
        let page = listed(&Filter::default(), &request, 7);
        assert_eq!((page.total, page.flows.len(), page.reasons.len()), (2, 2, 1));
    }

    #[test]
    fn what_no_filter_takes_is_read_and_not_explained() {
        let address = Some([10, 0, 0, 5].into());
        let filter = Filter { address, ..Filter::default() };
        let page = listed(&filter, &KernelFlowsRequest::default(), 900);
        assert_eq!((page.read, page.tracked, page.total), (900, 0, 1));
        assert_eq!(page.flows[0].id, 5);
    }

    /// A list that is longer than a request explains, and one that is exactly as long.
    #[test]
    fn a_list_that_is_cut_says_so() {
        let request = KernelFlowsRequest { limit: 1, ..Default::default() };
        let many = 2 * EXPLAINED_MAX as u32;
        let page = listed(&Filter::default(), &request, many);
        assert!(page.is_truncated && page.total >= EXPLAINED_MAX as u64, "{page:?}");
        assert!(page.read < many.into() && page.total < page.read);
        let whole = listed(&Filter::default(), &request, 900);
        assert!(!whole.is_truncated);
    }

    #[test]
    fn a_silent_thread_is_no_empty_list() {
        let silent = || {
            let (error, help) = ("it does not answer".into(), "wait".into());
            AskError::Silent(manylane_api::ApiError { error, help })
        };
        let request = KernelFlowsRequest::default();
        let mut listing = Listing::new(&Filter::default(), &request, |_| Err(silent()));
        let added = listing.add(connection(1)).expect("the batch is not full yet");
        assert!(added.is_continue());
        assert_eq!(listing.finish(), Err(silent()));
    }
}
