//! Another configuration while packets pass: all of it, or nothing.
//!
//! What a running daemon can change is a list of steps, each of them reversible: a setting, a static neighbour, a
//! static route. Steps are made one after the other; when one is refused, those before it are taken back in turn. What
//! wants a restart is refused before the first.
//!
//! A *trial* goes back by itself unless the operator confirms it: a change that locks the operator out undoes itself.
//! Nothing here writes to a disk: a daemon that is started anew runs by its file, and `manylane config save` writes
//! that.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use super::daemon::say;
use super::open::Bell;
use super::routing::{RETRY, Routing, RoutingError, is_busy};
use crate::config::{Config, Environment, Prefix, Route, StaticNeighbour, Version};
use manylane_api::{
    ApiError, ConfigApplied, ConfigChange, ConfigRefused, ConfigRequest, ConfigStatus, SetError,
};
use manylane_worker::Clock;

/// What the daemon runs by, and ran by before.
pub struct Transactions {
    routing: Arc<Mutex<Routing>>,
    /// The control thread's bell: that thread informs workers.
    control: Bell,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    file: PathBuf,
    running: Version,
    before: Option<Version>,
    trial: Option<Trial>,
    trials: u64,
}

struct Trial {
    number: u64,
    ends: Instant,
}

/// What changes a setting by its key.
pub type Set<'a> = dyn Fn(&str, &str) -> Result<(), SetError> + 'a;

/// One change, which can be made the other way round, too.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Setting { key: String, before: String, after: String },
    Neighbour { before: Option<StaticNeighbour>, after: Option<StaticNeighbour> },
    Route { before: Option<Route>, after: Option<Route> },
}

impl Transactions {
    /// Of a daemon that was started with this version of a file.
    pub fn new(
        file: PathBuf,
        running: Version,
        routing: Arc<Mutex<Routing>>,
        control: Bell,
        clock: Clock,
    ) -> Transactions {
        let state = State { file, running, before: None, trial: None, trials: 0 };
        Transactions { routing, control, clock, state: Mutex::new(state) }
    }

    /// What it runs by.
    pub fn status(&self) -> ConfigStatus {
        self.lock().status()
    }

    /// The on-link routes of what it runs by.
    pub fn routes(&self) -> Vec<Route> {
        self.lock().running.config.routes.clone()
    }

    /// What another one would change.
    pub fn diff(&self, request: &ConfigRequest) -> Result<Vec<ConfigChange>, ConfigRefused> {
        let to = parse(request)?;
        Ok(changes(&self.lock().running, &to))
    }

    /// Runs by another one from now on.
    pub fn apply(
        &self,
        request: &ConfigRequest,
        set: &Set<'_>,
    ) -> Result<ConfigApplied, ConfigRefused> {
        let to = parse(request)?;
        let within = match request.confirm_within_s {
            Some(seconds) if !(1.0..=TRIAL_S_MAX).contains(&seconds) => {
                return Err(ConfigRefused::Invalid(ApiError {
                    error: format!("a trial cannot last {seconds} s"),
                    help: format!("choose 1 to {TRIAL_S_MAX} seconds"),
                }));
            }
            within => within.map(Duration::from_secs_f64),
        };
        let mut state = self.lock();
        if state.trial.is_some() {
            return Err(conflict(
                "another configuration is on trial",
                "`manylane config confirm` keeps it, `manylane config rollback` goes back",
            ));
        }
        let changes = changes(&state.running, &to);
        if !state.running.needs_no_restart(&to) {
            return Err(needs_restart(&changes, &state.file));
        }
        self.go(&state.running.config, &to.config, set)?;
        let before = std::mem::replace(&mut state.running, to);
        state.before = Some(before);
        state.trials += u64::from(within.is_some());
        let number = state.trials;
        state.trial = within.map(|within| Trial { number, ends: Instant::now() + within });
        let trial = within.map(|_| number);
        Ok(ConfigApplied { changes, confirm_within_s: request.confirm_within_s, trial })
    }

    /// Ends a trial: it stays.
    pub fn confirm(&self) -> Result<ConfigStatus, ConfigRefused> {
        let mut state = self.lock();
        match state.trial.take() {
            Some(_) => Ok(state.status()),
            None => Err(conflict(
                "nothing is on trial",
                "`manylane config apply FILE --confirm-within 60s` begins a trial",
            )),
        }
    }

