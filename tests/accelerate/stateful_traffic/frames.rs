//! Frames that no socket sends, and those that a link brings.

use std::net::{IpAddr, SocketAddr};

use manylane_io::station::Station;
use manylane_lab::{Topology, until};

/// An error by ICMP about a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub kind: u8,
    pub code: u8,
    /// The path's MTU, where that is reported.
    pub mtu: u32,
    pub from: IpAddr,
    /// Source and destination of the datagram that is quoted.
    pub quoted: [SocketAddr; 2],
}

/// A packet socket on a host's link.
pub(super) fn station(topology: &Topology, host: &str, interface: &str) -> Station {
    let interface = interface.to_owned();
    topology.host(host).run(move || Station::open(&interface)).expect("root may")
}

/// The next error about a datagram that a station hears.
pub(super) fn next_error(station: &Station) -> Heard {
    let mut buffer = [0; 2048];
    until("an error by ICMP", || {
        loop {
            match station.receive(&mut buffer).expect("the link is there") {
                Some(frame) => {
                    if let Some(heard) = heard(frame) {
                        return Ok(heard);
                    }
                }
                None => return Err("nothing more"),
            }
        }
    })
}

fn heard(frame: &[u8]) -> Option<Heard> {
    let packet = frame.get(14..)?;
    let (outer, message) = packet.split_at_checked(header_len(packet)?)?;
    let is_icmp = outer[next_protocol(outer)] == if outer[0] >> 4 == 4 { 1 } else { 58 };
    let quoted = message.get(8..).filter(|_| is_icmp)?;
    let is_error =
        if outer[0] >> 4 == 4 { [3, 11].contains(&message[0]) } else { message[0] < 128 };
    let (inner, ports) = quoted.split_at_checked(header_len(quoted).filter(|_| is_error)?)?;
    let [port, other_port] =
        [ports.get(..2)?, ports.get(2..4)?].map(|port| u16::from_be_bytes([port[0], port[1]]));
    let [source, destination] = addresses(inner);
    let mtu = match outer[0] >> 4 {
        4 => u32::from_be_bytes([0, 0, message[6], message[7]]),
        _ => u32::from_be_bytes(*message.get(4..)?.first_chunk()?),
    };
    let quoted = [(source, port), (destination, other_port)].map(SocketAddr::from);
    Some(Heard { kind: message[0], code: message[1], mtu, from: addresses(outer)[0], quoted })
}

fn header_len(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 => Some(20),
        6 => Some(40),
        _ => None,
    }
}

fn next_protocol(header: &[u8]) -> usize {
    if header[0] >> 4 == 4 { 9 } else { 6 }
}

fn addresses(header: &[u8]) -> [IpAddr; 2] {
    let v4 = |at: usize| IpAddr::from(*header[at..].first_chunk::<4>().expect("it is whole"));
    let v6 = |at: usize| IpAddr::from(*header[at..].first_chunk::<16>().expect("it is whole"));
    if header[0] >> 4 == 4 { [v4(12), v4(16)] } else { [v6(8), v6(24)] }
}

/// Checksum and source of a UDP packet of IPv4 with this payload.
pub(super) fn datagram_of(frame: &[u8], payload: &[u8]) -> Option<(u16, SocketAddr)> {
    let packet = frame.get(14..)?;
    let (header, datagram) = packet.split_at_checked(header_len(packet)?)?;
    let is_it = header[0] >> 4 == 4 && header[9] == 17 && datagram.get(8..)?.starts_with(payload);
    let port = u16::from_be_bytes([datagram[0], datagram[1]]);
    let checksum = u16::from_be_bytes([datagram[6], datagram[7]]);
    is_it.then(|| (checksum, (addresses(header)[0], port).into()))
}
