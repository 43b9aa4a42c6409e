//! `manylane config`: settings, and configurations as a whole.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{SOCKET, USAGE, check, complain, done, percent_encoded, print};
use crate::terminal::table::plural;
use manylane_api::DEFAULT_SOCKET;
use manylane_api::{
    CONFIG_REQUEST_BYTES_MAX, Client, ClientError, ConfigApplied, ConfigChange, ConfigRequest,
    ConfigStatus, Setting,
};
use manylane_router::config::keys::{self, Found};
use manylane_router::config::{Config, Environment, save};

#[derive(Debug, Args)]
pub(super) struct ConfigOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Change a setting until the daemon ends; the file stays as it is
    Set(SetOptions),
    /// Print the running configuration
    Show(AskOptions),
    /// Check a file against this machine, without a daemon
    Check {
        /// The configuration, a TOML file
        file: PathBuf,
    },
    /// List what a file would change, and which changes need a restart
    Diff {
        /// The file; without it, the one that the daemon was started with
        file: Option<PathBuf>,
        #[command(flatten)]
        ask: AskOptions,
    },
    /// Apply a file to the running daemon: all of it, or nothing
    Apply {
        /// The configuration, a TOML file
        file: PathBuf,
        /// Roll back after this time unless `config confirm` arrives first: 60s, 5m
        #[arg(long, value_name = "TIME", value_parser = time)]
        confirm_within: Option<Duration>,
        #[command(flatten)]
        ask: AskOptions,
    },
    /// Keep the configuration that is on trial
    Confirm(AskOptions),
    /// Roll back to the former configuration
    Rollback(AskOptions),
    /// Write the running configuration to a file, for the next start
    Save {
        /// The file; without it, the one that the daemon was started with
        file: Option<PathBuf>,
        #[command(flatten)]
        ask: AskOptions,
    },
    /// Explain a key: meaning, values, default; without a key, list all keys
    Explain {
        /// The key, as `port.mtu`, or a table, as `steering`
        key: Option<String>,
    },
}

