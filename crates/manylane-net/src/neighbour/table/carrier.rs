//! Ports that lose their carrier, and get it back.

use std::time::Duration;

use manylane_frame::vocabulary::PortId;

use super::super::entry::{self, Entry, Event, State};
use super::{Action, Table};

impl Table {
    /// Takes in whether a port has a carrier; at first, each has. Without one no neighbour can answer: packets for
    /// those that stay are refused, no question is sent, and what was learned is forgotten, since another station may
    /// be at the other end afterwards. With it, each neighbour that a next hop needs is looked for at once.
    pub fn set_carrier(
        &mut self,
        port: PortId,
        has_carrier: bool,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        if has_carrier != self.down.contains(&port) {
            return;
        }
        let slots: Vec<u32> = self.keys_of(port).iter().map(|key| self.by_key[key]).collect();
        slots.iter().for_each(|&slot| self.unlink(slot));
        match has_carrier {
            true => self.down.remove(&port),
            false => self.down.insert(port),
        };
        slots.iter().for_each(|&slot| self.link(slot));
        for slot in slots {
            let entry = *self.entry(slot).expect("its key leads there");
            if entry.state == State::Permanent {
                actions.push(self.publish(slot));
                continue;
            }
            if entry.pins == 0 {
                self.remove(slot, now, actions);
                continue;
            }
            // The same slot: next hops know the neighbour by it.
            let anew = if has_carrier {
                entry::first(entry.key, Event::Missing, now).expect("a packet makes an entry")
            } else {
                entry.unreachable(now)
            };
            self.replace(slot, Entry { pins: entry.pins, trust: entry.trust, ..anew });
            actions.push(self.publish(slot));
            self.ask_now(slot, now, actions);
        }
    }

    /// Whether packets can be sent to the neighbour of this slot: it has an address, and its port a carrier.
    pub fn is_resolved(&self, slot: u32) -> bool {
        self.entry(slot).is_some_and(|entry| {
            entry.adjacency_state().is_resolved() && !self.down.contains(&entry.key.port)
        })
    }
}
