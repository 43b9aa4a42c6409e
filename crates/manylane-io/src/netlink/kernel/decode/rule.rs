//! Policy routing rules (linux/fib_rules.h).

use netlink_bindings::rt_rule::FibRuleHdr;
use netlink_bindings::utils::parse_u32;

use super::super::Rule;
use super::{Family, attributes};

/// Decodes a rule. `None` for multicast routing, whose families are others.
pub(in super::super) fn rule(payload: &[u8]) -> Option<Rule> {
    let (header, bytes) = payload.split_at_checked(FibRuleHdr::len())?;
    let header = FibRuleHdr::new_from_slice(header)?;
    let family = Family::of_message(header.family)?;
    if header.dst_len.max(header.src_len) > family.bits() {
        return None;
    }
    let prefix = |length: u8| (length > 0).then_some((family.unspecified(), length));
    let mut rule = Rule {
        family,
        priority: 0,
        action: header.action,
        table: header.table.into(),
        from: prefix(header.src_len),
        to: prefix(header.dst_len),
        iif: None,
        tos: header.tos,
        flags: header.flags,
        others: Vec::new(),
        rest: Vec::new(),
    };
    for (kind, value) in attributes(bytes) {
        match kind {
            FRA_PRIORITY => rule.priority = parse_u32(value)?,
            FRA_TABLE => rule.table = parse_u32(value)?,
            FRA_SRC => rule.from = Some((family.address(value)?, header.src_len)),
            FRA_DST => rule.to = Some((family.address(value)?, header.dst_len)),
            FRA_IIFNAME => {
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                rule.iif = Some(String::from_utf8_lossy(name).into_owned());
            }
            FRA_PAD => {}
            // Always present; all ones suppress nothing.
            FRA_SUPPRESS_IFGROUP | FRA_SUPPRESS_PREFIXLEN if parse_u32(value)? == u32::MAX => {}
            // The protocol that added the rule selects no packet.
            FRA_PROTOCOL => rule.keep(kind, value),
            _ => rule.add_other(kind, value),
        }
    }
    Some(rule)
}

impl Rule {
    /// Adds a selector or action that has no field of its own, once by name.
    fn add_other(&mut self, kind: u16, value: &[u8]) {
        self.keep(kind, value);
        let name = other_name(kind);
        if !self.others.contains(&name) {
            self.others.push(name);
        }
    }

    fn keep(&mut self, kind: u16, value: &[u8]) {
        self.rest.extend(kind.to_ne_bytes());
        self.rest.extend(value);
    }
}

fn other_name(kind: u16) -> &'static str {
    match kind {
        FRA_SUPPRESS_IFGROUP | FRA_SUPPRESS_PREFIXLEN => "suppression",
        FRA_GOTO => "goto",
        FRA_FWMARK | FRA_FWMASK => "mark",
        FRA_FLOW => "realm",
        FRA_TUN_ID => "tunnel",
        FRA_OIFNAME => "egress interface",
        FRA_L3MDEV => "l3mdev",
        FRA_UID_RANGE => "user",
        FRA_IP_PROTO => "protocol",
        FRA_SPORT_RANGE | FRA_DPORT_RANGE | FRA_SPORT_MASK | FRA_DPORT_MASK => "ports",
        FRA_DSCP | FRA_DSCP_MASK => "dscp",
        FRA_FLOWLABEL | FRA_FLOWLABEL_MASK => "flow label",
        _ => "an unknown selector",
    }
}

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_FLOW: u16 = 11;
const FRA_TUN_ID: u16 = 12;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_UID_RANGE: u16 = 20;
const FRA_PROTOCOL: u16 = 21;
const FRA_IP_PROTO: u16 = 22;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;
const FRA_DSCP: u16 = 25;
const FRA_FLOWLABEL: u16 = 26;
const FRA_FLOWLABEL_MASK: u16 = 27;
const FRA_SPORT_MASK: u16 = 28;
const FRA_DPORT_MASK: u16 = 29;
const FRA_DSCP_MASK: u16 = 30;
