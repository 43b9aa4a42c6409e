//! A rule's text, near to what `nft -a list ruleset` writes, for readers: what a rule does is `evaluate.rs`'s.

use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_io::netlink::nftables::expression::{
    Bitwise, Comparison, Data, Expression, PayloadBase, Verdict,
};
use manylane_io::netlink::nftables::ruleset::{Rule, RuleTable};
use manylane_io::netlink::nftables::set::{Element, Keys};

/// How the bytes of a value are written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Address,
    Port,
    Name,
    States,
    Protocol,
    Family,
    Flags,
    /// In the machine's order.
    Host,
    /// In the network's order.
    Big,
}

/// What a register holds: its text, how its bytes are written, and a mask.
#[derive(Clone, Debug)]
struct Held {
    what: String,
    kind: Kind,
    mask: Option<Vec<u8>>,
}

/// The text of a rule.
pub(super) fn rule(rule: &Rule, table: &RuleTable) -> String {
    let mut said: Vec<String> = Vec::new();
    // By word.
    let mut held: Vec<Option<Held>> = vec![None; 24];
    let mut is_tcp = true;
    for expression in &rule.expressions {
        if let Expression::Compare { data, .. } = expression
            && data == &[17]
        {
            is_tcp = false;
        }
        match loads(expression, is_tcp) {
            Some((to, loaded)) => held[to.min(23)] = Some(loaded),
            None => said.extend(statement(expression, &mut held, table)),
        }
    }
    let mut text = said.join(" ");
    if text.chars().count() > TEXT_MAX {
        text = text.chars().take(TEXT_MAX).collect::<String>() + " ...";
    }
    text
}

/// What an expression loads, and where.
fn loads(expression: &Expression, is_tcp: bool) -> Option<(usize, Held)> {
    let (to, what, kind) = match expression {
        Expression::Payload { to, base, offset, length } => {
            let (what, kind) = payload(*base, *offset, *length, is_tcp);
            (*to, what, kind)
        }
        Expression::Meta { to, key } => {
            let (what, kind) = META.get(*key as usize).copied().unwrap_or(("meta ?", Kind::Host));
            (*to, what.to_owned(), kind)
        }
        Expression::Ct { to, key, direction } => {
            let (what, kind) = CT.get(*key as usize).copied().unwrap_or(("?", Kind::Host));
            let side = match direction {
                Some(0) => "original ",
                Some(1) => "reply ",
                _ => "",
            };
            (*to, format!("ct {side}{what}"), kind)
        }
        Expression::ExtensionHeader { to, kind, .. } => {
            (*to, format!("extension header {kind}"), Kind::Big)
        }
        Expression::Fib { to, result, flags } => {
            let parts = ["saddr", "daddr", "mark", "iif", "oif"];
            let parts = parts.iter().enumerate().filter(|(bit, _)| flags >> bit & 1 != 0);
            let parts: Vec<_> = parts.map(|(_, name)| *name).collect();
            let result = ["", "oif", "oifname", "type"].get(*result as usize).unwrap_or(&"?");
            (*to, format!("fib {} {result}", parts.join(" . ")), Kind::Host)
        }
        _ => return None,
    };
    Some((to, Held { what, kind, mask: None }))
}

