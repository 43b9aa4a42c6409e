//! One region as the memory of all AF_XDP sockets of the daemon.
//!
//! A socket either registers the region itself or shares it with one that is *bound* already. All sockets of
//! one registration move packets the same way: the first decides whether by copy or zero-copy, and
//! whether in several frames (`xp_assign_dev_shared` in net/xdp/xsk_buff_pool.c). So the same region has up to three
//! registrations, one per transfer mode; a frame may enter by one and leave by another.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Weak;

use manylane_frame::Region;

use super::ring::Kind;
use super::socket::{Socket, Transfer, is_busy};

/// The region, and the sockets bound with it.
pub struct Umem {
    region: Region,
    bound: Vec<(Transfer, Weak<OwnedFd>)>,
}

/// A socket bound to a queue.
pub(super) struct Bound {
    pub socket: Socket,
    pub transfer: Transfer,
    /// Why the preceding transfer mode was refused.
    pub refused: Option<StepError>,
}

/// A step of opening a queue, and why the kernel refused it.
pub(super) type StepError = (&'static str, io::Error);

impl Umem {
    /// Wraps a region that no socket is bound with.
    pub fn new(region: Region) -> Umem {
        Umem { region, bound: Vec::new() }
    }

    /// The frames.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Binds a new socket with the given rings to a queue, by the first of `transfers` that works.
    pub(super) fn bind(
        &mut self,
        (index, queue): (u32, u32),
        rings: &[(Kind, u32)],
        transfers: &[Transfer],
    ) -> Result<Bound, StepError> {
        self.bound.retain(|(_, socket)| socket.strong_count() > 0);
        let mut refused = None;
        for &transfer in transfers {
            match self.bind_by(transfer, (index, queue), rings) {
                Ok(socket) => {
                    self.bound.push((transfer, socket.downgrade()));
                    return Ok(Bound { socket, transfer, refused });
                }
                // Another transfer mode would find the queue busy too.
                Err((step, error)) if is_busy(&error) => return Err((step, error)),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.expect("one mode at least was tried"))
    }

    fn bind_by(
        &self,
        transfer: Transfer,
        (index, queue): (u32, u32),
        rings: &[(Kind, u32)],
    ) -> Result<Socket, StepError> {
        let others = self.bound.iter().filter(|(by, _)| *by == transfer);
        for other in others.filter_map(|(_, socket)| Socket::upgrade(socket)) {
            let socket = with_rings(rings)?;
            match socket.bind_shared(index, queue, &other) {
                // Its device is gone, so it is not bound any more: try the next, or register.
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
                outcome => {
                    return outcome.map(|()| socket).map_err(|error| ("bind to a queue", error));
                }
            }
        }
        let socket = with_rings(rings)?;
        let region = &self.region;
        socket
            .register(region.base(), region.len_bytes(), region.frame_size())
            .map_err(|error| ("register the frames", error))?;
        socket.bind(index, queue, transfer).map_err(|error| ("bind to a queue", error))?;
        Ok(socket)
    }

    /// A further socket on the queue of `first`, for transmitting only: it shares `first`'s fill and
    /// completion rings.
    pub(super) fn bind_transmit_only(
        &self,
        (index, queue): (u32, u32),
        entries: u32,
        first: &Socket,
    ) -> Result<Socket, StepError> {
        let socket = with_rings(&[(Kind::Transmit, entries)])?;
        socket
            .bind_shared(index, queue, first)
            .map_err(|error| ("bind a second socket to a queue", error))?;
        Ok(socket)
    }
}

fn with_rings(rings: &[(Kind, u32)]) -> Result<Socket, StepError> {
    let socket = Socket::open().map_err(|error| ("open an AF_XDP socket", error))?;
    for &(kind, entries) in rings {
        socket.make_ring(kind, entries).map_err(|error| ("make a ring", error))?;
    }
    Ok(socket)
}
