//! Elements of a set that the bytes of a register may be.
//!
//! A key that is known is found by an index; a key that is not is compared with each element.
//!
//! | keys of the set           | index                                                                      |
//! |---------------------------|----------------------------------------------------------------------------|
//! | single                    | a hash table                                                               |
//! | intervals of one field    | sorted                                                                     |
//! | intervals of some fields  | a hash table over the field that is single in most elements, and a list of the others |

use std::collections::BTreeMap;

use manylane_io::netlink::nftables::expression::{Data, Verdict};
use manylane_io::netlink::nftables::set::{Element, Keys, Set};

use super::bits::{Part, Truth};
use super::evaluate::{self, Step};
use super::obstacle::Cause;
use super::rules::Decision;

/// What is to be known of a set beside its elements, which are named by their numbers.
#[derive(Debug)]
pub(super) struct Elements {
    /// Single keys: places by hash, each the number of an element and 1, or 0.
    single: Box<[u32]>,
    /// Intervals of one field by their first keys, without overlaps.
    intervals: Vec<u32>,
    fields: Option<Fields>,
    /// The one that stands for all other keys.
    rest: Option<u32>,
    /// Nothing above can be used: each element has to be compared.
    is_linear: bool,
    /// Of a verdict map.
    decisions: Vec<Decision>,
    /// What elements do, if any does something; of each, where they differ.
    effects: Vec<Option<Cause>>,
    /// The first of them.
    effect: Option<Cause>,
}

/// Intervals of some fields.
#[derive(Debug)]
struct Fields {
    /// Offset and length of the field by which the elements are found.
    at: usize,
    length: usize,
    /// Those that have one value of it.
    single: BTreeMap<Vec<u8>, Vec<u32>>,
    others: Vec<u32>,
}

/// What a lookup finds.
pub(super) enum Found {
    /// This element, or none, for all packets.
    Known(Option<usize>),
    /// Elements that match or may match, and whether any does.
    Some { elements: Vec<(usize, Truth)>, is_there: Truth },
}

impl Elements {
    pub(super) fn of(set: &Set, decision: impl Fn(&Verdict) -> Decision) -> Elements {
        let decisions = set.elements.iter().map(|element| match &element.data {
            Some(Data::Verdict(verdict)) => decision(verdict),
            _ => Decision::Other,
        });
        let effects: Vec<_> = set.elements.iter().map(effect).collect();
        let effect = effects.iter().find_map(|effect| *effect);
        let has_verdicts =
            set.elements.iter().any(|element| matches!(element.data, Some(Data::Verdict(_))));
        let mut elements = Elements {
            single: Box::default(),
            intervals: Vec::new(),
            fields: None,
            rest: None,
            is_linear: false,
            decisions: if has_verdicts { decisions.collect() } else { Vec::new() },
            effects: if effect.is_some() { effects } else { Vec::new() },
            effect,
        };
        elements.index(set);
        elements
    }

    fn index(&mut self, set: &Set) {
        let mut singles = Vec::new();
        for (number, element) in (0..).zip(&set.elements) {
            match &element.keys {
                Keys::One(_) => singles.push(number),
                Keys::Range(..) => self.intervals.push(number),
                Keys::Rest => self.rest = Some(number),
            }
        }
        self.single = hashed(set, &singles);
        // As the kernel has them; what is other is compared one by one.
        let is_odd = |key: &Vec<u8>| key.len() != set.key_bytes;
        self.is_linear = set.elements.iter().any(|element| match &element.keys {
            Keys::One(one) => is_odd(one),
            Keys::Range(first, last) => is_odd(first) || is_odd(last),
            Keys::Rest => false,
        });
        if set.fields.len() > 1 && !self.intervals.is_empty() {
            self.fields = Fields::of(set, &std::mem::take(&mut self.intervals));
            self.is_linear |= self.fields.is_none();
            return;
        }
        self.intervals.sort_by(|&one, &other| ends(set, one).cmp(&ends(set, other)));
        let overlap = |two: &[u32]| ends(set, two[0]).1 >= ends(set, two[1]).0;
        self.is_linear |= self.intervals.windows(2).any(overlap);
    }

