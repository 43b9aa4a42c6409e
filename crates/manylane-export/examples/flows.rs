//! Sends one flow record, and one of a translation, to a collector by IPFIX.
//!
//! `cargo run -p manylane-export --example flows -- udp://192.0.2.5` sends them there; without an argument the example has a
//! collector of its own, which prints how long the messages are.

use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use manylane_export::ipfix::{
    EndReason, Ends, Exporter, ExporterOptions, FlowRecord, NatChange, NatEvent, PORT,
};
use manylane_export::{CollectorAddress, Destination, Transport};

fn main() -> Result<(), Box<dyn Error>> {
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let here = format!("udp://{}", own.local_addr()?);
    let url = std::env::args().nth(1).unwrap_or_else(|| here.clone());
    let address = CollectorAddress::parse(&url, &[Transport::Udp, Transport::Tcp], PORT)?;
    let exporter = Exporter::start(Destination::resolve(&[address])?, ExporterOptions::default())?;

    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let [client, server, router] =
        ["10.1.0.1", "198.51.100.7", "203.0.113.1"].map(|text| text.parse().expect("an address"));
    let received = Ends::new((client, 40_000), (server, 443));
    let sent = Ends::new((router, 6000), (server, 443));
    let flow = FlowRecord {
        received,
        sent,
        protocol: 6,
        interfaces: [2, 3],
        packets: 10,
        octets: 9_000,
        start_ms: now_ms - 500,
        end_ms: now_ms,
        reason: EndReason::EndOfFlow,
    };
    let change = NatChange::Deleted;
    let event = NatEvent { time_ms: now_ms, change, received, sent, protocol: 6 };
    exporter.sender().send(&[flow.into(), event.into()]);
    let watch = exporter.watch();
    drop(exporter); // All that was handed over has been sent.
    for (address, status) in watch.status().collectors {
        println!("{address}: {} messages, {} records", status.sent, status.sent_records);
    }
    own.set_nonblocking(true)?;
    let mut message = [0; 1500];
    while let Ok(length) = own.recv(&mut message) {
        println!("received {length} bytes");
    }
    Ok(())
}
