//! The pages as they are, and how they are made.

use super::quotes::{like, pages, renewed};
use super::stated::{points, stated};
use super::*;

const RUN: &str = r#"{"head":[["Processor","a | b"],["Command","all"]],"quick":false}
{"bench":"veth","figure":"driver_over_kernel","value":3.2712,"min":3.24,"max":3.43,"runs":7,"unit":"x"}
{"bench":"veth","figure":"kernel_mpps","value":1.6,"min":1.5,"max":1.7,"runs":7,"unit":"Mpps"}
{"bench":"veth","figure":"xdp_fib_mpps","value":4,"min":3.9,"max":4.1,"runs":6,"unit":"Mpps"}
{"bench":"compare/x","figure":"slow","value":null,"min":null,"max":null,"runs":2,"unit":"ns","refused":"5 of 7"}
"#;

fn runs() -> Runs {
    let mut runs = Runs::default();
    runs.add(RUN).expect("it is a run");
    runs
}

/// Makes sure that no figure is edited by hand: to renew the page, `cargo run -p manylane-bench -- page --write`.
#[test]
fn the_page_is_what_the_generator_makes_of_the_committed_runs() {
    let runs = Runs::read(&committed().expect("there is one")).expect("they are runs");
    let template = fs::read_to_string(root().join(TEMPLATE)).expect("it is there");
    let page = fs::read_to_string(root().join(PAGE)).expect("it is there");
    let made = template::fill(&template, &runs).unwrap_or_else(|error| panic!("{error}"));
    for (number, (line, made)) in (1..).zip(page.lines().zip(made.lines())) {
        assert_eq!(line, made, "{PAGE}:{number} is not what `manylane-bench page --write` makes");
    }
    assert_eq!(page.len(), made.len(), "{PAGE} is not what `manylane-bench page --write` makes");
}

#[test]
fn other_pages_quote_the_figures_of_the_committed_runs() {
    let runs = Runs::read(&committed().expect("there is one")).expect("they are runs");
    for path in pages().expect("the pages are there") {
        let page = fs::read_to_string(&path).expect("it is text");
        let made =
            renewed(&page, &runs).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (number, (line, made)) in (1..).zip(page.lines().zip(made.lines())) {
            assert_eq!(
                line,
                made,
                "{}:{number}: renew it by `manylane-bench page --write`",
                path.display()
            );
        }
    }
}

/// What other pages may state by themselves: the sources' figures, which were measured elsewhere, and numbers that are no
/// measurements.
const STATED: [(&str, &[&str]); 3] = [
    (
        "mechanisms.md",
        &[
            "8 times",
            "4.7 times",
            "3.2 times",
            "43 %",
            "7447 us",
            "89 us",
            "75 us",
            "32.8 %",
            "27.5 %",
        ],
    ),
    ("routing-daemons.md", &["60 %"]), // Between which bounds the tests let a hash spread flows.
    ("tiers.md", &["8192 times"]),     // By how much a hash collides.
];

#[test]
fn no_other_page_states_a_measurement_by_itself() {
    let mut found = Vec::new();
    for path in pages().expect("the pages are there") {
        let page = fs::read_to_string(&path).expect("it is text");
        let allowed =
            STATED.iter().filter(|(name, _)| path.ends_with(name)).flat_map(|(_, may)| *may);
        let allowed: Vec<_> = allowed.copied().collect();
        let stated = stated(&page).into_iter().filter(|said| !allowed.contains(&said.as_str()));
        found.extend(stated.map(|said| format!("{}: {said}", path.display())));
    }
    assert!(
        found.is_empty(),
        "quote a figure as a link to its row in {PAGE}:\n{}",
        found.join("\n")
    );
}

/// Numbers with a point in README are versions, or they are quotes.
const VERSIONS: [&str; 8] = ["1.95", "5.18", "6.1", "6.6", "6.12", "6.18", "22.04", "24.04"];

#[test]
fn a_number_with_a_point_in_readme_is_a_version_or_a_quote() {
    let page = fs::read_to_string(root().join("README.md")).expect("it is there");
    let found = points(&page).into_iter().filter(|number| !VERSIONS.contains(&number.as_str()));
    assert_eq!(found.collect::<Vec<_>>(), [""; 0], "quote a figure as a link to its row in {PAGE}");
}