    /// What each element of a verdict map decides.
    pub(super) fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    pub(super) fn decision(&self, element: usize) -> Decision {
        self.decisions.get(element).copied().unwrap_or(Decision::Other)
    }

    /// What any of the elements does.
    pub(super) fn any_effect(&self) -> Option<Cause> {
        self.effect
    }

    /// What an element does where it matches.
    pub(super) fn effect(&self, element: usize) -> Option<Cause> {
        self.effects.get(element).copied().flatten()
    }

    /// Looks a key up. The elements that certainly do not match are left out. Takes the elements that it has to compare
    /// from the budget; `None` if they are too many.
    pub(super) fn find(&self, set: &Set, key: Option<Part<'_>>, budget: &mut u64) -> Option<Found> {
        let bytes = key.and_then(|key| key.bytes());
        match bytes {
            Some(bytes) if !self.is_linear => {
                let found = self.find_known(set, bytes).or(self.rest);
                Some(Found::Known(found.map(|number| number as usize)))
            }
            _ => {
                let cost = set.elements.len() as u64;
                *budget = budget.checked_sub(cost)?;
                Some(self.compare(set, key))
            }
        }
    }

    /// Of several elements, as intervals of some fields may overlap, the first one holds.
    fn find_known(&self, set: &Set, key: &[u8]) -> Option<u32> {
        let single = self.find_single(set, key);
        let interval = match &self.fields {
            Some(fields) => fields.find(set, key),
            None => self.find_interval(set, key),
        };
        single.into_iter().chain(interval).min()
    }

    fn find_interval(&self, set: &Set, key: &[u8]) -> Option<u32> {
        let behind = self.intervals.partition_point(|&number| ends(set, number).0 <= key);
        let found = *self.intervals.get(behind.checked_sub(1)?)?;
        (key <= ends(set, found).1).then_some(found)
    }

    fn find_single(&self, set: &Set, key: &[u8]) -> Option<u32> {
        let last = self.single.len().checked_sub(1)?;
        let mut at = hash(key) as usize & last;
        loop {
            let number = self.single[at].checked_sub(1)?;
            if matches!(&set.elements[number as usize].keys, Keys::One(one) if one == key) {
                return Some(number);
            }
            at = (at + 1) & last;
        }
    }

    fn compare(&self, set: &Set, key: Option<Part<'_>>) -> Found {
        let mut elements = Vec::new();
        let mut is_there = Truth::No;
        for (number, element) in set.elements.iter().enumerate() {
            let truth = match (&element.keys, key) {
                (Keys::Rest, _) => continue,
                (_, None) => Truth::Maybe { asks: false },
                (Keys::One(one), Some(key)) => key.equal(one),
                (Keys::Range(first, last), Some(key)) => between(set, key, first, last),
            };
            if truth == Truth::Yes {
                return Found::Known(Some(number));
            }
            if truth != Truth::No {
                elements.push((number, truth));
                is_there = is_there.or(truth);
            }
        }
        if let Some(rest) = self.rest {
            if is_there == Truth::No {
                return Found::Known(Some(rest as usize));
            }
            elements.push((rest as usize, is_there.not()));
            is_there = Truth::Yes;
        }
        match is_there {
            Truth::No => Found::Known(None),
            is_there => Found::Some { elements, is_there },
        }
    }
}

