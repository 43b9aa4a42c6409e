//! The accelerated interfaces: which they are now, what may be done on each, and our program on them.
//!
//! | What                        | From                                  | Where it goes                          |
//! |-----------------------------|---------------------------------------|----------------------------------------|
//! | number, MAC, VLAN           | the mirror's links                    | the port's record, `port_of`, VLANs    |
//! | forwarding, reverse path    | the mirror's settings                 | flags of the record                    |
//! | ingress and egress          | the gate                              | flags of the record                    |
//! | the program                 | attached where packets may be received; with sFlow, on all | a link, held here  |
//!
//! A name keeps its port, whatever becomes of the interface: a new one of the same name is accelerated again.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::Instant;

use crate::programs::{Driver, IngressProgram, Link as Attachment, attached};
use manylane_io::fatal::DetachOnCrash;
use manylane_io::interface::Interface;
use manylane_io::interface_lock::{InterfaceLock, InterfaceLockError, InterfaceLocks};
use manylane_io::netlink::kernel::Link;
use manylane_net::transit::flows::Required;
use manylane_net::transit::layout::flags;
use manylane_net::transit::{PortRecord, TransitMut};
use manylane_net::wire::ethernet::Mac;

use super::moves::Moves;
use super::tiers::InDriver;
use super::unseen::Unseen;
use super::{Options, TierChoice};
use crate::gate::{self, Stateful};
use manylane_mirror::{self as mirror, Kernel, Mirror, PortFacts, port_flags};

/// All of them.
pub(super) struct Ports {
    pub list: Vec<Port>,
    /// Families whose packets are forwarded by connection only, as the gate says.
    pub stateful: Stateful,
    /// Families of those whose packets have to arrive where their source is routed to, whatever `rp_filter` says.
    pub strict: Required,
    /// Whether packets are sampled: also those of interfaces that the kernel keeps.
    samples: bool,
    /// Ports of VLANs, as the tables have them: by parent's port, kind of tag, number.
    vlans: BTreeMap<(u16, bool, u16), u16>,
    locks: InterfaceLocks,
}

/// One of them.
pub(super) struct Port {
    /// Its number in the tables, from 1.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// The tier that the operator chose.
    pub choice: TierChoice,
    /// The present interface of that name.
    pub index: Option<u32>,
    /// Its MTU.
    pub mtu: u32,
    /// Whether it is one end of a veth pair.
    pub is_veth: bool,
    /// Whether we may forward packets received here, as the gate says.
    pub ingress: bool,
    /// Whether we may send packets out here, as the gate says.
    pub egress: bool,
    /// No other process forwards by the interface while this one has the lock.
    lock: Option<InterfaceLock>,
    /// Why it has not.
    pub taken: Option<String>,
    /// Why the program is not on it, though it should be.
    pub trouble: Option<String>,
    /// Programs of others that see packets before ours.
    pub programs: Vec<String>,
    /// Programs of others were attached behind ours, which would keep packets from them.
    pub is_overtaken: bool,
    /// How often that was mended.
    moves: Moves,
    /// The port's state in the driver tier.
    pub driver: InDriver,
    /// How long the program was not on it.
    pub unseen: Unseen,
    program: Option<Program>,
    /// What the tables say of it.
    written: PortRecord,
}

/// Our program on an interface, detached on drop.
struct Program {
    /// First: it may not outlive the descriptor.
    _first: Option<DetachOnCrash>,
    _link: Attachment,
    /// On which.
    index: u32,
}

impl Ports {
    /// The ports that are wanted, in their order, without interfaces.
    pub fn new(options: &Options, locks: InterfaceLocks) -> Ports {
        let port = |(number, name): (u16, &String)| Port::new(number, name, options.tier_of(name));
        let list = (1..).zip(&options.interfaces).map(port).collect();
        Ports {
            list,
            stateful: Stateful::default(),
            strict: Required::default(),
            samples: options.sflow.is_some(),
            vlans: BTreeMap::new(),
            locks,
        }
    }

