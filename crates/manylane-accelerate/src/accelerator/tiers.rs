//! The tiers: which of the places where packets are forwarded serves a port, as chosen, as the gate says, and as
//! devices prove.
//!
//! A port in the driver tier has both programs. What the one in the driver does not forward comes to the one at tcx;
//! so a port goes from one tier to the other by a flag of its record, packet by packet, and nothing is lost.
//!
//! | State of one direction | Event                              | Next      | Why                                       |
//! |------------------------|------------------------------------|-----------|-------------------------------------------|
//! | at tcx                 | it is chosen, the gate agrees      | waits     | frames may still stand in the egress ports' queues |
//! | waits                  | they stand empty                   | in driver | a frame straight to the device overtakes none |
//! | any                    | it is chosen no more, the gate objects, link down | at tcx | at once: the device's ingress goes first |
//! | out, in driver         | the device refuses frames          | refused   | it said that it takes them, and lost some |
//! | refused                | a message about link, features, channels | waits | it may have been repaired             |
//! | in, in driver          | many packets with open checksums   | partial   | the driver would send them so (`checksums.rs`) |
//! | partial                | a message about the link, the operator's word | waits | the peer may have changed        |
//!
//! The worker tier has the same states and the same program; its ports have sockets besides (`sockets.rs`), which are
//! there before it is entered, and gone before another is.
//!
//! The program itself stops at the first flush that fails (`flush.bpf.c`); here that is found within a heartbeat.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use crate::programs::{Driver, DriverCounters, Failure, IngressProgram, Link as Attachment};
use manylane_io::fatal::DetachOnCrash;
use manylane_io::interface::Interface;
use manylane_io::netlink::Netlink;

use super::TierChoice;
use super::checksums::Checksums;
use super::ports::Port;
use super::sockets::{Sockets, WorkerContext, WorkerTier};
use crate::gate::{Reason, Standing};

/// What the ports have in common.
pub(super) struct Tiers {
    /// Loaded when it is first wanted.
    driver: Option<Result<Driver, String>>,
    /// For the API.
    counters: Arc<OnceLock<DriverCounters>>,
    /// The workers, from the first port on that is to be theirs.
    worker_tier: WorkerTier,
}

/// What one port has of the driver tier.
#[derive(Default)]
pub(super) struct InDriver {
    /// What is wanted, and may be.
    pub plan: Plan,
    /// Received packets are forwarded in the driver.
    pub ingress: bool,
    /// Frames leave by being redirected to its driver.
    pub egress: bool,
    /// The program in its driver.
    pub program: Option<Program>,
    /// Why that is not there, though it should be.
    pub trouble: Option<String>,
    /// The device refused frames.
    pub failure: Option<Failure>,
    /// Received packets with open checksums.
    pub checksums: Checksums,
    /// Workers do both of these: they receive the frames, and send them.
    pub by_workers: bool,
    /// Workers' sockets.
    pub sockets: Sockets,
}

/// Our program in a driver, detached on drop.
pub(super) struct Program {
    /// First: it may not outlive the descriptor.
    _first: Option<DetachOnCrash>,
    _link: Attachment,
    index: u32,
    /// Receive queues before it came: some devices add some for it.
    queues: u32,
    /// Which of the two.
    pieces: bool,
}

impl Program {
    /// How many receive queues the interface had before it came.
    pub fn queues(&self) -> u32 {
        self.queues
    }
}

/// The tier of each direction, by the operator's choice and the gate's judgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Forward received packets in the driver.
    pub ingress: bool,
    /// What leaves, by its driver.
    pub egress: bool,
    /// Also what is in several pieces of memory.
    pub pieces: bool,
    /// Both by workers.
    pub workers: bool,
    /// Why so, or why not.
    pub reasons: Vec<Reason>,
}

/// What a choice comes to for an interface that stands so.
pub(super) fn plan(choice: TierChoice, standing: &Standing) -> Plan {
    let driver = &standing.driver;
    let by_name = match choice {
        TierChoice::Kernel | TierChoice::Ingress => return Plan::default(),
        TierChoice::Workers => return plan_workers(standing),
        TierChoice::Driver => true,
        TierChoice::Auto => false,
    };
    if !by_name && !driver.auto.is_empty() {
        return Plan { reasons: driver.auto.clone(), ..Plan::default() };
    }
    Plan {
        ingress: standing.is_ingress && driver.ingress.is_empty(),
        egress: standing.is_egress && driver.egress.is_empty(),
        pieces: driver.takes_pieces,
        workers: false,
        reasons: driver.ingress.iter().chain(&driver.egress).cloned().collect(),
    }
}

