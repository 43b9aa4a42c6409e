//! `manylane top` in a terminal of 80 by 24, beside a daemon between memory ports, by its keys.

mod router;
mod terminal;

use router::{Router, command};
use terminal::Top;

#[test]
fn a_daemon_is_watched_by_keys() {
    let router = Router::start("top");
    let mut top = Top::start(&["--socket", &router.socket(), "--interval", "0.2"]);

    // All panes, with rates.
    let seen = top.until("rates and flows", |screen| {
        rate(screen, "east") > 5_000.0 && screen.contains(" UDP")
    });
    for word in ["manylane top", "1 Ports", "2 Workers", "3 Drops", "4 Rings", "5 Flows", "q quit"]
    {
        assert!(seen.contains(word), "{word}\n{seen}");
    }
    assert!(seen.lines().all(|line| line.chars().count() <= 80) && seen.lines().count() <= 24);

    // By names first, the other way round with `r`.
    // With several reasons of drops the last port has no line.
    let is_before = |screen: &str, one: &str, other: &str| {
        let at = |port: &str| screen.find(&format!("\n{port} "));
        at(one).is_some_and(|one| at(other).is_none_or(|other| one < other))
    };
    assert!(is_before(&seen, "east", "north"), "{seen}");
    top.press("r");
    top.until("the last name first", |screen| is_before(screen, "west", "north"));
    // By what leaves: only one port sends.
    top.press("rssss");
    top.until("who sends first", |screen| is_before(screen, "north", "west"));

    // One pane alone, and all again.
    top.press("5\r");
    let flows = |screen: &str| screen.lines().filter(|line| line.contains(" > ")).count();
    top.until("only flows, of both families", |screen| {
        let both = screen.contains("10.1.0.1:") && screen.contains("[2001:db8:2::1]:");
        screen.contains("5 Flows") && !screen.contains("1 Ports") && both && flows(screen) > 10
    });
    top.press("\x1b");
    top.until("all panes", |screen| screen.contains("1 Ports") && screen.contains("5 Flows"));

    // Keys are explained, and any ends that.
    top.press("?");
    top.until("help", |screen| screen.contains("select a pane"));
    top.press("x");
    top.until("no help", |screen| !screen.contains("select a pane"));

    top.press(" ");
    top.until("a pause", |screen| screen.contains("paused"));
    top.press(" ");
    top.until("no pause", |screen| !screen.contains("paused"));
    top.press("-");
    top.until("half as often", |screen| screen.contains("each 0.4 s"));

    // In another size, at once.
    top.resize(40, 120);
    top.until("more room", |screen| screen.lines().count() > 24);

    // The daemon goes: that is said, and what was known stays.
    router.stop();
    let seen = top.until("nobody answers", |screen| screen.contains("no answer"));
    assert!(seen.contains("1 Ports") && seen.contains("west"), "{seen}");
    top.press("q");
    top.ends_well();
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let router = Router::start("top-signal");
    let mut top = Top::start(&["--socket", &router.socket()]);
    top.until("it is there", |screen| screen.contains("manylane top"));
    top.press("\x03");
    top.ends_well();
}

#[test]
fn without_a_terminal_or_a_daemon_it_says_what_to_do() {
    let output = command(&["top"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("needs a terminal") && said.contains("manylane show"), "{said}");

    let mut top = Top::start(&["--socket", "/nowhere/manylane.sock"]);
    let said = top.rest();
    assert!(said.contains("no manylane daemon answers at /nowhere/manylane.sock"), "{said}");
    assert_eq!(top.child.wait().unwrap().exit_code(), 1);

    let output = command(&["top", "--interval", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("0.1 to 3600 seconds"));
}

/// Packets that a port receives each second, as its line in a terminal has it; 0 if the line has none yet.
fn rate(screen: &str, port: &str) -> f64 {
    let begins = format!("{port} ");
    let line = screen.lines().find(|line| line.starts_with(&begins)).unwrap_or_default();
    let mut words = line.split_whitespace().skip(2);
    let number: f64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    match words.next() {
        Some("k") => number * 1e3,
        Some("M") => number * 1e6,
        _ => number,
    }
}
