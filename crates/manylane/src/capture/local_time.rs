//! The local time of day, for lines and for names of files.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// Tells local time. Remembers the second it told last: what a packet costs is its nanoseconds.
pub(crate) struct LocalTime {
    zone: TimeZone,
    second: Option<u64>,
    /// `HH:MM:SS` of it.
    clock: [u8; 8],
}

impl LocalTime {
    /// This machine's, by `TZ` or `/etc/localtime`; UTC if neither says.
    pub(crate) fn of_this_machine() -> LocalTime {
        LocalTime::of(TimeZone::system())
    }

    pub(crate) fn of(zone: TimeZone) -> LocalTime {
        LocalTime { zone, second: None, clock: [0; 8] }
    }

    /// Writes `HH:MM:SS.nnnnnnnnn`.
    pub(crate) fn write(&mut self, time_ns: u64, text: &mut String) {
        let (second, mut below) = (time_ns / NANOSECONDS, time_ns % NANOSECONDS);
        if self.second != Some(second) {
            let at = self.zone.to_offset(timestamp(time_ns)).to_datetime(timestamp(time_ns));
            for (place, part) in [at.hour(), at.minute(), at.second()].into_iter().enumerate() {
                self.clock[3 * place] = b'0' + (part / 10) as u8;
                self.clock[3 * place + 1] = b'0' + (part % 10) as u8;
            }
            (self.clock[2], self.clock[5]) = (b':', b':');
            self.second = Some(second);
        }
        let mut digits = [b'.'; 10];
        for digit in digits[1..].iter_mut().rev() {
            *digit = b'0' + (below % 10) as u8;
            below /= 10;
        }
        text.extend(self.clock.iter().chain(&digits).map(|&byte| char::from(byte)));
    }

    /// A name by a pattern of strftime(3).
    pub(super) fn name(&self, pattern: &str, time_ns: u64) -> Result<String, String> {
        let at = timestamp(time_ns).to_zoned(self.zone.clone());
        strtime::format(pattern, &at).map_err(|error| error.to_string())
    }
}

/// 64 bits of nanoseconds end in 2554, and these in 9999.
fn timestamp(time_ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(time_ns.into()).expect("64 bits of nanoseconds are a time")
}

const NANOSECONDS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::Offset;

    #[test]
    fn time_is_the_zones_and_the_second_is_not_forgotten() {
        let mut time = LocalTime::of(TimeZone::fixed(Offset::constant(2)));
        let mut text = String::new();
        // 2026-11-21 22:59:59 UTC.
        for time_ns in
            [1_795_301_999_000_000_007, 1_795_301_999_999_999_999, 1_795_302_000_000_000_000]
        {
            time.write(time_ns, &mut text);
            text.push(' ');
        }
        assert_eq!(text, "00:59:59.000000007 00:59:59.999999999 01:00:00.000000000 ");
        text.clear();
        time.write(u64::MAX, &mut text);
        assert_eq!(text, "01:34:33.709551615"); // 2554-07-21 23:34:33 UTC.
    }

    #[test]
    fn names_are_strftimes() {
        let time = LocalTime::of(TimeZone::UTC);
        let at = 1_795_301_999_000_000_007;
        assert_eq!(time.name("w-%Y%m%d-%H%M%S-%%", at).as_deref(), Ok("w-20261121-225959-%"));
        assert!(time.name("100%", at).is_err());
    }
}
