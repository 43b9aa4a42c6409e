//! The kernel's settings under `/proc/sys`.
//!
//! `/proc/sys/net` follows the network namespace of the thread that opens a file there, so these calls
//! act on the calling thread's namespace.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Writes `value` to a setting, named by its path under `/proc/sys`: `net/ipv6/conf/all/forwarding`.
pub fn set(name: &str, value: &str) -> Result<(), SysctlError> {
    fs::write(path(name)?, value).map_err(|source| SysctlError { name: name.into(), source })
}

/// Reads a setting, without the trailing newline.
pub fn read(name: &str) -> Result<String, SysctlError> {
    fs::read_to_string(path(name)?)
        .map(|text| text.trim_end().into())
        .map_err(|source| SysctlError { name: name.into(), source })
}

/// A setting that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the setting /proc/sys/{name}: {source}; {}", next_step(.source))]
pub struct SysctlError {
    /// The setting's path under `/proc/sys`.
    pub name: String,
    /// The kernel's error.
    pub source: io::Error,
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "run as root (CAP_NET_ADMIN)",
        io::ErrorKind::NotFound => "look for a mistyped interface, or a kernel built without it",
        _ => "see whether `sysctl` can",
    }
}

/// The file of a setting. A name that leads out of `/proc/sys` is refused: root writes there.
fn path(name: &str) -> Result<PathBuf, SysctlError> {
    let name = Path::new(name);
    if name.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(Path::new("/proc/sys").join(name));
    }
    let source = io::Error::new(io::ErrorKind::InvalidInput, "not a name below /proc/sys");
    Err(SysctlError { name: name.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_proc_sys() {
        assert!(set("../../etc/motd", "x").is_err());
        assert!(set("/etc/motd", "x").is_err());
    }

    #[test]
    fn a_missing_setting_is_named() {
        let missing = read("net/ipv4/no_such").expect_err("there is none");
        let text = missing.to_string();
        assert!(text.contains("/proc/sys/net/ipv4/no_such"), "{text}");
    }
}
