//! A packet socket: its system calls. See packet(7), linux/if_packet.h.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::syscall::{check, retry};

/// A socket that receives nothing yet: it has protocol 0, so the kernel has installed no hook (`packet_create`).
///
/// Binding consumes it. No method binds a socket that already receives, for which the kernel would
/// remove the hook and wait for a grace period (`packet_do_bind`), nor creates such a socket.
pub(super) struct Unbound(Socket);

/// A non-blocking socket that is bound, permanently.
pub(super) struct Socket(OwnedFd);

/// A socket's counts since the last query.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Packets that were queued.
    pub queued: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
}

impl Unbound {
    /// Opens a socket that receives nothing: its protocol is 0.
    pub fn open() -> io::Result<Unbound> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket(2) takes no pointer.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
        Ok(Unbound(Socket(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Sets an option of packet sockets.
    pub fn set(&self, option: libc::c_int, value: u32) -> io::Result<()> {
        self.0.set(option, value)
    }

    /// Sets how many bytes may wait in the socket, beyond the limit for unprivileged users.
    pub fn set_buffer(&self, option: libc::c_int, bytes: u32) -> io::Result<()> {
        // The kernel doubles it, to cover its own overhead (socket(7)).
        self.0.set_option(libc::SOL_SOCKET, option, &(bytes / 2))
    }

    /// Rejects every packet, whatever the socket will be bound to.
    pub fn shut(&self) -> io::Result<()> {
        let mut refuse =
            libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &mut refuse };
        self.0.set_option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Binds to a device: to receive everything, or with protocol 0 nothing.
    pub fn bind(self, index: u32, protocol: u16) -> io::Result<Socket> {
        // SAFETY: all zeroes is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = index as i32;
        // SAFETY: bind(2) reads the address, of the given length.
        check(unsafe {
            libc::bind(
                self.0.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        })?;
        Ok(self.0)
    }
}

impl Socket {
    /// Accepts packets from now on.
    pub fn unshut(&self) -> io::Result<()> {
        self.set_option(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0u32)
    }

    /// Joins the fanout group, among whose sockets the kernel distributes packets by flow hash; the first socket passes
    /// `None` and creates the group. Returns the group's number.
    pub fn join_fanout(&self, group: Option<u16>) -> io::Result<u16> {
        let kind = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let (number, flags) = match group {
            Some(number) => (number, kind),
            None => (0, kind | libc::PACKET_FANOUT_FLAG_UNIQUEID),
        };
        self.set(libc::PACKET_FANOUT, u32::from(number) | flags << 16)?;
        // SAFETY: PACKET_FANOUT fills an `int`.
        unsafe { self.get_option::<u32>(libc::PACKET_FANOUT) }.map(|group| group as u16)
    }

    /// The counts since the last call.
    pub fn counts(&self) -> io::Result<Counts> {
        // SAFETY: PACKET_STATISTICS fills a `struct tpacket_stats`, for sockets without a ring.
        let counts: libc::tpacket_stats = unsafe { self.get_option(libc::PACKET_STATISTICS) }?;
        // `tp_packets` includes the dropped packets.
        Ok(Counts {
            queued: u64::from(counts.tp_packets.wrapping_sub(counts.tp_drops)),
            dropped: u64::from(counts.tp_drops),
        })
    }

    /// Receives up to one packet per entry of `messages`; returns how many.
    ///
    /// # Safety
    ///
    /// The addresses in `messages` point to memory that no other code reads or writes during the call.
    pub unsafe fn receive(&self, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
        let (first, count) = (messages.as_mut_ptr(), messages.len() as libc::c_uint);
        retry(|| {
            // SAFETY: recvmmsg(2) writes the `count` messages, ours, and what they name: the caller's
            // debt. No timeout.
            let received = unsafe {
                libc::recvmmsg(
                    self.0.as_raw_fd(),
                    first,
                    count,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            };
            check(received).map(|count| count as usize)
        })
    }

    /// Sends `messages` in order, as far as the kernel accepts them; returns how many. An error concerns
    /// the first.
    ///
    /// # Safety
    ///
    /// The addresses in `messages` point to memory that no other code writes during the call.
    pub unsafe fn send(&self, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
        let (first, count) = (messages.as_mut_ptr(), messages.len() as libc::c_uint);
        retry(|| {
            // SAFETY: sendmmsg(2) writes the lengths in the `count` messages, ours, and reads what they
            // name: the caller's debt.
            let sent =
                unsafe { libc::sendmmsg(self.0.as_raw_fd(), first, count, libc::MSG_DONTWAIT) };
            check(sent).map(|count| count as usize)
        })
    }

    fn set(&self, option: libc::c_int, value: u32) -> io::Result<()> {
        self.set_option(libc::SOL_PACKET, option, &value)
    }

    fn set_option<T>(&self, level: i32, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: setsockopt(2) reads the given number of bytes of `value`; for a filter also the
        // instructions that it points at, which outlive the call.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// # Safety
    ///
    /// `T` is the plain structure that belongs to the option.
    unsafe fn get_option<T>(&self, option: libc::c_int) -> io::Result<T> {
        // SAFETY: all zeroes is a valid `T`: a structure of integers, the caller's debt.
        let mut answer: T = unsafe { std::mem::zeroed() };
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: getsockopt(2) writes at most `length` bytes of `answer`.
        check(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                (&raw mut answer).cast(),
                &mut length,
            )
        })?;
        Ok(answer)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::interface::Interface;
    use crate::namespace::Namespace;
    use crate::netlink::Netlink;

    /// bind(2) waits only for an installed hook. Needs root.
    #[test]
    fn a_socket_has_no_hook_before_it_is_bound() {
        if let Err(error) = Namespace::new_for_this_thread() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: {error}");
            eprintln!("SKIPPED {error}");
            return;
        }
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink.set_up("lo").expect("every namespace has one");
        let index = Interface::read("lo").expect("as above").index;
        let socket = Unbound::open().expect("root may");
        assert_eq!(hooks(), ["0000 0 hooked 0"]);
        let receiving = socket.bind(index, libc::ETH_P_ALL as u16).expect("the device is there");
        assert_eq!(hooks(), [format!("0003 {index} hooked 1")]);
        drop(receiving);
        let _sending = Unbound::open().expect("root may").bind(index, 0).expect("as above");
        assert_eq!(hooks(), [format!("0000 {index} hooked 0")]);
    }

    /// The packet sockets of this thread's namespace, as `packet_seq_show` lists them.
    fn hooks() -> Vec<String> {
        let all = fs::read_to_string("/proc/thread-self/net/packet").expect("proc is mounted");
        let row = |line: &str| {
            let columns: Vec<_> = line.split_whitespace().collect();
            format!("{} {} hooked {}", columns[3], columns[4], columns[5])
        };
        all.lines().skip(1).map(row).collect()
    }
}
