//! `manylane accelerate`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use manylane_accelerate::programs::WORKERS_MAX;
use manylane_io::{fatal, heap};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::export::{ExportOptions, SampleOptions, check_rates};
use super::run::ListenOptions;
use super::{SOCKET, USAGE, complain, done, print};
use crate::tables::extent::{self, grouped};
use crate::terminal::table::{count, lay_out};
use manylane_accelerate::accelerator::{
    Accelerator, FLOWS, FLOWS_MAX, LEASE, Options, STALE_LIMIT, TierChoice, examine,
};
use manylane_accelerate::gate::{Bypass, Reason, Standing, Tier};
use manylane_api::accelerate::{Accelerated, UnseenTime};
use manylane_api::{DEFAULT_SOCKET, Extent, Listen};
use manylane_io::privilege::{Keep, Privileges};
use manylane_io::service::{Look, Service};

/// The options of `manylane accelerate`.
#[derive(Debug, Args)]
pub struct CommandOptions {
    /// Interfaces to forward between
    #[arg(value_name = "IF", required = true)]
    interfaces: Vec<String>,
    /// Start also while an interface is missing, and take it up when it appears
    #[arg(long)]
    wait: bool,
    /// Report what would be accelerated and why the rest would not; status 1 if an interface would not
    #[arg(long)]
    dry_run: bool,
    /// Bypass this part of the kernel for forwarded packets
    #[arg(long, value_name = "WHAT")]
    bypass: Vec<BypassName>,
    /// Tier that forwards
    #[arg(long, default_value = TierChoice::default().name(), value_parser = tiers())]
    tier: TierChoice,
    /// Tier of one interface
    #[arg(long, value_name = "IF=TIER", value_parser = port_tier)]
    port_tier: Vec<(String, TierChoice)>,
    /// Longest time to forward without verifying that the tables are as the kernel's [default: 200]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(20..=10_000))]
    lease: Option<u64>,
    /// Longest time to forward by tables that are known to be behind the kernel's [default: 2000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=600_000))]
    stale_limit: Option<u64>,
    /// Connections that may be forwarded one by one where a firewall or NAT decides about them; 0 leaves all packets of such a
    /// router to the kernel [default: 131072]
    #[arg(long, value_name = "N", value_parser = flows)]
    flows: Option<usize>,
    /// Leave a connection to the kernel if a rule counts its packets: forwarded packets move no counter of a rule
    #[arg(long)]
    exact_counters: bool,
    #[command(flatten)]
    export: ExportOptions,
    /// Threads for the tier `workers` [default: number of cores less one]
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    /// Cores of these threads
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    worker_cores: Vec<usize>,
    #[command(flatten)]
    sflow: SampleOptions,
    /// Path of the API's socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    #[command(flatten)]
    listen: ListenOptions,
    /// User to switch to before acceleration begins; needs root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// With `--dry-run`: print JSON
    #[arg(long, requires = "dry_run")]
    json: bool,
}

/// The parts of the kernel that packets may bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BypassName {
    /// nftables and iptables, NAT and connection tracking: forwarded packets skip them
    Netfilter,
}

impl CommandOptions {
    fn options(&self) -> Options {
        let ms = |ms: Option<u64>, otherwise| ms.map_or(otherwise, Duration::from_millis);
        Options {
            waits: self.wait,
            bypass: Bypass { netfilter: self.bypass.contains(&BypassName::Netfilter) },
            tier: self.tier,
            port_tiers: self.port_tier.iter().cloned().collect(),
            lease: ms(self.lease, LEASE),
            stale_limit: ms(self.stale_limit, STALE_LIMIT),
            flows: self.flows.unwrap_or(FLOWS),
            exact_counters: self.exact_counters,
            workers: self.workers,
            worker_cores: self.worker_cores.clone(),
            socket: Some(self.socket.clone()),
            listen: self.listen.over(Listen::default()),
            speaks: true,
            ..Options::new(self.interfaces.clone())
        }
    }
}

