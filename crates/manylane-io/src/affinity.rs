//! The core that a thread runs on, its time slice, and its name in `top -H`.

use std::ffi::CString;
use std::io;
use std::mem;
use std::time::Duration;

use crate::syscall::check;

/// The cores that this thread may use, in ascending order: those that `taskset` or cgroups allow, which may be fewer
/// than the machine has.
pub fn cores() -> io::Result<Vec<usize>> {
    // SAFETY: all zeroes is the empty `cpu_set_t`.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: sched_getaffinity(2) writes at most the given size into `set`; pid 0 is this thread.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) })?;
    // SAFETY: CPU_ISSET reads a bit of `set`; the range stays inside (CPU_SETSIZE bits).
    let is_set = |core: &usize| unsafe { libc::CPU_ISSET(*core, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(is_set).collect())
}

/// Makes the calling thread run on `core` only.
pub fn pin(core: usize) -> io::Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("core {core}: the highest number is {}", libc::CPU_SETSIZE - 1),
        ));
    }
    // SAFETY: all zeroes is the empty `cpu_set_t`.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: just checked: the bit is inside the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: sched_setaffinity(2) reads the given size of `set`; pid 0 is this thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) })?;
    Ok(())
}

/// Makes the time slice of the calling thread short: a thread that wakes with a shorter slice than that of the running
/// one takes its core at once, without a privilege (sched(7); the kernel has bounds of 0.1 and 100 ms). Linux before
/// 6.12 ignores it; a system call filter may refuse it.
pub fn set_slice(slice: Duration) -> io::Result<()> {
    let mut attributes = SchedAttr { size: size_of::<SchedAttr>() as u32, ..SchedAttr::default() };
    let size = attributes.size;
    // SAFETY: sched_getattr(2) writes at most `size` bytes to `attributes`; pid 0 is this thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    check(got as i32)?;
    attributes.runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: sched_setattr(2) reads `attributes.size` bytes, which the kernel has filled in; pid 0 is this thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(set as i32)?;
    Ok(())
}

/// `struct sched_attr` of linux/sched/types.h, in its first version. `runtime` is the slice of an ordinary thread.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Names the calling thread, for `top -H` and debuggers. Linux keeps the first 15 bytes.
///
/// # Panics
///
/// When the name holds a zero byte.
pub fn name_thread(name: &str) {
    let name = CString::new(name).expect("a thread's name has no zero byte");
    // SAFETY: prctl(2), PR_SET_NAME reads the string, up to its zero or 16 bytes, and cannot fail.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core() {
        let all = cores().expect("every thread may ask");
        let last = *all.last().expect("this test runs somewhere");
        std::thread::spawn(move || {
            pin(last).expect("the core is one of ours");
            assert_eq!(cores().expect("every thread may ask"), [last]);
        })
        .join()
        .expect("the pinned thread agrees");
        assert_eq!(cores().expect("every thread may ask"), all, "other threads are free");
    }

    #[test]
    fn a_slice_can_be_shortened_by_any_thread() {
        std::thread::spawn(|| set_slice(Duration::from_micros(100)))
            .join()
            .expect("the thread ends")
            .expect("no privilege is needed");
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused() {
        let refused = pin(5000).expect_err("no machine has 5000 cores in one set");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_long_name_is_cut() {
        std::thread::spawn(|| {
            name_thread("worker-with-a-long-name");
            let name = std::fs::read_to_string("/proc/thread-self/comm").expect("proc is mounted");
            assert_eq!(name.trim_end(), "worker-with-a-l");
        })
        .join()
        .expect("the named thread agrees");
    }
}
