//! What ours is measured against forwards as a router does: whole, aged, to the right neighbour. Needs root.

#[path = "../../manylane-io/tests/io/common/mod.rs"]
mod common;
#[path = "../../manylane-accelerate/tests/programs/packet.rs"]
mod packet;

use std::io;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use manylane_io::interface::Interface;
use manylane_io::namespace::Host;
use manylane_io::netlink::LinkEnd;
use manylane_lab::generator::{LiveGenerator, LiveOptions, Yardstick};
use packet::{V4, V6, address, udp, v4, v6};

/// What a socket gets has the right Ethernet address, the right checksums and the right length: the kernel has looked.
#[test]
fn datagrams_arrive_by_each() {
    let hosts = ["client", "router", "server"].map(common::host);
    let [Some(client), Some(router), Some(server)] = &hosts else { return };
    hosts.iter().flatten().for_each(common::silence);
    common::connect(client, LinkEnd::new("c0"), router, LinkEnd::new("in0"));
    common::connect(router, LinkEnd::new("out0"), server, LinkEnd::new("s0"));
    // A veth takes redirected frames only with its own receive polling.
    let lines = [
        (router, "ethtool -K in0 gro on"),
        (server, "ethtool -K s0 gro on"),
        (router, "ip addr add 10.0.1.1/24 dev out0"),
        (router, "ip addr add 2001:db8:1::ff/64 dev out0 nodad"),
        (router, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"),
        (server, "ip addr add 10.0.1.2/24 dev s0"),
        (server, "ip addr add 2001:db8:1::2/64 dev s0 nodad"),
        (server, "ip route add default dev s0"),
        (server, "ip route add 2001:db8::/32 dev s0"),
        (server, "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.s0.rp_filter=0"),
    ];
    if let Some(error) = lines.iter().find_map(|(host, line)| tool(host, line).err()) {
        return common::skip(error);
    }
    let [into, out, to] = [(router, "in0"), (router, "out0"), (server, "s0")]
        .map(|(host, name)| host.run(move || Interface::read(name).expect("it was just made")));
    for to_address in ["10.0.1.2", "2001:db8:1::2"] {
        let line =
            format!("ip neigh replace {to_address} lladdr {} dev out0 nud permanent", mac(to.mac));
        tool(router, &line).expect("the others could be said");
    }
    let (into_mac, out_mac, to_mac) = (into.mac, out.mac, to.mac);
    let ways = [into, out].map(std::sync::Arc::new);
    for yardstick in [Yardstick::Floor, Yardstick::Touch(1 << 10), Yardstick::Fib] {
        for (mut frame, destination) in [(four(), "10.0.1.2"), (six(), "2001:db8:1::2")] {
            frame[..6].copy_from_slice(&into_mac);
            let [into, out] = ways.clone();
            let link = router.run(move || yardstick.attach(&into, &out, [to_mac, out_mac]));
            let Some(_link) = link.map_err(common::skip).ok() else { return };
            let socket = server.run(move || UdpSocket::bind((destination, 9)));
            let socket = socket.expect("it has the address");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("sockets have one");
            let options =
                LiveOptions { per_second: 2000, ..LiveOptions::new(frame, address(destination)) };
            let generator = client.run(move || {
                let interface = Interface::read("c0").expect("it was just made");
                LiveGenerator::start(&interface, options)
            });
            let Some(generator) = generator.map_err(common::skip).ok() else { return };
            let mut buffer = [0; 64];
            let got = socket.recv(&mut buffer);
            let len = got.unwrap_or_else(|error| panic!("{yardstick:?} {destination}: {error}"));
            assert_eq!(buffer[..len.min(4)], [1, 2, 3, 4], "{yardstick:?} {destination}");
            generator.stop().expect("it ran until now");
        }
    }
}

fn tool(host: &Host, line: &str) -> io::Result<()> {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let output = host.run(move || Command::new(&words[0]).args(&words[1..]).output())?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("{line}: {}", String::from_utf8_lossy(&output.stderr))))
        }
    }
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn four() -> Vec<u8> {
    V4 { payload: [udp(7000, 9), vec![5; 30]].concat(), ..v4("10.0.1.2") }.frame()
}

fn six() -> Vec<u8> {
    let mut payload = [udp(7000, 9), vec![5; 30]].concat();
    payload[5] = payload.len() as u8;
    V6 { payload, ..v6("2001:db8:1::2") }.frame()
}
