//! What pages say of commands and crates is true: the program knows every command of README.md, and a crate needs no
//! crate of manylane but those of its row in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command whose options the program does not know would end with an error, as soon as a reader pastes it.
#[test]
fn the_program_knows_the_commands_of_the_readme() {
    let page = page("README.md");
    let commands = commands(&page);
    let ours: Vec<_> = commands.iter().filter(|command| command.starts_with("manylane ")).collect();
    assert!(ours.len() > 6, "{commands:?}");
    let complaints: Vec<String> = ours.iter().filter_map(|command| unknown(command)).collect();
    assert!(complaints.is_empty(), "README.md:\n{}", complaints.join("\n"));
    for wrong in ["manylane accelerates eth0", "manylane show why 10.1.0.1 --interfaces eth0"] {
        assert!(unknown(wrong).is_some(), "{wrong}");
    }
}

/// The other commands run programs of the repository, by a profile that Cargo.toml has.
#[test]
fn the_readme_runs_what_there_is() {
    let page = page("README.md");
    let scripts = ["contrib/debian/package", "./ci.sh"];
    for script in scripts {
        assert!(commands(&page).iter().any(|command| command == script), "{script}");
        assert!(top().join(script).exists(), "{script}");
    }
    let build = "cargo build --profile dist --bin manylane";
    assert!(commands(&page).iter().any(|command| command == build), "{build}");
    assert!(self::page("Cargo.toml").contains("[profile.dist]"));
}

/// The comment behind `run --check`.
#[test]
fn a_check_reports_the_line_the_key_and_the_fix() {
    let check = |file: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_manylane"))
            .args(["run", "--check"])
            .arg(file)
            .output()
            .expect("the program starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let right = fs::read_to_string(top().join("examples/memory.toml")).expect("an example");
    let file = std::env::temp_dir().join(format!("manylane-pages-{}.toml", std::process::id()));
    fs::write(&file, &right).expect("a temporary file");
    let (is_right, said) = check(&file);
    assert!(is_right, "{said}");
    fs::write(&file, right.replace("count = 1", "cuont = 1")).expect("a temporary file");
    let (is_right, said) = check(&file);
    fs::remove_file(&file).expect("it was written");
    assert!(!is_right);
    for part in ["8 |", "cuont", "help:", "count"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
}

#[test]
fn a_crate_needs_the_crates_of_its_row_only() {
    let needs = needs();
    let page = page("ARCHITECTURE.md");
    let head = "| crate | holds | may use | must not |";
    let rows: Vec<Vec<&str>> = page
        .lines()
        .skip_while(|line| *line != head)
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), needs.len(), "a row for each crate");
    for row in rows {
        let name = row[0].trim_matches('`').trim_start_matches("manylane-").to_string();
        let named = row[2].split('`').skip(1).step_by(2).map(String::from);
        let allowed: BTreeSet<String> = match row[2] {
            "all" => needs.keys().cloned().collect(),
            _ => below(&needs, named.filter(|name| needs.contains_key(name)).collect()),
        };
        let direct: BTreeSet<String> = needs[&name].clone();
        let used = below(&needs, direct);
        let surplus: Vec<_> = used.difference(&allowed).collect();
        assert!(surplus.is_empty(), "{name} needs {surplus:?}, and its row has {:?}", row[2]);
    }
    let client = below(&needs, needs["client"].clone());
    assert_eq!(client.into_iter().collect::<Vec<_>>(), ["frame", "io", "net", "sync"]);
}

/// These crates, and the crates that they need.
fn below(needs: &BTreeMap<String, BTreeSet<String>>, from: BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<String> = from.into_iter().collect();
    while let Some(name) = open.pop() {
        open.extend(needs.get(&name).into_iter().flatten().cloned());
        found.insert(name);
        open.retain(|name| !found.contains(name));
    }
    found
}

/// The crates of manylane that each needs, tests aside, without the prefix of their names.
fn needs() -> BTreeMap<String, BTreeSet<String>> {
    let folders = fs::read_dir(top().join("crates")).expect("a folder").flatten();
    let crates = folders.map(|folder| {
        let name = folder.file_name().into_string().expect("a name of letters");
        let text = fs::read_to_string(folder.path().join("Cargo.toml")).expect("a crate");
        let table = text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let table = table.split("\n[").next().unwrap_or_default();
        let needs = table.lines().filter_map(|line| line.split([' ', '.', '=']).next());
        let needs = needs.filter_map(|name| name.strip_prefix("manylane-")).map(String::from);
        (name.trim_start_matches("manylane-").to_string(), needs.collect())
    });
    crates.collect()
}

/// What the program says to a command that it does not know; `None` if it knows the command and its options.
fn unknown(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    let is_name = |word: &&&str| word.chars().all(|letter| letter.is_ascii_lowercase());
    let names: Vec<&str> = words.iter().take(2).take_while(is_name).copied().collect();
    let help = |names: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_manylane"))
            .args(names)
            .arg("--help")
            .output()
            .expect("the program starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    };
    let Some(text) = help(&names) else { return Some(format!("{command}: no such command")) };
    let options = words.iter().filter(|word| word.starts_with('-'));
    let known: BTreeSet<&str> =
        text.split([' ', ',', '\n', '=', '[', ']']).filter(|word| word.starts_with('-')).collect();
    let missing = options.copied().find(|option| !known.contains(option))?;
    Some(format!("{command}: no such option: {missing}"))
}

/// The lines of a page's blocks of commands, without what a shell takes for a comment.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2);
    let lines = blocks.filter(|block| block.starts_with("sh") || block.starts_with("text"));
    let lines = lines.flat_map(|block| block.lines().skip(1));
    let lines = lines.map(|line| line.split(" #").next().unwrap_or_default().trim().to_string());
    lines.filter(|line| !line.is_empty()).collect()
}

fn page(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
