//! Sets and maps, and their elements (linux/netfilter/nf_tables.h).

use super::expression::{Data, constant, names, value};
use super::{TableFamily, open};
use crate::netlink::plain::{Plain, attribute, attributes, big_u32, text};
use crate::netlink::socket::{Refusal, Socket};

/// A set or a map of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Its name; one of `{ ... }` in a rule begins with `__`.
    pub name: String,
    /// The length of a key in bytes.
    pub key_bytes: usize,
    /// The lengths of the key's fields in bytes, each field padded to 4; empty where the key is one field.
    pub fields: Vec<usize>,
    /// Packets add elements to it, or elements end by themselves: the kernel does not announce all of its changes.
    pub is_volatile: bool,
    /// The type of the named objects that it maps to (`NFT_OBJECT_*`).
    pub object_kind: Option<u32>,
    /// Its elements.
    pub elements: Vec<Element>,
}

impl Set {
    /// Whether the set is written in its rule.
    pub fn is_anonymous(&self) -> bool {
        self.name.starts_with("__")
    }
}

/// The keys of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One.
    One(Vec<u8>),
    /// From the first to the last, both included; of several fields, each field by itself.
    Range(Vec<u8>, Vec<u8>),
    /// All that no other element has.
    Rest,
}

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its keys.
    pub keys: Keys,
    /// The value of a map's element.
    pub data: Option<Data>,
    /// Expressions that are executed where it matches, by name: `counter`, `limit`, `quota`.
    pub stateful: Vec<String>,
}

/// What a dump says of a set, with its table and family, without its elements.
pub(super) struct Described {
    pub(super) family: TableFamily,
    pub(super) table: String,
    pub(super) set: Set,
    has_intervals: bool,
}

pub(super) fn described(bytes: &[u8]) -> Option<Described> {
    let (family, bytes) = open(bytes)?;
    let number = |kind| attribute(bytes, kind).and_then(big_u32);
    let flags = number(NFTA_SET_FLAGS).unwrap_or(0);
    let description = attribute(bytes, NFTA_SET_DESC).unwrap_or_default();
    let concatenation = attribute(description, NFTA_SET_DESC_CONCAT).unwrap_or_default();
    let field = |(_, field): (u16, &[u8])| Some(attribute(field, 1).and_then(big_u32)? as usize);
    let fields: Vec<_> = attributes(concatenation).filter_map(field).collect();
    let is_timed = attribute(bytes, NFTA_SET_TIMEOUT).is_some();
    let set = Set {
        name: attribute(bytes, NFTA_SET_NAME).map(text)?,
        key_bytes: number(NFTA_SET_KEY_LEN).unwrap_or(0) as usize,
        is_volatile: flags & (NFT_SET_TIMEOUT | NFT_SET_EVAL) != 0 || is_timed,
        object_kind: number(NFTA_SET_OBJ_TYPE),
        fields,
        elements: Vec::new(),
    };
    // An interval of several fields has both ends in one element.
    let has_intervals = flags & NFT_SET_INTERVAL != 0 && set.fields.len() < 2;
    Some(Described {
        family,
        table: attribute(bytes, NFTA_SET_TABLE).map(text)?,
        set,
        has_intervals,
    })
}

/// Reads the elements of a set.
pub(super) fn fill(socket: &mut Socket, described: &mut Described) -> Result<(), Refusal> {
    let mut payload = vec![described.family.number(), 0, 0, 0];
    for (kind, name) in [(1u16, &described.table), (2, &described.set.name)] {
        payload.extend((4 + name.len() as u16 + 1).to_ne_bytes());
        payload.extend(kind.to_ne_bytes());
        payload.extend(name.as_bytes());
        payload.push(0);
        payload.resize(payload.len().next_multiple_of(4), 0);
    }
    let list = Plain::list(super::NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETSETELEM, &payload);
    let pages = list.collect(socket, |bytes| Some(page(open(bytes)?.1)))?;
    let raw: Vec<_> = pages.into_iter().flatten().collect();
    described.set.elements = match described.has_intervals {
        true => intervals(raw, described.set.key_bytes),
        false => raw.into_iter().map(|raw| raw.element).collect(),
    };
    Ok(())
}

/// An element as the kernel sends it: the end of an interval is an element of its own.
struct Raw {
    element: Element,
    is_end: bool,
}

fn page(bytes: &[u8]) -> Vec<Raw> {
    let list = attribute(bytes, NFTA_SET_ELEM_LIST_ELEMENTS).unwrap_or_default();
    attributes(list).filter_map(|(_, bytes)| raw(bytes)).collect()
}

