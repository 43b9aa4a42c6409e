//! `manylane doctor --firewall`: what the kernel's rules would do to packets of established connections, by pairs of
//! ports.

use serde::Serialize;

use super::{section_title, wrapped};
use crate::terminal::table::lay_out;
use manylane_accelerate::firewall::{
    Answer, Firewall, Obstacle, Options, Packet, Place, Port, Protocol, Provisos,
};
use manylane_accelerate::gate::Kernel;
use manylane_io::netlink::kernel::Family;

/// What the rules would do to the connections of all pairs.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// What this is about.
    about: &'static str,
    /// Interfaces that were left out, beyond those that are looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    connections: Vec<Connections>,
}

/// Established connections of a protocol, from one port to another.
#[derive(Clone, Debug, Serialize)]
struct Connections {
    from: String,
    to: String,
    family: &'static str,
    protocol: &'static str,
    rules: Rules,
    #[serde(skip_serializing_if = "Option::is_none")]
    obstacle: Option<Obstacle>,
    /// Rules whose counters would stand still.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counters: Vec<Place>,
    /// Rules whose check of the reverse path would have to be done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reverse_path: Vec<Place>,
}

/// What the rules would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Rules {
    /// Accept them and do nothing else.
    Accept,
    /// Something that only the kernel can do, or drop them.
    Kernel,
    /// The flow's addresses and ports decide.
    PerFlow,
}

/// Looks at the rules for all pairs of these interfaces.
pub(super) fn examine(
    interfaces: &[String],
    kernel: &Kernel,
    options: Options,
) -> Result<Report, String> {
    let firewall = Firewall::read().map_err(|error| error.to_string())?;
    let named = |name: &String| {
        let index = kernel.link(name)?.index;
        Some(Port { name: name.clone(), index })
    };
    let ports: Vec<_> = interfaces.iter().take(PORTS_MAX).filter_map(named).collect();
    let pairs = ports.iter().flat_map(|one| ports.iter().map(move |other| (one, other)));
    let mut connections = Vec::new();
    for (ingress, egress) in pairs.filter(|(one, other)| one != other) {
        for (family, protocol) in KINDS {
            let packet = Packet {
                ingress: ingress.clone(),
                egress: egress.clone(),
                family,
                protocol,
                mark: Some(0),
                flow: None,
            };
            connections.push(said(&packet, firewall.may(&packet, options)));
        }
    }
    let left_out = interfaces.iter().skip(PORTS_MAX).cloned().collect();
    Ok(Report { about: ABOUT, left_out, connections })
}

fn said(packet: &Packet, answer: Answer) -> Connections {
    let (rules, obstacle, provisos) = match answer {
        Answer::Yes(provisos) => (Rules::Accept, None, provisos),
        Answer::No(obstacle) => (Rules::Kernel, Some(obstacle), Provisos::default()),
        Answer::AskPerFlow(obstacle) => (Rules::PerFlow, Some(obstacle), Provisos::default()),
    };
    Connections {
        from: packet.ingress.name.clone(),
        to: packet.egress.name.clone(),
        family: if packet.family == Family::V4 { "ipv4" } else { "ipv6" },
        protocol: if packet.protocol == Protocol::Tcp { "tcp" } else { "udp" },
        rules,
        obstacle,
        counters: provisos.counters,
        reverse_path: provisos.reverse_path,
    }
}

impl Report {
    /// Whether the rules accept all of them.
    pub(super) fn is_free(&self) -> bool {
        self.connections.iter().all(|one| one.rules == Rules::Accept)
    }

    /// For people: a row for all pairs of an ingress with the same answers, then what is in the way.
    pub(super) fn text(&self) -> String {
        let mut obstacles: Vec<(Rules, &Obstacle)> = Vec::new();
        let mut rows: Vec<[String; 6]> = Vec::new();
        for pair in self.connections.chunks(KINDS.len()) {
            let [first, ..] = pair else { continue };
            let cells: Vec<_> = pair.iter().map(|one| cell(one, &mut obstacles)).collect();
            match rows.iter_mut().find(|row| row[0] == first.from && row[2..] == cells[..]) {
                Some(row) => row[1] += &format!(", {}", first.to),
                None => {
                    let names = [first.from.clone(), first.to.clone()];
                    let row = names.into_iter().chain(cells).collect::<Vec<_>>();
                    rows.extend(<[String; 6]>::try_from(row));
                }
            }
        }
        let mut said = wrapped(ABOUT, "", "") + "\n";
        let titles = ["From", "To", "IPv4 TCP", "IPv4 UDP", "IPv6 TCP", "IPv6 UDP"];
        said += &lay_out(&titles, rows.into_iter().map(Vec::from));
        if !self.left_out.is_empty() {
            said += &format!(
                "\nleft out: {}; name interfaces to look at these\n",
                self.left_out.join(", ")
            );
        }
        said += &list(&obstacles);
        let places = |of: fn(&Connections) -> &Vec<Place>| {
            let mut all: Vec<_> = self.connections.iter().flat_map(of).collect();
            all.sort();
            all.dedup();
            all
        };
        let counters = places(|one| &one.counters);
        if !counters.is_empty() {
            let words = "such packets would not move the counters of";
            said += &format!(
                "\n{words} {} rules; --exact-counters makes these an obstacle\n",
                counters.len()
            );
        }
        let reverse_path = places(|one| &one.reverse_path);
        if !reverse_path.is_empty() {
            said +=
                "\nthe reverse path of each packet would have to be checked, as these rules do\n";
            said += &reverse_path
                .iter()
                .map(|place| wrapped(&place.to_string(), "- ", "  "))
                .collect::<String>();
        }
        said
    }
}

