//! A router that filters by connection, and connections through it. Needs root, nft and conntrack.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use manylane_lab::scenario::{has, lab};
use manylane_lab::stateful::{self, Datagrams, Rules};
use manylane_lab::{
    CLIENT_V4, CLIENT_V6, Flows, Host, Lab, LabOptions, SERVER_V4, WAN_V4, WAN_V6, tool,
    udp_stream, until,
};

const PORTS: [&str; 2] = ["lan", "wan"];

/// A router by its kernel, with neighbours that no host is, and connections to be made: some of each IP version.
fn bed() -> Option<(Lab, [Datagrams; 2])> {
    if !has("nft") || !has("conntrack") {
        return None;
    }
    let lab = lab(LabOptions { kernel_router: true, ..LabOptions::default() })?;
    lab.load_routes(&[]).expect("root may");
    let flows = |source: IpAddr, flows: Flows| {
        let destinations = flows.addresses().into_iter().take(300);
        let destinations = destinations.map(|address| SocketAddr::new(address, 9)).collect();
        Datagrams { source: SocketAddr::new(source, 1024), destinations }
    };
    let all = [flows(CLIENT_V4, Flows::near()), flows(CLIENT_V6, Flows::ipv6(&[]))];
    Some((lab, all))
}

#[test]
fn connections_are_assured_and_masqueraded_where_the_rules_say_so() {
    let Some((lab, all)) = bed() else { return };
    let Lab { client, router, server } = &lab;
    for rules in [Rules::Firewall, Rules::Masquerade] {
        rules.load(router, PORTS).expect("nft takes them");
        for (datagrams, wan) in all.iter().zip([WAN_V4, WAN_V6]) {
            let made = datagrams.establish(client, (router, PORTS), server).expect("they settle");
            assert_eq!(made.len(), 300);
            assert_eq!(datagrams.assured(router).expect("conntrack says"), 300);
            for connection in &made {
                assert!(datagrams.destinations.contains(&connection.original[1]));
                let translated = rules == Rules::Masquerade;
                assert_eq!(connection.is_translated(), translated, "{connection:?}");
                let wanted = if translated { wan } else { datagrams.source.ip() };
                // A port that is free is kept.
                assert_eq!(connection.reply[1], SocketAddr::new(wanted, 1024));
                assert!(connection.timeout_s > 30_000, "{connection:?}");
            }
        }
        // Of both versions, and beside them what the hosts' kernels say of their own.
        assert!(stateful::count(router).expect("conntrack says") >= 600);
        assert!(stateful::connections(router, "-u ASSURED").expect("conntrack says").len() >= 600);
        stateful::unload(router).expect("they are there");
        assert_eq!(stateful::connections(router, "-p udp").expect("conntrack says"), []);
    }
}

#[test]
fn rules_that_are_closed_keep_connections_and_take_none() {
    let Some((lab, [datagrams, _])) = bed() else { return };
    let Lab { client, router, server } = &lab;
    Rules::Firewall.load(router, PORTS).expect("nft takes them");
    datagrams.establish(client, (router, PORTS), server).expect("they settle");
    Rules::Closed.load(router, PORTS).expect("nft takes them");
    tool(router, &format!("nft '{COUNTER}\n'")).expect("nft takes it");
    assert_eq!(datagrams.assured(router).expect("conntrack says"), 300);
    let new = udp_stream(client, server, SERVER_V4, 10, 64, 0).expect("the client sends");
    assert_eq!((new.sent, new.received), (10, 0));
    // An established one is still let through, in either direction.
    let listed = datagrams.connections(router, "").expect("conntrack says");
    let answer = |connections: &[_]| {
        stateful::answer((router, PORTS[1]), server, connections).expect("the link is up");
    };
    answer(&listed);
    until_forwarded(router, 300);
    // Without its entry it is none; the others' answers are behind its own.
    let (first, others) = listed.split_first().expect("there are 300");
    tool(router, &format!("conntrack -D --orig-dst {}", first.original[1].ip()))
        .expect("it is there");
    answer(std::slice::from_ref(first));
    answer(others);
    until_forwarded(router, 599);
    assert_eq!(datagrams.assured(router).expect("conntrack says"), 299);
}

#[test]
fn more_connections_than_the_kernel_takes_are_an_error_that_names_the_setting() {
    let Some((lab, [datagrams, _])) = bed() else { return };
    let Lab { client, router, server } = &lab;
    Rules::Firewall.load(router, PORTS).expect("nft takes them");
    let too_many = vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9); 1 << 24];
    let datagrams = Datagrams { destinations: too_many, ..datagrams };
    let refused = datagrams.establish(client, (router, PORTS), server);
    let said = refused.expect_err("no machine takes them").to_string();
    assert!(said.contains("net.netfilter.nf_conntrack_max"), "{said}");
}

/// Waits until the router has forwarded that many answers, by a counter of [`COUNTER`]'s, and no more.
fn until_forwarded(router: &Host, wanted: u64) {
    until(&format!("{wanted} answers are forwarded"), || {
        let listed = tool(router, "nft list table inet seen").map_err(|error| error.to_string())?;
        let count = listed.split_whitespace().skip_while(|word| *word != "packets").nth(1);
        let count: u64 = count.and_then(|count| count.parse().ok()).ok_or(listed.clone())?;
        assert!(count <= wanted, "{count} are forwarded");
        if count == wanted { Ok(()) } else { Err(listed) }
    });
}

/// Behind everything else.
const COUNTER: &str = "table inet seen {
    chain last { type filter hook postrouting priority 2000; udp sport 9 counter; }
}";
