//! One accelerator in a network namespace: a lock that goes with its process.
//!
//! The file is named by the namespace's number, in `/run/manylane`: so two are told apart however their sockets
//! are called. Where that folder cannot be had (no root, a read-only `/run`), it is the folder of the socket.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use manylane_api::lock_file::{LockFile, LockFileError};
use manylane_io::syscall::exhausted;

/// Held as long as this exists.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is held, and not looked at")] LockFile);

/// Why it could not be had.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another one accelerates in this namespace.
    #[error(
        "{} accelerates in this network namespace already ({} is locked); stop it, or add interfaces to it with `manylane \
         port add IF`",
        owner, .path.display()
    )]
    Taken {
        /// The file.
        path: PathBuf,
        /// The holder, as its file says.
        owner: String,
    },
    /// The system refused one step.
    #[error("cannot {step} {}: {source}; {}", .path.display(), cure(.source))]
    Refused {
        /// The file, or folder.
        path: PathBuf,
        /// What was tried, as in "cannot ...".
        step: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// What helps when the system refuses a step.
fn cure(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        io::ErrorKind::PermissionDenied => "needs root",
        _ => exhausted(refusal).unwrap_or("see that /run is there, and that root may write to it"),
    }
}

impl Lock {
    /// Takes the lock of the calling thread's network namespace. `interfaces` are for the second one's message.
    pub fn take(interfaces: &[String], otherwise: Option<&Path>) -> Result<Lock, LockError> {
        let namespace = Path::new("/proc/thread-self/ns/net");
        let number = fs::metadata(namespace).map_err(refused(namespace, "look at"))?.ino();
        let name = format!("accelerate-{number}.lock");
        match (take_in(Path::new(FOLDER), &name, interfaces), otherwise) {
            (Err(LockError::Refused { .. }), Some(folder)) => take_in(folder, &name, interfaces),
            (taken, _) => taken,
        }
    }
}

fn take_in(folder: &Path, name: &str, interfaces: &[String]) -> Result<Lock, LockError> {
    fs::create_dir_all(folder).map_err(refused(folder, "create"))?;
    let path = folder.join(name);
    // The holder keeps it as long as it runs, so waiting has no end.
    LockFile::take(&path, &interfaces.join(" "), Duration::ZERO).map(Lock).map_err(|error| {
        match error {
            LockFileError::Taken { holder } => LockError::Taken { path, owner: holder },
            LockFileError::Refused { step, source } => LockError::Refused { path, step, source },
        }
    })
}

fn refused(path: &Path, step: &'static str) -> impl FnOnce(io::Error) -> LockError {
    let path = path.to_owned();
    move |source| LockError::Refused { path, step, source }
}

/// For what `/run` is made (hier(7)): gone with the machine.
const FOLDER: &str = "/run/manylane";

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn the_second_is_refused_and_told_by_whom() {
        let folder = std::env::temp_dir().join(format!("manylane-lock-{}", process::id()));
        let names = ["lan".to_owned(), "wan".to_owned()];
        let take = || take_in(&folder, "one.lock", &names);
        let first = take().expect("nobody has it");
        let error = take().expect_err("it is taken").to_string();
        let expected = format!("process {} (lan wan) accelerates in this network", process::id());
        assert!(error.starts_with(&expected), "{error}");
        drop(first);
        assert!(!folder.join("one.lock").exists());
        take().expect("it is free again");
        let _ = fs::remove_dir_all(&folder);
    }
}
