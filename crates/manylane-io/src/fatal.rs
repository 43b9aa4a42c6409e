//! What ends first when the process does: links of BPF programs that forward packets.
//!
//! The kernel takes a link away when its last descriptor closes, and a process that dies closes its descriptors
//! *after* it has given its memory back, or has dumped it: milliseconds to seconds. A panic prints first, and
//! maybe a backtrace. Whoever forwards by tables that nobody keeps any more should not do so for that long, so
//! [`end_links_first`] takes links off before anything else.
//!
//! | What happens                                     | What ends the links                            |
//! |--------------------------------------------------|------------------------------------------------|
//! | SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS | the handler here; then the signal goes its way |
//! | a panic, of any thread                           | the hook here; then the former hook, and abort |
//! | SIGKILL                                          | the kernel, in its own time: [`no_core`] keeps that short |
//!
//! A link is *detached* (`BPF_LINK_DETACH`), not closed: its descriptor stays its owner's, who may be about to
//! close it.
#![expect(
    clippy::disallowed_types,
    reason = "a handler of signals reads them: a static, which loom's types cannot be"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic;
use std::ptr;
use std::sync::Once;

use manylane_sync::primitive::foreign::{AtomicU32, Ordering};

use crate::syscall::check;

/// Most links that can be entered.
pub const LINKS_MAX: usize = 512;

/// A link that ends first, until this is dropped.
#[derive(Debug)]
pub struct EndsFirst {
    place: usize,
}

impl EndsFirst {
    /// Enters a link. Keep this for less long than the descriptor: a closed one may be another's number by then.
    /// Nothing if there are [`LINKS_MAX`] already; such a link ends with the process.
    pub fn enter(link: BorrowedFd<'_>) -> Option<EndsFirst> {
        let fd = link.as_raw_fd() as u32;
        let place = LINKS.iter().position(|place| {
            // Relaxed: a handler in this thread sees the thread's own stores, one in another thread may be as
            // early as before this call.
            place.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })?;
        Some(EndsFirst { place })
    }
}

impl Drop for EndsFirst {
    fn drop(&mut self) {
        LINKS[self.place].store(NONE, Ordering::Relaxed); // Relaxed: as in `enter`.
    }
}

/// From now on links end first, and a panic of any thread ends the process. For the whole process, once.
pub fn end_links_first() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result =
            SIGNALS.iter().zip(&FORMER).try_for_each(|(&signal, former)| catch(signal, former));
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |information| {
            detach_all();
            print(information);
            std::process::abort();
        }));
    });
    result
}

/// No core is dumped for this process: neither to a file nor to a program. With a full table that takes seconds,
/// in which descriptors stay open.
pub fn no_core() -> io::Result<()> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: getrlimit(2) writes a `limit`, or says that it has not.
    check(unsafe { libc::getrlimit(libc::RLIMIT_CORE, limit.as_mut_ptr()) })?;
    // SAFETY: it has.
    let most = unsafe { limit.assume_init() }.rlim_max;
    // 1, not 0: a limit of 0 is ignored where a program takes cores, 1 is not (core(5), `do_coredump`), and no
    // file is that small.
    let len = most.min(1);
    let limit = libc::rlimit { rlim_cur: len, rlim_max: len };
    // SAFETY: setrlimit(2) reads `limit`.
    check(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) })?;
    if len == 0 {
        // Only who has CAP_SYS_RESOURCE could raise it to 1.
        // SAFETY: prctl(2) takes a number for PR_SET_DUMPABLE, and no pointer.
        check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) })?;
    }
    Ok(())
}

/// Sets the handler, and remembers who was there before: the standard library tells a stack overflow so.
fn catch(signal: libc::c_int, former: &Former) -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask, the default action.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handle as *const () as usize;
    // On the thread's other stack, if it has one: this one may have overflowed.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the conditions of sigaction(2):
    // - `action` is valid, and `handle` has the type that SA_SIGINFO asks for and calls nothing but what
    //   signal-safety(7) lists and system calls;
    // - `former` is a place for one action, which nobody reads before the handler is set: this is done once.
    check(unsafe { libc::sigaction(signal, action, former.0.get().cast()) })?;
    Ok(())
}

extern "C" fn handle(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    detach_all();
    let Some(place) = SIGNALS.iter().position(|&one| one == signal) else { return };
    // SAFETY: SA_SIGINFO: the kernel passes a valid `siginfo_t` (sigaction(2)).
    let was_sent = unsafe { (*information).si_code } <= 0;
    // SAFETY: signal(2), sigaction(2) and raise(3) may be called here (signal-safety(7)). The action that is read
    // was put there by `catch`, before it set this handler.
    unsafe {
        if was_sent {
            // By kill(2) or abort(3): it comes a second time when we return, and ends the process.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        } else {
            // A fault, which happens again when we return, to whom it would have happened without us.
            libc::sigaction(signal, FORMER[place].0.get().cast(), ptr::null_mut());
        }
    }
}

/// Takes all links off. Only system calls: it runs in signal handlers.
fn detach_all() {
    for place in &LINKS {
        let fd = place.load(Ordering::Relaxed); // Relaxed: as in `enter`.
        if fd != NONE {
            // It may be detached already: then there is nothing to do.
            let _ = detach(fd);
        }
    }
}

/// `BPF_LINK_DETACH` of linux/bpf.h: the program is gone when this returns.
fn detach(fd: u32) -> io::Result<()> {
    let attributes = [fd, 0];
    // SAFETY: bpf(2) reads as many bytes of `attributes` as it is told to; there is no pointer in them.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            LINK_DETACH,
            attributes.as_ptr(),
            size_of_val(&attributes[..1]),
        )
    };
    check(returned as libc::c_int)?;
    Ok(())
}

/// A place for an action.
struct Former(std::cell::UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, in `catch`, under a `Once`, before the handler that reads it can run.
unsafe impl Sync for Former {}

/// No descriptor's number.
const NONE: u32 = u32::MAX;
static LINKS: [AtomicU32; LINKS_MAX] = [const { AtomicU32::new(NONE) }; LINKS_MAX];
static FORMER: [Former; SIGNALS.len()] =
    [const { Former(std::cell::UnsafeCell::new(MaybeUninit::zeroed())) }; SIGNALS.len()];
const SIGNALS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGSYS];
const LINK_DETACH: libc::c_int = 34;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;
    use std::os::fd::AsFd;

    #[test]
    fn a_place_is_given_back() {
        let fd = EventFd::open().expect("eventfds are to be had");
        let taken = || LINKS.iter().filter(|place| place.load(Ordering::Relaxed) != NONE).count();
        let before = taken();
        let entered = EndsFirst::enter(fd.as_fd()).expect("there are places");
        assert_eq!(taken(), before + 1);
        drop(entered);
        assert_eq!(taken(), before);
    }

    #[test]
    fn what_is_no_link_is_not_detached() {
        let fd = EventFd::open().expect("eventfds are to be had");
        let error = detach(fd.as_fd().as_raw_fd() as u32).expect_err("it is an eventfd");
        assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)), "{error}");
    }
}
