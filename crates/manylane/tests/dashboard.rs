//! The dashboard of a daemon as a process, in a browser. No privilege is needed.

#[path = "../../manylane-api/tests/browser/mod.rs"]
mod browser;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};

use browser::Browser;
use manylane_router::config::Environment;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcap_file::pcapng::{Block, PcapNgParser};
use serde_json::json;

#[test]
fn a_daemon_is_seen_in_a_browser_until_it_has_gone() {
    let Some(mut browser) = Browser::start("seen") else { return };
    let mut router = Router::start("seen");
    browser.look(1400, false);
    browser.open(&format!("http://{}/", router.address));

    // The page comes without the token, and nothing else does.
    browser.until("!document.getElementById('login').hidden");
    assert_eq!(browser.evaluate("document.getElementById('main').hidden"), json!(true));
    let enter = |token: &str| {
        format!(
            "(() => {{ const field = document.getElementById('token'); field.value = '{token}'; \
             document.getElementById('login').requestSubmit(); }})()"
        )
    };
    browser.evaluate(&enter("another token than that"));
    browser.until("!document.getElementById('alert').hidden");
    // The right one, while a wrong one is still being tried.
    browser.evaluate(&format!("{}; {}", enter("still another"), enter(TOKEN)));
    browser.until("!document.getElementById('main').hidden");
    let refused = browser.complaints();
    assert_eq!(refused.len(), 3, "{refused:#?}");
    assert!(refused.iter().all(|complaint| complaint.contains("401")), "{refused:#?}");

    // Rates of the generators, drops, workers and rings.
    let cell = |table: &str, row: &str, column: usize| {
        format!(
            "[...document.getElementById('{table}').tBodies[0].rows].find((row) => \
             row.cells[0].innerText.startsWith('{row}')).cells[{column}].innerText"
        )
    };
    browser.until(&format!("{}.endsWith('k')", cell("ports", "west", 2)));
    browser.until(&format!("{}.endsWith('k')", cell("drops", "no route", 1)));
    browser.until("document.getElementById('drops-chart').querySelectorAll('polyline').length > 0");
    browser.until(&format!("{} === '1\u{2009}000'", cell("rings", "1 → 0", 3)));
    browser.until(&format!("{}.includes('%')", cell("load", "2, core", 1)));
    browser.until(&format!("{} === 'north'", cell("neighbours", "10.9.0.1", 1)));
    // One sees it add up now and then, and never a fault, while packets pass.
    browser.until("document.getElementById('difference').innerText.includes('adds up')");
    let text = browser.text();
    for word in
        ["live", "west", "north", "quiet", "created here", "worker 1: 85 buckets", "reachable"]
    {
        assert!(text.contains(word), "{word}\n{text}");
    }
    assert!(
        !text.contains("a fault") && !text.contains("NaN") && !text.contains("undefined"),
        "{text}"
    );

    // Nothing sticks out, in any window.
    for (width, is_dark) in [(400, false), (400, true), (1400, true)] {
        browser.look(width, is_dark);
        let wide = browser.evaluate("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= width.into(), "{wide} of {width}");
        let back = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(back == "rgb(18, 21, 26)", is_dark, "{back}");
    }

    browser.evaluate("document.getElementById('capture').click()");
    let file = browser.downloaded();
    let (packets, without_route) = dropped_packets(&file);
    assert!(without_route > 100, "{without_route} of {packets} packets, in 5 s");
    read_by_tshark(&router.folder, &file, packets);

    assert_eq!(browser.complaints().len(), refused.len(), "{:#?}", browser.complaints());
    let ours = format!("http://{}/", router.address);
    let is_own = |address: &String| {
        address.starts_with(&ours)
            || address.starts_with(&format!("blob:{ours}"))
            || address == "data:,"
    };
    let asked = browser.requests();
    assert!(asked.len() > 10 && asked.iter().all(is_own), "{asked:#?}");

    router.stop();
    browser.until("document.getElementById('alert').innerText.includes('does not answer')");
    browser.until("document.getElementById('status').innerText === 'no answer'");
    assert_eq!(browser.evaluate("document.getElementById('alert').hidden"), json!(false));
}

/// Of a pcapng file, packets, and those that were dropped for want of a route: a machine that is busy drops others, too.
fn dropped_packets(file: &[u8]) -> (usize, usize) {
    let (mut rest, mut parser) = PcapNgParser::new(file).unwrap();
    let (mut packets, mut without_route, mut statistics) = (0, 0, 0);
    while !rest.is_empty() {
        let (after, block) = parser.next_block(rest).unwrap();
        match block {
            Block::EnhancedPacket(packet) => {
                let said = format!("{:?}", packet.options);
                assert!(said.contains("drop "), "{said}");
                without_route += usize::from(said.contains("drop no_route: "));
                packets += 1;
            }
            Block::InterfaceStatistics(_) => statistics += 1,
            _ => {}
        }
        rest = after;
    }
    assert_eq!(statistics, 3, "the file has its end, with a block for each port");
    (packets, without_route)
}

fn read_by_tshark(folder: &std::path::Path, file: &[u8], packets: usize) {
    let path = folder.join("drops.pcapng");
    fs::write(&path, file).unwrap();
    let read =
        Command::new("tshark").arg("-r").arg(&path).args(["-T", "fields", "-e", "ip.dst"]).output();
    let Ok(read) = read else {
        eprintln!("SKIPPED: there is no tshark to read the file once more");
        return;
    };
    let text = String::from_utf8(read.stdout).unwrap();
    assert_eq!(text.lines().count(), packets, "{text}");
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A daemon with ports in memory, and a port of TCP with a token.
struct Router {
    folder: PathBuf,
    address: String,
    process: Child,
}

impl Router {
    fn start(name: &str) -> Router {
        let folder =
            std::env::temp_dir().join(format!("manylane-dashboard-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let core = Environment::of_this_thread().cores[0];
        let (file, token) = (folder.join("router.toml"), folder.join("token"));
        fs::write(&file, CONFIG.replace("CORE", &core.to_string())).unwrap();
        let mut options = fs::OpenOptions::new();
        let mut written =
            options.write(true).create(true).truncate(true).mode(0o600).open(&token).unwrap();
        written.write_all(TOKEN.as_bytes()).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_manylane"))
            .arg("run")
            .arg(&file)
            .arg("--socket")
            .arg(folder.join("api.sock"))
            .args(["--listen", "127.0.0.1:0", "--token-file"])
            .arg(&token)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = None;
        for line in BufReader::new(process.stderr.as_mut().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((_, rest)) = line.split_once("the API answers at http://") {
                address = rest.split('/').next().map(str::to_owned);
            }
            if line.contains("forwarding") {
                break;
            }
        }
        Router { folder, address: address.expect("it says where it listens"), process }
    }

    fn stop(&mut self) {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM).unwrap();
        let _ = self.process.wait();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Still running only after a failed test.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Half of what "west" receives has a route.
const CONFIG: &str = r#"
[workers]
cores = [CORE, CORE, CORE]
[[port]]
name = "west"
driver = "memory"
workers = [1]
addresses = ["10.1.0.254/24"]
[port.generate]
source = "10.1.0.1"
destination = "10.200.0.0/16"
flows = 64
packets_per_second = 5000
[[port]]
name = "north"
driver = "memory"
workers = [1]
addresses = ["10.9.0.254/24"]
[[port]]
name = "quiet"
driver = "memory"
workers = [1]
addresses = ["10.8.0.254/24"]
[[route]]
prefix = "10.200.0.0/17"
via = "10.9.0.1"
"#;
