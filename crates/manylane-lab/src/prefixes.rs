//! The table to forward by: a real one from a file, or a synthetic one of the same shape.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use manylane_net::fib::{IpPrefix, Ipv4Prefix, Ipv6Prefix};

pub use crate::random::Random;

/// A table's prefixes.
pub struct Prefixes {
    /// IPv4, sorted, each once.
    pub ipv4: Vec<Ipv4Prefix>,
    /// IPv6, sorted, each once.
    pub ipv6: Vec<Ipv6Prefix>,
}

impl Prefixes {
    /// Reads the prefixes of a file (see [`read`](Prefixes::read)), or makes a synthetic table without one.
    pub fn of(file: Option<&Path>) -> io::Result<Prefixes> {
        file.map_or_else(|| Ok(Prefixes::synthetic()), Prefixes::read)
    }

    /// Reads one prefix a line, any line end; empty lines and `#` lines are skipped.
    pub fn read(path: &Path) -> io::Result<Prefixes> {
        let open = File::open(path);
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("prefix file {}: {error}", path.display()))
        };
        let file = open.map_err(named)?;
        let is_packed = path.extension().is_some_and(|ext| ext == "gz");
        let text: Box<dyn Read> =
            if is_packed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
        let mut prefixes = Prefixes { ipv4: Vec::new(), ipv6: Vec::new() };
        for (number, line) in (1..).zip(BufReader::new(text).lines()) {
            let line = line.map_err(named)?;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &dyn std::fmt::Display| {
                let place = format!("{}:{number}: `{line}`: {why}", path.display());
                io::Error::new(io::ErrorKind::InvalidData, place)
            };
            match parse(line).map_err(|why| wrong(&why))? {
                IpPrefix::V4(prefix) => prefixes.ipv4.push(prefix),
                IpPrefix::V6(prefix) => prefixes.ipv6.push(prefix),
            }
        }
        if prefixes.ipv4.is_empty() || prefixes.ipv6.is_empty() {
            let why = "the file must have IPv4 and IPv6 prefixes";
            return Err(named(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        Ok(prefixes.sorted())
    }

    /// A table like the Internet's: as many prefixes, the same mix of lengths, in the same space.
    pub fn synthetic() -> Prefixes {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let ipv4 = (0..IPV4_LEN).map(|_| random.ipv4_prefix()).collect();
        let ipv6 = (0..IPV6_LEN).map(|_| random.ipv6_prefix()).collect();
        Prefixes { ipv4, ipv6 }.sorted()
    }

    fn sorted(mut self) -> Prefixes {
        self.ipv4.sort();
        self.ipv4.dedup();
        self.ipv6.sort();
        self.ipv6.dedup();
        self
    }
}

fn parse(line: &str) -> Result<IpPrefix, String> {
    let is_ipv6 = line.contains(':');
    let prefix =
        if is_ipv6 { line.parse().map(IpPrefix::V6) } else { line.parse().map(IpPrefix::V4) };
    prefix.map_err(|error| error.to_string())
}

/// The size of the Internet's tables, and parts per thousand of each length there (a table of 901,899
/// and 160,147 prefixes of January 2024, counted).
const IPV4_LEN: usize = 900_000;
const IPV6_LEN: usize = 160_000;
#[rustfmt::skip]
const IPV4_LENGTHS: &[(u8, usize)] = &[
    (24, 596), (23, 103), (22, 115), (21, 52), (20, 45), (19, 26), (18, 14), (17, 9), (16, 16), (30, 1),
];
const IPV6_LENGTHS: &[(u8, usize)] =
    &[(48, 470), (32, 140), (44, 110), (40, 100), (36, 80), (46, 50), (47, 40), (29, 10)];

impl Random {
    fn length(&mut self, lengths: &[(u8, usize)]) -> u8 {
        let mut left = self.below(lengths.iter().map(|&(_, parts)| parts).sum());
        let drawn = lengths.iter().find(|&&(_, parts)| match left.checked_sub(parts) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        drawn.unwrap_or(&lengths[0]).0
    }

    fn ipv4_prefix(&mut self) -> Ipv4Prefix {
        let length = self.length(IPV4_LENGTHS);
        loop {
            let bits = self.next() as u32;
            if (1..224).contains(&(bits >> 24)) && bits >> 24 != 127 {
                return Ipv4Prefix::containing(bits.into(), length).expect("a length up to 32");
            }
        }
    }

    /// In 2000::/3, in clusters: an allocation of 29 to 32 bits holds many of its holder's prefixes.
    fn ipv6_prefix(&mut self) -> Ipv6Prefix {
        let length = self.length(IPV6_LENGTHS);
        let holder = u128::from(0x2400_0000 + (self.below(20_000) as u32) * 0x2311);
        let bits = holder << 96 | (u128::from(self.next()) << 32);
        Ipv6Prefix::containing(bits.into(), length).expect("a length up to 128")
    }
}

/// An address inside a prefix drawn evenly, host bits at random.
pub trait Draw {
    /// The address as a number.
    type Address;
    /// Draws one.
    fn draw(&self, random: &mut Random) -> Self::Address;
}

macro_rules! draw {
    ($prefix:ty, $bits:ty, $random:ident => $host:expr) => {
        impl Draw for [$prefix] {
            type Address = $bits;

            fn draw(&self, $random: &mut Random) -> $bits {
                let prefix = self[$random.below(self.len())];
                let host = <$bits>::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
                let bits: $bits = $host;
                prefix.addr().to_bits() | (bits & host)
            }
        }
    };
}

draw!(Ipv4Prefix, u32, random => random.next() as u32);
draw!(Ipv6Prefix, u128, random => u128::from(random.next()) << 64 | u128::from(random.next()));
