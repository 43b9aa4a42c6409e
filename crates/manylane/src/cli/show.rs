//! `manylane show`: what can be shown, and the path of its answer, by daemon.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use manylane_api::accelerate::{AcceleratedPort, AcceleratorConfig, AcceleratorStatus};
use manylane_api::{Client, ClientError, ConfigStatus, DEFAULT_SOCKET};

use super::flows::{self, FlowOptions, Page};
use super::{percent_encoded, watch};
use crate::tables::{self, accelerate, extent};
use crate::terminal::{SOCKET, USAGE, complain, done, print};

#[derive(Debug, Args)]
pub(super) struct ShowOptions {
    #[command(flatten)]
    pub(super) question: Question,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
    /// Repeat every SECONDS until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = watch::interval)]
    watch: Option<Duration>,
    /// Path of the daemon's API socket
    #[arg(long, value_name = "PATH", env = SOCKET, hide_env_values = true, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Question {
    pub(super) what: Noun,
    /// For `why`: the packet's source and destination address
    #[arg(value_name = "SOURCE DESTINATION", num_args = 0..=2)]
    packet: Vec<IpAddr>,
    /// For `why`: the packet's ingress interface
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// For `mirror`: list differences between the kernel and the mirror; for `flows`, between conntrack and the flow table
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    flows: FlowOptions,
}

/// What can be shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Noun {
    /// Ports, their addresses and counters
    Ports,
    /// Workers, their load and queues
    Workers,
    /// Routes, static and connected
    Routes,
    /// Neighbours and their link-layer addresses
    #[value(alias = "neigh")]
    Neighbours,
    /// The router's own addresses, and conflicts with other stations
    Addresses,
    /// Dropped packets by reason
    Drops,
    /// The sum of all packets and frames: received, transmitted, dropped, held, missing
    Ledger,
    /// Frames: their places, the number needed, and workers' lists
    Frames,
    /// The worker of each queue and each bucket of flows, and backlogs
    Steering,
    /// Packet sockets and captures: process, binding, packets received and lost
    Sockets,
    /// Of `accelerate`: the copy of the kernel's routing, its lag and its lease
    Mirror,
    /// The running configuration; of `accelerate`, the options of its start
    Config,
    /// Of `accelerate`: connections that rules have decided about, with their translation, counters and forwarder; a sample
    /// of packets where no rule filters by connection
    Flows,
    /// Collectors of samples, and of flow records, with the messages to each
    Export,
    /// Of `accelerate`: the verdict on a packet, `why SOURCE DESTINATION -i IF`
    Why,
}

pub(super) fn run(ShowOptions { question, json, watch, socket }: &ShowOptions) -> ExitCode {
    if let Err(complaint) = question.check() {
        complain(&format_args!("error: {complaint}"));
        return USAGE.into();
    }
    let client = Client::new(socket);
    if let Some(interval) = watch {
        return watch::watch(&client, question, *json, *interval);
    }
    let text = place(&client, question).and_then(|place| match json {
        true => place.json(&client).map(|json| json + "\n"),
        false => table(&client, question.what, &place),
    });
    match text {
        Ok(text) => print(&text),
        Err(error) => done::<()>(Err(error)),
    }
}

