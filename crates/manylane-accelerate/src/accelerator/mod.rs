//! `manylane accelerate`: packets that this machine's kernel would only route are forwarded by a program at their
//! ingress. The kernel keeps its interfaces, addresses and routes; everything else reaches it as before.
//!
//! [`Accelerator::start`] takes the interfaces of the calling thread's network namespace, and
//! [`Accelerator::stop`] gives them back. Nothing is left behind, however the process ends.
//!
//! | Thread    | File         | What it does                                                                        |
//! |-----------|--------------|-------------------------------------------------------------------------------------|
//! | `mirror`  | `thread.rs`  | hears the kernel and the gate, alone writes the tables, alone stamps the lease       |
//! | `reclaim` | `reclaim.rs` | waits for the programs, so that what was taken out of the tables can be used again   |
//! | `api`     | `serve.rs`   | answers `manylane show`, if it has a socket                                          |
//! | `sflow`    | `sflow/`     | sends samples and counters to collectors, with `--sflow` or `--ipfix-sampling` |
//! | `captures` | `captures.rs` | opens captures for other processes, if it has a socket                           |
//! | `socket_manager`, `worker N` | `worker/` | forward what goes up to them, if a port is theirs                            |
//!
//! | File        | Holds                                                                                     |
//! |-------------|-------------------------------------------------------------------------------------------|
//! | `lease.rs`  | until when packets may be forwarded by the tables: a pure function of what is known       |
//! | `ports.rs`  | the interfaces: numbers, flags, the program on each                                       |
//! | `tiers.rs`  | the driver tier: what is chosen, what may be, what has proven itself                      |
//! | `sockets.rs` | the worker tier: whose sockets are wanted, being opened, open                            |
//! | `tables.rs` | reading all of the kernel's tables, without letting go of lease and gate meanwhile        |
//! | `published.rs`  | what the API shows, from what the mirror thread leaves for it and the programs count      |
//! | `export.rs` | collectors: the exporter's thread, and that of the log of translations                    |
//! | `ledger.rs` | counters as sums that have to add up                                                      |
//! | `flows.rs`  | which flows pass, by a sample                                                             |
//! | `tracked.rs` | connections that are forwarded one by one: pages of the table, its comparison with conntrack |
//! | `kernel_flows.rs` | connections that the kernel forwards, and what keeps each there: pages of conntrack's list |
//! | `log.rs`    | what is said of interfaces on standard error                                              |
//! | `settings.rs` | settings that change while it runs                                                       |
//! | `unseen.rs` | how long no program was on an interface: the part of the time that the counters lack      |
//! | `why.rs`    | what would become of a packet                                                             |
//! | `kernel_way.rs` | what the kernel would do with the packet: rules, route, neighbour                     |
//! | `lock.rs`   | one in a network namespace                                                                |
//!
//! # How it ends
//!
//! | What happens                       | What ends forwarding                                             | When                    |
//! |------------------------------------|------------------------------------------------------------------|-------------------------|
//! | [`Accelerator::stop`], SIGTERM     | the programs are taken off first                                 | at once                 |
//! | a panic, an abort, a fault         | a handler takes them off first ([`manylane_io::fatal`])          | at once                 |
//! | SIGKILL                            | the kernel closes the links                                      | when memory is given back |
//! | SIGSTOP, a thread that hangs       | the lease lapses                                                 | after `lease`           |
//! | messages of the kernel are lost    | the lease, unless all is read again by then                      | after `stale_limit`     |
//!
//! Elsewhere: the program is `manylane-io`'s `bpf::fast`, its tables `manylane-net`'s `transit`; what the kernel says
//! becomes edits of them in `mirror`; what may be accelerated at all is `gate`'s.

mod captures;
mod checksums;
mod error;
mod export;
mod flows;
mod guard;
mod interface;
mod kernel_flows;
mod kernel_way;
mod lease;
mod ledger;
mod lock;
mod log;
mod moves;
mod ports;
mod published;
mod reclaim;
mod serve;
mod settings;
mod sflow;
mod sockets;
mod tables;
#[cfg(test)]
mod tests;
mod thread;
mod tier_reasons;
mod tiers;
mod tracked;
mod unseen;
mod waits;
mod why;
mod worker;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use manylane_io::affinity;
use manylane_io::eventfd::EventFd;
use manylane_io::interface_lock::InterfaceLocks;
use manylane_io::netlink::Netlink;
use manylane_sync::doorbell::Wake;