impl Fields {
    /// Of a set whose intervals have several fields.
    fn of(set: &Set, intervals: &[u32]) -> Option<Fields> {
        let mut places = Vec::new();
        let mut at = 0;
        for &length in &set.fields {
            places.push((at, length));
            at += length.next_multiple_of(4);
        }
        let value = |number: u32, (at, length): (usize, usize)| {
            let (first, last) = ends(set, number);
            let one = first.get(at..at + length)?;
            (last.get(at..at + length)? == one).then_some(one)
        };
        let different = |place: &(usize, usize)| {
            let mut all: Vec<_> = intervals.iter().filter_map(|&one| value(one, *place)).collect();
            all.sort_unstable();
            all.dedup();
            all.len()
        };
        let (at, length) = places.into_iter().max_by_key(different)?;
        let (mut single, mut others) = (BTreeMap::<_, Vec<u32>>::new(), Vec::new());
        for &number in intervals {
            match value(number, (at, length)) {
                Some(value) => single.entry(value.to_vec()).or_default().push(number),
                None => others.push(number),
            }
        }
        Some(Fields { at, length, single, others })
    }

    /// The first that has the key.
    fn find(&self, set: &Set, key: &[u8]) -> Option<u32> {
        let matches = |number: &&u32| {
            let (first, last) = ends(set, **number);
            let mut at = 0;
            set.fields.iter().all(|length| {
                let field = at..at + length;
                at += length.next_multiple_of(4);
                let parts = (key.get(field.clone()), first.get(field.clone()), last.get(field));
                matches!(parts, (Some(key), Some(first), Some(last)) if first <= key && key <= last)
            })
        };
        let value = key.get(self.at..self.at + self.length)?;
        let one = self.single.get(value).and_then(|list| list.iter().find(matches));
        let other = self.others.iter().find(matches);
        one.into_iter().chain(other).min().copied()
    }
}

/// Both ends of an interval.
fn ends(set: &Set, number: u32) -> (&[u8], &[u8]) {
    match &set.elements[number as usize].keys {
        Keys::Range(first, last) => (first, last),
        Keys::One(_) | Keys::Rest => (&[], &[]),
    }
}

/// What an element does where it matches: expressions of its own.
fn effect(element: &Element) -> Option<Cause> {
    element.stateful.iter().find_map(|name| match evaluate::by_name(name) {
        Step::Effect(cause) => Some(cause),
        _ => None,
    })
}

/// A table of at most half its places, each the number of an element and 1.
fn hashed(set: &Set, singles: &[u32]) -> Box<[u32]> {
    if singles.is_empty() {
        return Box::default();
    }
    let mut places = vec![0; (2 * singles.len()).next_power_of_two()].into_boxed_slice();
    let last = places.len() - 1;
    for &number in singles {
        let Keys::One(key) = &set.elements[number as usize].keys else { continue };
        let mut at = hash(key) as usize & last;
        while places[at] != 0 {
            at = (at + 1) & last;
        }
        places[at] = number + 1;
    }
    places
}

