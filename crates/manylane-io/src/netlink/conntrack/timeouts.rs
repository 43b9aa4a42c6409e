//! How long idle connections live, and whether the kernel announces their ends.

use std::io;
use std::time::Duration;

use crate::sysctl::{self, SysctlError};

/// Settings of the network namespace (Documentation/networking/nf_conntrack-sysctl.rst). A rule may give a connection
/// other timeouts (`ct timeout set`, `CT --timeout`); no message says which connection has such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Established TCP connections.
    pub tcp_established: Duration,
    /// Of an established TCP connection with unacknowledged data.
    pub tcp_unacknowledged: Duration,
    /// UDP flows that were not answered, or only just now.
    pub udp: Duration,
    /// Other UDP flows.
    pub udp_stream: Duration,
}

impl Timeouts {
    /// Reads the settings of the calling thread's network namespace.
    pub fn read() -> Result<Timeouts, SysctlError> {
        Ok(Timeouts {
            tcp_established: read("tcp_timeout_established")?,
            tcp_unacknowledged: read("tcp_timeout_unacknowledged")?,
            udp: read("udp_timeout")?,
            udp_stream: read("udp_timeout_stream")?,
        })
    }
}

/// Whether connections that begin now get room for events while a process listens (`nf_conntrack_events`), in the calling
/// thread's network namespace. Without that setting the kernel has no events.
pub fn gives_room_for_events() -> Result<bool, SysctlError> {
    Ok(number("events")? != 0)
}

fn read(name: &str) -> Result<Duration, SysctlError> {
    number(name).map(Duration::from_secs)
}

fn number(name: &str) -> Result<u64, SysctlError> {
    let name = format!("net/netfilter/nf_conntrack_{name}");
    match sysctl::read(&name)?.parse() {
        Ok(number) => Ok(number),
        Err(error) => {
            let source = io::Error::new(io::ErrorKind::InvalidData, error);
            Err(SysctlError { name, source })
        }
    }
}
