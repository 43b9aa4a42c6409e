//! Packets that the control thread orders: solicitations, probes and announcements.

use manylane_frame::Frame;
use manylane_frame::vocabulary::{Checksum, Created, PortId, QueueId};
use manylane_net::neighbour::Key;
use manylane_sync::rcu::Guard;

use super::Work;
use crate::stats::WorkerCount;

/// A packet that the control thread orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// An ARP request or neighbour solicitation: to one station, or to all of them.
    Solicit {
        /// The neighbour.
        key: Key,
        /// The one station to ask.
        unicast: Option<[u8; 6]>,
    },
    /// The question whether another station has an address of ours.
    Probe {
        /// The address and its port.
        key: Key,
    },
    /// The news that an address of ours is here.
    Announce {
        /// The address and its port.
        key: Key,
    },
}

impl Work {
    /// Sends the packets that the control thread ordered. An order without a frame waits for one, and the orders behind
    /// it wait in the ring.
    #[inline]
    pub(super) fn send_orders(&mut self, guard: Guard<'_>) -> usize {
        let mut moved = 0;
        while let Some(order) = self.state.order.take().or_else(|| self.orders.pop()) {
            let Some(mut frame) = self.pool.take() else {
                self.state.order = Some(order);
                break;
            };
            moved += 1;
            let (key, created, made) = self.write_order(order, &mut frame);
            match made {
                Some(port) => {
                    self.stats.created(key.port, created);
                    self.queue(guard, port, frame);
                }
                // A port without an address of that family cannot solicit; or the address was lost just now.
                None => {
                    self.stats.worker(WorkerCount::OrdersLost, 1);
                    self.pool.give_back(frame);
                }
            }
        }
        if moved > 0 {
            self.orders.release();
        }
        moved
    }

    /// Writes the packet that the control thread wants into a fresh frame; returns the neighbour, the packet's kind,
    /// and the port whose device transmits it.
    fn write_order(&mut self, order: Order, frame: &mut Frame) -> (Key, Created, Option<PortId>) {
        let (Order::Solicit { key, .. } | Order::Probe { key } | Order::Announce { key }) = order;
        let region = self.pool.region();
        region.set_ingress(frame, key.port, QueueId(0), Checksum::Valid);
        region.meta_mut(frame).own = true;
        let (created, device) = match order {
            Order::Solicit { unicast, .. } => {
                (Created::Solicitation, self.forwarder.solicit(frame, key, unicast))
            }
            Order::Probe { .. } => (Created::Solicitation, self.forwarder.probe(frame, key)),
            Order::Announce { .. } => (Created::Announcement, self.forwarder.announce(frame, key)),
        };
        (key, created, device)
    }
}