#[derive(Debug, Args)]
struct SetOptions {
    /// The setting: workers, frames.hot_list_len, steering.netdev_max_backlog,
    /// steering.netdev_budget, steering.dev_weight, steering.rebalance, steering.reorder_sample,
    /// port.PORT.steering, port.PORT.bucket.N, port.PORT.buckets (0-127=0,128-255=1),
    /// port.PORT.queue.N or worker.N.paused
    key: String,
    /// Its new value
    value: String,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

#[derive(Debug, Args)]
struct AskOptions {
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

impl AskOptions {
    fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    /// For edits, which may wait for workers.
    fn patient_client(&self) -> Client {
        self.client().with_patience(Duration::from_secs(60))
    }
}

pub(super) fn run(ConfigOptions { action }: &ConfigOptions) -> ExitCode {
    match action {
        Action::Set(options) => set(options),
        Action::Show(ask) => show(ask),
        Action::Check { file } => check::check(file),
        Action::Diff { file, ask } => diff(file.as_ref(), ask),
        Action::Apply { file, confirm_within, ask } => apply(file, *confirm_within, ask),
        Action::Confirm(ask) => after(ask, "confirm", "it stays"),
        Action::Rollback(ask) => after(ask, "rollback", "the configuration before is back"),
        Action::Save { file, ask } => write(file.as_ref(), ask),
        Action::Explain { key } => explain(key.as_deref()),
    }
}

fn set(options: &SetOptions) -> ExitCode {
    let path = format!("/v1/config/{}", percent_encoded(&options.key));
    match Client::new(&options.socket).put::<Setting>(&path, &options.value) {
        Ok(Setting { key, value, warning }) => {
            if let Some(warning) = warning {
                complain(&format_args!("warning: {warning}"));
            }
            print(&format!("{key} = {value}, until the daemon ends\n"))
        }
        Err(error) => done::<()>(Err(error)),
    }
}

fn show(ask: &AskOptions) -> ExitCode {
    let client = ask.client();
    if ask.json {
        return print_answer(client.ask_text("/v1/config").map(|json| json + "\n"));
    }
    print_answer(client.ask::<ConfigStatus>("/v1/config").map(|status| status.text))
}

fn diff(file: Option<&PathBuf>, ask: &AskOptions) -> ExitCode {
    let client = ask.client();
    // The file that the answer names is read and sent to the daemon: a stranger could have any file sent.
    let request = match (file, client.clone().wary().ask::<ConfigStatus>("/v1/config")) {
        (Some(file), _) => request(file, None),
        (None, Ok(status)) => request(&status.file.into(), None),
        (None, Err(error)) => return done::<()>(Err(error)),
    };
    let request = match request {
        Ok(request) => request,
        Err(error) => return done::<()>(Err(error)),
    };
    if ask.json {
        return print_answer(client.post_text("/v1/config/diff", &request).map(|json| json + "\n"));
    }
    print_answer(
        client
            .post::<Vec<ConfigChange>>("/v1/config/diff", &request)
            .map(|changes| listed(&changes)),
    )
}

fn apply(file: &PathBuf, within: Option<Duration>, ask: &AskOptions) -> ExitCode {
    let request = match request(file, within) {
        Ok(request) => request,
        Err(error) => return done::<()>(Err(error)),
    };
    let client = ask.patient_client();
    if ask.json {
        return print_answer(
            client.post_text("/v1/config/apply", &request).map(|json| json + "\n"),
        );
    }
    print_answer(client.post::<ConfigApplied>("/v1/config/apply", &request).map(|applied| {
        let mut text = listed(&applied.changes);
        match applied.confirm_within_s {
            Some(seconds) => {
                _ = writeln!(
                    text,
                    "on trial: it goes back in {seconds} s, unless `manylane config confirm` comes"
                )
            }
            None if applied.changes.is_empty() => {}
            None => {
                text +=
                    "applied, until the daemon ends; `manylane config save` writes it to its file\n"
            }
        }
        text
    }))
}

/// A change without a body.
fn after(ask: &AskOptions, what: &str, said: &str) -> ExitCode {
    let answer = ask.patient_client().post_text(&format!("/v1/config/{what}"), &());
    print_answer(answer.map(|json| if ask.json { json + "\n" } else { format!("{said}\n") }))
}

fn write(file: Option<&PathBuf>, ask: &AskOptions) -> ExitCode {
    let status = match ask.client().wary().ask::<ConfigStatus>("/v1/config") {
        Ok(status) => status,
        Err(error) => return done::<()>(Err(error)),
    };
    if status.confirm_within_s.is_some() {
        let error = "the configuration is on trial; `manylane config confirm` comes first";
        return done::<()>(Err(error));
    }
    let file = match to_write(file, &status) {
        Ok(file) => file,
        Err(error) => return done::<()>(Err(error)),
    };
    match save(&file, &status.text) {
        Ok(()) => print(&format!("saved to {}\n", file.display())),
        Err(error) => done::<()>(Err(error)),
    }
}

/// Where the configuration may be written: to a file that the operator names, or to a configuration that is there.
///
/// A daemon without privileges must not have root write another file, or write one that is no configuration.
fn to_write(named: Option<&PathBuf>, status: &ConfigStatus) -> Result<PathBuf, String> {
    if let Err(error) = Config::parse(&status.text, "the daemon's answer", &anywhere()) {
        return Err(format!(
            "what the daemon runs by is not saved, since it is no configuration: {error}"
        ));
    }
    if let Some(file) = named {
        return Ok(file.clone());
    }
    let file = PathBuf::from(&status.file);
    let name = file.display();
    if !file.is_absolute() {
        return Err(format!(
            "the daemon names the file {name} without its folder; name it: `manylane config save FILE`"
        ));
    }
    match Config::load(&file, &anywhere()) {
        Ok(_) => Ok(file),
        Err(error) => Err(format!(
            "the daemon names {name}, which is no valid configuration; to write it all the same, name it: `manylane config \
             save {name}`\n{error}"
        )),
    }
}

/// A machine that has what any configuration names.
fn anywhere() -> Environment<'static> {
    let cores = (0..=u16::MAX).collect();
    Environment { cores, socket: DEFAULT_SOCKET.into(), interfaces: &|_| Ok(()) }
}

fn explain(key: Option<&str>) -> ExitCode {
    let Some(key) = key else {
        let mut text = String::new();
        for table in keys::tables() {
            table
                .keys
                .iter()
                .for_each(|key| _ = writeln!(text, "{:<36}{}", table.path() + key.name, key.about));
        }
        return print(&text);
    };
    match keys::find(key) {
        Ok(Found::Key(table, key)) => print(&key.explained(table)),
        Ok(Found::Table(table)) => {
            let mut text = format!("{}\n", table.header);
            for key in table.keys {
                let _ = writeln!(text, "  {:<22}{}", key.name, key.about);
            }
            print(&text)
        }
        Err(near) => {
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`manylane config explain` lists all".to_owned(),
            };
            complain(&format_args!("error: key `{key}` does not exist; {help}"));
            USAGE.into()
        }
    }
}

fn request(file: &PathBuf, within: Option<Duration>) -> Result<ConfigRequest, String> {
    let name = file.display().to_string();
    let mut text = String::new();
    // One byte more than can be sent.
    let read = File::open(file)
        .and_then(|file| file.take(CONFIG_REQUEST_BYTES_MAX as u64 + 1).read_to_string(&mut text));
    read.map_err(|error| {
        format!("cannot read {name}: {error}; name a TOML file that this user can read")
    })?;
    let confirm_within_s = within.map(|time| time.as_secs_f64());
    let request = ConfigRequest { text, name: Some(name), confirm_within_s };
    let bytes = serde_json::to_vec(&request).map_or(usize::MAX, |json| json.len());
    if bytes > CONFIG_REQUEST_BYTES_MAX {
        return Err(format!(
            "{} is larger than a request to the daemon may be, which is {} MiB as JSON; learn some of its routes instead",
            file.display(),
            CONFIG_REQUEST_BYTES_MAX >> 20
        ));
    }
    Ok(request)
}

fn listed(changes: &[ConfigChange]) -> String {
    let mut text = String::new();
    for ConfigChange { key, before, after, live } in changes {
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
        let restart = if *live { "" } else { "   (wants a restart)" };
        let _ = writeln!(text, "{key}: {} -> {}{restart}", word(before), word(after));
    }
    match changes.len() {
        0 => text += "nothing to change\n",
        number => _ = writeln!(text, "{}", plural(number, "change")),
    }
    text
}

fn print_answer(text: Result<String, ClientError>) -> ExitCode {
    match text {
        Ok(text) => print(&text),
        Err(error) => done::<()>(Err(error)),
    }
}

/// `60`, `60s`, `5m`.
fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(number) => (number, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    let seconds = seconds.filter(|seconds| (1.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a time from 1s to 1440m is wanted".into())
}
