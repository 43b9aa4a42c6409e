//! A peer's program: builds it, starts it, and has it measure.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;

use crate::prelude::{Duration, Result};

/// Builds the peers, unless they are newer than their sources, and returns the path of `peer-NAME`.
pub fn build(name: &str) -> Result<PathBuf> {
    build_by(None).map(|folder| folder.join(format!("peer-{name}")))
}

/// The folder of the programs. `pkg_config` names another program than the usual one.
fn build_by(pkg_config: Option<&str>) -> Result<PathBuf> {
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
    Ok(folder)
}

/// The program, while it runs. The program waits for its standard input while manylane is measured, and takes no time.
pub struct Program {
    /// As errors call it.
    name: String,
    child: Child,
    /// `None` at the end: the program ends when this is closed.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the program of DPDK at `path`, whose first core is its main one. Returns what the program says when it is
    /// ready.
    pub fn start<R: DeserializeOwned>(
        path: &Path,
        cores: &[usize],
        table: Option<&Path>,
    ) -> Result<(Program, R)> {
        let list: Vec<_> = cores.iter().map(usize::to_string).collect();
        let mut command = Command::new(path);
        command
            .args(["--no-huge", "-m", "64", "--no-pci", "--no-telemetry", "--no-shconf"])
            .args(["--iova-mode=va", "--force-max-simd-bitwidth=512", "--log-level=*:3"])
            .args(["-l", &list.join(","), "--main-lcore", &list[0]])
            .args(table.map(|_| OsStr::new("--")))
            .args(table);
        Program::run(command)
    }

    fn run<R: DeserializeOwned>(mut command: Command) -> Result<(Program, R)> {
        let path = Path::new(command.get_program());
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut program = Program { name, child, to, from };
        let ready = program.read()?;
        Ok((program, ready))
    }

    /// Writes a line with what is to be measured, for so long, and reads what the program says of it.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        what: fmt::Arguments<'_>,
        slice: Duration,
    ) -> Result<A> {
        let to = self.to.as_mut().expect("it is taken at the end only");
        // A program that has ended says why on standard error; `read` notices it.
        let _ = writeln!(to, "{what} {}", slice.as_millis());
        self.read()
    }

    fn read<A: DeserializeOwned>(&mut self) -> Result<A> {
        let (mut line, name) = (String::new(), &self.name);
        if self.from.read_line(&mut line)? == 0 {
            drop(self.to.take());
            let status = self.child.wait()?;
            return Err(format!("{name} ended ({status}); the lines before say why").into());
        }
        serde_json::from_str(&line)
            .map_err(|error| format!("{name} wrote `{}`: {error}", line.trim_end()).into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait(); // The program has ended, or the system says why not; the figures are printed.
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::peer::Answer;

    #[test]
    fn without_dpdk_an_error_names_the_package() {
        let error = build_by(Some("false")).expect_err("no libdpdk is found");
        let error = error.to_string();
        assert!(error.starts_with("--peer dpdk: DPDK's development package is missing"), "{error}");
        assert!(
            error.contains("apt-get install libdpdk-dev") && error.lines().count() == 1,
            "{error}"
        );
    }

    #[derive(Deserialize)]
    struct Ready {
        version: String,
    }

    /// Stands for a peer: says that it is ready, then `answers` as a shell does.
    fn script(answers: &str) -> Result<(Program, Ready)> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo '{{\"version\":\"DPDK 1\"}}'; {answers}")]);
        Program::run(command)
    }

    #[test]
    fn a_program_is_asked_line_by_line() {
        let (mut program, ready) =
            script(r#"while read -r way ms; do echo "[\"$way\",$ms]"; done"#).expect("it starts");
        assert_eq!(ready.version, "DPDK 1");
        for way in ["lpm", "fib"] {
            let answer: (String, u64) =
                program.ask(format_args!("{way}"), Duration::from_millis(40)).expect("it answers");
            assert_eq!(answer, (way.to_owned(), 40));
        }
    }

    #[test]
    fn a_program_that_ends_is_an_error_with_its_status() {
        let (mut program, _) = script("exit 3").expect("it starts");
        let error = program.ask::<Answer>(format_args!("lpm"), Duration::ZERO).err();
        let error = error.expect("it ended").to_string();
        assert_eq!(error, "sh ended (exit status: 3); the lines before say why");
    }

    #[test]
    fn a_line_that_is_no_answer_is_an_error_with_the_line() {
        let (mut program, _) = script("read -r line; echo EAL: oops").expect("it starts");
        let error = program.ask::<Answer>(format_args!("lpm"), Duration::ZERO).err();
        let error = error.expect("it is no JSON").to_string();
        assert!(error.starts_with("sh wrote `EAL: oops`: "), "{error}");
    }
}
