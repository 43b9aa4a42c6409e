//! The doctor in a router's namespace: what nft(8), iptables(8), ip(8) and tc(8) put in the way of packets is
//! found, and heard of. A command is shown only where it takes no protection away, and does what it promises.

use std::process::{Command, Output};

use manylane_accelerate::gate::{Gate, Kernel, Standing, Terms, Tier, programs_of_others};
use manylane_lab::LabOptions;
use manylane_lab::scenario::{has, lab};
use serde_json::Value;

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

/// Whether packets may pass an interface beside the kernel: at its ingress, at its egress.
type Allowed = [bool; 2];
const FREE: Allowed = [true, true];
const KEPT: Allowed = [false, false];
const EGRESS_ONLY: Allowed = [false, true];
const INGRESS_ONLY: Allowed = [true, false];

/// How a change is heard of.
#[derive(Clone, Copy, PartialEq)]
enum Heard {
    /// At once, by the gate.
    AtOnce,
    /// When it looks again.
    Polled,
    /// By the mirror, which follows the kernel's routing.
    ByMirror,
}

/// How it is taken out of the way again.
enum Undo {
    /// By the operator alone: the doctor shows no command.
    ByHand(&'static str),
    /// By the command that the doctor shows.
    ByCure,
}

use Undo::{ByCure, ByHand};

/// What is put in the way, and what has to be said of it.
struct Case {
    commands: &'static str,
    undo: Undo,
    heard: Heard,
    about: &'static str,
    what: &'static str,
    lan: Allowed,
    wan: Allowed,
}

const CASES: [Case; 17] = [
    Case {
        commands: "nft add table inet fw
            nft 'add chain inet fw forward { type filter hook forward priority 0; policy drop; }'",
        undo: ByHand("nft delete table inet fw"),
        heard: Heard::AtOnce,
        about: "netfilter",
        what: "table inet fw, chain forward (filter at forward): policy drop",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "nft add table ip6 fw
            nft 'add chain ip6 fw first { type filter hook prerouting priority -300; }'
            nft add rule ip6 fw first ip6 saddr 2001:db8:7::/48 drop
            nft add rule ip6 fw first ip6 saddr 2001:db8:8::/48 drop",
        undo: ByHand("nft delete table ip6 fw"),
        heard: Heard::AtOnce,
        about: "netfilter",
        what: "table ip6 fw, chain first (filter at prerouting): 2 rules",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "nft add table ip nat
            nft 'add chain ip nat out { type nat hook postrouting priority 100; }'
            nft add rule ip nat out oifname wan masquerade",
        undo: ByHand("nft delete table ip nat"),
        heard: Heard::AtOnce,
        about: "nat",
        what: "table ip nat, chain out (nat at postrouting): 1 rule",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "iptables-nft -A FORWARD -s 10.7.0.0/16 -j DROP",
        undo: ByHand("iptables-nft -F FORWARD"),
        heard: Heard::AtOnce,
        about: "netfilter",
        what: "table ip filter, chain FORWARD (filter at forward): 1 rule",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "iptables-legacy -t nat -A POSTROUTING -o wan -j MASQUERADE",
        undo: ByHand("iptables-legacy -t nat -F"),
        heard: Heard::Polled,
        about: "nat",
        what: "legacy iptables, IPv4, table nat, chain POSTROUTING: 1 rule",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "ip6tables-legacy -P FORWARD DROP",
        undo: ByHand("ip6tables-legacy -P FORWARD ACCEPT"),
        heard: Heard::Polled,
        about: "netfilter",
        what: "legacy iptables, IPv6, table filter, chain FORWARD: policy drop",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "iptables-legacy -A INPUT -m state --state ESTABLISHED -j ACCEPT",
        undo: ByHand("iptables-legacy -F"),
        heard: Heard::Polled,
        about: "conntrack",
        what: "legacy iptables, IPv4, table filter: rules with connection tracking",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "nft add table inet own
            nft 'add chain inet own input { type filter hook input priority 0; }'
            nft add rule inet own input ct state established accept",
        undo: ByHand("nft delete table inet own"),
        heard: Heard::AtOnce,
        about: "conntrack",
        what: "table inet own, chain input: a rule with connection tracking",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "nft add table netdev dev
            nft 'add chain netdev dev in { type filter hook ingress device lan priority 0; }'
            nft add rule netdev dev in ip saddr 10.7.0.0/16 drop",
        undo: ByHand("nft delete table netdev dev"),
        heard: Heard::AtOnce,
        about: "netfilter",
        what: "table netdev dev, chain in (filter at ingress of lan): 1 rule",
        lan: EGRESS_ONLY,
        wan: FREE,
    },
    Case {
        commands: "nft add table netdev dev
            nft 'add chain netdev dev out { type filter hook egress device lan priority 0; }'
            nft add rule netdev dev out ip saddr 10.7.0.0/16 drop",
        undo: ByHand("nft delete table netdev dev"),
        heard: Heard::AtOnce,
        about: "netfilter",
        what: "table netdev dev, chain out (filter at egress of lan): 1 rule",
        lan: INGRESS_ONLY,
        wan: FREE,
    },
    Case {
        commands: "ip xfrm policy add dir fwd src 10.7.0.0/16 dst 0.0.0.0/0 action block",
        undo: ByHand("ip xfrm policy flush"),
        heard: Heard::AtOnce,
        about: "xfrm",
        what: "(fwd) blocks 10.7.0.0/16 to 0.0.0.0/0",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "ip xfrm policy setdefault out block",
        undo: ByHand("ip xfrm policy setdefault out accept"),
        heard: Heard::AtOnce,
        about: "xfrm",
        what: "XFRM blocks by default (out)",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "tc qdisc add dev lan clsact
            tc filter add dev lan ingress u32 match u32 0 0 flowid 1:1",
        undo: ByHand("tc filter delete dev lan ingress"),
        heard: Heard::AtOnce,
        about: "traffic_control",
        what: "at ingress of lan: u32 (preference 49152)",
        lan: EGRESS_ONLY,
        wan: FREE,
    },
    Case {
        commands: "ip link add br0 type bridge
            ip link set dev lan master br0",
        undo: ByHand("ip link set dev lan nomaster"),
        heard: Heard::ByMirror,
        about: "member",
        what: "lan is a member of bridge br0",
        lan: KEPT,
        wan: FREE,
    },
    Case {
        commands: "ip link add link lan name mv0 type macvlan",
        undo: ByHand("ip link delete dev mv0"),
        heard: Heard::ByMirror,
        about: "parent",
        what: "macvlan mv0 is on lan",
        lan: EGRESS_ONLY,
        wan: FREE,
    },
    Case {
        commands: "ip rule add priority 32800 lookup local
            ip rule delete priority 0",
        undo: ByHand(
            "ip rule add priority 0 lookup local\n            ip rule delete priority 32800",
        ),
        heard: Heard::ByMirror,
        about: "rules",
        what: "the first rule of `ip -4 rule` does not read the table local: ip -4 rule 32766: ",
        lan: KEPT,
        wan: KEPT,
    },
    Case {
        commands: "sysctl -qw net.ipv4.conf.lan.forwarding=0 net.ipv6.conf.all.forwarding=0
            sysctl -qw net.ipv6.conf.lan.forwarding=0",
        undo: ByCure,
        heard: Heard::ByMirror,
        about: "forwarding",
        what: "forwarding is off on lan, IPv4 and IPv6",
        lan: EGRESS_ONLY,
        wan: FREE,
    },
];

#[test]
fn what_is_in_the_way_is_found_and_no_command_takes_protection_away() {
    if !["nft", "iptables-legacy", "iptables-nft"].iter().all(|program| has(program)) {
        return;
    }
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = lab(options) else { return };
    lab.router.run(|| {
        let mut gate = Gate::open(programs_of_others()).unwrap_or_else(|error| panic!("{error}"));
        let mut looked = Looked::new();
        let _ = looked.stands(&mut gate);
        free();
        for Case { commands, undo, heard, about, what, lan, wan } in CASES {
            println!("{what}");
            shell(commands);
            assert!(looked.is_heard(&mut gate, heard), "{what}");
            let stands = looked.stands(&mut gate);
            assert_eq!(
                [allowed(&stands[0]), allowed(&stands[1])],
                [lan, wan],
                "{what}: {stands:#?}"
            );

            let (status, shown) = doctor(&["lan", "wan"]);
            assert_eq!(status, Some(1), "{what}: {shown:#}");
            for (place, wanted) in [lan, wan].into_iter().enumerate() {
                let told = ["is_ingress", "is_egress"].map(|key| shown[place][key].as_bool());
                assert_eq!(told, wanted.map(Some), "{what}");
            }
            let reasons = shown[0]["reasons"].as_array().expect("it is a list");
            let [reason] = &reasons[..] else { panic!("{what}: {shown:#}") };
            assert_eq!(reason["about"], about, "{reason:#}");
            let said = reason["what"].as_str().expect("it is a text");
            assert!(said.contains(what), "{said:?} has to contain {what:?}");

            match (undo, reason["command"].as_str()) {
                (ByHand(commands), None) => shell(commands),
                (ByCure, Some(command)) => shell(command),
                (_, shown) => panic!("{what}: {shown:?}"),
            }
            assert!(looked.is_heard(&mut gate, heard), "{what} is gone");
            free();
            let _ = looked.stands(&mut gate);
            assert!(!looked.is_heard(&mut gate, Heard::AtOnce), "told once: {what}");
            assert!(!looked.is_heard(&mut gate, Heard::Polled), "seen once: {what}");
        }
    });
}

/// A shaper and a strict check keep nothing in the kernel: packets pass the queue, and the check is done, as ever.
#[test]
fn a_shaper_on_the_way_out_and_strict_rp_filter_are_said() {
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = lab(options) else { return };
    lab.router.run(|| {
        let mut gate = Gate::open(programs_of_others()).unwrap_or_else(|error| panic!("{error}"));
        let mut looked = Looked::new();
        let _ = looked.stands(&mut gate);
        let note = |place: usize, what: &str| {
            let (status, shown) = doctor(&["lan", "wan"]);
            assert_eq!(status, Some(0), "{shown:#}");
            let notes = shown[place]["notes"].as_array().expect("it is a list").clone();
            notes.into_iter().find(|note| note["what"].as_str().is_some_and(|said| said.contains(what)))
        };

        shell("tc qdisc add dev wan root tbf rate 1mbit burst 10k latency 10ms");
        assert!(gate.changed());
        assert_eq!(note(1, "qdisc tbf on wan").expect("it is said")["concerns"], "egress");
        shell("tc qdisc add dev wan clsact\ntc filter add dev wan egress u32 match u32 0 0 flowid 1:1");
        assert!(gate.changed());
        assert!(note(1, "at egress of wan: u32").is_some());

        for (number, word) in [("1", "rp_filter is strict (1) on lan"), ("2", "rp_filter is loose (2) on lan")]
        {
            shell(&format!("sysctl -qw net.ipv4.conf.lan.rp_filter={number}"));
            let strict = note(0, word).unwrap_or_else(|| panic!("{word}"));
            assert_eq!(strict["concerns"], "ingress");
            assert!(strict["command"].is_null(), "{strict:#}");
            shell("sysctl -qw net.ipv4.conf.lan.rp_filter=0");
            assert!(note(0, "rp_filter").is_none());
        }

        shell("sysctl -qw net.ipv6.fib_multipath_hash_policy=3");
        assert!(looked.is_heard(&mut gate, Heard::Polled));
        let policy = note(0, "net.ipv6.fib_multipath_hash_policy is 3").expect("it is said");
        assert_eq!(policy["is_everywhere"], true);
        shell(policy["command"].as_str().expect("there is one"));
        assert!(note(0, "fib_multipath_hash_policy").is_none());

        let compatible = note(0, "nexthop_compat_mode is 1").expect("that is the kernel's default");
        shell(compatible["command"].as_str().expect("there is one"));
        assert!(note(0, "nexthop_compat_mode").is_none());
    });
}

/// Overridden by name, and shown; the table for eyes agrees.
#[test]
fn netfilter_can_be_overridden_by_name() {
    if !has("nft") {
        return;
    }
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = lab(options) else { return };
    lab.router.run(|| {
        shell(CASES[0].commands);
        let (status, shown) = doctor(&["lan", "wan", "--bypass", "netfilter"]);
        assert_eq!(status, Some(0), "{shown:#}");
        assert_eq!(shown[0]["bypassed"][0]["about"], "netfilter");
        assert_eq!(shown[0]["tier"], "ingress");

        let Output { status, stdout, .. } = run(&["doctor"]);
        let said = String::from_utf8(stdout).expect("it is text");
        assert_eq!(status.code(), Some(1), "{said}");
        println!("{said}");
        for words in [
            "lan        kernel  no  no   netfilter",
            "0 of 2 can be accelerated as they are",
            "all interfaces\n- kept in the kernel: table inet fw, chain forward (filter at forward): policy drop",
        ] {
            assert!(said.contains(words), "{words:?} is missing");
        }
        assert!(!said.contains("nft ") && !said.contains("packet sockets"), "{said}");
        let asked = String::from_utf8(run(&["doctor", "--capture"]).stdout).expect("it is text");
        assert!(asked.starts_with(&said) && asked.contains("packet sockets on "), "{asked}");
        assert!(said.lines().all(|line| line.starts_with("  $ ") || line.chars().count() <= 100));
    });
}

#[test]
fn what_cannot_be_is_an_error_that_names_it() {
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = lab(options) else { return };
    lab.router.run(|| {
        for (arguments, words) in [
            (
                &["doctor", "lan", "lam"][..],
                "error: interface lam does not exist; existing interfaces: lo, lan, wan",
            ),
            (&["doctor", "--bypass", "xfrm"], "\"xfrm\" cannot be bypassed; use \"netfilter\""),
        ] {
            let Output { status, stderr, stdout } = run(arguments);
            let said = String::from_utf8(stderr).expect("it is text");
            assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{said}");
            assert!(said.contains(words), "{said}");
        }
    });
}

/// Not to be reported again and again: bans by address come and go with every attack.
#[test]
fn elements_of_sets_are_no_change() {
    if !has("nft") {
        return;
    }
    let options = LabOptions { kernel_router: true, ..LabOptions::default() };
    let Some(lab) = lab(options) else { return };
    lab.router.run(|| {
        shell("nft add table inet own\nnft 'add set inet own banned { type ipv4_addr; }'");
        let mut gate = Gate::open(programs_of_others()).unwrap_or_else(|error| panic!("{error}"));
        shell("nft add element inet own banned { 10.7.0.1 }");
        assert!(!gate.changed());
        shell("nft 'add chain inet own input { type filter hook input priority 0; }'");
        assert!(gate.changed());
        assert!(!gate.changed(), "told once");
    });
}

/// What the gate saw at its last evaluation.
struct Looked {
    interfaces: Vec<String>,
    kernel: Kernel,
}

impl Looked {
    fn new() -> Looked {
        let interfaces = ["lan", "wan"].map(String::from).to_vec();
        Looked { interfaces, kernel: read() }
    }