/// What else an expression says. What nft leaves out, as it follows from the rest, is left out too.
fn statement(
    expression: &Expression,
    held: &mut [Option<Held>],
    table: &RuleTable,
) -> Option<String> {
    let of = |word: usize, held: &[Option<Held>]| {
        let unknown = || Held { what: "?".into(), kind: Kind::Big, mask: None };
        held.get(word).cloned().flatten().unwrap_or_else(unknown)
    };
    Some(match expression {
        Expression::Bitwise { from, to, operation, .. } => {
            let mut value = of(*from, held);
            if let Bitwise::MaskXor { mask, .. } = operation {
                value.mask = Some(mask.clone());
            }
            held[(*to).min(23)] = Some(value);
            return None;
        }
        Expression::ByteOrder { from, to, .. } => {
            let value = Held { kind: Kind::Big, ..of(*from, held) };
            held[(*to).min(23)] = Some(value);
            return None;
        }
        Expression::Compare { from, comparison, data } => {
            compared(&of(*from, held), *comparison, data)?
        }
        Expression::Range { from, is_outside, low, high } => {
            let held = of(*from, held);
            let not = if *is_outside { "!= " } else { "" };
            format!("{} {not}{}-{}", held.what, value(held.kind, low), value(held.kind, high))
        }
        Expression::Lookup { set, from, to, is_inverted, is_verdict } => {
            let names: Vec<_> = (*from..held.len())
                .map_while(|word| held[word].as_ref())
                .map(|held| held.what.as_str())
                .collect();
            let not = if *is_inverted { "!= " } else { "" };
            let map = match (is_verdict, to) {
                (true, _) => "vmap ",
                (false, Some(_)) => "map ",
                (false, None) => "",
            };
            let kind = of(*from, held).kind;
            let what = match names.is_empty() {
                true => "?".to_owned(),
                false => names.join(" . "),
            };
            format!("{what} {not}{map}{}", elements(set, kind, names.len() > 1, table))
        }
        other => return plain(other),
    })
}

/// What an expression says that reads no register.
fn plain(expression: &Expression) -> Option<String> {
    Some(match expression {
        Expression::Immediate { data: Data::Verdict(verdict), .. } => verdict_text(verdict),
        Expression::Immediate { .. } => return None,
        Expression::Counter { .. } => "counter".into(),
        Expression::Object { kind: Some(1), name } => format!("counter name \"{name}\""),
        Expression::Object { kind: Some(2), name } => format!("quota name \"{name}\""),
        Expression::Object { kind: Some(3), name } => format!("ct helper set \"{name}\""),
        Expression::Object { kind: Some(4), name } => format!("limit name \"{name}\""),
        Expression::Object { name, .. } => format!("object \"{name}\""),
        Expression::MetaSet { key } => {
            format!("{} set ...", META.get(*key as usize).map_or("meta ?", |(name, _)| name))
        }
        Expression::CtSet { key } => {
            format!("ct {} set ...", CT.get(*key as usize).map_or("?", |(name, _)| name))
        }
        Expression::PayloadSet { base, offset, length } => {
            format!("{} set ...", payload(*base, *offset, *length, true).0)
        }
        Expression::ExtensionHeaderSet { operation: 1, kind: 2 } => {
            "tcp option maxseg size set ...".into()
        }
        Expression::ExtensionHeaderSet { kind, .. } => format!("option {kind} set ..."),
        Expression::Match(extension) => format!("xt match \"{}\"", extension.name),
        Expression::Target(extension) => format!("xt target \"{}\"", extension.name),
        Expression::Other { name } => match name.as_str() {
            "limit" => "limit rate ...".into(),
            "dynset" => "update @...".into(),
            "flow_offload" => "flow add @...".into(),
            "masq" => "masquerade".into(),
            name => name.into(),
        },
        _ => return None,
    })
}

/// `None` for a condition that another one implies.
fn compared(held: &Held, comparison: Comparison, data: &[u8]) -> Option<String> {
    let Held { what, kind, mask } = held;
    if *kind == Kind::Family {
        return Some(format!("{what} {}", if data == [10] { "ipv6" } else { "ipv4" }));
    }
    let operator = match comparison {
        Comparison::Equal => "",
        Comparison::NotEqual => "!= ",
        Comparison::Less => "< ",
        Comparison::LessOrEqual => "<= ",
        Comparison::Greater => "> ",
        Comparison::GreaterOrEqual => ">= ",
    };
    let is_zero = data.iter().all(|&byte| byte == 0);
    if what.ends_with(" oif") && what.starts_with("fib") && is_zero {
        let is_missing = comparison == Comparison::Equal;
        return Some(format!("{what} {}", if is_missing { "missing" } else { "exists" }));
    }
    Some(match mask {
        // A mask with bits that have names: any of them.
        Some(mask) if *kind == Kind::States && is_zero => {
            let not = if comparison == Comparison::Equal { "!= " } else { "" };
            format!("{what} {not}{}", value(*kind, mask))
        }
        Some(mask) if *kind == Kind::Address => {
            let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
            format!("{what} {operator}{}/{ones}", value(*kind, data))
        }
        Some(mask) => {
            let operator = if operator.is_empty() { "== " } else { operator };
            format!("{what} & {} {operator}{}", value(*kind, mask), value(*kind, data))
        }
        None => format!("{what} {operator}{}", value(*kind, data)),
    })
}