    /// Goes back to the one before.
    pub fn roll_back(&self, set: &Set<'_>) -> Result<ConfigStatus, ConfigRefused> {
        let mut state = self.lock();
        let Some(before) = state.before.take() else {
            return Err(conflict(
                "no configuration to go back to is known",
                "`manylane config apply FILE` applies one",
            ));
        };
        match self.go(&state.running.config, &before.config, set) {
            Ok(()) => {
                state.running = before;
                state.trial = None;
                Ok(state.status())
            }
            Err(error) => {
                state.before = Some(before);
                Err(error)
            }
        }
    }

    /// The time of this trial is over.
    pub fn lapse(&self, trial: u64, set: &Set<'_>) {
        if self.lock().trial.as_ref().is_none_or(|running| running.number != trial) {
            return;
        }
        match self.roll_back(set) {
            Ok(_) => say("the new configuration was not confirmed: the one before is back"),
            Err(ConfigRefused::Invalid(error) | ConfigRefused::Conflict(error)) => say(&format!(
                "the new configuration was not confirmed, and the one before cannot return: {}; {}",
                error.error, error.help
            )),
        }
    }

    /// From one to the other: all steps, or none.
    fn go(&self, from: &Config, to: &Config, set: &Set<'_>) -> Result<(), ConfigRefused> {
        let steps = steps(from, to);
        for (number, step) in steps.iter().enumerate() {
            let Err(refused) = self.take(step, set) else { continue };
            for done in steps[..number].iter().rev() {
                // The tables were so before: they have room for it, and a busy one gets its time.
                if let Err(again) = self.take(&done.back(), set) {
                    let what =
                        format!("{step}: {refused}; and {done} could not be taken back: {again}");
                    let help = "start the daemon anew: it runs by its file then";
                    return Err(invalid(what, help));
                }
            }
            let help = "nothing has changed; correct that, and apply it again";
            return Err(invalid(format!("{step}: {refused}"), help));
        }
        self.control.ring();
        Ok(())
    }

    fn take(&self, step: &Step, set: &Set<'_>) -> Result<(), String> {
        match step {
            Step::Setting { key, after, .. } => set(key, after).map_err(|error| match error {
                SetError::UnknownKey(error)
                | SetError::BadValue(error)
                | SetError::NoRoom(error) => {
                    format!("{}; {}", error.error, error.help)
                }
            }),
            Step::Neighbour { before, after } => {
                self.edit(|routing, now| routing.replace_neighbour(*before, *after, now))
            }
            Step::Route { before, after } => self
                .edit(|routing, now| routing.replace_route(before.as_ref(), after.as_ref(), now)),
        }
    }

    /// An edit that meets what waits for workers is tried again: they say nothing when they have turned.
    fn edit(
        &self,
        edit: impl Fn(&mut Routing, Duration) -> Result<(), RoutingError>,
    ) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let done = edit(&mut lock(&self.routing), self.clock.now());
            match done {
                Err(error) if is_busy(&error) && Instant::now() < until => {
                    self.control.ring();
                    thread::sleep(RETRY);
                }
                done => return done.map_err(|error| error.to_string()),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread that applies a configuration does not panic")
    }
}

impl State {
    fn status(&self) -> ConfigStatus {
        let left = |trial: &Trial| trial.ends.saturating_duration_since(Instant::now());
        ConfigStatus {
            file: self.file.display().to_string(),
            text: self.running.text.clone(),
            can_roll_back: self.before.is_some(),
            confirm_within_s: self.trial.as_ref().map(|trial| left(trial).as_secs_f64()),
        }
    }
}

impl Step {
    fn back(&self) -> Step {
        match self.clone() {
            Step::Setting { key, before, after } => {
                Step::Setting { key, before: after, after: before }
            }
            Step::Neighbour { before, after } => Step::Neighbour { before: after, after: before },
            Step::Route { before, after } => Step::Route { before: after, after: before },
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Setting { key, .. } => write!(f, "{key}"),
            Step::Neighbour { before, after } => match after.or(*before) {
                Some(one) => write!(f, "the static neighbour {}", one.address),
                None => write!(f, "a static neighbour"),
            },
            Step::Route { before, after } => match after.as_ref().or(before.as_ref()) {
                Some(route) => write!(f, "the route {}", route.prefix),
                None => write!(f, "a route"),
            },
        }
    }
}