/// Of keys that the operator chose: it need not withstand keys of a stranger.
fn hash(key: &[u8]) -> u64 {
    let mut hash = 0u64;
    for word in key.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        hash =
            (hash.rotate_left(5) ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    hash ^ hash >> 32
}

fn between(set: &Set, key: Part<'_>, first: &[u8], last: &[u8]) -> Truth {
    if set.fields.len() < 2 {
        return key.between(first, last);
    }
    let mut truth = Truth::Yes;
    let mut at = 0;
    for &length in &set.fields {
        let field = at..at + length;
        let bounds = (first.get(field.clone()), last.get(field));
        let its = match (key.part(at, length), bounds) {
            (Some(part), (Some(first), Some(last))) => part.between(first, last),
            _ => Truth::Maybe { asks: false },
        };
        truth = truth.and(its);
        at += length.next_multiple_of(4);
    }
    truth
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firewall::bits::Bits;

    fn element(keys: Keys) -> Element {
        Element { keys, data: None, stateful: Vec::new() }
    }

    fn set(key_bytes: usize, fields: &[usize], keys: Vec<Keys>) -> Set {
        let elements = keys.into_iter().map(element).collect();
        Set { name: "s".into(), key_bytes, fields: fields.to_vec(), elements, ..Set::default() }
    }

    /// By index and by comparing it with each element: the same element.
    fn check(set: &Set, keys: impl Iterator<Item = Vec<u8>>) -> [usize; 2] {
        let elements = Elements::of(set, |_| Decision::Other);
        let mut counts = [0; 2];
        for key in keys {
            let mut bits = Bits::UNKNOWN;
            bits.set(0, &key);
            let part = bits.part(0, key.len());
            let Some(Found::Known(found)) = elements.find(set, part, &mut 0) else {
                panic!("it needs no budget: {key:?}");
            };
            let Found::Known(compared) = elements.compare(set, part) else {
                panic!("the key is known: {key:?}");
            };
            assert_eq!(found, compared, "{key:?} in {set:?}");
            counts[usize::from(found.is_some())] += 1;
        }
        counts
    }

    /// Numbers that look random.
    fn numbers(seed: u32) -> impl FnMut(u32) -> u32 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        }
    }

    #[test]
    fn an_index_finds_what_comparing_finds() {
        let mut missed_and_found = [0; 2];
        for seed in 0..60 {
            let mut next = numbers(seed);
            let singles = (0..next(40)).map(|_| Keys::One(vec![next(4) as u8, next(30) as u8]));
            let singles: Vec<_> = singles.collect();
            // None overlap, some touch.
            let mut intervals = Vec::new();
            let mut first = 0;
            while first < 250 {
                let last = first + next(9);
                intervals.push(Keys::Range(vec![first as u8], vec![last as u8]));
                first = last + 1 + next(5);
            }
            // A byte and another one, with what is between; these overlap.
            let concatenated = (0..next(30)).map(|_| {
                let (one, two) = (next(12) as u8, next(12) as u8);
                let more = [next(3), next(3)].map(|more| if more == 2 { next(6) as u8 } else { 0 });
                let key = |one: u8, two: u8| vec![one, 0, 0, 0, two, 0, 0, 0];
                match next(5) {
                    0 => Keys::One(key(one, two)),
                    _ => Keys::Range(key(one, two), key(one + more[0], two + more[1])),
                }
            });
            let concatenated: Vec<_> = concatenated.collect();
            for (bytes, fields, keys) in
                [(2, &[][..], singles), (1, &[], intervals), (8, &[1, 1], concatenated)]
            {
                let all = (0..=255u8).map(|number| match bytes {
                    1 => vec![number],
                    2 => vec![number >> 6, number & 63],
                    _ => vec![number >> 4, 0, 0, 0, number & 15, 0, 0, 0],
                });
                for rest in [None, Some(Keys::Rest)] {
                    let keys = keys.iter().cloned().chain(rest).collect();
                    let counts = check(&set(bytes, fields, keys), all.clone());
                    (0..2).for_each(|which| missed_and_found[which] += counts[which]);
                }
            }
        }
        assert!(missed_and_found.iter().all(|&count| count > 10_000), "{missed_and_found:?}");
    }

    /// Not as the kernel has them: no index says what such elements are.
    #[test]
    fn odd_elements_are_compared_one_by_one() {
        let range = |first: u8, last: u8| Keys::Range(vec![first], vec![last]);
        let overlapping = set(1, &[], vec![range(1, 9), range(3, 4), range(20, 30)]);
        let odd = set(2, &[], vec![Keys::One(vec![7])]);
        for (set, key, wanted) in [(overlapping, vec![5], Some(0)), (odd, vec![7, 0], None)] {
            let elements = Elements::of(&set, |_| Decision::Other);
            let mut bits = Bits::UNKNOWN;
            bits.set(0, &key);
            let mut budget = 10;
            let found = elements.find(&set, bits.part(0, key.len()), &mut budget);
            match (found, wanted) {
                (Some(Found::Known(found)), Some(_)) => assert_eq!(found, wanted),
                (Some(Found::Some { elements, .. }), None) => assert_eq!(elements.len(), 1),
                _ => panic!("{set:?}"),
            }
            assert_eq!(budget, 10 - set.elements.len() as u64);
        }
    }
}
