//! The configuration as a whole, for the API.

use std::path::PathBuf;

use super::{Status, unpoisoned};
use crate::config::{Route, RouteTarget, Version};
use crate::control::transaction::Transactions;
use manylane_api::{
    ConfigApplied, ConfigChange, ConfigRefused, ConfigRequest, ConfigStatus, Configurations,
    SetError, Source,
};

impl Status {
    /// What it runs by came from this file.
    pub(in crate::control) fn started_with(&self, file: PathBuf, version: Version) {
        let Status { routing, control, clock, .. } = self;
        let of = Transactions::new(file, version, routing.clone(), control.clone(), *clock);
        // Set once, by `run`.
        let _ = self.transactions.set(of);
    }

    fn transactions(&self) -> &Transactions {
        self.transactions.get().expect("whoever has no file is not asked")
    }

    /// After the routes of the configuration have changed.
    fn look_at_routes(&self) {
        *unpoisoned(&self.on_link) = on_link(&self.transactions().routes());
    }

    fn set_one(&self, key: &str, value: &str) -> Result<(), SetError> {
        Source::set(self, key, value).map(drop)
    }
}

impl Configurations for Status {
    fn status(&self) -> ConfigStatus {
        self.transactions().status()
    }

    fn diff(&self, request: &ConfigRequest) -> Result<Vec<ConfigChange>, ConfigRefused> {
        self.transactions().diff(request)
    }

    fn apply(&self, request: &ConfigRequest) -> Result<ConfigApplied, ConfigRefused> {
        let applied = self.transactions().apply(request, &|key, value| self.set_one(key, value));
        self.look_at_routes();
        applied
    }

    fn confirm(&self) -> Result<ConfigStatus, ConfigRefused> {
        self.transactions().confirm()
    }

    fn roll_back(&self) -> Result<ConfigStatus, ConfigRefused> {
        let back = self.transactions().roll_back(&|key, value| self.set_one(key, value));
        self.look_at_routes();
        back
    }

    fn lapse(&self, trial: u64) {
        self.transactions().lapse(trial, &|key, value| self.set_one(key, value));
        self.look_at_routes();
    }
}

/// Prefixes of on-link static routes.
pub(super) fn on_link(routes: &[Route]) -> Vec<String> {
    let is_on_link = |route: &&Route| matches!(route.target, RouteTarget::OnLink { .. });
    routes.iter().filter(is_on_link).map(|route| route.prefix.to_string()).collect()
}
