//! A page by HTTP: a real client in one host, a server in the other.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread;

use crate::scenario::Scenario;
use manylane_lab::scenario::{has, spawn_in};
use manylane_lab::{Content, SERVER_V4, SERVER_V6};

#[test]
fn curl_gets_a_page_through_the_router() {
    if !has("curl") {
        return;
    }
    let Some(scenario) = Scenario::start() else { return };
    let mut page = vec![0; 3_000_000];
    Content::new(1).fill(&mut page);
    for destination in [SERVER_V4, SERVER_V6] {
        let at = serve_once(&scenario, destination, page.clone());
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "20"]);
        curl.arg(format!("http://{at}/")).stdin(Stdio::null()).stdout(Stdio::piped());
        let output =
            spawn_in(&scenario.lab.client, curl).wait_with_output().expect("it is our child");
        assert!(output.status.success(), "curl http://{at}/: {}", output.status);
        assert!(output.stdout == page, "the page of http://{at}/ arrived changed");
    }
    scenario.finish();
}

/// Answers one request with `page`. The thread ends with curl's connection.
fn serve_once(scenario: &Scenario, address: IpAddr, page: Vec<u8>) -> SocketAddr {
    let listener = scenario.lab.server.run(move || TcpListener::bind((address, 0)));
    let listener = listener.expect("the server has this address");
    let at = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("curl connects");
        let request = BufReader::new(stream.try_clone().expect("descriptors are to be had"));
        request.lines().map_while(Result::ok).find(String::is_empty);
        let length = page.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
            .and_then(|()| stream.write_all(&page))
            .expect("curl reads all of it");
    });
    at
}
