//! What a question costs, by ruleset, in nanoseconds: `cargo test -p manylane-accelerate --test firewall -- --ignored cost
//! --nocapture`.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use manylane_accelerate::firewall::{Firewall, Flow, Options, Protocol, Tuple};
use manylane_io::namespace::Host;
use manylane_io::netlink::kernel::Family;
use manylane_lab::tools::tool;

use super::fixtures::{loaded, packet, read};

/// Rules with large sets, in front of those for established connections.
fn with_sets() -> Option<Host> {
    let host = loaded(&[])?;
    let mut text = String::from("table inet t {\nset banned { type ipv4_addr; elements = {\n");
    (0..10_000).for_each(|number| text += &format!("10.{}.{}.1,", number / 256, number % 256));
    text += "} }\nset networks { type ipv4_addr; flags interval; elements = {\n";
    (0..10_000).for_each(|number| text += &format!("10.{}.{}.16/28,", number / 256, number % 256));
    text += "} }\nset services { type ipv4_addr . inet_service; flags interval; elements = {\n";
    (0..1000)
        .for_each(|number| text += &format!("10.0.{}.{} . 80-443,", number / 250, number % 250));
    text += "} }\nchain c { type filter hook prerouting priority -150; ip saddr @banned drop\n";
    text += "ip saddr @networks drop\nip daddr . tcp dport @services drop\nct state established accept\n}\n}";
    let path = std::env::temp_dir().join(format!("manylane-cost-{}.nft", std::process::id()));
    std::fs::write(&path, text).expect("a file can be written");
    let done = tool(&host, &format!("nft -f {}", path.display()));
    std::fs::remove_file(&path).expect("we wrote it");
    done.expect("the file is a ruleset");
    Some(host)
}

fn flow(family: Family, number: u16) -> Flow {
    let [client, server, router]: [IpAddr; 3] = match family {
        Family::V4 => {
            [[192, 168, 122, 7].into(), [203, 0, 113, 5].into(), [198, 51, 100, 1].into()]
        }
        Family::V6 => [1, 2, 3].map(|host| [0x2001, 0xdb8, 0, 0, 0, 0, 0, host].into()),
    };
    let original = Tuple {
        source: client,
        source_port: 4000 + number,
        destination: server,
        destination_port: 443,
    };
    let reply = Tuple { destination: router, ..original.inverted() };
    Flow { mark: Some(0), zone: Some(0), ..Flow::new(original, reply, false) }
}

/// The mean over enough of them, of the best of some tries.
fn ns(mut question: impl FnMut(u16)) -> f64 {
    let mut count = 1000;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        (0..count).for_each(|number| question(number as u16));
        let took = start.elapsed().as_nanos() as f64;
        best = best.min(took / f64::from(count));
        count = (4e6 / best) as u32 + 1;
    }
    best
}

#[test]
#[ignore = "measures"]
fn what_a_question_costs() {
    let all: [(&str, &[&str], [&str; 2]); 10] = [
        ("firewalld", &["firewalld.nft"], ["lan", "wan"]),
        ("ufw", &["ufw.v4", "ufw.v6"], ["lan", "wan"]),
        ("docker, out", &["docker.v4"], ["docker0", "wan"]),
        ("docker, in", &["docker.v4"], ["wan", "docker0"]),
        ("libvirt, out", &["libvirt.nft"], ["virbr0", "wan"]),
        ("libvirt, in", &["libvirt.nft"], ["wan", "virbr0"]),
        ("fw4", &["fw4.nft"], ["br-lan", "wan"]),
        ("vyos", &["vyos.nft"], ["lan", "wan"]),
        ("by hand, in", &["by-hand.nft"], ["wan", "lan"]),
        ("sets of 10,000", &[], ["lan", "wan"]),
    ];
    println!("{:<16}{:>10}{:>12}{:>12}  ns", "rules", "of class", "class", "flow");
    for (name, files, ports) in all {
        let host = if files.is_empty() { with_sets() } else { loaded(files) };
        let Some(host) = host else { return };
        let firewall = read(&host);
        let reading = host.run(|| ns(|_| drop(black_box(Firewall::read()))));
        println!("{name:<16}{:>34.0}  to read the rules", reading);
        for family in [Family::V4, Family::V6] {
            let key = packet(ports, family, Protocol::Tcp).class();
            let flows: Vec<_> = (0..1000).map(|number| flow(family, number)).collect();
            let class = firewall.class(&key, Options::default());
            let word = match class.allows_all() {
                Some(true) => "yes",
                Some(false) => "no",
                None => "per flow",
            };
            let whole =
                ns(|_| drop(black_box(firewall.class(black_box(&key), Options::default()))));
            let one = ns(|number| {
                black_box(class.allows(&flows[usize::from(number) % flows.len()]));
            });
            let family = if family == Family::V4 { "v4" } else { "v6" };
            println!("{:<16}{word:>10}{whole:>12.0}{one:>12.0}", format!("{name} {family}"));
        }
    }
}
