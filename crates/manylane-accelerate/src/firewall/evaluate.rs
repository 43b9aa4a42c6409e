//! One expression of a rule, on the packets of a class.

use manylane_io::netlink::kernel::Family;
use manylane_io::netlink::nftables::expression::{
    Bitwise, Comparison, Data, Expression, PayloadBase, Verdict,
};
use manylane_io::netlink::nftables::ruleset::RuleTable;
use manylane_io::netlink::nftables::set::Element;
use manylane_io::netlink::nftables::{Hook, TableFamily};

use super::bits::{Bits, Truth};
use super::extension;
use super::lookup;
use super::obstacle::Cause;
use super::packet::{Tracked, View, octets};

/// What follows from an expression.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The next expression follows, for all packets.
    Next,
    /// The rule does not match, for none or for some.
    If(Truth),
    /// The expression does something, or may do, that the kernel has to do.
    Effect(Cause, Option<String>),
    /// The expression counts.
    Count,
    /// The expression looks for the source's route, which is left to the forwarder; the next expression follows.
    ReversePath,
    /// One of these verdicts, each for some packets; and whether any applies.
    Verdicts(Vec<(Truth, Verdict)>, Truth),
}

/// The registers of a rule.
pub(super) struct Registers(Bits);

impl Registers {
    /// As a rule finds them: unknown.
    pub(super) fn new() -> Registers {
        Registers(Bits::unknown(REGISTER_BYTES, false))
    }

    fn read(&self, word: usize, length: usize) -> Bits {
        self.0.part(word * 4, length).unwrap_or_else(|| Bits::unknown(length, false))
    }

    fn write(&mut self, word: usize, bits: Bits) {
        self.0.put(word * 4, &bits.padded());
    }
}

/// Evaluates an expression of a rule of this table.
pub(super) fn evaluate(
    expression: &Expression,
    registers: &mut Registers,
    table: &RuleTable,
    view: &View<'_>,
) -> Step {
    match expression {
        Expression::Immediate { data: Data::Verdict(verdict), .. } => {
            Step::Verdicts(vec![(Truth::Yes, verdict.clone())], Truth::Yes)
        }
        Expression::Immediate { to, data: Data::Value(value) } => {
            registers.write(*to, Bits::known(value));
            Step::Next
        }
        Expression::Compare { from, comparison, data } => {
            Step::If(compare(&registers.read(*from, data.len()), *comparison, data))
        }
        Expression::Range { from, is_outside, low, high } => {
            Step::If(registers.read(*from, low.len()).between(low, high).xor(*is_outside))
        }
        Expression::Bitwise { from, to, length, operation } => {
            let bits = registers.read(*from, *length);
            let result = match operation {
                Bitwise::MaskXor { mask, xor } => bits.mask_xor(mask, xor),
                Bitwise::Other(_) => Bits::unknown(*length, bits.maybe() == ASKS),
            };
            registers.write(*to, result);
            Step::Next
        }
        Expression::ByteOrder { from, to, length, size } => {
            let bits = registers.read(*from, *length).swapped(*size);
            registers.write(*to, bits);
            Step::Next
        }
        Expression::Lookup { .. } => look_up(expression, registers, table),
        Expression::Payload { to, base, offset, length } => {
            let bits = match base {
                PayloadBase::Network => view.network(*offset, *length),
                PayloadBase::Transport => view.transport(*offset, *length),
                PayloadBase::Link | PayloadBase::Other => None,
            };
            loaded(registers, *to, bits)
        }
        Expression::Meta { to, key } => loaded(registers, *to, meta(*key, table.family, view)),
        Expression::Ct { to, key, direction } => ct(registers, *to, *key, *direction, view),
        Expression::ExtensionHeader { to, operation, asks_presence, .. } => {
            match (*operation, asks_presence) {
                // A TCP option may be there or not.
                (EXTHDR_TCP_OPTION, _) => loaded(registers, *to, None),
                // The others the packet does not have.
                (_, true) => loaded(registers, *to, Some(Bits::known(&[0]))),
                (_, false) => Step::If(Truth::No),
            }
        }
        Expression::Fib { to, result, flags } => fib(registers, *to, *result, *flags, view),
        Expression::Counter { .. } => Step::Count,
        Expression::Object { kind, name } => object(*kind, name, table),
        Expression::MetaSet { key: META_NFTRACE } => Step::Effect(Cause::Trace, None),
        Expression::MetaSet { .. } => Step::Effect(Cause::PacketChange, None),
        Expression::CtSet { .. } => Step::Effect(Cause::ConnectionChange, None),
        Expression::PayloadSet { .. } => Step::Effect(Cause::Rewrite, None),
        Expression::ExtensionHeaderSet { operation: EXTHDR_TCP_OPTION, kind: TCP_MSS } => {
            Step::Effect(Cause::SegmentSize, None)
        }
        Expression::ExtensionHeaderSet { .. } => Step::Effect(Cause::Rewrite, None),
        Expression::Match(extension) => extension::matches(extension, view),
        Expression::Target(extension) => extension::target(extension),
        Expression::Other { name } => other(name),
    }
}

