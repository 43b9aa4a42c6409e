//! The expressions of a rule, decoded from netlink (linux/netfilter/nf_tables.h). What this room does not know keeps
//! its name, so that a reader can say what a rule has that it cannot judge.

use crate::netlink::plain::{attribute, attributes, big_u32, big_u64, text};

/// What a rule, or an element of a verdict map, decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The packet leaves the base chain and continues.
    Accept,
    /// The packet ends here.
    Drop,
    /// A program in user space decides.
    Queue,
    /// The next rule.
    Continue,
    /// The rule does not match.
    Break,
    /// Back to the caller, or to the policy.
    Return,
    /// To another chain, and back behind this rule.
    Jump(String),
    /// To another chain, and from its end back to the caller of this one.
    Goto(String),
    /// A code that nf_tables.h does not have.
    Other(i32),
}

/// A constant: bytes of a register, or a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// Bytes, as they lie in a register.
    Value(Vec<u8>),
    /// For the verdict register.
    Verdict(Verdict),
}

/// How `cmp` compares: byte by byte, the first byte counts most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
    /// Less than the constant.
    Less,
    /// Not more than the constant.
    LessOrEqual,
    /// More than the constant.
    Greater,
    /// Not less than the constant.
    GreaterOrEqual,
}

/// What `bitwise` does to the bytes of a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bitwise {
    /// `(value & mask) ^ xor`.
    MaskXor {
        /// Bits that stay.
        mask: Vec<u8>,
        /// Bits that are turned.
        xor: Vec<u8>,
    },
    /// Something else, by its number in nf_tables.h: a shift, or an operation on two registers.
    Other(u32),
}

/// Where a payload expression begins to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadBase {
    /// The link-layer header.
    Link,
    /// The IP header.
    Network,
    /// The header of TCP or UDP.
    Transport,
    /// Behind that header, or anything else.
    Other,
}

/// A match or target of iptables, held in an expression of iptables-nft or in a legacy table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extension {
    /// Its name, as in `iptables -m NAME` and `iptables -j NAME`.
    pub name: String,
    /// The revision of its structure.
    pub revision: u32,
    /// The structure.
    pub data: Vec<u8>,
}

/// One expression of a rule. Registers are counted in words of 4 bytes: register 1 of nft is word 0, register 2 word 4.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the fields have the names of nf_tables.h, and each variant says what they are for"
)]
pub enum Expression {
    /// A constant into a register.
    Immediate { to: usize, data: Data },
    /// Continues if a register compares so with a constant.
    Compare { from: usize, comparison: Comparison, data: Vec<u8> },
    /// Continues if a register lies between two constants, both included, or outside of them.
    Range { from: usize, is_outside: bool, low: Vec<u8>, high: Vec<u8> },
    /// Bits of a register into another.
    Bitwise { from: usize, to: usize, length: usize, operation: Bitwise },
    /// Words of 2, 4 or 8 bytes between the machine's order and the network's.
    ByteOrder { from: usize, to: usize, length: usize, size: usize },
    /// Continues if a set has a register's bytes as an element, or has not; a map's value goes to a register.
    Lookup { set: String, from: usize, to: Option<usize>, is_inverted: bool, is_verdict: bool },
    /// Bytes of the packet.
    Payload { to: usize, base: PayloadBase, offset: usize, length: usize },
    /// A property of the packet that is not in its bytes (`NFT_META_*`).
    Meta { to: usize, key: u32 },
    /// A property of the connection (`NFT_CT_*`), maybe by direction (0: original).
    Ct { to: usize, key: u32, direction: Option<u8> },
    /// A part of an extension header or option: which protocol has it (`NFT_EXTHDR_OP_*`), and its number.
    ExtensionHeader { to: usize, operation: u32, kind: u8, asks_presence: bool },
    /// A lookup in the routing tables (`NFT_FIB_RESULT_*`, `NFTA_FIB_F_*`).
    Fib { to: usize, result: u32, flags: u32 },
    /// Counts packets and bytes.
    Counter { packets: u64 },
    /// A named object, by its type (`NFT_OBJECT_*`); `None` where a map chooses the object.
    Object { kind: Option<u32>, name: String },
    /// Sets a property of the packet (`NFT_META_*`).
    MetaSet { key: u32 },
    /// Sets a property of the connection (`NFT_CT_*`).
    CtSet { key: u32 },
    /// Writes bytes of the packet.
    PayloadSet { base: PayloadBase, offset: usize, length: usize },
    /// Writes or removes an extension header's or option's part.
    ExtensionHeaderSet { operation: u32, kind: u8 },
    /// A match of iptables.
    Match(Extension),
    /// A target of iptables.
    Target(Extension),
    /// An expression of this name, which this room does not decode.
    Other { name: String },
}

