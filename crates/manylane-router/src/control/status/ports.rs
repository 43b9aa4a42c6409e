//! Ports and sub-interfaces, as they are shown: what does not change of them, and their counters.

use std::sync::Arc;

use manylane_frame::vocabulary::PortId;
use manylane_io::bpf::Mode;
use manylane_io::port::pcap::FileCounts;
use manylane_net::forward::PortFacts;
use manylane_net::wire::ethernet::Mac;

use super::{Status, unpoisoned};
use crate::config::{Faults, Vlan};
use crate::control::open::{Device, OpenPort};
use crate::control::routing::Routing;
use manylane_api::{
    ApiError, CopyStatus, FaultStatus, PortState, PortStatus, SetError, Source, VlanStatus,
};
use manylane_worker::stats::PortCount;

/// What does not change about a port.
pub(super) struct ShownPort {
    pub(super) name: String,
    pub(super) driver: &'static str,
    pub(super) chosen: Option<&'static str>,
    pub(super) interface: Option<String>,
    pub(super) mac: Mac,
    pub(super) mtu: u16,
    pub(super) mode: Option<&'static str>,
    pub(super) zero_copy: bool,
    pub(super) frames_max: u8,
    pub(super) single_because: Option<String>,
    pub(super) queues: u16,
    pub(super) addresses: Vec<String>,
    pub(super) repair: bool,
    /// Whether the port at the other end of a wire is its far end.
    pub(super) is_wired: bool,
    pub(super) has_faults: bool,
    /// What the writer of its copies counts, and that of its own output.
    pub(super) copies: Option<Arc<FileCounts>>,
    pub(super) output: Option<Arc<FileCounts>>,
    /// What a sub-interface is a VLAN of.
    pub(super) vlan: Option<VlanStatus>,
}

impl ShownPort {
    fn of(port: &OpenPort) -> ShownPort {
        let (mode, zero_copy, single_because) = match &port.device {
            Device::AfXdp { mode, zero_copy, single_because, .. } => {
                (Some(*mode), *zero_copy, single_because.clone())
            }
            Device::AfPacket(_) | Device::Tap(_) | Device::Pcap(_) | Device::Memory(_) => {
                (None, false, None)
            }
        };
        let interface = port.config.driver.interface().map(str::to_owned);
        let addresses = port.config.addresses.iter();
        let mut addresses: Vec<String> =
            addresses.map(|own| format!("{}/{}", own.address, own.length)).collect();
        if let Some(link_local) = port.facts.link_local
            && !port.config.addresses.iter().any(|own| own.address == link_local)
        {
            addresses.push(format!("{link_local}/64"));
        }
        ShownPort {
            name: port.config.name.clone(),
            driver: port.config.driver.name(),
            chosen: port.config.chosen,
            interface,
            mac: port.facts.mac,
            mtu: port.facts.mtu as u16,
            mode: mode.map(|mode| match mode {
                Mode::Native => "native",
                Mode::Generic => "generic",
            }),
            zero_copy,
            frames_max: port.facts.offload.frames_max,
            single_because,
            queues: port.owners.len() as u16,
            addresses,
            repair: port.repair,
            is_wired: matches!(port.device, Device::Memory(None)),
            has_faults: port.config.faults != Faults::default(),
            copies: port.copies.clone(),
            output: match &port.device {
                Device::Pcap(counts) => counts.clone(),
                _ => None,
            },
            vlan: None,
        }
    }

