//! Events: the ends of connections, and changes of their marks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::super::NetlinkError;
use super::super::socket::{HEADER_BYTES, bind, messages, open_descriptor, set_option};
use super::receive::Datagrams;
use super::{
    CTA_MARK, Connection, Conntrack, IPCTNL_MSG_CT_DELETE, IPCTNL_MSG_CT_NEW, NFGENMSG_BYTES,
    decode, message_type,
};
use crate::syscall::check;

/// The ends of connections of the network namespace in which it was opened, and their marks or their beginnings.
pub struct ConntrackEvents {
    fd: OwnedFd,
    pending: Datagrams,
    /// Messages about living connections are about new ones.
    hears_births: bool,
    /// An event was lost, and the socket has not been empty since.
    is_congested: bool,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection has ended. Tuples, id and status are as they were.
    Destroyed(Connection),
    /// The connection has this mark now. Flags of TCP are unknown.
    Marked(Connection),
    /// The connection has begun: its first packet has left.
    Began(Connection),
}

/// How far a read came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Every event until now.
    All,
    /// The bound of one read was reached: more events may be pending.
    More,
    /// The reader was too slow, and events are missing. The kernel reports it once, and drops everything until its queue
    /// is empty; so this is the answer until a read has emptied the queue. Connections listed after that are complete
    /// again, with the events that follow.
    Lost,
}

impl ConntrackEvents {
    /// Begins to listen to ends. The kernel buffers up to `receive_buffer` bytes of unread events; an event takes some 2 KiB
    /// of them. Changes by `changer` cause no events here.
    pub fn open(
        changer: &Conntrack,
        receive_buffer: usize,
    ) -> Result<ConntrackEvents, NetlinkError> {
        let fd = open(Some(changer.port()), receive_buffer)
            .map_err(|source| NetlinkError::Unavailable { source })?;
        let events = ConntrackEvents {
            fd,
            pending: Datagrams::new(),
            hears_births: false,
            is_congested: false,
        };
        events.join(libc::NETLINK_ADD_MEMBERSHIP, NFNLGRP_CONNTRACK_DESTROY)?;
        Ok(events)
    }

    /// Begins to listen to beginnings and ends. The kernel composes a message for each new connection, while any process
    /// listens to them.
    pub fn open_lives(receive_buffer: usize) -> Result<ConntrackEvents, NetlinkError> {
        let fd =
            open(None, receive_buffer).map_err(|source| NetlinkError::Unavailable { source })?;
        let events = ConntrackEvents {
            fd,
            pending: Datagrams::new(),
            hears_births: true,
            is_congested: false,
        };
        // In this order: of a connection whose beginning was heard, the end is, too.
        for group in [NFNLGRP_CONNTRACK_DESTROY, NFNLGRP_CONNTRACK_NEW] {
            events.join(libc::NETLINK_ADD_MEMBERSHIP, group)?;
        }
        Ok(events)
    }

    /// Begins to listen to marks too, or stops. Not for events that were opened for beginnings.
    ///
    /// Marks cost the kernel more than all else here: while a process listens to updates, the kernel composes a message at
    /// every change of a connection's state, several for each TCP connection, before the filter drops most of them.
    pub fn hear_marks(&mut self, is_wanted: bool) -> Result<(), NetlinkError> {
        let option =
            if is_wanted { libc::NETLINK_ADD_MEMBERSHIP } else { libc::NETLINK_DROP_MEMBERSHIP };
        self.join(option, NFNLGRP_CONNTRACK_UPDATE)
    }

    fn join(&self, option: libc::c_int, group: libc::c_int) -> Result<(), NetlinkError> {
        set_option(self.fd.as_fd(), libc::SOL_NETLINK, option, group).map_err(|source| {
            NetlinkError::refused("listen to the events of connections".into(), source.into())
        })
    }