/// A value in a register; one that is not known may not even be there.
fn loaded(registers: &mut Registers, to: usize, bits: Option<Bits>) -> Step {
    match bits {
        Some(bits) => {
            registers.write(to, bits);
            Step::Next
        }
        None => {
            registers.write(to, Bits::unknown(WIDEST, false));
            Step::If(Truth::Maybe { asks: false })
        }
    }
}

fn compare(bits: &Bits, comparison: Comparison, data: &[u8]) -> Truth {
    let (least, most) = (vec![0; data.len()], vec![0xff; data.len()]);
    let at_most = || bits.between(&least, data);
    let at_least = || bits.between(data, &most);
    match comparison {
        Comparison::Equal => bits.equal(data),
        Comparison::NotEqual => bits.equal(data).not(),
        Comparison::LessOrEqual => at_most(),
        Comparison::Greater => at_most().not(),
        Comparison::GreaterOrEqual => at_least(),
        Comparison::Less => at_least().not(),
    }
}

fn look_up(expression: &Expression, registers: &mut Registers, table: &RuleTable) -> Step {
    let Expression::Lookup { set: name, from, to, is_inverted, is_verdict } = expression else {
        return Step::Next;
    };
    let Some(set) = table.sets.iter().find(|set| set.name == *name) else {
        return Step::Effect(Cause::Unknown, Some(format!("set {name}")));
    };
    if set.is_volatile {
        if *is_verdict {
            return Step::Effect(Cause::Unknown, Some(format!("map {name}, which packets change")));
        }
        // Elements with a limit or quota of their own have to be executed, too.
        if let Some(effect) = set.elements.iter().find_map(effect_of_element) {
            return effect;
        }
        if let Some(to) = to {
            registers.write(*to, Bits::unknown(WIDEST, false));
        }
        return Step::If(Truth::Maybe { asks: false });
    }
    let found = lookup::find(set, &registers.read(*from, set.key_bytes));
    if let Some(effect) = found.elements.iter().find_map(|(element, _)| effect_of_element(element))
    {
        return effect;
    }
    if *is_verdict {
        let verdict = |(element, truth): &(&Element, Truth)| match &element.data {
            Some(Data::Verdict(verdict)) => (*truth, verdict.clone()),
            _ => (*truth, Verdict::Other(0)),
        };
        return Step::Verdicts(found.elements.iter().map(verdict).collect(), found.is_there);
    }
    if let Some(to) = to {
        let value = match &found.elements[..] {
            [(Element { data: Some(Data::Value(value)), .. }, _)] => Bits::known(value),
            _ => Bits::unknown(WIDEST, found.is_there == ASKS),
        };
        registers.write(*to, value);
    }
    Step::If(found.is_there.xor(*is_inverted))
}

fn effect_of_element(element: &Element) -> Option<Step> {
    let effect = |name: &String| match name.as_str() {
        "counter" | "last" => None,
        name => Some(other(name)),
    };
    element.stateful.iter().find_map(effect)
}

