//! The exporter and the log of translations, where a collector is configured.

use std::time::Duration;

use manylane_api::accelerate::{CollectorStatus, ExportStatus, NatLogStatus};
use manylane_export::Destination;
use manylane_export::collector;
use manylane_export::ipfix::{Exporter, ExporterOptions, ExporterWatch};

use super::{AccelerateError, refused};
use crate::lane::ExportTerms;
use crate::nat_log::{NatLog, NatWatch};

/// Flow records of the connections that are forwarded one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpfixOptions {
    /// Where records go; without any, nothing is recorded.
    pub collectors: Vec<Destination>,
    /// A flow that lasts has a record this often.
    pub active: Duration,
    /// A flow without packets for this long has its record.
    pub inactive: Duration,
    /// The observation domain's number.
    pub domain: u32,
    /// Whether translations that begin and end are records, too: of all the router's connections.
    pub nat_events: bool,
    /// One packet in how many is a sample, of packets that are forwarded without an entry of the flow table; their flow
    /// records have [an observation domain of their own](IpfixOptions::sampled_domain). Without it they have no records.
    pub sampling: Option<u32>,
}

impl Default for IpfixOptions {
    fn default() -> IpfixOptions {
        let (active, inactive) = (IPFIX_ACTIVE, IPFIX_INACTIVE);
        let (collectors, sampling) = (Vec::new(), None);
        IpfixOptions { collectors, active, inactive, domain: 1, nat_events: true, sampling }
    }
}

impl IpfixOptions {
    /// The observation domain of sampled flow records: collectors apply one rate to all records of a domain. The number is
    /// far from those that operators give to routers.
    pub fn sampled_domain(&self) -> u32 {
        self.domain ^ 1 << 31
    }
}

/// A flow that lasts has a record this often.
pub const IPFIX_ACTIVE: Duration = Duration::from_secs(60);
/// A flow without packets for this long has its record.
pub const IPFIX_INACTIVE: Duration = Duration::from_secs(15);

/// The threads. Fields are dropped in this order: the exporter sends what the log has heard.
pub(super) struct Export {
    nat_log: Option<NatLog>,
    exporter: Exporter,
    options: IpfixOptions,
}

/// What others see of them.
#[derive(Clone, Debug)]
pub(super) struct ExportView {
    exporter: ExporterWatch,
    nat_log: Option<NatWatch>,
    options: IpfixOptions,
}

impl Export {
    /// Starts both threads, if the options name a collector.
    pub fn start(options: &IpfixOptions) -> Result<Option<Export>, AccelerateError> {
        if options.collectors.is_empty() {
            return Ok(None);
        }
        let settings = ExporterOptions { domain: options.domain, ..ExporterOptions::default() };
        let exporter = Exporter::start(options.collectors.clone(), settings);
        let exporter = exporter.map_err(refused("a thread"))?;
        let nat_log = options.nat_events.then(|| NatLog::start(exporter.sender())).transpose();
        let nat_log = nat_log.map_err(refused("a thread"))?;
        Ok(Some(Export { nat_log, exporter, options: options.clone() }))
    }

    /// What the lane is to do.
    pub fn terms(&self) -> ExportTerms {
        let IpfixOptions { active, inactive, .. } = self.options;
        ExportTerms { sender: self.exporter.sender(), active, inactive }
    }

    /// What others see.
    pub fn view(&self) -> ExportView {
        ExportView {
            exporter: self.exporter.watch(),
            nat_log: self.nat_log.as_ref().map(NatLog::watch),
            options: self.options.clone(),
        }
    }
}

impl ExportView {
    /// As the API has it.
    pub fn status(&self) -> ExportStatus {
        let exported = self.exporter.status();
        let IpfixOptions { active, inactive, domain, .. } = self.options;
        let nat = self.nat_log.as_ref().map(|watch| {
            let status = watch.status();
            NatLogStatus { events: status.events, gaps: status.gaps, trouble: status.trouble }
        });
        ExportStatus {
            collectors: exported
                .collectors
                .into_iter()
                .map(|(address, status)| collector(address, "ipfix", status))
                .collect(),
            active_s: active.as_secs(),
            inactive_s: inactive.as_secs(),
            domain,
            queue_lost_records: exported.queue_lost.records,
            queue_lost_packets: exported.queue_lost.packets,
            nat_log: nat,
            ..ExportStatus::default()
        }
    }
}

/// A collector, as the API has it.
pub(super) fn collector(
    address: String,
    protocol: &str,
    status: collector::CollectorStatus,
) -> CollectorStatus {
    CollectorStatus {
        address,
        protocol: protocol.into(),
        state: status.state.name().into(),
        trouble: status.trouble,
        sent_messages: status.sent,
        sent_bytes: status.sent_bytes,
        sent_records: status.sent_records,
        lost_messages: status.lost,
        lost_records: status.lost_records,
        refused_messages: status.refused,
        connections: status.connections,
    }
}
