//! `manylane show ... --watch`: the same question again and again.
//!
//! On a terminal each answer takes the place of the one before; elsewhere they follow one another, with an empty
//! line between tables, and a line for each with `--json`. Counters by port have their growth in a second
//! below. An interrupt ends the watch, and is no failure.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::show::{self, Noun, Place, Question};
use super::{done, print};
use crate::terminal::table::{bits_per_second, count, lay_out};
use manylane_api::{Client, ClientError};

/// A time from 0.1 s on.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("a number from 0.1 to 86400 is wanted".into())
}

/// Shows until it is interrupted, the reader has gone, or the daemon answers no more.
pub(super) fn watch(
    client: &Client,
    question: &Question,
    json: bool,
    interval: Duration,
) -> ExitCode {
    let interrupted = match Interrupt::new() {
        Ok(interrupted) => interrupted,
        Err(error) => return done::<()>(Err(format!("cannot wait for signals: {error}"))),
    };
    let place = match show::place(client, question) {
        Ok(place) => place,
        Err(error) => return done::<()>(Err(error)),
    };
    let in_place = !json && io::stdout().is_terminal();
    let mut watched = Watched { client, question, place, last: None };
    let mut is_first = true;
    let begin = Instant::now();
    for round in 1.. {
        let text = match json {
            true => watched.place.json(client).map(|json| one_line(&json)),
            false => watched.table(),
        };
        let text = match text {
            Ok(text) => text,
            Err(error) => return done::<()>(Err(error)),
        };
        let before = match (in_place, is_first || json) {
            (true, _) => CLEAR,
            (false, true) => "",
            (false, false) => "\n",
        };
        // A reader that has gone has had enough: `print` counts that as success, too. Nothing is tried a second time.
        if print(&format!("{before}{text}")) != ExitCode::SUCCESS || reader_has_gone() {
            return ExitCode::SUCCESS;
        }
        is_first = false;
        // By the clock of the beginning: N rounds take N intervals, however long answers take.
        let next = begin + interval * round;
        if interrupted.wait(next.saturating_duration_since(Instant::now())) {
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::SUCCESS
}

/// Whether the pipe that we write to has no reader.
fn reader_has_gone() -> bool {
    let output = io::stdout();
    let mut polled = [rustix::event::PollFd::new(&output, rustix::event::PollFlags::empty())];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok()
        && polled[0].revents().contains(rustix::event::PollFlags::ERR)
}

/// Up, left, and nothing below.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// JSON without line ends: those of the API have none, and a text has them escaped.
fn one_line(json: &str) -> String {
    json.lines().collect::<String>() + "\n"
}

/// SIGINT or SIGTERM, as what can be waited for.
struct Interrupt(UnixStream);

impl Interrupt {
    fn new() -> io::Result<Interrupt> {
        let (read, write) = UnixStream::pair()?;
        pipe::register(SIGINT, write.try_clone()?)?;
        pipe::register(SIGTERM, write)?;
        Ok(Interrupt(read))
    }

    /// Waits so long; whether it was interrupted.
    fn wait(&self, time: Duration) -> bool {
        // 0 would be for ever.
        let time = time.max(Duration::from_millis(1));
        let read = self.0.set_read_timeout(Some(time)).and_then(|()| (&self.0).read(&mut [0]));
        read.is_ok()
    }
}

struct Watched<'w> {
    client: &'w Client,
    question: &'w Question,
    place: Place,
    /// When it was, and what was counted by port.
    last: Option<(Instant, Counted)>,
}

/// Each port's counters, by their names in JSON.
type Counted = BTreeMap<String, Vec<u64>>;

impl Watched<'_> {
    fn table(&mut self) -> Result<String, ClientError> {
        // Rules may have come or gone, and the flow table with them.
        if matches!(self.question.what, Noun::Flows) {
            self.place = show::place(self.client, self.question)?;
        }
        let table = show::table(self.client, self.question.what, &self.place)?;
        let Some(columns) = columns(self.question.what, self.place.is_accelerator) else {
            return Ok(table);
        };
        let answer: Vec<Value> = self.client.ask(&self.place.path)?;
        let now = (Instant::now(), counted(&answer, columns));
        let rates = self.last.as_ref().map(|last| rates(columns, last, &now));
        self.last = Some(now);
        Ok(table + &rates.unwrap_or_default())
    }
}

