//! What is made of the command line itself: completions for shells, and pages of the manual.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, complete, done, manual, print};

/// What `manylane completions` takes.
#[derive(Debug, Args)]
pub(super) struct CompletionsOptions {
    /// The shell
    shell: Shell,
}

/// What `manylane man` takes.
#[derive(Debug, Args)]
pub(super) struct ManOptions {
    /// Where the pages go
    folder: PathBuf,
}

/// Prints what the shell is to read.
pub(super) fn completions(options: &CompletionsOptions) -> ExitCode {
    print(&completion(options.shell))
}

/// The script of a shell.
pub(super) fn completion(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "manylane", &mut script);
    complete::script(shell, &String::from_utf8_lossy(&script))
}

/// Writes a page for each command, section 1, and that of the configuration, section 5.
pub(super) fn man(ManOptions { folder }: &ManOptions) -> ExitCode {
    done(
        manual::write(folder)
            .map_err(|error| format!("cannot write to {}: {error}", folder.display())),
    )
}