fn raw(bytes: &[u8]) -> Option<Raw> {
    let flags = attribute(bytes, NFTA_SET_ELEM_FLAGS).and_then(big_u32).unwrap_or(0);
    let key = |kind| attribute(bytes, kind).and_then(value);
    let keys = match (key(NFTA_SET_ELEM_KEY), key(NFTA_SET_ELEM_KEY_END)) {
        _ if flags & NFT_SET_ELEM_CATCHALL != 0 => Keys::Rest,
        (Some(first), Some(last)) => Keys::Range(first, last),
        (first, _) => Keys::One(first?),
    };
    // An object's name stands for its verdict or value.
    let object = || attribute(bytes, NFTA_SET_ELEM_OBJREF).map(|name| Data::Value(name.to_vec()));
    let data = attribute(bytes, NFTA_SET_ELEM_DATA).and_then(constant).or_else(object);
    let mut stateful = attribute(bytes, NFTA_SET_ELEM_EXPRESSIONS).map(names).unwrap_or_default();
    if let (true, Some(one)) = (stateful.is_empty(), attribute(bytes, NFTA_SET_ELEM_EXPR)) {
        stateful.extend(attribute(one, 1).map(text));
    }
    let is_end = flags & NFT_SET_ELEM_INTERVAL_END != 0;
    Some(Raw { element: Element { keys, data, stateful }, is_end })
}

/// Elements with both ends, from beginnings and ends: an interval ends before the next element.
fn intervals(raw: Vec<Raw>, key_bytes: usize) -> Vec<Element> {
    let mut bounds = Vec::new();
    let mut whole = Vec::new();
    for Raw { element, is_end } in raw {
        match &element.keys {
            Keys::One(key) => bounds.push((key.clone(), !is_end, element)),
            Keys::Range(..) | Keys::Rest => whole.push(element),
        }
    }
    // At one key an end comes before a beginning.
    bounds.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    let mut open: Option<(Vec<u8>, Element)> = None;
    for (key, begins, element) in bounds {
        if let Some((first, before)) = open.take() {
            whole.push(Element { keys: Keys::Range(first, before_key(key.clone())), ..before });
        }
        if begins {
            open = Some((key, element));
        }
    }
    if let Some((first, before)) = open {
        whole.push(Element { keys: Keys::Range(first, vec![0xff; key_bytes]), ..before });
    }
    whole
}

/// The key before this one; the first key has none, and stays.
fn before_key(mut key: Vec<u8>) -> Vec<u8> {
    if key.iter().all(|&byte| byte == 0) {
        return key;
    }
    for byte in key.iter_mut().rev() {
        let (less, borrows) = byte.overflowing_sub(1);
        *byte = less;
        if !borrows {
            break;
        }
    }
    key
}

const NFT_MSG_GETSETELEM: u16 = 13;
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_TIMEOUT: u16 = 11;
const NFTA_SET_OBJ_TYPE: u16 = 15;
const NFTA_SET_DESC_CONCAT: u16 = 2;
const NFT_SET_INTERVAL: u32 = 4;
const NFT_SET_TIMEOUT: u32 = 0x10;
const NFT_SET_EVAL: u32 = 0x20;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFTA_SET_ELEM_EXPR: u16 = 7;
const NFTA_SET_ELEM_OBJREF: u16 = 9;
const NFTA_SET_ELEM_KEY_END: u16 = 10;
const NFTA_SET_ELEM_EXPRESSIONS: u16 = 11;
const NFT_SET_ELEM_INTERVAL_END: u32 = 1;
const NFT_SET_ELEM_CATCHALL: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(key: u8, is_end: bool) -> Raw {
        let element = Element { keys: Keys::One(vec![key]), data: None, stateful: vec![] };
        Raw { element, is_end }
    }

    #[test]
    fn an_interval_ends_before_the_next_element() {
        let raw =
            vec![bound(9, false), bound(5, true), bound(3, false), bound(0, true), bound(5, false)];
        let keys: Vec<_> = intervals(raw, 1).into_iter().map(|element| element.keys).collect();
        let range = |first, last| Keys::Range(vec![first], vec![last]);
        assert_eq!(keys, [range(3, 4), range(5, 8), range(9, 255)]);
    }

    #[test]
    fn the_key_before_borrows() {
        assert_eq!(before_key(vec![1, 0, 0]), [0, 255, 255]);
        assert_eq!(before_key(vec![0, 0]), [0, 0]);
    }
}
