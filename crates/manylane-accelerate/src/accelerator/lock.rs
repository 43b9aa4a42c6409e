//! One accelerator in a network namespace: a lock that goes with its process.
//!
//! The file is named by the namespace's number, in `/run/manylane`: so two are told apart however their sockets
//! are called. Where that folder cannot be had (no root, a read-only `/run`), it is the folder of the socket.
//! The lock is flock(2)'s: the kernel takes it away when the process ends, however it does. A file that is left
//! behind then names its former holder, and blocks no process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;

/// Held as long as this exists.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    /// Closed behind the file's removal: another process finds it locked, or gone.
    _file: File,
}

/// Why it could not be had.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another one accelerates in this namespace.
    #[error(
        "{} accelerates in this network namespace already ({} is locked); stop it, or add interfaces to it with `manylane \
         port add IF`",
        holder(.owner), .path.display()
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

/// The holder's name for a message, whatever the lock's file says.
fn holder(owner: &str) -> &str {
    if owner.is_empty() { "another process" } else { owner }
}

/// What helps when the system refuses a step.
fn cure(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        io::ErrorKind::PermissionDenied => "needs root",
        _ => "see that /run is there, and that root may write to it",
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

impl Drop for Lock {
    fn drop(&mut self) {
        // A file that stays is as good.
        let _ = fs::remove_file(&self.path);
    }
}

fn take_in(folder: &Path, name: &str, interfaces: &[String]) -> Result<Lock, LockError> {
    loop {
        let (path, file) = open(folder, name)?;
        lock(&path, &file, interfaces)?;
        // The last one may have removed the file between our opening and our locking it.
        let number = |file: io::Result<fs::Metadata>| file.map(|file| file.ino()).ok();
        if number(file.metadata()) == number(fs::metadata(&path)) {
            return Ok(Lock { path, _file: file });
        }
    }
}

fn open(folder: &Path, name: &str) -> Result<(PathBuf, File), LockError> {
    fs::create_dir_all(folder).map_err(refused(folder, "create"))?;
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(refused(&path, "open"))?;
    Ok((path, file))
}

fn lock(path: &Path, mut file: &File, interfaces: &[String]) -> Result<(), LockError> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // The holder's name helps; that the lock is held is enough.
            let _ = file.take(OWNER_MAX).read_to_string(&mut owner);
            let owner = owner.trim().to_owned();
            return Err(LockError::Taken { path: path.into(), owner });
        }
        Err(TryLockError::Error(source)) => return Err(refused(path, "lock")(source)),
    }
    let said = format!("process {} ({})\n", process::id(), interfaces.join(" "));
    let mut say = || {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(said.as_bytes())
    };
    say().map_err(refused(path, "write"))
}

fn refused(path: &Path, step: &'static str) -> impl FnOnce(io::Error) -> LockError {
    let path = path.to_owned();
    move |source| LockError::Refused { path, step, source }
}

/// For what `/run` is made (hier(7)): gone with the machine.
const FOLDER: &str = "/run/manylane";
const OWNER_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
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
