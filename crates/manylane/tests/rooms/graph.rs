//! The arrows between rooms, and the circles that they form.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::names::{Mention, Root, mentions, module_path};
use crate::sources::Sources;
use crate::test_code::without_tests;
use crate::tokens::tokens;

/// The room of what a crate's `lib.rs` defines itself.
pub const ROOT: &str = "lib.rs";

/// Which room names which, and the first place where it does.
pub struct Graph {
    arrows: BTreeMap<String, BTreeMap<String, String>>,
}

impl Graph {
    pub fn of(sources: &Sources) -> Graph {
        let mut files = Vec::new();
        let mut test_only = BTreeSet::new();
        for (path, text) in sources {
            let Some(module) = module_path(path) else { continue };
            let (code, test_modules) = without_tests(tokens(text));
            let names = test_modules
                .iter()
                .map(|name| [module.as_slice(), std::slice::from_ref(name)].concat());
            test_only.extend(names);
            files.push((path, module, code));
        }
        files.retain(|(_, module, _)| {
            !(1..=module.len()).any(|len| test_only.contains(&module[..len]))
        });

        let roots = files.iter().filter(|(_, module, _)| module.is_empty());
        let declared =
            roots.flat_map(|(_, _, code)| code.windows(2)).filter(|words| words[0].is("mod"));
        let rooms = declared.map(|words| words[1].text.clone()).collect();
        let mut root = Root { rooms, names: BTreeMap::new() };
        for (_, module, code) in &files {
            root.learn(module, code);
        }

        let mut graph = Graph { arrows: BTreeMap::new() };
        for (path, module, code) in &files {
            for Mention { from, path: named, line, is_exported } in
                mentions(module, code, &root.rooms)
            {
                let to = root.room_of(&named);
                let is_contents = from == ROOT && is_exported && root.names.contains_key(&named);
                if from != to && !is_contents {
                    let place = format!("{path}:{line}");
                    graph.arrows.entry(from).or_default().entry(to.to_owned()).or_insert(place);
                }
            }
        }
        graph
    }

    pub fn uses(&self, from: &str, to: &str) -> bool {
        self.arrows.get(from).is_some_and(|rooms| rooms.contains_key(to))
    }

    /// All arrows, a line each.
    pub fn arrows(&self) -> String {
        let mut text = String::new();
        for (from, rooms) in &self.arrows {
            for (to, place) in rooms {
                text += &format!("{from} -> {to} ({place})\n");
            }
        }
        text
    }

    /// The knots, and through each arrow in one its shortest circle. `None` when the rooms have an order.
    pub fn complaint(&self) -> Option<String> {
        let mut knots = BTreeSet::new();
        let mut circles = BTreeSet::new();
        for (from, rooms) in &self.arrows {
            for to in rooms.keys() {
                if let Some(back) = self.shortest(to, from) {
                    let least = back.iter().min().expect("a way has a room");
                    let at = back.iter().position(|room| room == least).expect("just found");
                    circles.insert((back.len(), [&back[at..], &back[..at]].concat()));
                    knots.insert(self.knot(from));
                }
            }
        }
        if circles.is_empty() {
            return None;
        }
        let mut text = String::new();
        for knot in knots {
            let names = knot.iter().copied().collect::<Vec<_>>().join(", ");
            text += &format!("{} rooms in one knot: {names}\n", knot.len());
        }
        for (_, circle) in circles {
            let next = |i: usize| circle[(i + 1) % circle.len()];
            let places = (0..circle.len()).map(|i| self.arrows[circle[i]][next(i)].as_str());
            let places = places.collect::<Vec<_>>().join(", ");
            text += &format!("  {} -> {} ({places})\n", circle.join(" -> "), circle[0]);
        }
        Some(text)
    }

    /// The rooms on a shortest way, both ends included.
    fn shortest<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut before = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(room) = queue.pop_front() {
            if room == to {
                let mut way = vec![room];
                while way[way.len() - 1] != from {
                    way.push(before[way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            for next in self.arrows.get(room).into_iter().flat_map(BTreeMap::keys) {
                before.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    room
                });
            }
        }
        None
    }

    /// The rooms that `room` reaches and that reach it.
    fn knot<'a>(&'a self, room: &str) -> BTreeSet<&'a str> {
        let there_and_back = |other: &str| {
            self.shortest(room, other).is_some() && self.shortest(other, room).is_some()
        };
        self.arrows.keys().map(String::as_str).filter(|other| there_and_back(other)).collect()
    }
}
