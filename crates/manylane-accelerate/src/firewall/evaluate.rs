//! One expression of a rule, on the packets of a class.

use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::expression::{
    Bitwise, Comparison, Data, Expression, PayloadBase,
};
use manylane_io::netlink::nftables::ruleset::RuleTable;
use manylane_io::netlink::nftables::{Hook, TableFamily};

use super::bits::{Bits, Part, Truth};
use super::lookup::Found;
use super::obstacle::Cause;
use super::packet::View;
use super::rules::{Decision, Resolved, Table};
use super::{connection, extension};

/// What follows from an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// The next expression follows, for all packets.
    Next,
    /// The rule does not match, for none or for some.
    If(Truth),
    /// The expression does something, or may do, that the kernel has to do.
    Effect(Cause),
    /// The expression counts.
    Count,
    /// The expression looks for the source's route, which is left to the forwarder; the next expression follows.
    ReversePath,
    /// A verdict.
    Decided(Decision),
    /// The verdict of a map's elements that have the key at this word of the registers.
    Map { set: usize, from: usize },
}

/// The registers of a rule.
pub(super) struct Registers(Bits);

impl Registers {
    /// As a rule finds them: unknown.
    pub(super) fn new() -> Registers {
        Registers(Bits::UNKNOWN)
    }

    /// `None` for bytes that no register has.
    pub(super) fn read(&self, word: usize, length: usize) -> Option<Part<'_>> {
        self.0.part(word * 4, length)
    }

    /// Filled up with zeroes to whole words of 4 bytes, as the kernel does.
    fn pad(&mut self, word: usize, length: usize) {
        let missing = length.next_multiple_of(4) - length;
        self.0.set(word * 4 + length, &[0; 3][..missing]);
    }

    fn write(&mut self, word: usize, part: Part<'_>) {
        self.0.put(word * 4, part);
        self.pad(word, part.len());
    }

    pub(super) fn set(&mut self, word: usize, bytes: &[u8]) {
        self.0.set(word * 4, bytes);
        self.pad(word, bytes.len());
    }

    pub(super) fn forget(&mut self, word: usize, length: usize, asks: bool) {
        self.0.forget(word * 4, length, asks);
        self.pad(word, length);
    }
}

impl Registers {
    /// A value into a register.
    pub(super) fn load(&mut self, word: usize, bytes: &[u8]) -> Step {
        self.set(word, bytes);
        Step::Next
    }

    /// A value that is not known, and may not even be there.
    pub(super) fn load_unknown(&mut self, word: usize) -> Step {
        self.forget(word, WIDEST, false);
        NEVER
    }

    /// Makes bits of one byte known.
    pub(super) fn fix(&mut self, word: usize, byte: usize, value: u8, known: u8) {
        self.0.fix(word * 4 + byte, value, known);
    }
}

/// What follows from an expression whatever the packet, if that is so.
pub(super) fn always(expression: &Expression, table: &RuleTable) -> Option<Step> {
    Some(match expression {
        Expression::Counter { .. } => Step::Count,
        Expression::Object { kind, name } => object(*kind, name, table),
        Expression::MetaSet { key: META_NFTRACE } => Step::Effect(Cause::Trace),
        Expression::MetaSet { .. } => Step::Effect(Cause::PacketChange),
        Expression::CtSet { .. } => Step::Effect(Cause::ConnectionChange),
        Expression::PayloadSet { .. } => Step::Effect(Cause::Rewrite),
        Expression::ExtensionHeaderSet { operation: EXTHDR_TCP_OPTION, kind: TCP_MSS } => {
            Step::Effect(Cause::SegmentSize)
        }
        Expression::ExtensionHeaderSet { .. } => Step::Effect(Cause::Rewrite),
        // Extension headers the packet does not have.
        Expression::ExtensionHeader { operation, asks_presence: false, .. }
            if *operation != EXTHDR_TCP_OPTION =>
        {
            Step::If(Truth::No)
        }
        Expression::Target(extension) => extension::target(extension),
        Expression::Other { name } => by_name(name),
        _ => return None,
    })
}

