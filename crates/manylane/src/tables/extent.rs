//! The first lines about an accelerator: how many interfaces it accelerates, and why not the others.

use manylane_api::Extent;
use manylane_api::accelerate::{AcceleratedPort, LeaseStatus, ReasonStatus, UnseenTime};

use crate::terminal::table::duration;

/// What `manylane show` says first: how many interfaces are accelerated, what keeps the others, what is bypassed.
pub(crate) fn head(ports: &[AcceleratedPort], lease: &LeaseStatus, bypass: &[String]) -> String {
    let mut text = format!("{}.\n", Extent::now(ports, lease.holds));
    if !lease.holds {
        text += "The lease has lapsed: see `manylane show mirror`.\n";
    }
    if !bypass.is_empty() {
        text += &format!("Forwarded packets bypass {}.\n", bypass.join(", "));
    }
    for (names, what) in kept(ports) {
        text += &format!("{names}: {what}\n");
    }
    text + &unseen(ports.iter().map(|port| (port.name.as_str(), &port.unseen)))
}

/// Since when no program is on interfaces, and for how long none was: what passed then is counted nowhere.
pub(crate) fn unseen<'a>(ports: impl IntoIterator<Item = (&'a str, &'a UnseenTime)>) -> String {
    let of_port = |(name, time): (&str, &UnseenTime)| {
        let total = time.total_ms / 1000;
        let what = match (time.for_ms, total) {
            (Some(ms), _) => {
                let present = ms / 1000;
                let all = match total > present {
                    true => format!(" ({} in all since the start)", duration(total)),
                    false => String::new(),
                };
                format!(
                    "no program has looked for {}{all}; what passes is counted nowhere",
                    duration(present)
                )
            }
            // The moment at each start and each new judgement is not worth a line.
            (None, 0) => return None,
            (None, _) => {
                format!(
                    "no program looked for {} since the start; what passed then is counted nowhere",
                    duration(total)
                )
            }
        };
        Some((name.to_owned(), what))
    };
    let lines = grouped(ports.into_iter().filter_map(of_port));
    lines.into_iter().map(|(names, what)| format!("{names}: {what}.\n")).collect()
}

/// The same in one line, for a service manager.
pub(crate) fn line(ports: &[AcceleratedPort], lease: &LeaseStatus, bypass: &[String]) -> String {
    let mut parts = vec![Extent::now(ports, lease.holds).to_string()];
    if !lease.holds {
        parts.push("the lease has lapsed".into());
    }
    if !bypass.is_empty() {
        parts.push(format!("forwarded packets bypass {}", bypass.join(", ")));
    }
    parts.extend(kept(ports).into_iter().map(|(names, what)| format!("{names}: {what}")));
    parts.join("; ")
}

/// What keeps interfaces that are not accelerated, each obstacle once, with their names.
fn kept(ports: &[AcceleratedPort]) -> Vec<(String, String)> {
    let may = |port: &AcceleratedPort| port.ingress && port.egress;
    let kept = ports.iter().filter(|port| !(may(port) && port.link_up));
    let state = |what: &str| ReasonStatus { what: what.into(), ..Default::default() };
    let of_port = |port: &AcceleratedPort| {
        let state = match port.index {
            None => Some(state("the interface does not exist now")),
            // One that is switched off is the gate's reason.
            Some(_) if may(port) => Some(state("the link has no carrier")),
            Some(_) => None,
        };
        let reasons = state.into_iter().chain(port.reasons.iter().cloned());
        reasons.map(|reason| (port.name.clone(), reason)).collect::<Vec<_>>()
    };
    let all = grouped(kept.flat_map(of_port));
    all.into_iter().map(|(names, reason)| (names, reason.what)).collect()
}