    /// Passes the pending events to `each`, without waiting for more.
    pub fn read(&mut self, mut each: impl FnMut(Event)) -> Result<Seen, NetlinkError> {
        let mut is_lost = self.is_congested;
        for _ in 0..CALLS_MAX {
            match self.pending.receive(self.fd.as_fd()) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_congested = false;
                    return Ok(if is_lost { Seen::Lost } else { Seen::All });
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    (self.is_congested, is_lost) = (true, true);
                    continue;
                }
                Err(error) => {
                    let step = "hear of the ends of connections".into();
                    return Err(NetlinkError::refused(step, error.into()));
                }
            }
            let hears_births = self.hears_births;
            for datagram in self.pending.iter() {
                let Some(datagram) = datagram else {
                    (self.is_congested, is_lost) = (true, true);
                    continue;
                };
                messages(datagram)
                    .filter_map(|message| event(message.kind, message.payload, hears_births))
                    .for_each(&mut each);
            }
        }
        Ok(if is_lost { Seen::Lost } else { Seen::More })
    }
}

impl AsFd for ConntrackEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn event(kind: i32, payload: &[u8], hears_births: bool) -> Option<Event> {
    const DESTROYED: i32 = message_type(IPCTNL_MSG_CT_DELETE) as i32;
    const CHANGED: i32 = message_type(IPCTNL_MSG_CT_NEW) as i32;
    match kind {
        DESTROYED => decode::connection(payload).map(Event::Destroyed),
        CHANGED if hears_births => decode::connection(payload).map(Event::Began),
        CHANGED => decode::connection(payload).map(Event::Marked),
        _ => None,
    }
}

/// A socket without a group; with a changer, its filter is in place.
fn open(changer: Option<u32>, receive_buffer: usize) -> io::Result<OwnedFd> {
    let fd = open_descriptor(libc::NETLINK_NETFILTER)?;
    bind(fd.as_fd())?;
    // The kernel doubles it.
    let half = libc::c_int::try_from(receive_buffer / 2).unwrap_or(libc::c_int::MAX / 2);
    set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half)?;
    if let Some(changer) = changer {
        attach(fd.as_fd(), &filter(changer))?;
    }
    Ok(fd)
}

/// Accepts ends, and updates with a mark that are not by `changer`. The program (Documentation/networking/filter.rst)
/// reads numbers in network byte order; the kernel writes these in its own.
fn filter(changer: u32) -> [libc::sock_filter; 10] {
    let destroyed = u32::from(message_type(IPCTNL_MSG_CT_DELETE).to_be());
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |size, at| step(libc::BPF_LD | size | libc::BPF_ABS, 0, 0, at);
    let is = |k, jt, jf| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    [
        load(libc::BPF_H, NLMSG_TYPE_AT),
        is(destroyed, 7, 0),
        load(libc::BPF_W, NLMSG_PID_AT),
        is(changer.to_be(), 4, 0),
        step(libc::BPF_LD | libc::BPF_IMM, 0, 0, (HEADER_BYTES + NFGENMSG_BYTES) as u32),
        step(libc::BPF_LDX | libc::BPF_IMM, 0, 0, CTA_MARK.into()),
        // Where the attributes from A on have one of the type X; 0 if nowhere.
        load(libc::BPF_W, (libc::SKF_AD_OFF + libc::SKF_AD_NLATTR) as u32),
        is(0, 0, 1),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ]
}

fn attach(fd: BorrowedFd<'_>, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: setsockopt(2) reads `program` and the `len` steps that it points to, and writes neither.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    })?;
    Ok(())
}

// linux/netfilter/nfnetlink.h
const NFNLGRP_CONNTRACK_NEW: libc::c_int = 1;
const NFNLGRP_CONNTRACK_UPDATE: libc::c_int = 2;
const NFNLGRP_CONNTRACK_DESTROY: libc::c_int = 3;

/// Offsets in `struct nlmsghdr`.
const NLMSG_TYPE_AT: u32 = 4;
const NLMSG_PID_AT: u32 = 12;

/// System calls per read: the reader does other work in between, also in a storm of events.
const CALLS_MAX: usize = 64;
