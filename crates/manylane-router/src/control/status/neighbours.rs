//! Neighbours and our own addresses, shown and edited.

use std::time::Duration;

use manylane_net::neighbour::{Conflicts, Entry, Key, OwnAddress, OwnState, State};
use manylane_net::wire::ethernet::Mac;

use super::{Status, unpoisoned};
use crate::control::routing::NeighbourRefused;
use manylane_api::{
    AddressState, AddressStatus, ApiError, NeighbourState, NeighbourStatus, SetError,
};

impl Status {
    pub(super) fn all_neighbours(&self) -> Vec<NeighbourStatus> {
        let now = self.clock.now();
        let routing = unpoisoned(&self.routing);
        // A group may still have members on a port that was removed.
        let there = routing.neighbours().filter(|entry| !routing.is_removed(entry.key.port));
        let mut entries: Vec<Entry> = there.copied().collect();
        drop(routing);
        entries.sort_by_key(|entry| entry.key);
        entries.into_iter().map(|entry| self.neighbour(entry, now)).collect()
    }

    pub(super) fn all_addresses(&self) -> Vec<AddressStatus> {
        let now = self.clock.now();
        let routing = unpoisoned(&self.routing);
        let there = routing.own_addresses().filter(|(own, _)| !routing.is_removed(own.key.port));
        let ours: Vec<_> = there.map(|(own, rivals)| (*own, rivals)).collect();
        drop(routing);
        let of_address = |(own, rivals): (OwnAddress, Conflicts)| AddressStatus {
            port: self.name(own.key.port),
            address: own.key.addr.to_string(),
            state: match own.state {
                OwnState::Probing => AddressState::Probing,
                OwnState::Announcing => AddressState::Announcing,
                OwnState::Held => AddressState::Held,
                OwnState::Duplicate => AddressState::Duplicate,
            },
            in_use: own.in_use,
            age_s: now.saturating_sub(own.since).as_secs(),
            conflicts: rivals.heard,
            claimed_by: rivals.last.map(|mac| Mac(mac).to_string()),
        };
        ours.into_iter().map(of_address).collect()
    }

    pub(super) fn set_neighbour(
        &self,
        port: &str,
        addr: &str,
        mac: &str,
    ) -> Result<NeighbourStatus, SetError> {
        let key = self.key(port, addr)?;
        let Ok(Mac(station)) = mac.parse() else {
            return Err(SetError::BadValue(ApiError {
                error: format!("{mac} is not a link-layer address"),
                help: "write six pairs of hexadecimal digits, as 02:00:00:00:00:01".into(),
            }));
        };
        let now = self.clock.now();
        let set = unpoisoned(&self.routing).add_neighbour(key, station, now);
        self.control.ring();
        set.map(|entry| self.neighbour(entry, now)).map_err(|why| refused(port, addr, &why))
    }

    pub(super) fn forget_neighbour(
        &self,
        port: &str,
        addr: &str,
    ) -> Result<NeighbourStatus, SetError> {
        let key = self.key(port, addr)?;
        let now = self.clock.now();
        let forgotten = unpoisoned(&self.routing).delete_neighbour(key, now);
        self.control.ring();
        forgotten.map(|entry| self.neighbour(entry, now)).map_err(|why| refused(port, addr, &why))
    }

    fn neighbour(&self, entry: Entry, now: Duration) -> NeighbourStatus {
        NeighbourStatus {
            port: self.name(entry.key.port),
            address: entry.key.addr.to_string(),
            mac: entry.mac.map(|mac| Mac(mac).to_string()),
            state: shown(entry.state),
            age_s: entry.age(now).as_secs(),
        }
    }

    /// What a path names a neighbour by.
    fn key(&self, port: &str, addr: &str) -> Result<Key, SetError> {
        let routing = unpoisoned(&self.routing);
        let there = self.ids().zip(&self.ports).filter(|&(id, _)| !routing.is_removed(id));
        let there: Vec<_> = there.collect();
        let Some(&(port, _)) = there.iter().find(|(_, known)| known.name == port) else {
            let names: Vec<_> = there.iter().map(|(_, port)| port.name.as_str()).collect();
            return Err(SetError::UnknownKey(ApiError {
                error: format!("port {port} does not exist"),
                help: format!("choose among {}", names.join(", ")),
            }));
        };
        match addr.parse() {
            Ok(addr) => Ok(Key { port, addr }),
            Err(_) => Err(SetError::BadValue(ApiError {
                error: format!("{addr} is not an IP address"),
                help: "write one without a length, as 10.1.0.1 or fe80::1".into(),
            })),
        }
    }
}

/// What is said to the operator whose edit was refused.
fn refused(port: &str, addr: &str, why: &NeighbourRefused) -> SetError {
    let error = format!("{addr} on {port}: {why}");
    let said = |help: &str| ApiError { error: error.clone(), help: help.into() };
    match why {
        NeighbourRefused::Unknown => {
            SetError::UnknownKey(said("`manylane show neighbours` lists those that are known"))
        }
        NeighbourRefused::Full(_) => {
            SetError::NoRoom(said("delete another, or raise `entries_max` in [neighbour]"))
        }
        NeighbourRefused::NotOnLink => SetError::BadValue(said(
            "name the port whose network it is in, or first add a [[route]] to its link",
        )),
        _ => SetError::BadValue(said("name another station")),
    }
}

fn shown(state: State) -> NeighbourState {
    match state {
        State::Incomplete => NeighbourState::Incomplete,
        State::Reachable => NeighbourState::Reachable,
        State::Stale => NeighbourState::Stale,
        State::Delay => NeighbourState::Delay,
        State::Probe => NeighbourState::Probe,
        State::Failed => NeighbourState::Failed,
        State::Permanent => NeighbourState::Permanent,
    }
}
