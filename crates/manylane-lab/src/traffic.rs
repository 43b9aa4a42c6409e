//! [`TrafficError`]: traffic that could not be sent at all. What is lost on the way is in the reports.

use std::io;

/// Traffic that could not be sent at all. What is lost on the way is in the reports.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {source}{}", cure(.source))]
pub struct TrafficError {
    /// What was to be done, to be read after "cannot".
    step: String,
    source: io::Error,
}

/// What helps against an error, behind it.
fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; needs root (CAP_NET_RAW)",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "; nothing came back in time: look at the router's drops"
        }
        _ => "",
    }
}

impl TrafficError {
    pub(crate) fn new(step: impl Into<String>, source: io::Error) -> TrafficError {
        TrafficError { step: step.into(), source }
    }
}

/// Whether a socket's timeout passed: Linux says EAGAIN where POSIX says ETIMEDOUT.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
