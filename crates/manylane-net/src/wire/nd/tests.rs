use proptest::prelude::*;

use super::*;

const STATION: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OURS: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const THEIRS: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xab12, 0x3456);

#[test]
fn a_question_goes_to_the_group_and_a_probe_to_its_station() {
    let mut buf = [0; FRAME_LEN_MAX];
    assert_eq!(Solicitation::ask(STATION, OURS, THEIRS).emit(&mut buf, STATION, PEER), Some(86));
    let frame = ethernet::View::checked(&buf).unwrap();
    assert_eq!(frame.destination(), Mac([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
    assert_eq!((frame.source(), frame.ether_type()), (STATION, ether_type::IPV6));

    Solicitation::probe(STATION, OURS, THEIRS).emit(&mut buf, STATION, PEER).unwrap();
    assert_eq!(ethernet::View::checked(&buf).unwrap().destination(), PEER);
}

#[test]
fn an_asker_without_address_is_answered_through_all_nodes() {
    let question = Solicitation::detect_duplicate(OURS);
    let answer = Advertisement::answer(&question, STATION);
    assert_eq!((answer.destination, answer.solicited), (ipv6::ALL_NODES, false));

    let question = Solicitation::ask(PEER, THEIRS, OURS);
    let answer = Advertisement::answer(&question, STATION);
    assert_eq!((answer.destination, answer.solicited), (THEIRS, true));
    assert_eq!((answer.source, answer.target), (OURS, OURS));
}

/// RFC 4861 §7.1.1, rule by rule: one good packet, and each rule broken once.
#[test]
fn solicitations_that_break_a_rule_are_refused() {
    let good = packet(|buf| Solicitation::ask(PEER, THEIRS, OURS).emit(buf, PEER, STATION));
    assert!(matches!(Message::checked(&good), Some(Message::Solicitation(_))));
    for (what, at, value) in [
        ("hop limit", 7, 254),
        ("code", 41, 1),
        ("multicast target", 48, 0xff),
        ("option without length", 65, 0),
        ("option beyond the message", 65, 2),
        ("group as link-layer address", 66, 0x33),
        ("group as source", 8, 0xff),
        ("another type", 40, 133),
    ] {
        assert_eq!(Message::checked(&resummed(&good, at, value)), None, "{what}");
    }
    let mut damaged = good.clone();
    damaged[42] ^= 1;
    assert_eq!(Message::checked(&damaged), None, "checksum");

    let dad = Solicitation::detect_duplicate(OURS);
    let learnable = Solicitation { link_layer: Some(PEER), ..dad };
    let unicast = Solicitation { destination: OURS, ..dad };
    let nodes = Solicitation { destination: ipv6::ALL_NODES, ..dad };
    let read = |solicitation: Solicitation| {
        Message::checked(&packet(|buf| solicitation.emit(buf, PEER, STATION)))
    };
    assert_eq!(read(dad), Some(Message::Solicitation(dad)));
    assert_eq!(read(learnable), None, "from nobody with an address");
    assert_eq!(read(unicast), None, "from nobody to a node");
    assert_eq!(read(nodes), None, "from nobody to another group");
}

/// RFC 4861 §7.1.2.
#[test]
fn advertisements_that_break_a_rule_are_refused() {
    let question = Solicitation::ask(STATION, OURS, THEIRS);
    let answer = Advertisement::answer(&question, PEER);
    let good = packet(|buf| answer.emit(buf, PEER, STATION));
    assert_eq!(Message::checked(&good), Some(Message::Advertisement(answer)));
    for (what, at, value) in [
        ("hop limit", 7, 64),
        ("code", 41, 7),
        ("multicast target", 48, 0xff),
        ("option without length", 65, 0),
        ("to a group and solicited", 24, 0xff),
    ] {
        assert_eq!(Message::checked(&resummed(&good, at, value)), None, "{what}");
    }
}

/// 23 bytes of message with a checksum that is right.
#[test]
fn a_short_message_is_refused() {
    let mut short = packet(|buf| Solicitation::detect_duplicate(OURS).emit(buf, PEER, PEER));
    short.pop();
    short[5] = 23;
    assert_eq!(Message::checked(&resummed(&short, 41, 0)), None);
}

#[test]
fn other_options_are_passed_over() {
    let mut long = packet(|buf| Solicitation::detect_duplicate(OURS).emit(buf, PEER, PEER));
    long.extend([14, 1, 1, 2, 3, 4, 5, 6]); // A nonce (RFC 3971), as Linux sends it.
    long.extend([250; 16]);
    long[5] = 48;
    long[73] = 2;
    assert!(Message::checked(&resummed(&long, 41, 0)).is_some());
    long.push(9); // Half an option.
    long[5] = 49;
    assert!(Message::checked(&resummed(&long, 41, 0)).is_none());
}

#[test]
fn a_fragment_header_is_refused() {
    let mut buf = packet(|buf| Solicitation::ask(PEER, THEIRS, OURS).emit(buf, PEER, STATION));
    buf.splice(40..40, [protocol::ICMPV6, 0, 0, 0, 0, 0, 0, 1]);
    buf[5] += 8;
    buf[6] = protocol::FRAGMENT;
    assert_eq!(Message::checked(&buf), None, "an atomic fragment");
    buf[40..44].copy_from_slice(&[protocol::ICMPV6, 0, 1, 4]);
    buf[6] = protocol::DESTINATION_OPTIONS;
    assert!(Message::checked(&buf).is_some(), "harmless options");
}

#[test]
fn nothing_is_written_where_it_does_not_fit() {
    let ask = Solicitation::ask(STATION, OURS, THEIRS);
    assert_eq!(ask.emit(&mut [0; FRAME_LEN_MAX - 1], STATION, PEER), None);
    let dad = Solicitation::detect_duplicate(OURS);
    assert_eq!(dad.emit(&mut [0; FRAME_LEN_MAX - 8], STATION, PEER), Some(78));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_emitted_is_read_back(
        source: [u8; 15], destination: [u8; 15], target: [u8; 15], mac: Option<[u8; 5]>,
        router: bool, solicited: bool, overrides: bool,
    ) {
        let unicast = |[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o]: [u8; 15]| {
            Ipv6Addr::from([0x20, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o])
        };
        let link_layer = mac.map(|[b, c, d, e, f]| Mac([2, b, c, d, e, f]));
        let (source, destination, target) = (unicast(source), unicast(destination), unicast(target));
        let asked = Solicitation { source, destination, target, link_layer };
        prop_assert_eq!(
            Message::checked(&packet(|buf| asked.emit(buf, PEER, STATION))),
            Some(Message::Solicitation(asked))
        );
        let told = Advertisement { source, destination, target, router, solicited, overrides, link_layer };
        prop_assert_eq!(
            Message::checked(&packet(|buf| told.emit(buf, PEER, STATION))),
            Some(Message::Advertisement(told))
        );
    }
}

/// The IP packet of a frame.
fn packet(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut buf = [0; FRAME_LEN_MAX];
    let len = write(&mut buf).unwrap();
    buf[ethernet::HEADER_LEN..len].to_vec()
}

/// With one byte changed and the checksum made right again, so that the rule speaks and not it.
fn resummed(packet: &[u8], at: usize, value: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[at] = value;
    let (header, message) = packet.split_at_mut(40);
    let header = ipv6::View::quoted(header).unwrap();
    let (source, destination) = (header.source(), header.destination());
    let view = icmpv6::View::checked(message).unwrap();
    let (kind, code, word) = (view.kind(), view.code(), view.word());
    icmpv6::emit(message, kind, code, word, source, destination).unwrap();
    packet
}
