//! `manylane doctor`: what may be accelerated on this machine, what stays in the kernel and why; with `--capture`, what
//! packet sockets wait for; with `--firewall`, what the rules would do to established connections.
//!
//! | Exit status | Meaning                                                       |
//! |-------------|---------------------------------------------------------------|
//! | 0           | all interfaces looked at could be accelerated                 |
//! | 1           | something keeps packets of one in the kernel                  |
//! | 2           | no such interface exists, or it cannot be looked at           |

mod firewall;
mod sockets;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use self::sockets::Finding;
use super::{USAGE, complain, print};
use crate::tables::extent::grouped;
use crate::terminal::table::lay_out;
use manylane_accelerate::firewall::Options;
use manylane_accelerate::gate::{
    Bypass, Gate, GateError, Kernel, Reason, Standing, programs_of_others,
};

/// What `manylane doctor` takes.
#[derive(Debug, Args)]
pub(super) struct DoctorOptions {
    /// The interfaces to look at; all Ethernet interfaces without
    #[arg(value_name = "IF")]
    interfaces: Vec<String>,
    /// Look as `manylane accelerate` does when that is overridden: netfilter
    #[arg(long, value_name = "NAME")]
    bypass: Vec<String>,
    /// Also measure what packet sockets wait for
    #[arg(long)]
    capture: bool,
    /// Instead, show what the firewall's rules would do to packets of established connections, by pairs of interfaces
    #[arg(long, conflicts_with_all = ["bypass", "capture"])]
    firewall: bool,
    /// With --firewall: a rule that counts packets is in the way, too
    #[arg(long, requires = "firewall")]
    exact_counters: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl DoctorOptions {
    /// On how many interfaces packet sockets are tried. What they wait for is the machine's, and each look takes a
    /// tenth of a second.
    fn measured(&self, interfaces: usize) -> usize {
        match (self.capture, self.interfaces.is_empty()) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => interfaces,
        }
    }
}

/// Looks, and says what was found.
pub(super) fn run(options: &DoctorOptions) -> ExitCode {
    if options.firewall {
        return run_firewall(options);
    }
    let examinations = match examine(options) {
        Ok(examinations) => examinations,
        Err(error) => {
            complain(&format_args!("error: {error}"));
            return USAGE.into();
        }
    };
    let said = match options.json {
        true => json(&examinations),
        false => text(&examinations),
    };
    let is_free = examinations.iter().all(|examination| examination.standing.is_free());
    match print(&said) {
        ExitCode::SUCCESS if !is_free => ExitCode::FAILURE,
        status => status,
    }
}

/// Looks at the rules of the firewall, and says what was found.
fn run_firewall(options: &DoctorOptions) -> ExitCode {
    let strict = Options { exact_counters: options.exact_counters };
    let report = match chosen(&options.interfaces) {
        Ok((kernel, interfaces)) => firewall::examine(&interfaces, &kernel, strict),
        Err(error) => Err(error.to_string()),
    };
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            complain(&format_args!("error: {error}"));
            return USAGE.into();
        }
    };
    let said = match options.json {
        true => serde_json::to_string(&report).expect("numbers and words are JSON") + "\n",
        false => report.text(),
    };
    match print(&said) {
        ExitCode::SUCCESS if !report.is_free() => ExitCode::FAILURE,
        status => status,
    }
}

/// One interface.
#[derive(Debug, Serialize)]
struct Examination {
    #[serde(flatten)]
    standing: Standing,
    /// `None` without the option, or where packet sockets were refused.
    #[serde(flatten)]
    sockets: Option<Finding>,
    /// Why nothing is said of packet sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_sockets_error: Option<String>,
}

