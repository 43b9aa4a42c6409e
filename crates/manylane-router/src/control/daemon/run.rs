//! `manylane run`: a daemon with its API, its signals and its service manager, until one of them ends it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Daemon, StartError, Threads, say, spawn};
use crate::config::{Config, Driver, Port, Version};
use crate::control::choose::choose;
use crate::control::open::silenced_addresses;
use crate::socket::remote::Listener;
use manylane_api::{self as api, Doors, Socket, Source};
use manylane_io::privilege::{Privileges, lacking_to_open};
use manylane_io::rights::pass_rights;
use manylane_io::service::{Look, Service};

/// `manylane run`: forwards until SIGINT or SIGTERM.
///
/// `file` is where the configuration came from, and `version` is it, before the command line changed anything.
pub fn run(
    mut config: Config,
    (file, version): (PathBuf, Version),
    socket: &Path,
    privileges: &Privileges,
) -> Result<(), StartError> {
    may_open(&config)?;
    // Before any port is opened: a second daemon must not disturb the first one's.
    config.socket = socket.to_owned();
    let socket = Socket::bind(socket).map_err(StartError::Api)?;
    let _ = pass_rights(&socket, false); // Older kernels do not know it.
    silenced_addresses(&config).iter().for_each(|silenced| say(&format!("warning: {silenced}")));
    let door = config.listen.open().map_err(StartError::Listen)?;
    let captures = Listener::bind(socket.path()).map_err(StartError::Api)?;
    let mut daemon = Daemon::start_then_drop_privileges(config, Some(privileges))?;
    daemon.listen(captures)?;
    daemon.status.started_with(file, version);
    let source = daemon.source();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("the API's runtime"))?;
    let mut signals = signal_hook::iterator::Signals::new(SIGNALS).map_err(system("signals"))?;
    let handle = signals.handle();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let waiter = spawn("signals", move || {
        signals.forever().next();
        // The receiver is gone only if the API has failed: then nothing is left to stop.
        let _ = stop.send(());
    })?;
    if let Some(address) = door.as_ref().and_then(|door| door.address().ok()) {
        say(&format!("the API answers at http://{address}/, too"));
    }
    say("forwarding; SIGINT or SIGTERM ends it");
    let threads = daemon.threads.clone();
    let look = look(daemon.source(), threads.clone());
    let service = Service::ready(look).map_err(system("a thread"))?;
    // A queue whose worker is gone is a black hole. Without this process, the kernel has the ports: `halt`
    // continues the panic.
    let served = runtime.block_on(api::serve(Doors::new(socket, door), source, async {
        tokio::select! {
            _ = stopped => {}
            () = threads.one_ended() => {}
        }
    }));
    drop(service);
    handle.close();
    let (ledger, failed) = daemon.halt();
    // The thread has returned, or returns now that the handle is closed.
    let _ = waiter.join();
    say(&format!(
        "received {}, transmitted {}, missing {}",
        ledger.received, ledger.transmitted, ledger.missing
    ));
    served.map_err(system("the API's listener"))?;
    failed.map_or(Ok(()), |error| Err(StartError::Capture(error)))
}

/// Whether this process may open the devices of its ports: said before any step of it is refused by the kernel.
fn may_open(config: &Config) -> Result<(), StartError> {
    let chosen = choose(config).map_err(StartError::Port)?;
    let takes_root = |port: &Port| match &port.driver {
        Driver::AfXdp(driver) => Some((port.name.clone(), driver.interface.clone())),
        Driver::AfPacket(driver) => Some((port.name.clone(), driver.interface.clone())),
        _ => None,
    };
    let Some((port, interface)) = chosen.ports.iter().find_map(takes_root) else { return Ok(()) };
    let missing = lacking_to_open().join(", ");
    if missing.is_empty() {
        return Ok(());
    }
    Err(StartError::Unprivileged { port, interface, missing })
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

/// For the service manager: progress means that all threads run and that the control thread releases its tables.
/// An idle worker sleeps, and proves nothing.
fn look(source: Arc<dyn Source>, threads: Threads) -> impl FnMut() -> Look + Send {
    let mut progress = 0;
    move || {
        let (routes, ports) = (source.routes().len(), source.ports());
        let up = ports.iter().filter(|port| port.link_up).count();
        progress += u64::from(threads.alive.strong_count() == threads.begun);
        let status = format!("forwarding; {up} of {} ports up, {routes} routes", ports.len());
        Look { status, progress }
    }
}

const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
