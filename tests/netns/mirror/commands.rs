//! Commands of ip(8) and sysctl(8), made at random and run.

use std::process::Command;

pub(super) const WIRES: [&str; 3] = ["u", "v", "w"];

pub(super) fn make_wires() {
    for (number, wire) in (1..).zip(WIRES) {
        make_wire(wire, number);
    }
}

fn make_wire(wire: &str, number: u64) {
    run(&format!("link add {wire}0 type veth peer name {wire}1"));
    run(&format!("link set {wire}1 up"));
    run(&format!("link set {wire}0 up"));
    run(&format!("addr add 10.0.{number}.1/24 dev {wire}0"));
    run(&format!("addr add fd00:{number}::1/64 dev {wire}0 nodad"));
    for host in 2..=4 {
        for is_v6 in [false, true] {
            let (router, mac) = (router(is_v6, number, host), mac(is_v6, number, host, 0));
            run(&format!("neigh replace {router} lladdr {mac} dev {wire}0 nud permanent"));
        }
    }
}

fn router(is_v6: bool, number: u64, host: u64) -> String {
    if is_v6 { format!("fd00:{number}::{host}") } else { format!("10.0.{number}.{host}") }
}

fn mac(is_v6: bool, number: u64, host: u64, version: u64) -> String {
    format!("02:00:00:0{version}:0{number}:{}{host}", if is_v6 { 6 } else { 4 })
}

pub(super) fn run(command: &str) {
    if let Some(settings) = command.strip_prefix("sysctl ") {
        let (name, value) = settings.split_once(' ').expect("a name and a value");
        // The link may be gone.
        _ = Command::new("sh").args(["-c", &format!("echo {value} > /proc/sys/{name}")]).output();
        return;
    }
    if let Some(number) = command.strip_prefix("wire ") {
        let number: usize = number.parse().expect("a number");
        make_wire(WIRES[number - 1], number as u64);
        return;
    }
    // What is not so may be refused.
    _ = try_ip(command);
}

pub(super) fn try_ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = output.expect("ip(8) is installed where there is root");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Anything.
pub(super) fn command(random: &mut Random) -> String {
    let number = random.below(3) as usize + 1;
    let wire = WIRES[number - 1];
    let is_v6 = random.below(2) == 1;
    let option = if is_v6 { "-6 " } else { "" };
    match random.below(40) {
        0 => format!("link set {wire}0 down"),
        1 | 2 => format!("link set {wire}0 up"),
        3 => format!("link set {wire}1 down"),
        4 | 5 => format!("link set {wire}1 up"),
        6 => format!("link del {wire}0"),
        7 | 8 => format!("wire {number}"),
        9 => format!("link set {wire}0 mtu {}", 1400 + 100 * random.below(2)),
        10 => format!("link set {wire}0 address 02:00:00:00:ff:0{}", random.below(3)),
        11 => format!("addr del 10.0.{number}.1/24 dev {wire}0"),
        12 => format!("addr add 10.0.{number}.1/24 dev {wire}0"),
        13 => format!("addr {} 10.0.{number}.254/24 dev {wire}0", random.pick(&["add", "del"])),
        14 => {
            format!("addr {} fd00:{number}::1/64 dev {wire}0", random.pick(&["add", "add", "del"]))
        }
        15 => format!("neigh del {} dev {wire}0", random.router(is_v6, number)),
        16 => {
            let state = random.pick(&["permanent", "stale", "reachable", "failed"]);
            let (of, host, version) = (number as u64, 2 + random.below(3), random.below(3));
            let (router, mac) = (router(is_v6, of, host), mac(is_v6, of, host, version));
            format!("neigh replace {router} lladdr {mac} dev {wire}0 nud {state}")
        }
        17 => format!(
            "sysctl net/ipv{}/conf/{wire}0/ignore_routes_with_linkdown {}",
            if is_v6 { 6 } else { 4 },
            random.below(2)
        ),
        18 | 19 => {
            let what = random.pick(&["add", "replace", "replace", "del"]);
            let id = random.below(3) + 1;
            match what {
                "del" => format!("nexthop del id {id}"),
                what => format!("{option}nexthop {what} id {id} {}", random.one_way(is_v6, number)),
            }
        }
        20 => match random.below(4) {
            0 => format!("nexthop del id {}", 4 + random.below(2)),
            1 => format!("nexthop replace id {} blackhole", 1 + random.below(3)),
            _ => {
                let members = random.pick(&["1", "1/2", "1/2/3", "2,3/3", "3/1"]);
                format!("nexthop replace id {} group {members}", 4 + random.below(2))
            }
        },
        _ => {
            let verb = random
                .pick(&["add", "add", "replace", "replace", "append", "prepend", "del", "del"]);
            let prefix = if is_v6 {
                random.pick(&[
                    "default",
                    "fd50::/16",
                    "fd50:1::/32",
                    "fd60::7/128",
                    "fd60::/64",
                    "fd00:1::/65",
                ])
            } else {
                random.pick(&[
                    "default",
                    "10.50.0.0/16",
                    "10.50.1.0/25",
                    "10.60.0.7/32",
                    "10.60.0.0/24",
                    "10.0.1.0/25",
                ])
            };
            let metric = random.pick(&["", "", " metric 10", " metric 1024"]);
            // The kernel reports siblings of different MTUs so that no reader can tell them apart.
            let mtu = match (is_v6, prefix) {
                (true, "fd60::7/128") => " mtu 1300",
                (true, _) => "",
                (false, _) => random.pick(&["", "", "", " mtu 1300"]),
            };
            let way = match random.below(12) {
                0 => "blackhole".to_owned(),
                1 => "unreachable".to_owned(),
                2 => "prohibit".to_owned(),
                3 if verb == "del" => String::new(),
                4 | 5 => format!("nhid {}", 1 + random.below(5)),
                6 | 7 => (0..2 + random.below(2))
                    .map(|_| {
                        let number = random.below(3) as usize + 1;
                        format!(
                            "nexthop {} weight {}",
                            random.one_way(is_v6, number),
                            1 + random.below(2)
                        )
                    })
                    .collect::<Vec<_>>()
                    .join(" "),
                _ => random.one_way(is_v6, number),
            };
            let table = random.pick(&["", "", " table 100", " table 101"]);
            // What stands between two siblings of its metric is left out of dumps (`fib6_dump_node`).
            let is_other = is_v6 && !way.contains("via");
            let metric = if is_other && verb != "replace" { " metric 2048" } else { metric };
            match &*way {
                kind @ ("blackhole" | "unreachable" | "prohibit") => {
                    format!("{option}route {verb} {kind} {prefix}{metric}{table}")
                }
                way if way.starts_with("nexthop") => {
                    format!("{option}route {verb} {prefix}{metric}{mtu}{table} {way}")
                }
                way => format!("{option}route {verb} {prefix} {way}{metric}{mtu}{table}"),
            }
        }
    }
}

