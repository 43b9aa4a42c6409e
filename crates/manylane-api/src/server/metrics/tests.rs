use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::strict::Exposed;
use super::*;
use crate::Listen;
use crate::accelerate::Accelerated;
use crate::model::Source;
use crate::sample::Sample;
use crate::sample::accelerate::Sample as AcceleratorSample;
use crate::tests::served::{Kind, Served};

/// What Prometheus 2.42 sends, and what curl does.
const ACCEPTS: [(Format, &str); 2] = [
    (
        Format::Open,
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    ),
    (Format::Text, "Accept: */*"),
];

fn limits() -> Arc<Limits> {
    Limits::new(crate::Bounds::default())
}

#[test]
fn both_pages_are_strict_in_the_format_that_the_client_asks_for() {
    for (kind, name) in [(Kind::Forwarder, "metrics-run"), (Kind::Accelerator, "metrics-acc")] {
        let served = Served::start(kind, name, &Listen::default());
        let [first, text] = ACCEPTS.map(|(format, accept)| {
            let answer = served.ask_with("GET", METRICS, &[accept]);
            assert_eq!(answer.status, 200);
            let wanted = format!("content-type: {}\r\n", format.content_type());
            assert!(answer.head.contains(&wanted), "{}", answer.head);
            assert!(answer.head.contains("vary: accept\r\n"), "{}", answer.head);
            let read = match format {
                Format::Open => Exposed::read(&answer.body),
                Format::Text => Exposed::read_text(&answer.body),
            };
            read.unwrap_or_else(|problem| panic!("{problem}"))
        });
        let series = |page: &Exposed| page.samples.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(series(&first), series(&text), "the same samples");
        let plain = served.ask("GET", METRICS, "");
        assert!(plain.head.contains(Format::Text.content_type()), "{}", plain.head);
        let second = Exposed::read_text(&plain.body).unwrap();
        for (series, before) in &first.samples {
            let family = series.split('{').next().unwrap();
            if family.ends_with("_total") {
                assert!(second.samples[series] >= *before, "{series} went down");
            }
        }
        assert!(first.families.len() > 40, "{}", first.families.len());
    }
}

/// Prometheus' own parser and its rules for names, of both daemons' pages in the text format. `promtool check metrics` knows
/// that format only: in OpenMetrics it refuses the type `info` as unknown, so `python_reads_both_pages_as_openmetrics` has
/// another parser read those pages.
#[test]
fn promtool_takes_both_daemons_pages_in_the_text_format() {
    let pages = [
        page::<dyn Source>(Arc::new(Sample), forwarder, limits(), Format::Text),
        page::<dyn Accelerated>(Arc::new(AcceleratorSample), accelerator, limits(), Format::Text),
    ];
    for page in pages {
        let mut command = Command::new("promtool");
        command.args(["check", "metrics"]).stdin(Stdio::piped());
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut promtool) = spawned else {
            println!(
                "SKIPPED promtool_takes_both_daemons_pages...: needs promtool, of Debian's package prometheus"
            );
            return;
        };
        let mut input = promtool.stdin.take().expect("it is piped");
        input.write_all(page.as_bytes()).expect("it reads");
        drop(input);
        let output = promtool.wait_with_output().expect("it is our child");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.trim().is_empty(), "{said}");
    }
}

