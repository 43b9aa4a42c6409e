//! Templates: which information elements a record has (RFC 7012), each with what writes it. So a template and its records
//! cannot differ.
//!
//! | Template | Records                                         | Bytes |
//! |----------|-------------------------------------------------|-------|
//! | 256, 257 | flows of IPv4: as they are, translated          | 54, 66 |
//! | 258, 259 | flows of IPv6: as they are, translated          | 78, 114 |
//! | 260, 261 | translations of IPv4, of IPv6                   | 34, 82 |
//! | 262      | what has been exported (RFC 7011, section 4.1)  | 28    |
//! | 263      | what has not been sent (RFC 7011, section 4.3)  | 28    |
//! | 264, 265 | sampled flows of IPv4, of IPv6                  | 68, 104 |
//! | 266      | how packets are sampled                         | 8     |
//!
//! Records of samples state `samplingInterval` and `samplingAlgorithm` (34, 35), and options state the interval for the whole
//! observation domain. RFC 5477 has later elements: `samplingPacketInterval` (305), how many packets are taken in a row, and
//! `samplingPacketSpace` (306), how many are then left out. goflow2 v2.2.6 takes 305 for the whole interval, and nfdump 1.7.1
//! takes no rate from 305 and 306. Both read 34.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::record::{Ends, Exported, FlowRecord, NatChange, NatEvent, NotSent, Sampling};
use super::sampled::SampledFlow;

/// A record's elements, in order.
pub(super) struct Template<T: 'static> {
    /// 256 or more.
    pub id: u16,
    /// How many elements at the front say what the others are about; 0 for all but options.
    pub scopes: u16,
    /// The elements.
    pub fields: &'static [Field<T>],
}

/// An element of a record.
pub(super) struct Field<T: 'static> {
    /// IANA's number.
    pub element: u16,
    /// Bytes.
    pub length: u16,
    /// Appends that many bytes.
    pub write: fn(&T, &mut Vec<u8>),
}

impl<T> Template<T> {
    /// Bytes of a record.
    pub fn record_bytes(&self) -> usize {
        self.fields.iter().map(|field| usize::from(field.length)).sum()
    }

    /// The template itself, as a set has it (RFC 7011, sections 3.4.1 and 3.4.2.2).
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.id.to_be_bytes());
        to.extend((self.fields.len() as u16).to_be_bytes());
        if self.scopes > 0 {
            to.extend(self.scopes.to_be_bytes());
        }
        for field in self.fields {
            to.extend(field.element.to_be_bytes());
            to.extend(field.length.to_be_bytes());
        }
    }

    /// A record.
    pub fn write_record(&self, record: &T, to: &mut Vec<u8>) {
        for field in self.fields {
            (field.write)(record, to);
        }
    }
}

/// The template of a flow record.
pub(super) fn of_flow(record: &FlowRecord) -> &'static Template<FlowRecord> {
    let is_translated = record.received != record.sent;
    match (record.received.source.is_ipv4(), is_translated) {
        (true, false) => &FLOW_V4,
        (true, true) => &FLOW_V4_TRANSLATED,
        (false, false) => &FLOW_V6,
        (false, true) => &FLOW_V6_TRANSLATED,
    }
}

/// The template of a translation's record.
pub(super) fn of_event(event: &NatEvent) -> &'static Template<NatEvent> {
    if event.received.source.is_ipv4() { &NAT_V4 } else { &NAT_V6 }
}

/// The template of a sampled flow's record.
pub(super) fn of_sampled(flow: &SampledFlow) -> &'static Template<SampledFlow> {
    if flow.packet.key.ends.source.is_ipv4() { &SAMPLED_V4 } else { &SAMPLED_V6 }
}

/// All templates but those of options.
pub(super) fn write_all(templates: &mut Vec<u8>) {
    for template in [&FLOW_V4, &FLOW_V4_TRANSLATED, &FLOW_V6, &FLOW_V6_TRANSLATED] {
        template.write(templates);
    }
    for template in [&NAT_V4, &NAT_V6] {
        template.write(templates);
    }
    for template in [&SAMPLED_V4, &SAMPLED_V6] {
        template.write(templates);
    }
}

