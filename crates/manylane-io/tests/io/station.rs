//! Stations on a link: what one sends another hears, bit by bit. Needs root.

use crate::common;
use std::os::fd::AsFd;
use std::time::Duration;

use manylane_io::netlink::{LinkEnd, NetlinkError};
use manylane_io::poll::poll;
use manylane_io::station::{Station, StationError};

#[test]
fn what_one_station_sends_the_other_hears() {
    let (Some(left), Some(right)) = (common::host("left"), common::host("right")) else { return };
    [&left, &right].into_iter().for_each(common::silence);
    common::connect(&left, LinkEnd::new("l0"), &right, LinkEnd::new("r0"));
    let left = left.run(|| Station::open("l0")).expect("root may");
    let right = right.run(|| Station::open("r0")).expect("root may");
    let mut buffer = [0; 2048];
    // For another's MAC, of no known EtherType, with a total length that lies, as long as the link takes.
    for len in [15, 60, 1514] {
        let mut frame = vec![0x45; len];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 9, 9, 2, 0, 0, 0, 8, 8, 0x88, 0xb5]);
        left.send(&frame).expect("it fits");
        let ready = poll(&[right.as_fd()], Some(Duration::from_secs(20))).expect("one descriptor");
        assert!(ready.is_ready(0), "{len} bytes did not come");
        assert_eq!(right.receive(&mut buffer).expect("it is up"), Some(&frame[..]));
        // A station does not receive its own frames.
        assert_eq!(left.receive(&mut buffer).expect("it is up"), None);
    }
    for tag in [[0x81, 0, 0xb0, 100], [0x88, 0xa8, 0, 200]] {
        let frame = [&[2, 0, 0, 0, 9, 9, 2, 0, 0, 0, 8, 8], &tag[..], &[0x88, 0xb5, 1, 2]].concat();
        left.send(&frame).expect("it fits");
        let ready = poll(&[right.as_fd()], Some(Duration::from_secs(20))).expect("one descriptor");
        assert!(ready.is_ready(0), "{tag:?} did not come");
        assert_eq!(right.receive(&mut buffer).expect("it is up"), Some(&frame[..]));
    }
    assert_eq!(right.receive(&mut buffer).expect("it is up"), None);
    left.send(&[0; 1515]).expect_err("longer than the MTU and a header");
}

#[test]
fn a_link_that_is_missing_is_named() {
    let Some(host) = common::host("lonely") else { return };
    match host.run(|| Station::open("eth7")) {
        Err(StationError::Link(NetlinkError::NoSuchInterface { name, .. })) => {
            assert_eq!(name, "eth7");
        }
        other => panic!("{other:?}"),
    }
}
