//! A capture of drops: the request, and the file.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ApiError, SetError};

/// How long to capture, and how much: the body of `POST /v1/capture/drops`. An omitted field has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaptureRequest {
    /// Seconds until the file ends: 1 to 30, by default 5.
    pub seconds: u32,
    /// Packets after which the file ends earlier: 1 to 100,000, by default 10,000.
    pub packets: u32,
    /// Most bytes of each packet: 14 to 262,144, by default all.
    pub snap: u32,
}

impl Default for CaptureRequest {
    fn default() -> CaptureRequest {
        CaptureRequest { seconds: 5, packets: 10_000, snap: SNAP_MAX }
    }
}

impl CaptureRequest {
    pub(crate) fn check(&self) -> Result<(), SetError> {
        let bounds = [
            ("seconds", self.seconds, 1..=SECONDS_MAX),
            ("packets", self.packets, 1..=PACKETS_MAX),
            ("snap", self.snap, 14..=SNAP_MAX),
        ];
        for (name, value, bounds) in bounds {
            if !bounds.contains(&value) {
                return Err(SetError::BadValue(ApiError {
                    error: format!("{name} cannot be {value}"),
                    help: format!("{} to {} are possible", bounds.start(), bounds.end()),
                }));
            }
        }
        Ok(())
    }
}

/// Less than a connection may be silent: a capture without packets must outlive that.
const SECONDS_MAX: u32 = 30;
const PACKETS_MAX: u32 = 100_000;
/// Bytes of a packet that are kept when all are wanted: as tcpdump's default.
pub const SNAP_MAX: u32 = 262_144;

/// A file that is being captured. When it is dropped, so is the capture.
pub struct CaptureFile(pub(crate) Box<dyn FnMut(bool) -> CapturePart + Send>);

/// The next bytes of a file.
pub enum CapturePart {
    /// A part; more parts may follow.
    Some(Vec<u8>),
    /// The last part.
    Last(Vec<u8>),
}

impl CaptureFile {
    /// A file of the parts that `next` returns: the bytes since the last call, without waiting. `next(true)` ends the
    /// file.
    pub fn new(next: impl FnMut(bool) -> CapturePart + Send + 'static) -> CaptureFile {
        CaptureFile(Box::new(next))
    }
}
