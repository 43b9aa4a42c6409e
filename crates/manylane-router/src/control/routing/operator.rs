//! Edits by the operator, while the daemon runs.

use std::time::Duration;

use manylane_frame::vocabulary::PortId;
use manylane_net::neighbour::{Entry, Key, TableFull};
use manylane_net::wire::ethernet::Mac;

use super::{Effects, Routing, RoutingError};
use crate::config::{not_unicast, owner};

/// Why a neighbour was not set or forgotten.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeighbourRefused {
    /// No station has this link-layer address.
    #[error("no station has this link-layer address")]
    NotAStation,
    /// No host has this address.
    #[error("it is {0}")]
    NotAHost(&'static str),
    /// The address is our own.
    #[error("it is our own address")]
    Own,
    /// The address is in no network of the port, nor in one that a static route says is on its link.
    #[error("it is not on the link of this port")]
    NotOnLink,
    /// No neighbour has this address.
    #[error("no such neighbour is known")]
    Unknown,
    /// The table has no place for it.
    #[error("none of the {} entries can be given up for it", .0.entries_max)]
    Full(TableFull),
}

impl Routing {
    /// Sets a neighbour by the operator's word, in the configuration.
    pub fn set_neighbour(
        &mut self,
        key: Key,
        mac: [u8; 6],
        now: Duration,
        effects: &mut Effects,
    ) -> Result<u32, RoutingError> {
        self.check_own(key)?;
        let mut actions = std::mem::take(&mut self.actions);
        let slot =
            self.neighbours.set(key, mac, now, &mut actions).map_err(RoutingError::Neighbour);
        self.apply(actions, effects);
        slot
    }

    /// Sets a neighbour by the operator's word. From another thread than the control thread: ring its bell
    /// afterwards, so that it informs the workers.
    pub fn add_neighbour(
        &mut self,
        key: Key,
        mac: [u8; 6],
        now: Duration,
    ) -> Result<Entry, NeighbourRefused> {
        if !Mac(mac).is_station() {
            return Err(NeighbourRefused::NotAStation);
        }
        self.may_be_set(key)?;
        let mut effects = Effects::default();
        let set = self.set_neighbour(key, mac, now, &mut effects);
        self.owe(effects);
        match set {
            Ok(slot) => Ok(*self.neighbours.entry(slot).expect("it was just set")),
            Err(RoutingError::Neighbour(full)) => Err(NeighbourRefused::Full(full)),
            Err(error) => unreachable!("only the table refuses a neighbour: {error}"),
        }
    }

    /// Forgets a neighbour, whatever is known of it; one that routes lead through is looked for anew. Returns
    /// what was known. For the thread, see [`Routing::add_neighbour`].
    pub fn delete_neighbour(&mut self, key: Key, now: Duration) -> Result<Entry, NeighbourRefused> {
        let entry = self.neighbours.find(key).map(|(_, entry)| *entry);
        let entry = entry.ok_or(NeighbourRefused::Unknown)?;
        let mut effects = Effects::default();
        let mut actions = std::mem::take(&mut self.actions);
        self.neighbours.forget(key, now, &mut actions);
        self.apply(actions, &mut effects);
        self.owe(effects);
        Ok(entry)
    }

    /// Whether an edit by another thread still waits for the control thread to inform the workers.
    pub fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// What the control thread must do after such edits.
    pub(super) fn pay(&mut self, effects: &mut Effects) {
        let owed = std::mem::take(&mut self.owed);
        effects.orders.extend(owed.orders);
        effects.duplicates.extend(owed.duplicates);
        effects.published |= owed.published;
    }

    pub(super) fn owe(&mut self, mut effects: Effects) {
        self.pay(&mut effects);
        self.owed = effects;
    }

    /// Refuses to send to ourselves.
    pub(super) fn check_own(&self, key: Key) -> Result<(), RoutingError> {
        if self.is_own(key) { Err(RoutingError::Own { addr: key.addr }) } else { Ok(()) }
    }

    /// Whether this would be ourselves: by the configuration's rule, and by the link-local address that a
    /// port has by itself, which the configuration does not know.
    pub(super) fn is_own(&self, key: Key) -> bool {
        let ours = (0..).map(PortId).zip(self.ports.iter().map(|port| &port.addresses[..]));
        self.ports[key.port.index()].facts.link_local.is_some_and(|own| own == key.addr)
            || owner(key.port, key.addr, ours).is_some()
    }

    fn may_be_set(&self, key: Key) -> Result<(), NeighbourRefused> {
        if let Some(why) = not_unicast(key.addr) {
            return Err(NeighbourRefused::NotAHost(why));
        }
        if self.is_own(key) {
            return Err(NeighbourRefused::Own);
        }
        let networks = &self.ports[key.port.index()].addresses;
        if let Some(network) = networks.iter().find(|own| own.prefix().contains(key.addr))
            && let Some(why) = network.not_a_host(key.addr)
        {
            return Err(NeighbourRefused::NotAHost(why));
        }
        let has_family = networks.iter().any(|own| own.address.is_ipv4() == key.addr.is_ipv4());
        if !has_family || !self.is_neighbours(key) {
            return Err(NeighbourRefused::NotOnLink);
        }
        Ok(())
    }
}
