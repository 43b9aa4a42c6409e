//! The time when no program of an accelerator was on an interface.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How long no program of the accelerator was on an interface that existed: what passed then is counted nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnseenTime {
    /// Milliseconds since the program was taken off, or since the start; none while the program is on the interface.
    pub for_ms: Option<u64>,
    /// Milliseconds in all since the start, with those of `for_ms`.
    pub total_ms: u64,
}