/// Evaluates an expression of a rule of this table. `None` if the elements of a set are more than the budget has left.
pub(super) fn evaluate(
    expression: &Expression,
    resolved: Resolved,
    registers: &mut Registers,
    table: &Table,
    view: &View<'_>,
    budget: &mut u64,
) -> Option<Step> {
    match resolved {
        Resolved::Always(step) => return Some(step),
        Resolved::Match(matcher) => {
            let Expression::Match(extension) = expression else { return Some(NEVER) };
            return Some(extension::matches(matcher, &extension.data, view));
        }
        Resolved::Set(set) => return look_up(expression, set, registers, table, budget),
        Resolved::Plain => {}
    }
    Some(match expression {
        Expression::Immediate { to, data: Data::Value(value) } => {
            registers.set(*to, value);
            Step::Next
        }
        Expression::Compare { from, comparison, data } => Step::If(
            registers
                .read(*from, data.len())
                .map_or(UNKNOWN, |part| compare(part, *comparison, data)),
        ),
        Expression::Range { from, is_outside, low, high } => {
            let part = registers.read(*from, low.len());
            Step::If(part.map_or(UNKNOWN, |part| part.between(low, high)).xor(*is_outside))
        }
        Expression::Bitwise { from, to, length, operation } => {
            let asks = move_bytes(registers, *from, *to, *length);
            match operation {
                Bitwise::MaskXor { mask, xor } => {
                    registers.0.mask_xor(*to * 4, *length, mask, xor);
                }
                Bitwise::Other(_) => registers.forget(*to, *length, asks),
            }
            Step::Next
        }
        Expression::ByteOrder { from, to, length, size } => {
            move_bytes(registers, *from, *to, *length);
            registers.0.swap(*to * 4, *length, *size);
            Step::Next
        }
        Expression::Payload { to, base, offset, length } => {
            let part = match base {
                PayloadBase::Network => view.network(*offset, *length),
                PayloadBase::Transport => view.transport(*offset, *length),
                PayloadBase::Link | PayloadBase::Other => None,
            };
            match part {
                Some(part) => registers.write(*to, part),
                None => return Some(registers.load_unknown(*to)),
            }
            Step::Next
        }
        Expression::Meta { to, key } => meta(registers, *to, *key, table.read.family, view),
        Expression::Ct { to, key, direction } => {
            connection::load(registers, *to, *key, *direction, view)
        }
        // A TCP option may be there or not.
        Expression::ExtensionHeader { to, operation: EXTHDR_TCP_OPTION, .. } => {
            registers.load_unknown(*to)
        }
        Expression::ExtensionHeader { to, .. } => registers.load(*to, &[0]),
        Expression::Fib { to, result, flags } => fib(registers, *to, *result, *flags, view),
        // All others have been resolved.
        _ => Step::Effect(Cause::Unknown),
    })
}

/// Copies bytes of registers: whether a flow would tell what of them is not known.
fn move_bytes(registers: &mut Registers, from: usize, to: usize, length: usize) -> bool {
    let before = registers.0;
    match before.part(from * 4, length) {
        Some(part) => {
            if from != to {
                registers.write(to, part);
            } else {
                registers.pad(to, length);
            }
            part.maybe() == ASKS
        }
        None => {
            registers.forget(to, length, false);
            false
        }
    }
}

fn compare(part: Part<'_>, comparison: Comparison, data: &[u8]) -> Truth {
    match comparison {
        Comparison::Equal => part.equal(data),
        Comparison::NotEqual => part.equal(data).not(),
        Comparison::LessOrEqual => part.at_most(data),
        Comparison::Greater => part.at_most(data).not(),
        Comparison::GreaterOrEqual => part.at_least(data),
        Comparison::Less => part.at_least(data).not(),
    }
}