/// `None` for what is not known of a class.
fn meta(key: u32, family: TableFamily, view: &View<'_>) -> Option<Bits> {
    let packet = view.packet;
    let is_ip = matches!(family, TableFamily::Inet | TableFamily::Ip | TableFamily::Ip6);
    let is_v6 = packet.family == Family::V6;
    let has_ingress = view.hook != Hook::Egress;
    let has_egress = matches!(view.hook, Hook::Forward | Hook::Postrouting | Hook::Egress);
    Some(match key {
        META_PROTOCOL => Bits::known(if is_v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] }),
        META_MARK => Bits::known(&packet.mark?.to_ne_bytes()),
        META_IIF if has_ingress => Bits::known(&packet.ingress.index.to_ne_bytes()),
        META_OIF if has_egress => Bits::known(&packet.egress.index.to_ne_bytes()),
        META_IIFNAME if has_ingress => name(&packet.ingress.name),
        META_OIFNAME if has_egress => name(&packet.egress.name),
        META_NFPROTO if is_ip && view.hook != Hook::Ingress => {
            Bits::known(&[if is_v6 { 10 } else { 2 }])
        }
        META_L4PROTO => Bits::known(&[packet.protocol.number()]),
        META_PKTTYPE => Bits::known(&[0]),
        _ => return None,
    })
}

/// A name in 16 bytes (`IFNAMSIZ`).
fn name(name: &str) -> Bits {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    Bits::known(&bytes)
}

fn ct(
    registers: &mut Registers,
    to: usize,
    key: u32,
    direction: Option<u8>,
    view: &View<'_>,
) -> Step {
    match view.tracked {
        Tracked::Yes => {}
        // Without a connection the state is invalid, and nothing else can be read.
        Tracked::NotYet if key == CT_STATE => {
            registers.write(to, Bits::known(&1u32.to_ne_bytes()));
            return Step::Next;
        }
        Tracked::NotYet => return Step::If(Truth::No),
        Tracked::Unknown => return loaded(registers, to, None),
    }
    if matches!(key, CT_PKTS | CT_BYTES | CT_AVGPKT) {
        return Step::Effect(Cause::ConnectionBytes, None);
    }
    let is_v6 = view.packet.family == Family::V6;
    if matches!(key, CT_SRC_IP | CT_DST_IP) && is_v6
        || matches!(key, CT_SRC_IP6 | CT_DST_IP6) && !is_v6
    {
        return Step::If(Truth::No);
    }
    loaded(registers, to, connection(key, direction, view))
}

fn connection(key: u32, direction: Option<u8>, view: &View<'_>) -> Option<Bits> {
    let packet = view.packet;
    let flow = packet.flow.as_ref();
    let told =
        |value: Option<Vec<u8>>, length| Bits::or_asked(value.as_deref(), length, view.asks());
    let tuple = flow.map(|flow| if direction == Some(1) { flow.reply } else { flow.original });
    let is_v6 = packet.family == Family::V6;
    let width = if is_v6 { 16 } else { 4 };
    Some(match key {
        CT_STATE => Bits::known(&2u32.to_ne_bytes()),
        CT_DIRECTION => told(flow.map(|flow| vec![flow.is_reply.into()]), 1),
        CT_STATUS => status(view),
        CT_MARK => told(flow.and_then(|flow| flow.mark).map(|mark| mark.to_ne_bytes().to_vec()), 4),
        CT_ZONE => told(flow.and_then(|flow| flow.zone).map(|zone| zone.to_ne_bytes().to_vec()), 2),
        CT_L3PROTOCOL => Bits::known(&[if is_v6 { 10 } else { 2 }]),
        CT_PROTOCOL => Bits::known(&[packet.protocol.number()]),
        CT_SRC | CT_SRC_IP | CT_SRC_IP6 => told(tuple.map(|tuple| octets(tuple.source)), width),
        CT_DST | CT_DST_IP | CT_DST_IP6 => {
            told(tuple.map(|tuple| octets(tuple.destination)), width)
        }
        CT_PROTO_SRC => told(tuple.map(|tuple| tuple.source_port.to_be_bytes().to_vec()), 2),
        CT_PROTO_DST => told(tuple.map(|tuple| tuple.destination_port.to_be_bytes().to_vec()), 2),
        _ => return None,
    })
}