/// Decodes one element of a rule's list of expressions.
pub(super) fn expression(bytes: &[u8]) -> Expression {
    let name = attribute(bytes, EXPR_NAME).map(text).unwrap_or_default();
    let data = attribute(bytes, EXPR_DATA).unwrap_or_default();
    known(&name, data).unwrap_or(Expression::Other { name })
}

/// `None` for a name that is not known, and for one whose attributes are not as they should be.
fn known(name: &str, data: &[u8]) -> Option<Expression> {
    let number = |kind| attribute(data, kind).and_then(big_u32);
    let place = |kind| number(kind).and_then(word);
    let length = |kind| number(kind).map(|length| length as usize);
    Some(match name {
        "immediate" => {
            let value = constant(attribute(data, 2)?)?;
            let to = match value {
                Data::Verdict(_) => 0,
                Data::Value(_) => place(1)?,
            };
            Expression::Immediate { to, data: value }
        }
        "cmp" => Expression::Compare {
            from: place(1)?,
            comparison: comparison(number(2)?)?,
            data: value(attribute(data, 3)?)?,
        },
        "range" => Expression::Range {
            from: place(1)?,
            is_outside: number(2)? == 1,
            low: value(attribute(data, 3)?)?,
            high: value(attribute(data, 4)?)?,
        },
        "bitwise" => Expression::Bitwise {
            from: place(1)?,
            to: place(2)?,
            length: length(3)?,
            operation: bitwise(data)?,
        },
        "byteorder" => Expression::ByteOrder {
            from: place(1)?,
            to: place(2)?,
            length: length(4)?,
            size: length(5)?,
        },
        "lookup" => lookup(data)?,
        "payload" => payload(data)?,
        "meta" => match place(1) {
            Some(to) => Expression::Meta { to, key: number(2)? },
            None => Expression::MetaSet { key: number(2)? },
        },
        "ct" => match place(1) {
            Some(to) => {
                let direction = attribute(data, 3).and_then(|bytes| bytes.first().copied());
                Expression::Ct { to, key: number(2)?, direction }
            }
            None => Expression::CtSet { key: number(2)? },
        },
        "exthdr" => extension_header(data)?,
        "fib" => Expression::Fib { to: place(1)?, result: number(2)?, flags: number(3)? },
        "counter" => Expression::Counter { packets: attribute(data, 2).and_then(big_u64)? },
        "objref" => Expression::Object {
            kind: number(1),
            name: attribute(data, 2).or(attribute(data, 4)).map(text)?,
        },
        "match" => Expression::Match(extension(data)?),
        "target" => Expression::Target(extension(data)?),
        _ => return None,
    })
}

fn lookup(data: &[u8]) -> Option<Expression> {
    let to = attribute(data, 3).and_then(big_u32);
    Some(Expression::Lookup {
        set: attribute(data, 1).map(text)?,
        from: attribute(data, 2).and_then(big_u32).and_then(word)?,
        to: to.and_then(word),
        is_inverted: attribute(data, 5).and_then(big_u32).unwrap_or(0) & 1 != 0,
        is_verdict: to == Some(0),
    })
}

fn payload(data: &[u8]) -> Option<Expression> {
    let number = |kind| attribute(data, kind).and_then(big_u32);
    let base = match number(2)? {
        0 => PayloadBase::Link,
        1 => PayloadBase::Network,
        2 => PayloadBase::Transport,
        _ => PayloadBase::Other,
    };
    let (offset, length) = (number(3)? as usize, number(4)? as usize);
    Some(match number(1).and_then(word) {
        Some(to) => Expression::Payload { to, base, offset, length },
        None => Expression::PayloadSet { base, offset, length },
    })
}

fn extension_header(data: &[u8]) -> Option<Expression> {
    let number = |kind| attribute(data, kind).and_then(big_u32);
    let (operation, kind) = (number(6).unwrap_or(0), *attribute(data, 2)?.first()?);
    Some(match number(1).and_then(word) {
        Some(to) => {
            let asks_presence = number(5).unwrap_or(0) & 1 != 0;
            Expression::ExtensionHeader { to, operation, kind, asks_presence }
        }
        None => Expression::ExtensionHeaderSet { operation, kind },
    })
}

