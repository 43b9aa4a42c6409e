//! No cure that harms: an operator copies what the program prints, so nothing that it prints is a command that takes
//! a filter, a translation, a bridge or a check away.
//!
//! The test reads the sources of every crate under `crates/` and the dashboard's scripts, without comments and tests,
//! and fails where a command of [`HARMFUL`] is spelled, in one piece or with names filled in. `manylane-lab` is left
//! out: it builds networks of its own and says nothing to an operator.

use std::fs;
use std::path::{Path, PathBuf};

/// Words of a command that takes protection away: these, in this order, within [`REACH`] bytes.
const HARMFUL: [&[&str]; 30] = [
    // Filters and translations.
    &["nft", " flush "],
    &["nft", " delete "],
    &["nft", " destroy "],
    &["tables", " -F"],
    &["tables", " -X"],
    &["tables", " -D "],
    &["tables", " -P ", "ACCEPT"],
    &["{program} -t "],
    &["ipset ", "destroy"],
    &["conntrack -F"],
    &["ip xfrm policy", "delete"],
    &["ip xfrm policy", "flush"],
    &["ip xfrm policy setdefault"],
    &["ufw disable"],
    &["systemctl ", "stop "],
    // Filters of traffic control, shapers, programs of others.
    &["tc filter del"],
    &["tc qdisc del"],
    &[" xdp", " off"],
    &["bpftool net detach"],
    &["take one off"],
    // Bridges, and devices of others.
    &["nomaster"],
    &["brctl delif"],
    &["ip link del"],
    // Checks, and the order of routing.
    &["rp_filter", "=0"],
    &["rp_filter` to "],
    &["accept_local=1"],
    &["ip rule del"],
    &[" rule add "],
    &["net/ipv6/conf/all/forwarding=1"],
    // Rights.
    &["setcap "],
];

/// How far apart the words of one command may be.
const REACH: usize = 80;

#[test]
fn nothing_that_is_printed_takes_protection_away() {
    let mut found = Vec::new();
    let mut read = 0;
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        read += 1;
        found.extend(harmful(&text).map(|words| format!("{}: {words:?}", file.display())));
    }
    assert!(read > 300, "only {read} files were read");
    assert!(found.is_empty(), "commands that take protection away:\n{}", found.join("\n"));
}

/// What was printed once is found, as it stood in the sources.
#[test]
fn each_harmful_command_is_found() {
    for text in [
        r#""nft flush chain {family} {table} {name} && nft delete chain {family} {table} {name}""#,
        r#""{program} -t {table} -F {name} && {program} -t {table} -P {name} ACCEPT""#,
        r#""iptables-legacy -t filter -F FORWARD""#,
        r#""iptables-legacy -t filter -P FORWARD ACCEPT""#,
        r#""ip xfrm policy delete index {index} dir {direction}""#,
        r#""ip xfrm policy flush""#,
        r#""ip xfrm policy setdefault {direction} accept""#,
        r#""ip link set dev {} nomaster""#,
        r#""ip link delete dev {}""#,
        r#""tc filter delete dev {} ingress""#,
        r#""tc qdisc delete dev {} root""#,
        "\"if another program is there: ip link set dev {interface} xdp \\\n    off, and\"",
        r#""sysctl -w net/ipv4/conf/all/rp_filter=0 {own}=0""#,
        r#""With asymmetric routes set `rp_filter` to 2 or 0.""#,
        r#""ip {option} rule add priority 0 lookup local""#,
        r#""setcap {lower}+ep $(command -v manylane)""#,
    ] {
        assert!(harmful(text).next().is_some(), "{text}");
    }
    for text in [
        r#""sysctl -w net.ipv4.nexthop_compat_mode=0""#,
        r#""ethtool -K {} rxvlan off""#,
        "// `nft flush ruleset` in a comment\n",
        "#[cfg(test)]\nmod tests {\n    \"nft flush ruleset\"\n}\n",
    ] {
        assert_eq!(harmful(text).next(), None, "{text}");
    }
}

/// The commands of [`HARMFUL`] that are spelled in a source, without its comments and its tests at the end.
fn harmful(text: &str) -> impl Iterator<Item = &'static [&'static str]> {
    let code = match text.find("\nmod tests {") {
        Some(end) => &text[..end],
        None => text,
    };
    let is_code = |line: &&str| !line.starts_with("//") && !line.starts_with("* ");
    let lines: Vec<_> = code.lines().map(str::trim).filter(is_code).collect();
    // A literal may continue in the next line.
    let code = lines.join("\n").replace("\\\n", "");
    HARMFUL.into_iter().filter(move |words| is_spelled(&code, words))
}

fn is_spelled(code: &str, words: &[&str]) -> bool {
    let Some((first, others)) = words.split_first() else { return false };
    code.match_indices(first).any(|(at, _)| {
        let mut rest = code[at + first.len()..].lines().next().unwrap_or_default();
        let end = rest.char_indices().map(|(at, _)| at).nth(REACH).unwrap_or(rest.len());
        rest = &rest[..end];
        others.iter().all(|word| {
            let Some(at) = rest.find(word) else { return false };
            rest = &rest[at + word.len()..];
            true
        })
    })
}

/// Every file that holds what an operator may read.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for krate in entries(&crates()) {
        if krate.file_name().is_some_and(|name| name != "manylane-lab") {
            collect(&krate.join("src"), &mut files);
        }
    }
    files
}

/// Sources are read where the tests were compiled; a program moved elsewhere finds them from its working folder.
fn crates() -> PathBuf {
    let own = option_env!("CARGO_MANIFEST_DIR").unwrap_or("crates/manylane");
    Path::new(own).parent().expect("crates/").to_owned()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in entries(folder) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.split('.').next().unwrap_or_default();
        let is_test = stem == "tests" || stem.ends_with("_tests");
        if entry.is_dir() && !is_test {
            collect(&entry, files);
        } else if !is_test && (name.ends_with(".rs") || name.ends_with(".js")) {
            files.push(entry);
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut entries: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    entries
}
