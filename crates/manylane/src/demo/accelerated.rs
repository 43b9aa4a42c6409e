//! The demo's second act: the kernel's own router is accelerated while packets pass, and the accelerator is killed.
//!
//! | Phase                     | Who forwards             | Shown by                                               |
//! |---------------------------|--------------------------|--------------------------------------------------------|
//! | before                    | the kernel               | its own counter (proc_pid_net(5): `snmp`, `snmp6`)     |
//! | `manylane accelerate`     | our program, in a child  | the child's API; the kernel's counter stands still     |
//! | after SIGKILL             | the kernel               | its counter goes on, and no host has noticed           |

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::screen::Screen;
use super::stop::Stop;
use super::{DemoError, Ending, NotHere, traffic};
use crate::terminal::table::{bits_per_second, count, lay_out, signed};
use manylane_api::Client;
use manylane_api::accelerate::{AcceleratedLedger, AcceleratedPort, AcceleratorStatus};
use manylane_lab::{Host, Lab, LabOptions};

/// Makes the hosts, and lets packets pass for as long as `lasts`, a third of it in each phase.
pub(super) fn run(lasts: Duration, screen: &mut Screen) -> Result<Ending, NotHere> {
    let lab = Lab::three_hosts(LabOptions { kernel_router: true, ..LabOptions::default() })?;
    screen.say(INTRODUCTION);
    let stop = Stop::after(lasts).map_err(DemoError::Signals)?;
    let (tally, shown) = std::thread::scope(|scope| {
        let tally = scope.spawn(|| traffic::drive(&lab, &stop));
        let shown = phases(&lab.router, lasts / 3, &stop, screen);
        stop.now();
        (tally.join().expect("traffic reports its errors"), shown)
    });
    screen.say(&format!("\n{}", tally.table()));
    let ledger = match shown {
        Ok(ledger) => ledger,
        // What forwards goes on as it was: nothing of the first act is wrong.
        Err(why) => {
            screen.say(&format!("\nNothing was accelerated: {why}"));
            None
        }
    };
    let mut faults = tally.faults();
    if let Some(ledger) = ledger {
        screen.say(&format!("\n{}", sums(&ledger)));
        let passed: u64 = ledger.passed.values().sum();
        if ledger.seen != ledger.forwarded + passed {
            let missing = ledger.seen.abs_diff(ledger.forwarded + passed);
            faults.push(format!("{} packets are in no sum", count(missing)));
        }
    }
    if !faults.is_empty() {
        return Err(DemoError::Faults(faults).into());
    }
    Ok(stop.signal().map_or(Ending::Complete, |signal| Ending::Interrupted { signal }))
}

/// Shows the three phases, a block each second. Without a ledger, it was stopped before there was one.
fn phases(
    router: &Host,
    each: Duration,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<Option<AcceleratedLedger>, String> {
    let mut rows: Vec<Row> = Vec::new();
    show("The kernel's router", router, None, each, &mut rows, stop, screen)?;
    if stop.is_over() {
        return Ok(None);
    }
    let mut child = Accelerator::start(router)?;
    child.wait_until_it_forwards(stop)?;
    show("`manylane accelerate lan wan`", router, Some(&child), each, &mut rows, stop, screen)?;
    let ledger = child.ask("/v1/accelerate/ledger")?;
    drop(child); // By SIGKILL.
    show("After `kill -KILL`", router, None, each, &mut rows, stop, screen)?;
    Ok(Some(ledger))
}

/// One phase, as far as it has come.
struct Row {
    name: &'static str,
    tier: String,
    by_kernel: u64,
    by_us: u64,
    bits: u64,
}

/// Shows a phase until it is over.
fn show(
    name: &'static str,
    router: &Host,
    child: Option<&Accelerator>,
    lasts: Duration,
    rows: &mut Vec<Row>,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<(), String> {
    let (begun, before) = (Instant::now(), Counts::now(router, child)?);
    rows.push(Row { name, tier: before.tier.clone(), by_kernel: 0, by_us: 0, bits: 0 });
    loop {
        let is_over = stop.wait(INTERVAL.min(lasts.saturating_sub(begun.elapsed())));
        let (now, elapsed) = (Counts::now(router, child)?, begun.elapsed().as_secs_f64());
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / elapsed) as u64;
        let row = rows.last_mut().expect("it was pushed above");
        row.tier = now.tier;
        row.by_kernel = rate(now.by_kernel, before.by_kernel);
        row.by_us = rate(now.by_us, before.by_us);
        row.bits = rate(8 * now.bytes, 8 * before.bytes);
        screen.draw(&table(rows));
        if screen.is_gone() {
            stop.now();
        }
        if is_over || begun.elapsed() >= lasts {
            return Ok(());
        }
    }
}

fn table(rows: &[Row]) -> String {
    let rows = rows.iter().map(|row| {
        let Row { name, tier, by_kernel, by_us, bits } = row;
        let name = (*name).to_owned();
        vec![name, tier.clone(), count(*by_kernel), count(*by_us), bits_per_second(*bits)]
    });
    let titles = ["Router", "Tier", ">By the kernel/s", ">By manylane/s", ">Through it"];
    format!("\nmanylane demo, second act\n\n{}", lay_out(&titles, rows))
}

fn sums(ledger: &AcceleratedLedger) -> String {
    let passed = ledger.passed.iter().filter(|(_, packets)| **packets > 0);
    let passed: Vec<_> =
        passed.map(|(reason, packets)| format!("{reason} {}", count(*packets))).collect();
    format!(
        "The accelerator saw {} packets, forwarded {}, and left to the kernel: {}.\nSent less forwarded: {} (counted \
         one after the other, while packets pass).",
        count(ledger.seen),
        count(ledger.forwarded),
        if passed.is_empty() { "none".into() } else { passed.join(", ") },
        signed(-ledger.missing),
    )
}

/// What has been counted until now.
struct Counts {
    tier: String,
    /// Packets that the kernel has forwarded, of both versions.
    by_kernel: u64,
    /// Packets that manylane has.
    by_us: u64,
    /// What came in by both links, whoever forwarded it.
    bytes: u64,
}

impl Counts {
    fn now(router: &Host, child: Option<&Accelerator>) -> Result<Counts, String> {
        let (by_kernel, bytes) = router.run(|| (by_the_kernel(), received_bytes()));
        let ports: Vec<AcceleratedPort> =
            child.map_or(Ok(Vec::new()), |child| child.ask("/v1/accelerate/ports"))?;
        let by_us = ports.iter().map(|port| port.forwarded).sum();
        let tier = ports.first().map_or("kernel", |port| &port.tier).to_owned();
        Ok(Counts { tier, by_kernel, by_us, bytes })
    }
}

/// Of this thread's namespace.
fn by_the_kernel() -> u64 {
    let read =
        |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    v4_forwarded(&read("snmp")).unwrap_or(0) + v6_forwarded(&read("snmp6")).unwrap_or(0)
}

fn v4_forwarded(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "ForwDatagrams")?;
    numbers.split(' ').nth(at)?.parse().ok()
}

