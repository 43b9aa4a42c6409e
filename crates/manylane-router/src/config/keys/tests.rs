//! The list against the checker: what is said here is what is accepted and refused there.

use super::*;
use crate::config::{Config, Environment};

/// What is wrong with a text, if anything.
fn fault(text: &str) -> Option<String> {
    let environment = Environment {
        cores: (0..64).collect(),
        socket: "/run/test.sock".into(),
        interfaces: &|_| Ok(()),
    };
    Config::parse(text, "test.toml", &environment).err().map(|error| error.to_string())
}

const PORT: &str = "[[port]]\nname = \"lan\"\ndriver = \"memory\"\n\
                    addresses = [\"10.1.0.254/24\", \"2001:db8:1::fe/64\"]\n";

/// A file in which a table has one key, and what the table and the key need beside it.
fn with(table: &Table, key: &Key, value: &str) -> String {
    let line = format!("{} = {value}\n", key.name);
    let header = table.header;
    let rest = |needed: &[(&str, &str)]| -> String {
        let others = needed.iter().filter(|(name, _)| *name != key.name);
        others.map(|(name, value)| format!("{name} = {value}\n")).collect()
    };
    match header {
        "[[route]]" if key.name == "weights" => {
            format!(
                "{PORT}{header}\nprefix = \"10.9.0.0/16\"\nvia = [\"10.1.0.1\", \"10.1.0.2\"]\n{line}"
            )
        }
        "[[route]]" => {
            let mut needed = vec![("prefix", "\"10.9.0.0/16\"")];
            match key.name {
                "type" => {}
                "prefix" => needed.push(("via", "\"2001:db8:1::1\"")),
                _ => needed.push(("via", "\"10.1.0.1\"")),
            }
            format!("{PORT}{header}\n{}{line}", rest(&needed))
        }
        "[[neighbour.static]]" => {
            let needed = [
                ("port", "\"lan\""),
                ("address", "\"10.1.0.2\""),
                ("mac", "\"02:00:00:00:00:02\""),
            ];
            format!("{PORT}{header}\n{}{line}", rest(&needed))
        }
        "[[port.vlan]]" => {
            let needed = [("id", "100"), ("addresses", "[\"10.4.0.254/24\"]")];
            let on = "[[port]]\nname = \"lan\"\ndriver = \"af_packet\"\ninterface = \"eth0\"\n";
            format!("{on}{header}\n{}{line}", rest(&needed))
        }
        "[port.generate]" => {
            let needed = [("source", "\"10.1.0.1\""), ("destination", "\"10.2.0.0/16\"")];
            format!("{PORT}{header}\n{}{line}", rest(&needed))
        }
        "[sflow]" => {
            format!("{header}\n{}{line}{PORT}", rest(&[("collectors", "[\"192.0.2.5\"]")]))
        }
        "[port.tee]" => format!("{PORT}{header}\n{}{line}", rest(&[("write", "\"lan.pcapng\"")])),
        _ if header.starts_with("[port.fault.") => format!("{PORT}{header}\n{line}"),
        _ => format!("{header}\n{line}{PORT}"),
    }
}

/// All keys but those of ports, which depend on the driver: see `every_driver_has_its_keys`.
fn keys() -> impl Iterator<Item = (&'static Table, &'static Key)> {
    let with_keys =
        tables().filter(|table| !["[[port]]", "[port.fault]", THE_FILE].contains(&table.header));
    with_keys
        .flat_map(|table| table.keys.iter().map(move |key| (table, key)))
        .filter(|(_, key)| !matches!(key.kind, Kind::Table(_)))
}

#[test]
fn every_example_is_accepted() {
    for (table, key) in keys() {
        let text = with(table, key, key.example);
        let alone =
            ["delay_us", "reorder_packets", "reorder_us", "frames_max", "token_file", "host_name"];
        if let Some(fault) = fault(&text) {
            // The key wants another key beside it, and the error says which.
            assert!(alone.contains(&key.name), "{} {}: {fault}\n{text}", table.header, key.name);
        }
    }
}

#[test]
fn the_bounds_are_those_of_the_checker() {
    let mut seen = 0;
    for (table, key) in keys() {
        let (Kind::Number(least, most, _) | Kind::Numbers(least, most, _)) = key.kind else {
            continue;
        };
        let value = |number: u128| match key.kind {
            Kind::Numbers(..) if key.name == "weights" => format!("[{number}, 1]"),
            Kind::Numbers(..) => format!("[{number}]"),
            _ => number.to_string(),
        };
        // A value beyond what TOML can say cannot be refused.
        if most < i64::MAX as u64 {
            let text = with(table, key, &value(u128::from(most) + 1));
            let fault =
                fault(&text).unwrap_or_else(|| panic!("{} takes {}\n{text}", key.name, most + 1));
            assert!(fault.contains(key.name), "{fault}");
            seen += 1;
        }
        if least > 0 {
            let text = with(table, key, &value(u128::from(least) - 1));
            let fault =
                fault(&text).unwrap_or_else(|| panic!("{} takes {}\n{text}", key.name, least - 1));
            assert!(fault.contains(key.name), "{fault}");
        }
    }
    assert!(seen > 25, "{seen} bounds");
}

#[test]
fn the_words_are_those_of_the_checker() {
    let mut seen = 0;
    for (table, key) in keys() {
        let Kind::Word(words) = key.kind else { continue };
        let said = fault(&with(table, key, "\"no-such-word\"")).expect("it is no word of it");
        for word in words {
            assert!(said.contains(&format!("`{word}`")), "{}: {word}: {said}", key.name);
            let taken = fault(&with(table, key, &format!("\"{word}\"")));
            assert_eq!(taken, None, "{} {word}", key.name);
        }
        seen += 1;
    }
    assert!(seen >= 4, "{seen} keys with words");
}

#[test]
fn every_key_can_be_found_and_says_all() {
    for table in tables().filter(|table| table.header != THE_FILE) {
        assert!(matches!(find(table.header), Ok(Found::Table(_))), "{}", table.header);
        for key in table.keys {
            let path = table.path() + key.name;
            if let Kind::Table(header) = key.kind {
                assert!(matches!(find(header), Ok(Found::Table(_))), "{path}");
                continue;
            }
            let Ok(Found::Key(of, found)) = find(&path) else { panic!("{path}") };
            let text = found.explained(of);
            assert!(text.starts_with(&path) && text.contains(key.about), "{text}");
            assert!(key.about.ends_with('.') && !key.example.is_empty(), "{path}");
        }
    }
    assert_eq!(find("port.mut").err().flatten().as_deref(), Some("port.mtu"));
    assert_eq!(find("netdev_budget").err().flatten().as_deref(), Some("steering.netdev_budget"));
}

/// What a setting can be changed by while the daemon runs, `config set`, is named as the checker has it.
#[test]
fn what_is_live_says_by_which_command() {
    let live: Vec<_> = tables().flat_map(|table| table.keys).filter_map(|key| key.live).collect();
    assert!(live.iter().all(|command| command.contains(' ')), "{live:?}");
    assert!(live.len() >= 8);
}
