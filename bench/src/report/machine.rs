//! What the figures were taken on.

use std::fs;
use std::process::Command;

use manylane_io::affinity;

pub fn facts() -> Vec<(String, String)> {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line =
            processor.lines().find(|line| line.split(':').next().map(str::trim) == Some(name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim())
    };
    let model = format!(
        "{}, family {}, model {}",
        field("model name"),
        field("cpu family"),
        field("model")
    );
    let cores =
        affinity::cores().map_or_else(|error| error.to_string(), |all| all.len().to_string());
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    let quiet = load.parse().is_ok_and(|load: f64| load < QUIET);
    let load = if quiet {
        load
    } else {
        format!("{load} in the minute before: if something else ran, the figures mean little")
    };
    let facts = [
        ("Processor", model),
        ("Cores to run on", cores),
        ("Kernel", format!("Linux {}", read("/proc/sys/kernel/osrelease").trim())),
        ("Begun", jiff::Timestamp::now().strftime("%-d %B %Y, %H:%M UTC").to_string()),
        ("Load before it", load),
        ("Commit", commit()),
        ("Command", std::env::args().collect::<Vec<_>>().join(" ")),
    ];
    facts.map(|(name, value)| (name.into(), value)).into()
}

/// The source's commit, by git.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let ran =
            Command::new("git").arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args(arguments).output();
        let ran = ran.ok().filter(|ran| ran.status.success())?;
        Some(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
    };
    // The run itself may be written to a file of the repository.
    let changed = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":/",
        ":(top,exclude)testdata/performance*.jsonl",
    ]);
    match (git(&["rev-parse", "--short=12", "HEAD"]), changed.as_deref()) {
        (Some(commit), Some("")) => commit,
        (Some(commit), _) => format!("{commit}, with changes"),
        (None, _) => "unknown".into(),
    }
}

/// What a machine's own housekeeping may be, by load average.
const QUIET: f64 = 0.3;
