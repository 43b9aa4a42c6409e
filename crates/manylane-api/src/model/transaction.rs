//! The configuration as a whole: what runs, what would change, and what was changed on trial.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ApiError;

/// The configuration that a daemon runs by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigStatus {
    /// The file that the daemon was started with.
    pub file: String,
    /// What it runs by, as it was written. Settings made one by one are not in it.
    pub text: String,
    /// Whether there is one to go back to.
    pub can_roll_back: bool,
    /// In how many seconds it goes back by itself, if nobody confirms; absent when nothing is on trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<f64>,
}

/// A key that is different in another configuration, or a whole route or neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigChange {
    /// As `steering.netdev_budget`, `port.lan.mtu`, `route.10.0.0.0/8`, `neighbour.static.lan.10.1.0.2`.
    pub key: String,
    /// What it is while the daemon runs, as TOML; absent when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What it would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Whether it can be changed while the daemon runs; otherwise the daemon has to be started anew.
    pub live: bool,
}

/// A configuration to apply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigRequest {
    /// The whole text, as in a file.
    pub text: String,
    /// Its name in messages.
    #[serde(default)]
    pub name: Option<String>,
    /// Goes back after so many seconds, unless it is confirmed.
    #[serde(default)]
    pub confirm_within_s: Option<f64>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigApplied {
    /// What has changed.
    pub changes: Vec<ConfigChange>,
    /// In how many seconds it goes back by itself, if nobody confirms; absent when that is not wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_within_s: Option<f64>,
    /// Which trial this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<u64>,
}

/// Why a configuration was not applied: nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigRefused {
    /// It is not valid, or cannot be done.
    Invalid(ApiError),
    /// It does not fit what the daemon is doing: a trial, nothing to go back to.
    Conflict(ApiError),
}
