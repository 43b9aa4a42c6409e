//! Where other processes connect.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use super::closer::Channel;
use crate::socket::Owner;
use manylane_api::{BindError, socket};
use manylane_client::path_beside;
use manylane_io::rights::pass_rights;

/// A socket that listens for others. Dropping it removes the file.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    fd: OwnedFd,
}

impl Listener {
    /// Listens beside the API's socket, for its owner and the group `manylane-capture` (mode 0660).
    pub fn bind(api: &Path) -> Result<Listener, BindError> {
        let path = path_beside(api);
        let fd = socket::listen(&path, socket2::Type::SEQPACKET, "manylane-capture")?.into();
        // Older kernels do not know it: see `closer`, which looks at each message.
        let _ = pass_rights(&fd, false);
        Ok(Listener { path, fd })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The connection that has waited longest, and whose it is.
    pub(super) fn accept(&self) -> Result<(Channel, Owner), Errno> {
        let fd = accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let channel = Channel::new(fd)?;
        // SO_PEERCRED in unix(7): as of when it connected, and nothing that it says itself.
        let peer = getsockopt(&channel, PeerCredentials)
            .map_err(|error| Errno::from_raw_os_error(error as i32))?;
        Ok((channel, Owner::Process { uid: peer.uid(), pid: peer.pid() }))
    }
}

impl Listener {
    /// Accepts nothing more. Connections that wait can still be accepted.
    pub(super) fn end(&self) {
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // No server can answer here any more; a file that is gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}