    /// Adds a port for an interface that exists. The tables have room for it.
    pub fn add(
        &mut self,
        name: &str,
        choice: TierChoice,
        index: u32,
    ) -> Result<(), InterfaceLockError> {
        let lock = self.locks.take(name, index)?;
        let mut port = Port::new(self.list.len() as u16 + 1, name, choice);
        port.lock = Some(lock);
        self.list.push(port);
        Ok(())
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.list.iter().map(|port| port.name.clone()).collect()
    }

    /// Locks the interfaces that exist, for the start: none may be another process's.
    pub fn lock(&mut self, links: &[Link]) -> Result<(), InterfaceLockError> {
        for port in &mut self.list {
            if let Some(link) = links.iter().find(|link| link.name == port.name) {
                port.lock = Some(self.locks.take(&port.name, link.index)?);
            }
        }
        Ok(())
    }

    /// Locks interfaces that another process had. True if one is ours now.
    pub fn retry_locks(&mut self) -> bool {
        let Ports { list, locks, .. } = self;
        let waiting = list.iter_mut().filter(|port| !port.is_ours() && port.index.is_some());
        waiting.fold(false, |changed, port| {
            port.lock_interface(locks);
            changed | port.is_ours()
        })
    }

    /// Stops forwarding of received packets until [`Ports::write`].
    pub fn close(&mut self, tables: &mut TransitMut) {
        for port in &mut self.list {
            if port.written.flags & flags::INGRESS != 0 {
                port.written.flags &= !flags::INGRESS;
                tables.set_port(port.number, port.written);
            }
        }
    }

    /// Finds the interfaces of the ports' names, takes away what belonged to those that are gone, and writes
    /// what the tables have to say. Where frames are redirected to is `driver`'s to know, if it is there.
    pub fn write(&mut self, mirror: &mut Mirror, driver: Option<&Driver>) {
        for port in &mut self.list {
            let index = mirror.kernel().link_named(&port.name).map(|link| link.index);
            // One with too large a number has no place in the tables; the gate says so.
            let number = Some(port.number);
            let index = index.filter(|&index| mirror.tables_mut().set_port_of(index, number));
            if port.index != index {
                if let Some(old) = port.index {
                    let _ = mirror.tables_mut().set_port_of(old, None); // Its number had a place.
                }
                // Another interface has to be judged first.
                (port.ingress, port.egress) = (false, false);
                port.driver.forget();
                port.index = index;
                port.lock_interface(&self.locks);
            }
            port.program.take_if(|program| Some(program.index) != index);
            let link = port.index.and_then(|index| mirror.kernel().link(index));
            port.mtu = link.map_or(0, |link| link.mtu);
            port.is_veth = link.is_some_and(|link| link.kind.as_deref() == Some("veth"));
            let strict = Required {
                ipv4: self.strict.ipv4 && self.stateful.v4,
                ipv6: self.strict.ipv6 && self.stateful.v6,
            };
            let mut record = record(port, strict, mirror.kernel());
            if port.written != record {
                port.move_device(&mut record, driver);
                port.written = record;
                mirror.tables_mut().set_port(port.number, record);
            }
        }
        self.note_unseen();
        self.write_vlans(mirror);
        let with_index = self.list.iter().filter_map(|port| Some((port, port.index?)));
        let ports: Vec<_> = with_index
            .map(|(port, link)| mirror::Port { link, number: port.number, is_egress: port.egress })
            .collect();
        mirror.set_ports(&ports);
    }

