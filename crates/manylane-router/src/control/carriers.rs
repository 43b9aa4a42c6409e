//! Which ports' devices have a carrier: the kernel's notices, and its list of links after each.

use manylane_frame::vocabulary::PortId;
use manylane_io::netlink::kernel::{Event, Group, Link, Watch};
use manylane_io::netlink::{Netlink, NetlinkError};

use crate::config::Config;

/// The devices of ports, in the network namespace of the thread that opened them. The control thread's.
pub(super) struct Carriers {
    watch: Watch,
    netlink: Netlink,
    devices: Vec<Device>,
    /// Whether the list of links is to be read, whatever the kernel has said.
    must_list: bool,
}

struct Device {
    port: PortId,
    /// The kernel's number of it.
    index: u32,
    has_carrier: bool,
}

impl Carriers {
    /// Watches the devices of these ports, which are open; without a device, nothing.
    pub fn watch(config: &Config) -> Result<Option<Carriers>, NetlinkError> {
        let named = (0..).map(PortId).zip(&config.ports);
        let named: Vec<_> = named
            .filter_map(|(port, config)| config.driver.interface().map(|name| (port, name)))
            .collect();
        if named.is_empty() {
            return Ok(None);
        }
        // The notices first: what happens in between is in both.
        let watch = Watch::open(&[Group::Links], RECEIVE_BYTES)?;
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        let device = |(port, name): (PortId, &str)| {
            let index = links.iter().find(|link| link.name == name)?.index;
            Some(Device { port, index, has_carrier: true })
        };
        let devices = named.into_iter().filter_map(device).collect();
        Ok(Some(Carriers { watch, netlink, devices, must_list: true }))
    }

    /// The notices, to wait for.
    pub fn notices(&self) -> &Watch {
        &self.watch
    }

    /// The ports that have lost their carrier or got it back since the last call, in this order for one that did both.
    /// Does not wait. An error ends the watch.
    pub fn changes(&mut self) -> Result<Vec<(PortId, bool)>, NetlinkError> {
        let mut lost = Vec::new();
        let read = self.watch.read(&mut |event| match event {
            Event::Link(link) if !has_carrier(&link) => lost.push(link.index),
            Event::LinkGone(index) => lost.push(index),
            _ => {}
        })?;
        self.must_list |= read.events > 0 || read.overrun;
        if !self.must_list {
            return Ok(Vec::new());
        }
        // The list says what holds now: a notice may be late, or lost.
        let links = self.netlink.links()?;
        self.must_list = false;
        let mut changes = Vec::new();
        for device in &mut self.devices {
            let is_running = links.iter().any(|link| link.index == device.index && link.is_running);
            if device.has_carrier && (!is_running || lost.contains(&device.index)) {
                changes.push((device.port, false));
                device.has_carrier = false;
            }
            if is_running && !device.has_carrier {
                changes.push((device.port, true));
                device.has_carrier = true;
            }
        }
        Ok(changes)
    }
}

fn has_carrier(link: &Link) -> bool {
    link.flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP
}

/// linux/if.h.
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;

/// Some hundred notices; when more are lost, the list has what they said.
const RECEIVE_BYTES: usize = 256 << 10;
