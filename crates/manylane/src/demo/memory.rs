//! The demo in memory: generators at the far ends of four ports send, and check what arrives.

use std::time::Duration;

use manylane_net::generate::FarEndReport;

use super::screen::Screen;
use super::stop::Stop;
use super::{DemoError, Ending, conclude, live};
use crate::terminal::table::{count, lay_out};
use manylane_api::Ledger;
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;

/// Forwards between four ports in memory for as long as `lasts`, and shows it.
pub(super) fn run(
    lasts: Duration,
    why: &str,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<Ending, DemoError> {
    let environment = Environment::of_this_thread();
    let config = Config::parse(CONFIG, "demo.toml", &environment).map_err(DemoError::Config)?;
    let daemon = Daemon::start(config).map_err(DemoError::Start)?;

    screen.say(&format!("{INTRODUCTION}Why in memory: {why}."));
    stop.begin(Some(lasts));
    live::show("manylane demo --memory", daemon.source().as_ref(), stop, screen);

    let far_ends = daemon.far_ends();
    let ledger = daemon.stop();
    let far_ends: Vec<_> = far_ends
        .into_iter()
        .map(|(port, reader)| Streamed { port, report: reader.report() })
        .collect();
    screen.say(&format!("\n{}", table(&far_ends)));
    conclude(faults(&far_ends, &ledger), &ledger, stop, screen)
}

/// A port whose far end sends a stream and receives another's.
struct Streamed {
    port: String,
    report: FarEndReport,
}

fn table(far_ends: &[Streamed]) -> String {
    let titles =
        ["Far end of", ">Sent", ">Arrived", ">Late", ">Twice", ">Damaged", ">ARP, ND answered"];
    let rows = far_ends.iter().map(|Streamed { port, report }| {
        let FarEndReport { sent, total, corrupted, answers_sent, .. } = report;
        let numbers =
            [*sent, total.received, total.reordered, total.duplicated, *corrupted, *answers_sent];
        let numbers = numbers.into_iter().map(count);
        std::iter::once(port.clone()).chain(numbers).collect()
    });
    lay_out(&titles, rows)
}

/// What is wrong, if anything. Packets that were dropped when the router stopped are in the ledger:
/// they are not missing.
fn faults(far_ends: &[Streamed], ledger: &Ledger) -> Vec<String> {
    let mut faults = Vec::new();
    for Streamed { port, report } in far_ends {
        let total = &report.total;
        for (number, what) in [
            (total.reordered, "late"),
            (total.duplicated, "twice"),
            (report.corrupted, "damaged"),
            (report.unexpected, "of no stream"),
        ] {
            if number > 0 {
                faults.push(format!("{} packets arrived {what} behind {port}", count(number)));
            }
        }
        if total.received == 0 {
            faults.push(format!("nothing arrived behind {port}"));
        }
    }
    let sum = |of: fn(&FarEndReport) -> u64| -> u64 {
        far_ends.iter().map(|far_end| of(&far_end.report)).sum()
    };
    let (sent, arrived) = (sum(|report| report.sent), sum(|report| report.total.received));
    let dropped: u64 = ledger.dropped.values().sum();
    if sent > arrived + dropped {
        let lost = count(sent - arrived - dropped);
        faults.push(format!("{lost} packets neither arrived nor were dropped for a reason"));
    }
    faults
}

const INTRODUCTION: &str = "\
manylane between four ports in memory. At the far end of each, a generator sends a stream, numbered
and summed, and checks the one that arrives: IPv4 between two, IPv6 between the other two.
Ctrl-C ends it.
";

/// Small packets one way, large ones back. Streams go to networks behind a neighbour: one question by
/// ARP or ND, then a lookup for each packet.
///
/// A generator sends at full speed from the first moment: what it sends before the answer to ARP or ND
/// is held, so the hold queues are longer than the default.
const CONFIG: &str = r#"
[neighbour]
hold_per_entry = 2048
hold_per_worker = 8192

[[port]]
name = "west4"
driver = "memory"
addresses = ["10.1.0.254/24"]
[port.generate]
source = "10.1.0.1"
destination = "10.20.0.0/16"
flows = 256

[[port]]
name = "east4"
driver = "memory"
addresses = ["10.2.0.254/24"]
[port.generate]
source = "10.2.0.1"
destination = "10.10.0.0/16"
flows = 256
size = 1514

[[port]]
name = "west6"
driver = "memory"
addresses = ["2001:db8:1::fe/64"]
[port.generate]
source = "2001:db8:1::1"
destination = "2001:db8:20::/48"
flows = 256
size = 84

[[port]]
name = "east6"
driver = "memory"
addresses = ["2001:db8:2::fe/64"]
[port.generate]
source = "2001:db8:2::1"
destination = "2001:db8:10::/48"
flows = 256
size = 1514

[[route]]
prefix = "10.10.0.0/16"
via = "10.1.0.1"

[[route]]
prefix = "10.20.0.0/16"
via = "10.2.0.1"

[[route]]
prefix = "2001:db8:10::/48"
via = "2001:db8:1::1"

[[route]]
prefix = "2001:db8:20::/48"
via = "2001:db8:2::1"
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_net::generate::StreamReport;

    fn far_end(sent: u64, received: u64) -> Streamed {
        let total = StreamReport { received, ..StreamReport::default() };
        let report = FarEndReport { sent, total, ..FarEndReport::default() };
        Streamed { port: "west4".into(), report }
    }

    #[test]
    fn what_was_dropped_for_a_reason_is_not_lost() {
        let far_ends = [far_end(100, 90), far_end(100, 100)];
        let mut ledger = Ledger::default();
        assert_eq!(
            faults(&far_ends, &ledger),
            ["10 packets neither arrived nor were dropped for a reason"]
        );
        ledger.dropped.insert("shutdown".into(), 10);
        assert_eq!(faults(&far_ends, &ledger), Vec::<String>::new());
    }

    #[test]
    fn order_copies_and_damage_are_faults() {
        let mut bad = far_end(3, 3);
        bad.report.total.reordered = 1;
        bad.report.total.duplicated = 2;
        bad.report.corrupted = 3;
        assert_eq!(
            faults(&[bad, far_end(0, 0)], &Ledger::default()),
            [
                "1 packets arrived late behind west4",
                "2 packets arrived twice behind west4",
                "3 packets arrived damaged behind west4",
                "nothing arrived behind west4",
            ]
        );
    }

    #[test]
    fn the_configuration_is_good() {
        let environment = Environment::of_this_thread();
        let config = Config::parse(CONFIG, "demo.toml", &environment);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((config.ports.len(), config.routes.len()), (4, 4));
    }
}
