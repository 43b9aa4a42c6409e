//! Echoes frames between two ends of a veth pair: an AF_XDP port on one, a raw socket on the other. Needs root; the links
//! are in an anonymous network namespace, which ends with the process.
//!
//! `sudo -E cargo run -p manylane-io --example af_xdp`

use std::error::Error;
use std::os::fd::AsFd;

use manylane_frame::vocabulary::{PortId, WorkerId};
use manylane_frame::{Batch, Depot, Region, RegionConfig};
use manylane_io::namespace::Namespace;
use manylane_io::netlink::{LinkEnd, Netlink};
use manylane_io::poll::poll;
use manylane_io::port::Receiving;
use manylane_io::port::af_xdp::{AfXdp, AfXdpConfig, Umem};
use manylane_io::station::Station;
use manylane_io::sysctl;

const FRAMES: u32 = 4096;
const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const STATION_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The ethertype for experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

fn main() -> Result<(), Box<dyn Error>> {
    if let Err(error) = Namespace::new_for_this_thread() {
        println!("SKIPPED: {error}");
        return Ok(());
    }
    // Without IPv6 no other frames cross the link.
    sysctl::set("net/ipv6/conf/default/disable_ipv6", "1")?;
    let mut netlink = Netlink::open()?;
    let ends = (LinkEnd::new("port").mac(PORT_MAC), LinkEnd::new("station").mac(STATION_MAC));
    netlink.create_veth(&ends.0, &ends.1, None)?;
    netlink.set_up("port")?;
    netlink.set_up("station")?;

    let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 })?;
    let depot = Depot::new(region.clone(), 1).expect("no other depot has taken the frames");
    let mut pool = depot.pool();
    let mut umem = Umem::new(region.clone());
    let receiving = Receiving { owners: &[WorkerId(0)], elsewhere: &[None] };
    let config = AfXdpConfig::default();
    let mut opened = match AfXdp::open(&mut umem, PortId(1), "port", receiving, config) {
        Err(error) if error.is_unavailable() => {
            println!("SKIPPED: {error}");
            return Ok(());
        }
        opened => opened?,
    };
    println!("port: {} mode, zero-copy {}", opened.facts.mode, opened.facts.zero_copy);
    let (receiver, transmitter) = (&mut opened.receivers[0], &mut opened.transmitters[0]);
    receiver.prime(&mut pool); // Posts frames, before the first one arrives.

    let station = Station::open("station")?;
    let mut buffer = [0; 2048];
    for number in 0..3u32 {
        let header = [&PORT_MAC[..], &STATION_MAC, &ETHERTYPE].concat();
        station.send(&[&header[..], &number.to_be_bytes(), &[0; 42]].concat())?;

        let mut batch = Batch::new();
        while batch.is_empty() {
            poll(&[receiver.as_fd()], None)?;
            receiver.receive(&mut pool, &mut batch);
        }
        for frame in batch.iter_mut() {
            let bytes = region.bytes_mut(frame);
            let (to, from) = bytes[..12].split_at_mut(6);
            to.swap_with_slice(from);
        }
        transmitter.transmit(&mut pool, &mut batch, |_completed| ());
        transmitter.flush();

        poll(&[station.as_fd()], None)?;
        let echo = station.receive(&mut buffer)?.ok_or("the socket was ready")?;
        assert_eq!((&echo[..6], &echo[14..18]), (&STATION_MAC[..], &number.to_be_bytes()[..]));
        println!("frame {number} came back, {} bytes", echo.len());
        receiver.reclaim(&mut pool, |_completed| ());
    }
    let closed =
        opened.port.close(opened.receivers, opened.transmitters, &mut pool, |_fate, _meta| ());
    println!("closed: {} frames were posted, {} unsent", closed.posted, closed.unsent);
    Ok(())
}