fn elements(name: &str, kind: Kind, is_concatenated: bool, table: &RuleTable) -> String {
    let set = table.sets.iter().find(|set| set.name == name);
    let Some(set) = set.filter(|set| set.is_anonymous()) else { return format!("@{name}") };
    let one = |element: &Element| {
        let key = match &element.keys {
            _ if is_concatenated => "...".into(),
            Keys::One(key) => value(kind, key),
            Keys::Range(first, last) if first == last => value(kind, first),
            Keys::Range(first, last) => format!("{}-{}", value(kind, first), value(kind, last)),
            Keys::Rest => "*".into(),
        };
        match &element.data {
            Some(Data::Verdict(verdict)) => format!("{key} : {}", verdict_text(verdict)),
            Some(Data::Value(_)) => format!("{key} : ..."),
            None => key,
        }
    };
    let mut list: Vec<_> = set.elements.iter().take(ELEMENTS_MAX).map(one).collect();
    if set.elements.len() > ELEMENTS_MAX {
        list.push("...".into());
    }
    format!("{{ {} }}", list.join(", "))
}

fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => "accept".into(),
        Verdict::Drop => "drop".into(),
        Verdict::Queue => "queue".into(),
        Verdict::Continue => "continue".into(),
        Verdict::Break => "break".into(),
        Verdict::Return => "return".into(),
        Verdict::Jump(chain) => format!("jump {chain}"),
        Verdict::Goto(chain) => format!("goto {chain}"),
        Verdict::Other(code) => format!("verdict {code}"),
    }
}

fn payload(base: PayloadBase, offset: usize, length: usize, is_tcp: bool) -> (String, Kind) {
    let named = match (base, offset, length) {
        (PayloadBase::Network, 12, 1..=4) => Some(("ip saddr", Kind::Address)),
        (PayloadBase::Network, 16, 1..=4) => Some(("ip daddr", Kind::Address)),
        (PayloadBase::Network, 8, 1) => Some(("ip ttl", Kind::Big)),
        (PayloadBase::Network, 9, 1) => Some(("ip protocol", Kind::Protocol)),
        (PayloadBase::Network, 8, 2..=16) => Some(("ip6 saddr", Kind::Address)),
        (PayloadBase::Network, 24, 1..=16) => Some(("ip6 daddr", Kind::Address)),
        (PayloadBase::Network, 6, 1) => Some(("ip6 nexthdr", Kind::Protocol)),
        (PayloadBase::Network, 6, 2) => Some(("ip frag-off", Kind::Big)),
        (PayloadBase::Transport, 0, 2) if is_tcp => Some(("tcp sport", Kind::Port)),
        (PayloadBase::Transport, 2, 2) if is_tcp => Some(("tcp dport", Kind::Port)),
        (PayloadBase::Transport, 0, 2) => Some(("udp sport", Kind::Port)),
        (PayloadBase::Transport, 2, 2) => Some(("udp dport", Kind::Port)),
        (PayloadBase::Transport, 13, 1) => Some(("tcp flags", Kind::Flags)),
        _ => None,
    };
    let base = match base {
        PayloadBase::Link => "ll",
        PayloadBase::Network => "nh",
        PayloadBase::Transport => "th",
        PayloadBase::Other => "ih",
    };
    match named {
        Some((name, kind)) => (name.into(), kind),
        None => (format!("@{base},{},{}", offset * 8, length * 8), Kind::Big),
    }
}

