//! Fanout groups: sockets that share what arrives, by one hook.

use std::collections::btree_map;
use std::sync::Arc;

use manylane_io::packet_ring::MEMBERS_MAX;
use manylane_sync::hook::{Generation, Hooks, Socket};
use manylane_worker::hooks::{Lanes, Target};

use super::{Control, Sockets};
use crate::socket::endpoint::{Endpoint, Wishes};
use crate::socket::{Fanout, SocketError};

pub(super) struct Group {
    mode: Fanout,
    hook: Socket,
    wishes: Wishes,
    members: Vec<Seat>,
    /// Whether workers do not know of the last change.
    pub(super) owes: bool,
}

/// A member of a group.
struct Seat {
    /// Of its socket.
    number: u32,
    generation: Generation,
    wishes: Wishes,
    lanes: Arc<Lanes>,
}

impl Sockets {
    /// Makes a socket a member of a group, and its hook a part of the group's.
    pub(in crate::socket) fn join(
        &self,
        number: u16,
        mode: Fanout,
        place: &Socket,
        wishes: &Wishes,
        lanes: &Arc<Lanes>,
    ) -> Result<(), SocketError> {
        let mut control = self.lock();
        let Control { hooks, groups, registry, .. } = &mut *control;
        hooks.reclaim();
        if hooks.room() < 2 {
            return Err(SocketError::Busy);
        }
        let group = match groups.entry(number) {
            btree_map::Entry::Occupied(group) => group.into_mut(),
            btree_map::Entry::Vacant(place) => {
                let max = self.0.limits.max;
                let (hook, _) = hooks.open().ok_or(SocketError::TooMany { max })?;
                let wishes = wishes.clone();
                place.insert(Group { mode, hook, wishes, members: Vec::new(), owes: false })
            }
        };
        let of = |wishes: &Wishes| (wishes.protocol, wishes.port, wishes.points);
        if group.mode != mode || of(&group.wishes) != of(wishes) {
            return Err(SocketError::GroupDiffers); // The group has members.
        }
        if group.members.len() == MEMBERS_MAX {
            return Err(SocketError::GroupFull);
        }
        // First none, then one of all: what arrives in between is not given twice.
        let unbound = hooks.bind(place, None);
        assert!(unbound.is_ok(), "nothing is always possible");
        let generation = hooks.generation(place);
        let (wishes, lanes) = (wishes.clone(), lanes.clone());
        group.members.push(Seat { number: place.number(), generation, wishes, lanes });
        group.publish(hooks, self);
        registry.set_fanout(place.number(), Some((number, mode)));
        Ok(())
    }

    /// Lets workers see what a member of a group, and so the group, is to receive.
    pub(super) fn publish_member(
        &self,
        control: &mut Control,
        group: u16,
        place: &Socket,
        wishes: &Wishes,
        lanes: &Arc<Lanes>,
    ) -> Result<(), SocketError> {
        let Control { hooks, groups, registry, .. } = control;
        let group = groups.get_mut(&group).expect("a group is there while it has a member");
        hooks.reclaim();
        if hooks.room() == 0 {
            return Err(SocketError::Busy);
        }
        registry.change(place.number(), wishes, lanes);
        let seat = group.members.iter_mut().find(|seat| seat.number == place.number());
        let seat = seat.expect("a member has a seat");
        seat.generation = hooks.renew(place);
        (seat.wishes, seat.lanes) = (wishes.clone(), lanes.clone());
        group.publish(hooks, self);
        Ok(())
    }

    /// Ends a socket's membership. A socket that stays open is bound for itself again.
    pub(in crate::socket) fn leave(
        &self,
        number: u16,
        place: &Socket,
        alone: Option<&Endpoint>,
    ) -> Result<(), SocketError> {
        let mut control = self.lock();
        let Control { hooks, groups, registry, .. } = &mut *control;
        hooks.reclaim();
        if alone.is_some() && hooks.room() < 2 {
            return Err(SocketError::Busy);
        }
        let group = groups.get_mut(&number).expect("a group is there while it has a member");
        group.members.retain(|seat| seat.number != place.number());
        if group.members.is_empty() {
            let group = groups.remove(&number).expect("it is there");
            hooks.close(group.hook);
        } else {
            group.publish(hooks, self);
        }
        registry.set_fanout(place.number(), None);
        hooks.renew(place);
        if let Some(Endpoint { wishes, lanes, .. }) = alone {
            let bound = hooks.bind(place, wishes.target(self, lanes));
            assert!(bound.is_ok(), "the table had room");
        }
        Ok(())
    }
}

impl Group {
    /// Lets workers see its members. The table has room: the caller has looked, or the group has become smaller.
    pub(super) fn publish(&mut self, hooks: &mut Hooks<Target>, sockets: &Sockets) {
        let mut target = self.wishes.target(sockets, &self.members[0].lanes);
        if let Some(target) = &mut target {
            target.fanout = Some(self.mode);
            target.members = self.members.iter().map(Seat::member).collect();
        }
        // Without room, a socket that left is still given packets, which no reader takes, until it is tried again.
        self.owes = hooks.bind(&self.hook, target).is_err();
    }
}

impl Seat {
    fn member(&self) -> manylane_worker::hooks::Member {
        let generation = Some(self.generation);
        manylane_worker::hooks::Member { generation, ..self.wishes.member(&self.lanes) }
    }
}
