//! The demo between three hosts: manylane forwards, by AF_XDP, what two kernels send to each other.

use std::thread;
use std::time::Duration;

use super::screen::Screen;
use super::stop::Stop;
use super::{DemoError, Ending, NotHere, conclude, live, traffic};
use crate::control::Daemon;
use crate::lab::{Lab, LabOptions, RouterOptions};

/// Makes the hosts, forwards between them for as long as `lasts`, and shows it.
pub(super) fn run(lasts: Duration, screen: &mut Screen) -> Result<Ending, NotHere> {
    let lab = Lab::three_hosts(LabOptions::default())?;
    // Traffic begins with the router: it does not first ask for seconds whether its addresses are its own.
    let more = "[neighbour]\nduplicate_detection = \"off\"\n".into();
    let options = RouterOptions { more, ..RouterOptions::default() };
    let config = lab.config(&options).map_err(DemoError::Config)?;
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