#[test]
fn a_place_has_the_median_the_range_or_a_quotient() {
    let filled = |text: &str| template::fill(text, &runs()).expect("all figures are there");
    assert_eq!(filled("{{veth driver_over_kernel}} times"), "3.27 times\n");
    assert_eq!(filled("| {{veth driver_over_kernel range}} |"), "| 3.27 (3.24 to 3.43) |\n");
    assert_eq!(
        filled("{{quotient veth xdp_fib_mpps kernel_mpps}}, {{veth kernel_mpps}}"),
        "2.5, 1.6\n"
    );
    assert_eq!(filled("{{compare/x slow}}"), "[refused](#compare-x.slow)\n");
    assert_eq!(
        filled("{{head}}"),
        "| | run |\n|---|---|\n| processor | a / b |\n| command | `all` |\n"
    );
    let table = filled("{{figures}}");
    assert!(
        table.contains(
            "| <a id=\"veth.xdp_fib_mpps\"></a>`xdp_fib_mpps` | Mpps | 4 | 3.9 | 4.1 | 6 |"
        ),
        "{table}"
    );
}

#[test]
fn lines_of_a_figure_that_no_run_has_are_left_out() {
    let text = |figure: &str| {
        format!("{{{{when veth {figure}}}}}\nthere\n{{{{otherwise}}}}\ngone\n{{{{end}}}}\nall")
    };
    let filled = |figure: &str| template::fill(&text(figure), &runs()).expect("no figure is put");
    assert_eq!([filled("kernel_mpps"), filled("peer_mpps")], ["there\nall\n", "gone\nall\n"]);
}

#[test]
fn every_missing_figure_is_named() {
    let error = template::fill("{{veth gone}}\n{{fib gone range}} {{what}}", &runs())
        .expect_err("three are missing");
    let error = error.to_string();
    for named in [
        "line 1: no run has `veth gone`",
        "line 2: no run has `fib gone`",
        "line 2: `{{what}}` is no place",
    ] {
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_run_has_one_head_and_each_figure_once() {
    let error = |text: &str| Runs::default().add(text).expect_err("it is no run").to_string();
    let rows: String = RUN.lines().skip(1).map(|line| format!("{line}\n")).collect();
    assert!(error(&rows).starts_with("not one run"), "{}", error(&rows));
    let twice = format!("{RUN}{rows}");
    assert_eq!(error(&twice), "line 6: `veth driver_over_kernel` is there already");
    assert!(error("{}").starts_with("line 1: "), "{}", error("{}"));
}

#[test]
fn a_quote_is_renewed_with_as_many_digits() {
    let link = |said: &str| {
        format!(
            "is [{said}](docs/performance.md#veth.driver_over_kernel) times, [all](performance.md#veth)"
        )
    };
    assert_eq!(renewed(&link("2.9"), &runs()).expect("it is there"), link("3.3"));
    assert_eq!(renewed(&link("2.95"), &runs()).expect("it is there"), link("3.27"));
    let gone = renewed("[1](performance.md#veth.gone)", &runs()).expect_err("no run has it");
    assert_eq!(gone.to_string(), "`[1]` quotes veth.gone, which no run has");
    assert_eq!([like("13,200", 12_345.0), like("9", 10.4)], ["12,300", "10"]);
}

#[test]
fn a_measurement_without_a_link_is_found_and_a_limit_is_not() {
    for (text, found) in [
        ("It forwards 46.7 Mpps.", "46.7 Mpps"),
        ("1/15 of it", "1/15 of"),
        ("| 35 ns |", "35 ns"),
        ("(13,200 times as fast)", "13,200 times"),
        ("[3.3](performance.md#rates) times", "3.3 times"),
    ] {
        assert_eq!(stated(text), [found], "{text}");
    }
    for text in [
        "a lease of 200 ms, `1/15 of` it",
        "```text\n46.7 Mpps\n```",
        "[3.3](performance.md#veth.driver_over_kernel) times the kernel's",
        "10.1.0.1/24 dev eth0",
    ] {
        assert_eq!(stated(text), [""; 0], "{text}");
    }
    assert_eq!(points("It is 2.5, not [3.3](performance.md#a.b); 10.1.0.1"), ["2.5"]);
}
