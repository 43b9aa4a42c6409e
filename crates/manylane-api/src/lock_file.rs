//! A lock that goes with its process: a file that one process at a time has locked (flock(2)).
//!
//! The kernel takes the lock away when the process ends, however it ends; a file that is left behind blocks no process.
//! Permission to open a file is permission to lock it, so only its owner may open this one, and a file of another user,
//! a link, or anything that is no file of its own is refused: root would write where that user wants.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::stat::{major, minor};
use nix::unistd::geteuid;

/// Held as long as this exists; the file is removed behind it.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    /// Closed behind the file's removal: another process finds it locked, or gone.
    _file: File,
}

/// Why the lock cannot be had.
#[derive(Debug)]
pub enum LockFileError {
    /// A process has it.
    Taken {
        /// The process, as far as it is known.
        holder: String,
    },
    /// The system, or this module, refused a step.
    Refused {
        /// What was tried, as in "cannot ...".
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl LockFile {
    /// Takes the lock at `path`; from a process that holds it, within `patience` or not at all. `what` is in
    /// parentheses behind this process in messages of others.
    pub fn take(path: &Path, what: &str, patience: Duration) -> Result<LockFile, LockFileError> {
        let begun = Instant::now();
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                // No event says that the lock is free without a wait that nothing ends.
                Err(TryLockError::WouldBlock) if begun.elapsed() < patience => {
                    thread::sleep(AGAIN);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(LockFileError::Taken { holder: holder(&file) });
                }
                Err(TryLockError::Error(source)) => return Err(refused("lock")(source)),
            }
            // The last holder may have removed the file between our opening and our locking it.
            let number = |facts: io::Result<fs::Metadata>| facts.map(|facts| facts.ino()).ok();
            if number(file.metadata()) == number(fs::symlink_metadata(path)) {
                say(&file, what).map_err(refused("write"))?;
                return Ok(LockFile { path: path.into(), _file: file });
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // A file that stays is as good.
        let _ = fs::remove_file(&self.path);
    }
}

const AGAIN: Duration = Duration::from_millis(10);

fn open(path: &Path) -> Result<File, LockFileError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // A pipe would be waited for.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(refused("open"))?;
    let facts = file.metadata().map_err(refused("look at"))?;
    let (own, owner) = (geteuid().as_raw(), facts.uid());
    let wrong = match () {
        () if !facts.is_file() => Some("it is no regular file".to_owned()),
        () if ![0, own].contains(&owner) => Some(format!("it is user {owner}'s; remove it")),
        () if facts.nlink() > 1 => Some("it has another name, too; remove it".to_owned()),
        () => None,
    };
    if let Some(wrong) = wrong {
        return Err(refused("use")(io::Error::other(wrong)));
    }
    if facts.mode() & 0o077 != 0 && owner == own {
        // Earlier versions let others read it, and so lock it.
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(refused("close"))?;
    }
    Ok(file)
}

fn say(mut file: &File, what: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("process {} ({what})\n", process::id()).as_bytes())
}

/// The process that has locked the file: as it named itself there, if the kernel says that it is the one.
fn holder(file: &File) -> String {
    let mut said = String::new();
    // The holder's name helps; that the lock is held is enough.
    let _ = file.take(SAID_MAX).read_to_string(&mut said);
    let said = said.trim();
    match locked_by(file) {
        Some(process) if !said.starts_with(&format!("process {process} (")) => {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            format!("process {process} ({})", name.trim())
        }
        _ if said.is_empty() => "another process".into(),
        _ => said.into(),
    }
}

/// The process in `/proc/locks` (proc_locks(5)).
fn locked_by(file: &File) -> Option<u32> {
    let facts = file.metadata().ok()?;
    let (device, number) = (facts.dev(), facts.ino());
    let place = format!("{:02x}:{:02x}:{number}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&place.as_str());
        is_it.then(|| words.get(4)?.parse().ok()).flatten()
    })
}

fn refused(step: &'static str) -> impl FnOnce(io::Error) -> LockFileError {
    move |source| LockFileError::Refused { step, source }
}

const SAID_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;
    use crate::tests::served::folder;

    fn take(path: &Path) -> Result<LockFile, LockFileError> {
        LockFile::take(path, "lan wan", Duration::ZERO)
    }

    fn wrong(path: &Path) -> String {
        match take(path).expect_err("it is no file of ours") {
            LockFileError::Refused { step, source } => format!("{step}: {source}"),
            taken => panic!("{taken:?}"),
        }
    }

    #[test]
    fn the_second_is_refused_and_told_by_whom() {
        let folder = folder("lock-second");
        let path = folder.join("one.lock");
        let first = take(&path).expect("it is free");
        let mode = fs::metadata(&path).expect("it is there").mode();
        assert_eq!(mode & 0o777 & !0o600, 0, "permission to open it is permission to lock it");
        let LockFileError::Taken { holder } = take(&path).expect_err("it is taken") else {
            panic!("it is taken")
        };
        assert_eq!(holder, format!("process {} (lan wan)", process::id()));
        drop(first);
        assert!(!path.exists());
        take(&path).expect("it is free again");
        let _ = fs::remove_dir_all(&folder);
    }

    /// A file that others may read, of an earlier version: any user could lock it, and hide behind its text.
    #[test]
    fn a_holder_that_is_not_the_one_in_the_file_is_named() {
        let folder = folder("lock-hides");
        let path = folder.join("one.lock");
        fs::write(&path, "process 1 (eth0)\n").expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let held = File::open(&path).expect("all may read it");
        held.lock().expect("it is free");
        let LockFileError::Taken { holder } = take(&path).expect_err("it is taken") else {
            panic!("it is taken")
        };
        let this = process::id();
        let name = fs::read_to_string(format!("/proc/{this}/comm")).expect("we run");
        assert_eq!(holder, format!("process {this} ({})", name.trim()));
        let mode = fs::metadata(&path).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o600, "no other user can lock it any more");
        let _ = fs::remove_dir_all(&folder);
    }

    /// Root would have emptied the file that a link leads to, or one that has a second name here.
    #[test]
    fn no_file_behind_a_link_is_emptied() {
        let folder = folder("lock-link");
        let (path, victim) = (folder.join("one.lock"), folder.join("victim"));
        fs::write(&victim, "precious").expect("the folder is ours");
        symlink(&victim, &path).expect("the folder is ours");
        assert!(wrong(&path).starts_with("open: Too many levels of symbolic links"));
        fs::remove_file(&path).expect("it is ours");
        fs::hard_link(&victim, &path).expect("the folder is ours");
        assert!(wrong(&path).contains("it has another name, too"));
        fs::remove_file(&path).expect("it is ours");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("the folder is ours");
        assert!(wrong(&path).contains("it is no regular file"));
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "precious");
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn another_users_file_is_refused() {
        let folder = folder("lock-stranger");
        let path = folder.join("one.lock");
        fs::write(&path, "").expect("the folder is ours");
        if chown(&path, Some(65534), None).is_err() {
            println!("SKIPPED another_users_file_is_refused: needs root, to be two users");
            return;
        }
        assert_eq!(wrong(&path), "use: it is user 65534's; remove it");
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_lock_that_is_given_back_in_time_is_taken() {
        let folder = folder("lock-waits");
        let path = folder.join("one.lock");
        let first = take(&path).expect("it is free");
        let waiting = {
            let path = path.clone();
            thread::spawn(move || LockFile::take(&path, "second", Duration::from_secs(600)))
        };
        drop(first);
        waiting.join().expect("it ends").expect("it is free");
        let _ = fs::remove_dir_all(&folder);
    }
}