/// Each reason once, in their order, with the names of all that have it: what holds for all is said once.
pub(crate) fn grouped<R: PartialEq>(
    reasons: impl IntoIterator<Item = (String, R)>,
) -> Vec<(String, R)> {
    let mut groups: Vec<(String, R)> = Vec::new();
    for (name, reason) in reasons {
        match groups.iter_mut().find(|(_, known)| *known == reason) {
            Some((names, _)) => *names += &format!(", {name}"),
            None => groups.push((name, reason)),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, reasons: &[&str]) -> AcceleratedPort {
        let reason = |what: &&str| ReasonStatus { what: (*what).into(), ..Default::default() };
        AcceleratedPort {
            name: name.into(),
            index: Some(7),
            link_up: true,
            ingress: reasons.is_empty(),
            egress: reasons.is_empty(),
            reasons: reasons.iter().map(reason).collect(),
            ..AcceleratedPort::default()
        }
    }

    fn lease(holds: bool) -> LeaseStatus {
        LeaseStatus { holds, ..LeaseStatus::default() }
    }

    #[test]
    fn how_many_and_why_not_the_others() {
        let free = [port("lan", &[]), port("wan", &[])];
        assert_eq!(head(&free, &lease(true), &[]), "2 of 2 interfaces accelerated.\n");
        assert_eq!(line(&free, &lease(true), &[]), "2 of 2 interfaces accelerated");
        let kept = [port("lan", &["a filter"]), port("wan", &["a filter", "wan is down"])];
        assert_eq!(
            head(&kept, &lease(true), &[]),
            "0 of 2 interfaces accelerated: the kernel forwards everything.\n\
             lan, wan: a filter\nwan: wan is down\n"
        );
        let gone = AcceleratedPort { index: None, ..port("wan", &[]) };
        let gone = AcceleratedPort { ingress: false, egress: false, ..gone };
        assert_eq!(
            line(&[port("lan", &[]), gone], &lease(true), &[]),
            "1 of 2 interfaces accelerated: a packet needs two, so the kernel forwards everything; \
             wan: the interface does not exist now"
        );
    }

    /// `show ports`, `show drops` and the service manager, while a cable is out.
    #[test]
    fn a_port_without_a_carrier_is_not_accelerated_and_that_is_why() {
        let unplugged = AcceleratedPort { link_up: false, ..port("wan", &[]) };
        let ports = [port("lan", &[]), unplugged];
        let first =
            "1 of 2 interfaces accelerated: a packet needs two, so the kernel forwards everything";
        let all = lease(true);
        assert_eq!(line(&ports, &all, &[]), format!("{first}; wan: the link has no carrier"));
        assert_eq!(head(&ports, &all, &[]), format!("{first}.\nwan: the link has no carrier\n"));
        // Switched off, the gate says so, and once is enough.
        let down = AcceleratedPort { link_up: false, ..port("wan", &["wan is down"]) };
        let said = line(&[port("lan", &[]), down], &all, &[]);
        assert_eq!(said, format!("{first}; wan: wan is down"));
    }

    #[test]
    fn the_time_when_no_program_looked_is_said() {
        let time = |for_ms, total_ms| UnseenTime { for_ms, total_ms };
        let said =
            |times: &[(&str, UnseenTime)]| unseen(times.iter().map(|(name, time)| (*name, time)));
        assert_eq!(said(&[("lan", time(None, 999)), ("wan", time(None, 0))]), "");
        let both = [("lan", time(Some(62_000), 62_003)), ("wan", time(Some(62_000), 62_500))];
        let words = "no program has looked for 1 min 2 s; what passes is counted nowhere.\n";
        assert_eq!(said(&both), format!("lan, wan: {words}"));
        assert_eq!(
            said(&[("lan", time(Some(5_000), 65_000)), ("wan", time(None, 7_000))]),
            "lan: no program has looked for 5 s (1 min 5 s in all since the start); what passes is counted nowhere.\n\
             wan: no program looked for 7 s since the start; what passed then is counted nowhere.\n"
        );
    }

    #[test]
    fn a_lapsed_lease_and_what_is_bypassed_are_said() {
        let free = [port("lan", &[]), port("wan", &[])];
        let bypass = ["netfilter".to_owned()];
        assert_eq!(
            head(&free, &lease(false), &bypass),
            "0 of 2 interfaces accelerated: the kernel forwards everything.\n\
             The lease has lapsed: see `manylane show mirror`.\nForwarded packets bypass netfilter.\n"
        );
        let said = line(&free, &lease(true), &bypass);
        assert_eq!(said, "2 of 2 interfaces accelerated; forwarded packets bypass netfilter");
    }
}