/// From 1 to [`WORKERS_MAX`].
fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=WORKERS_MAX).contains(number));
    number.ok_or_else(|| format!("a number from 1 to {WORKERS_MAX} is wanted"))
}

/// From 0 to [`FLOWS_MAX`].
fn flows(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= FLOWS_MAX);
    number.ok_or_else(|| format!("a number from 0 to {FLOWS_MAX} is wanted"))
}

/// The words of a tier, each with its help.
fn tiers() -> impl TypedValueParser<Value = TierChoice> {
    let words =
        TierChoice::ALL.map(|choice| PossibleValue::new(choice.name()).help(choice.meaning()));
    PossibleValuesParser::new(words)
        .map(|word| TierChoice::named(&word).expect("the parser takes these words only"))
}

/// `eth0=driver`.
fn port_tier(text: &str) -> Result<(String, TierChoice), String> {
    let (interface, tier) = text.split_once('=').ok_or("an interface, = and a tier are wanted")?;
    let choice = TierChoice::named(tier).ok_or_else(|| {
        format!("{tier:?} is no tier; auto, ingress, driver, workers and kernel are")
    })?;
    Ok((interface.into(), choice))
}

/// Accelerates until SIGINT or SIGTERM, or reports what a start would do.
pub(super) fn run(options: &CommandOptions) -> ExitCode {
    if options.dry_run { dry_run(options) } else { accelerate(options) }
}

fn accelerate(options: &CommandOptions) -> ExitCode {
    let ipfix = match options.export.resolve(options.flows != Some(0)) {
        Ok(ipfix) => ipfix,
        Err(error) => {
            complain(&format_args!("error: {error}"));
            return USAGE.into();
        }
    };
    if let Err(error) = options.listen.over(Listen::default()).check() {
        complain(&format_args!("error: {error}"));
        return USAGE.into();
    }
    let privileges = match Privileges::new(Keep::Accelerating, options.user.as_deref()) {
        Ok(privileges) => Some(privileges),
        Err(error) => {
            complain(&format_args!("error: {error}"));
            return USAGE.into();
        }
    };
    let sflow = options.sflow.resolve(&options.interfaces);
    let sflow = sflow.and_then(|sflow| check_rates(&ipfix, sflow.as_ref()).map(|()| sflow));
    let sflow = match sflow {
        Ok(sflow) => sflow,
        Err(error) => {
            complain(&format_args!("error: {error}"));
            return USAGE.into();
        }
    };
    let prepared = fatal::detach_links_on_crash().and_then(|()| fatal::disable_core_dumps());
    if let Err(error) = prepared {
        return done::<()>(Err(format!("cannot prepare for the worst: {error}")));
    }
    let mut signals = match Signals::new([SIGINT, SIGTERM]) {
        Ok(signals) => signals,
        Err(error) => return done::<()>(Err(format!("cannot wait for signals: {error}"))),
    };
    heap::return_large_blocks(); // Each dump of the kernel's routes takes tens of MB, for a moment.
    let options = Options { privileges, ipfix, sflow, ..options.options() };
    let accelerator = match Accelerator::start(options) {
        Ok(accelerator) => accelerator,
        Err(error) => return done::<()>(Err(error)),
    };
    // How many interfaces are accelerated was said by then.
    complain(&"manylane: SIGINT or SIGTERM ends it");
    let service = match Service::ready(look(accelerator.source())) {
        Ok(service) => service,
        Err(error) => return done::<()>(Err(format!("cannot make a thread: {error}"))),
    };
    // A thread that panics ends the process, so this thread waits for signals only.
    signals.forever().next();
    drop(service);
    let ledger = accelerator.stop();
    let [passed, dropped] =
        [&ledger.passed, &ledger.dropped].map(|parts| parts.values().sum::<u64>());
    complain(&format_args!(
        "manylane: forwarded {}, left to the kernel {passed}, dropped {dropped}, missing {}",
        ledger.forwarded, ledger.missing
    ));
    // The end itself is not what is meant.
    let before = |time: &UnseenTime| UnseenTime { for_ms: None, ..*time };
    let times: Vec<_> =
        ledger.unseen.iter().map(|(name, time)| (name.as_str(), before(time))).collect();
    for line in extent::unseen(times.iter().map(|(name, time)| (*name, time))).lines() {
        complain(&format_args!("manylane: {line}"));
    }
    ExitCode::SUCCESS
}