    /// A sub-interface of `port`, which is shown so; it counts the packets that were received with its tags.
    fn of_vlan(port: &ShownPort, vlan: &Vlan, facts: &PortFacts) -> ShownPort {
        let mut addresses: Vec<String> =
            vlan.addresses.iter().map(|own| format!("{}/{}", own.address, own.length)).collect();
        if let Some(link_local) = facts.link_local
            && !vlan.addresses.iter().any(|own| own.address == link_local)
        {
            addresses.push(format!("{link_local}/64"));
        }
        ShownPort {
            name: vlan.name.clone(),
            driver: "vlan",
            chosen: None,
            interface: port.interface.clone(),
            mac: facts.mac,
            mtu: facts.mtu as u16,
            mode: None,
            zero_copy: false,
            frames_max: facts.offload.frames_max,
            single_because: None,
            queues: 0,
            addresses,
            repair: port.repair,
            is_wired: false,
            has_faults: false,
            copies: None,
            output: None,
            vlan: Some(VlanStatus { port: port.name.clone(), tags: vlan.tags.to_string() }),
        }
    }
}

/// The ports and then their sub-interfaces, by id.
pub(super) fn shown_ports(ports: &[OpenPort], routing: &Routing) -> Vec<ShownPort> {
    let mut shown: Vec<ShownPort> = ports.iter().map(ShownPort::of).collect();
    for (number, port) in ports.iter().enumerate() {
        for vlan in &port.config.vlans {
            let facts = routing.facts(PortId(shown.len() as u16));
            shown.push(ShownPort::of_vlan(&shown[number], vlan, facts));
        }
    }
    shown
}

impl Status {
    /// Why a port cannot be added while the daemon runs: the region, the tables and each worker have places for the ports
    /// of the start only, and the capabilities that are kept open no AF_XDP socket
    /// ([`Keep::Forwarding`](manylane_io::privilege::Keep::Forwarding)).
    pub(super) fn no_port_added(&self, name: &str) -> SetError {
        if self.ports.iter().any(|port| port.name == name) {
            let error = format!("port `{name}` exists already");
            return SetError::NoRoom(ApiError {
                error,
                help: "`manylane show ports` lists all".into(),
            });
        }
        let file = self.configurations().map(|configurations| configurations.status().file);
        let file = file.unwrap_or_else(|| "the configuration".into());
        SetError::NoRoom(ApiError {
            error: format!(
                "port `{name}` needs a restart: `manylane run` sizes frames, tables and each worker's queues for the \
                 ports of its start, and gives up the privilege to open others"
            ),
            help: format!(
                "add a [[port]] to {file}, check it with `manylane config check {file}`, and restart the daemon"
            ),
        })
    }

    /// What is shown of one port.
    pub(super) fn port(&self, id: PortId, port: &ShownPort) -> PortStatus {
        let state = unpoisoned(&self.steering).port_state(id);
        PortStatus {
            port: id.0,
            name: port.name.clone(),
            driver: port.driver.into(),
            chosen: port.chosen.map(Into::into),
            interface: port.interface.clone(),
            mac: port.mac.to_string(),
            mtu: port.mtu,
            state,
            link_up: self.is_up(id, port),
            mode: port.mode.map(Into::into),
            zero_copy: port.zero_copy,
            frames_max: port.frames_max,
            single_because: port.single_because.clone(),
            queues: port.queues,
            addresses: port.addresses.clone(),
            checksum: if port.repair { "repair" } else { "trust" }.into(),
            received: self.port_sum(id, PortCount::Received),
            received_bytes: self.port_sum(id, PortCount::ReceivedBytes),
            transmitted: self.port_sum(id, PortCount::Sent),
            transmitted_bytes: self.port_sum(id, PortCount::SentBytes),
            lost_ring_full: self.port_sum(id, PortCount::LostRingFull),
            lost_no_buffer: self.port_sum(id, PortCount::LostNoBuffer),
            lost_invalid: self.port_sum(id, PortCount::LostInvalid),
            lost_closed: self.port_sum(id, PortCount::LostClosed),
            lost_transmit: self.port_sum(id, PortCount::LostTransmit)
                + port.output.as_ref().map_or(0, |file| file.lost()),
            segments_cut: self.port_sum(id, PortCount::SegmentsCut),
            checksums_completed: self.port_sum(id, PortCount::ChecksumsCompleted),
            chains_joined: self.port_sum(id, PortCount::ChainsJoined),
            dropped: self.drops_of(id),
            faults: port.has_faults.then(|| self.faults(id)),
            copies: port.copies.as_ref().map(|file| self.copies(id, file)),
            vlan: port.vlan.clone(),
        }
    }