fn examine(options: &DoctorOptions) -> Result<Vec<Examination>, String> {
    let bypass = Bypass::named(&options.bypass).map_err(|error| error.to_string())?;
    let standings = judge(&options.interfaces, bypass).map_err(|error| error.to_string())?;
    let measured = options.measured(standings.len());
    let examination = |(place, standing): (usize, Standing)| {
        let looked = (place < measured).then(|| sockets::examine(&standing.interface));
        let (sockets, packet_sockets_error) = match looked {
            Some(Ok(finding)) => (Some(finding), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        Examination { standing, sockets, packet_sockets_error }
    };
    Ok(standings.into_iter().enumerate().map(examination).collect())
}

fn judge(interfaces: &[String], bypass: Bypass) -> Result<Vec<Standing>, GateError> {
    let mut gate = Gate::open(programs_of_others())?;
    let (kernel, interfaces) = chosen(interfaces)?;
    Ok(gate.evaluate(&kernel, &interfaces, bypass.into())?.standings)
}

/// The interfaces to look at: those named, which have to be there, or all.
fn chosen(interfaces: &[String]) -> Result<(Kernel, Vec<String>), GateError> {
    let kernel = Kernel::read()?;
    if let Some(name) = interfaces.iter().find(|name| kernel.link(name).is_none()) {
        let present = kernel.links.iter().map(|link| link.name.clone()).collect();
        return Err(GateError::NoSuchInterface { name: name.clone(), present });
    }
    let interfaces = match interfaces {
        [] => kernel.ethernet(),
        some => some.to_vec(),
    };
    Ok((kernel, interfaces))
}

/// One JSON document: a list, one object for each interface.
fn json(examinations: &[Examination]) -> String {
    serde_json::to_string(examinations).expect("numbers and words are JSON") + "\n"
}

/// For people: what is so, then why, first what is so for all.
fn text(examinations: &[Examination]) -> String {
    let standings: Vec<_> = examinations.iter().map(|examination| &examination.standing).collect();
    let Some(first) = standings.first() else {
        return "this network namespace has no Ethernet interface\n".into();
    };
    let mut said =
        lay_out(&["Interface", "Tier", "In", "Out", "Kept by"], standings.iter().map(row));
    let free = standings.iter().filter(|standing| standing.is_free()).count();
    said += &format!("\n{free} of {} can be accelerated as they are\n", standings.len());
    said += &section("all interfaces", findings(first, |reason| reason.is_everywhere));
    for (names, findings) in shared(&standings) {
        said += &section(&names, findings);
    }
    for Examination { standing, sockets, packet_sockets_error } in examinations {
        match (sockets, packet_sockets_error) {
            (Some(finding), _) => said += &format!("\n{}", finding.text(&standing.interface)),
            (None, Some(error)) => said += &format!("\n{error}\n"),
            (None, None) => {}
        }
    }
    said
}

fn row(standing: &&Standing) -> Vec<String> {
    let yes = |is_so| if is_so { "yes" } else { "no" }.to_owned();
    let mut kept: Vec<_> = standing.reasons.iter().map(|reason| reason.about.to_string()).collect();
    kept.dedup();
    vec![
        standing.interface.clone(),
        standing.tier.to_string(),
        yes(standing.is_ingress),
        yes(standing.is_egress),
        kept.join(", "),
    ]
}

/// The findings on an interface, each with its effect.
fn findings(
    standing: &Standing,
    is_meant: impl Fn(&Reason) -> bool + Copy,
) -> Vec<(&'static str, &Reason)> {
    [
        ("kept in the kernel", &standing.reasons),
        ("overridden", &standing.bypassed),
        ("note", &standing.notes),
        ("not in the driver, in", &standing.driver.ingress),
        ("not in the driver, out", &standing.driver.egress),
        ("not in the driver by auto", &standing.driver.auto),
        ("not by workers", &standing.driver.sockets),
    ]
    .into_iter()
    .flat_map(|(word, reasons)| reasons.iter().map(move |reason| (word, reason)))
    .filter(|(_, reason)| is_meant(reason))
    .collect()
}

/// What is so for some interfaces, with their names: what many have is said once.
fn shared<'s>(standings: &[&'s Standing]) -> Vec<(String, Vec<(&'static str, &'s Reason)>)> {
    let of = |standing: &&'s Standing| {
        let found = findings(standing, |reason| !reason.is_everywhere);
        let name = standing.interface.clone();
        found.into_iter().map(move |finding| (name.clone(), finding))
    };
    let mut sections: Vec<(String, Vec<_>)> = Vec::new();
    for (names, finding) in grouped(standings.iter().flat_map(of)) {
        match sections.iter_mut().find(|(known, _)| *known == names) {
            Some((_, findings)) => findings.push(finding),
            None => sections.push((names, vec![finding])),
        }
    }
    sections
}

fn section_title(title: &str) -> String {
    format!("\n{title}\n")
}

fn section(title: &str, findings: Vec<(&'static str, &Reason)>) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut said = section_title(title);
    for (word, reason) in findings {
        said += &wrapped(&format!("{word}: {}", reason.what), "- ", "  ");
        said += &wrapped(&reason.why, "  ", "  ");
        if let Some(command) = &reason.command {
            said += &format!("  $ {command}\n"); // In one piece, to be copied.
        }
    }
    said
}

/// In lines of at most [`WIDTH`] columns.
fn wrapped(text: &str, first: &str, others: &str) -> String {
    let mut said = String::new();
    let mut line = first.to_owned();
    let mut is_begun = false;
    for word in text.split(' ') {
        if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            said += &line;
            said += "\n";
            line = others.to_owned();
            is_begun = false;
        }
        if is_begun {
            line += " ";
        }
        line += word;
        is_begun = true;
    }
    said + &line + "\n"
}

/// As the tables are.
const WIDTH: usize = 100;

#[cfg(test)]
mod tests;
