//! `manylane show flows --kernel`: connections that the kernel forwards, and what keeps each there.

use std::collections::BTreeMap;
use std::time::Duration;

use manylane_api::accelerate::{
    KernelCounts, KernelFlow, KernelFlows, KernelFlowsRequest, LaneCount,
};

use crate::terminal::table::{bits_per_second, bytes, count, duration, lay_out};

/// The same page, some time before.
pub(crate) struct Before<'p> {
    pub page: &'p KernelFlows,
    pub ago: Duration,
}

/// A page of them. What was `before` tells the rates.
pub(crate) fn page(
    page: &KernelFlows,
    request: &KernelFlowsRequest,
    before: Option<&Before<'_>>,
) -> String {
    let mut text = head(page, request);
    if !page.flows.is_empty() {
        let titles = ["Connection", "NAT", "Way", "Conntrack", "Reason", ">Expires"];
        let former: BTreeMap<_, _> = before
            .iter()
            .flat_map(|before| &before.page.flows)
            .map(|flow| (key(flow), flow.counted))
            .collect();
        let rows = page.flows.iter().map(|flow| {
            let was = former.get(&key(flow)).copied().flatten();
            row(flow, was.zip(before.map(|before| before.ago)))
        });
        text = text + "\n" + &lay_out(&titles, rows);
    }
    if !page.reasons.is_empty() {
        text = text + "\nWhat keeps them in the kernel:\n" + &reasons(&page.reasons);
        text += &rules(&page.flows);
    }
    text
}

fn head(page: &KernelFlows, request: &KernelFlowsRequest) -> String {
    if let Some(trouble) = &page.trouble {
        return format!("No connection can be explained: {trouble}.\n");
    }
    let KernelFlows { total, read, tracked, local, unneeded, is_truncated, .. } = page;
    let pages = total.div_ceil(request.limit.max(1) as u64).max(1);
    let which = match (pages, request.offset as u64 / request.limit.max(1) as u64 + 1) {
        (1, 1) => String::new(),
        (pages, number) => format!("Page {} of {}. ", count(number), count(pages)),
    };
    let least = if *is_truncated { "At least " } else { "" };
    let connections = match total {
        1 => "1 connection".into(),
        total => format!("{} connections", count(*total)),
    };
    let mut text = format!(
        "{which}{least}{connections} that the kernel forwards, of {} in conntrack: {} in the flow table, {} of the router.\n",
        count(*read),
        count(*tracked),
        count(*local)
    );
    if *unneeded > 0 {
        text += &format!("{} are of a family that needs no connection.\n", count(*unneeded));
    }
    if *is_truncated {
        text += "Conntrack has more connections than one request reads or explains: a filter (`--address`, `--port`,\n\
                 `--protocol`, `--transport-port`) finds those that are missing here.\n";
    }
    if !page.counts {
        text += &format!("{NOT_COUNTED}\n");
    }
    text
}

/// Why connections have no rates, and what to do about it.
pub(crate) const NOT_COUNTED: &str = "Conntrack does not count packets, so connections have no rates: `sysctl -w \
                                      net.netfilter.nf_conntrack_acct=1` counts those of later connections.";

/// What tells connections apart: a former one may have had these ends.
pub(crate) fn key(flow: &KernelFlow) -> (u32, &str, &str, &str) {
    (flow.id, &flow.protocol, &flow.source, &flow.destination)
}

/// Sums of both directions; their rates, if the sums of some time ago are known.
fn counted(now: KernelCounts, was: Option<(KernelCounts, Duration)>) -> String {
    let sums = format!("\n{} packets, {}", count(now.packets()), bytes(now.bytes()));
    let Some((was, ago)) = was.filter(|(_, ago)| !ago.is_zero()) else { return sums };
    let rate =
        |of: fn(&KernelCounts) -> u64| of(&now).saturating_sub(of(&was)) as f64 / ago.as_secs_f64();
    let bits = (8.0 * rate(KernelCounts::bytes)).round() as u64;
    let packets = count(rate(KernelCounts::packets).round() as u64);
    format!("{sums}\n{packets} packets/s, {}", bits_per_second(bits))
}

