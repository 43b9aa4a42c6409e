//! Locks on interfaces: one process forwards by an interface, whichever command it is.
//!
//! All processes share one file for each network namespace, in `/run/manylane`: so they find each other whatever the
//! names of their sockets are. Where that folder cannot be used (no root, a read-only `/run`), the file is in the folder of
//! the socket. The file has a record for each interface, at the interface's number: a lock on the record says that a
//! process forwards by the interface, and the text in the record names the process.
//!
//! The locks are fcntl(2)'s open file description locks: the kernel removes a lock when the process ends, however it
//! ends. The file stays, and what it says counts only where a lock is. A daemon opens the file while it is root, and can
//! lock more interfaces later, when it is not.
//!
//! No process removes the file at its end: another process may have opened it and not locked an interface yet. That
//! process would lock a file without a name, a third would make a new one, and both would forward by one interface. Nor
//! could a process without privileges open a new file instead. So a namespace leaves one sparse file, until the machine stops;
//! tests, which make namespaces by the hundred, remove the files of theirs (`remove_lock_files`).

use crate::syscall::exhausted;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};
use nix::unistd::geteuid;

/// The locks of the calling thread's network namespace. A clone has the same locks.
#[derive(Clone, Debug)]
pub struct InterfaceLocks(Arc<Shared>);

/// The lock on one interface, held as long as this exists.
#[derive(Debug)]
pub struct InterfaceLock {
    locks: InterfaceLocks,
    index: u32,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    file: File,
    /// How later processes name this one.
    owner: String,
    /// The kernel refuses no lock that the same open file has.
    own: Mutex<BTreeSet<u32>>,
}

/// Why an interface could not be locked.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum InterfaceLockError {
    /// Another process forwards by it.
    #[error(
        "{owner} forwards by interface {interface} already; stop it, or start this one without {interface}"
    )]
    Taken {
        /// The interface.
        interface: String,
        /// The process, as its record says.
        owner: String,
    },
    /// The system refused a step.
    #[error("cannot {step} {}: {source}; {}", .path.display(), next_step(.source))]
    Refused {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as in "cannot ...".
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "needs root, or a --socket in a folder of this user",
        _ => exhausted(source).unwrap_or("see that /run exists and that root may write to it"),
    }
}

impl InterfaceLocks {
    /// Opens the file and locks nothing. `command` is what other processes name this one by; `otherwise` is used where
    /// `/run/manylane` cannot be.
    pub fn open(
        command: &str,
        otherwise: Option<&Path>,
    ) -> Result<InterfaceLocks, InterfaceLockError> {
        match (open_in(Path::new(FOLDER), command), otherwise) {
            (Err(_), Some(folder)) if folder != Path::new(FOLDER) => open_in(folder, command),
            (opened, _) => opened,
        }
    }

    /// Locks the interface of this number. The name is for messages.
    pub fn take(&self, interface: &str, index: u32) -> Result<InterfaceLock, InterfaceLockError> {
        let Shared { file, owner, .. } = &*self.0;
        let mut own = self.own();
        if own.contains(&index) {
            return Err(InterfaceLockError::Taken {
                interface: interface.into(),
                owner: owner.clone(),
            });
        }
        match fcntl(file, FcntlArg::F_OFD_SETLK(&record(index, libc::F_WRLCK))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => {
                let owner = self.owner_of(index);
                return Err(InterfaceLockError::Taken { interface: interface.into(), owner });
            }
            Err(errno) => return Err(self.refused("lock", errno.into())),
        }
        let mut text = owner.clone().into_bytes();
        text.resize(RECORD, 0);
        if let Err(error) = file.write_all_at(&text, at(index)) {
            self.release(index);
            return Err(self.refused("write", error));
        }
        own.insert(index);
        drop(own);
        Ok(InterfaceLock { locks: self.clone(), index })
    }

    /// The process that has locked an interface.
    fn owner_of(&self, index: u32) -> String {
        let mut text = [0; RECORD];
        // The owner's name helps; that the lock is held is enough.
        let len = self.0.file.read_at(&mut text, at(index)).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..len]);
        match text.trim_end_matches('\0') {
            "" => "another process".into(),
            owner => owner.into(),
        }
    }

    fn release(&self, index: u32) {
        // If the kernel refuses, the lock ends with the file.
        let _ = fcntl(&self.0.file, FcntlArg::F_OFD_SETLK(&record(index, libc::F_UNLCK)));
    }

    fn own(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, step: &'static str, source: io::Error) -> InterfaceLockError {
        InterfaceLockError::Refused { path: self.0.path.clone(), step, source }
    }
}

impl InterfaceLock {
    /// The number of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for InterfaceLock {
    fn drop(&mut self) {
        let mut own = self.locks.own();
        self.locks.release(self.index);
        own.remove(&self.index);
    }
}

