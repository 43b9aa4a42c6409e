//! What the accelerator shows, in a browser; what the forwarder shows is in `tests/dashboard.rs`, with a daemon.

#[path = "../../tests/browser/mod.rs"]
#[allow(dead_code, reason = "the other test asks for more")]
mod browser;

use browser::Browser;

use crate::Listen;
use crate::tests::served::{Kind, Served};

/// The sample's mirror is silent about neighbours, as one that is busy would be.
#[test]
fn an_accelerator_is_seen_in_a_browser() {
    let Some(mut browser) = Browser::start("accelerator") else { return };
    let address = Some("127.0.0.1:0".parse().unwrap());
    let served =
        Served::start(Kind::Accelerator, "dashboard", &Listen { address, ..Listen::default() });
    browser.open(&format!("http://{}/", served.address.unwrap()));
    browser.until("document.getElementById('status').innerText === 'live'");
    browser.until("document.getElementById('difference').innerText.includes('adds up')");
    let text = browser.text();
    for word in [
        "manylane accelerate",
        "lan",
        "wan",
        "Tiers",
        "left to the kernel",
        "The lease holds",
        "chain inet filter forward drops",
        "captures nothing",
        "local",
        "tx dropped",
        "IPv4 and IPv6 packets are forwarded by connection",
        "unsettled",
        "stays in the kernel",
    ] {
        assert!(text.contains(word), "{word}\n{text}");
    }
    assert!(!text.contains("NaN") && !text.contains("undefined"), "{text}");
    let disabled = browser.evaluate("document.getElementById('capture').disabled");
    assert_eq!(disabled, true);
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|complaint| complaint.contains("503")), "{complaints:#?}");
}
