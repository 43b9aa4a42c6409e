//! The peer's program: builds it, starts it, and has it measure.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;

use crate::prelude::{Duration, Result};

/// Builds the peers, unless they are newer than their sources, and returns the forwarder's path. `pkg_config` names
/// another program than the usual one.
pub fn build(pkg_config: Option<&str>) -> Result<PathBuf> {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (script, folder) = (bench.join("peers/build"), bench.join("../target/peers"));
    let mut build = Command::new(&script);
    build.arg(&folder);
    if let Some(program) = pkg_config {
        build.env("PKG_CONFIG", program);
    }
    let done = build.output().map_err(|error| format!("{}: {error}", script.display()))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("--peer dpdk: {}", said.trim_end()).into());
    }
    Ok(folder.join("peer-forward"))
}

/// What the program says when it has loaded the table.
#[derive(Deserialize)]
pub struct Ready {
    pub version: String,
    /// Family and lookup.
    pub ways: Vec<(String, String)>,
}

/// What the program says of one measurement.
#[derive(Deserialize)]
struct Answer {
    ns: f64,
    frames: u64,
    dropped: u64,
}

/// The program, while it runs. The program waits for its standard input while manylane is measured, and takes no time.
pub struct Program {
    child: Child,
    /// `None` at the end: the program ends when this is closed.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    pub ready: Ready,
}

impl Program {
    /// Starts `program` on `core`. `write_table` writes the table's file.
    pub fn start(
        program: &Path,
        core: usize,
        write_table: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<Program> {
        let path =
            std::env::temp_dir().join(format!("manylane-bench-{}.table", std::process::id()));
        let written = File::create(&path).and_then(|file| {
            let mut to = BufWriter::new(file);
            write_table(&mut to)?;
            to.flush()
        });
        let started = written
            .map_err(|error| format!("{}: {error}", path.display()).into())
            .and_then(|()| Program::load(program, core, &path));
        let _ = fs::remove_file(&path); // Whether it was written or not, nothing reads it now.
        started
    }

    fn load(program: &Path, core: usize, table: &Path) -> Result<Program> {
        let mut child = Command::new(program)
            .args(["--no-huge", "-m", "64", "--no-pci", "--no-telemetry", "--no-shconf"])
            .args(["--iova-mode=va", "--force-max-simd-bitwidth=512", "--log-level=*:3", "-l"])
            .arg(core.to_string())
            .arg("--")
            .arg(table)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let to = child.stdin.take();
        let mut from = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let ready = read_line(&mut from);
        let ready = ready.and_then(|line| Ok(serde_json::from_str(&line)?));
        match ready {
            Ok(ready) => Ok(Program { child, to, from, ready }),
            Err(error) => {
                drop(to);
                let status = child.wait()?;
                Err(format!("{} could not load the table ({status}): {error}", program.display())
                    .into())
            }
        }
    }

    /// Nanoseconds a frame. An error when a frame was not forwarded.
    pub fn measure(&mut self, row: &str, way: &str, slice: Duration) -> Result<f64> {
        let to = self.to.as_mut().expect("it is taken at the end only");
        writeln!(to, "{row} {way} {}", slice.as_millis())?;
        let answer: Answer = serde_json::from_str(&read_line(&mut self.from)?)?;
        match answer {
            Answer { dropped: 0, frames: 1.., ns } => Ok(ns),
            Answer { dropped, .. } => {
                Err(format!("{row}: DPDK's forwarder with {way} dropped {dropped} frames").into())
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait(); // The program has ended, or the system says why not; the figures are printed.
    }
}

fn read_line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Err("DPDK's forwarder ended; the lines before say why".into()),
        _ => Ok(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_dpdk_an_error_names_the_package() {
        let error = build(Some("false")).expect_err("no libdpdk is found");
        let error = error.to_string();
        assert!(error.starts_with("--peer dpdk: DPDK's development package is missing"), "{error}");
        assert!(
            error.contains("apt-get install libdpdk-dev") && error.lines().count() == 1,
            "{error}"
        );
    }
}
