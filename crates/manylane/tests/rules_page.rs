//! The pages that name places in the code and tests are true: the rules in `docs/rules.md`, and the invariants in
//! `ARCHITECTURE.md`.
//!
//! A cell is a list of places, divided by semicolons. A place is a path in backticks, and names behind it, in backticks
//! too; that file defines each name. In the column of tests, a name is a test of that file. Words between them are
//! for the reader.

use std::fs;
use std::path::{Path, PathBuf};

/// A path that a page names, and the names behind it.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    path: String,
    names: Vec<String>,
}

#[test]
fn the_rules_name_what_there_is() {
    let page = page("docs/rules.md");
    let rows = rows(&page, "| rule | section | place | test |");
    assert!(rows.len() > 30, "{} rules", rows.len());
    let complaints: Vec<String> = rows.iter().flat_map(|row| rule_complaints(row)).collect();
    assert!(complaints.is_empty(), "docs/rules.md:\n{}", complaints.join("\n"));
}

#[test]
fn the_invariants_name_their_tests() {
    let page = page("ARCHITECTURE.md");
    let rows = rows(&page, "| | promise | kept by | watched by |");
    assert!(rows.len() > 7, "{} invariants", rows.len());
    let complaints: Vec<String> = rows.iter().flat_map(|row| tests_complaints(row)).collect();
    assert!(complaints.is_empty(), "ARCHITECTURE.md:\n{}", complaints.join("\n"));
}

/// I4, as far as sources can tell: a worker's crates use what never waits. Only ports wait, in `manylane-io`, while
/// nothing is to be done.
#[test]
fn the_crates_of_a_worker_name_nothing_that_waits() {
    let mut read = 0;
    let mut complaints = Vec::new();
    for file in ["manylane-worker", "manylane-net"].iter().flat_map(|name| sources(name)) {
        read += 1;
        let text = fs::read_to_string(&file).expect("it was listed");
        complaints.extend(what_waits(&text).map(|word| format!("{}: {word}", file.display())));
    }
    assert!(read > 100, "{read} files");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!(what_waits("let held = self.table.lock();\n"), Some(".lock()"));
    assert_eq!(what_waits("// A lock would wait.\n"), None);
}

/// The first word in a file's code that waits for another thread.
fn what_waits(text: &str) -> Option<&'static str> {
    const WORDS: &[&str] = &[
        "Mutex",
        "RwLock",
        "Condvar",
        "Barrier",
        "LazyLock",
        "OnceLock",
        ".lock()",
        "mpsc",
        "::park",
        "thread::sleep",
        ".join()",
    ];
    let code = text.split("\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.into_iter().find_map(|line| WORDS.iter().copied().find(|word| line.contains(word)))
}

/// The files of a crate, without its tests.
fn sources(name: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![top().join("crates").join(name).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some("tests" | "tests.rs") => {}
                Some(_) if path.is_dir() => folders.push(path),
                Some(name) if name.ends_with(".rs") => files.push(path),
                _ => {}
            }
        }
    }
    files
}

/// The checks can fail: each kind of wrong place is found in a rule that is right otherwise.
#[test]
fn a_wrong_place_is_found() {
    let right = [
        "rule",
        "RFC",
        "`forward/slow.rs`, `addressed`",
        "`wire/nd/tests.rs`, `a_short_message_is_refused`",
    ];
    let with = |cell: usize, text: &str| {
        let mut row = right.map(String::from);
        row[cell] = text.into();
        rule_complaints(&row)
    };
    assert_eq!(with(0, "rule"), Vec::<String>::new());
    for (cell, text) in [
        (2, "`forward/fast.rs`, `addressed`"),
        (2, "`forward/slow.rs`, `judge_ipv4`"),
        (2, "somewhere"),
        (3, "`wire/nd/tests.rs`"),
        (3, "`wire/nd/tests.rs`, `no_such_test`"),
        (3, "`wire/nd.rs`, `link_layer`"),
        (3, "by construction"),
    ] {
        assert_eq!(with(cell, text).len(), 1, "{text}");
    }
}

/// What is wrong with a rule: its place, and its test.
fn rule_complaints(row: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    let [rule, _, place, _] = row else { return vec![format!("{row:?} has not four cells")] };
    let places = places(place);
    if places.is_empty() {
        complaints.push(format!("{rule}: names no place"));
    }
    for place in places {
        let Some(found) = find(&place.path) else {
            complaints.push(format!("{rule}: no such file: {}", place.path));
            continue;
        };
        let defined = |name: &String| defines(&found, name);
        let missing = place.names.iter().filter(|name| !defined(name));
        complaints.extend(missing.map(|name| format!("{rule}: {} defines no {name}", place.path)));
    }
    complaints.extend(tests_complaints(row));
    complaints
}

/// What is wrong with the tests that the last cell of a row names; it names at least one.
fn tests_complaints(row: &[String]) -> Vec<String> {
    let Some((tests, what)) = row.last().zip(row.first()) else { return Vec::new() };
    let places = places(tests);
    if places.iter().all(|place| place.names.is_empty()) {
        return vec![format!("{what}: names no test: {tests}")];
    }
    let mut complaints = Vec::new();
    for place in places {
        let Some(found) = find(&place.path) else {
            complaints.push(format!("{what}: no such file: {}", place.path));
            continue;
        };
        let missing = place.names.iter().filter(|name| !has_test(&found, name));
        complaints.extend(missing.map(|name| format!("{what}: {} has no test {name}", place.path)));
    }
    complaints
}

/// The cells of each row of the table with this head.
fn rows(page: &str, head: &str) -> Vec<Vec<String>> {
    let table = page.lines().skip_while(|line| *line != head).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    let cells =
        |row: &str| row.trim_matches('|').split(" | ").map(|cell| cell.trim().into()).collect();
    rows.map(cells).collect()
}

/// The places in a cell. What is in backticks and no path is a name of the path before it.
fn places(cell: &str) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for code in cell.split('`').skip(1).step_by(2) {
        match places.last_mut() {
            _ if code.contains('/') => places.push(Place { path: code.into(), names: Vec::new() }),
            Some(place) => place.names.push(code.into()),
            None => {}
        }
    }
    places
}

/// Where a path leads that begins at the top, or in the sources of the crates with rules.
fn find(path: &str) -> Option<PathBuf> {
    let folders = ["", "crates/manylane-net/src", "crates/manylane-router/src"];
    folders.iter().map(|folder| top().join(folder).join(path)).find(|path| path.exists())
}

/// Whether the file defines the name.
fn defines(file: &Path, name: &str) -> bool {
    let words = ["fn", "struct", "enum", "const", "trait", "type"];
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().any(|line| {
        words.iter().any(|word| {
            let behind = line.split_once(&format!("{word} {name}")).map(|(_, behind)| behind);
            behind.is_some_and(|behind| {
                !behind.starts_with(|next: char| next.is_alphanumeric() || next == '_')
            })
        })
    })
}

/// Whether the file has a test of that name: an attribute stands in front of the function.
fn has_test(file: &Path, name: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    let behind_last = before.rsplit("\n    }\n").next().unwrap_or(before);
    let behind_last = behind_last.rsplit("\n}\n").next().unwrap_or(behind_last);
    behind_last.contains("#[test]")
}

fn page(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
