//! Where packets are lost between two hosts with an accelerated router between them
//! ([`IN_A_ROW`](manylane_lab::accelerated::IN_A_ROW)): a scenario that allows losses names the counters that have them.

use manylane_lab::accelerated::Accelerated;
use manylane_lab::losses::Packets;
use manylane_lab::{Losses, Topology, until};

/// The counters of the hosts and of the router at one moment.
#[derive(Clone, Debug, Default)]
pub struct Account {
    hosts: Packets,
    router: Packets,
    losses: Losses,
}

/// What became of the packets that the hosts sent each other since another moment.
#[derive(Clone, Debug)]
pub struct Fate {
    /// Packets that have not arrived.
    pub missing: i64,
    /// Of these, packets that a host's device dropped, since the router's device had no room for them.
    pub dropped: i64,
    /// Of the others, packets that were in a queue of the router's device when the kernel stopped to poll it, as a program
    /// left: the kernel frees them and counts nothing.
    pub freed: i64,
    /// Of the others, packets that the router's device received, and that the other one did not send.
    pub stayed: i64,
    /// What all counters have counted meanwhile.
    pub lost: Losses,
}

/// Lets the hosts send nothing but the packets of the scenario, each in a frame of its own: all neighbours are known for
/// good, and TCP makes no segments that a device is to cut.
pub fn count_all_packets(topology: &Topology) {
    for (host, interface, peer, peers, addresses) in [
        ("client", "eth0", "r1", "lan", ["10.1.0.254", "2001:db8:1::fe"]),
        ("server", "eth0", "r1", "wan", ["10.2.0.254", "2001:db8:2::fe"]),
        ("r1", "lan", "client", "eth0", ["10.1.0.1", "2001:db8:1::1"]),
        ("r1", "wan", "server", "eth0", ["10.2.0.1", "2001:db8:2::1"]),
    ] {
        let mac = topology.mac(peer, peers).expect("it is there");
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        for address in addresses {
            let neighbour = format!("{address} lladdr {mac} dev {interface} nud permanent");
            topology.tool(host, &format!("ip neighbour replace {neighbour}"));
        }
    }
    for host in ["client", "server"] {
        topology.tool(host, "ip link set eth0 gso_max_segs 1");
    }
}

impl Account {
    /// As they are now; without a daemon, those of kernels only.
    pub fn now(topology: &Topology, accelerated: Option<&Accelerated>) -> Account {
        let hosts = ["client", "server", "r1"].map(|name| (name, topology.host(name)));
        let mut losses = Losses::of_kernels(&hosts);
        if let Some(accelerated) = accelerated {
            losses.add_accelerator(&accelerated.ledger());
        }
        let (hosts, router) = hosts.split_at(2);
        let [hosts, router] = [hosts, router].map(Packets::of_kernels);
        Account { hosts, router, losses }
    }

    /// Waits until all that was sent since this moment has arrived or is accounted for: packets missing = freed + stayed +
    /// dropped by the hosts' devices, and stayed in the router = counted by these counters. Traffic has to rest.
    pub fn settle(&self, names: &[&str], mut now: impl FnMut() -> Account) -> Fate {
        let counted = |fate: &Fate| fate.lost.of(names) as i64 == fate.stayed;
        let what = format!("each missing packet is counted by one of {names:?}");
        self.settled(&what, counted, &mut now)
    }

    /// The same where the daemon has ended: what stayed in the router was in rings of the daemon's sockets. No kernel has
    /// counted a loss.
    pub fn settle_after_the_daemon(&self, topology: &Topology) -> Fate {
        let counted = |fate: &Fate| fate.stayed >= 0 && fate.lost == Losses::default();
        let what = "no kernel has lost a packet";
        self.settled(what, counted, &mut || Account::now(topology, None))
    }

    fn settled(
        &self,
        what: &str,
        is_counted: impl Fn(&Fate) -> bool,
        now: &mut dyn FnMut() -> Account,
    ) -> Fate {
        let fate = until(what, || {
            let fate = self.fate(&now());
            let Fate { missing, dropped, freed, stayed, .. } = fate;
            match missing == dropped + freed + stayed && is_counted(&fate) {
                true => Ok(fate),
                false => Err(format!("{fate:#?}")),
            }
        });
        println!("{fate:?}");
        fate
    }

    /// What became of the packets that were sent since this moment.
    fn fate(&self, now: &Account) -> Fate {
        let hosts = now.hosts.since(&self.hosts);
        let router = now.router.since(&self.router);
        // The packets for groups end at the router, and those that its own kernel made are no packets of the hosts.
        let difference = |one: u64, other: u64| one as i64 - other as i64;
        let sent = difference(hosts.given, hosts.given_to_groups);
        let received = difference(hosts.received, hosts.received_for_groups);
        let by_router = difference(router.received, hosts.given_to_groups);
        Fate {
            missing: sent - received,
            dropped: hosts.dropped as i64,
            freed: difference(hosts.given, hosts.sent + hosts.dropped),
            stayed: by_router - difference(router.sent, router.given),
            lost: now.losses.since(&self.losses),
        }
    }
}
