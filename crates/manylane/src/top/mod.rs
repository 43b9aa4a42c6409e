//! `manylane top`: live rates of a daemon in a terminal.
//!
//! | file     | content                                                                    |
//! |----------|----------------------------------------------------------------------------|
//! | `sample` | `Sampler`: a thread that queries the daemon at each interval               |
//! | `flows`  | the flows of a sample of packets                                           |
//! | `panes`  | two answers as tables of rates, for either kind of daemon                  |
//! | `flow_panes` | the tables of flows, and of connections that the kernel forwards       |
//! | `detail` | one flow: its forwarder, and what keeps it in the kernel                   |
//! | `view`   | `View`: the operator's choices: pane, order, zoom                          |
//! | `draw`   | draws the view in the cells of a terminal                                  |
//!
//! Three threads send to this one: the keyboard's, the sampler's, and the signals'. A pause stops the queries.

mod detail;
mod draw;
mod flow_panes;
mod flows;
mod panes;
mod sample;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::terminal::{SOCKET, USAGE, complain};
use detail::Picked;
use manylane_api::DEFAULT_SOCKET;
use manylane_api::accelerate::Why;
use manylane_api::{Client, ClientError};
use sample::{Sample, Sampler, Watched};
use view::{View, Wish};

/// The options of `manylane top`.
#[derive(Debug, Args)]
pub struct TopOptions {
    /// Seconds between updates
    #[arg(short = 'n', long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

/// An event for the main thread.
enum Happening {
    Input(Event),
    /// The daemon's answer. The view shows an error, and the sampler tries again.
    Answer(Result<Sample, ClientError>),
    /// What the daemon says of a flow.
    Why(Picked, Box<Result<Why, String>>),
    Signal,
    /// The terminal's input ended.
    InputEnded(io::Error),
}

/// Shows the view until the operator quits.
pub fn run(options: &TopOptions) -> ExitCode {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        complain(
            &"error: `manylane top` needs a terminal; `manylane show ports --watch`, also with `--json`, needs none",
        );
        return USAGE.into();
    }
    let first = match sample::take(&Client::new(&options.socket), &Watched::default()) {
        Ok(sample) => sample,
        Err(error) => {
            complain(&format_args!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match show(options, first) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn show(options: &TopOptions, first: Sample) -> Result<(), Failure> {
    let (sender, happenings) = mpsc::channel();
    watch_signals(sender.clone())?;
    let interval = Duration::from_secs_f64(options.interval);
    let sampler =
        Sampler::start(&options.socket, interval, sender.clone()).map_err(Failure::Start)?;
    let mut terminal = ratatui::try_init().map_err(Failure::Terminal)?;
    let outcome = watch_keys(sender)
        .and_then(|()| follow(&mut terminal, &happenings, &sampler, View::new(first, interval)));
    ratatui::try_restore().map_err(Failure::Terminal)?;
    outcome
}

fn follow(
    terminal: &mut DefaultTerminal,
    happenings: &Receiver<Happening>,
    sampler: &Sampler,
    mut view: View,
) -> Result<(), Failure> {
    loop {
        terminal.draw(|frame| draw::draw(frame, &mut view)).map_err(Failure::Terminal)?;
        // The sampler has a sender for as long as it is there.
        let Ok(happening) = happenings.recv() else { return Ok(()) };
        match happening {
            Happening::Input(event) => match view.input(&event) {
                Some(Wish::Quit) => return Ok(()),
                Some(Wish::Order(order)) => sampler.order(order),
                None => {}
            },
            Happening::Why(picked, why) => view.explain(&picked, *why),
            Happening::Answer(Ok(sample)) => view.add(sample),
            Happening::Answer(Err(error)) => view.trouble = Some(error.to_string()),
            Happening::Signal => return Ok(()),
            Happening::InputEnded(error) => return Err(Failure::Terminal(error)),
        }
    }
}

fn watch_keys(sender: Sender<Happening>) -> Result<(), Failure> {
    let watch = move || {
        loop {
            let (happening, is_over) = match event::read() {
                Ok(event) => (Happening::Input(event), false),
                Err(error) => (Happening::InputEnded(error), true),
            };
            if sender.send(happening).is_err() || is_over {
                return;
            }
        }
    };
    // This thread ends with the process: nothing wakes it from the terminal.
    thread::Builder::new().name("keys".into()).spawn(watch).map(drop).map_err(Failure::Start)
}

/// So that the terminal is left as it was.
fn watch_signals(sender: Sender<Happening>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Failure::Start)?;
    let watch = move || {
        if signals.forever().next().is_some() {
            let _ = sender.send(Happening::Signal); // Without a receiver it is over already.
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map(drop).map_err(Failure::Start)
}

/// Why it is over.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot start: {0}; end programs, or raise `ulimit -u` and `ulimit -n`")]
    Start(#[source] io::Error),
    #[error("cannot use the terminal: {0}; `manylane show ports --watch` needs none")]
    Terminal(#[source] io::Error),
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is a number of seconds".to_owned())?;
    let range = view::FASTEST.as_secs_f64()..=view::SLOWEST.as_secs_f64();
    match range.contains(&seconds) {
        true => Ok(seconds),
        false => Err(format!("{} to {} seconds are possible", range.start(), range.end())),
    }
}