    fn stands(&mut self, gate: &mut Gate) -> Vec<Standing> {
        self.kernel = read();
        let stands = gate.evaluate(&self.kernel, &self.interfaces, Terms::default());
        stands.unwrap_or_else(|error| panic!("{error}")).standings
    }

    /// Whether the gate noticed a change.
    fn is_heard(&mut self, gate: &mut Gate, heard: Heard) -> bool {
        match heard {
            Heard::AtOnce => gate.changed(),
            Heard::Polled => gate.poll_at_once(&self.kernel, &self.interfaces),
            Heard::ByMirror => {
                let _ = gate.changed(); // A link's own qdisc, for one.
                read() != self.kernel
            }
        }
    }
}

fn read() -> Kernel {
    Kernel::read().unwrap_or_else(|error| panic!("{error}"))
}

fn allowed(standing: &Standing) -> Allowed {
    let tier = if standing.is_ingress { Tier::Ingress } else { Tier::Kernel };
    assert_eq!(standing.tier, tier);
    [standing.is_ingress, standing.is_egress]
}

/// Nothing is in the way.
fn free() {
    let (status, shown) = doctor(&["lan", "wan"]);
    assert_eq!(status, Some(0), "{shown:#}");
    for name in [0, 1] {
        assert_eq!(shown[name]["reasons"], Value::Array(vec![]), "{shown:#}");
        assert_eq!(
            ["is_ingress", "is_egress"].map(|key| shown[name][key].as_bool()),
            [Some(true); 2]
        );
    }
}

/// The exit status of `manylane doctor --json`, and what it says.
fn doctor(arguments: &[&str]) -> (Option<i32>, Value) {
    let Output { status, stdout, stderr } = run(&[&["doctor", "--json"], arguments].concat());
    let said = String::from_utf8_lossy(&stderr);
    let shown = serde_json::from_slice(&stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (status.code(), shown)
}

fn run(arguments: &[&str]) -> Output {
    Command::new(MANYLANE).args(arguments).output().expect("it was built")
}

/// Runs commands, line by line, in the namespace of the calling thread.
fn shell(commands: &str) {
    let Output { status, stderr, .. } =
        Command::new("sh").args(["-ec", commands]).output().expect("there is a shell");
    assert!(status.success(), "{commands}: {}", String::from_utf8_lossy(&stderr));
}
