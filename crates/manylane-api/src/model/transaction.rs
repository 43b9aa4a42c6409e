//! The configuration as a whole: what runs, what would change, and what was changed on trial.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ApiError;

/// The configuration that a daemon runs by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigStatus {
    /// The file that the daemon was started with.
    pub file: String,
    /// The running configuration, as it was written, without settings that were made one by one.
    pub text: String,
    /// Whether the daemon has a former configuration to roll back to.
    pub can_roll_back: bool,
    /// Seconds until the daemon rolls back without a confirmation; absent when nothing is on trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<f64>,
}

/// A key that is different in another configuration, or a whole route or neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigChange {
    /// As `steering.netdev_budget`, `port.lan.mtu`, `route.10.0.0.0/8`, `neighbour.static.lan.10.1.0.2`.
    pub key: String,
    /// The running value, as TOML; absent when the key is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value in the other configuration, as TOML; absent when the key is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Whether the change needs no restart of the daemon.
    pub live: bool,
}

/// Bytes of a [`ConfigRequest`] in JSON, at most.
pub const CONFIG_REQUEST_BYTES_MAX: usize = 16 << 20;

/// A configuration to apply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigRequest {
    /// The whole text, as in a file.
    pub text: String,
    /// Its name in messages.
    #[serde(default)]
    pub name: Option<String>,
    /// Seconds after which the daemon rolls back without a confirmation.
    #[serde(default)]
    pub confirm_within_s: Option<f64>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigApplied {
    /// What has changed.
    pub changes: Vec<ConfigChange>,
    /// Seconds until the daemon rolls back without a confirmation; absent when the request has no trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<f64>,
    /// Which trial this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<u64>,
}

/// Why a configuration was not applied: nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigRefused {
    /// The configuration is not valid, or the daemon cannot apply it.
    Invalid(ApiError),
    /// The request conflicts with the daemon's state: a trial runs, or no former configuration exists.
    Conflict(ApiError),
}
