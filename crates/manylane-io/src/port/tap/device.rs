//! A queue of a TAP interface: its system calls. See linux/if_tun.h.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use libc::iovec;

use crate::syscall::{check, check_length, retry};

/// A queue that does not block. Its receiver and transmitters share it: the kernel accepts frames from
/// several threads.
#[derive(Clone)]
pub(super) struct Queue(Arc<File>);

/// The step of opening a queue that failed, and the kernel's error.
pub(super) type StepError = (&'static str, io::Error);

impl Queue {
    /// Opens a queue of the interface called `name`, of the calling thread's network namespace; creates the interface
    /// if it does not exist.
    pub fn open(name: &str, multi_queue: bool) -> Result<Queue, StepError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)
            .map_err(|source| ("open /dev/net/tun", source))?;
        let queue = Queue(Arc::new(file));
        queue.attach(name, multi_queue).map_err(|source| ("open the interface", source))?;
        queue.accept_offloads().map_err(|source| ("ask the host for whole segments", source))?;
        Ok(queue)
    }

    fn attach(&self, name: &str, multi_queue: bool) -> io::Result<()> {
        // SAFETY: all zeroes is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from as libc::c_char; // The 16th byte stays the zero.
        }
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        let several = if multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
        request.ifr_ifru.ifru_flags = (flags | several) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes a `struct ifreq`.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETIFF, &mut request) })?;
        Ok(())
    }

    /// Lets the host leave checksums and segmentation to us. UDP segmentation exists since Linux 6.2.
    fn accept_offloads(&self) -> io::Result<()> {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        let set = |offloads: libc::c_uint| {
            let (fd, offloads) = (self.0.as_raw_fd(), libc::c_ulong::from(offloads));
            // SAFETY: TUNSETOFFLOAD takes a number, no pointer.
            check(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, offloads) }).map(|_| ())
        };
        match set(tcp | udp) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => set(tcp),
            outcome => outcome,
        }
    }

    /// Lets `program` select the queue of each frame that the host sends, until the returned value is dropped.
    pub fn steer_by(&self, program: BorrowedFd<'_>) -> io::Result<Steering> {
        self.set_steering(program.as_raw_fd())?;
        Ok(Steering(self.clone()))
    }

    /// Sets the interface's steering program, or -1 for none.
    fn set_steering(&self, program: libc::c_int) -> io::Result<()> {
        // SAFETY: TUNSETSTEERINGEBPF reads an `int`.
        check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::TUNSETSTEERINGEBPF, &raw const program)
        })?;
        Ok(())
    }

    /// Reads a packet with its header; returns their length, or the length of `iov` if that is less.
    ///
    /// # Safety
    ///
    /// The addresses in `iov` point to memory that no other code reads or writes during the call.
    pub unsafe fn read(&self, iov: &[iovec]) -> io::Result<usize> {
        retry(|| {
            // SAFETY: readv(2) writes what `iov` names: the caller's debt.
            let read =
                unsafe { libc::readv(self.0.as_raw_fd(), iov.as_ptr(), iov.len() as libc::c_int) };
            check_length(read)
        })
    }

    /// Writes a packet with its header.
    ///
    /// # Safety
    ///
    /// The addresses in `iov` point to memory that no other code writes during the call.
    pub unsafe fn write(&self, iov: &[iovec]) -> io::Result<()> {
        retry(|| {
            // SAFETY: writev(2) reads what `iov` names: the caller's debt.
            let written =
                unsafe { libc::writev(self.0.as_raw_fd(), iov.as_ptr(), iov.len() as libc::c_int) };
            check_length(written)
        })?;
        Ok(()) // The kernel writes all of it, or fails.
    }
}

/// A program on an interface. An interface that outlives this value returns to the kernel's own steering.
pub(super) struct Steering(Queue);

impl Drop for Steering {
    fn drop(&mut self) {
        // The one failure would be an interface that is gone, and the program with it.
        let _ = self.0.set_steering(NO_PROGRAM);
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const DEVICE: &str = "/dev/net/tun";
/// `tun_set_ebpf`.
const NO_PROGRAM: libc::c_int = -1;

#[cfg(test)]
mod tests {
    use aya::programs::loaded_programs;

    use super::*;
    use crate::bpf::SteerProgram;
    use crate::interface::Interface;
    use crate::namespace::Namespace;

    /// Another program may have created the interface and keep it after us. Needs root.
    #[test]
    fn a_program_leaves_the_interface_that_stays() {
        if let Err(error) = Namespace::new_for_this_thread() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: {error}");
            eprintln!("SKIPPED {error}");
            return;
        }
        let queue = Queue::open("t0", true).expect("root may");
        let mut program = SteerProgram::load().expect("root may");
        let id = program.id();
        let is_loaded = || loaded_programs().flatten().any(|program| program.id() == id);
        let steering = queue.steer_by(program.fd()).expect("it is of the right type");
        drop(program);
        assert!(is_loaded(), "the interface has it");
        drop(steering);
        // The kernel releases it after a grace period.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while is_loaded() {
            assert!(std::time::Instant::now() < end, "the interface has it still");
            std::thread::yield_now();
        }
        assert!(Interface::read("t0").is_ok(), "else both had gone together");
        drop(queue);
    }
}