/// `IPS_*`: which bits of a connection's status are known.
fn status(view: &View<'_>) -> Bits {
    let (mut value, mut known) = (STATUS_SET, STATUS_SET | STATUS_CLEAR);
    if let Some(flow) = view.packet.flow {
        let back = flow.reply.inverted();
        let ends = [
            ((flow.original.source, flow.original.source_port), (back.source, back.source_port)),
            (
                (flow.original.destination, flow.original.destination_port),
                (back.destination, back.destination_port),
            ),
        ];
        for ((before, after), bit) in ends.into_iter().zip([STATUS_SNAT, STATUS_DNAT]) {
            known |= bit;
            value |= if before == after { 0 } else { bit };
        }
        return Bits::partly(&value.to_ne_bytes(), &known.to_ne_bytes());
    }
    let mut bits = Bits::unknown(4, true);
    // Byte by byte: what a flow would tell is in the first byte, in this order of bytes.
    for (at, (value, known)) in value.to_ne_bytes().into_iter().zip(known.to_ne_bytes()).enumerate()
    {
        bits.fix(at, value, known);
    }
    bits
}

fn fib(registers: &mut Registers, to: usize, result: u32, flags: u32, view: &View<'_>) -> Step {
    let asks = flags & !FIB_PRESENT;
    let is_reverse = asks & !FIB_MARK == FIB_SADDR | FIB_IIF;
    if result == FIB_OIF && is_reverse && flags & FIB_PRESENT != 0 {
        registers.write(to, Bits::known(&[1]));
        return Step::ReversePath;
    }
    let is_type_of_destination =
        result == FIB_TYPE && asks & FIB_DADDR != 0 && asks & (FIB_SADDR | FIB_MARK) == 0;
    if is_type_of_destination && view.packet.family == Family::V4 {
        let bits = match view.is_routed {
            true => Bits::known(&RTN_UNICAST.to_ne_bytes()),
            false => Bits::unknown(4, view.asks()),
        };
        return loaded(registers, to, Some(bits));
    }
    loaded(registers, to, None)
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
        Some(OBJECT_QUOTA) => Step::Effect(Cause::Quota, None),
        Some(OBJECT_LIMIT) => Step::Effect(Cause::Limit, None),
        Some(OBJECT_CONNLIMIT) => Step::Effect(Cause::ConnectionLimit, None),
        Some(OBJECT_SYNPROXY) => Step::Effect(Cause::Proxy, None),
        _ => Step::Effect(Cause::Unknown, Some(format!("object {name}"))),
    };
    match step {
        // The map may have no object for the packet.
        Step::Next if kind.is_none() => Step::If(Truth::Maybe { asks: false }),
        step => step,
    }
}

/// Expressions whose name is enough.
fn other(name: &str) -> Step {
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
        _ => return Step::Effect(Cause::Unknown, Some(name.into())),
    };
    Step::Effect(cause, None)
}

const ASKS: Truth = Truth::Maybe { asks: true };
/// 16 words.
const REGISTER_BYTES: usize = 64;
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
const CT_STATE: u32 = 0;
const CT_DIRECTION: u32 = 1;
const CT_STATUS: u32 = 2;
const CT_MARK: u32 = 3;
const CT_L3PROTOCOL: u32 = 7;
const CT_SRC: u32 = 8;
const CT_DST: u32 = 9;
const CT_PROTOCOL: u32 = 10;
const CT_PROTO_SRC: u32 = 11;
const CT_PROTO_DST: u32 = 12;
const CT_PKTS: u32 = 14;
const CT_BYTES: u32 = 15;
const CT_AVGPKT: u32 = 16;
const CT_ZONE: u32 = 17;
const CT_SRC_IP: u32 = 19;
const CT_DST_IP: u32 = 20;
const CT_SRC_IP6: u32 = 21;
const CT_DST_IP6: u32 = 22;
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
// linux/netfilter/nf_conntrack_common.h.
/// Seen reply, assured, confirmed.
const STATUS_SET: u32 = 0x0e;
/// Sequence adjustment, dying, template, untracked, helper, offloaded by software and by hardware.
const STATUS_CLEAR: u32 = 0x0040 | 0x0200 | 0x0800 | 0x1000 | 0x2000 | 0x4000 | 0x8000;
const STATUS_SNAT: u32 = 0x10;
const STATUS_DNAT: u32 = 0x20;