pub use error::AccelerateError;
pub use export::{IPFIX_ACTIVE, IPFIX_INACTIVE, IpfixOptions};
pub use lease::{Lease, Tables};
pub use lock::LockError;
pub use manylane_export::sflow::SflowOptions;
pub use manylane_net::transit::flows::FLOWS_MAX;

use crate::gate::{self, Bypass, Gate, Standing, Terms, Tier};
use captures::{Captures, Listener};
use manylane_api::accelerate::{Accelerated, AcceleratedLedger};
use manylane_api::{Doors, Listen, Socket};
use manylane_io::privilege::Privileges;
use manylane_io::rights::pass_rights;
use published::Published;
use serve::ApiThread;
use sflow::Exporter;
pub use worker::reason_of;

/// What to accelerate, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The interfaces, by name.
    pub interfaces: Vec<String>,
    /// Whether an interface may be missing at the start: the accelerator takes it up when it appears.
    pub waits: bool,
    /// What the gate is to overlook.
    pub bypass: Bypass,
    /// Room for connections, which are forwarded one by one where all packets of a family meet rules. With 0, rules keep
    /// every port in the kernel.
    pub flows: usize,
    /// Whether a rule that counts packets of a connection keeps it in the kernel, since its counters would stand still.
    pub exact_counters: bool,
    /// Where flow records go; only with room for connections.
    pub ipfix: IpfixOptions,
    /// The tier that forwards.
    pub tier: TierChoice,
    /// The tiers of single interfaces, in place of `tier`.
    pub port_tiers: BTreeMap<String, TierChoice>,
    /// How long packets are forwarded by tables after they were known to be true.
    pub lease: Duration,
    /// How long packets are forwarded by tables that are known to be behind.
    pub stale_limit: Duration,
    /// Room for routes.
    pub routes: RouteRoom,
    /// Workers, for the ports that are to be theirs; by the number of cores without.
    pub workers: Option<usize>,
    /// Cores that they run on, in turn; any without.
    pub worker_cores: Vec<usize>,
    /// Where samples of packets are sent; nowhere without.
    pub sflow: Option<SflowOptions>,
    /// Where its API listens; it has none without.
    pub socket: Option<PathBuf>,
    /// Where it listens by TCP besides; only with a socket.
    pub listen: Listen,
    /// Whether it says on standard error what becomes of interfaces.
    pub speaks: bool,
    /// What the whole process gives up before it begins; nothing without.
    pub privileges: Option<Privileges>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            interfaces: Vec::new(),
            waits: false,
            bypass: Bypass::default(),
            flows: FLOWS,
            exact_counters: false,
            ipfix: IpfixOptions::default(),
            tier: TierChoice::Auto,
            port_tiers: BTreeMap::new(),
            lease: LEASE,
            stale_limit: STALE_LIMIT,
            routes: RouteRoom::default(),
            workers: None,
            worker_cores: Vec::new(),
            sflow: None,
            socket: None,
            listen: Listen::default(),
            speaks: false,
            privileges: None,
        }
    }
}

impl Options {
    /// For these interfaces.
    pub fn new<S: Into<String>>(interfaces: impl IntoIterator<Item = S>) -> Options {
        let interfaces = interfaces.into_iter().map(Into::into).collect();
        Options { interfaces, ..Options::default() }
    }

    /// Whether connections are forwarded one by one.
    pub fn is_stateful(&self) -> bool {
        self.flows > 0
    }

    /// The tier chosen for an interface.
    pub fn tier_of(&self, interface: &str) -> TierChoice {
        self.port_tiers.get(interface).copied().unwrap_or(self.tier)
    }
}

/// Room for connections: 29 MB.
pub const FLOWS: usize = 1 << 17;
/// How long packets are forwarded by tables after they were known to be true.
pub const LEASE: Duration = Duration::from_millis(200);
/// How long packets are forwarded by tables that are known to be behind.
pub const STALE_LIMIT: Duration = Duration::from_secs(2);

/// The tier that forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TierChoice {
    /// The fastest that an interface can have.
    #[default]
    Auto,
    /// Our program at tcx ingress.
    Ingress,
    /// Our program in the driver (XDP), where it can be; else that at tcx.
    Driver,
    /// Threads of ours, by AF_XDP sockets, where they can be; else the program at tcx. By name only.
    Workers,
    /// The kernel: nothing is accelerated, and all is published.
    Kernel,
}