/// A counter: its title, its name in JSON, and whether it counts bytes.
type Counter = (&'static str, &'static str, bool);

/// The counters of the things in a list, and the column that names the things.
struct Columns {
    title: &'static str,
    name: &'static str,
    counters: &'static [Counter],
}

fn columns(what: Noun, is_accelerator: bool) -> Option<&'static Columns> {
    match (what, is_accelerator) {
        (Noun::Ports, false) => Some(&PORTS),
        (Noun::Ports, true) => Some(&ACCELERATED),
        (Noun::Workers, false) => Some(&WORKERS),
        (Noun::Drops, _) => Some(&DROPS),
        _ => None,
    }
}

const PORTS: Columns = Columns {
    title: "Per second",
    name: "name",
    counters: &[
        (">Received", "received", false),
        (">Bits", "received_bytes", true),
        (">Transmitted", "transmitted", false),
        (">Bits", "transmitted_bytes", true),
    ],
};
const ACCELERATED: Columns = Columns {
    title: "Per second",
    name: "name",
    counters: &[
        (">Seen", "seen", false),
        (">Forwarded", "forwarded", false),
        (">Bits", "forwarded_bytes", true),
        (">Sent", "sent", false),
        (">Bits", "sent_bytes", true),
    ],
};
const WORKERS: Columns = Columns {
    title: "Per second",
    name: "worker",
    counters: &[
        (">Received", "received", false),
        (">Transmitted", "transmitted", false),
        (">Turns", "turns", false),
        (">Sleeps", "sleeps", false),
    ],
};
const DROPS: Columns =
    Columns { title: "Per second", name: "reason", counters: &[(">Packets", "total", false)] };

fn counted(answer: &[Value], columns: &Columns) -> Counted {
    let of_one = |one: &Value| {
        let name = match &one[columns.name] {
            Value::String(name) => name.clone(),
            other => other.to_string(),
        };
        let counter = |(_, key, _): &Counter| one[*key].as_u64().unwrap_or(0);
        (name, columns.counters.iter().map(counter).collect())
    };
    answer.iter().map(of_one).collect()
}

/// What was counted since, in a second; of what was not there before, nothing is known.
fn rates(columns: &Columns, last: &(Instant, Counted), now: &(Instant, Counted)) -> String {
    let seconds = now.0.duration_since(last.0).as_secs_f64().max(1e-3);
    let rows = now.1.iter().filter_map(|(name, counters)| {
        let before = last.1.get(name)?;
        let mut row = vec![name.clone()];
        for ((is, was), (_, _, is_bytes)) in counters.iter().zip(before).zip(columns.counters) {
            // A counter that began anew counts from there.
            let rate = is.checked_sub(*was).unwrap_or(*is) as f64 / seconds;
            row.push(match is_bytes {
                true => bits_per_second((rate * 8.0).round() as u64),
                false => count(rate.round() as u64),
            });
        }
        Some(row)
    });
    let rows: Vec<_> = rows.collect();
    let titles: Vec<_> =
        [columns.title].into_iter().chain(columns.counters.iter().map(|column| column.0)).collect();
    if rows.is_empty() { String::new() } else { format!("\n{}", lay_out(&titles, rows)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_by_second_and_start_over_with_the_counter() {
        let begin = Instant::now();
        let at = |seconds, counters: [u64; 4]| {
            let counted = BTreeMap::from([("lan".to_owned(), counters.to_vec())]);
            (begin + Duration::from_secs(seconds), counted)
        };
        let text = rates(&PORTS, &at(0, [1000, 0, 500, 9]), &at(2, [3000, 2_000_000, 500, 4]));
        let row = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(row, ["lan", "1,000", "8.00", "Mbit/s", "0", "16", "bit/s"]);
        let other = (begin, Counted::new());
        assert_eq!(rates(&PORTS, &other, &at(1, [1; 4])), "", "nothing is known of it yet");
    }

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "x", "1e9", "NaN"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
