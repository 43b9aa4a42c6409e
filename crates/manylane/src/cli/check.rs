//! A configuration, held against this machine: what `manylane run --check` and `manylane config check` print.

use std::path::Path;
use std::process::ExitCode;

use manylane_api::FrameLine;
use manylane_router::config::{Config, Environment, InterfaceAddress};
use manylane_router::control::{self, Budget, Line};

use crate::tables;
use crate::terminal::{USAGE, complain, print, table};

/// `manylane config check`: as `run --check`.
pub(super) fn check(file: &Path) -> ExitCode {
    let config = match Config::load(file, &Environment::of_this_thread()) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return USAGE.into();
        }
    };
    match control::check_all(&config) {
        Ok(budget) => print(&checked(file, &config, &budget)),
        Err(error) => {
            complain(&format_args!("error: {error}"));
            USAGE.into()
        }
    }
}

pub(super) fn checked(file: &Path, config: &Config, budget: &Budget) -> String {
    let notices = control::notices(&budget.config).into_iter();
    let notices: String = notices.map(|notice| format!("note: {notice}\n")).collect();
    summary(file, &budget.config) + &notices + &sum(config, budget)
}

/// One line to say that the file is good, and one for each port to show how it was understood.
fn summary(file: &Path, config: &Config) -> String {
    let cores: Vec<_> = config.workers.cores.iter().map(u16::to_string).collect();
    let workers = match (config.workers.started, config.workers.count()) {
        (started, most) if started < most => format!("{started} of {most} workers"),
        (_, workers) => table::plural(workers, "worker"),
    };
    let mut text = format!(
        "{}: good; {}, {}, {workers} on core {}\n",
        file.display(),
        table::plural(config.ports.len(), "port"),
        table::plural(config.routes.len(), "route"),
        cores.join(", "),
    );
    for port in &config.ports {
        let mut on = port.driver.name().to_owned();
        if let Some(interface) = port.driver.interface() {
            on += &format!(" on {interface}");
        }
        if let Some(why) = port.chosen {
            on += &format!(": {why}");
        }
        text += &format!("  {} ({on}): {}\n", port.name, listed(&port.addresses));
        for vlan in &port.vlans {
            let (name, tags, addresses) = (&vlan.name, vlan.tags, listed(&vlan.addresses));
            text += &format!("  {name} ({tags} on {}): {addresses}\n", port.name);
        }
    }
    text
}

fn listed(addresses: &[InterfaceAddress]) -> String {
    let list: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    if list.is_empty() { "no addresses".into() } else { list.join(", ") }
}

/// How many frames that takes, and why.
fn sum(config: &Config, budget: &Budget) -> String {
    let shown = |line: &Line| FrameLine {
        holder: line.holder.clone(),
        formula: line.reckoning.clone(),
        frames: line.frames,
    };
    let lines: Vec<_> = budget.lines.iter().map(shown).collect();
    let size = config.frames.size;
    let memory = |frames: u64| table::bytes(frames * u64::from(size));
    let bytes = match budget.spare() {
        0 => memory(budget.frames.into()),
        spare => {
            format!(
                "{}, {} of them for `spare_queues`",
                memory(budget.frames.into()),
                memory(spare)
            )
        }
    };
    let table = tables::sum(&lines, budget.frames.into());
    format!("\nframes of {size} bytes, {bytes}:\n{table}")
}
