//! The sockets of a daemon: one daemon has them, and what a dead one left does not stand in the way.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Group;

use crate::lock_file::{LockFile, LockFileError};

/// A bound socket. Dropping it removes the file.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

/// Why the socket could not be bound.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A daemon listens there already.
    #[error(
        "a manylane daemon already answers at {}; stop it, or name another socket with --socket",
        .path.display()
    )]
    Answered {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is not a socket has this name.
    #[error(
        "{} exists and is not a socket; remove it, or name another path with --socket",
        .path.display()
    )]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// Another process has held the lock for starts for too long.
    #[error(
        "{holder} holds the lock {} of daemons that start; end it, or name another socket with --socket",
        .path.display()
    )]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// The process.
        holder: String,
    },
    /// The lock for starts cannot be had.
    #[error(
        "cannot {step} the lock {} of daemons that start: {source}; name a path this user may write with --socket",
        .path.display()
    )]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// What was tried, as in "cannot ...".
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The path is longer than a socket's can be.
    #[error(
        "the path {} has {} bytes, and the path of a socket has at most {PATH_MAX}; name a shorter one with --socket",
        .path.display(), .path.as_os_str().len()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// The system refused one step.
    #[error(
        "cannot {step} the socket {}: {source}; name a path this user may write with --socket",
        .path.display()
    )]
    Refused {
        /// The file or directory.
        path: PathBuf,
        /// What was tried, as in "cannot ...".
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Socket {
    /// Binds `path`, for its owner and the group `manylane` (mode 0660). Creates its directory.
    pub fn bind(path: &Path) -> Result<Socket, BindError> {
        let listener = listen(path, socket2::Type::STREAM, "manylane")?;
        Ok(Socket { path: path.to_owned(), listener: OwnedFd::from(listener).into() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A second handle to the same listener, as the runtime wants to own one.
    pub(super) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Listens at `path`, without ever waiting, for its owner and a group (mode 0660). Creates its directory.
pub fn listen(path: &Path, kind: socket2::Type, group: &str) -> Result<socket2::Socket, BindError> {
    let refused = |step| move |source| BindError::Refused { path: path.to_owned(), step, source };
    if is_too_long(path) {
        return Err(BindError::TooLong { path: path.to_owned() });
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(refused("create the directory of"))?;
    // Two daemons that start together must not both find a left-over file: the second would
    // remove the first one's new socket.
    let turn = path.with_added_extension("lock");
    let _turn = LockFile::take(&turn, "starting", TURN).map_err(|error| match error {
        LockFileError::Taken { holder } => BindError::Locked { path: turn.clone(), holder },
        LockFileError::Refused { step, source } => {
            BindError::Lock { path: turn.clone(), step, source }
        }
    })?;

    remove_left_over(path, kind)?;
    let begin = || {
        let listener = socket2::Socket::new(socket2::Domain::UNIX, kind, None)?;
        listener.set_nonblocking(true)?;
        listener.bind(&socket2::SockAddr::unix(path)?)?;
        listener.listen(BACKLOG)?;
        Ok(listener)
    };
    let listener = begin().map_err(refused("listen at"))?;
    // Without the group, or the right to give the file to it, the owner alone has access.
    if let Ok(Some(group)) = Group::from_name(group) {
        let _ = chown(path, None, Some(group.gid.as_raw()));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))
        .map_err(refused("set the mode of"))?;
    Ok(listener)
}

/// Whether no socket can have this path.
pub fn is_too_long(path: &Path) -> bool {
    path.as_os_str().len() > PATH_MAX
}

/// The longest path of a socket, in bytes: unix(7) has 108, the last of them a zero.
pub const PATH_MAX: usize = 107;

/// A start holds the lock for some system calls.
const TURN: Duration = Duration::from_secs(5);

/// Connections that wait to be accepted, as the standard library has it.
const BACKLOG: i32 = 128;

impl Drop for Socket {
    fn drop(&mut self) {
        // This daemon no longer answers here; a file that is already gone needs no removal.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the file of a daemon that is gone. A living one is an error, and so is any other file.
fn remove_left_over(path: &Path, kind: socket2::Type) -> Result<(), BindError> {
    let refused = |step| move |source| BindError::Refused { path: path.to_owned(), step, source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused("look at")(error)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match connect(path, kind) {
        // unix(7): no process has the socket bound any more.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(refused("remove the left-over"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // connect(2): EAGAIN is a full backlog, which a listener has.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(refused("ask at")(error)),
        Ok(()) | Err(_) => Err(BindError::Answered { path: path.to_owned() }),
    }
}

/// Whether a daemon listens, without a wait for a busy one.
fn connect(path: &Path, kind: socket2::Type) -> io::Result<()> {
    let probe = socket2::Socket::new(socket2::Domain::UNIX, kind, None)?;
    probe.set_nonblocking(true)?;
    probe.connect(&socket2::SockAddr::unix(path)?)
}