fn v6_forwarded(snmp6: &str) -> Option<u64> {
    let line = snmp6.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"))?;
    line.trim().parse().ok()
}

/// Of all links of this thread's namespace but `lo`.
fn received_bytes() -> u64 {
    let dev = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let links = dev.lines().filter_map(|line| line.split_once(':'));
    let links = links.filter(|(name, _)| name.trim() != "lo");
    links.filter_map(|(_, numbers)| numbers.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// This program as `manylane accelerate`, in the router's namespace. Dropped, it is killed: that is the demo.
struct Accelerator {
    child: Child,
    client: Client,
    socket: PathBuf,
}

impl Accelerator {
    fn start(router: &Host) -> Result<Accelerator, String> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let socket = env::temp_dir().join(format!("manylane-demo-{}.sock", process::id()));
        // The kernel ends it when we end, whatever ends us.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).args(["accelerate", "lan", "wan"]);
        command.arg("--socket").arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = router.run(move || command.spawn());
        let child = child.map_err(|error| format!("`manylane accelerate`: {error}"))?;
        Ok(Accelerator { child, client: Client::new(&socket), socket })
    }

    fn wait_until_it_forwards(&mut self, stop: &Stop) -> Result<(), String> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("`manylane accelerate` ended: {status}; try it to see why"));
            }
            match self.client.ask::<AcceleratorStatus>("/v1/daemon") {
                Ok(status) if status.lease.holds => return Ok(()),
                _ if stop.wait(LOOK) => return Err("it was stopped before it began".into()),
                _ => {}
            }
        }
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.client.ask(path).map_err(|error| error.to_string())
    }
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: it may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

const INTRODUCTION: &str = "
Second act: the same hosts, and the router between them is this machine's kernel. Then
`manylane accelerate` takes over what it would only route, while packets pass; then it is killed,
and the kernel goes on.
";
const INTERVAL: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_found_by_their_names() {
        let snmp = "Ip: Forwarding ForwDatagrams InDelivers\nIp: 1 23 4\nTcp: a\n";
        assert_eq!(v4_forwarded(snmp), Some(23));
        let snmp6 = "Ip6InReceives   \t5\nIp6OutForwDatagrams  \t67\n";
        assert_eq!(v6_forwarded(snmp6), Some(67));
        assert_eq!(v4_forwarded(""), None);
    }

    #[test]
    fn each_phase_has_a_line() {
        let row = |name, by_kernel, by_us| Row {
            name,
            tier: "kernel".into(),
            by_kernel,
            by_us,
            bits: 8_000_000,
        };
        let shown =
            table(&[row("The kernel's router", 1000, 0), row("After `kill -KILL`", 0, 2000)]);
        assert!(shown.contains("The kernel's router  kernel"), "{shown}");
        assert!(shown.contains("8.00 Mbit/s"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    }

    #[test]
    fn the_sums_say_what_was_left_to_the_kernel() {
        let mut ledger =
            AcceleratedLedger { seen: 30, forwarded: 20, ..AcceleratedLedger::default() };
        ledger.passed.insert("not_ip".into(), 10);
        ledger.passed.insert("ttl".into(), 0);
        let text = sums(&ledger);
        assert!(
            text.contains("saw 30 packets, forwarded 20, and left to the kernel: not_ip 10."),
            "{text}"
        );
    }
}
