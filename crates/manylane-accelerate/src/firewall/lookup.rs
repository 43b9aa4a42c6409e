//! Elements of a set that the bytes of a register may be.

use manylane_io::netlink::nftables::set::{Element, Keys, Set};

use super::bits::{Bits, Truth};

/// What a lookup finds: elements that match or may match, and whether none does.
pub(super) struct Found<'s> {
    pub(super) elements: Vec<(&'s Element, Truth)>,
    pub(super) is_there: Truth,
}

/// Looks a key up. The elements that certainly do not match are left out.
pub(super) fn find<'s>(set: &'s Set, key: &Bits) -> Found<'s> {
    let mut elements = Vec::new();
    let mut is_there = Truth::No;
    let mut rest = None;
    for element in &set.elements {
        let truth = match &element.keys {
            Keys::One(one) => key.equal(one),
            Keys::Range(first, last) => between(set, key, first, last),
            Keys::Rest => {
                rest = Some(element);
                continue;
            }
        };
        if truth == Truth::Yes {
            return Found { elements: vec![(element, truth)], is_there: truth };
        }
        if truth != Truth::No {
            elements.push((element, truth));
            is_there = is_there.or(truth);
        }
    }
    if let Some(rest) = rest {
        elements.push((rest, is_there.not()));
        is_there = Truth::Yes;
    }
    Found { elements, is_there }
}

fn between(set: &Set, key: &Bits, first: &[u8], last: &[u8]) -> Truth {
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
