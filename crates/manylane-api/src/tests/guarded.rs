//! The listener against clients without permission.

use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::served::{Answer, Kind, Served, folder, token_file};
use crate::{ApiError, Listen};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn without_a_token_loopback_is_read_and_not_changed() {
    let served = Served::start(Kind::Forwarder, "open", &loopback());
    let host = ["Host: 127.0.0.1:9176"];
    let answer = served.ask_tcp("GET", "/v1/ports", &host);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, served.ask("GET", "/v1/ports", "").body);
    assert_eq!(served.ask_tcp("HEAD", "/v1/ports", &host).status, 200);
    assert!(served.ask_tcp("GET", "/metrics", &host).body.starts_with("# HELP manylane_"));
    for (method, path) in [
        ("PUT", "/v1/config/frames.hot_list_len"),
        ("POST", "/v1/trace"),
        ("POST", "/v1/capture/drops"),
        ("DELETE", "/v1/ports/lan"),
        ("OPTIONS", "/v1/ports"),
    ] {
        let answer = served.ask_tcp(method, path, &host);
        assert_eq!(answer.status, 403, "{method}");
        assert_eq!(error(&answer).error, "without a token, nothing is changed by TCP");
    }
    // Packets are other people's, at either daemon.
    let accelerator = Served::start(Kind::Accelerator, "open-accelerator", &loopback());
    assert_eq!(accelerator.ask_tcp("POST", "/v1/capture/drops", &host).status, 403);
    assert_eq!(accelerator.ask("POST", "/v1/capture/drops", "").status, 200);
    // A client that may open the socket may change settings.
    assert_eq!(served.ask("PUT", "/v1/config/frames.hot_list_len", "512").status, 200);
}

#[test]
fn a_token_is_asked_for_by_all_methods() {
    let folder = folder("token");
    let token_file = Some(token_file(&folder, &format!("{TOKEN}\n"), 0o600));
    for kind in [Kind::Forwarder, Kind::Accelerator] {
        let listen = Listen { token_file: token_file.clone(), ..loopback() };
        let served = Served::start(kind, "token-asked", &listen);
        let ask = |method: &str, header: &str| {
            let path = if method == "GET" { "/v1/daemon" } else { "/v1/config/no.such.key" };
            let headers = ["Host: localhost", header];
            let headers = if header.is_empty() { &headers[..1] } else { &headers };
            served.ask_tcp(method, path, headers)
        };
        for header in [
            "".to_owned(),
            format!("Authorization: Basic {TOKEN}"),
            format!("Authorization: {TOKEN}"),
            format!("Authorization: Bearer {TOKEN}0"),
            format!("Authorization: Bearer {}", &TOKEN[1..]),
            format!("Authorization: Bearer {}", TOKEN.replace('f', "e")),
            "Authorization: Bearer ".into(),
            format!("Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}"),
        ] {
            for method in ["GET", "PUT"] {
                let answer = ask(method, &header);
                assert_eq!(answer.status, 401, "{method} {header}");
                assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
                assert_eq!(error(&answer).error, "the request does not have the token");
            }
        }
        // As the document says that it is given.
        let document = served.ask("GET", "/v1/openapi.json", "").body;
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["security"], json!([{"token": []}, {}]));
        let scheme = &document["components"]["securitySchemes"]["token"];
        assert_eq!(scheme["type"], "http");
        let right = format!("Authorization: {} {TOKEN}", scheme["scheme"].as_str().unwrap());
        assert_eq!(ask("GET", &right).status, 200);
        let refused = ask("PUT", &right);
        assert!([400, 404].contains(&refused.status), "it came through: {}", refused.status);
    }
    let _ = fs::remove_dir_all(&folder);
}

/// A name that a stranger made lead here is in the Host header of the stranger's page.
#[test]
fn a_request_has_to_name_this_host_as_it_may_be_named() {
    let listen = Listen { host_name: Some("router1.example.net".into()), ..loopback() };
    let served = Served::start(Kind::Forwarder, "names", &listen);
    let status = |headers: &[&str]| served.ask_tcp("GET", "/v1/daemon", headers).status;
    for host in [
        "127.0.0.1",
        "127.0.0.1:9176",
        "[::1]:9176",
        "192.0.2.1",
        "localhost",
        "LocalHost:9176",
        "router1.example.net:9176",
    ] {
        assert_eq!(status(&[&format!("Host: {host}")]), 200, "{host}");
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:9176",
        "evil@127.0.0.1.evil.example",
        "2130706433",
        "",
    ] {
        assert_eq!(status(&[&format!("Host: {host}")]), 403, "{host}");
    }
    assert_eq!(status(&[]), 403, "no name at all");
    assert_eq!(status(&["Host: localhost", "Host: evil.example"]), 403, "two");
    let absolute = served.ask_tcp("GET", "http://evil.example/v1/daemon", &["Host: localhost"]);
    assert_eq!(absolute.status, 403);
}

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    let folder = folder("refused");
    let check = |address: &str, token_file| {
        let address: SocketAddr = address.parse().unwrap();
        let listen = Listen { address: Some(address), token_file, host_name: None };
        listen.check().map_err(|error| error.to_string())
    };
    for loopback in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        assert_eq!(check(loopback, None), Ok(()), "{loopback}");
    }
    for exposed in ["0.0.0.0:9176", "[::]:9176", "192.0.2.1:9176", "[2001:db8::1]:1"] {
        let said = check(exposed, None).unwrap_err();
        assert!(said.contains("other hosts could use"), "{said}");
        let token = token_file(&folder, TOKEN, 0o400);
        assert_eq!(check(exposed, Some(token.clone())), Ok(()), "{exposed}");
        fs::remove_file(token).unwrap();
    }
    let any = "127.0.0.1:0";
    for mode in [0o644, 0o640, 0o620, 0o604] {
        let token = token_file(&folder, TOKEN, mode);
        let said = check(any, Some(token)).unwrap_err();
        assert!(said.contains("others than its owner may use the token"), "{said}");
        assert!(said.contains("chmod 600"), "{said}");
    }
    for (text, problem) in [
        ("short", "fewer than 16"),
        ("", "fewer than 16"),
        ("with a space in the middle", "spaces"),
        (&"x".repeat(1025), "more than 1024"),
    ] {
        let said = check(any, Some(token_file(&folder, text, 0o600))).unwrap_err();
        assert!(said.contains(problem), "{said}");
        assert!(!said.contains("with a space"), "a token is never shown: {said}");
    }
    let said = check(any, Some(folder.join("none"))).unwrap_err();
    assert!(said.contains("cannot read the token in"), "{said}");
    assert!(check(any, Some(folder.clone())).unwrap_err().contains("it is no file"));
    let taken = loopback().open().unwrap().unwrap();
    let again = Listen { address: Some(taken.address().unwrap()), ..Listen::default() };
    assert!(again.open().unwrap_err().to_string().contains("cannot listen at 127.0.0.1"));
    let _ = fs::remove_dir_all(&folder);
}

fn loopback() -> Listen {
    Listen { address: Some("127.0.0.1:0".parse().unwrap()), ..Listen::default() }
}

fn error(answer: &Answer) -> ApiError {
    serde_json::from_str(&answer.body).unwrap()
}