/// A rule comes or goes; now and then one of the usual ones, which comes back.
pub(super) fn rule(random: &mut Random) -> String {
    let is_v6 = random.below(2) == 1;
    let option = if is_v6 { "-6 " } else { "" };
    let priority = random.pick(&["50", "60", "70", "32766", "32800"]);
    match random.below(12) {
        0..5 => return format!("{option}rule del priority {priority}"),
        5 => return format!("{option}rule add priority 32766 lookup main"),
        6 if is_v6 => return "-6 rule add priority 32767 lookup default".to_owned(),
        _ => (),
    }
    let nets: [&str; 3] = match is_v6 {
        false => ["198.18.0.0/24", "10.50.0.0/16", "10.60.0.7/32"],
        true => ["fd18::/64", "fd50::/16", "fd60::7/128"],
    };
    let from = random.pick(&["", "", "from "]);
    let from = if from.is_empty() { String::new() } else { from.to_owned() + random.pick(&nets) };
    let to = random.pick(&["", "", " to "]);
    let to = if to.is_empty() { String::new() } else { to.to_owned() + random.pick(&nets) };
    let not = random.pick(&["", "", "", "", "", "not "]);
    let iif = random.pick(&["", "", "", " iif in0", " iif u0", " iif nobody"]);
    let tos = random.pick(&["", "", "", " tos 0x10"]);
    let other =
        random.pick(&["", "", "", "", "", " fwmark 1", " ipproto udp", " ipproto tcp", " oif v0"]);
    let protocol = random.pick(&["", "", " protocol static"]);
    let action = random.pick(&[
        "lookup 100",
        "lookup 100",
        "lookup 101",
        "lookup 101",
        "lookup main",
        "lookup default",
        "unreachable",
        "blackhole",
        "prohibit",
    ]);
    format!(
        "{option}rule add {not}{from}{to}{iif}{tos}{other}{protocol} priority {priority} {action}"
    )
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same numbers for the same seed.
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn router(&mut self, is_v6: bool, number: usize) -> String {
        router(is_v6, number as u64, 2 + self.below(3))
    }

    /// By a router, or to the network itself.
    fn one_way(&mut self, is_v6: bool, number: usize) -> String {
        let wire = WIRES[number - 1];
        match self.below(6) {
            0 => format!("dev {wire}0"),
            1 if !is_v6 => format!("via inet6 {} dev {wire}0", self.router(true, number)),
            _ => format!("via {} dev {wire}0", self.router(is_v6, number)),
        }
    }
}