    /// Tags lead from a port to that of its VLAN interface, where both are accelerated.
    fn write_vlans(&mut self, mirror: &mut Mirror) {
        let number = |index: u32| {
            self.list.iter().find(|port| port.index == Some(index)).map(|port| port.number)
        };
        let mut wanted = BTreeMap::new();
        for port in &self.list {
            let link = port.index.and_then(|index| mirror.kernel().link(index));
            let Some(Link { vlan: Some((tag, id)), lower: Some(lower), .. }) = link else {
                continue;
            };
            if let Some(parent) = number(*lower) {
                wanted.insert((parent, *tag == SERVICE_TAG, *id), port.number);
            }
        }
        let old = std::mem::replace(&mut self.vlans, wanted);
        let tables = mirror.tables_mut();
        for (&(parent, is_service, id), port) in &self.vlans {
            if old.get(&(parent, is_service, id)) != Some(port) {
                tables.set_vlan(parent, is_service, id, Some(*port));
            }
        }
        for &(parent, is_service, id) in old.keys() {
            if !self.vlans.contains_key(&(parent, is_service, id)) {
                tables.set_vlan(parent, is_service, id, None);
            }
        }
    }

    /// Attaches the program to the port at `place` if received packets may be forwarded or are sampled there, behind all
    /// others, and detaches it otherwise. Where the tables say that none may be forwarded, the program leaves every packet
    /// to the next one, unchanged. Says whether what is shown of the port has changed; `None` when nothing was to be done.
    pub fn attach(&mut self, place: usize, fast: &IngressProgram) -> Option<bool> {
        let port = &mut self.list[place];
        let is_wanted = port.ingress || (self.samples && port.index.is_some() && port.is_ours());
        let changed = match (is_wanted, &port.program) {
            (false, None) => {
                port.trouble = None;
                return None;
            }
            // Behind ours, others see what is only sampled.
            (true, Some(_)) if !(port.ingress && port.is_overtaken) => return None,
            (false, Some(_)) => {
                (port.program, port.trouble) = (None, None);
                true
            }
            (true, _) => port.attach(fast),
        };
        self.note_unseen();
        Some(changed)
    }

    /// Takes the program off everywhere.
    pub fn detach(&mut self) {
        for port in &mut self.list {
            port.driver.detach();
            port.program = None;
        }
        self.note_unseen();
    }

    /// Notes on which interfaces no program is. One that does not exist has no packets to be seen.
    fn note_unseen(&mut self) {
        let now = Instant::now();
        for port in &mut self.list {
            let is_unseen = port.index.is_some() && port.program.is_none();
            port.unseen.note(is_unseen, now);
        }
    }
}

impl Port {
    fn new(number: u16, name: &str, choice: TierChoice) -> Port {
        Port {
            number,
            name: name.into(),
            choice,
            index: None,
            mtu: 0,
            is_veth: false,
            ingress: false,
            egress: false,
            lock: None,
            taken: None,
            trouble: None,
            programs: Vec::new(),
            is_overtaken: false,
            moves: Moves::default(),
            driver: InDriver::default(),
            unseen: Unseen::default(),
            program: None,
            written: PortRecord::default(),
        }
    }

    /// Whether no other process forwards by its interface.
    pub fn is_ours(&self) -> bool {
        self.lock.is_some()
    }

    /// Locks the present interface, and gives the former one up.
    fn lock_interface(&mut self, locks: &InterfaceLocks) {
        self.lock.take_if(|lock| Some(lock.index()) != self.index);
        self.taken = None;
        if let (None, Some(index)) = (&self.lock, self.index) {
            match locks.take(&self.name, index) {
                Ok(lock) => self.lock = Some(lock),
                Err(error) => self.taken = Some(error.to_string()),
            }
        }
    }

    /// Attaches the program, again if others have come behind it. Taken off first: until it is back, the kernel has the
    /// packets, and all others see them. (The kernel refuses a program that is in the chain already, so a new link
    /// cannot come first.) Returns whether what is shown has changed.
    fn attach(&mut self, fast: &IngressProgram) -> bool {
        let now = Instant::now();
        let is_moved = self.program.take().is_some();
        self.is_overtaken = false;
        if is_moved {
            self.moves.note(now);
        }
        let attached = match self.moves.too_many(now) {
            Some(trouble) => Err(trouble),
            None => attach(fast, &self.name),
        };
        match attached {
            Ok((program, others)) => {
                (self.program, self.programs, self.trouble) = (Some(program), others, None);
                true
            }
            Err(trouble) => {
                let is_new = self.trouble.as_ref() != Some(&trouble);
                self.trouble = Some(trouble);
                is_new || is_moved
            }
        }
    }

