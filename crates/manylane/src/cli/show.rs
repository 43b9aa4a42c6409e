//! `manylane show`: the path of an answer, by daemon.

use manylane_api::{Client, ClientError, ConfigStatus};

use super::{Noun, Question};
use crate::tables::{self, accelerate};

/// Requests an answer and lays it out.
pub(super) fn table(client: &Client, what: Noun, at: &Place) -> Result<String, ClientError> {
    let path = at.path.as_str();
    if at.is_accelerator {
        return accelerated(client, what, path);
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
        Noun::Config => client.ask(path).map(|answer: ConfigStatus| answer.text),
        // The daemon says that it has none of these.
        Noun::Mirror | Noun::Why => client.ask_text(path),
    }
}

/// The path of an answer, and the kind of its daemon.
pub(super) struct Place {
    pub path: String,
    pub is_accelerator: bool,
}

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
    let path = format!("{base}{}", question.path());
    Ok(Place { path, is_accelerator })
}

/// Requests `path` of the accelerator and lays out the answer.
fn accelerated(client: &Client, what: Noun, path: &str) -> Result<String, ClientError> {
    match what {
        Noun::Drops => client.ask(path).map(|answer: Vec<_>| accelerate::drops(&answer)),
        Noun::Ledger => client.ask(path).map(|answer| accelerate::ledger(&answer)),
        Noun::Routes => client.ask(path).map(|answer: Vec<_>| tables::routes(&answer)),
        Noun::Neighbours => client.ask(path).map(|answer: Vec<_>| accelerate::neighbours(&answer)),
        Noun::Config => client.ask(path).map(|answer| accelerate::config(&answer)),
        Noun::Why => client.ask(path).map(|answer| accelerate::why(&answer)),
        Noun::Mirror if path.ends_with("/diff") => {
            client.ask(path).map(|answer: Vec<_>| accelerate::diff(&answer))
        }
        Noun::Mirror => client.ask(path).map(|answer| accelerate::mirror(&answer)),
        _ => client.ask(path).map(|answer: Vec<_>| accelerate::ports(&answer)),
    }
}
