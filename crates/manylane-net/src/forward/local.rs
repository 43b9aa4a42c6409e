//! Packets for ourselves: ARP, neighbour discovery, echo. And our own questions.
//!
//! Answers are made in the frame of the question, by the worker that received it. What a question or
//! an answer tells about its sender is reported to the control thread, which owns the neighbours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::{Checksum, DropReason, PortId};
use manylane_frame::{Frame, HEADROOM, Pool};
use manylane_sync::rcu::Guard;

use super::send::Link;
use super::{Fate, Forwarder, LINK_HEADER, Origin, Turn, Verdict, parts, prepare};
use crate::icmp::{self, ErrorKind};
use crate::neighbour::{Claim, Key, Kind, Standing};
use crate::wire::checksum::Sum;
use crate::wire::ethernet::Mac;
use crate::wire::nd::{self, Advertisement, Message, Solicitation};
use crate::wire::{arp, icmp as wire_icmp, ip, ipv4, ipv6, protocol, tcp, udp};

const DELIVER: Verdict<'static> = Verdict { fate: Fate::Deliver, origin: Origin::Received };

impl Forwarder {
    /// ARP (RFC 826): a question for us is answered, and a station that shows its own address is reported.
    pub(super) fn local_arp<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
    ) -> Verdict<'g> {
        let Some(packet) = arp::Packet::checked(&self.region.bytes(frame)[LINK_HEADER..]) else {
            return Verdict::drop(DropReason::ArpInvalid);
        };
        let ingress = self.region.meta(frame).ingress;
        let facts = self.port(ingress);
        let is_asked = facts.owns(packet.target.into());
        // A station that claims one of our addresses, or has none yet, shows no neighbour.
        if facts.owns(packet.sender.into()) {
            self.claimed(ingress, packet.sender, packet.sender_mac, Claim::Used, turn.now_ns);
        } else if packet.is_probe() && is_asked && !self.uses(ingress, packet.target) {
            self.claimed(ingress, packet.target, packet.sender_mac, Claim::Wanted, turn.now_ns);
        } else if !packet.sender.is_unspecified() {
            // The answer to a question from the unspecified address is for our station.
            let answers = packet.target.is_unspecified() && packet.target_mac == facts.mac;
            let kind = match packet.operation {
                arp::Operation::Request if is_asked => Kind::ArpRequest,
                arp::Operation::Reply if is_asked || answers => Kind::ArpReply,
                _ => Kind::Gratuitous,
            };
            let key = Key { port: ingress, addr: packet.sender.into() };
            self.heard(turn, key, Some(packet.sender_mac.0), kind);
        }
        if packet.operation != arp::Operation::Request || !self.uses(ingress, packet.target) {
            return DELIVER;
        }
        let reply = packet.answer(self.port(ingress).mac);
        self.mark_own(frame);
        turn.pool.truncate(frame, arp::FRAME_LEN);
        match reply.emit_frame(self.region.bytes_mut(frame), packet.sender_mac) {
            Some(_) => Verdict { fate: self.egress(frame, ingress), origin: Origin::Reply },
            None => DELIVER,
        }
    }

    /// An IPv4 packet for one of our addresses.
    pub(super) fn local_ipv4<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
    ) -> Verdict<'g> {
        let (front, len) = parts::front(&self.region, frame);
        let Some(view) = ipv4::View::front(front, len) else {
            return Verdict::drop(DropReason::Ipv4HeaderInvalid);
        };
        if self.is_no_station(turn.guard, view.source()) {
            return Verdict::drop(DropReason::MartianSource);
        }
        // Fragments are not reassembled here.
        match view.protocol() {
            _ if !view.fragment().is_whole() => Verdict::drop(DropReason::LocalNoService),
            protocol::ICMP => self.local_icmp(turn, frame),
            // RFC 1812 §5.2.7.1: no service listens on any port.
            protocol::UDP | protocol::TCP => self.no_service(turn, frame),
            // RFC 1812 §5.2.7.1.
            _ => self.not_spoken(turn, frame, 0),
        }
    }

    /// An IPv6 packet for one of our addresses or groups.
    pub(super) fn local_ipv6<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
    ) -> Verdict<'g> {
        // Extension headers may lie behind what every rule looks at.
        if !parts::gather(turn.pool, frame, parts::HEADERS_MAX) {
            return Verdict::drop(DropReason::NoFrame);
        }
        let (packet, len) = parts::front(&self.region, frame);
        let Some(view) = ipv6::View::front(packet, len) else {
            return Verdict::drop(DropReason::Ipv6HeaderInvalid);
        };
        if let Some(wrong) = view.objection() {
            return self.object(turn, frame, wrong);
        }
        let Some(transport) = view.chain().transport() else {
            return Verdict::drop(DropReason::LocalInvalid);
        };
        if let Some(message) = Message::checked(packet) {
            return self.local_nd(turn, frame, message);
        }
        if ipv6::is_martian_source(view.source()) {
            return Verdict::drop(DropReason::MartianSource);
        }
        let named_at = view.named_at(transport);
        match transport.protocol {
            _ if !transport.fragment.is_whole() => Verdict::drop(DropReason::LocalNoService),
            protocol::ICMPV6 => self.local_icmp(turn, frame),
            protocol::UDP | protocol::TCP => self.no_service(turn, frame),
            // RFC 8200 §4.7: nothing follows, and no error is sent.
            protocol::NO_NEXT_HEADER => Verdict::drop(DropReason::LocalNoService),
            // RFC 8200 §4.
            _ => self.not_spoken(turn, frame, named_at),
        }
    }

    /// A packet for us whose extension headers we must not accept: dropped, and its sender notified, as the
    /// headers' own rules say.
    fn object<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        wrong: ipv6::Objection,
    ) -> Verdict<'g> {
        let reason = DropReason::LocalInvalid;
        let kind = match wrong {
            ipv6::Objection::Silent => return Verdict::drop(reason),
            ipv6::Objection::Routing { pointer }
            | ipv6::Objection::Length { pointer }
            | ipv6::Objection::Fragment { pointer } => ErrorKind::ParameterProblem { pointer },
            ipv6::Objection::Incomplete => ErrorKind::IncompleteHeaders,
            ipv6::Objection::NextHeader { pointer } => ErrorKind::ProtocolUnreachable { pointer },
            ipv6::Objection::Option { pointer, of_groups } => {
                ErrorKind::UnknownOption { pointer, of_groups }
            }
        };
        self.error(turn, frame, kind, reason)
    }

    /// A packet for us of a protocol that nothing here speaks, named at `pointer` by IPv6.
    fn not_spoken<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        pointer: u32,
    ) -> Verdict<'g> {
        let kind = ErrorKind::ProtocolUnreachable { pointer };
        self.error(turn, frame, kind, DropReason::LocalNoService)
    }

    /// An echo request becomes its reply, wherever its bytes lie; every other ICMP message ends here, and
    /// so does what is none.
    fn local_icmp<'g>(&mut self, turn: &mut Turn<'g, '_>, frame: &mut Frame) -> Verdict<'g> {
        if prepare::complete(&self.region, frame).is_none() || !self.is_icmp(frame) {
            return Verdict::drop(DropReason::LocalInvalid);
        }
        self.strip_extensions(frame);
        let bytes = self.region.bytes_mut(frame);
        let (link, front) = (Link::of(bytes), &mut bytes[LINK_HEADER..]);
        let identification = self.identification.wrapping_add(1);
        // An echo to a group is answered by hosts; a router spares the link the burst.
        if icmp::turn_echo_v4(front, identification).is_some() {
            self.identification = identification;
        } else if icmp::turn_echo_v6(front).is_none() {
            return DELIVER;
        }
        self.speak_as_one(turn.guard, frame);
        self.mark_own(frame);
        let fate = self.send(turn, frame, link);
        Verdict { fate, origin: Origin::Reply }
    }

    /// Takes the extension headers out of a packet whose message begins in its first frame: they have been
    /// looked at, and the reply has none of its request's.
    fn strip_extensions(&self, frame: &mut Frame) {
        let bytes = self.region.bytes_mut(frame);
        let Some(view) = ipv6::View::quoted(&bytes[LINK_HEADER..]) else { return };
        let Some(transport) = view.chain().transport() else { return };
        let extra = transport.offset - ipv6::HEADER_LEN;
        if extra == 0 {
            return;
        }
        let payload_len = view.payload_len() - extra as u16; // The chain lies in the payload.
        let headers = LINK_HEADER + ipv6::HEADER_LEN;
        bytes.copy_within(..headers, extra);
        let header = &mut bytes[extra + LINK_HEADER..];
        header[4..6].copy_from_slice(&payload_len.to_be_bytes());
        header[6] = transport.protocol;
        self.region.pull_front(frame, extra as u16);
    }

    /// An echo reply is sent from an address of one station: an anycast address is none (RFC 4443 §4.2).
    fn speak_as_one(&self, guard: Guard<'_>, frame: &mut Frame) {
        let packet = &self.region.bytes(frame)[LINK_HEADER..];
        let Some(view) = ipv6::View::quoted(packet) else { return };
        let (source, destination) = (view.source(), view.destination());
        if self.tables.ports.iter().any(|port| port.anycast.contains(&source))
            && let way = self.way_to(guard, frame, destination.into())
            && let Some(own) = self.source_ipv6(way, destination)
        {
            icmp::set_source_v6(&mut self.region.bytes_mut(frame)[LINK_HEADER..], own);
        }
    }

    /// Whether the packet holds an ICMP message as it was sent (RFC 1122 §3.2.2, RFC 4443 §2.3).
    fn is_icmp(&self, frame: &Frame) -> bool {
        let (front, len) = parts::front(&self.region, frame);
        let Some(packet) = ip::View::front(front, len) else { return false };
        let Some(transport) = packet.transport() else { return false };
        let message = transport.offset..packet.packet_len();
        let pseudo = match packet {
            ip::View::V4(_) => Some(Sum::default()),
            ip::View::V6(_) => packet.pseudo_header(protocol::ICMPV6, message.len()),
        };
        let Some(pseudo) = pseudo else { return false };
        message.len() >= wire_icmp::HEADER_LEN
            && parts::sum(self.region.view(), frame, LINK_HEADER, message, pseudo).is_valid()
    }

    /// Whether the lengths and the checksum of a datagram or segment are right.
    fn is_as_sent(&self, frame: &Frame) -> bool {
        let (front, len) = parts::front(&self.region, frame);
        let Some(packet) = ip::View::front(front, len) else { return false };
        let Some(transport) = packet.transport() else { return false };
        let room = packet.packet_len() - transport.offset;
        let message = packet.packet().get(transport.offset..).unwrap_or_default();
        let len = match transport.protocol {
            protocol::UDP => udp_len(message).filter(|len| *len <= room),
            protocol::TCP => tcp_header_len(message).filter(|len| *len <= room).map(|_| room),
            _ => None,
        };
        let Some(len) = len else { return false };
        let no_sum = transport.protocol == protocol::UDP && message[6..8] == [0, 0];
        if no_sum {
            return matches!(packet, ip::View::V4(_)); // RFC 768, RFC 8200 §8.1.
        }
        let Some(pseudo) = packet.pseudo_header(transport.protocol, len) else { return false };
        let range = transport.offset..transport.offset + len;
        parts::sum(self.region.view(), frame, LINK_HEADER, range, pseudo).is_valid()
    }

    /// UDP or TCP for us: no service listens on any port, and the sender is notified, unless the packet did not arrive
    /// as it was sent (RFC 1122 §4.1.3.4, §4.2.2.7, RFC 8200 §8.1).
    fn no_service<'g>(&mut self, turn: &mut Turn<'g, '_>, frame: &mut Frame) -> Verdict<'g> {
        if self.region.meta(frame).checksum == Checksum::Unknown {
            self.complete_checksum(frame);
        }
        if prepare::complete(&self.region, frame).is_none() || !self.is_as_sent(frame) {
            return Verdict::drop(DropReason::LocalInvalid);
        }
        let reason = DropReason::LocalNoService;
        self.error(turn, frame, ErrorKind::PortUnreachable, reason)
    }

    /// Neighbour discovery (RFC 4861 §7.2.3 to §7.2.5).
    fn local_nd<'g>(
        &mut self,
        turn: &mut Turn<'g, '_>,
        frame: &mut Frame,
        message: Message,
    ) -> Verdict<'g> {
        let ingress = self.region.meta(frame).ingress;
        let Some(link) = Link::of(self.region.bytes(frame)) else { return DELIVER };
        match message {
            Message::Solicitation(question) => {
                if !self.port(ingress).owns(question.target.into()) {
                    return DELIVER;
                }
                if !self.uses(ingress, question.target) {
                    if question.source.is_unspecified() {
                        self.claimed(
                            ingress,
                            question.target,
                            link.source(),
                            Claim::Wanted,
                            turn.now_ns,
                        );
                    }
                    return DELIVER;
                }
                if self.port(ingress).owns(question.source.into()) {
                    let station = question.link_layer.unwrap_or(link.source());
                    self.claimed(ingress, question.source, station, Claim::Used, turn.now_ns);
                } else if let Some(Mac(mac)) = question.link_layer {
                    let key = Key { port: ingress, addr: question.source.into() };
                    let kind = Kind::Solicitation;
                    self.heard(turn, key, Some(mac), kind);
                }
                self.advertise(turn.pool, frame, &question)
            }
            Message::Advertisement(answer) => {
                if self.port(ingress).owns(answer.target.into()) {
                    let station = answer.link_layer.unwrap_or(link.source());
                    self.claimed(ingress, answer.target, station, Claim::Used, turn.now_ns);
                } else {
                    let key = Key { port: ingress, addr: answer.target.into() };
                    let Advertisement { router, solicited, overrides, .. } = answer;
                    let kind = Kind::Advertisement { router, solicited, overrides };
                    let mac = answer.link_layer.map(|Mac(mac)| mac);
                    self.heard(turn, key, mac, kind);
                }
                DELIVER
            }
        }
    }

    /// Turns a solicitation into our advertisement.
    fn advertise<'g>(
        &mut self,
        pool: &mut Pool,
        frame: &mut Frame,
        question: &Solicitation,
    ) -> Verdict<'g> {
        let ingress = self.region.meta(frame).ingress;
        let station = self.port(ingress).mac;
        let Some(link) = Link::of(self.region.bytes(frame)) else { return DELIVER };
        self.mark_own(frame);
        self.region.set_window(frame, HEADROOM, HEADROOM + nd::FRAME_LEN_MAX as u16);
        let mut reply = Advertisement::answer(question, station);
        // RFC 4429 §3.3: what may be another's does not override.
        reply.overrides = self.standing(ingress, question.target) == Standing::Ours;
        if self.port(ingress).anycast.contains(&question.target) {
            // RFC 4861 §7.2.7: another router's advertisement is as good.
            reply.overrides = false;
            let Some(source) = self.source_ipv6(ingress, question.source) else { return DELIVER };
            reply.source = source;
        }
        match reply.emit(self.region.bytes_mut(frame), station, link.source()) {
            Some(len) => {
                pool.truncate(frame, len);
                Verdict { fate: self.egress(frame, ingress), origin: Origin::Reply }
            }
            None => DELIVER,
        }
    }

    /// Writes the question for a neighbour into a fresh frame, to one station or to all. Returns the port by whose
    /// device it leaves; `None` when the neighbour's port has no address to ask from.
    pub fn solicit(
        &mut self,
        frame: &mut Frame,
        key: Key,
        unicast: Option<[u8; 6]>,
    ) -> Option<PortId> {
        let source = self.source_for(key)?;
        self.write(frame, key.port, |buf, station| match (source, key.addr) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                let question = arp::Packet::request(station, source, target);
                question.emit_frame(buf, unicast.map_or(Mac::BROADCAST, Mac))
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => match unicast {
                Some(mac) => {
                    Solicitation::probe(station, source, target).emit(buf, station, Mac(mac))
                }
                None => {
                    let question = Solicitation::ask(station, source, target);
                    question.emit(buf, station, Mac::BROADCAST)
                }
            },
            _ => None, // `source_for` stays in the family.
        })
    }

    /// The source of a question for a neighbour: one the target can answer (RFC 4861 §7.2.2, RFC 4862 §5.4), and ours
    /// alone, because the receiver of a question learns where the address is (RFC 4429 §3.2). While the only address may
    /// be another station's, ARP asks from the unspecified address (RFC 5227 §2.1.1), and neighbour discovery does not
    /// ask.
    fn source_for(&self, key: Key) -> Option<IpAddr> {
        let is_ours = |own: IpAddr| self.standing(key.port, own) == Standing::Ours;
        match key.addr {
            IpAddr::V4(target) => {
                let all = &self.port(key.port).ipv4;
                let ours = || all.iter().filter(|own| is_ours(own.addr.into()));
                let source = ours().find(|own| own.contains(target)).or_else(|| ours().next());
                let used = || all.iter().any(|own| self.uses(key.port, own.addr));
                let nobody = || used().then_some(Ipv4Addr::UNSPECIFIED);
                source.map(|own| own.addr).or_else(nobody).map(IpAddr::V4)
            }
            IpAddr::V6(target) => {
                let ours = self.sources_ipv6(key.port, target).find(|&own| is_ours(own.into()));
                ours.map(IpAddr::V6)
            }
        }
    }

    /// The address of one station to speak from to `target` on `port`'s link, among those that we use.
    fn source_ipv6(&self, port: PortId, target: Ipv6Addr) -> Option<Ipv6Addr> {
        self.sources_ipv6(port, target).find(|&own| self.uses(port, own))
    }

    /// Our addresses on `port`, the best to speak from to `target` first.
    fn sources_ipv6(&self, port: PortId, target: Ipv6Addr) -> impl Iterator<Item = Ipv6Addr> {
        let facts = self.port(port);
        let [first, last] = match target.is_unicast_link_local() {
            true => [facts.link_local, None],
            false => [None, facts.link_local],
        };
        first.into_iter().chain(facts.ipv6.iter().copied()).chain(last)
    }
}

/// The length of a datagram, by its header.
fn udp_len(datagram: &[u8]) -> Option<usize> {
    let header: &[u8; udp::HEADER_LEN] = datagram.first_chunk()?;
    let len = u16::from_be_bytes([header[4], header[5]]).into();
    (len >= udp::HEADER_LEN).then_some(len)
}

/// The length of a segment's header with its options.
fn tcp_header_len(segment: &[u8]) -> Option<usize> {
    let header: &[u8; tcp::HEADER_LEN] = segment.first_chunk()?;
    let len = usize::from(header[12] >> 4) * 4;
    (len >= tcp::HEADER_LEN).then_some(len)
}