fn cell<'r>(one: &'r Connections, obstacles: &mut Vec<(Rules, &'r Obstacle)>) -> String {
    let Some(obstacle) = &one.obstacle else { return "accepted".into() };
    let known = (one.rules, obstacle);
    let place = obstacles.iter().position(|other| *other == known).unwrap_or_else(|| {
        obstacles.push(known);
        obstacles.len() - 1
    });
    let word = if one.rules == Rules::Kernel { "kernel" } else { "per flow" };
    format!("{word} [{}]", place + 1)
}

fn list(obstacles: &[(Rules, &Obstacle)]) -> String {
    let mut said = String::new();
    if !obstacles.is_empty() {
        said += &section_title("in the way");
    }
    for (number, (rules, obstacle)) in obstacles.iter().enumerate() {
        let some =
            if *rules == Rules::PerFlow { "; the flow's addresses and ports decide" } else { "" };
        said += &wrapped(&format!("[{}] {obstacle}{some}", number + 1), "", "    ");
        if let Some(cure) = &obstacle.cure {
            said += &wrapped(&format!("to free them: {cure}"), "    ", "    ");
        }
    }
    said
}

const ABOUT: &str = "What the rules of this router would do to packets of established connections. This version of \
                     manylane leaves all packets to the kernel where such rules exist: the table shows what a \
                     forwarder beside the kernel would be allowed to take, and what would be in its way.";
const KINDS: [(Family, Protocol); 4] = [
    (Family::V4, Protocol::Tcp),
    (Family::V4, Protocol::Udp),
    (Family::V6, Protocol::Tcp),
    (Family::V6, Protocol::Udp),
];
/// Their pairs are 552.
const PORTS_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_accelerate::firewall::Cause;

    fn obstacle() -> Obstacle {
        let place = Place {
            is_legacy: false,
            family: "inet".into(),
            table: "filter".into(),
            chain: "forward".into(),
            handle: Some(4),
            rule: "iifname \"wan\" log".into(),
        };
        Obstacle {
            place,
            cause: Cause::Log,
            unknown: None,
            cure: Some("log first packets only".into()),
        }
    }

    fn report() -> Report {
        let mut connections = Vec::new();
        for (from, to) in [("lan", "wan"), ("lan", "dmz"), ("wan", "lan")] {
            for (family, protocol) in KINDS {
                let port = |name: &str| Port { name: name.into(), index: 1 };
                let (ingress, egress) = (port(from), port(to));
                let packet = Packet { ingress, egress, family, protocol, mark: None, flow: None };
                let answer = match (from, protocol) {
                    ("lan", _) => Answer::Yes(Provisos::default()),
                    (_, Protocol::Tcp) => Answer::No(obstacle()),
                    (_, Protocol::Udp) => Answer::AskPerFlow(obstacle()),
                };
                connections.push(said(&packet, answer));
            }
        }
        Report { about: ABOUT, left_out: vec!["more".into()], connections }
    }

    #[test]
    fn equal_pairs_share_a_row_and_equal_obstacles_a_number() {
        let text = report().text();
        let (_, table) = text.split_once("be in its way.\n\n").expect("the sentence is first");
        assert_eq!(
            table,
            "From  To        IPv4 TCP    IPv4 UDP      IPv6 TCP    IPv6 UDP
───────────────────────────────────────────────────────────────────
lan   wan, dmz  accepted    accepted      accepted    accepted
wan   lan       kernel [1]  per flow [2]  kernel [1]  per flow [2]

left out: more; name interfaces to look at these

in the way
[1] table inet filter, chain forward, handle 4: `iifname \"wan\" log`: logs such packets
    to free them: log first packets only
[2] table inet filter, chain forward, handle 4: `iifname \"wan\" log`: logs such packets; the flow's
    addresses and ports decide
    to free them: log first packets only
"
        );
    }

    #[test]
    fn for_programs() {
        let json = serde_json::to_value(report()).expect("it is JSON");
        let one = &json["connections"][8];
        assert_eq!((&one["from"], &one["rules"]), (&"wan".into(), &"kernel".into()));
        assert_eq!(one["obstacle"]["cause"], "log");
        assert_eq!(one["obstacle"]["handle"], 4);
        assert!(!report().is_free());
    }
}