/// What is sent by a socket needs no driver that takes redirected frames; the rest is alike.
fn plan_workers(standing: &Standing) -> Plan {
    let driver = &standing.driver;
    let may = driver.sockets.is_empty();
    Plan {
        ingress: may && standing.is_ingress && driver.ingress.is_empty(),
        egress: may && standing.is_egress && driver.sends.is_empty(),
        pieces: false,
        workers: true,
        reasons: driver
            .sockets
            .iter()
            .chain(&driver.ingress)
            .chain(&driver.sends)
            .cloned()
            .collect(),
    }
}

impl Tiers {
    /// Without any program yet. What it will count is left in `counters`; workers are made of `worker_context`.
    pub fn new(counters: Arc<OnceLock<DriverCounters>>, worker_context: WorkerContext) -> Tiers {
        Tiers { driver: None, counters, worker_tier: WorkerTier::new(worker_context) }
    }

    /// The operator has added an interface, whose sockets workers may open.
    pub fn add_interface(&mut self, name: &str) {
        self.worker_tier.add_interface(name);
    }

    /// Hears what has become of sockets. True when something has.
    pub fn receive_reports(&mut self, ports: &mut [Port]) -> bool {
        self.worker_tier.receive_reports(ports)
    }

    /// Has sockets opened and closed, as is planned and as the tables say by now. True when something has changed.
    pub fn open_and_close_sockets(&mut self, fast: &IngressProgram, ports: &mut [Port]) -> bool {
        let Some(Ok(driver)) = &mut self.driver else { return false };
        self.worker_tier.open_and_close(fast, driver, ports)
    }

    /// Ends the workers. No port is theirs any more.
    pub fn end_workers(&mut self) {
        self.worker_tier.end_workers();
    }

    /// The programs, if they are loaded.
    pub fn driver(&self) -> Option<&Driver> {
        self.driver.as_ref()?.as_ref().ok()
    }

    /// Puts the program into the driver of the port at `place`, or takes it off, as it is planned; nothing is forwarded by
    /// that alone. Says whether what is shown of the port has changed; `None` when nothing was to be done.
    pub fn attach(
        &mut self,
        place: usize,
        fast: &IngressProgram,
        ports: &mut [Port],
    ) -> Option<bool> {
        if ports.iter().any(|port| port.driver.plan.ingress || port.driver.plan.egress) {
            self.load(fast);
        }
        // A device may take redirected frames only when it has a program; a veth says beforehand whether it does. Where
        // none takes any, a program in the driver would cost TCP its segments and forward nothing.
        let goes = ports.iter().any(|port| !port.is_veth || port.driver.plan.egress);
        let port = &mut ports[place];
        // The frames' own memory decides, before any program sees them. A veth's peer may have another MTU than the port:
        // with the other program the kernel would refuse the peer one above 3506.
        let pieces = port.is_veth || port.mtu > WHOLE_MAX;
        let plan = &port.driver.plan;
        // One that leaves all packets to ingress would cost TCP the segments of a veth's peer.
        let takes_some = port.driver.checksums.found().is_none();
        let wanted = port.is_attached() && plan.ingress && takes_some && (goes || plan.workers);
        let present = port.driver.program.as_ref();
        let fits = present.is_some_and(|program| {
            wanted && Some(program.index) == port.index && program.pieces == pieces
        });
        let is_taken_off = present.is_some() && !fits;
        if is_taken_off {
            port.driver.program = None;
        }
        if !wanted || fits {
            if !wanted {
                port.driver.trouble = None;
            }
            return is_taken_off.then_some(true);
        }
        let attached = match self.driver.as_ref()? {
            Ok(driver) => attach(driver, &port.name, pieces),
            Err(trouble) => Err(trouble.clone()),
        };
        let (program, trouble) = match attached {
            Ok(program) => (Some(program), None),
            Err(trouble) => (None, Some(trouble)),
        };
        let changed = is_taken_off || program.is_some() || port.driver.trouble != trouble;
        (port.driver.program, port.driver.trouble) = (program, trouble);
        Some(changed)
    }

