//! `manylane show flows`: which connections, and where they are.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use manylane_api::accelerate::{
    FLOWS_PAGE_MAX, KernelFlows, KernelFlowsRequest, LaneStatus, TrackedFlowsRequest,
    TransportProtocol,
};
use manylane_api::{Client, ClientError};

use super::show::Noun;
use crate::tables;
use crate::tables::kernel_flows::Before;

#[derive(Debug, Default, Args)]
pub(super) struct FlowOptions {
    /// For `flows`: connections of this interface
    #[arg(long, value_name = "IF")]
    port: Option<String>,
    /// For `flows`: connections with this address at either end, before or after translation
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// For `flows` and `why`: tcp or udp
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<TransportProtocol>,
    /// For `flows`: connections with this TCP or UDP port at either end, before or after translation
    #[arg(long, value_name = "N")]
    transport_port: Option<u16>,
    /// For `flows`: translated connections only
    #[arg(long)]
    nat: bool,
    /// For `flows`: connections that the kernel forwards, and what keeps each there
    #[arg(long)]
    kernel: bool,
    /// For `flows --kernel`: connections that this keeps there, by the name in the table
    #[arg(long, value_name = "NAME", requires = "kernel")]
    reason: Option<String>,
    /// For `flows`: connections of a page
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<usize>,
    /// For `flows`: which page, from 1 on
    #[arg(long, value_name = "N", value_parser = page)]
    page: Option<usize>,
    /// For `why`: the packet's source port
    #[arg(long, value_name = "N")]
    sport: Option<u16>,
    /// For `why`: the packet's destination port
    #[arg(long, value_name = "N")]
    dport: Option<u16>,
}

fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=FLOWS_PAGE_MAX).contains(number));
    number.ok_or_else(|| format!("a number from 1 to {FLOWS_PAGE_MAX} is wanted"))
}

fn page(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=PAGES_MAX).contains(number));
    number.ok_or_else(|| format!("a number from 1 to {PAGES_MAX} is wanted"))
}

/// A page of connections that the operator wants.
#[derive(Debug, PartialEq)]
pub(super) enum Page {
    /// Of the flow table.
    Table(TrackedFlowsRequest),
    /// Of the kernel's.
    Kernel(KernelFlowsRequest),
}

impl Page {
    /// Where it is, below the API's version.
    pub(super) fn path(&self) -> &'static str {
        match self {
            Page::Table(_) => "/flows/table",
            Page::Kernel(_) => "/flows/kernel",
        }
    }

    /// The answer as the API gives it.
    pub(super) fn json(&self, client: &Client, path: &str) -> Result<String, ClientError> {
        match self {
            Page::Table(request) => client.post_text(path, request),
            Page::Kernel(request) => client.post_text(path, request),
        }
    }
}

impl FlowOptions {
    /// Whether the options fit the noun.
    pub(super) fn check(&self, what: Noun) -> Result<(), &'static str> {
        let has_ports = self.sport.is_some() || self.dport.is_some();
        match what {
            Noun::Why => match (self.protocol, self.sport, self.dport) {
                _ if self.chooses_beside_protocol() => {
                    Err("only `show flows` takes filters and pages")
                }
                (None, None, None) | (Some(_), Some(_), Some(_)) => Ok(()),
                _ => Err("a packet of a connection has `--protocol`, `--sport` and `--dport`"),
            },
            _ if has_ports => Err("only `show why` takes `--sport` and `--dport`"),
            Noun::Flows => Ok(()),
            _ if self.chooses() => Err("only `show flows` takes filters and pages"),
            _ => Ok(()),
        }
    }

    /// Whether the operator chooses some of the connections, or a page.
    pub(super) fn chooses(&self) -> bool {
        self.protocol.is_some() || self.chooses_beside_protocol()
    }

    fn chooses_beside_protocol(&self) -> bool {
        let FlowOptions { port, address, transport_port, nat, kernel, limit, page, .. } = self;
        let filters = port.is_some() || address.is_some() || transport_port.is_some() || *nat;
        filters || *kernel || limit.is_some() || page.is_some()
    }

    /// The part of the path that says which packet of a connection, if that is said.
    pub(super) fn below(&self) -> String {
        match (self.protocol, self.sport, self.dport) {
            (Some(protocol), Some(sport), Some(dport)) => format!("/{protocol}/{sport}/{dport}"),
            _ => String::new(),
        }
    }

    /// The page to show; none where no connection decides, and the operator chooses no page.
    pub(super) fn page(&self, client: &Client) -> Result<Option<Page>, ClientError> {
        if !self.chooses() && !client.ask::<LaneStatus>(LANE)?.is_needed() {
            return Ok(None);
        }
        let FlowOptions { address, protocol, transport_port, .. } = *self;
        let (port, translated) = (self.port.clone(), self.nat.then_some(true));
        let limit = self.limit.unwrap_or(LIMIT);
        let offset = (self.page.unwrap_or(1) - 1) * limit;
        Ok(Some(match self.kernel {
            false => Page::Table(TrackedFlowsRequest {
                port,
                address,
                protocol,
                transport_port,
                translated,
                limit,
                offset,
            }),
            true => Page::Kernel(KernelFlowsRequest {
                port,
                address,
                protocol,
                transport_port,
                translated,
                reason: self.reason.clone(),
                limit,
                offset,
            }),
        }))
    }
}

/// The page, or else a sample.
pub(super) fn table(
    client: &Client,
    path: &str,
    page: Option<&Page>,
) -> Result<String, ClientError> {
    match page {
        Some(Page::Table(page)) => {
            let answer = client.post(path, page)?;
            Ok(tables::flows::page(&answer, page, &client.ask(LANE)?))
        }
        Some(Page::Kernel(page)) => {
            let earlier: KernelFlows = client.post(path, page)?;
            if !earlier.flows.iter().any(|flow| flow.counted.is_some()) {
                return Ok(tables::kernel_flows::page(&earlier, page, None));
            }
            // Rates take two answers.
            let begun = Instant::now();
            thread::sleep(RATES_OVER); // A rate is of a time; nothing announces it.
            let answer = client.post(path, page)?;
            let before = Before { page: &earlier, ago: begun.elapsed() };
            Ok(tables::kernel_flows::page(&answer, page, Some(&before)))
        }
        None => {
            let answer = client.post(path, &())?;
            Ok(tables::flows::sampled(&answer, &client.ask(LANE)?))
        }
    }
}

/// Below the API's version.
pub(super) const SAMPLE: &str = "/flows";
pub(super) const DIFF: &str = "/flows/diff";

const LANE: &str = "/v1/accelerate/lane";
/// The time over which rates of the kernel's connections are taken.
const RATES_OVER: Duration = Duration::from_secs(1);
/// Connections of a page, if the operator does not say: what fits some screens.
const LIMIT: usize = 50;
const PAGES_MAX: usize = 1 << 24;
