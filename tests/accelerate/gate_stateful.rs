//! The gate on terms under which connections are forwarded one by one: rules make their families stateful, and what is
//! other in them is noticed.

use std::process::Command;

use manylane_accelerate::gate::{
    About, Bypass, Gate, Judgement, Kernel, Stateful, Terms, programs_of_others,
};
use manylane_lab::LabOptions;
use manylane_lab::scenario::{has, lab};

const V4: Stateful = Stateful { v4: true, v6: false };
const V6: Stateful = Stateful { v4: false, v6: true };
const BOTH: Stateful = Stateful { v4: true, v6: true };

/// Rules, and the families of the packets that may be forwarded by connection only.
const CASES: [(&str, Stateful); 8] = [
    ("nft add table inet fw", Stateful { v4: false, v6: false }),
    ("nft 'add chain inet fw forward { type filter hook forward priority 0; policy drop; }'", BOTH),
    ("nft delete table inet fw", Stateful { v4: false, v6: false }),
    (
        "nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority srcnat; }'
        nft add rule ip nat post oifname wan masquerade",
        V4,
    ),
    // Nothing filters IPv6, and a rule for the router itself has its packets tracked.
    (
        "nft 'add table ip6 own; add chain ip6 own input { type filter hook input priority 0; }'
        nft add rule ip6 own input ct state established accept",
        BOTH,
    ),
    ("nft delete table ip nat", V6),
    ("nft delete table ip6 own", Stateful { v4: false, v6: false }),
    ("iptables-legacy -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT", V4),
];

#[test]
fn rules_make_their_families_stateful_and_keep_no_port() {
    in_the_router(|gate| {
        for (commands, wanted) in CASES {
            shell(commands);
            let Judgement { standings, stateful } = judged(gate);
            assert_eq!(stateful, wanted, "{commands}");
            for standing in standings {
                let is_free = standing.is_free() && standing.is_ingress && standing.is_egress;
                assert!(is_free, "{commands}: {standing:#?}");
                let is_noted = standing.notes.iter().any(|note| {
                    matches!(note.about, About::Netfilter | About::Nat | About::Conntrack)
                });
                assert_eq!(is_noted, wanted.any(), "{commands}: {standing:#?}");
            }
        }
    });
}

/// The kernel announces nothing of these tables, and counts in them all the time.
#[test]
fn of_legacy_rules_another_one_is_noticed_and_a_counter_is_not() {
    in_the_router(|gate| {
        shell("iptables-legacy -A FORWARD -s 10.1.0.0/16 -j ACCEPT -c 1 100");
        let mut is_noticed = |commands: &str| {
            let _ = judged(gate);
            shell(commands);
            gate.poll_at_once(&read(), &names())
        };
        assert!(!is_noticed("iptables-legacy -R FORWARD 1 -s 10.1.0.0/16 -j ACCEPT -c 5 500"));
        assert!(is_noticed("iptables-legacy -R FORWARD 1 -s 10.2.0.0/16 -j ACCEPT -c 5 500"));
        assert!(is_noticed("iptables-legacy -A FORWARD -s 10.3.0.0/16 -j DROP"));
        let order = "iptables-legacy -D FORWARD 1
            iptables-legacy -A FORWARD -s 10.2.0.0/16 -j ACCEPT";
        assert!(is_noticed(order), "the same rules in another order");
        assert!(!is_noticed("iptables-legacy -Z FORWARD"));
    });
}

fn in_the_router(test: impl FnOnce(&mut Gate) + Send + 'static) {
    if !["nft", "iptables-legacy"].iter().all(|program| has(program)) {
        return;
    }
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = lab(options) else { return };
    lab.router.run(move || {
        let gate = Gate::open(programs_of_others());
        test(&mut gate.unwrap_or_else(|error| panic!("{error}")));
    });
}

fn judged(gate: &mut Gate) -> Judgement {
    let terms = Terms { bypass: Bypass::default(), stateful: true };
    gate.evaluate(&read(), &names(), terms).unwrap_or_else(|error| panic!("{error}"))
}

fn names() -> Vec<String> {
    ["lan", "wan"].map(String::from).to_vec()
}

fn read() -> Kernel {
    Kernel::read().unwrap_or_else(|error| panic!("{error}"))
}

/// Runs commands, line by line, in the namespace of the calling thread.
fn shell(commands: &str) {
    let output = Command::new("sh").args(["-ec", commands]).output().expect("there is a shell");
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
}
