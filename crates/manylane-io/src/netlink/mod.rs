//! Netlink: changes to links, addresses and routes, as labs and tests need them without ip(8); the features that
//! drivers report; and the kernel's processing of routed packets, in five rooms: [`kernel`] (routing), [`nftables`],
//! [`conntrack`], [`xfrm`] (IPsec) and [`traffic`] (traffic control).
//!
//! `netlink-bindings` (generated from the kernel's own YAML) encodes requests and decodes replies; [`socket`] exchanges
//! them. A call acts on the network namespace in which its [`Netlink`] was opened. See netlink(7) and rtnetlink(7).
//!
//! May use: system calls, `sysctl`. Must not use any other room. Used by the control thread and by labs.

mod address;
pub mod conntrack;
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

    /// Requests a change; `step` describes it, as in "cannot {step}".
    fn change<R: NetlinkRequest>(
        &mut self,
        step: impl Fn() -> String,
        request: &R,
    ) -> Result<(), NetlinkError> {
        self.socket.acknowledge(request).map_err(|refusal| NetlinkError::refused(step(), refusal))
    }
}
