//! The table that is shown while packets pass: one snapshot a second, and what changed since the last. Without a
//! terminal that is a line, and the table stands at the end.

use std::time::{Duration, Instant};

use super::screen::Screen;
use super::stop::Stop;
use crate::tables;
use crate::terminal::table::{bits_per_second, count, lay_out};
use manylane_api::{PortStatus, Source, WorkerStatus};

/// Shows a table about once a second until it is time to stop.
pub(super) fn show(title: &str, source: &dyn Source, stop: &Stop, screen: &mut Screen) {
    let begun = Instant::now();
    let (mut last, mut at) = (source.ports(), begun);
    loop {
        let is_over = stop.wait(INTERVAL);
        let (ports, now) = (source.ports(), Instant::now());
        let elapsed = now.duration_since(at);
        let header = format!("{title}, after {:.0} s", now.duration_since(begun).as_secs_f64());
        let table = table(&header, &last, &ports, elapsed, &source.workers());
        if is_over {
            screen.conclude(&table);
            return;
        }
        screen.show(&table, &line(title, &last, &ports, elapsed));
        if screen.is_gone() {
            stop.now();
        }
        (last, at) = (ports, now);
    }
}

/// All ports in one line.
fn line(title: &str, before: &[PortStatus], ports: &[PortStatus], elapsed: Duration) -> String {
    let sum = |ports: &[PortStatus], of: fn(&PortStatus) -> u64| ports.iter().map(of).sum::<u64>();
    let rate = |of: fn(&PortStatus) -> u64| {
        (sum(ports, of).saturating_sub(sum(before, of)) as f64 / elapsed.as_secs_f64()) as u64
    };
    format!(
        "{title}: received {} packets/s, transmitted {} packets/s, {}",
        count(rate(|port| port.received)),
        count(rate(|port| port.transmitted)),
        bits_per_second(8 * rate(|port| port.transmitted_bytes)),
    )
}

fn table(
    header: &str,
    before: &[PortStatus],
    ports: &[PortStatus],
    elapsed: Duration,
    workers: &[WorkerStatus],
) -> String {
    let rows = ports.iter().zip(before).map(|(now, before)| {
        let rate = |now: u64, before: u64| {
            // A signal may come at once after a table; a float's division by zero is no panic.
            (now.saturating_sub(before) as f64 / elapsed.as_secs_f64()) as u64
        };
        vec![
            now.name.clone(),
            count(now.received),
            count(rate(now.received, before.received)),
            bits_per_second(8 * rate(now.received_bytes, before.received_bytes)),
            count(now.transmitted),
            count(rate(now.transmitted, before.transmitted)),
            bits_per_second(8 * rate(now.transmitted_bytes, before.transmitted_bytes)),
            drops(now),
        ]
    });
    let titles = ["Port", ">Received", ">/s", ">Rate", ">Transmitted", ">/s", ">Rate", "Dropped"];
    let ports = lay_out(&titles, rows);
    let busy: Vec<_> = workers
        .iter()
        .map(|worker| format!("worker {} {:.0} %", worker.worker, worker.busy_percent))
        .collect();
    format!("\n{header}\n\n{ports}\nBusy: {}\n", busy.join(", "))
}

/// One line for each reason. What the device lost is not among them, and has its own line.
fn drops(port: &PortStatus) -> String {
    let lost = tables::lost(port);
    let ours = port.dropped.iter().map(|(reason, frames)| (reason.as_str(), *frames));
    let reasons: Vec<_> = ours
        .chain([("lost by the device", lost)])
        .filter(|(_, frames)| *frames > 0)
        .map(|(reason, frames)| format!("{reason} {}", count(frames)))
        .collect();
    if reasons.is_empty() { "0".into() } else { reasons.join("\n") }
}

const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_api::sample::Sample;

    #[test]
    fn rates_are_of_the_time_between_two_snapshots() {
        let before = Sample.ports();
        let mut after = before.clone();
        after[0].received += 2000;
        after[0].received_bytes += 2_000_000;
        after[1].transmitted += 1000;
        let shown = table("here", &before, &after, Duration::from_secs(2), &Sample.workers());
        assert!(shown.starts_with("\nhere\n\nPort"), "{shown}");
        let lan = shown.lines().find(|line| line.starts_with("lan")).expect("it is a port");
        assert!(lan.contains(" 1,000  8.00 Mbit/s "), "{shown}");
        assert!(lan.contains("hop_limit_exceeded 12"), "{shown}");
        assert!(shown.contains("no_route 1,234,567"), "{shown}");
        assert!(shown.contains("lost by the device 1,2"), "{shown}");
        assert!(shown.ends_with("\nBusy: worker 0 97 %, worker 1 0 %\n"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        let line = line("here", &before, &after, Duration::from_secs(2));
        assert_eq!(line, "here: received 1,000 packets/s, transmitted 500 packets/s, 0 bit/s");
    }
}
