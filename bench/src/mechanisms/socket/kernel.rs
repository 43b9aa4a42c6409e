//! The kernel's packet sockets, in the calling thread's network namespace.

use std::os::fd::OwnedFd;

use manylane_io::interface::Interface;
use manylane_io::namespace::Namespace;
use manylane_io::netlink::{LinkEnd, Netlink};
use manylane_io::wait;

use super::contestant::Sockets;
use crate::prelude::*;

/// The indices of two devices, which are the ends of a link.
pub struct Kernel([u32; 2]);

impl Kernel {
    /// Moves the calling thread into a network namespace of its own, for good, and makes a link there. Needs root.
    pub fn in_a_new_namespace() -> Result<Kernel> {
        Namespace::new_for_this_thread()?;
        let names = ["k0", "k1"];
        let mut netlink = Netlink::open()?;
        let [one, other] = names.map(LinkEnd::new);
        netlink.create_veth(&one, &other, None)?;
        let mut devices = [0; 2];
        for (name, device) in names.into_iter().zip(&mut devices) {
            netlink.set_up(name)?;
            *device = Interface::read(name)?.index;
        }
        Ok(Kernel(devices))
    }
}

impl Sockets for Kernel {
    type Socket = OwnedFd;

    fn prefix(&self) -> &'static str {
        "kernel_"
    }

    fn open(&mut self, protocol: u16) -> Result<OwnedFd> {
        Ok(wait::open(protocol)?)
    }

    fn bind(&mut self, socket: &mut OwnedFd, port: Option<u16>, protocol: u16) -> Result {
        let index = port.map_or(0, |port| self.0[usize::from(port)]);
        Ok(wait::bind(socket, index, protocol)?)
    }
}
