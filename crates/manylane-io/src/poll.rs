//! Sleeping until one of several descriptors is ready to read, or a timeout has passed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::{Duration, Instant};

use crate::syscall::check;

/// The highest number of descriptors that one [`poll`] takes.
pub const POLL_MAX: usize = 256;

/// The descriptors that ended the sleep, by their position in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready([u64; POLL_MAX / 64]);

impl Ready {
    /// Whether the descriptor at this position is ready, or broken: both need handling.
    pub fn is_ready(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }

    /// Whether any descriptor is ready; false after a timeout.
    pub fn any(&self) -> bool {
        self.0.iter().any(|&word| word != 0)
    }
}

/// Sleeps until one of `fds` is ready to read, or `timeout` has passed; without a timeout, indefinitely.
///
/// Uses ppoll(2), whose timeout has nanoseconds. A signal does not end the sleep.
///
/// # Panics
///
/// With more than [`POLL_MAX`] descriptors.
pub fn poll(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Ready> {
    assert!(fds.len() <= POLL_MAX, "at most {POLL_MAX} descriptors");
    let mut entries = [libc::pollfd { fd: -1, events: 0, revents: 0 }; POLL_MAX];
    for (entry, fd) in entries.iter_mut().zip(fds) {
        *entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    }
    let entries = &mut entries[..fds.len()];
    // A timeout beyond the clock's range never ends.
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = end.map(|end| timespec(end.saturating_duration_since(Instant::now())));
        match wait(entries, left.as_ref()) {
            Ok(()) => return Ok(ready(entries)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn wait(entries: &mut [libc::pollfd], timeout: Option<&libc::timespec>) -> io::Result<()> {
    let timeout = timeout.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the three pointers of ppoll(2):
    // - `entries` is a slice of as many `pollfd` as the length says, ours to write;
    // - `timeout` is null or a valid `timespec`, which is only read;
    // - a null signal mask leaves the thread's own in place.
    check(unsafe {
        libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout, ptr::null())
    })?;
    Ok(())
}

fn ready(entries: &[libc::pollfd]) -> Ready {
    let mut ready = Ready::default();
    for (place, entry) in entries.iter().enumerate() {
        ready.0[place / 64] |= u64::from(entry.revents != 0) << (place % 64);
    }
    ready
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;
    use manylane_sync::doorbell::Wake;
    use std::os::fd::AsFd;

    #[test]
    fn only_the_raised_descriptor_is_ready() {
        let bells: Vec<_> =
            (0..100).map(|_| EventFd::open().expect("a hundred can be open")).collect();
        bells[70].wake();
        let fds: Vec<_> = bells.iter().map(AsFd::as_fd).collect();
        let ready = poll(&fds, None).expect("all are open");
        let places: Vec<_> = (0..100).filter(|&place| ready.is_ready(place)).collect();
        assert_eq!(places, [70]);
    }

    #[test]
    fn without_descriptors_it_is_a_timer() {
        let begin = Instant::now();
        let ready = poll(&[], Some(Duration::from_millis(3))).expect("there is nothing to refuse");
        assert!(!ready.any());
        assert!(begin.elapsed() >= Duration::from_millis(3));
    }
}