impl TierChoice {
    /// All of them.
    pub const ALL: [TierChoice; 5] = [
        TierChoice::Auto,
        TierChoice::Ingress,
        TierChoice::Driver,
        TierChoice::Workers,
        TierChoice::Kernel,
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<TierChoice> {
        TierChoice::ALL.into_iter().find(|choice| choice.name() == name)
    }

    /// What it means, for the operator.
    pub fn meaning(self) -> &'static str {
        match self {
            TierChoice::Auto => "The fastest that an interface can have",
            TierChoice::Ingress => "Our program where the kernel receives packets (tcx)",
            TierChoice::Driver => {
                "Our program in the driver (XDP), where it can be; else the one at tcx"
            }
            TierChoice::Workers => {
                "Threads of ours, by AF_XDP sockets, where they can be; else the program at tcx. By name only"
            }
            TierChoice::Kernel => "The kernel: nothing is accelerated, and all is shown",
        }
    }

    /// As the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            TierChoice::Auto => "auto",
            TierChoice::Ingress => "ingress",
            TierChoice::Driver => "driver",
            TierChoice::Workers => "workers",
            TierChoice::Kernel => "kernel",
        }
    }
}

/// Room for routes. IPv4 routes up to /24 take none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRoom {
    /// IPv4 routes longer than /24.
    pub long_ipv4: usize,
    /// IPv6 routes.
    pub ipv6: usize,
}

impl Default for RouteRoom {
    fn default() -> RouteRoom {
        // The Internet has 0.25 million IPv6 routes, which take less than half of what they may, and 40,000 of the
        // former. Tables of routes together are 42 MB.
        RouteRoom { long_ipv4: 1 << 17, ipv6: 1 << 17 }
    }
}

/// Forwards until it is stopped or dropped.
pub struct Accelerator {
    thread: Option<JoinHandle<()>>,
    published: Arc<Published>,
    doorbell: Arc<EventFd>,
    serve: Option<ApiThread>,
    exporter: Option<Exporter>,
    captures: Option<Captures>,
}

impl Accelerator {
    /// Accelerates interfaces of the calling thread's network namespace. When this returns, those that may be are.
    pub fn start(options: Options) -> Result<Accelerator, AccelerateError> {
        // Said before the kernel refuses a step on the way there.
        let missing = gate::missing_capabilities().join(", ");
        if !missing.is_empty() {
            return Err(AccelerateError::Unprivileged { interfaces: options.interfaces, missing });
        }
        let folder = options.socket.as_deref().and_then(|socket| socket.parent());
        let lock = lock::Lock::take(&options.interfaces, folder).map_err(AccelerateError::Lock)?;
        let locks = InterfaceLocks::open("manylane accelerate", folder);
        let locks = locks.map_err(AccelerateError::InterfaceLock)?;
        let socket = options.socket.as_deref().map(Socket::bind).transpose();
        let socket = socket.map_err(AccelerateError::Api)?;
        // Older kernels do not know it.
        let _ = socket.as_ref().map(|socket| pass_rights(socket, false));
        let listener = options.socket.as_deref().map(Listener::bind).transpose();
        let listener = listener.map_err(AccelerateError::Api)?;
        let door = options.listen.open().map_err(AccelerateError::Listen)?;
        if let Some(address) = door.as_ref().and_then(|door| door.address().ok())
            && options.speaks
        {
            // Without a standard error the message has no reader.
            let line = format!("manylane: the API answers at http://{address}/, too\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
        // Locks and socket may need root for their folder; what is left needs what is kept, also later on.
        let privileges = options.privileges.as_ref();
        privileges.map_or(Ok(()), Privileges::narrow).map_err(AccelerateError::Privilege)?;
        let doorbell = EventFd::open().map_err(refused("an event descriptor"))?;
        let doorbell = Arc::new(doorbell);
        let (begun, begins) = sync_channel(1);
        let own = doorbell.clone();
        let thread = Builder::new().name("mirror".into()).spawn(move || {
            // In the thread: what it opens is its own, and it is in the same namespace.
            match thread::Thread::start(options, locks, own) {
                Ok(mut thread) => {
                    let published = thread.published();
                    // If the starting thread has gone, the doorbell has been rung for the end.
                    let _ = begun.send(Ok(published));
                    thread.run();
                }
                Err(error) => drop(begun.send(Err(error))),
            }
            drop(lock); // Behind everything else that the thread had.
        });
        let thread = thread.map_err(refused("a thread"))?;
        let published = match begins.recv() {
            Ok(Ok(published)) => published,
            Ok(Err(error)) => {
                let _ = thread.join();
                return Err(error);
            }
            Err(_) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("it says how it began before it ends"),
            },
        };
        let mut accelerator = Accelerator {
            thread: Some(thread),
            published,
            doorbell,
            serve: None,
            exporter: None,
            captures: None,
        };
        if let Some(state) = accelerator.published.sflow.clone() {
            let netlink = Netlink::open().map_err(AccelerateError::Netlink)?;
            let exporter = Exporter::start(accelerator.published.clone(), state, netlink);
            accelerator.exporter = Some(exporter.map_err(refused("a thread"))?);
        }
        accelerator.listen(socket.map(|socket| Doors::new(socket, door)), listener)?;
        Ok(accelerator)
    }

    /// Serves the API, and captures.
    fn listen(
        &mut self,
        doors: Option<Doors>,
        listener: Option<Listener>,
    ) -> Result<(), AccelerateError> {
        if let Some(doors) = doors {
            let serve = ApiThread::start(doors, self.source());
            self.serve = Some(serve.map_err(refused("a thread"))?);
        }
        if let Some(listener) = listener {
            let captures = Captures::start(listener, self.published.clone());
            self.captures = Some(captures.map_err(refused("a thread"))?);
        }
        Ok(())
    }

    /// What the API shows.
    pub fn source(&self) -> Arc<dyn Accelerated> {
        self.published.clone()
    }

    /// Whether it still does what it is to do: its thread has not ended in a panic.
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Gives the interfaces back to the kernel, and says where everything went.
    pub fn stop(mut self) -> AcceleratedLedger {
        self.halt();
        self.published.ledger()
    }

    fn halt(&mut self) {
        self.captures = None;
        self.published.end();
        self.doorbell.wake();
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
        self.serve = None;
        // What programs have noted until their end is sent.
        self.exporter = None;
    }
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        self.halt();
    }
}