    /// Whether the port's device is up and has a carrier; memory always has.
    fn is_up(&self, id: PortId, port: &ShownPort) -> bool {
        if unpoisoned(&self.routing).is_removed(id) {
            return false;
        }
        let (Some(interface), Some(netlink)) = (&port.interface, &self.netlink) else {
            return true;
        };
        let link = unpoisoned(netlink).link(interface);
        link.is_ok_and(|link| link.is_up && link.is_running)
    }

    fn faults(&self, port: PortId) -> FaultStatus {
        let sum = |what| self.port_sum(port, what);
        FaultStatus {
            dropped: sum(PortCount::FaultsDropped),
            duplicated: sum(PortCount::FaultsDuplicated),
            corrupted: sum(PortCount::FaultsCorrupted),
            delayed: sum(PortCount::FaultsDelayed),
            reordered: sum(PortCount::FaultsReordered),
            hold_full: sum(PortCount::FaultsHoldFull),
            no_frame: sum(PortCount::FaultsNoFrame),
        }
    }

    fn copies(&self, port: PortId, file: &FileCounts) -> CopyStatus {
        let sum = |what| self.port_sum(port, what);
        CopyStatus {
            copied: file.packets(),
            no_frame: sum(PortCount::CopiesNoFrame),
            unfit: sum(PortCount::CopiesUnfit),
            refused: sum(PortCount::CopiesRefused) + file.lost(),
        }
    }

    /// Begins to remove a port, unless something else is on it.
    pub(super) fn begin_removal(&self, name: &str) -> Result<PortStatus, SetError> {
        let of_name = |(_, port): &(PortId, &ShownPort)| port.name == name;
        let refused = |why: String, help: String| {
            SetError::BadValue(ApiError {
                error: format!("`{name}` cannot be removed: {why}"),
                help,
            })
        };
        let mut steering = unpoisoned(&self.steering);
        let open = |&(id, port): &(PortId, &ShownPort)| {
            port.vlan.is_none() && steering.port_state(id) == PortState::Open
        };
        let open: Vec<_> = self.ids().zip(&self.ports).filter(open).collect();
        let listed = || {
            let names: Vec<_> = open.iter().map(|(_, port)| format!("`{}`", port.name)).collect();
            format!("there are {}", names.join(", "))
        };
        let Some((id, port)) = self.ids().zip(&self.ports).find(of_name) else {
            let error = format!("port `{name}` does not exist");
            return Err(SetError::UnknownKey(ApiError { error, help: listed() }));
        };
        if let Some(vlan) = &port.vlan {
            return Err(refused(format!("it is a sub-interface of `{}`", vlan.port), listed()));
        }
        match steering.port_state(id) {
            PortState::Open => {}
            PortState::Draining => return Err(refused("it is being removed".into(), listed())),
            PortState::Removed => return Err(refused("it was removed".into(), listed())),
        }
        let on_it = |other: &&ShownPort| other.vlan.as_ref().is_some_and(|vlan| vlan.port == name);
        if let Some(vlan) = self.ports.iter().find(on_it) {
            let why = format!("it has sub-interfaces, as `{}`", vlan.name);
            return Err(refused(why, "start without its [[port.vlan]]".into()));
        }
        if port.is_wired {
            let why = "it is an end of a wire in memory, which has another";
            return Err(refused(why.into(), "start without both".into()));
        }
        if open.len() == 1 {
            let why = "no port would be left";
            return Err(refused(why.into(), "stop the daemon instead".into()));
        }
        unpoisoned(&self.routing).remove_port(id, self.clock.now());
        steering.remove_port(id);
        drop(steering);
        self.control.ring();
        Ok(self.port(id, port))
    }
}
