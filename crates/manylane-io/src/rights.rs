//! Whether a Unix socket takes descriptors of other processes (`SCM_RIGHTS` in unix(7)).
//!
//! The process that received a descriptor closes it, read or not, and to close some descriptors takes as long as the sender
//! likes: a TCP socket with `SO_LINGER` waits for its peer.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::syscall::check;

/// `SO_PASSRIGHTS`, of Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Says whether processes may pass descriptors by this socket, and by what it accepts: to those that may not, the kernel
/// refuses the message (`EPERM`). Kernels before 6.16 always let them, and say `ENOPROTOOPT` here.
pub fn pass_rights(socket: impl AsFd, pass: bool) -> io::Result<()> {
    let value = libc::c_int::from(pass);
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: setsockopt(2) reads the integer, of the given length.
    check(unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const value).cast(), len)
    })
    .map(drop)
}

/// Whether processes may pass descriptors by this socket: always, on kernels before 6.16.
pub fn passes_rights(socket: impl AsFd) -> bool {
    let mut value: libc::c_int = 1;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: getsockopt(2) writes the integer, of the given length, and the length.
    let known = check(unsafe {
        let fd = socket.as_fd().as_raw_fd();
        let into = (&raw mut value).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, into, &raw mut len)
    });
    known.is_err() || value != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_kernel_knows_the_option_or_says_that_it_does_not() {
        let path = std::env::temp_dir().join(format!("manylane-rights-{}", std::process::id()));
        let socket = UnixListener::bind(&path).expect("nobody else has this name");
        assert!(passes_rights(&socket), "unless told otherwise");
        match pass_rights(&socket, false) {
            Ok(()) => {
                assert!(!passes_rights(&socket));
                let _peer = UnixStream::connect(&path).expect("it listens");
                let (accepted, _) = socket.accept().expect("it has connected");
                assert!(!passes_rights(&accepted), "what it accepts is as it is");
                pass_rights(&socket, true).expect("it was known before");
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT), "{error}"),
        }
        assert!(passes_rights(&socket));
        std::fs::remove_file(&path).expect("it is ours");
    }
}