impl Question {
    /// Whether the arguments fit the noun.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        self.flows.check(self.what)?;
        match (self.what, self.packet.len(), &self.interface, self.diff) {
            (Noun::Flows, 0, None, true) if self.flows.chooses() => {
                Err("`show flows --diff` compares all connections: no filter, no page")
            }
            (Noun::Why, 2, Some(_), false) | (Noun::Mirror | Noun::Flows, 0, None, _) => Ok(()),
            (Noun::Why, ..) => {
                Err("`show why` takes a packet: `show why SOURCE DESTINATION -i INTERFACE`")
            }
            (_, 0, None, false) => Ok(()),
            (_, _, _, true) => Err("only `show mirror` and `show flows` take `--diff`"),
            _ => Err("only `show why` takes addresses and an interface"),
        }
    }

    /// Where the API answers, below its version.
    pub(super) fn path(&self) -> String {
        let path = match self.what {
            Noun::Ports => "/ports",
            Noun::Workers => "/workers",
            Noun::Routes => "/routes",
            Noun::Neighbours => "/neighbours",
            Noun::Addresses => "/addresses",
            Noun::Drops => "/drops",
            Noun::Ledger => "/ledger",
            Noun::Frames => "/frames",
            Noun::Steering => "/steering",
            Noun::Sockets => "/sockets",
            Noun::Mirror if self.diff => "/mirror/diff",
            Noun::Mirror => "/mirror",
            Noun::Config => "/config",
            Noun::Flows if self.diff => flows::DIFF,
            Noun::Flows => flows::SAMPLE,
            Noun::Export => "/export",
            Noun::Why => "/why",
        };
        let interface = self.interface.iter().map(|name| percent_encoded(name));
        let more = interface
            .chain(self.packet.iter().map(|address| percent_encoded(&address.to_string())));
        let path = more.fold(path.to_owned(), |path, word| path + "/" + &word);
        path + &self.flows.below()
    }
}

/// Requests an answer and lays it out.
pub(super) fn table(client: &Client, what: Noun, at: &Place) -> Result<String, ClientError> {
    let path = at.path.as_str();
    if at.is_accelerator {
        return accelerated(client, what, at);
    }
    match what {
        Noun::Ports => client.ask(path).map(|answer: Vec<_>| tables::ports(&answer)),
        Noun::Workers => client.ask(path).map(|answer: Vec<_>| tables::workers(&answer)),
        Noun::Routes => client.ask(path).map(|answer: Vec<_>| tables::routes(&answer)),
        Noun::Neighbours => client.ask(path).map(|answer: Vec<_>| tables::neighbours(&answer)),
        Noun::Addresses => client.ask(path).map(|answer: Vec<_>| tables::addresses(&answer)),
        Noun::Drops => client.ask(path).map(|answer: Vec<_>| tables::drops(&answer)),
        Noun::Ledger => client.ask(path).map(|answer| tables::ledger(&answer)),
        Noun::Frames => client.ask(path).map(|answer| tables::frames(&answer)),
        Noun::Steering => client.ask(path).map(|answer| tables::steering(&answer)),
        Noun::Sockets => client.ask(path).map(|answer| tables::sockets(&answer)),
        Noun::Export => client.ask(path).map(|answer| tables::export::text(&answer)),
        Noun::Config => client.ask(path).map(|answer: ConfigStatus| answer.text),
        // The daemon says that it has none of these.
        Noun::Mirror | Noun::Why | Noun::Flows => client.ask_text(path),
    }
}

/// The path of an answer, and the kind of its daemon.
pub(super) struct Place {
    pub path: String,
    pub is_accelerator: bool,
    /// The page of connections to show.
    pub page: Option<Page>,
}

impl Place {
    /// The answer as the API gives it.
    pub fn json(&self, client: &Client) -> Result<String, ClientError> {
        match &self.page {
            Some(page) => page.json(client, &self.path),
            None if is_comparison(&self.path) => patient(client).post_text(&self.path, &()),
            None if self.path.ends_with(flows::SAMPLE) && self.is_accelerator => {
                client.post_text(&self.path, &())
            }
            None => client.ask_text(&self.path),
        }
    }
}

/// Whether the daemon compares for it, which takes POST.
fn is_comparison(path: &str) -> bool {
    path.ends_with("/mirror/diff") || path.ends_with(flows::DIFF)
}

/// Waits for a comparison longer than the daemon, so that the daemon's reason is what the operator reads.
fn patient(client: &Client) -> Client {
    client.clone().with_patience(client.patience() * COMPARISON_TIMES)
}

/// The daemon gives a comparison 60 s; for other answers a client waits 10 s.
const COMPARISON_TIMES: u32 = 7;

