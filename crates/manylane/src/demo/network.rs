//! The demo's second act: manylane alone forwards what two kernels send to each other.

use std::thread;
use std::time::Duration;

use super::bar::spin;
use super::screen::Screen;
use super::stop::Stop;
use super::{DemoError, Ending, NotHere, conclude, live, traffic};
use manylane_lab::{Lab, LabOptions, RouterOptions};
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;

/// Makes the hosts, forwards between them for as long as `lasts`, and shows it.
pub(super) fn run(lasts: Duration, stop: &Stop, screen: &mut Screen) -> Result<Ending, NotHere> {
    stop.begin(None);
    let lab = spin("making three hosts", screen, || Lab::three_hosts(LabOptions::default()))?;
    // Traffic begins with the router: it does not first probe for seconds whether its addresses are its own.
    let more = "[neighbour]\nduplicate_detection = \"off\"\n".into();
    let options = RouterOptions { more, drivers: ["auto"; 2], ..RouterOptions::default() };
    let text = options.text();
    let parse = move || Config::parse(&text, "lab.toml", &Environment::of_this_thread());
    let config = lab.router.run(parse).map_err(DemoError::Config)?;
    let start = || lab.router.run(move || Daemon::start(config));
    let daemon = spin("starting the router", screen, start)?;

    screen.say(INTRODUCTION);
    let source = daemon.source();
    stop.begin(Some(lasts));
    let tally = thread::scope(|scope| {
        let tally = scope.spawn(|| traffic::drive(&lab, stop));
        live::show("manylane run", source.as_ref(), stop, screen);
        spin("ending connections", screen, || tally.join().expect("traffic reports its errors"))
    });
    let ledger = lab.router.run(move || daemon.stop());

    screen.say(&format!("\n{}", tally.table()));
    Ok(conclude(tally.faults(), &ledger, stop, screen)?)
}

const INTRODUCTION: &str = "
Second act: `manylane run` replaces the kernel's routing. Three hosts; the one in
the middle forwards by the driver that `auto` chooses for each port. Client and
server exchange pings, UDP and TCP over IPv4 and IPv6, and compare every byte.
";
