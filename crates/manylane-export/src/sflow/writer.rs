//! Numbers and addresses, as XDR has them (RFC 4506): big-endian, in units of four bytes.

use std::net::IpAddr;

/// Bytes that grow.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub fn short(&mut self, value: u32) {
        self.0.extend(value.to_be_bytes());
    }

    pub fn long(&mut self, value: u64) {
        self.0.extend(value.to_be_bytes());
    }

    /// An address with its type in front; type 0 without one.
    pub fn address(&mut self, address: Option<IpAddr>) {
        match address {
            None => self.short(0),
            Some(IpAddr::V4(address)) => {
                self.short(1);
                self.0.extend(address.octets());
            }
            Some(IpAddr::V6(address)) => {
                self.short(2);
                self.0.extend(address.octets());
            }
        }
    }

    /// Bytes with their number in front, and zeros behind them up to a unit.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.short(bytes.len() as u32);
        self.0.extend(bytes);
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
    }

    /// A record or sample of this format, with its length in front.
    pub fn part(&mut self, format: u32, write: impl FnOnce(&mut Writer)) {
        self.short(format);
        let at = self.0.len();
        self.short(0);
        write(self);
        let len = (self.0.len() - at - 4) as u32;
        self.0[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }

    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}
