//! What is different between two configurations, key by key.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::{Config, ConfigError, Environment, keys};

/// One key that is different, or a whole `[[route]]` or `[[neighbour.static]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// As `port.lan.mtu`, `route.10.0.0.0/8`, `neighbour.static.lan.10.1.0.2`.
    pub key: String,
    /// What it was, as the file has it; nothing if the file did not say.
    pub before: Option<String>,
    /// What it is.
    pub after: Option<String>,
    /// Whether a running daemon can do it.
    pub live: bool,
}

/// A text, and what it says.
#[derive(Clone, Debug)]
pub struct Version {
    /// As it was written.
    pub text: String,
    /// What the checker made of it.
    pub config: Config,
}

impl Version {
    /// Reads and checks a file.
    pub fn load(path: &Path, environment: &Environment<'_>) -> Result<Version, ConfigError> {
        let file_name = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => {
                let config = Config::parse(&text, &file_name, environment)?;
                Ok(Version { text, config })
            }
            Err(source) => Err(ConfigError::Unreadable { file_name, source }),
        }
    }

    /// What has to change to get from this one to another. Empty if both are equal.
    pub fn changes(&self, to: &Version) -> Vec<Change> {
        let (before, after) = (flat(&self.text), flat(&to.text));
        let all = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
        let change = |key: &String| Change {
            key: key.clone(),
            before: before.get(key).cloned(),
            after: after.get(key).cloned(),
            live: is_live(key, self, to),
        };
        let mut changes: Vec<Change> = all.map(change).collect();
        changes.retain(|change| change.before != change.after);
        changes.sort_by(|one, other| one.key.cmp(&other.key));
        // What is written otherwise, and means the same, is no change.
        if self.config == to.config {
            changes.clear();
        } else if self.needs_no_restart(to) {
            changes.iter_mut().for_each(|change| change.live = true);
        }
        changes
    }

    /// Whether a running daemon can get there.
    pub fn needs_no_restart(&self, to: &Version) -> bool {
        let (mut known, was) = (to.config.clone(), self.config.clone());
        known.routes = was.routes.clone();
        known.static_neighbours = was.static_neighbours.clone();
        known.frames.hot_list_len = was.frames.hot_list_len;
        known.workers.started = was.workers.started;
        known.steering.netdev_max_backlog = was.steering.netdev_max_backlog;
        known.steering.netdev_budget = was.steering.netdev_budget;
        known.steering.dev_weight = was.steering.dev_weight;
        known.steering.rebalance = was.steering.rebalance;
        let are_sampled = known.sflow.is_some() && was.sflow.is_some();
        if let (Some(known), Some(was)) = (&mut known.sflow, &was.sflow) {
            known.rate = was.rate;
        }
        for (port, was) in known.ports.iter_mut().zip(&was.ports) {
            if are_sampled {
                port.sflow_rate = was.sflow_rate;
            }
            // Left to the daemon, it depends on what the daemon finds.
            if port.steering.is_some() && was.steering.is_some() {
                port.steering = was.steering;
            }
        }
        known == was
    }
}

fn is_live(key: &str, from: &Version, to: &Version) -> bool {
    let are_sampled = || [from, to].iter().all(|version| version.config.sflow.is_some());
    match key {
        "workers.count" => from.config.workers.cores == to.config.workers.cores,
        _ if key.starts_with("route.") || key.starts_with("neighbour.static.") => true,
        "sflow.rate" => are_sampled(),
        _ if key.starts_with("port.") && key.ends_with(".sflow_rate") => are_sampled(),
        _ if key.starts_with("port.") => {
            key.split('.').count() == 3
                && key.ends_with(".steering")
                && [from, to].iter().all(|version| flat(&version.text).contains_key(key))
        }
        _ => matches!(keys::find(key), Ok(keys::Found::Key(_, found)) if found.live.is_some()),
    }
}

/// All keys of a text that is right, each with its value as TOML.
fn flat(text: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    if let Ok(table) = text.parse::<Table>() {
        flatten("", &table, &mut all);
    }
    all
}

fn flatten(path: &str, table: &Table, all: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = format!("{path}{key}");
        match value {
            Value::Table(table) => flatten(&format!("{key}."), table, all),
            Value::Array(list) if list.iter().any(Value::is_table) => {
                for (number, item) in (0..).zip(list) {
                    let Value::Table(item) = item else { continue };
                    let path = format!("{key}.{}", name_of(item, number));
                    match &*key {
                        "route" | "neighbour.static" => _ = all.insert(path, inline(item)),
                        _ => flatten(&format!("{path}."), item, all),
                    }
                }
            }
            value => _ = all.insert(key, value.to_string()),
        }
    }
}

