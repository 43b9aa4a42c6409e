//! ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861).

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::icmpv4::{DestUnreachableHeader, RedirectCode, TimeExceededCode};
use etherparse::{
    Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type, IpNumber, LaxNetSlice, LaxSlicedPacket,
    icmpv6,
};

use super::ip::{Carrier, Protocol};

pub(super) fn icmpv4(text: &mut String, carrier: &Carrier<'_>) -> fmt::Result {
    let Ok(message) = Icmpv4Slice::from_slice(carrier.bytes) else {
        return text.write_str("[|icmp]");
    };
    text.push_str("ICMP ");
    let quoted = Quoted::of(message.payload());
    match message.icmp_type() {
        Icmpv4Type::EchoRequest(echo) => {
            write!(text, "echo request, id {}, seq {}", echo.id, echo.seq)?;
        }
        Icmpv4Type::EchoReply(echo) => {
            write!(text, "echo reply, id {}, seq {}", echo.id, echo.seq)?;
        }
        Icmpv4Type::DestinationUnreachable(why) => unreachable(text, &why, &quoted)?,
        Icmpv4Type::TimeExceeded(TimeExceededCode::TtlExceededInTransit) => {
            text.push_str("time exceeded in-transit");
        }
        Icmpv4Type::TimeExceeded(TimeExceededCode::FragmentReassemblyTimeExceeded) => {
            text.push_str("ip reassembly time exceeded");
        }
        Icmpv4Type::Redirect(redirect) => {
            let to = match redirect.code {
                RedirectCode::RedirectForNetwork => "net",
                RedirectCode::RedirectForHost => "host",
                RedirectCode::RedirectForTypeOfServiceAndNetwork => "tos-net",
                RedirectCode::RedirectForTypeOfServiceAndHost => "tos-host",
            };
            let gateway = Ipv4Addr::from(redirect.gateway_internet_address);
            write!(text, "redirect {} to {to} {gateway}", quoted.destination)?;
        }
        Icmpv4Type::ParameterProblem(_) => text.push_str("parameter problem"),
        Icmpv4Type::TimestampRequest(time) => {
            write!(text, "time stamp query, id {}, seq {}", time.id, time.seq)?;
        }
        Icmpv4Type::TimestampReply(time) => {
            write!(text, "time stamp reply, id {}, seq {}", time.id, time.seq)?;
        }
        Icmpv4Type::Unknown { type_u8, code_u8, .. } => {
            write!(text, "type-{type_u8}, code {code_u8}")?;
        }
    }
    write!(text, ", length {}", carrier.len)
}

fn unreachable(text: &mut String, why: &DestUnreachableHeader, quoted: &Quoted) -> fmt::Result {
    use DestUnreachableHeader as Why;
    let to = &quoted.destination;
    match why {
        Why::Network => write!(text, "net {to} unreachable"),
        Why::Host => write!(text, "host {to} unreachable"),
        Why::Protocol => write!(text, "{to} protocol {} unreachable", Protocol(quoted.protocol)),
        Why::Port => write!(text, "{to} {quoted} unreachable"),
        Why::FragmentationNeeded { next_hop_mtu } => {
            write!(text, "{to} unreachable - need to frag (mtu {next_hop_mtu})")
        }
        Why::SourceRouteFailed => write!(text, "{to} unreachable - source route failed"),
        Why::NetworkUnknown => write!(text, "net {to} unreachable - unknown"),
        Why::HostUnknown => write!(text, "host {to} unreachable - unknown"),
        Why::NetworkProhibited => write!(text, "net {to} unreachable - admin prohibited"),
        Why::HostProhibited => write!(text, "host {to} unreachable - admin prohibited"),
        Why::FilterProhibited => write!(text, "host {to} unreachable - admin prohibited filter"),
        other => write!(text, "{to} unreachable - #{}", other.code_u8()),
    }
}