/// The templates of options.
pub(super) fn write_options() -> [Vec<u8>; 3] {
    let mut all = [const { Vec::new() }; 3];
    let [exported, not_sent, sampling] = &mut all;
    EXPORTED.write(exported);
    NOT_SENT.write(not_sent);
    SAMPLING.write(sampling);
    all
}

/// The elements of a flow record: addresses as they arrive, what every flow has, and what is translated.
macro_rules! flow {
    ([$source:expr, $destination:expr] $(, $translated:expr)*) => {
        &[
            $source,
            $destination,
            SOURCE_PORT,
            DESTINATION_PORT,
            PROTOCOL,
            INGRESS,
            EGRESS,
            PACKETS,
            OCTETS,
            START,
            END,
            REASON,
            $($translated,)*
        ]
    };
}

pub(super) static FLOW_V4: Template<FlowRecord> =
    Template { id: 256, scopes: 0, fields: flow!([SOURCE_V4, DESTINATION_V4]) };

pub(super) static FLOW_V4_TRANSLATED: Template<FlowRecord> = Template {
    id: 257,
    scopes: 0,
    fields: flow!(
        [SOURCE_V4, DESTINATION_V4],
        // postNATSourceIPv4Address and its like.
        field(225, 4, |one, to| v4(one.sent.source, to)),
        field(226, 4, |one, to| v4(one.sent.destination, to)),
        NEW_SOURCE_PORT,
        NEW_DESTINATION_PORT
    ),
};

pub(super) static FLOW_V6: Template<FlowRecord> =
    Template { id: 258, scopes: 0, fields: flow!([SOURCE_V6, DESTINATION_V6]) };

pub(super) static FLOW_V6_TRANSLATED: Template<FlowRecord> = Template {
    id: 259,
    scopes: 0,
    fields: flow!(
        [SOURCE_V6, DESTINATION_V6],
        // postNATSourceIPv6Address and its like.
        field(281, 16, |one, to| v6(one.sent.source, to)),
        field(282, 16, |one, to| v6(one.sent.destination, to)),
        NEW_SOURCE_PORT,
        NEW_DESTINATION_PORT
    ),
};

/// RFC 8158, section 5.2, "NAT44 Session Create or Delete".
pub(super) static NAT_V4: Template<NatEvent> = Template {
    id: 260,
    scopes: 0,
    fields: &[
        EVENT_TIME,
        EVENT,
        EVENT_PROTOCOL,
        field(8, 4, |one, to| v4(one.received.source, to)),
        field(225, 4, |one, to| v4(one.sent.source, to)),
        field(7, 2, |one, to| port(one.received.source, to)),
        field(227, 2, |one, to| port(one.sent.source, to)),
        field(12, 4, |one, to| v4(one.received.destination, to)),
        field(226, 4, |one, to| v4(one.sent.destination, to)),
        field(11, 2, |one, to| port(one.received.destination, to)),
        field(228, 2, |one, to| port(one.sent.destination, to)),
    ],
};

/// A session of IPv6 on both sides, which RFC 8158 does not have.
pub(super) static NAT_V6: Template<NatEvent> = Template {
    id: 261,
    scopes: 0,
    fields: &[
        EVENT_TIME,
        EVENT,
        EVENT_PROTOCOL,
        field(27, 16, |one, to| v6(one.received.source, to)),
        field(281, 16, |one, to| v6(one.sent.source, to)),
        field(7, 2, |one, to| port(one.received.source, to)),
        field(227, 2, |one, to| port(one.sent.source, to)),
        field(28, 16, |one, to| v6(one.received.destination, to)),
        field(282, 16, |one, to| v6(one.sent.destination, to)),
        field(11, 2, |one, to| port(one.received.destination, to)),
        field(228, 2, |one, to| port(one.sent.destination, to)),
    ],
};

pub(super) static EXPORTED: Template<Exported> = Template {
    id: 262,
    scopes: 1,
    fields: &[
        // observationDomainId; exportedMessageTotalCount and its like.
        field(149, 4, |one, to| to.extend(one.domain.to_be_bytes())),
        field(41, 8, |one, to| to.extend(one.messages.to_be_bytes())),
        field(42, 8, |one, to| to.extend(one.flow_records.to_be_bytes())),
        field(40, 8, |one, to| to.extend(one.octets.to_be_bytes())),
    ],
};

