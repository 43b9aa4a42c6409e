//! [`Copied`]: a packet of a capture of `manylane accelerate`, as its reader sees it.

/// A packet as a program or a worker saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'r> {
    /// When it was seen, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// Its bytes on the wire.
    pub len: u32,
    /// The port's number.
    pub port: u16,
    /// The queue that it was received by.
    pub queue: u16,
    /// The CPU that saw it, or the worker.
    pub cpu: u32,
    /// 0 received, 1 transmitted, 2 dropped, 3 left to the kernel.
    pub point: u8,
    /// Why it is left to the kernel, or why a worker dropped it: [`UNSENT`](super::UNSENT) or a verdict.
    pub verdict: u8,
    /// Whether the reader has to run the filter on these bytes.
    pub is_undecided: bool,
    /// The tag that the kernel took off: its protocol, and the tag, which stood behind the first 12 bytes.
    pub tag: Option<[u8; 4]>,
    /// The first of its bytes, or all, without the tag.
    pub bytes: &'r [u8],
}

impl Copied<'_> {
    /// The packet with the tag that the kernel took off, put together in `buffer`.
    pub fn with_tag<'b>(&'b self, buffer: &'b mut Vec<u8>) -> Copied<'b> {
        let (Some(tag), Some((addresses, rest))) = (self.tag, self.bytes.split_at_checked(12))
        else {
            return *self;
        };
        buffer.clear();
        buffer.extend_from_slice(addresses);
        buffer.extend_from_slice(&tag);
        buffer.extend_from_slice(rest);
        Copied { bytes: buffer, len: self.len + 4, ..*self }
    }

    /// When a record's packet was seen. `None` if it is none.
    pub(super) fn time_ns(record: &[u8]) -> Option<u64> {
        record.get(8..).and_then(<[u8]>::first_chunk).map(|time| u64::from_ne_bytes(*time))
    }

    /// A record as `capture.bpf.c` of `manylane-accelerate` writes it. `None` if it is none.
    pub(super) fn read(record: &[u8], cpu: u32) -> Option<Copied<'_>> {
        let time_ns = Copied::time_ns(record)?;
        let (head, bytes) = record.split_first_chunk::<HEAD>()?;
        let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let kept = (word(16) as usize).min(bytes.len());
        let [tag_high, tag_low] = half(28).to_be_bytes();
        let tag = [head[30], head[31], tag_high, tag_low];
        Some(Copied {
            time_ns,
            len: word(4),
            port: half(20),
            queue: half(22),
            cpu,
            point: head[24],
            verdict: head[25],
            is_undecided: head[26] & UNDECIDED != 0,
            tag: (head[26] & TAGGED != 0).then_some(tag),
            bytes: &bytes[..kept],
        })
    }
}

const HEAD: usize = 32;
const UNDECIDED: u8 = 1;
const TAGGED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_the_program_writes_it() {
        let mut record = Vec::new();
        record.extend(40_u32.to_ne_bytes());
        record.extend(1500_u32.to_ne_bytes());
        record.extend(0x0102_0304_0506_0708_u64.to_ne_bytes());
        record.extend(3_u32.to_ne_bytes());
        record.extend(7_u16.to_ne_bytes());
        record.extend(2_u16.to_ne_bytes());
        record.extend([3, 9, UNDECIDED | TAGGED, 0]);
        record.extend(0xa064_u16.to_ne_bytes());
        record.extend([0x81, 0x00]);
        record.extend([5, 6, 7, 0, 0, 0, 0, 0]);
        let copied = Copied::read(&record, 4).expect("it is whole");
        let expected = Copied {
            time_ns: 0x0102_0304_0506_0708,
            len: 1500,
            port: 7,
            queue: 2,
            cpu: 4,
            point: 3,
            verdict: 9,
            is_undecided: true,
            tag: Some([0x81, 0x00, 0xa0, 0x64]),
            bytes: &[5, 6, 7],
        };
        assert_eq!(copied, expected);
        for len in 0..record.len() {
            assert_eq!(Copied::read(&record[..len], 4).is_some(), len >= HEAD);
        }
    }
}