fn look_up(
    expression: &Expression,
    number: usize,
    registers: &mut Registers,
    table: &Table,
    budget: &mut u64,
) -> Option<Step> {
    let Expression::Lookup { from, to, is_inverted, is_verdict, .. } = expression else {
        return Some(NEVER);
    };
    let (set, elements) = (&table.read.sets[number], &table.sets[number]);
    if set.is_volatile {
        if *is_verdict {
            return Some(Step::Effect(Cause::Unknown));
        }
        // Elements with a limit or quota of their own have to be executed, too.
        if let Some(cause) = elements.any_effect() {
            return Some(Step::Effect(cause));
        }
        if let Some(to) = to {
            registers.forget(*to, WIDEST, false);
        }
        return Some(NEVER);
    }
    if *is_verdict {
        return Some(Step::Map { set: number, from: *from });
    }
    let (element, is_there) =
        match elements.find(set, registers.read(*from, set.key_bytes), budget)? {
            Found::Known(None) => (None, Truth::No),
            Found::Known(Some(element)) => (Some(element), Truth::Yes),
            Found::Some { elements: list, is_there } => {
                if let Some(cause) = list.iter().find_map(|(one, _)| elements.effect(*one)) {
                    return Some(Step::Effect(cause));
                }
                (if let [(one, _)] = list[..] { Some(one) } else { None }, is_there)
            }
        };
    if let Some(cause) = element.and_then(|element| elements.effect(element)) {
        return Some(Step::Effect(cause));
    }
    if let Some(to) = to {
        match element.map(|element| &set.elements[element].data) {
            Some(Some(Data::Value(value))) => registers.set(*to, value),
            _ => registers.forget(*to, WIDEST, is_there == ASKS),
        }
    }
    Some(Step::If(is_there.xor(*is_inverted)))
}

fn meta(
    registers: &mut Registers,
    to: usize,
    key: u32,
    family: TableFamily,
    view: &View<'_>,
) -> Step {
    let class = view.class;
    let is_ip = matches!(family, TableFamily::Inet | TableFamily::Ip | TableFamily::Ip6);
    let is_v6 = class.family == Family::V6;
    let has_ingress = view.hook != Hook::Egress;
    let has_egress = matches!(view.hook, Hook::Forward | Hook::Postrouting | Hook::Egress);
    let mut load = |bytes: &[u8]| registers.load(to, bytes);
    match (key, class.mark) {
        (META_PROTOCOL, _) => load(if is_v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] }),
        (META_MARK, Some(mark)) => load(&mark.to_ne_bytes()),
        (META_IIF, _) if has_ingress => load(&class.ingress.index.to_ne_bytes()),
        (META_OIF, _) if has_egress => load(&class.egress.index.to_ne_bytes()),
        (META_IIFNAME, _) if has_ingress => load(&name(&class.ingress.name)),
        (META_OIFNAME, _) if has_egress => load(&name(&class.egress.name)),
        (META_NFPROTO, _) if is_ip && view.hook != Hook::Ingress => {
            load(&[if is_v6 { 10 } else { 2 }])
        }
        (META_L4PROTO, _) => load(&[class.protocol.number()]),
        (META_PKTTYPE, _) => load(&[0]),
        _ => registers.load_unknown(to),
    }
}

/// A name in 16 bytes (`IFNAMSIZ`).
fn name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let length = name.len().min(bytes.len());
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

fn fib(registers: &mut Registers, to: usize, result: u32, flags: u32, view: &View<'_>) -> Step {
    let asks = flags & !FIB_PRESENT;
    let is_reverse = asks & !FIB_MARK == FIB_SADDR | FIB_IIF;
    if result == FIB_OIF && is_reverse && flags & FIB_PRESENT != 0 {
        registers.set(to, &[1]);
        return Step::ReversePath;
    }
    let is_type_of_destination =
        result == FIB_TYPE && asks & FIB_DADDR != 0 && asks & (FIB_SADDR | FIB_MARK) == 0;
    if is_type_of_destination && view.class.family == Family::V4 {
        match view.is_routed {
            true => registers.set(to, &RTN_UNICAST.to_ne_bytes()),
            false => registers.forget(to, 4, view.asks()),
        }
        return Step::Next;
    }
    registers.load_unknown(to)
}

