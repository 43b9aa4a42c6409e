//! What the accelerator shows, in a browser; what the forwarder shows is in `tests/dashboard.rs`, with a daemon.

#[path = "../../tests/browser/mod.rs"]
#[allow(dead_code, reason = "the other test asks for more")]
mod browser;

use browser::Browser;

use crate::Listen;
use crate::tests::served::{Kind, Served, folder, token_file};

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
        "Capture drops for 5 s",
        "what the kernel got and what workers dropped",
        "local",
        "tx dropped",
        "IPv4 and IPv6 packets are forwarded by connection",
        "unsettled",
        "stays in the kernel",
    ] {
        assert!(text.contains(word), "{word}\n{text}");
    }
    assert!(!text.contains("NaN") && !text.contains("undefined"), "{text}");
    // Without a token the page may read counters, and not packets.
    browser.evaluate("document.getElementById('capture').click()");
    browser.until("document.getElementById('capture-note').innerText.includes('No capture: ')");
    let complaints = browser.complaints();
    let is_known = |complaint: &String| complaint.contains("503") || complaint.contains("403");
    assert!(complaints.iter().all(is_known), "{complaints:#?}");
}

/// With the daemon's token: connections with both their translations, by port and tier, the kernel's with their reasons,
/// and the answer about one that is picked, and about one that is named.
#[test]
fn flows_and_their_reasons_are_seen_in_a_browser() {
    let Some(mut browser) = Browser::start("flows") else { return };
    let address = Some("127.0.0.1:0".parse().unwrap());
    let token_file = Some(token_file(&folder("flows-token"), TOKEN, 0o600));
    let listen = Listen { address, token_file, ..Listen::default() };
    let served = Served::start(Kind::Accelerator, "dashboard-flows", &listen);
    browser.open(&format!("http://{}/", served.address.unwrap()));
    browser.until("!document.getElementById('login').hidden");
    browser.evaluate(&format!(
        "document.getElementById('token').value = '{TOKEN}'; document.getElementById('login').requestSubmit()"
    ));
    browser.until("document.getElementById('flows').rows.length === 5");

    // As packets arrive, and as they leave, in both directions.
    let line = |table: &str, begin: &str| {
        format!(
            "[...document.getElementById('{table}').tBodies[0].rows].map((row) => \
             [...row.cells].map((cell) => cell.innerText).join(' ')).find((line) => line.startsWith('{begin}'))"
        )
    };
    let mut seen = |table: &str, begin: &str| {
        let line = browser.evaluate(&line(table, begin));
        line.as_str().unwrap_or_else(|| panic!("{table} {begin}\n{}", browser.text())).to_owned()
    };
    let there = seen("flows", "10.1.0.1:4000 10.2.0.1:80 tcp lan ingress");
    assert!(there.ends_with("60\u{2009}000 snat 10.2.0.254:4000 > 10.2.0.1:80 why?"), "{there}");
    let back = seen("flows", "10.2.0.1:80 10.2.0.254:4000 tcp wan ingress");
    assert!(
        back.ends_with("3\u{2009}000\u{2009}000 snat 10.2.0.1:80 > 10.1.0.1:4000 why?"),
        "{back}"
    );
    assert!(seen("flows", "[2001:db8:2::1]:53").contains(" udp wan rules "));
    assert!(seen("flows-sums", "lan ingress 2").ends_with("1\u{2009}010 61\u{2009}000"));
    assert!(seen("flows-sums", "wan kernel 1").ends_with("0 0"));

    // The kernel's, all of them and those of one reason.
    browser.evaluate("document.getElementById('kernel-list').click()");
    browser.until("document.getElementById('kernel').rows.length === 4");
    let text = browser.text();
    for words in [
        "some more packets of a direction give it an entry",
        "chain forward, handle 4: `iifname \"wan\" log`: logs such packets",
        "a helper, a sequence adjustment or a SYN proxy",
        "1 to 3 of at least 3. Of 6 connections in conntrack, 2 are in the flow table, and 1 are the router's own.",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    browser.evaluate(
        "document.getElementById('kernel-reason').value = 'rules'; document.getElementById('kernel-list').click()",
    );
    browser.until("document.getElementById('kernel').rows.length === 2");

    // Picked by its row, and named by its ends.
    browser.evaluate("document.querySelector('#kernel button').click()");
    browser.until(
        "document.getElementById('why-note').innerText.includes('udp') || \
                   document.getElementById('why-note').innerText.includes('tcp')",
    );
    assert_eq!(browser.evaluate("document.getElementById('why-source').value"), "2001:db8:1::1");
    let text = browser.text();
    for words in ["kernel: rules", "to free them", "snat"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    browser.evaluate(
        "document.getElementById('why-protocol').value = 'any'; document.getElementById('why-protocol').onchange(); \
         document.getElementById('why-source').value = 'nowhere'; document.getElementById('why').requestSubmit()",
    );
    browser.until(
        "document.getElementById('why-note').innerText.includes('nowhere is no IP address')",
    );
    assert_eq!(browser.evaluate("document.getElementById('why-answer').tBodies[0].rows.length"), 0);

    // Another port, and nothing that sticks out.
    browser.evaluate("document.getElementById('flows-port').value = 'wan'; document.getElementById('flows-port').onchange()");
    for width in [400, 1400] {
        browser.look(width, false);
        let wide = browser.evaluate("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= width.into(), "{wide} of {width}");
    }
    let text = browser.text();
    assert!(!text.contains("NaN") && !text.contains("undefined"), "{text}");
    let complaints = browser.complaints();
    let is_known =
        |complaint: &String| ["401", "503", "400"].iter().any(|one| complaint.contains(one));
    assert!(complaints.iter().all(is_known), "{complaints:#?}");
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
