//! Why a packet socket refuses a call.

use std::io;

use manylane_frame::vocabulary::PortId;
use manylane_io::packet_ring::RingError;

/// Why a socket refused a call. The call has changed nothing.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// As many sockets are open as `max` in `[sockets]` allows.
    #[error("{max} packet sockets are open already; close one, or raise `max` in [sockets]")]
    TooMany {
        /// The bound.
        max: u32,
    },
    /// The system gave no descriptor to be woken by.
    #[error(
        "cannot make an eventfd to wake the reader by: {0}; close sockets, or raise `ulimit -n`"
    )]
    Wake(#[source] io::Error),
    /// Rings would take more memory than `memory_max` in `[sockets]` allows.
    #[error(
        "the ring would take {wanted} bytes and {left} are left; request less, close a socket, or raise `memory_max` in \
         [sockets]"
    )]
    Memory {
        /// Bytes of the requested ring.
        wanted: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// A user's rings would take more memory than `per_user_memory_max` in `[sockets]` allows.
    #[error(
        "the ring would take {wanted} bytes and user {user} has {left} left; request less, close a socket, or raise \
         `per_user_memory_max` in [sockets]"
    )]
    UserMemory {
        /// The user.
        user: u32,
        /// Bytes of the requested ring.
        wanted: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// Filters would be longer than `filter_max` in `[sockets]` allows.
    #[error(
        "the filter would take {wanted} instructions, counted at each point, and {left} are left for all sockets; shorten \
         it, name fewer points, close a socket, or raise `filter_max` in [sockets]"
    )]
    Filters {
        /// Instructions, counted at each point.
        wanted: u64,
        /// Instructions that are left.
        left: u64,
    },
    /// A user's filters would be longer than `per_user_filter_max` in `[sockets]` allows.
    #[error(
        "the filter would take {wanted} instructions, counted at each point, and user {user} has {left} left; shorten it, \
         name fewer points, close a socket, or raise `per_user_filter_max` in [sockets]"
    )]
    UserFilters {
        /// The user.
        user: u32,
        /// Instructions, counted at each point.
        wanted: u64,
        /// Instructions that are left.
        left: u64,
    },
    /// Sockets took too much of a worker's time, and this one the most.
    #[error(
        "the socket is closed: sockets took {percent} % of worker {worker}'s time, and `time_max` in [sockets] allows {max} %; \
         use a shorter filter, fewer points or a smaller snap length, or raise `time_max`"
    )]
    Time {
        /// The worker.
        worker: usize,
        /// Their share of its time, in percent.
        percent: u64,
        /// The share that they may take.
        max: u32,
    },
    /// A socket of this user was closed because it took too much of a worker's time, not long ago.
    #[error(
        "a socket of user {user} took too much of a worker's time; the user's sockets are opened and changed again in \
         {seconds} s: wait, and use a shorter filter, fewer points or a smaller snap length"
    )]
    Barred {
        /// The user.
        user: u32,
        /// Until then, in seconds.
        seconds: u64,
    },
    /// Sockets of other processes do not send.
    #[error(
        "packet sockets of other processes may not send; set `send = true` in [sockets] to allow it"
    )]
    MayNotSend,
    /// The system gave no memory for a ring, or a ring cannot have this form.
    #[error("{0}")]
    Ring(#[source] RingError),
    /// No port has this id.
    #[error("this router has no {0}; `manylane show ports` lists its ports")]
    NoSuchPort(PortId),
    /// More bindings have changed in one turn of a worker than are kept apart: try again.
    #[error("too many bindings changed within one turn of a worker; try again")]
    Busy,
    /// The group has another mode, or other bindings.
    #[error("the fanout group has another mode, protocol, port or points; name another group")]
    GroupDiffers,
    /// The group has as many members as a group may have.
    #[error("the fanout group is full; name another")]
    GroupFull,
    /// The socket receives packets through the group: leave it before binding to something else.
    #[error("the socket is a member of a fanout group; leave it first")]
    InGroup,
    /// A socket that is bound to nothing cannot join a group, nor send without a port.
    #[error("the socket is bound to no port; bind it first")]
    NotBound,
    /// The queue of packets to send is full: try again.
    #[error("too many packets wait to be sent; try again")]
    SendFull,
    /// No packet of this length can be sent there.
    #[error("a packet of {len} bytes cannot be sent: make it 14 to {max} bytes long")]
    Length {
        /// Bytes.
        len: usize,
        /// Bytes of the largest.
        max: usize,
    },
}
