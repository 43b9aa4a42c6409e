//! The kernel's counters of an interface.

use std::fs::File;
use std::io::{self, Read, Seek};

/// Packets that the host sent and the interface dropped for lack of room, since a moment.
///
/// Read from proc(5)'s `/proc/net/dev`: netlink would wait for the lock of any process that configures an
/// interface of the machine (RTNL), and a worker reads this.
pub(super) struct Counter {
    file: File,
    interface: String,
    text: Vec<u8>,
    seen: u64,
}

impl Counter {
    /// Counts from now on, for an interface of the calling thread's network namespace; any thread may read it.
    pub fn open(interface: &str) -> io::Result<Counter> {
        let (file, text) = (File::open(PATH)?, Vec::new());
        let mut counter = Counter { file, interface: interface.into(), text, seen: 0 };
        counter.look();
        Ok(counter)
    }

    /// Packets since the last call.
    pub fn look(&mut self) -> u64 {
        self.text.clear();
        let read = self.file.rewind().and_then(|()| self.file.read_to_end(&mut self.text));
        let dropped = read.ok().and_then(|_| transmit_dropped(&self.text, &self.interface));
        let Some(dropped) = dropped else { return 0 }; // The interface is gone.
        dropped.saturating_sub(std::mem::replace(&mut self.seen, dropped))
    }
}

/// The count in the line of `interface`, if it has one (`dev_seq_printf_stats`).
fn transmit_dropped(text: &[u8], interface: &str) -> Option<u64> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let line = line.trim_ascii_start().strip_prefix(interface.as_bytes())?;
        let counts = line.strip_prefix(b":")?.split(u8::is_ascii_whitespace);
        let dropped = counts.filter(|count| !count.is_empty()).nth(TRANSMIT_DROPPED)?;
        str::from_utf8(dropped).ok()?.parse().ok()
    })
}

/// Of the namespace in which the file was opened, even after the thread has ended.
pub(super) const PATH: &str = "/proc/thread-self/net/dev";

/// Position after eight receive counters: bytes, packets, errors.
const TRANSMIT_DROPPED: usize = 8 + 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_in_the_line_of_the_interface() {
        let text = b"Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n\
            tap01: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            \x20 tap0:18446744073709551615   22    0   24  0     0          0         0  29 30 31 32 0 0 0 0\n\
            \xff\xfe: 1 2 3 4 5 6 7 8 9 10 11 99 13 14 15 16\n  cut: 1 2\n";
        let dropped = |name| transmit_dropped(text, name);
        assert_eq!((dropped("tap0"), dropped("tap01")), (Some(32), Some(12)));
        assert_eq!((dropped("tap"), dropped("ap0"), dropped("cut")), (None, None, None));
    }

    /// Every namespace has `lo`.
    #[test]
    fn it_is_there_and_can_be_read_again() {
        let mut counter = Counter::open("lo").expect("proc is mounted");
        for _ in 0..2 {
            counter.look();
            assert!(transmit_dropped(&counter.text, "lo").is_some());
        }
    }
}
