//! Detaches BPF programs before anything else when the process crashes.
//!
//! The kernel removes a link when its last descriptor closes, and a dying process closes its descriptors *after* the
//! kernel has freed its memory or dumped core: milliseconds to seconds. A panic first prints its message and perhaps a
//! backtrace. A program must not forward by tables that no thread maintains for that long, so [`detach_links_on_crash`]
//! detaches the links first.
//!
//! | Event                                            | What detaches the links                        |
//! |--------------------------------------------------|------------------------------------------------|
//! | SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS | the handler here; then the signal takes effect |
//! | a panic, of any thread                           | the hook here; then the former hook, and abort |
//! | SIGKILL                                          | the kernel, as the process ends: [`disable_core_dumps`] keeps that short |
//!
//! A link is *detached* (`BPF_LINK_DETACH`), not closed: its owner keeps the descriptor and may be about to close it.
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

/// The highest number of links that can be registered.
pub const LINKS_MAX: usize = 512;

/// The registration of a link to be detached on a crash, until this is dropped.
#[derive(Debug)]
pub struct DetachOnCrash {
    place: usize,
}

impl DetachOnCrash {
    /// Registers a link. Drop this before the descriptor closes: its number may be reused afterwards. `None` when
    /// [`LINKS_MAX`] links are registered; the kernel then removes the link when the process ends.
    pub fn register(link: BorrowedFd<'_>) -> Option<DetachOnCrash> {
        let fd = link.as_raw_fd() as u32;
        let place = LINKS.iter().position(|place| {
            // Relaxed: a handler in this thread sees the thread's own stores; one in another thread may run before
            // this call in any case.
            place.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })?;
        Some(DetachOnCrash { place })
    }
}

impl Drop for DetachOnCrash {
    fn drop(&mut self) {
        LINKS[self.place].store(NONE, Ordering::Relaxed); // Relaxed: as in `register`.
    }
}

/// From now on a crash detaches the registered links first, and a panic of any thread ends the process. Call it once.
pub fn detach_links_on_crash() -> io::Result<()> {
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

/// Disables core dumps for this process, to a file and to a program. Dumping a full table takes seconds, during which
/// descriptors stay open.
pub fn disable_core_dumps() -> io::Result<()> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: getrlimit(2) writes a `limit`, or reports that it has not.
    check(unsafe { libc::getrlimit(libc::RLIMIT_CORE, limit.as_mut_ptr()) })?;
    // SAFETY: getrlimit(2) has written it.
    let most = unsafe { limit.assume_init() }.rlim_max;
    // 1, not 0: the kernel ignores a limit of 0 for a core-dump program but honours 1 (core(5), `do_coredump`), and no
    // core file fits in 1 byte.
    let len = most.min(1);
    let limit = libc::rlimit { rlim_cur: len, rlim_max: len };
    // SAFETY: setrlimit(2) reads `limit`.
    check(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) })?;
    if len == 0 {
        // Raising the limit to 1 would need CAP_SYS_RESOURCE.
        // SAFETY: prctl(2) takes a number for PR_SET_DUMPABLE, and no pointer.
        check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) })?;
    }
    Ok(())
}

/// Installs the handler and saves the former action: the standard library uses it to report a stack overflow.
fn catch(signal: libc::c_int, former: &Former) -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask, the default action.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handle as *const () as usize;
    // On the thread's alternate stack, if it has one: the main stack may have overflowed.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the conditions of sigaction(2):
    // - `action` is valid, and `handle` has the type that SA_SIGINFO requires and calls only system calls and what
    //   signal-safety(7) lists;
    // - `former` is a place for one action, which no thread reads before the handler is set: this is done once.
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
            // By kill(2) or abort(3): the signal is raised again when we return, and ends the process.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        } else {
            // A fault: the instruction faults again when we return, and the former action handles it.
            libc::sigaction(signal, FORMER[place].0.get().cast(), ptr::null_mut());
        }
    }
}

/// Detaches all links. Makes only system calls: it runs in signal handlers.
fn detach_all() {
    for place in &LINKS {
        let fd = place.load(Ordering::Relaxed); // Relaxed: as in `register`.
        if fd != NONE {
            // The link may be detached already; then the error does not matter.
            let _ = detach(fd);
        }
    }
}

/// `BPF_LINK_DETACH` of linux/bpf.h: the program is detached when this returns.
fn detach(fd: u32) -> io::Result<()> {
    let attributes = [fd, 0];
    // SAFETY: bpf(2) reads the given number of bytes of `attributes`; no field is a pointer.
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

/// The saved action of one signal.
struct Former(std::cell::UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, in `catch`, under a `Once`, before the handler that reads it can run.
unsafe impl Sync for Former {}

/// No valid descriptor number.
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
        let registered = DetachOnCrash::register(fd.as_fd()).expect("there are places");
        assert_eq!(taken(), before + 1);
        drop(registered);
        assert_eq!(taken(), before);
    }

    #[test]
    fn what_is_no_link_is_not_detached() {
        let fd = EventFd::open().expect("eventfds are to be had");
        let error = detach(fd.as_fd().as_raw_fd() as u32).expect_err("it is an eventfd");
        assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)), "{error}");
    }
}
