//! Options that routers write in: record route, and timestamp (RFC 791 §3.1).

use std::net::Ipv4Addr;

use super::super::checksum::Sum;
use super::HEADER_LEN;

/// An option that routers write in on the way: record route, or timestamp (RFC 791 §3.1).
pub(super) struct RecordingOption<'a> {
    option: &'a mut [u8],
    /// Where an entry begins, counted from the option's start.
    at: usize,
    /// Bytes of the address in an entry.
    address_len: usize,
    /// Bytes of the time in an entry.
    time_len: usize,
    /// The entry has an address already, and is for that router only.
    is_addressed: bool,
}

const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
/// Timestamps: alone, behind addresses, and behind addresses that the sender has chosen.
const TIMES_ONLY: u8 = 0;
const WITH_ADDRESSES: u8 = 1;
const CHOSEN_ADDRESSES: u8 = 3;

impl<'a> RecordingOption<'a> {
    /// What is wrong with an option that routers write in, if it is one, counted from its start. Its length
    /// is right.
    pub(super) fn fault(option: &[u8]) -> Option<usize> {
        let fixed = match *option.first()? {
            RECORD_ROUTE => 3,
            TIMESTAMP => 4,
            _ => return None,
        };
        if option.len() < fixed {
            return Some(1);
        }
        let entry = match (fixed, option.get(3).map_or(0, |flags| flags & 0x0f)) {
            (3, _) | (_, TIMES_ONLY) => 4,
            (_, WITH_ADDRESSES | CHOSEN_ADDRESSES) => 8,
            _ => return Some(3),
        };
        let at = usize::from(option[2]).checked_sub(1).filter(|&at| at >= fixed);
        match at {
            None => Some(2),
            Some(at) if at < option.len() && at + entry > option.len() => Some(2),
            // Full, and the count of routers that found no place too.
            Some(at) if at >= option.len() && fixed == 4 && option[3] >> 4 == 15 => Some(3),
            Some(_) => None,
        }
    }

    /// An option that has been looked at; `None` for any other.
    fn of(option: &'a mut [u8]) -> Option<RecordingOption<'a>> {
        let kind = *option.first()?;
        let flags = option.get(3).map_or(0, |flags| flags & 0x0f);
        let (address_len, time_len) = match (kind, flags) {
            (RECORD_ROUTE, _) => (4, 0),
            (TIMESTAMP, TIMES_ONLY) => (0, 4),
            (TIMESTAMP, _) => (4, 4),
            _ => return None,
        };
        let is_addressed = kind == TIMESTAMP && flags == CHOSEN_ADDRESSES;
        let at = usize::from(*option.get(2)?).checked_sub(1)?;
        Some(RecordingOption { option, at, address_len, time_len, is_addressed })
    }

    /// Writes one router's entry, if the option has a place for it.
    fn write(self, address: Ipv4Addr, is_ours: impl Fn(Ipv4Addr) -> bool, time: u32) -> Option<()> {
        let len = self.address_len + self.time_len;
        let Some(entry) = self.option.get_mut(self.at..self.at + len) else {
            if self.time_len > 0 && !self.is_addressed {
                self.option[3] = self.option[3].saturating_add(0x10); // Below 15: `fault` has looked.
            }
            return Some(());
        };
        let (place, time_place) = entry.split_at_mut(self.address_len);
        if self.is_addressed {
            let chosen: [u8; 4] = place.try_into().ok()?;
            if !is_ours(chosen.into()) {
                return Some(());
            }
        } else {
            place.copy_from_slice(&address.octets()[..self.address_len]);
        }
        time_place.copy_from_slice(&time.to_be_bytes()[..self.time_len]);
        self.option[2] += len as u8;
        Some(())
    }
}

/// Writes a router into the options of a header that [`View::options`](super::View::options) found harmless, where they
/// have a place for it, and the checksum anew (RFC 1812 §5.3.13.5, §5.3.13.6).
///
/// `address` is the router's at the egress port, `is_ours` knows all its addresses, `now_ms` is any clock's.
pub fn write_record_route(
    header: &mut [u8],
    address: Ipv4Addr,
    is_ours: impl Fn(Ipv4Addr) -> bool,
    now_ms: u64,
) {
    /// Not milliseconds since midnight (RFC 791 §3.1).
    const NO_STANDARD_TIME: u32 = 1 << 31;

    let time = now_ms as u32 | NO_STANDARD_TIME;
    let mut rest = header.get_mut(HEADER_LEN..).unwrap_or_default();
    while let Some(&kind) = rest.first() {
        let len = match (kind, rest.get(1)) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(&len)) if len >= 2 => len.into(),
            _ => break,
        };
        let Some((option, behind)) = std::mem::take(&mut rest).split_at_mut_checked(len) else {
            break;
        };
        RecordingOption::of(option).and_then(|option| option.write(address, &is_ours, time));
        rest = behind;
    }
    header[10..12].fill(0);
    let checksum = Sum::of(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}
