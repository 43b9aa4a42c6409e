//! Collectors, and the messages to each.

use manylane_api::accelerate::{
    CollectorStatus, ExportStatus, NatLogStatus, SampledStatus, SflowPort, SflowStatus,
};

use crate::terminal::table::{count, lay_out};

/// A table of collectors, what is wrong with each, the log of translations, and what is sampled.
pub(crate) fn text(status: &ExportStatus) -> String {
    if status.collectors.is_empty() {
        return "Nothing is exported. `manylane accelerate --ipfix udp://HOST` exports flow records, \
                `--sflow HOST` samples; `manylane run` exports samples with [sflow] in its configuration.\n"
            .into();
    }
    let rows = status.collectors.iter().map(|one| {
        vec![
            one.address.clone(),
            one.protocol.clone(),
            one.state.clone(),
            count(one.sent_messages),
            count(one.sent_records),
            count(one.lost_messages),
            count(one.lost_records),
            count(one.refused_messages),
            count(one.connections),
        ]
    });
    let columns = [
        "Collector",
        "Protocol",
        "State",
        ">Sent",
        ">Records",
        ">Lost",
        ">Records lost",
        ">Refused",
        ">Connections",
    ];
    let table = lay_out(&columns, rows);
    let troubles = status.collectors.iter().filter_map(trouble).collect::<String>();
    let records = status.collectors.iter().any(|one| one.protocol == "ipfix");
    let records = if records { records_text(status) } else { String::new() };
    let sampled = status.sampled.as_ref().map(sampled_text).unwrap_or_default();
    let samples = status.sflow.as_ref().map(samples_text).unwrap_or_default();
    format!("{table}{troubles}{records}{sampled}{samples}")
}

fn sampled_text(status: &SampledStatus) -> String {
    let SampledStatus { domain, rate, samples, flows, evicted, lost } = status;
    let [rate, samples, flows, evicted, lost] =
        [(*rate).into(), *samples, *flows, *evicted, *lost].map(count);
    format!(
        "\nSampled flow records: one packet in {rate}; observation domain {domain}\n         Samples in records: {samples}, lost: {lost}; flows without a record yet: {flows}; \
         records early, for want of memory: {evicted}\n"
    )
}

fn records_text(status: &ExportStatus) -> String {
    let ExportStatus { active_s, inactive_s, domain, queue_lost_records, .. } = status;
    let (lost, packets) = (count(*queue_lost_records), count(status.queue_lost_packets));
    let nat_log = status.nat_log.as_ref().map_or_else(|| "NAT log: off\n".into(), nat_log);
    format!(
        "\nObservation domain {domain}; active timeout {active_s} s, inactive timeout {inactive_s} s\n\
         Records lost before any collector: {lost}, of {packets} packets\n{nat_log}"
    )
}

fn samples_text(status: &SflowStatus) -> String {
    let agent = status.agent.map_or_else(|| "unknown".into(), |agent| agent.to_string());
    let SflowStatus { polling_ms, samples, discarded, unreported, .. } = status;
    let seconds = polling_ms / 1000;
    let [samples, discarded, unreported] = [samples, discarded, unreported].map(|one| count(*one));
    let row = |port: &SflowPort| {
        let numbers = [port.rate.into(), port.pool, port.noted, port.lost, port.unreported];
        [port.name.clone()].into_iter().chain(numbers.map(count)).collect()
    };
    let columns = ["Port", ">One in", ">Packets", ">Samples", ">Lost", ">Discards unreported"];
    let table = lay_out(&columns, status.ports.iter().map(row));
    format!(
        "\nsFlow agent {agent}; interface counters every {seconds} s\n\
         Samples made: {samples}; discarded packets reported: {discarded}, unreported: {unreported}\n\n{table}"
    )
}

fn trouble(one: &CollectorStatus) -> Option<String> {
    one.trouble.as_ref().map(|why| format!("{}: {why}\n", one.address))
}

fn nat_log(status: &NatLogStatus) -> String {
    let events = count(status.events);
    let gaps = match status.gaps {
        0 => "none is missing".into(),
        gaps => format!("some are missing: the kernel dropped announcements {} times", count(gaps)),
    };
    let trouble = status.trouble.as_ref();
    let trouble = trouble.map(|why| format!("; nothing is logged now: {why}")).unwrap_or_default();
    format!("NAT log: {events} translations that began or ended; {gaps}{trouble}\n")
}