/// Settings first, which are refused most easily; then neighbours; routes that go before routes that come.
fn steps(from: &Config, to: &Config) -> Vec<Step> {
    let (was, is) = (settings(from), settings(to));
    let setting = |((key, before), (_, after)): ((String, String), (String, String))| {
        Step::Setting { key, before, after }
    };
    let settings = was.into_iter().zip(is).filter(|(was, is)| was.1 != is.1).map(setting);
    let mut steps: Vec<Step> = settings.collect();

    let place = |one: &StaticNeighbour| (one.port, one.address);
    let (was, is) = (&from.static_neighbours, &to.static_neighbours);
    let find = |list: &[StaticNeighbour], one: &StaticNeighbour| {
        list.iter().find(|other| place(other) == place(one)).copied()
    };
    for one in was.iter().filter(|one| find(is, one).is_none()) {
        steps.push(Step::Neighbour { before: Some(*one), after: None });
    }
    for one in is {
        let before = find(was, one);
        if before != Some(*one) {
            steps.push(Step::Neighbour { before, after: Some(*one) });
        }
    }

    let by_prefix = |routes: &[Route]| -> std::collections::HashMap<Prefix, Route> {
        routes.iter().map(|route| (route.prefix, route.clone())).collect()
    };
    let (was, is) = (by_prefix(&from.routes), by_prefix(&to.routes));
    for route in from.routes.iter().filter(|route| !is.contains_key(&route.prefix)) {
        steps.push(Step::Route { before: Some(route.clone()), after: None });
    }
    for route in &to.routes {
        let before = was.get(&route.prefix).cloned();
        if before.as_ref() != Some(route) {
            steps.push(Step::Route { before, after: Some(route.clone()) });
        }
    }
    steps
}

/// Settings that a running daemon can change, with their values; the same keys for configurations between which it can
/// go.
fn settings(config: &Config) -> Vec<(String, String)> {
    let Config { workers, frames, steering, ports, .. } = config;
    let mut settings = vec![
        ("workers".to_owned(), workers.started.to_string()),
        ("frames.hot_list_len".to_owned(), frames.hot_list_len.to_string()),
        ("steering.netdev_max_backlog".to_owned(), steering.netdev_max_backlog.to_string()),
        ("steering.netdev_budget".to_owned(), steering.netdev_budget.to_string()),
        ("steering.dev_weight".to_owned(), steering.dev_weight.to_string()),
        ("steering.rebalance".to_owned(), steering.rebalance.to_string()),
    ];
    for port in ports {
        let word = port.steering.map_or("", |steering| steering.name());
        settings.push((format!("port.{}.steering", port.name), word.to_owned()));
        if let Some(sflow) = &config.sflow {
            let rate = port.sflow_rate.unwrap_or(sflow.rate);
            settings.push((format!("port.{}.sflow_rate", port.name), rate.to_string()));
        }
    }
    settings
}

fn parse(request: &ConfigRequest) -> Result<Version, ConfigRefused> {
    let name = request.name.as_deref().unwrap_or("the configuration");
    let config = Config::parse(&request.text, name, &Environment::of_this_thread());
    match config {
        Ok(config) => Ok(Version { text: request.text.clone(), config }),
        Err(error) => {
            let message = error.to_string();
            let (error, help) =
                message.rsplit_once("\nhelp: ").unwrap_or((&message, "see docs/config.md"));
            Err(invalid(error.trim_start_matches("error: ").to_owned(), help.trim()))
        }
    }
}

fn changes(from: &Version, to: &Version) -> Vec<ConfigChange> {
    let shown = |change: crate::config::Change| ConfigChange {
        key: change.key,
        before: change.before,
        after: change.after,
        live: change.live,
    };
    from.changes(to).into_iter().map(shown).collect()
}

fn needs_restart(changes: &[ConfigChange], file: &std::path::Path) -> ConfigRefused {
    let keys: Vec<_> =
        changes.iter().filter(|change| !change.live).map(|change| &*change.key).collect();
    let error = format!("only a daemon that is started anew can change {}", keys.join(", "));
    let help = format!(
        "nothing has changed; write it to {}, and start the daemon anew when that suits",
        file.display()
    );
    invalid(error, &help)
}

fn invalid(error: String, help: &str) -> ConfigRefused {
    ConfigRefused::Invalid(ApiError { error, help: help.into() })
}

fn conflict(error: &str, help: &str) -> ConfigRefused {
    ConfigRefused::Conflict(ApiError { error: error.into(), help: help.into() })
}

fn lock(routing: &Mutex<Routing>) -> MutexGuard<'_, Routing> {
    routing.lock().expect("a thread that edits the tables does not panic")
}

/// The longest trial: a day.
const TRIAL_S_MAX: f64 = 86_400.0;

/// How long an edit may wait for workers, which turn some thousand times meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