pub(super) static NOT_SENT: Template<NotSent> = Template {
    id: 263,
    scopes: 1,
    fields: &[
        // exportingProcessId; notSentFlowTotalCount and its like.
        field(144, 4, |one, to| to.extend(one.process.to_be_bytes())),
        field(165, 8, |one, to| to.extend(one.flows.to_be_bytes())),
        field(166, 8, |one, to| to.extend(one.packets.to_be_bytes())),
        field(167, 8, |one, to| to.extend(one.octets.to_be_bytes())),
    ],
};

/// The elements of a sampled flow's record: those that depend on the family, and those of both.
macro_rules! sampled {
    ($($of_family:expr),*) => {
        &[
            $($of_family,)*
            // sourceTransportPort, destinationTransportPort, protocolIdentifier, ipClassOfService, tcpControlBits.
            field(7, 2, |one, to| port(one.packet.key.ends.source, to)),
            field(11, 2, |one, to| port(one.packet.key.ends.destination, to)),
            field(4, 1, |one, to| to.push(one.packet.key.protocol)),
            field(5, 1, |one, to| to.push(one.packet.key.class)),
            field(6, 2, |one, to| to.extend(one.packet.tcp_flags.to_be_bytes())),
            // ingressInterface, egressInterface, packetDeltaCount, octetDeltaCount.
            field(10, 4, |one, to| to.extend(one.packet.key.interfaces[0].to_be_bytes())),
            field(14, 4, |one, to| to.extend(one.packet.key.interfaces[1].to_be_bytes())),
            field(2, 8, |one, to| to.extend(one.packets.to_be_bytes())),
            field(1, 8, |one, to| to.extend(one.packet.octets.to_be_bytes())),
            // flowStartMilliseconds, flowEndMilliseconds, flowEndReason.
            field(152, 8, |one, to| to.extend(one.start_ms.to_be_bytes())),
            field(153, 8, |one, to| to.extend(one.end_ms.to_be_bytes())),
            field(136, 1, |one, to| to.push(one.reason as u8)),
            // samplingInterval, samplingAlgorithm.
            field(34, 4, |one, to| to.extend(one.rate.to_be_bytes())),
            field(35, 1, |_, to| to.push(RANDOM)),
        ]
    };
}

pub(super) static SAMPLED_V4: Template<SampledFlow> = Template {
    id: 264,
    scopes: 0,
    // sourceIPv4Address, destinationIPv4Address, their PrefixLengths, ipNextHopIPv4Address.
    fields: sampled!(
        field(8, 4, |one, to| v4(one.packet.key.ends.source, to)),
        field(12, 4, |one, to| v4(one.packet.key.ends.destination, to)),
        field(9, 1, |one, to| to.push(one.packet.prefix_lens[0])),
        field(13, 1, |one, to| to.push(one.packet.prefix_lens[1])),
        field(15, 4, |one, to| v4(next_hop(one), to))
    ),
};

pub(super) static SAMPLED_V6: Template<SampledFlow> = Template {
    id: 265,
    scopes: 0,
    // Likewise, of IPv6.
    fields: sampled!(
        field(27, 16, |one, to| v6(one.packet.key.ends.source, to)),
        field(28, 16, |one, to| v6(one.packet.key.ends.destination, to)),
        field(29, 1, |one, to| to.push(one.packet.prefix_lens[0])),
        field(30, 1, |one, to| to.push(one.packet.prefix_lens[1])),
        field(62, 16, |one, to| v6(next_hop(one), to))
    ),
};

pub(super) static SAMPLING: Template<Sampling> = Template {
    id: 266,
    scopes: 1,
    fields: &[
        // observationDomainId; samplingInterval. With an algorithm beside it, nfdump 1.7.1 ignores the interval.
        field(149, 4, |one, to| to.extend(one.domain.to_be_bytes())),
        field(34, 4, |one, to| to.extend(one.rate.to_be_bytes())),
    ],
};

