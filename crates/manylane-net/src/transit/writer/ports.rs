//! Ports: what may be done there, and which port an interface or a VLAN is.

use super::TransitMut;
use crate::transit::layout::{self, INTERFACES, PORT_WORDS, PORTS, VLANS, port};
use crate::wire::ethernet::Mac;

/// What a port is, and what may be done there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRecord {
    /// [`layout::flags`].
    pub flags: u32,
    /// The index of its interface.
    pub ifindex: u32,
    /// Our MAC address there.
    pub mac: Mac,
}

impl TransitMut {
    /// Says what a port is. Its flags are the last that is seen of it; where interface or MAC address
    /// change, nothing may be done there until they have.
    ///
    /// # Panics
    ///
    /// Without such a port; port 0 is none.
    pub fn set_port(&mut self, port: u16, facts: PortRecord) {
        assert!((1..PORTS).contains(&usize::from(port)), "port {port} of {PORTS}");
        let at = usize::from(port) * PORT_WORDS;
        let former = self.port(port);
        if (former.ifindex, former.mac) != (facts.ifindex, facts.mac) {
            let [a, b, c, d, e, f] = facts.mac.0;
            self.ports.publish(at + port::FLAGS, 0);
            self.ports.publish(at + port::INTERFACE, facts.ifindex);
            self.ports.publish(at + port::MAC, u32::from_ne_bytes([a, b, c, d]));
            self.ports.publish(at + port::MAC + 1, u32::from_ne_bytes([e, f, 0, 0]));
        }
        self.ports.publish(at + port::FLAGS, facts.flags);
    }

    /// What a port is.
    pub fn port(&self, port: u16) -> PortRecord {
        let word = |place: usize| self.ports.load(usize::from(port) * PORT_WORDS + place);
        let mac = mac([word(port::MAC), word(port::MAC + 1)]);
        PortRecord { flags: word(port::FLAGS), ifindex: word(port::INTERFACE), mac }
    }

    /// Says which port a VLAN of a port is: by a tag of 802.1ad (`is_service`), or of 802.1Q.
    ///
    /// # Panics
    ///
    /// Without such a port or VLAN.
    pub fn set_vlan(&mut self, parent: u16, is_service: bool, vlan: u16, port: Option<u16>) {
        assert!(
            usize::from(parent) < PORTS && usize::from(vlan) < VLANS,
            "VLAN {vlan} of {parent}"
        );
        let at = layout::vlan(parent, is_service, vlan);
        self.vlan_port.publish(at, port.unwrap_or(0));
    }

    /// Says which port an interface is. False when its index is too large for that, see
    /// [`layout::INTERFACES`].
    #[must_use = "an interface with too large an index stays in the kernel"]
    pub fn set_port_of(&mut self, ifindex: u32, port: Option<u16>) -> bool {
        let has_place = (ifindex as usize) < INTERFACES;
        if has_place {
            self.port_of.publish(ifindex as usize, port.unwrap_or(0));
        }
        has_place
    }
}

/// The MAC address of these words of a port.
pub(in crate::transit) fn mac(words: [u32; 2]) -> Mac {
    let [[a, b, c, d], [e, f, ..]] = words.map(u32::to_ne_bytes);
    Mac([a, b, c, d, e, f])
}