    /// Whether our program is on it.
    pub fn is_attached(&self) -> bool {
        self.program.is_some()
    }

    /// The tier that forwards received packets.
    pub fn tier(&self) -> &'static str {
        match self.ingress && self.is_attached() {
            false => "kernel",
            true if !self.driver.is_attached() => "ingress",
            true if self.written.flags & flags::WORKERS_INGRESS != 0 => "workers",
            true if self.written.flags & flags::DRIVER_INGRESS != 0 => "driver",
            true => "ingress",
        }
    }

    /// How what we send out here leaves.
    pub fn egress_tier(&self) -> &'static str {
        match self.egress {
            false => "kernel",
            true if self.written.flags & flags::WORKERS_EGRESS != 0 => "workers",
            true if self.written.flags & flags::DRIVER_EGRESS != 0 => "driver",
            true => "ingress",
        }
    }

    /// The device is where the record says: it is in the map before the record, and gone from it first.
    fn move_device(&mut self, record: &mut PortRecord, driver: Option<&Driver>) {
        let device = |record: &PortRecord| {
            (record.flags & flags::DRIVER_EGRESS != 0).then_some(record.ifindex)
        };
        if device(&self.written) == device(record) {
            return;
        }
        let moved = driver.map(|driver| driver.set_device(self.number, device(record)));
        if !matches!(moved, Some(Ok(()))) {
            // The device is gone, and the kernel has removed it from the map.
            record.flags &= !(flags::DRIVER_EGRESS | flags::DRIVER_EGRESS_PIECES);
            self.driver.egress = false;
        }
    }
}

/// What the tables have to say of a port. A packet that leaves by its ingress port may need a redirect, which is no
/// setting that the kernel reports: the packet is always the kernel's.
fn record(port: &Port, strict: Required, kernel: &Kernel) -> PortRecord {
    let Some(link) = port.index.and_then(|index| kernel.link(index)) else {
        return PortRecord::default();
    };
    let gate = PortFacts {
        is_ingress: port.ingress,
        is_egress: port.egress && gate::has_link(link),
        redirects_v4: true,
        redirects_v6: true,
        ..PortFacts::default()
    };
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    let (is_ingress, is_egress) =
        (gate.is_ingress && port.driver.ingress, gate.is_egress && port.driver.egress);
    let driver = match port.driver.by_workers {
        true => flag(is_ingress, flags::WORKERS_INGRESS) | flag(is_egress, flags::WORKERS_EGRESS),
        false => {
            flag(is_ingress, flags::DRIVER_INGRESS)
                | flag(is_egress, flags::DRIVER_EGRESS)
                | flag(is_egress && port.driver.plan.pieces, flags::DRIVER_EGRESS_PIECES)
        }
    };
    let facts = kernel.port_facts(link.index, gate);
    let strict = flag(strict.ipv4, flags::RP_STRICT) | flag(strict.ipv6, flags::RP_STRICT_V6);
    PortRecord {
        flags: port_flags(&facts) | strict | driver,
        ifindex: link.index,
        mac: Mac(link.mac.unwrap_or_default()),
    }
}

fn attach(fast: &IngressProgram, name: &str) -> Result<(Program, Vec<String>), String> {
    let interface = Interface::read(name).map_err(|error| error.to_string())?;
    let others = attached(&interface).map_err(|error| error.to_string())?.programs;
    let link = fast.attach(&interface).map_err(|error| error.to_string())?;
    let first = DetachOnCrash::register(link.as_fd());
    let others = others.iter().map(|(id, name)| format!("{name} ({id})")).collect();
    Ok((Program { _first: first, _link: link, index: interface.index }, others))
}

/// The ethertype of 802.1ad.
const SERVICE_TAG: u16 = 0x88a8;
