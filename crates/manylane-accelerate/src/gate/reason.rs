//! What the gate says: where an interface's packets are forwarded, why, and what changes that.

use std::fmt;

use serde::Serialize;

use super::cure::Cure;

/// What became of the examination of one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Its name.
    pub interface: String,
    /// Its number.
    pub index: u32,
    /// The tier that forwards packets received by the interface.
    pub tier: Tier,
    /// manylane may forward packets received by the interface.
    pub is_ingress: bool,
    /// Packets may be sent out by it by us.
    pub is_egress: bool,
    /// The link is up and has a carrier: without, no packet passes.
    pub link_up: bool,
    /// What keeps packets in the kernel.
    pub reasons: Vec<Reason>,
    /// What would, were it not overridden by name.
    pub bypassed: Vec<Reason>,
    /// What is good to know: some packets are the kernel's, or all would go faster.
    pub notes: Vec<Reason>,
    /// Whether packets may be forwarded in its driver.
    pub driver: DriverStanding,
}

/// Whether packets may be forwarded in an interface's driver: what is against it, beside all that keeps them in the
/// kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriverStanding {
    /// Against packets received by the interface.
    pub ingress: Vec<Reason>,
    /// Those that would leave by it.
    pub egress: Vec<Reason>,
    /// Both, unless the operator says so by name.
    pub auto: Vec<Reason>,
    /// Those that workers would send by it.
    pub sends: Vec<Reason>,
    /// Both, by workers.
    pub sockets: Vec<Reason>,
    /// Frames that leave may be in several pieces of memory.
    pub takes_pieces: bool,
}

impl Standing {
    /// An interface that does not exist yet.
    pub(crate) fn missing(interface: &str) -> Standing {
        let what = "the interface does not exist";
        let reason = Reason::new(About::Device, what, "manylane takes it up when it appears");
        Standing {
            interface: interface.into(),
            index: 0,
            tier: Tier::Kernel,
            is_ingress: false,
            is_egress: false,
            link_up: false,
            reasons: vec![reason],
            bypassed: Vec::new(),
            notes: Vec::new(),
            driver: DriverStanding::default(),
        }
    }

    /// Whether nothing keeps any of its packets in the kernel as a whole.
    pub fn is_free(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// The tier that forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The kernel, all of it.
    Kernel,
    /// Our program at tcx ingress, as far as it can.
    Ingress,
    /// Our program in the driver (XDP), as far as it can; behind it that at tcx.
    Driver,
    /// Workers, which receive from the program in the driver.
    Workers,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Kernel => "kernel",
            Tier::Ingress => "ingress",
            Tier::Driver => "driver",
            Tier::Workers => "workers",
        })
    }
}

/// Something that was found, and matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What it is about.
    pub about: About,
    /// Which packets it concerns.
    pub concerns: Concerns,
    /// The reason holds for all interfaces of the network namespace.
    pub is_everywhere: bool,
    /// What was found, by name.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// A command for the shell that changes it, where changing it takes no protection away.
    pub command: Option<String>,
}

impl Reason {
    pub(super) fn new(about: About, what: impl Into<String>, why: impl Into<String>) -> Reason {
        Reason {
            about,
            concerns: Concerns::Both,
            is_everywhere: false,
            what: what.into(),
            why: why.into(),
            command: None,
        }
    }

    pub(super) fn cure(self, cure: Cure) -> Reason {
        Reason { command: Some(cure.to_string()), ..self }
    }

    pub(super) fn concerning(self, concerns: Concerns) -> Reason {
        Reason { concerns, ..self }
    }

    pub(super) fn everywhere(self) -> Reason {
        Reason { is_everywhere: true, ..self }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.command {
            Some(command) => write!(f, "; `{command}` changes it"),
            None => Ok(()),
        }
    }
}

/// Which packets a reason concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Concerns {
    /// Packets received by the interface.
    Ingress,
    /// Packets that would be transmitted by the interface.
    Egress,
    /// Both.
    Both,
}

impl Concerns {
    pub(super) fn has_ingress(self) -> bool {
        self != Concerns::Egress
    }

    pub(super) fn has_egress(self) -> bool {
        self != Concerns::Ingress
    }
}

/// What a reason or a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// The kernel is too old.
    KernelVersion,
    /// Privileges that are missing.
    Capabilities,
    /// A setting that could not be read.
    Unknown,
    /// A chain of nftables, or of legacy iptables.
    Netfilter,
    /// Addresses are translated.
    Nat,
    /// Connections are kept track of.
    Conntrack,
    /// The kernel's own fast path.
    FlowTable,
    /// IPsec.
    Xfrm,
    /// Rules of the routing policy.
    Rules,
    /// Filters and qdiscs of traffic control.
    TrafficControl,
    /// What kind of device it is, or its number.
    Device,
    /// The device belongs to a bridge, a bond or another device.
    Member,
    /// Other devices take packets from it.
    Parent,
    /// The device is down.
    Down,
    /// Forwarding is off.
    Forwarding,
    /// Routes that wrap packets.
    Encapsulation,
    /// How ways of a multipath route are chosen.
    Multipath,
    /// The source address is checked.
    ReversePath,
    /// Other BPF programs on the interface.
    Programs,
    /// Next-hop objects.
    NextHops,
    /// Packets that are too long for another interface.
    Mtu,
    /// Receive queues.
    Queues,
    /// What the device does for the kernel.
    Offloads,
    /// What its driver can do with XDP.
    Driver,
}

impl About {
    /// The name under which it can be overridden.
    pub fn bypass(self) -> Option<&'static str> {
        matches!(self, About::Netfilter | About::Nat | About::Conntrack).then_some(NETFILTER)
    }
}

impl fmt::Display for About {
    /// The word that JSON has, too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What is overridden, by name: packets that we forward skip it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bypass {
    /// Chains, NAT and connection tracking.
    pub netfilter: bool,
}

impl Bypass {
    /// Those of these names.
    pub fn named<S: AsRef<str>>(names: &[S]) -> Result<Bypass, UnknownBypass> {
        let mut bypass = Bypass::default();
        for name in names {
            match name.as_ref() {
                NETFILTER => bypass.netfilter = true,
                other => return Err(UnknownBypass(other.into())),
            }
        }
        Ok(bypass)
    }

    /// The names of those that are overridden.
    pub fn names(self) -> Vec<String> {
        if self.netfilter { vec![NETFILTER.into()] } else { Vec::new() }
    }

    pub(super) fn covers(self, about: About) -> bool {
        self.netfilter && about.bypass() == Some(NETFILTER)
    }
}

/// Nothing of this name can be overridden.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be bypassed; use {name:?}", name = NETFILTER)]
pub struct UnknownBypass(pub String);

/// The only name.
const NETFILTER: &str = "netfilter";