fn bitwise(data: &[u8]) -> Option<Bitwise> {
    match attribute(data, 6).and_then(big_u32).unwrap_or(0) {
        0 => Some(Bitwise::MaskXor {
            mask: value(attribute(data, 4)?)?,
            xor: value(attribute(data, 5)?)?,
        }),
        other => Some(Bitwise::Other(other)),
    }
}

fn extension(data: &[u8]) -> Option<Extension> {
    Some(Extension {
        name: attribute(data, 1).map(text)?,
        revision: attribute(data, 2).and_then(big_u32)?,
        data: attribute(data, 3).unwrap_or_default().to_vec(),
    })
}

fn comparison(number: u32) -> Option<Comparison> {
    Some(match number {
        0 => Comparison::Equal,
        1 => Comparison::NotEqual,
        2 => Comparison::Less,
        3 => Comparison::LessOrEqual,
        4 => Comparison::Greater,
        5 => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// The word of a data register; `None` for the verdict register and for numbers that no register has.
fn word(register: u32) -> Option<usize> {
    match register {
        1..=4 => Some((register as usize - 1) * 4),
        8..=23 => Some(register as usize - 8),
        _ => None,
    }
}

/// `NFTA_DATA_*`.
pub(super) fn constant(data: &[u8]) -> Option<Data> {
    attributes(data).find_map(|(kind, bytes)| match kind {
        1 => Some(Data::Value(bytes.to_vec())),
        2 => Some(Data::Verdict(verdict(bytes)?)),
        _ => None,
    })
}

pub(super) fn value(data: &[u8]) -> Option<Vec<u8>> {
    match constant(data)? {
        Data::Value(bytes) => Some(bytes),
        Data::Verdict(_) => None,
    }
}

pub(super) fn verdict(bytes: &[u8]) -> Option<Verdict> {
    let chain = || attribute(bytes, 2).map(text);
    Some(match attribute(bytes, 1).and_then(big_u32)? as i32 {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        3 => Verdict::Queue,
        -1 => Verdict::Continue,
        -2 => Verdict::Break,
        -3 => Verdict::Jump(chain()?),
        -4 => Verdict::Goto(chain()?),
        -5 => Verdict::Return,
        other => Verdict::Other(other),
    })
}

/// The name of each expression in a list, for expressions that only their names matter of.
pub(super) fn names(list: &[u8]) -> Vec<String> {
    attributes(list).filter_map(|(_, one)| attribute(one, EXPR_NAME).map(text)).collect()
}

const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::plain::tests::put;

    fn made(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
        [put(EXPR_NAME, name.as_bytes()), put(EXPR_DATA, &data.concat())].concat()
    }

    fn number(kind: u16, number: u32) -> Vec<u8> {
        put(kind, &number.to_be_bytes())
    }

    #[test]
    fn an_expression_is_decoded_and_one_cut_short_keeps_its_name() {
        let data = put(3, &put(1, &[0, 22]));
        let bytes = made("cmp", &[number(1, 1), number(2, 1), data]);
        let comparison = Comparison::NotEqual;
        let whole = Expression::Compare { from: 0, comparison, data: vec![0, 22] };
        assert_eq!(expression(&bytes), whole);
        let cut = made("cmp", &[number(1, 1), number(2, 1)]);
        assert_eq!(expression(&cut), Expression::Other { name: "cmp".into() });
        for length in 0..bytes.len() {
            let _ = expression(&bytes[..length]); // Cut anywhere: less, and no panic.
        }
    }

    #[test]
    fn registers_of_both_kinds_are_words() {
        assert_eq!([1, 2, 8, 12, 23].map(word), [Some(0), Some(4), Some(0), Some(4), Some(15)]);
        assert_eq!([0, 5, 7, 24].map(word), [None; 4]);
    }

    #[test]
    fn a_verdict_names_its_chain() {
        let jump = put(2, &[number(1, -3i32 as u32), put(2, b"other\0")].concat());
        let bytes = made("immediate", &[number(1, 0), put(2, &jump)]);
        let data = Data::Verdict(Verdict::Jump("other".into()));
        assert_eq!(expression(&bytes), Expression::Immediate { to: 0, data });
    }
}