    /// Looks which devices have refused frames. True when one has that was trusted.
    pub fn check_failures(&mut self, ports: &mut [Port]) -> bool {
        let Some(Ok(driver)) = &self.driver else { return false };
        let mut changed = false;
        for port in ports {
            let failure = driver.failure(port.number);
            changed |= failure.is_some() && port.driver.failure.is_none();
            port.driver.failure = failure;
        }
        changed
    }

    /// Looks which ports receive packets whose checksums are still to be filled in. True when one has too many.
    pub fn check_checksums(&mut self, ports: &mut [Port]) -> bool {
        let Some(Ok(driver)) = &self.driver else { return false };
        let counters = driver.counters();
        ports.iter_mut().fold(false, |changed, port| {
            port.driver.checksums.look(&counters.port(port.number)) | changed
        })
    }

    /// The interface of this number, or the port's setting, has changed: its packets may have other checksums now.
    pub fn forgive_checksums(&self, port: &mut Port) {
        let Some(Ok(driver)) = &self.driver else { return };
        port.driver.checksums.forgive(&driver.counters().port(port.number));
    }

    /// Something was said of the interface of this number, or of any: what it refused is forgiven.
    pub fn clear_failures(&mut self, ports: &mut [Port], index: Option<u32>) {
        let Some(Ok(driver)) = &mut self.driver else { return };
        for port in ports {
            let is_meant = index.is_none() || port.index == index;
            if is_meant && port.driver.failure.take().is_some() {
                driver.clear_failure(port.number);
            }
        }
    }

    /// What may be in the driver by now, and is not yet because frames may be overtaken.
    pub fn is_waiting(ports: &[Port]) -> bool {
        ports.iter().any(|port| {
            let driver = &port.driver;
            (driver.may_use_ingress() && !driver.ingress)
                || (driver.may_use_egress() && !driver.egress)
        })
    }

    /// Takes directions out of the driver tier that may not be in it any more, and those in whose egress ports' queues are
    /// empty. True when something has changed: it is to be written.
    pub fn move_directions(&mut self, ports: &mut [Port], netlink: &mut Netlink) -> bool {
        let before: Vec<_> =
            ports.iter().map(|port| (port.driver.ingress, port.driver.egress)).collect();
        for driver in ports.iter_mut().map(|port| &mut port.driver) {
            let is_as_planned = driver.by_workers == driver.plan.workers;
            driver.by_workers = driver.plan.workers;
            driver.ingress &= is_as_planned && driver.may_use_ingress();
            driver.egress &= is_as_planned && driver.may_use_egress();
        }
        if Tiers::is_waiting(ports) {
            // Without statistics all stays as it is until the next look.
            let queued: BTreeMap<_, _> = match netlink.statistics() {
                Ok(all) => all.iter().map(|link| (link.index, link.queued)).collect(),
                Err(_) => return self.changed(&before, ports),
            };
            let is_empty = |port: &Port| {
                port.index.and_then(|index| queued.get(&index)).is_some_and(|&queued| queued == 0)
            };
            for port in ports.iter_mut() {
                port.driver.egress |= port.driver.may_use_egress() && is_empty(port);
            }
            // Received packets leave by any of these ports.
            let all_empty = ports.iter().filter(|port| port.driver.may_use_egress()).all(is_empty);
            for port in ports.iter_mut() {
                port.driver.ingress |= port.driver.may_use_ingress() && all_empty;
            }
        }
        self.changed(&before, ports)
    }

    fn changed(&self, before: &[(bool, bool)], ports: &[Port]) -> bool {
        let now = ports.iter().map(|port| (port.driver.ingress, port.driver.egress));
        before.iter().copied().ne(now)
    }

    fn load(&mut self, fast: &IngressProgram) {
        if self.driver.is_some() {
            return;
        }
        let driver = fast.driver().map_err(|error| error.to_string());
        let driver = driver.and_then(|driver| match driver.flush_error() {
            // Frames that a device refuses would be lost unseen.
            Some(error) => Err(format!("devices that refuse frames cannot be heard of: {error}")),
            None => Ok(driver),
        });
        if let Ok(driver) = &driver {
            // No other thread sets the counts, and once is enough.
            let _ = self.counters.set(driver.counters());
        }
        self.driver = Some(driver);
    }
}

impl InDriver {
    /// Whether the program is in its driver.
    pub fn is_attached(&self) -> bool {
        self.program.is_some()
    }