pub(super) fn icmpv6(text: &mut String, carrier: &Carrier<'_>) -> fmt::Result {
    let Ok(message) = Icmpv6Slice::from_slice(carrier.bytes) else {
        return text.write_str("[|icmp6]");
    };
    text.push_str("ICMP6, ");
    let payload = message.payload();
    match message.icmp_type() {
        Icmpv6Type::EchoRequest(echo) => {
            write!(text, "echo request, id {}, seq {}", echo.id, echo.seq)?;
        }
        Icmpv6Type::EchoReply(echo) => {
            write!(text, "echo reply, id {}, seq {}", echo.id, echo.seq)?;
        }
        Icmpv6Type::DestinationUnreachable(why) => {
            text.push_str("destination unreachable, ");
            unreachable_icmpv6(text, why, &Quoted::of(payload))?;
        }
        Icmpv6Type::PacketTooBig { mtu } => write!(text, "packet too big, mtu {mtu}")?,
        Icmpv6Type::TimeExceeded(icmpv6::TimeExceededCode::HopLimitExceeded) => {
            write!(text, "time exceeded in-transit for {}", Quoted::of(payload).destination)?;
        }
        Icmpv6Type::TimeExceeded(icmpv6::TimeExceededCode::FragmentReassemblyTimeExceeded) => {
            text.push_str("time exceeded in-reassembly");
        }
        Icmpv6Type::ParameterProblem(problem) => {
            write!(text, "parameter problem, at byte {}", problem.pointer)?;
        }
        Icmpv6Type::RouterSolicitation => text.push_str("router solicitation"),
        Icmpv6Type::RouterAdvertisement(_) => text.push_str("router advertisement"),
        Icmpv6Type::NeighborSolicitation => match address(payload, 0) {
            Some(target) => write!(text, "neighbor solicitation, who has {target}")?,
            None => return text.write_str("neighbor solicitation [|icmp6]"),
        },
        Icmpv6Type::NeighborAdvertisement(flags) => {
            let Some(target) = address(payload, 0) else {
                return text.write_str("neighbor advertisement [|icmp6]");
            };
            write!(text, "neighbor advertisement, tgt is {target}")?;
            let flags = [
                (flags.router, "router"),
                (flags.solicited, "solicited"),
                (flags.r#override, "override"),
            ];
            let mut before = ", Flags [";
            for (_, flag) in flags.into_iter().filter(|(is_set, _)| *is_set) {
                write!(text, "{before}{flag}")?;
                before = ", ";
            }
            text.push_str(if before == ", " { "]" } else { "" });
        }
        Icmpv6Type::Redirect => match (address(payload, 0), address(payload, 16)) {
            (Some(to), Some(destination)) => write!(text, "redirect, {destination} to {to}")?,
            _ => return text.write_str("redirect [|icmp6]"),
        },
        Icmpv6Type::Unknown { type_u8, code_u8, .. } => match type_u8 {
            130 => text.push_str("multicast listener query"),
            131 => text.push_str("multicast listener report"),
            132 => text.push_str("multicast listener done"),
            143 => text.push_str("multicast listener report v2"),
            _ => write!(text, "type-{type_u8}, code {code_u8}")?,
        },
    }
    write!(text, ", length {}", carrier.len)
}

fn unreachable_icmpv6(
    text: &mut String,
    why: icmpv6::DestUnreachableCode,
    quoted: &Quoted,
) -> fmt::Result {
    use icmpv6::DestUnreachableCode as Why;
    let to = &quoted.destination;
    match why {
        Why::NoRoute => write!(text, "unreachable route {to}"),
        Why::Prohibited => write!(text, "unreachable prohibited {to}"),
        Why::BeyondScope => {
            write!(text, "beyond scope {to}, source address {}", quoted.source)
        }
        Why::Address => write!(text, "unreachable address {to}"),
        Why::Port => write!(text, "unreachable port, {to} {quoted}"),
        Why::SourceAddressFailedPolicy => write!(text, "source address failed policy, {to}"),
        Why::RejectRoute => write!(text, "reject route to {to}"),
    }
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(octets.into())
}

/// The packet that an error is about: whence it came, and where it went.
struct Quoted {
    source: Place,
    destination: Place,
    protocol: IpNumber,
    port: Option<u16>,
}

enum Place {
    Known(IpAddr),
    Cut,
}

impl Quoted {
    fn of(bytes: &[u8]) -> Quoted {
        let cut = Quoted {
            source: Place::Cut,
            destination: Place::Cut,
            protocol: IpNumber(0),
            port: None,
        };
        let Ok(packet) = LaxSlicedPacket::from_ip(bytes) else { return cut };
        let (source, destination, payload): (IpAddr, IpAddr, _) = match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), ip.payload())
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), ip.payload())
            }
            _ => return cut,
        };
        let port = match (payload.ip_number, payload.payload) {
            (IpNumber::TCP | IpNumber::UDP, &[_, _, high, low, ..]) => {
                Some(u16::from_be_bytes([high, low]))
            }
            _ => None,
        };
        let (source, destination) = (Place::Known(source), Place::Known(destination));
        Quoted { source, destination, protocol: payload.ip_number, port }
    }
}

/// `udp port 53`
impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.protocol {
            IpNumber::TCP => "tcp",
            IpNumber::UDP => "udp",
            other => return Protocol(other).fmt(f),
        };
        match self.port {
            Some(port) => write!(f, "{name} port {port}"),
            None => write!(f, "{name} port"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Known(address) => address.fmt(f),
            Place::Cut => f.write_str("[|ip]"),
        }
    }
}