/// What would become of these interfaces of the calling thread's network namespace: nothing is changed.
pub fn examine(options: &Options) -> Result<Vec<Standing>, AccelerateError> {
    tables::check_names(&options.interfaces)?;
    tables::check_tiers(options)?;
    tables::check_workers(options)?;
    let mut gate = Gate::open(gate::programs_of_others()).map_err(AccelerateError::Gate)?;
    let kernel = gate::Kernel::read().map_err(AccelerateError::Gate)?;
    if !options.waits {
        tables::all_there(&kernel.links, &options.interfaces)?;
    }
    let terms = Terms { bypass: options.bypass, stateful: options.is_stateful() };
    let judgement = gate.evaluate(&kernel, &options.interfaces, terms);
    let mut standings = judgement.map_err(AccelerateError::Gate)?.standings;
    let missing = options.interfaces.iter().filter(|name| kernel.link(name).is_none());
    standings.extend(missing.map(|name| Standing::missing(name)));
    for standing in &mut standings {
        let choice = options.tier_of(&standing.interface);
        let plan = tiers::plan(choice, standing);
        standing.notes.extend(tier_reasons::warning(choice, &standing.driver));
        standing.tier = match standing.is_ingress && choice != TierChoice::Kernel {
            false => Tier::Kernel,
            true if plan.ingress && plan.workers => Tier::Workers,
            true if plan.ingress => Tier::Driver,
            true => Tier::Ingress,
        };
    }
    Ok(standings)
}

/// The number of workers, and their cores.
fn worker_options(options: &Options) -> worker::WorkerOptions {
    // If the kernel does not list cores, one is assumed.
    let cores = affinity::cores().map_or(1, |cores| cores.len());
    worker::WorkerOptions {
        workers: options.workers.unwrap_or_else(|| worker::by_default(cores)),
        cores: options.worker_cores.clone(),
        interfaces: options.interfaces.clone(),
        limit: options.lease,
    }
}

fn refused(what: &'static str) -> impl Fn(io::Error) -> AccelerateError {
    move |source| AccelerateError::System { what, source }
}

/// As the API has it.
fn reason(reason: &gate::Reason) -> manylane_api::accelerate::ReasonStatus {
    manylane_api::accelerate::ReasonStatus {
        what: reason.what.clone(),
        why: reason.why.clone(),
        command: reason.command.clone().unwrap_or_default(),
    }
}