/// What tells one of several tables from the others.
fn name_of(table: &Table, number: usize) -> String {
    let text = |key| table.get(key).and_then(Value::as_str);
    match (text("prefix"), text("port"), text("address"), text("name")) {
        (Some(prefix), ..) => prefix.to_owned(),
        (_, Some(port), Some(address), _) => format!("{port}.{address}"),
        (_, _, _, Some(name)) => name.to_owned(),
        _ => table.get("id").map_or(number.to_string(), Value::to_string),
    }
}

fn inline(table: &Table) -> String {
    let parts: Vec<_> = table.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    const PORTS: &str = "[[port]]\nname = \"a\"\ndriver = \"memory\"\naddresses = [\"10.1.0.254/24\"]\n\
                         [[port]]\nname = \"b\"\ndriver = \"memory\"\naddresses = [\"10.2.0.254/24\"]\n";

    fn version(text: &str) -> Version {
        let environment = Environment {
            cores: vec![0, 1],
            socket: "/run/test.sock".into(),
            interfaces: &|_| Ok(()),
        };
        let config = Config::parse(text, "test.toml", &environment);
        Version { text: text.into(), config: config.unwrap_or_else(|error| panic!("{error}")) }
    }

    fn with(more: &str) -> Version {
        version(&format!("{more}\n{PORTS}"))
    }

    fn routed(routes: &str) -> Version {
        version(&format!("{PORTS}{routes}"))
    }

    #[test]
    fn each_change_has_its_key_and_says_whether_it_can_be_done_live() {
        let cases = [
            ("[steering]\nnetdev_budget = 100", "steering.netdev_budget", true),
            ("[frames]\nhot_list_len = 512", "frames.hot_list_len", true),
            ("[icmp]\nerrors_burst = 7", "icmp.errors_burst", false),
            ("[neighbour]\nhold_per_entry = 7", "neighbour.hold_per_entry", false),
        ];
        for (text, key, live) in cases {
            let (from, to) = (with(""), with(text));
            let changes = from.changes(&to);
            assert_eq!(changes.len(), 1, "{changes:?}");
            assert_eq!((&*changes[0].key, changes[0].live), (key, live));
            assert_eq!(from.needs_no_restart(&to), live, "{key}");
            assert!(changes[0].before.is_none() && changes[0].after.is_some());
            let back = to.changes(&from);
            assert!(back[0].after.is_none() && back[0].live == live, "{back:?}");
        }
    }

    #[test]
    fn rates_of_samples_change_live_where_a_collector_is_there() {
        let sampled = |rate: &str, of_port: &str| {
            let collectors = "[sflow]\ncollectors = [\"192.0.2.5\"]\n";
            let (a, b) = PORTS.split_at(PORTS.len() / 2);
            version(&format!("{collectors}{rate}{a}{of_port}{b}"))
        };
        let from = sampled("", "");
        for (to, key) in [
            (sampled("rate = 10\n", ""), "sflow.rate"),
            (sampled("", "sflow_rate = 10\n"), "port.a.sflow_rate"),
        ] {
            let changes = from.changes(&to);
            let said: Vec<_> = changes.iter().map(|change| (&*change.key, change.live)).collect();
            assert_eq!((said, from.needs_no_restart(&to)), (vec![(key, true)], true));
        }
        let changes = with("").changes(&from);
        assert!(!with("").needs_no_restart(&from) && changes.iter().all(|change| !change.live));
    }

    #[test]
    fn routes_and_neighbours_are_one_change_each() {
        let one = "[[route]]\nprefix = \"10.9.0.0/16\"\nvia = \"10.1.0.1\"\n";
        let other = "[[route]]\nprefix = \"10.9.0.0/16\"\ntype = \"blackhole\"\n";
        let neighbour = "[[neighbour.static]]\nport = \"a\"\naddress = \"10.1.0.7\"\nmac = \"02:00:00:00:00:07\"\n";
        let changes = routed(one).changes(&routed(&format!("{other}{neighbour}")));
        let said: Vec<_> = changes.iter().map(|change| (&*change.key, change.live)).collect();
        assert_eq!(said, [("neighbour.static.a.10.1.0.7", true), ("route.10.9.0.0/16", true)]);
        let text = "{ prefix = \"10.9.0.0/16\", via = \"10.1.0.1\" }";
        assert_eq!(changes[1].before.as_deref(), Some(text));
    }

    #[test]
    fn what_means_the_same_is_no_change() {
        assert_eq!(with("").changes(&with("[workers]\nidle_spin_us = 50")), []);
        assert_eq!(with("").changes(&with("# a comment")), []);
    }

    #[test]
    fn ports_that_come_or_go_want_a_restart() {
        let third =
            "[[port]]\nname = \"c\"\ndriver = \"memory\"\naddresses = [\"10.3.0.254/24\"]\n";
        let (two, three) = (routed(""), routed(third));
        assert!(!two.needs_no_restart(&three) && !three.needs_no_restart(&two));
        let changes = two.changes(&three);
        assert!(changes.iter().all(|change| change.key.starts_with("port.c.") && !change.live));
        assert_eq!(changes.len(), 3, "{changes:?}");
    }
}
