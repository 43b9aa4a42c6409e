//! What the figures were taken on.

use std::fs;

use manylane_io::affinity;

pub fn facts() -> Vec<(&'static str, String)> {
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
        format!("{load}: something else ran, and the figures mean little")
    };
    vec![
        ("Processor", model),
        ("Cores to run on", cores),
        ("Kernel", format!("Linux {}", read("/proc/sys/kernel/osrelease").trim())),
        ("Begun", jiff::Timestamp::now().strftime("%-d %B %Y, %H:%M UTC").to_string()),
        ("Load before it", load),
        ("Command", std::env::args().collect::<Vec<_>>().join(" ")),
    ]
}

/// What a machine's own housekeeping may be, by load average.
const QUIET: f64 = 0.3;