    /// Takes the program off.
    pub fn detach(&mut self) {
        (self.program, self.ingress, self.egress) = (None, false, false);
    }

    /// Another interface has the port's name, or none.
    pub fn forget(&mut self) {
        let mut sockets = std::mem::take(&mut self.sockets);
        sockets.forget();
        *self = InDriver { sockets, ..InDriver::default() };
    }

    /// Whether received packets may be forwarded in the driver, or by workers, by now.
    pub fn may_use_ingress(&self) -> bool {
        let is_complete = self.checksums.found().is_none();
        let has_program = self.program.is_some();
        self.plan.ingress && is_complete && has_program && self.has_sockets_as_planned()
    }

    /// Whether packets may leave so.
    pub fn may_use_egress(&self) -> bool {
        let is_trusted = self.plan.workers || self.failure.is_none();
        self.plan.egress && is_trusted && self.has_sockets_as_planned()
    }

    fn has_sockets_as_planned(&self) -> bool {
        if self.plan.workers { self.sockets.are_open() } else { self.sockets.are_gone() }
    }
}

fn attach(driver: &Driver, name: &str, pieces: bool) -> Result<Program, String> {
    let interface = Interface::read(name).map_err(|error| error.to_string())?;
    let link = driver.attach(&interface, pieces).map_err(|error| error.to_string())?;
    let first = DetachOnCrash::register(link.as_fd());
    let Interface { index, receive_queues: queues, .. } = interface;
    Ok(Program { _first: first, _link: link, index, queues, pieces })
}

/// The largest MTU with which every driver has a frame in one piece of memory: a page, less what is in front of and
/// behind it.
const WHOLE_MAX: u32 = 3000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{About, Concerns, DriverStanding, Tier};

    fn against(concerns: Concerns) -> Vec<Reason> {
        let what = "something".to_owned();
        let why = what.clone();
        vec![Reason {
            about: About::Driver,
            concerns,
            is_everywhere: false,
            what,
            why,
            command: None,
        }]
    }

    fn standing(driver: DriverStanding) -> Standing {
        Standing {
            interface: "lan".into(),
            index: 2,
            tier: Tier::Ingress,
            is_ingress: true,
            is_egress: true,
            link_up: true,
            reasons: Vec::new(),
            bypassed: Vec::new(),
            notes: Vec::new(),
            driver,
        }
    }

    #[test]
    fn each_direction_is_planned_by_choice_and_judgement() {
        let free = DriverStanding::default();
        let no_ingress = DriverStanding { ingress: against(Concerns::Ingress), ..free.clone() };
        let no_egress = DriverStanding { egress: against(Concerns::Egress), ..free.clone() };
        let software = DriverStanding { auto: against(Concerns::Both), ..free.clone() };
        let too_long = DriverStanding { sockets: against(Concerns::Both), ..free.clone() };
        let shaped = against(Concerns::Egress);
        let shaped = DriverStanding { egress: shaped.clone(), sends: shaped, ..free.clone() };
        use TierChoice::{Auto, Driver, Ingress, Kernel, Workers};
        for (choice, driver, wanted, reasons) in [
            (Auto, &free, [true, true], 0),
            (Driver, &free, [true, true], 0),
            (Ingress, &free, [false, false], 0),
            (Kernel, &free, [false, false], 0),
            (Auto, &no_ingress, [false, true], 1),
            (Driver, &no_egress, [true, false], 1),
            (Auto, &software, [false, false], 1),
            (Driver, &software, [true, true], 0),
            (Workers, &free, [true, true], 0),
            (Workers, &software, [true, true], 0),
            (Workers, &no_ingress, [false, true], 1),
            // A socket sends where nothing can be redirected to.
            (Workers, &no_egress, [true, true], 0),
            (Workers, &shaped, [true, false], 1),
            (Workers, &too_long, [false, false], 1),
        ] {
            let plan = plan(choice, &standing(driver.clone()));
            let said = (plan.ingress, plan.egress, plan.reasons.len());
            assert_eq!(plan.workers, choice == Workers);
            assert_eq!(said, (wanted[0], wanted[1], reasons), "{choice:?} {driver:?}");
        }
        let down = Standing { is_ingress: false, is_egress: false, ..standing(free) };
        assert_eq!(plan(Driver, &down), Plan::default(), "the gate comes first");
    }
}