fn row(flow: &KernelFlow, was: Option<(KernelCounts, Duration)>) -> Vec<String> {
    let translated = match flow.nat.as_str() {
        "none" => String::new(),
        "snat" => format!("snat\n{}", flow.translated_source),
        "dnat" => format!("dnat\n> {}", flow.translated_destination),
        _ => format!("{}\n> {}", flow.translated_source, flow.translated_destination),
    };
    let port = |port: &Option<String>| port.clone().unwrap_or_else(|| "-".into());
    vec![
        format!("{} {}\n> {}", flow.protocol, flow.source, flow.destination),
        translated,
        format!("{} > {}", port(&flow.ingress), port(&flow.egress)),
        flow.state.clone() + &flow.counted.map_or_else(String::new, |now| counted(now, was)),
        flow.reason.clone(),
        flow.expires_s.map_or_else(|| "-".into(), duration),
    ]
}

fn reasons(reasons: &[LaneCount]) -> String {
    let row = |one: &LaneCount| vec![one.reason.clone(), count(one.total), one.explanation.clone()];
    lay_out(&["Reason", ">Connections", "What it means"], reasons.iter().map(row))
}

/// The rules of this page, and how to free connections of them.
fn rules(flows: &[KernelFlow]) -> String {
    let text = |flow: &KernelFlow| {
        let obstacle = flow.obstacle.as_ref()?;
        let cure = obstacle.cure.iter().map(|cure| format!("    to free them: {cure}\n"));
        Some(format!("{}\n", obstacle.text) + &cure.collect::<String>())
    };
    let mut lines: Vec<String> = flows.iter().filter_map(text).collect();
    lines.sort_unstable();
    lines.dedup();
    if lines.is_empty() { String::new() } else { "\nRules:\n".to_owned() + &lines.concat() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_api::accelerate::Accelerated;
    use manylane_api::sample::accelerate::Sample;

    fn shown(request: &KernelFlowsRequest) -> String {
        let text = page(&Sample.kernel_flows(request).expect("it has some"), request, None);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(|line| words(line) + "\n").collect()
    }

    #[test]
    fn each_connection_has_its_ends_its_translation_and_its_reason() {
        let text = shown(&KernelFlowsRequest::default());
        for line in [
            "At least 3 connections that the kernel forwards, of 6 in conntrack: 2 in the flow table, 1 of the router.",
            "tcp 10.1.0.1:4001 snat lan > wan",
            "> 10.2.0.1:80 10.2.0.254:4001",
            "> 10.2.0.1:21",
            "lan > -",
            "rules 1 table inet filter, chain forward, handle 4:",
            "table inet filter, chain forward, handle 4: `iifname \"wan\" log`: logs such packets",
            "to free them: to log first packets only, put `ct state new` in front of `log`",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.contains("a filter (`--address`"), "{text}");
    }

    #[test]
    fn a_page_says_which_it_is_and_an_empty_one_has_no_table() {
        let request = KernelFlowsRequest { limit: 1, offset: 1, ..Default::default() };
        let text = shown(&request);
        assert!(text.starts_with("Page 2 of 3. At least 3 connections"), "{text}");
        assert_eq!(text.matches("\n> ").count(), 1, "{text}");
        let none = KernelFlowsRequest { reason: Some("zone".into()), ..Default::default() };
        let text = shown(&none);
        assert!(text.starts_with("At least 0 connections") && !text.contains("Reason"), "{text}");
    }

    #[test]
    fn what_hinders_the_list_is_said() {
        let trouble = Some("the daemon has no table".into());
        let page = page(&KernelFlows { trouble, ..Default::default() }, &Default::default(), None);
        assert_eq!(page, "No connection can be explained: the daemon has no table.\n");
    }

    /// Of the first connection of the sample, 12 packets and 5,700 bytes in all.
    #[test]
    fn two_pages_have_rates_and_without_accounting_the_head_says_what_to_do() {
        let request = KernelFlowsRequest { limit: 1, ..Default::default() };
        let now = Sample.kernel_flows(&request).expect("it has some");
        let mut earlier = now.clone();
        let counted = earlier.flows[0].counted.as_mut().expect("the sample counts");
        (counted.original_packets, counted.reply_bytes) = (3, 4_000);
        let before = Before { page: &earlier, ago: Duration::from_secs(2) };
        let text = page(&now, &request, Some(&before));
        for words in ["12 packets, 5.70 kB", "2 packets/s, 4.00 kbit/s"] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("nf_conntrack_acct"), "{text}");
        let silent = KernelFlows { counts: false, ..now };
        assert!(
            page(&silent, &request, None).contains("sysctl -w net.netfilter.nf_conntrack_acct=1")
        );
    }
}
