//! The demo between three hosts: manylane forwards, by AF_XDP, what two kernels send to each other.

use std::thread;
use std::time::Duration;

use super::screen::Screen;
use super::stop::Stop;
use super::{DemoError, Ending, NotHere, conclude, live, traffic};
use manylane_lab::{Lab, LabOptions, RouterOptions};
use manylane_router::config::{Config, Environment};
use manylane_router::control::Daemon;

/// Makes the hosts, forwards between them for as long as `lasts`, and shows it.
pub(super) fn run(lasts: Duration, screen: &mut Screen) -> Result<Ending, NotHere> {
    let lab = Lab::three_hosts(LabOptions::default())?;
    // Traffic begins with the router: it does not first ask for seconds whether its addresses are its own.
    let more = "[neighbour]\nduplicate_detection = \"off\"\n".into();
    let options = RouterOptions { more, ..RouterOptions::default() };
    let text = options.text();
    let parse = move || Config::parse(&text, "lab.toml", &Environment::of_this_thread());
    let config = lab.router.run(parse).map_err(DemoError::Config)?;
    let daemon = lab.router.run(move || Daemon::start(config))?;

    screen.say(INTRODUCTION);
    let source = daemon.source();
    let stop = Stop::after(lasts).map_err(DemoError::Signals)?;
    let tally = thread::scope(|scope| {
        let tally = scope.spawn(|| traffic::drive(&lab, &stop));
        live::show("manylane demo", source.as_ref(), &stop, screen);
        tally.join().expect("traffic reports its errors")
    });
    let ledger = lab.router.run(move || daemon.stop());

    screen.say(&format!("\n{}", tally.table()));
    Ok(conclude(tally.faults(), &ledger, &stop, screen)?)
}

const INTRODUCTION: &str = "\
Three hosts on this machine, each with its own kernel's network stack; manylane is the one in the
middle, by AF_XDP on two veth links. Client and server ping, stream UDP and transfer by TCP,
IPv4 and IPv6. Nothing stays behind. Ctrl-C ends it.
";
