//! Converts the C convention of `-1` and `errno` to `io::Result`.

use std::io;

/// The return value of a system call, or its error.
pub fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// As [`check`], for calls that return a length.
pub fn check_length(returned: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// What helps a process that has no file descriptor left: privilege does not.
pub fn exhausted(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::EMFILE => Some(
            "this process has too many files open: raise its limit (`ulimit -n`, `LimitNOFILE` of a unit)",
        ),
        libc::ENFILE => Some("the system has too many files open: raise the sysctl fs.file-max"),
        _ => None,
    }
}

/// Repeats `call` while a signal interrupts it.
pub fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