/// A value as nft writes one of this kind.
fn value(kind: Kind, bytes: &[u8]) -> String {
    let number = |bytes: &[u8], is_big: bool| {
        let mut all = [0; 16];
        let length = bytes.len().min(16);
        let is_reversed = !is_big && cfg!(target_endian = "little");
        for (at, &byte) in bytes.iter().take(length).enumerate() {
            all[if is_reversed { 15 - at } else { 16 - length + at }] = byte;
        }
        u128::from_be_bytes(all)
    };
    let flags = |names: &[&str], bits: u128| {
        let set = names.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0);
        let set: Vec<_> = set.map(|(_, name)| *name).collect();
        if set.is_empty() { format!("{bits:#x}") } else { set.join("|") }
    };
    match kind {
        Kind::Address => address(bytes),
        Kind::Port => number(bytes, true).to_string(),
        Kind::Name => {
            let end = bytes.iter().position(|&byte| byte == 0);
            let name = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned();
            if end.is_some() { format!("\"{name}\"") } else { format!("\"{name}*\"") }
        }
        Kind::States => {
            let names = ["invalid", "established", "related", "new", "", "", "untracked"];
            flags(&names, number(bytes, false)).replace('|', ",")
        }
        Kind::Protocol => match number(bytes, true) {
            1 => "icmp".into(),
            6 => "tcp".into(),
            17 => "udp".into(),
            58 => "ipv6-icmp".into(),
            other => other.to_string(),
        },
        Kind::Family => number(bytes, true).to_string(),
        Kind::Flags => {
            let names = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];
            let text = flags(&names, number(bytes, true));
            if text.contains('|') { format!("({text})") } else { text }
        }
        Kind::Host => format!("{:#x}", number(bytes, false)),
        Kind::Big => format!("{:#x}", number(bytes, true)),
    }
}

/// An address, or the beginning of one.
fn address(bytes: &[u8]) -> String {
    let whole = |width: usize| {
        let mut all = bytes.to_vec();
        all.resize(width, 0);
        all
    };
    if bytes.len() <= 4 {
        let address = <[u8; 4]>::try_from(whole(4)).unwrap_or_default();
        Ipv4Addr::from(address).to_string()
    } else {
        let address = <[u8; 16]>::try_from(whole(16)).unwrap_or_default();
        Ipv6Addr::from(address).to_string()
    }
}

/// By number (`NFT_META_*`).
const META: [(&str, Kind); 20] = [
    ("meta length", Kind::Host),
    ("meta protocol", Kind::Big),
    ("meta priority", Kind::Host),
    ("meta mark", Kind::Host),
    ("iif", Kind::Host),
    ("oif", Kind::Host),
    ("iifname", Kind::Name),
    ("oifname", Kind::Name),
    ("iiftype", Kind::Host),
    ("oiftype", Kind::Host),
    ("meta skuid", Kind::Host),
    ("meta skgid", Kind::Host),
    ("meta nftrace", Kind::Host),
    ("rtclassid", Kind::Host),
    ("meta secmark", Kind::Host),
    ("meta nfproto", Kind::Family),
    ("meta l4proto", Kind::Protocol),
    ("meta ibrname", Kind::Name),
    ("meta obrname", Kind::Name),
    ("meta pkttype", Kind::Big),
];
/// By number (`NFT_CT_*`).
const CT: [(&str, Kind); 18] = [
    ("state", Kind::States),
    ("direction", Kind::Big),
    ("status", Kind::Host),
    ("mark", Kind::Host),
    ("secmark", Kind::Host),
    ("expiration", Kind::Host),
    ("helper", Kind::Name),
    ("l3proto", Kind::Family),
    ("saddr", Kind::Address),
    ("daddr", Kind::Address),
    ("protocol", Kind::Protocol),
    ("proto-src", Kind::Port),
    ("proto-dst", Kind::Port),
    ("label", Kind::Host),
    ("packets", Kind::Host),
    ("bytes", Kind::Host),
    ("avgpkt", Kind::Host),
    ("zone", Kind::Host),
];
const ELEMENTS_MAX: usize = 8;
const TEXT_MAX: usize = 240;