/// The parser of Prometheus' client for Python, which is strict about OpenMetrics: families, types, suffixes, units, labels,
/// and the end.
#[test]
fn python_reads_both_pages_as_openmetrics() {
    let Some(python) = std::env::var_os("OPENMETRICS_PYTHON") else {
        println!(
            "SKIPPED python_reads_both_pages_as_openmetrics: needs OPENMETRICS_PYTHON, which tests/openmetrics.sh sets"
        );
        return;
    };
    let read = |page: &str| {
        let mut command = Command::new(&python);
        command.args(["-c", READ_OPENMETRICS]).stdin(Stdio::piped());
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("tests/openmetrics.sh has made it");
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(page.as_bytes()).expect("it reads all of it first");
        drop(input);
        let output = child.wait_with_output().expect("it is our child");
        let said = String::from_utf8_lossy(&output.stdout).trim().parse::<usize>();
        said.map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let pages = [
        page::<dyn Source>(Arc::new(Sample), forwarder, limits(), Format::Open),
        page::<dyn Accelerated>(Arc::new(AcceleratorSample), accelerator, limits(), Format::Open),
    ];
    for page in pages {
        let ours = Exposed::read(&page).unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(read(&page), Ok(ours.samples.len()), "the same samples");
        let endless = page.replace("# EOF\n", "");
        assert!(read(&endless).is_err(), "it is strict");
    }
}

/// Prints the number of samples.
const READ_OPENMETRICS: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
print(sum(len(family.samples) for family in read(sys.stdin.read())))
";

#[test]
fn the_forwarders_metrics_add_up_with_its_ledger() {
    let exposed =
        Exposed::read(&page::<dyn Source>(Arc::new(Sample), forwarder, limits(), Format::Open))
            .unwrap();
    let ledger = Sample.ledger();
    let sum = |name: &str| exposed.sum(&format!("manylane_{name}"));
    assert_eq!(sum("ledger_received_packets_total"), ledger.received as f64);
    assert_eq!(sum("ledger_created_packets_total"), ledger.created.values().sum::<u64>() as f64);
    assert_eq!(sum("ledger_dropped_packets_total"), ledger.dropped.values().sum::<u64>() as f64);
    let entered = sum("ledger_received_packets_total") + sum("ledger_created_packets_total");
    let left = sum("ledger_transmitted_packets_total")
        + sum("ledger_delivered_packets_total")
        + sum("ledger_dropped_packets_total")
        + sum("ledger_held_packets")
        + sum("ledger_in_flight_packets");
    assert_eq!(entered - left, ledger.missing as f64);
    assert_eq!(sum("ledger_missing_packets"), ledger.missing as f64);
    assert_eq!(sum("frames"), ledger.frames.total as f64);
    let ports = Sample.ports();
    let received: u64 = ports.iter().map(|port| port.received).sum();
    assert_eq!(sum("port_received_packets_total"), received as f64);
    assert_eq!(sum("routes"), Sample.routes().len() as f64);
    assert_eq!(sum("neighbours"), Sample.neighbours().len() as f64);
    let series = "manylane_port_lost_packets_total{port=\"lan\",reason=\"ring_full\"}";
    assert_eq!(exposed.samples[series], 1234.0);
    assert_eq!(exposed.samples["manylane_worker_busy_seconds_total{worker=\"0\"}"], 98.7654321);
}

#[test]
fn the_accelerators_metrics_add_up_with_its_ledger() {
    let source: Arc<dyn Accelerated> = Arc::new(AcceleratorSample);
    let exposed = Exposed::read(&page(source, accelerator, limits(), Format::Open)).unwrap();
    let ledger = AcceleratorSample.ledger();
    let sum = |name: &str| exposed.sum(&format!("manylane_accelerated_{name}"));
    assert_eq!(sum("ledger_seen_packets_total"), ledger.seen as f64);
    let gone = [
        "forwarded_packets_total",
        "passed_packets_total",
        "dropped_packets_total",
        "queued_packets",
    ];
    for scope in ["ledger", "port"] {
        let all: f64 = gone.iter().map(|part| sum(&format!("{scope}_{part}"))).sum();
        assert_eq!(all, sum(&format!("{scope}_seen_packets_total")), "{scope}");
    }
    let tiers = sum("port_forwarded_by_tier_packets_total");
    assert_eq!(tiers, sum("port_forwarded_packets_total"));
    assert_eq!(sum("port_sent_packets_total"), ledger.sent as f64);
    assert_eq!(exposed.sum("manylane_interface_in_unicast_packets_total"), 1_000_107.0);
    assert_eq!(exposed.samples.keys().filter(|name| name.contains("interface_in_")).count(), 6);
    assert_eq!(exposed.sum("manylane_mirror_routes"), 900_000.0);
    assert_eq!(exposed.sum("manylane_mirror_answers"), 1.0);
}

#[test]
fn the_strict_reader_is_strict() {
    let head = "# HELP a_packets Help.\n# TYPE a_packets counter\n# UNIT a_packets packets\n";
    let read = |body: &str| Exposed::read(&format!("{head}{body}"));
    assert!(read("a_packets_total{b=\"c\\\"\"} 1\na_packets_total{b=\"d\"} 2\n# EOF\n").is_ok());
    for wrong in [
        "a_packets_total 1\n",
        "a_packets_total 1\n# EOF",
        "a_packets_total 1\n# EOF\na 1\n",
        "a_packets 1\n# EOF\n",
        "a_packets_total 1\na_packets_total 1\n# EOF\n",
        "a_packets_total{b=c} 1\n# EOF\n",
        "a_packets_total{b=\"c\",b=\"d\"} 1\n# EOF\n",
        "a_packets_total{b=\"c\",} 1\n# EOF\n",
        "a_packets_total -1\n# EOF\n",
        "a_packets_total NaN\n# EOF\n",
        "b_total 1\n# EOF\n",
        "\n# EOF\n",
        "# TYPE a_packets gauge\n# EOF\n",
        "a_packets_total 1\n# HELP b Help.\n# TYPE b gauge\nb 1\na_packets_total{c=\"d\"} 1\n# EOF\n",
        "# HELP b_seconds Help.\n# TYPE b_seconds gauge\n# UNIT b_seconds bytes\n# EOF\n",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_strict_reader_of_text_is_strict() {
    let head = "# HELP a_total Help.\n# TYPE a_total counter\n";
    let read = |body: &str| Exposed::read_text(&format!("{head}{body}"));
    assert!(read("a_total{b=\"c\"} 1\n").is_ok());
    for wrong in [
        "a_total 1",
        "a_total 1\n# EOF\n",
        "a 1\n",
        "# UNIT a_total packets\na_total 1\n",
        "# HELP b Help.\n# TYPE b counter\nb 1\n",
        "# HELP b_total Help.\n# TYPE b_total gauge\nb_total 1\n",
        "# HELP b_info Help.\n# TYPE b_info info\nb_info 1\n",
        "# TYPE b gauge\nb 1\n",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

/// A panel for a metric that the daemon lacks would stay empty without a reason.
#[test]
fn the_dashboard_shows_what_there_is() {
    let text = include_str!("../../../../../contrib/grafana/manylane.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut exposed = BTreeSet::new();
    let pages = [
        page::<dyn Source>(Arc::new(Sample), forwarder, limits(), Format::Open),
        page::<dyn Accelerated>(Arc::new(AcceleratorSample), accelerator, limits(), Format::Open),
    ];
    for page in pages {
        exposed.extend(Exposed::read(&page).unwrap().names());
    }
    let mut named = BTreeSet::new();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let words =
                query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            named.extend(words.filter(|word| word.starts_with("manylane_")).map(str::to_owned));
            queries += 1;
        }
    }
    let unknown: Vec<_> = named.difference(&exposed).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(queries >= 10 && named.len() >= 10, "{queries} queries of {named:?}");
}
