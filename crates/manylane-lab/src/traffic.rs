//! [`TrafficError`]: traffic that could not be sent at all. What is lost on the way is in the reports.

use std::fmt;
use std::io;

/// Traffic that could not be sent at all. What is lost on the way is in the reports.
#[derive(Debug)]
pub struct TrafficError {
    /// What was to be done, to be read after "cannot".
    step: String,
    source: io::Error,
}

impl TrafficError {
    pub(crate) fn new(step: impl Into<String>, source: io::Error) -> TrafficError {
        TrafficError { step: step.into(), source }
    }
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrafficError { step, source } = self;
        write!(f, "cannot {step}: {source}")?;
        match source.kind() {
            io::ErrorKind::PermissionDenied => f.write_str("; needs root (CAP_NET_RAW)"),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                f.write_str("; nothing came back in time: look at the router's drops")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for TrafficError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Whether a socket's timeout passed: Linux says EAGAIN where POSIX says ETIMEDOUT.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