/// A named object; `None` for its kind where a map chooses one.
fn object(kind: Option<u32>, name: &str, table: &RuleTable) -> Step {
    let of_map = || table.sets.iter().find(|set| set.name == name)?.object_kind;
    let step = match kind.or_else(of_map) {
        Some(OBJECT_COUNTER) => Step::Count,
        // For first packets only: the kernel does nothing for a confirmed connection.
        Some(OBJECT_CT_HELPER | OBJECT_CT_TIMEOUT) => Step::Next,
        // The rule does not match a confirmed connection.
        Some(OBJECT_CT_EXPECTATION) => Step::If(Truth::No),
        Some(OBJECT_QUOTA) => Step::Effect(Cause::Quota),
        Some(OBJECT_LIMIT) => Step::Effect(Cause::Limit),
        Some(OBJECT_CONNLIMIT) => Step::Effect(Cause::ConnectionLimit),
        Some(OBJECT_SYNPROXY) => Step::Effect(Cause::Proxy),
        _ => Step::Effect(Cause::Unknown),
    };
    match step {
        // The map may have no object for the packet.
        Step::Next if kind.is_none() => NEVER,
        step => step,
    }
}

/// Expressions whose name is enough.
pub(super) fn by_name(name: &str) -> Step {
    let cause = match name {
        "log" => Cause::Log,
        "limit" => Cause::Limit,
        "quota" => Cause::Quota,
        "connlimit" => Cause::ConnectionLimit,
        "queue" => Cause::Queue,
        "dup" => Cause::Duplicate,
        "fwd" => Cause::Redirect,
        "tproxy" | "synproxy" => Cause::Proxy,
        "notrack" => Cause::Notrack,
        "numgen" => Cause::NumberGenerator,
        "dynset" => Cause::SetUpdate,
        "flow_offload" => Cause::FlowOffload,
        "reject" => Cause::Reject,
        "last" => return Step::Count,
        // This one looks at SYN only.
        "osf" => return Step::If(Truth::No),
        _ => Cause::Unknown,
    };
    Step::Effect(cause)
}

const ASKS: Truth = Truth::Maybe { asks: true };
const UNKNOWN: Truth = Truth::Maybe { asks: false };
/// No flow would tell.
const NEVER: Step = Step::If(UNKNOWN);
/// The widest value of an expression.
const WIDEST: usize = 16;

// linux/netfilter/nf_tables.h.
const META_PROTOCOL: u32 = 1;
const META_MARK: u32 = 3;
const META_IIF: u32 = 4;
const META_OIF: u32 = 5;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFTRACE: u32 = 12;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const META_PKTTYPE: u32 = 19;
const EXTHDR_TCP_OPTION: u32 = 1;
const TCP_MSS: u8 = 2;
const FIB_OIF: u32 = 1;
const FIB_TYPE: u32 = 3;
const FIB_SADDR: u32 = 1;
const FIB_DADDR: u32 = 2;
const FIB_MARK: u32 = 4;
const FIB_IIF: u32 = 8;
const FIB_PRESENT: u32 = 0x20;
const RTN_UNICAST: u32 = 1;
const OBJECT_COUNTER: u32 = 1;
const OBJECT_QUOTA: u32 = 2;
const OBJECT_CT_HELPER: u32 = 3;
const OBJECT_LIMIT: u32 = 4;
const OBJECT_CONNLIMIT: u32 = 5;
const OBJECT_CT_TIMEOUT: u32 = 7;
const OBJECT_CT_EXPECTATION: u32 = 9;
const OBJECT_SYNPROXY: u32 = 10;
