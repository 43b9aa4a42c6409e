//! One flow, which the operator has picked: its forwarder, and what keeps it in the kernel.

use std::net::{IpAddr, SocketAddr};

use manylane_api::accelerate::{TransportProtocol, Why, WhyQuestion};

use crate::tables::{accelerate, flows};

/// A flow that the operator can pick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picked {
    /// Both ends as its packets arrive, and the protocol: `10.1.0.1:4000 > 10.2.0.1:53 udp`.
    pub flow: String,
    /// The port that receives the packets; empty if that is not known.
    pub port: String,
    /// What its row knows.
    pub said: Vec<String>,
}

/// A picked flow, and what is said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Detail {
    pub picked: Picked,
    /// What the daemon says, when it has answered.
    pub answer: Option<Result<Why, String>>,
    /// Lines above the first that is shown.
    pub skipped: u16,
}

impl Picked {
    /// Whether both are the same flow, whatever is known of it.
    pub fn is_same(&self, other: &Picked) -> bool {
        (&self.flow, &self.port) == (&other.flow, &other.port)
    }

    /// The question that the daemon answers; none if the daemon cannot know the flow by its ends.
    pub fn question(&self) -> Option<WhyQuestion> {
        let (source, rest) = self.flow.split_once(" > ")?;
        let (destination, protocol) = rest.rsplit_once(' ')?;
        let interface = Some(self.port.clone()).filter(|port| !port.is_empty())?;
        let ends = [source, destination].map(|end| end.parse::<SocketAddr>().ok());
        if let ([Some(source), Some(destination)], Ok(protocol)) =
            (ends, protocol.to_lowercase().parse::<TransportProtocol>())
        {
            return Some(WhyQuestion {
                source: source.ip(),
                destination: destination.ip(),
                interface,
                transport: Some((protocol, [source.port(), destination.port()])),
            });
        }
        let [source, destination] = [source, destination].map(|end| end.parse::<IpAddr>().ok());
        let (source, destination) = (source?, destination?);
        Some(WhyQuestion { source, destination, interface, transport: None })
    }
}

impl Detail {
    /// Of a flow that the daemon has said nothing of yet.
    pub fn of(picked: Picked) -> Detail {
        Detail { picked, answer: None, skipped: 0 }
    }

    /// What is said of it, in lines of any length.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.picked.said.clone();
        if self.picked.question().is_none() {
            return lines;
        }
        if !lines.is_empty() {
            lines.push(String::new());
        }
        match &self.answer {
            None => lines.push("waiting for the daemon".into()),
            Some(Err(error)) => lines.push(format!("no answer: {error}")),
            Some(Ok(why)) => lines.extend(explained(why)),
        }
        lines
    }
}

fn explained(why: &Why) -> Vec<String> {
    let mut lines = vec![accelerate::verdict(why)];
    if let Some(mirror) = &why.mirror {
        lines.push(format!("route: {}", mirror.reason));
    }
    if let Some(flow) = &why.flow {
        lines.push(String::new());
        lines.extend(flows::why_rows(flow).into_iter().map(|row| row.join(": ")));
    }
    for reason in &why.reasons {
        lines.extend([String::new(), format!("{}: {}", reason.what, reason.why)]);
        if !reason.command.is_empty() {
            lines.push(format!("    {}", reason.command));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_api::accelerate::Accelerated;
    use manylane_api::sample::accelerate::Sample;

    fn picked(flow: &str, port: &str) -> Picked {
        Picked { flow: flow.into(), port: port.into(), said: Vec::new() }
    }

    #[test]
    fn a_flow_is_asked_about_by_its_ends() {
        let path = |flow: &str, port: &str| Some(picked(flow, port).question()?.path());
        let why = "/v1/accelerate/why";
        for (flow, port, wanted) in [
            ("10.1.0.1:4000 > 10.2.0.1:53 UDP", "lan", Some("lan/10.1.0.1/10.2.0.1/udp/4000/53")),
            (
                "10.1.0.1:4000 > 10.2.0.1:80 tcp",
                "eth0.7",
                Some("eth0.7/10.1.0.1/10.2.0.1/tcp/4000/80"),
            ),
            (
                "[2001:db8::1]:4000 > [2001:db8::2]:443 tcp",
                "wan",
                Some("wan/2001%3Adb8%3A%3A1/2001%3Adb8%3A%3A2/tcp/4000/443"),
            ),
            ("10.1.0.1 > 10.2.0.1 ICMP", "lan", Some("lan/10.1.0.1/10.2.0.1")),
            ("fe80::1 > ff02::1 protocol 89", "lan", None),
            ("no IP", "lan", None),
            ("10.1.0.1:4000 > 10.2.0.1:80 tcp", "", None),
        ] {
            assert_eq!(path(flow, port), wanted.map(|path| format!("{why}/{path}")), "{flow}");
        }
    }

    #[test]
    fn what_is_said_is_what_the_row_knows_and_what_the_daemon_answers() {
        let flow = "[2001:db8:2::1]:53 > [2001:db8:1::1]:4000 udp";
        let said = vec!["rules: a rule logs".into()];
        let mut detail = Detail::of(Picked { said, ..picked(flow, "wan") });
        assert_eq!(detail.lines(), ["rules: a rule logs", "", "waiting for the daemon"]);
        let question = WhyQuestion { interface: "lan".into(), ..detail.picked.question().unwrap() };
        detail.answer = Some(Ok(Sample.why(&question).expect("lan is known")));
        let lines = detail.lines();
        for line in [
            "Forwarded by wan to 02:00:00:00:00:02.",
            "route: by wan",
            "state: kernel: rules",
            "entry: udp [2001:db8:1::1]:4000 > [2001:db8:2::1]:53",
            "to free them: to log first packets only, put `ct state new` in front of `log`",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line}\n{lines:#?}");
        }
        detail.answer = Some(Err("it hangs".into()));
        assert_eq!(detail.lines().last().map(String::as_str), Some("no answer: it hangs"));
        let unknown = Detail::of(Picked { said: vec!["so".into()], ..picked("no IP", "lan") });
        assert_eq!(unknown.lines(), ["so"]);
    }
}
