//! `[sflow]`: samples of packets, for collectors.

use std::net::IpAddr;
use std::time::Duration;

use manylane_export::sflow::{POLLING, RATE, RATE_MAX, read_collector};
use manylane_export::{AddressError, CollectorAddress};
use serde_spanned::Spanned;

use super::error::{Problem, Span};
use super::section::Section;

/// Samples for collectors. Names are looked up when the daemon starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sflow {
    /// Where samples go: one at least.
    pub collectors: Vec<CollectorAddress>,
    /// One packet in how many is a sample, where a port says nothing else.
    pub rate: u32,
    /// How often the counters of ports are sent.
    pub polling: Duration,
    /// The router's address, as collectors are to know it.
    pub agent: Option<IpAddr>,
}

/// Reads it, if it is there.
pub(super) fn sflow(file: &Section<'_>) -> Result<Option<Sflow>, Problem> {
    let section = file.table("sflow", "[sflow]")?;
    if !section.is_present() {
        let help = "add [sflow] with `collectors`, or remove the key";
        for port in file.tables("port", "[[port]]")? {
            port.refuse("sflow_rate", "no [sflow] names a collector", help)?;
        }
        return Ok(None);
    }
    let rate = section.number("rate", RATES)?;
    let polling = section.number("polling", 1..=3600)?;
    Ok(Some(Sflow {
        collectors: collectors(&section)?,
        rate: rate.map_or(RATE, Spanned::into_inner),
        polling: polling.map_or(POLLING, |seconds| Duration::from_secs(seconds.into_inner())),
        agent: agent(&section)?,
    }))
}

/// The rate of one port, if it has its own.
pub(super) fn port_rate(port: &Section<'_>) -> Result<Option<u32>, Problem> {
    Ok(port.number("sflow_rate", RATES)?.map(Spanned::into_inner))
}

fn collectors(section: &Section<'_>) -> Result<Vec<CollectorAddress>, Problem> {
    let help = "list where samples go, for example `collectors = [\"192.0.2.5\"]`";
    let list = section.texts("collectors")?.ok_or_else(|| section.missing("collectors", help))?;
    if list.get_ref().is_empty() {
        return Err(Problem::new(list.span(), "`collectors` in [sflow] is empty", "none", help));
    }
    let mut collectors: Vec<CollectorAddress> = Vec::new();
    let mut spans: Vec<Span> = Vec::new();
    for text in list.get_ref() {
        let collector = collector(text)?;
        if let Some(first) = collectors.iter().position(|other| *other == collector) {
            let title = format!("duplicate collector {collector} in `collectors` in [sflow]");
            let help = "remove one of the two";
            return Err(Problem::new(text.span(), title, "a second time", help)
                .also(spans[first].clone(), "first here"));
        }
        collectors.push(collector);
        spans.push(text.span());
    }
    Ok(collectors)
}

fn collector(text: &Spanned<&str>) -> Result<CollectorAddress, Problem> {
    read_collector(text.get_ref()).map_err(|error| {
        let why = match error {
            AddressError::Scheme { .. } => "sFlow has no transport but UDP",
            AddressError::Port { .. } => "the port is no number from 1 to 65535",
            _ => "this names no host",
        };
        let title = format!("`{}` in `collectors` in [sflow] is no collector", text.get_ref());
        let help = "write HOST or HOST:PORT, with an IPv6 address in brackets";
        Problem::new(text.span(), title, why, help)
    })
}

fn agent(section: &Section<'_>) -> Result<Option<IpAddr>, Problem> {
    let Some(text) = section.text("agent")? else { return Ok(None) };
    text.get_ref().parse().map(Some).map_err(|_| {
        Problem::new(
            text.span(),
            "`agent` in [sflow] has to be an address",
            "no IP address",
            "write an address of this router, or leave the key out",
        )
    })
}

const RATES: std::ops::RangeInclusive<u64> = 1..=RATE_MAX as u64;
