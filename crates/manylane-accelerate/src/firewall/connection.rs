//! What is known of the connection that a packet belongs to (`nft_ct`).

use manylane_io::netlink::kernel::Family;

use super::bits::Truth;
use super::evaluate::{Registers, Step};
use super::obstacle::Cause;
use super::packet::{Flow, Octets, Stage, Tracked, View};

/// A property of the connection, into a register.
pub(super) fn load(
    registers: &mut Registers,
    to: usize,
    key: u32,
    direction: Option<u8>,
    view: &View<'_>,
) -> Step {
    match view.tracked {
        Tracked::Yes if view.stage == Stage::Untracked && key != CT_STATE => {
            return Step::If(Truth::No);
        }
        Tracked::Yes => {}
        // Without a connection the state is invalid, and nothing else can be read.
        Tracked::NotYet if key == CT_STATE => return registers.load(to, &1u32.to_ne_bytes()),
        Tracked::NotYet => return Step::If(Truth::No),
        Tracked::Unknown => return registers.load_unknown(to),
    }
    let is_v6 = view.class.family == Family::V6;
    match key {
        CT_PKTS | CT_BYTES | CT_AVGPKT => Step::Effect(Cause::ConnectionBytes),
        CT_SRC_IP | CT_DST_IP if is_v6 => Step::If(Truth::No),
        CT_SRC_IP6 | CT_DST_IP6 if !is_v6 => Step::If(Truth::No),
        _ => connection(registers, to, key, direction, view),
    }
}

fn connection(
    registers: &mut Registers,
    to: usize,
    key: u32,
    direction: Option<u8>,
    view: &View<'_>,
) -> Step {
    let flow = view.flow;
    let tuple = flow.map(|flow| if direction == Some(1) { flow.reply } else { flow.original });
    let is_v6 = view.class.family == Family::V6;
    let width = if is_v6 { 16 } else { 4 };
    match key {
        CT_STATE => registers.load(to, &view.stage.state().to_ne_bytes()),
        CT_DIRECTION => {
            let value = flow.map(|flow| [u8::from(flow.is_reply)]);
            set_or_forget(registers, to, value, 1, view)
        }
        CT_STATUS => load_status(registers, to, view),
        CT_MARK => {
            let value = flow.and_then(|flow| flow.mark).map(u32::to_ne_bytes);
            set_or_forget(registers, to, value, 4, view)
        }
        CT_ZONE => {
            // A zone other than 0 may be that of one direction only.
            let zone = flow.and_then(|flow| flow.zone);
            let value = zone.filter(|&zone| direction.is_none() || zone == 0).map(u16::to_ne_bytes);
            set_or_forget(registers, to, value, 2, view)
        }
        // The name of its master's helper.
        CT_HELPER if is_unexpected(flow) => Step::If(Truth::No),
        CT_HELPER => {
            registers.load_unknown(to);
            Step::If(Truth::Maybe { asks: view.asks() })
        }
        CT_L3PROTOCOL => registers.load(to, &[if is_v6 { 10 } else { 2 }]),
        CT_PROTOCOL => registers.load(to, &[view.class.protocol.number()]),
        CT_SRC | CT_SRC_IP | CT_SRC_IP6 => {
            let value = tuple.map(|tuple| Octets::of(tuple.source));
            set_or_forget(registers, to, value, width, view)
        }
        CT_DST | CT_DST_IP | CT_DST_IP6 => {
            let value = tuple.map(|tuple| Octets::of(tuple.destination));
            set_or_forget(registers, to, value, width, view)
        }
        CT_PROTO_SRC => {
            let value = tuple.map(|tuple| tuple.source_port.to_be_bytes());
            set_or_forget(registers, to, value, 2, view)
        }
        CT_PROTO_DST => {
            let value = tuple.map(|tuple| tuple.destination_port.to_be_bytes());
            set_or_forget(registers, to, value, 2, view)
        }
        _ => registers.load_unknown(to),
    }
}

impl Stage {
    /// `NF_CT_STATE_BIT`.
    pub(super) fn state(self) -> u32 {
        match self {
            Stage::Established => 2,
            Stage::New => 8,
            Stage::Untracked => 64,
        }
    }
}

/// `IPS_*`: the bits of a connection's status that are set, and those that are known.
pub(super) fn status(flow: Option<&Flow>) -> (u32, u32) {
    let granted = (STATUS_SET, STATUS_SET | STATUS_CLEAR);
    match flow {
        None => granted,
        // Any program may fix the timeout at any time.
        Some(Flow { status: Some(status), .. }) => {
            (status & !STATUS_FIXED_TIMEOUT, !STATUS_FIXED_TIMEOUT)
        }
        Some(flow) => {
            let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
            let translated = bit(flow.is_source_translated(), STATUS_SNAT)
                | bit(flow.is_destination_translated(), STATUS_DNAT);
            (granted.0 | translated, granted.1 | STATUS_TRANSLATED)
        }
    }
}

fn load_status(registers: &mut Registers, to: usize, view: &View<'_>) -> Step {
    let (value, known) = status(view.flow);
    registers.forget(to, 4, view.asks());
    for (at, (value, known)) in value.to_ne_bytes().into_iter().zip(known.to_ne_bytes()).enumerate()
    {
        registers.fix(to, at, value, known);
    }
    Step::Next
}

/// Whether the connection is none that another connection's helper expected. One that is has a master.
pub(super) fn is_unexpected(flow: Option<&Flow>) -> bool {
    let (value, known) = status(flow);
    known & !value & STATUS_EXPECTED != 0
}

/// A value that a flow has; `None` for one that is not known.
fn set_or_forget(
    registers: &mut Registers,
    to: usize,
    value: Option<impl AsRef<[u8]>>,
    length: usize,
    view: &View<'_>,
) -> Step {
    match value {
        Some(value) => registers.set(to, value.as_ref()),
        None => registers.forget(to, length, view.asks()),
    }
    Step::Next
}

// linux/netfilter/nf_tables.h.
const CT_STATE: u32 = 0;
const CT_DIRECTION: u32 = 1;
const CT_STATUS: u32 = 2;
const CT_MARK: u32 = 3;
const CT_HELPER: u32 = 6;
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
// linux/netfilter/nf_conntrack_common.h.
/// Seen reply, assured, confirmed.
const STATUS_SET: u32 = 0x0e;
/// Sequence adjustment, dying, template, untracked, helper, offloaded by software and by hardware.
const STATUS_CLEAR: u32 = 0x0040 | 0x0200 | 0x0800 | 0x1000 | 0x2000 | 0x4000 | 0x8000;
const STATUS_EXPECTED: u32 = 1;
const STATUS_FIXED_TIMEOUT: u32 = 0x400;
pub(super) const STATUS_TRANSLATED: u32 = STATUS_SNAT | STATUS_DNAT;
const STATUS_SNAT: u32 = 0x10;
const STATUS_DNAT: u32 = 0x20;
