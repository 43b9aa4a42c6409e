//! Programs of the operating system in a host's namespace, and waiting for what they say.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use manylane_io::namespace::Host;

/// Runs a line as an operator would type it, `ip route add 10.9.0.0/16 via 10.2.0.1`: a program and its arguments,
/// divided by spaces; text between `'` is one argument. No shell runs. Returns what it wrote.
pub fn tool(host: &Host, line: &str) -> Result<String, ToolError> {
    let output = host.run(command(line).into_output());
    let failed = |why: String| ToolError { line: line.to_owned(), why };
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = [&output.stdout[..], &output.stderr].concat();
            Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&said).trim())))
        }
    }
}

/// The command that a line means.
pub fn command(line: &str) -> Line {
    let mut words = words(line).into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null());
    Line(command)
}

/// A command that stands for a line.
pub struct Line(Command);

impl Line {
    fn into_output(mut self) -> impl FnOnce() -> io::Result<std::process::Output> + Send + 'static {
        move || self.0.output()
    }

    /// The command, for the caller to start.
    pub fn into_command(self) -> Command {
        self.0
    }
}

/// A program that the kernel ends when its parent ends, for whatever reason.
pub fn mortal(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// A line that could not be run, or a program that said no.
#[derive(Debug, thiserror::Error)]
#[error("`{line}`: {why}")]
pub struct ToolError {
    line: String,
    why: String,
}

fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_word, mut is_quoted) =
        (Vec::new(), String::new(), false, false);
    for letter in line.chars() {
        match letter {
            '\'' => (is_quoted, is_word) = (!is_quoted, true),
            _ if letter.is_whitespace() && !is_quoted => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            _ => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

/// Waits until `state` has an answer, and returns it. Until then `state` says how things are.
///
/// For what another process or the kernel does in its own time and gives no event for. The bound is for hanging
/// programs, not for slow machines.
///
/// # Panics
///
/// When that takes longer than [`PATIENCE`], with what `state` said last.
pub fn until<T, S: fmt::Display>(what: &str, mut state: impl FnMut() -> Result<T, S>) -> T {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match state() {
            Ok(answer) => return answer,
            Err(shown) if begun.elapsed() > PATIENCE => {
                panic!("waited {} s in vain until {what}; last: {shown}", PATIENCE.as_secs())
            }
            Err(_) => thread::sleep(pause),
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// How long [`until`] waits.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Short beside what is waited for, long beside the work of looking.
const PAUSE_MAX: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_divided_at_spaces_outside_of_quotes() {
        assert_eq!(words("  ip  route add 10.0.0.0/8 "), ["ip", "route", "add", "10.0.0.0/8"]);
        assert_eq!(words("tc bytecode '1,6 0 0 2' x"), ["tc", "bytecode", "1,6 0 0 2", "x"]);
        assert_eq!(words("a ''"), ["a", ""]);
        assert_eq!(words(""), Vec::<String>::new());
    }

    #[test]
    fn until_asks_again_and_returns_what_it_got() {
        let mut left = 3;
        let answer = until("it is counted down", || {
            left -= 1;
            if left == 0 { Ok("done") } else { Err(format!("{left} left")) }
        });
        assert_eq!(answer, "done");
    }
}
