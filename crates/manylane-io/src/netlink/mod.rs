//! Making links, addresses and routes: what a lab or a test needs of ip(8), without the binary; and what a
//! driver says it can. What the kernel does with packets that it routes is read and heard of in four rooms:
//! [`kernel`] (routing), [`nftables`], [`xfrm`] (IPsec) and [`traffic`] (traffic control).
//!
//! The bytes of requests and replies are `netlink-bindings`' business (generated from the kernel's own
//! YAML); [`socket`] carries them. Every call acts on the network namespace in which the
//! [`Netlink`] was opened. See netlink(7) and rtnetlink(7).

mod address;
mod device;
mod error;
pub mod kernel;
mod link;
pub mod nftables;
mod notices;
mod plain;
mod route;
pub mod socket;
mod statistics;
pub mod traffic;
pub mod xfrm;

use netlink_bindings::traits::NetlinkRequest;

pub use device::{XdpFeatures, tells_tags};
pub use error::NetlinkError;
pub use link::{Link, LinkEnd};
pub use notices::Notices;
pub use route::{Route, RouteKind};
pub use statistics::Statistics;

use socket::Socket;

/// A route socket of one network namespace.
pub struct Netlink {
    socket: Socket,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Netlink, NetlinkError> {
        let socket = Socket::open().map_err(|source| NetlinkError::Unavailable { source })?;
        Ok(Netlink { socket })
    }

    /// Asks for a change; `step` says which, as in "cannot {step}".
    fn change<R: NetlinkRequest>(
        &mut self,
        step: impl Fn() -> String,
        request: &R,
    ) -> Result<(), NetlinkError> {
        self.socket.acknowledge(request).map_err(|refusal| NetlinkError::refused(step(), refusal))
    }
}
