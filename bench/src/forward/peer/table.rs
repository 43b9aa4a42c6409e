//! The frames, for both sides; `bench/peers/frames.h` reads what [`write()`] writes behind the routes.

use std::io::{self, Write};

use manylane_lab::network::{CLIENT_V4, CLIENT_V6};
use manylane_lab::packet::{SENDER, emit_udp, router_mac};
use manylane_lab::prefixes::Draw;
use manylane_net::wire::ipv4;

use crate::prelude::*;

/// Frames of a row.
pub struct Row {
    /// Its place in [`ROWS`].
    pub number: u32,
    pub name: &'static str,
    pub is_ipv6: bool,
    pub has_two_ports: bool,
    is_same: bool,
    is_mixed: bool,
}

impl Row {
    /// The name of one of its figures.
    pub fn figure(&self, end: &str) -> String {
        format!("{}_{end}", self.name)
    }
}

const fn row(number: u32, name: &'static str) -> Row {
    let kind = number % 4;
    let (is_same, is_mixed, has_two_ports) = (kind == 1, kind == 2, kind == 3);
    Row { number, name, is_ipv6: number >= 4, has_two_ports, is_same, is_mixed }
}

pub const ROWS: [Row; 8] = [
    row(0, "ipv4_random"),
    row(1, "ipv4_same"),
    row(2, "ipv4_imix"),
    row(3, "ipv4_ports"),
    row(4, "ipv6_random"),
    row(5, "ipv6_same"),
    row(6, "ipv6_imix"),
    row(7, "ipv6_ports"),
];

/// Bytes of frames, without Ethernet's checksum, and how many of twelve have that length.
const LENS: [u16; 3] = [FRAME_LEN as u16, 590, 1514];
const PARTS: [usize; 3] = [7, 4, 1];
const PORTS: u16 = 2;

/// What differs between frames of one family, in memory order; `N` bytes of an address.
#[derive(Clone, Copy)]
#[repr(C)]
struct Target<const N: usize> {
    address: [u8; N],
    checksum: [u8; 2],
    /// The number of the length.
    kind: u16,
}

impl<const N: usize> Target<N> {
    /// Where a frame has the checksum that depends on the address: that of IPv4's header, and of UDP in IPv6.
    const CHECKSUM: usize = if N == 4 { 24 } else { 60 };
    /// Where a frame has the address.
    const ADDRESS: usize = if N == 4 { 30 } else { 38 };

    fn new(address: IpAddr, bytes: [u8; N], kind: usize) -> Target<N> {
        let head = template(0, kind, address);
        let checksum = [head[Self::CHECKSUM], head[Self::CHECKSUM + 1]];
        Target { address: bytes, checksum, kind: kind as u16 }
    }

    fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.address)?;
        to.write_all(&self.checksum)?;
        to.write_all(&self.kind.to_ne_bytes())
    }
}

/// The beginning of a frame that port `port` receives.
fn template(port: u16, kind: usize, destination: IpAddr) -> Head {
    let len = usize::from(LENS[kind]);
    let mut frame = [0; LENS[2] as usize];
    let source = if destination.is_ipv4() { CLIENT_V4 } else { CLIENT_V6 };
    emit_udp(&mut frame[..len], len, [router_mac(port), SENDER], [source, destination]);
    *head(&mut frame)
}

/// Frames by family: 64 bytes, mixed lengths, and a batch to one destination.
struct Family<const N: usize> {
    mixes: [Vec<Target<N>>; 2],
    same: [Target<N>; BATCH_MAX],
    /// By port and length.
    templates: [[Head; LENS.len()]; PORTS as usize],
}

impl<const N: usize> Family<N> {
    fn new(any: IpAddr, mut draw: impl FnMut() -> (IpAddr, [u8; N])) -> Family<N> {
        let mut random = Random(12);
        let (mut fixed, mut mixed) = (Vec::new(), Vec::new());
        for _ in 0..TARGETS {
            let (address, bytes) = draw();
            let part = random.below(PARTS.iter().sum());
            let kind =
                if part < PARTS[0] { 0 } else { 1 + usize::from(part >= PARTS[0] + PARTS[1]) };
            fixed.push(Target::new(address, bytes, 0));
            mixed.push(Target::new(address, bytes, kind));
        }
        let by_len = |port| std::array::from_fn(|kind| template(port, kind, any));
        let templates = std::array::from_fn(|port| by_len(port as u16));
        Family { same: [fixed[5]; BATCH_MAX], mixes: [fixed, mixed], templates }
    }

    #[inline(always)]
    fn write(&self, row: &Row, port: usize, first: usize, pool: &Pool, frames: &mut [Frame]) {
        let mix = &self.mixes[usize::from(row.is_mixed)];
        let targets = if row.is_same { &self.same[..] } else { &mix[first..] };
        let (templates, view) = (&self.templates[port], pool.region().view());
        for (frame, target) in frames.iter_mut().zip(targets) {
            let kind = usize::from(target.kind);
            view.set_window(frame, HEADROOM, HEADROOM + LENS[kind]);
            let bytes = head(view.bytes_mut(frame));
            *bytes = templates[kind];
            bytes[Target::<N>::CHECKSUM..][..2].copy_from_slice(&target.checksum);
            bytes[Target::<N>::ADDRESS..][..N].copy_from_slice(&target.address);
        }
    }
}

/// The frames of all rows.
pub struct Targets {
    ipv4: Family<4>,
    ipv6: Family<16>,
}

impl Targets {
    pub fn new(prefixes: &Prefixes) -> Targets {
        let mut random = Random(99);
        let ipv4 = Family::new(Ipv4Addr::UNSPECIFIED.into(), || {
            loop {
                let address = Ipv4Addr::from_bits(prefixes.ipv4.as_slice().draw(&mut random));
                // A real table has some prefixes in space that no unicast packet has as its destination.
                if !ipv4::is_martian_destination(address) {
                    break (address.into(), address.octets());
                }
            }
        });
        let ipv6 = Family::new(Ipv6Addr::UNSPECIFIED.into(), || {
            let address = Ipv6Addr::from(prefixes.ipv6.as_slice().draw(&mut random));
            (address.into(), address.octets())
        });
        Targets { ipv4, ipv6 }
    }

    /// Writes what the device of `port` would: frames from `first` on, each at the usual place of its slot.
    #[inline(always)]
    pub fn write(&self, row: &Row, port: usize, first: usize, pool: &Pool, frames: &mut [Frame]) {
        if row.is_ipv6 {
            self.ipv6.write(row, port, first, pool, frames);
        } else {
            self.ipv4.write(row, port, first, pool, frames);
        }
    }
}

/// Writes the frames.
pub fn write(to: &mut impl Write, targets: &Targets) -> io::Result<()> {
    LENS.into_iter().try_for_each(|len| to.write_all(&u32::from(len).to_ne_bytes()))?;
    for templates in [&targets.ipv4.templates, &targets.ipv6.templates] {
        templates.iter().flatten().try_for_each(|head| to.write_all(head))?;
    }
    for mix in 0..2 {
        targets.ipv4.mixes[mix].iter().try_for_each(|target| target.write_to(to))?;
        targets.ipv6.mixes[mix].iter().try_for_each(|target| target.write_to(to))?;
    }
    Ok(())
}