/// Finds out which daemon answers.
pub(super) fn place(client: &Client, question: &Question) -> Result<Place, ClientError> {
    #[derive(serde::Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: String,
    }
    let Kind { kind } = client.ask("/v1/daemon")?;
    let is_accelerator = kind == "accelerate";
    let base = if is_accelerator { "/v1/accelerate" } else { "/v1" };
    let mut path = format!("{base}{}", question.path());
    let page = match (question.what, is_accelerator, question.diff) {
        (Noun::Flows, true, false) => question.flows.page(client)?,
        _ => None,
    };
    if let Some(page) = &page {
        path = format!("{base}{}", page.path());
    }
    Ok(Place { path, is_accelerator, page })
}

/// Requests `path` of the accelerator and lays out the answer.
fn accelerated(client: &Client, what: Noun, at: &Place) -> Result<String, ClientError> {
    let path = at.path.as_str();
    match what {
        Noun::Drops => {
            let (head, ports) = head(client)?;
            let answer: Vec<_> = client.ask(path)?;
            Ok(format!("{head}\n{}", accelerate::drops(&answer, &ports)))
        }
        Noun::Ledger => client.ask(path).map(|answer| accelerate::ledger(&answer)),
        Noun::Routes => client.ask(path).map(|answer: Vec<_>| tables::routes(&answer)),
        Noun::Neighbours => client.ask(path).map(|answer: Vec<_>| accelerate::neighbours(&answer)),
        Noun::Config => client.ask(path).map(|answer| accelerate::config(&answer)),
        Noun::Flows if is_comparison(path) => {
            patient(client).post(path, &()).map(|answer| tables::flows::diff(&answer))
        }
        Noun::Flows => flows::table(client, path, at.page.as_ref()),
        Noun::Export => client.ask(path).map(|answer| tables::export::text(&answer)),
        Noun::Why => client.ask(path).map(|answer| accelerate::why(&answer)),
        Noun::Mirror if is_comparison(path) => {
            patient(client).post(path, &()).map(|answer: Vec<_>| accelerate::diff(&answer))
        }
        Noun::Mirror => client.ask(path).map(|answer| accelerate::mirror(&answer)),
        Noun::Ports => {
            head(client).map(|(head, ports)| format!("{head}\n{}", accelerate::ports(&ports)))
        }
        // The daemon says that it has none of these, and what to do instead.
        _ => client.ask_text(path),
    }
}

/// What is said first of an accelerator, and its ports.
fn head(client: &Client) -> Result<(String, Vec<AcceleratedPort>), ClientError> {
    let AcceleratorStatus { lease, .. } = client.ask("/v1/daemon")?;
    let AcceleratorConfig { bypass, .. } = client.ask("/v1/accelerate/config")?;
    let ports: Vec<AcceleratedPort> = client.ask("/v1/accelerate/ports")?;
    Ok((extent::head(&ports, &lease, &bypass), ports))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// A daemon hangs while it compares its mirror, or is stopped: the operator's command waits longer than the daemon
    /// compares, yet not without end, and says so.
    #[test]
    fn a_comparison_by_a_daemon_that_hangs_is_awaited_with_a_bound() {
        let folder = std::env::temp_dir().join(format!("manylane-patient-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("it can be written to");
        let socket = folder.join("api.sock");
        assert_eq!(patient(&Client::new(&socket)).patience(), Duration::from_secs(70));

        let listener = UnixListener::bind(&socket).expect("no other listens there");
        let hanging = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("a command connects");
                let mut request = Vec::new();
                stream.read_to_end(&mut request).expect("it ends when the command gives up");
                assert!(request.starts_with(b"POST /v1/accelerate/mirror/diff "), "{request:?}");
            }
        });
        let client = Client::new(&socket).with_patience(Duration::from_millis(150));
        let path = "/v1/accelerate/mirror/diff".into();
        let place = Place { path, is_accelerator: true, page: None };
        for error in [place.json(&client).err(), table(&client, Noun::Mirror, &place).err()] {
            let error = error.expect("the daemon hangs");
            assert!(
                matches!(&error, ClientError::Silent { waited, .. } if *waited == client.patience() * 7),
                "{error:?}"
            );
            let said = error.to_string();
            assert!(
                said.contains("has not answered for 1 s: it is still starting, or hangs"),
                "{said}"
            );
        }
        hanging.join().expect("both commands connected, and gave up");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
