//! A class of packets, and what the rules do to each of its flows.

use std::fmt;
use std::sync::Arc;

use manylane_io::netlink::nftables::{Base, SetName};

use super::obstacle::{Place, Provisos};
use super::packet::{ClassKey, Flow, View};
use super::rules::{Block, Rules, Spot};
use super::walk::{Live, Notes, Walk};
use super::{Answer, Options};

/// A class of packets as the rules see it: what they do to all flows alike is decided, and what is left depends on each
/// flow. A class keeps the rules that it was made from: after a change of rules, make another class.
#[derive(Clone)]
pub struct Class {
    rules: Arc<Rules>,
    key: ClassKey,
    options: Options,
    said: Said,
    /// Base chains whose answer depends on the flow, in order.
    asked: Vec<Asked>,
    counters: Vec<Spot>,
    reverse_path: Vec<Spot>,
    sets: Vec<(usize, usize)>,
}

/// What is known of all flows of the class.
#[derive(Clone, Copy)]
enum Said {
    Yes,
    No(Block),
    PerFlow(Block),
}

/// A base chain, and the rules behind it that matter.
#[derive(Clone)]
struct Asked {
    table: usize,
    chain: usize,
    live: Live,
}

impl Class {
    pub(super) fn new(
        rules: Arc<Rules>,
        bases: impl Iterator<Item = (usize, usize)>,
        key: ClassKey,
        options: Options,
    ) -> Class {
        let mut notes = Notes::default();
        let mut asked = Vec::new();
        let mut said = Said::Yes;
        let mut budget = BUDGET;
        for (table, chain) in bases {
            let base = base(&rules, table, chain);
            let view = View::at(&key, None, base);
            let mut walk = Walk::of_class(&rules, table, view, options, &mut notes, &mut budget);
            match walk.base(chain, base.drops) {
                Some((false, block)) => {
                    said = Said::No(block);
                    break;
                }
                Some((true, block)) => {
                    asked.push(Asked {
                        table,
                        chain,
                        live: std::mem::take(&mut notes.live).into(),
                    });
                    if let Said::Yes = said {
                        said = Said::PerFlow(block);
                    }
                }
                None => {}
            }
        }
        let Notes { counters, reverse_path, sets, .. } = notes;
        Class { rules, key, options, said, asked, counters, reverse_path, sets }
    }

    /// Which packets these are.
    pub fn key(&self) -> &ClassKey {
        &self.key
    }

    /// What the rules do to all flows of the class.
    pub fn answer(&self) -> Answer {
        match self.said {
            Said::Yes => Answer::Yes(self.provisos()),
            Said::No(block) => Answer::No(self.rules.obstacle(block)),
            Said::PerFlow(block) => Answer::AskPerFlow(self.rules.obstacle(block)),
        }
    }

    /// Whether each chain accepts the packets of all flows, or of none, and does nothing else; `None` if that depends on the
    /// flow.
    pub fn allows_all(&self) -> Option<bool> {
        match self.said {
            Said::Yes => Some(true),
            Said::No(_) => Some(false),
            Said::PerFlow(_) => None,
        }
    }

    /// Whether each chain accepts the packets of this flow and does nothing else, but for what the
    /// [provisos](Class::provisos) say. Writes nothing, and makes no text.
    pub fn allows(&self, flow: &Flow) -> bool {
        match self.said {
            Said::Yes => true,
            Said::No(_) => false,
            Said::PerFlow(_) => self.ask(flow).is_none(),
        }
    }

    /// What the rules do to the packets of this flow.
    pub fn may(&self, flow: &Flow) -> Answer {
        match self.said {
            Said::Yes | Said::No(_) => self.answer(),
            Said::PerFlow(_) => match self.ask(flow) {
                None => Answer::Yes(self.provisos()),
                Some((false, block)) => Answer::No(self.rules.obstacle(block)),
                Some((true, block)) => Answer::AskPerFlow(self.rules.obstacle(block)),
            },
        }
    }

    /// What is in the way of a flow's packets, and whether more about the flow would decide it.
    fn ask(&self, flow: &Flow) -> Option<(bool, Block)> {
        let mut asks = None;
        let mut budget = BUDGET;
        for Asked { table, chain, live } in &self.asked {
            let base = base(&self.rules, *table, *chain);
            let view = View::at(&self.key, Some(flow), base);
            let mut walk =
                Walk::of_flow(&self.rules, *table, view, self.options, live, &mut budget);
            match walk.base(*chain, base.drops) {
                no @ Some((false, _)) => return no,
                maybe => asks = asks.or(maybe),
            }
        }
        asks
    }

    /// What has to be known of a yes, for any flow of the class.
    pub fn provisos(&self) -> Provisos {
        let places = |spots: &[Spot]| -> Vec<Place> {
            spots.iter().map(|&spot| self.rules.place(spot)).collect()
        };
        Provisos { counters: places(&self.counters), reverse_path: places(&self.reverse_path) }
    }

    /// Whether a rule drops packets from the wrong port: a forwarder has to check the reverse path strictly.
    pub fn checks_reverse_path(&self) -> bool {
        !self.reverse_path.is_empty()
    }

    /// Whether elements of this set or map can decide about a flow of the class. Where they cannot, their change changes
    /// no answer.
    pub fn reads(&self, set: &SetName) -> bool {
        self.sets.iter().any(|&(table, number)| {
            let table = &self.rules.tables[table].read;
            (table.family, &table.name, &table.sets[number].name)
                == (set.family, &set.table, &set.set)
        })
    }
}

impl fmt::Debug for Class {
    /// Without the rules, which are many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Class { key, options, .. } = self;
        f.debug_struct("Class").field("key", key).field("options", options).finish_non_exhaustive()
    }
}

fn base(rules: &Rules, table: usize, chain: usize) -> &Base {
    let base = rules.tables[table].read.chains[chain].base.as_ref();
    base.expect("it is one of the base chains")
}

/// Expressions and elements of sets that one question may look at: some tenths of a second.
const BUDGET: u64 = 10_000_000;
