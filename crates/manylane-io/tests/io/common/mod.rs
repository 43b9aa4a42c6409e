//! What the root-only tests share: hosts on a wire, or a line that says why not.
#![allow(dead_code)] // Each test file uses a part of it.

pub mod connections;
pub mod ip;
pub mod packet;
pub mod wire;
pub mod xdp;

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use manylane_io::namespace::Host;
use manylane_io::netlink::{LinkEnd, Netlink};

/// Says on standard error that a test was skipped. In CI (`CI=true`) that is a failure: there the
/// machine supports the test.
pub fn skip(why: impl std::fmt::Display) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: {why}");
    eprintln!("SKIPPED {why}");
}

/// A host in a network namespace of its own; `None` (and a line) when we may not make one.
pub fn host(name: &str) -> Option<Host> {
    match Host::start(name) {
        Ok(host) => Some(host),
        Err(error) => {
            skip(error);
            None
        }
    }
}

/// Switches off IPv6's own chatter on links that will be made, so that only what the test sends is on
/// the wire. Without link-local addresses a host cannot route IPv6.
pub fn silence(host: &Host) {
    setting(host, "net/ipv6/conf/default/addr_gen_mode", "1");
}

/// Makes the addresses of links that will be made usable at once.
pub fn skip_duplicate_detection(host: &Host) {
    setting(host, "net/ipv6/conf/default/accept_dad", "0");
}

/// Changes a setting of the kernel in the namespace of `host`.
pub fn setting(host: &Host, name: &'static str, value: &'static str) {
    host.run(move || manylane_io::sysctl::set(name, value))
        .expect("root may, and IPv6 is built in");
}

/// Connects two hosts by a veth pair and sets both ends up.
pub fn connect(one: &Host, one_end: LinkEnd, other: &Host, other_end: LinkEnd) {
    let names = [one_end.name.clone(), other_end.name.clone()];
    let there = descriptor(other);
    one.run(move || create(&one_end, &other_end, &there));
    for (host, name) in [one, other].into_iter().zip(&names) {
        let name = name.clone();
        host.run(move || set_up(&name));
    }
    for (host, name) in [one, other].into_iter().zip(names) {
        host.run(move || await_queue(&name));
    }
}

/// Connects the calling thread's namespace to a host.
pub fn connect_here(end: LinkEnd, other: &Host, other_end: LinkEnd) {
    create(&end, &other_end, &descriptor(other));
    set_up(&end.name);
    other.run(move || {
        set_up(&other_end.name);
        await_queue(&other_end.name);
    });
    await_queue(&end.name);
}

fn create(end: &LinkEnd, other_end: &LinkEnd, there: &OwnedFd) {
    let mut netlink = Netlink::open().expect("netlink is always there");
    netlink.create_veth(end, other_end, Some(there.as_fd())).expect("the names are free");
}

fn set_up(name: &str) {
    let mut netlink = Netlink::open().expect("netlink is always there");
    netlink.set_up(name).expect("the link was just made");
}

/// Until its queueing discipline is there, a link that is up drops what is sent, and says nothing.
pub fn await_queue(name: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let output = Command::new("ip").args(["-json", "link", "show", "dev", name]).output();
        let output = output.expect("needs iproute2");
        let shown = String::from_utf8_lossy(&output.stdout);
        if shown.contains(r#""operstate":"UP""#) {
            return;
        }
        assert!(Instant::now() < end, "{name} is not up: {output:?}");
    }
}

fn descriptor(host: &Host) -> OwnedFd {
    host.namespace().as_fd().try_clone_to_owned().expect("descriptors are to be had")
}

/// Gives an address to a link of `host`.
pub fn address(host: &Host, name: &'static str, address: &str, prefix_length: u8) {
    let address: IpAddr = address.parse().expect("the test wrote it");
    host.run(move || {
        Netlink::open()
            .and_then(|mut netlink| netlink.add_address(name, address, prefix_length))
            .expect("the link has no such address yet");
    });
}