// sourceIPv4Address, destinationIPv4Address, and those of IPv6.
const SOURCE_V4: Field<FlowRecord> = field(8, 4, |one, to| v4(one.received.source, to));
const DESTINATION_V4: Field<FlowRecord> = field(12, 4, |one, to| v4(one.received.destination, to));
const SOURCE_V6: Field<FlowRecord> = field(27, 16, |one, to| v6(one.received.source, to));
const DESTINATION_V6: Field<FlowRecord> = field(28, 16, |one, to| v6(one.received.destination, to));
// sourceTransportPort, destinationTransportPort, protocolIdentifier.
const SOURCE_PORT: Field<FlowRecord> = field(7, 2, |one, to| port(one.received.source, to));
const DESTINATION_PORT: Field<FlowRecord> =
    field(11, 2, |one, to| port(one.received.destination, to));
const PROTOCOL: Field<FlowRecord> = field(4, 1, |one, to| to.push(one.protocol));
// ingressInterface, egressInterface.
const INGRESS: Field<FlowRecord> =
    field(10, 4, |one, to| to.extend(one.interfaces[0].to_be_bytes()));
const EGRESS: Field<FlowRecord> =
    field(14, 4, |one, to| to.extend(one.interfaces[1].to_be_bytes()));
// packetDeltaCount, octetDeltaCount.
const PACKETS: Field<FlowRecord> = field(2, 8, |one, to| to.extend(one.packets.to_be_bytes()));
const OCTETS: Field<FlowRecord> = field(1, 8, |one, to| to.extend(one.octets.to_be_bytes()));
// flowStartMilliseconds, flowEndMilliseconds, flowEndReason.
const START: Field<FlowRecord> = field(152, 8, |one, to| to.extend(one.start_ms.to_be_bytes()));
const END: Field<FlowRecord> = field(153, 8, |one, to| to.extend(one.end_ms.to_be_bytes()));
const REASON: Field<FlowRecord> = field(136, 1, |one, to| to.push(one.reason as u8));
// postNAPTSourceTransportPort, postNAPTDestinationTransportPort.
const NEW_SOURCE_PORT: Field<FlowRecord> = field(227, 2, |one, to| port(one.sent.source, to));
const NEW_DESTINATION_PORT: Field<FlowRecord> =
    field(228, 2, |one, to| port(one.sent.destination, to));
// observationTimeMilliseconds, natEvent, protocolIdentifier.
const EVENT_TIME: Field<NatEvent> = field(323, 8, |one, to| to.extend(one.time_ms.to_be_bytes()));
const EVENT: Field<NatEvent> = field(230, 1, |one, to| to.push(event(one)));
const EVENT_PROTOCOL: Field<NatEvent> = field(4, 1, |one, to| to.push(one.protocol));

const fn field<T>(element: u16, length: u16, write: fn(&T, &mut Vec<u8>)) -> Field<T> {
    Field { element, length, write }
}

/// IANA's "NAT Event Type". IANA has a session of NAT44, and none of IPv6 to IPv6; the older events name no family.
fn event(NatEvent { received: Ends { source, .. }, change, .. }: &NatEvent) -> u8 {
    match (source.is_ipv4(), change) {
        (true, NatChange::Created) => 4,
        (true, NatChange::Deleted) => 5,
        (false, NatChange::Created) => 1,
        (false, NatChange::Deleted) => 2,
    }
}

/// `samplingAlgorithm`: at random.
const RANDOM: u8 = 2;

/// The next router; without one, the unspecified address, which both families write as zeros.
fn next_hop(flow: &SampledFlow) -> SocketAddr {
    (flow.packet.next_hop.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0).into()
}

/// An address of the other family is none.
fn v4(address: SocketAddr, to: &mut Vec<u8>) {
    let octets = match address {
        SocketAddr::V4(address) => *address.ip(),
        SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    to.extend(octets.octets());
}

fn v6(address: SocketAddr, to: &mut Vec<u8>) {
    let octets = match address {
        SocketAddr::V6(address) => *address.ip(),
        SocketAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
    };
    to.extend(octets.octets());
}

fn port(address: SocketAddr, to: &mut Vec<u8>) {
    to.extend(address.port().to_be_bytes());
}