/// For the service manager, by what needs no lock of the kernel: a watchdog that waits while another process holds one
/// would have a daemon restarted that forwards well. Each decision on the lease is progress. Only the thread that keeps
/// the tables current decides on the lease. The decision may be to give the lease up: a restart would not make the
/// kernel's changes fewer.
fn look(source: Arc<dyn Accelerated>) -> impl FnMut() -> Look + Send {
    let bypass = source.config().bypass;
    move || {
        let (ports, lease) = (source.states(), source.daemon().lease);
        Look { status: extent::line(&ports, &lease, &bypass), progress: lease.checks }
    }
}

fn dry_run(options: &CommandOptions) -> ExitCode {
    let standings = match examine(&options.options()) {
        Ok(standings) => standings,
        Err(error) => return done::<()>(Err(error)),
    };
    let printed = match options.json {
        true => print(&json(&standings)),
        false => print(&text(&standings)),
    };
    let all = standings.iter().all(|standing| standing.is_ingress && standing.is_egress);
    let by_kernel = options.tier == TierChoice::Kernel;
    if printed == ExitCode::SUCCESS && (!all || by_kernel) { ExitCode::FAILURE } else { printed }
}

fn json(standings: &[Standing]) -> String {
    #[derive(Serialize)]
    struct Plan<'s> {
        interfaces: &'s [Standing],
    }
    let plan = Plan { interfaces: standings };
    serde_json::to_string(&plan).expect("all of it is JSON's") + "\n"
}

/// A table, and a few lines for each reason.
fn text(standings: &[Standing]) -> String {
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let rows = standings.iter().map(|standing| {
        vec![
            standing.interface.clone(),
            standing.tier.to_string(),
            yes(standing.is_ingress),
            yes(standing.is_egress),
            count(standing.reasons.len() as u64),
            count(standing.bypassed.len() as u64),
        ]
    });
    let table = lay_out(&["Interface", "Tier", "Ingress", "Egress", ">Reasons", ">Bypassed"], rows);
    let extent = Extent::of(standings.iter().map(|standing| match standing.tier {
        Tier::Kernel => (false, false),
        _ if !standing.link_up => (false, false),
        _ => (standing.is_ingress, standing.is_egress),
    }));
    let mut all = Vec::new();
    for standing in standings {
        for (word, list) in [
            ("kept in the kernel", &standing.reasons),
            ("bypassed", &standing.bypassed),
            ("note", &standing.notes),
            ("not in the driver, in", &standing.driver.ingress),
            ("not in the driver, out", &standing.driver.egress),
            ("not in the driver by auto", &standing.driver.auto),
            ("not by workers", &standing.driver.sockets),
        ] {
            all.extend(list.iter().map(|reason| (standing.interface.clone(), (word, reason))));
        }
    }
    let more = grouped(all).into_iter().map(|(names, (word, reason))| line(&names, word, reason));
    format!("Started now: {extent}\n\n{table}{}", more.collect::<String>())
}

fn line(interfaces: &str, word: &str, reason: &Reason) -> String {
    let command = reason.command.as_ref().map(|command| format!("  changed by: {command}\n"));
    let (what, why) = (&reason.what, &reason.why);
    format!("\n{interfaces}: {word}: {what}\n  {why}\n{}", command.unwrap_or_default())
}