/// Removes the lock files of a namespace in which no process of manylane runs any more, and none will: for the maker of
/// the namespace, before the namespace ends and its number is another's.
pub(crate) fn remove_lock_files(namespace: BorrowedFd<'_>) {
    let facts = namespace.try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    let Ok(number) = facts.map(|facts| facts.ino()) else { return };
    for owner in ["interfaces", "accelerate"] {
        // A namespace without locks has no file.
        let _ = fs::remove_file(Path::new(FOLDER).join(format!("{owner}-{number}.lock")));
    }
}

fn open_in(folder: &Path, command: &str) -> Result<InterfaceLocks, InterfaceLockError> {
    let refused = |path: &Path, step| {
        let path = path.to_owned();
        move |source| InterfaceLockError::Refused { path, step, source }
    };
    // The folder of a socket in the working folder has no name.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let namespace = Path::new("/proc/thread-self/ns/net");
    let number = fs::metadata(namespace).map_err(refused(namespace, "look at"))?.ino();
    fs::create_dir_all(folder).map_err(refused(folder, "create"))?;
    let path = folder.join(format!("interfaces-{number}.lock"));
    let mut options = OpenOptions::new();
    // Permission to open the file is permission to lock it.
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // Another user's link would have root write anywhere; a pipe would be waited for.
    let options = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(&path).map_err(refused(&path, "open"))?;
    let facts = file.metadata().map_err(refused(&path, "look at"))?;
    let is_ours = [0, geteuid().as_raw()].contains(&facts.uid());
    if !facts.is_file() || facts.nlink() > 1 || !is_ours {
        let wrong = "it is another user's, or no file with one name; remove it";
        return Err(refused(&path, "use")(io::Error::other(wrong)));
    }
    let owner = format!("process {} ({command})", process::id());
    Ok(InterfaceLocks(Arc::new(Shared { path, file, owner, own: Mutex::default() })))
}

/// The place of an interface's record.
fn at(index: u32) -> u64 {
    u64::from(index) * RECORD as u64
}

fn record(index: u32, kind: libc::c_int) -> flock {
    flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at(index) as libc::off_t,
        l_len: RECORD as libc::off_t,
        l_pid: 0, // fcntl(2): an open file description's lock is no process's.
    }
}

/// For what `/run` is made (hier(7)): gone with the machine.
const FOLDER: &str = "/run/manylane";
/// Bytes of a record: a process and its command.
const RECORD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("manylane-interfaces-{}-{name}", process::id());
            Folder(std::env::temp_dir().join(name))
        }

        fn open(&self, command: &str) -> InterfaceLocks {
            open_in(&self.0, command).unwrap_or_else(|error| panic!("{error}"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_second_command_on_an_interface_is_refused_and_told_by_which() {
        let folder = Folder::new("second");
        let (first, second) = (folder.open("manylane run"), folder.open("manylane accelerate"));
        let lan = first.take("lan", 2).expect("it is free");
        let _wan = second.take("wan", 3).expect("it is free, beside the other");
        let error = second.take("lan", 2).expect_err("the first one has it").to_string();
        let owner = format!("process {} (manylane run) forwards by interface lan", process::id());
        assert!(error.starts_with(&owner), "{error}");
        assert!(first.take("wan", 3).is_err());
        drop(lan);
        second.take("lan", 2).expect("it is free again");
    }

    #[test]
    fn one_command_takes_an_interface_once() {
        let folder = Folder::new("once");
        let locks = folder.open("manylane run");
        let lan = locks.take("lan", 2).expect("it is free");
        // By another of its names.
        locks.clone().take("lan0", 2).expect_err("it is taken");
        assert_eq!(lan.index(), 2);
        drop(lan);
        locks.take("lan0", 2).expect("it is free again");
    }

    /// Root would have written into the file that a link leads to, or one that has a second name here.
    #[test]
    fn no_file_behind_a_link_is_written() {
        let folder = Folder::new("link");
        let path = folder.open("manylane run").0.path.clone();
        let victim = folder.0.join("victim");
        fs::write(&victim, "precious").expect("the folder is ours");
        type Link = fn(&Path, &Path) -> io::Result<()>;
        let links: [Link; 2] =
            [|from, to| std::os::unix::fs::symlink(from, to), |from, to| fs::hard_link(from, to)];
        for link in links {
            fs::remove_file(&path).expect("it is ours");
            link(&victim, &path).expect("the folder is ours");
            let error = open_in(&folder.0, "manylane run").expect_err("it is a link");
            assert!(matches!(error, InterfaceLockError::Refused { .. }), "{error}");
        }
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "precious");
    }

    #[test]
    fn only_the_owner_of_the_file_may_open_it() {
        let folder = Folder::new("mode");
        let locks = folder.open("manylane run");
        let mode = locks.0.file.metadata().expect("it is open").mode();
        assert_eq!(mode & 0o777 & !0o600, 0, "{mode:o}");
    }
}
