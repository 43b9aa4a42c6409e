//! Next-hop objects (ip-nexthop(8)), and the groups that they are in.

use std::collections::{BTreeMap, BTreeSet};

use manylane_io::netlink::kernel::{NextHop, NextHopKind};

use super::edit::each_family;
use crate::changes::Changes;
use crate::kernel::Kernel;

/// The objects.
#[derive(Default)]
pub(crate) struct Objects {
    objects: BTreeMap<u32, NextHop>,
    /// A member and a group.
    groups: BTreeSet<(u32, u32)>,
}

impl Objects {
    pub fn get(&self, id: u32) -> Option<&NextHop> {
        self.objects.get(&id)
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &NextHop> + Clone {
        self.objects.values()
    }

    /// Puts an object there; returns what was there.
    pub fn insert(&mut self, object: &NextHop) -> Option<NextHop> {
        let former = self.remove(object.id);
        for (member, _) in members(object) {
            self.groups.insert((*member, object.id));
        }
        self.objects.insert(object.id, object.clone());
        former
    }

    fn remove(&mut self, id: u32) -> Option<NextHop> {
        let former = self.objects.remove(&id)?;
        for (member, _) in members(&former) {
            self.groups.remove(&(*member, id));
        }
        Some(former)
    }

    /// The groups that an object is a member of.
    pub fn groups_of(&self, id: u32) -> Vec<u32> {
        self.groups.range((id, 0)..=(id, u32::MAX)).map(|&(_, group)| group).collect()
    }

    /// Whether what leads by an object may lead to the destination itself.
    pub fn is_on_link(&self, id: u32) -> bool {
        let kind = self.get(id).map(|object| &object.kind);
        matches!(kind, Some(NextHopKind::Via(hop)) if hop.gateway.is_none())
    }
}

fn members(object: &NextHop) -> &[(u32, u16)] {
    match &object.kind {
        NextHopKind::Group { members, .. } => members,
        _ => &[],
    }
}

impl Kernel {
    /// An object is now so. Says whether that is news.
    pub(crate) fn set_object(&mut self, object: &NextHop, changes: &mut Changes) -> bool {
        if self.objects.get(object.id) == Some(object) {
            return false;
        }
        if self.objects.get(object.id).is_none() && self.objects.len() >= self.limits.others_max {
            self.overflows += 1;
            return false;
        }
        let was_on_link = self.objects.is_on_link(object.id);
        self.objects.insert(object);
        self.object_changed(object.id, was_on_link, changes);
        true
    }

    /// An object is gone: from groups, and with its routes.
    pub(crate) fn remove_object(&mut self, id: u32, changes: &mut Changes) -> bool {
        let was_on_link = self.objects.is_on_link(id);
        if self.objects.remove(id).is_none() {
            return false;
        }
        self.object_changed(id, was_on_link, changes);
        for group in self.objects.groups_of(id) {
            let Some(mut object) = self.objects.get(group).cloned() else { continue };
            let is_empty = match &mut object.kind {
                NextHopKind::Group { members, .. } => {
                    members.retain(|&(member, _)| member != id);
                    members.is_empty()
                }
                _ => false,
            };
            if is_empty {
                self.remove_object(group, changes);
            } else {
                self.objects.insert(&object);
                changes.objects.insert(group);
            }
        }
        each_family!(self, |parts, routes| {
            for number in routes.attribute_sets.of_object(id) {
                parts.remove_attributes(routes, number, changes);
            }
        });
        true
    }

    /// A device is down or without carrier: its objects are gone.
    pub(crate) fn flush_objects(&mut self, link: u32, changes: &mut Changes) {
        let is_by =
            |object: &&NextHop| matches!(&object.kind, NextHopKind::Via(hop) if hop.link == link);
        let gone: Vec<u32> = self.objects.iter().filter(is_by).map(|object| object.id).collect();
        for id in gone {
            self.remove_object(id, changes);
        }
    }

    fn object_changed(&mut self, id: u32, was_on_link: bool, changes: &mut Changes) {
        changes.objects.insert(id);
        changes.objects.extend(self.objects.groups_of(id));
        if was_on_link || self.objects.is_on_link(id) {
            // Which neighbours are on a connected network of its routes: all are looked at.
            self.touch_neighbours(changes);
        }
    }
}
