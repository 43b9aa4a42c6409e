//! Random rules: for nft, and for both kinds of iptables.

use super::random::Random;

/// Rules, and the program that loads them.
#[derive(Clone, Debug)]
pub struct Rules {
    pub program: &'static str,
    pub text: String,
}

/// Which packets a rule can be about.
#[derive(Clone, Copy, PartialEq)]
enum About {
    Any,
    V4,
    V6,
}

/// Random rules. Chains are hooked before and behind the kernel's own translation and tracking.
pub fn rules(random: &mut Random) -> Rules {
    match random.below(10) {
        0..=5 => Rules { program: "nft -f", text: nft(random) },
        6 | 7 => Rules { program: "iptables-nft-restore", text: iptables(random) },
        _ => Rules { program: "iptables-legacy-restore", text: iptables(random) },
    }
}

/// The names of the chains that nft's table always has: a rule may jump to a later one.
const CHAINS: [&str; 3] = ["one", "two", "three"];

fn nft(random: &mut Random) -> String {
    let mut text = String::from("table inet t\ndelete table inet t\ntable inet t {\n");
    text += "set named4 { type ipv4_addr; flags interval; ";
    text += "elements = { 10.8.0.0/24, 10.8.7.2-10.8.7.100, 10.9.1.1 } }\n";
    text += "set named6 { type ipv6_addr; elements = { 2001:db8:8::1, 2001:db8:9:0:0:0:7:2 } }\n";
    text += "map marks { type inet_service : mark; elements = { 22 : 1, 400 : 4 } }\n";
    text += "set seen { type ipv4_addr; flags dynamic; size 1000; }\n";
    text += "quota some { over 1000000 mbytes }\n";
    for (number, name) in CHAINS.into_iter().enumerate().rev() {
        text += &format!("chain {name} {{\n{}}}\n", body(random, &CHAINS[number + 1..], "forward"));
    }
    let hooks = [
        ("raw", "prerouting", -300),
        ("mangle", "prerouting", -150),
        ("translated", "prerouting", -90),
        ("forward", "forward", 0),
        ("post", "postrouting", -150),
        ("last", "postrouting", 300),
    ];
    for (name, hook, priority) in hooks {
        if random.percent(if hook == "forward" { 90 } else { 25 }) {
            let policy = if hook == "forward" && random.percent(40) { "drop" } else { "accept" };
            text += &format!(
                "chain {name} {{ type filter hook {hook} priority {priority}; policy {policy};\n"
            );
            text += &body(random, &CHAINS, hook);
            text += "}\n";
        }
    }
    text + "}\n"
}

fn body(random: &mut Random, chains: &[&str], hook: &str) -> String {
    let mut text = String::new();
    for _ in 0..1 + random.below(4) {
        let about = random.pick(&[About::Any, About::Any, About::V4, About::V4, About::V6]);
        let protocol = random.pick(&["tcp", "udp", "", ""]);
        let conditions: Vec<_> =
            (0..random.below(3)).map(|_| condition(random, about, protocol, hook)).collect();
        text += &conditions.join(" ");
        text += &match random.below(20) {
            0 => " counter".into(),
            1 | 2 => effect(random, about, protocol, hook),
            3 if !protocol.is_empty() => format!(" {}", verdict_map(random, protocol, chains)),
            _ => format!(" counter {}", verdict(random, chains, hook)),
        };
        text += "\n";
    }
    text
}

fn verdict(random: &mut Random, chains: &[&str], hook: &str) -> String {
    let mut choices = vec!["accept".to_owned(), "accept".into(), "accept".into(), "drop".into()];
    choices.extend(["return".into(), "continue".into()]);
    // The kernel refuses to reject at other hooks, to which the chains that others jump to may lead.
    if hook == "forward" && chains.len() == CHAINS.len() {
        choices.push("reject".into());
    }
    for chain in chains {
        choices.extend([format!("jump {chain}"), format!("goto {chain}")]);
    }
    choices.swap_remove(random.below(choices.len()))
}

fn verdict_map(random: &mut Random, protocol: &str, chains: &[&str]) -> String {
    let [one, two] = [verdict(random, chains, ""), verdict(random, chains, "")];
    match random.below(4) {
        0 => format!("{protocol} dport vmap {{ 22 : {one}, 400-460 : {two} }}"),
        1 => format!("ct state vmap {{ established : {one}, related : {two} }}"),
        2 => format!("iifname vmap {{ \"lan\" : {one}, \"wan\" : {two} }}"),
        _ => format!(
            "ip daddr . {protocol} dport vmap {{ 10.9.1.0/24 . 1-100 : {one}, 10.9.0.1 . 443 : {two} }}"
        ),
    }
}

/// Behind a counter, so that it is seen whether the kernel comes to it.
fn effect(random: &mut Random, about: About, protocol: &str, hook: &str) -> String {
    let mut choices =
        vec!["log", "limit rate 1000/second", "meta mark set 0x7", "meta priority set 1:2"];
    choices.extend([
        "ct mark set 0x4",
        "quota name \"some\"",
        "numgen inc mod 2 0",
        "meta nftrace set 0",
    ]);
    if hook == "prerouting" {
        choices.push("notrack");
    }
    if about == About::V4 {
        choices.extend(["ip dscp set cs1", "add @seen { ip saddr }"]);
    }
    if protocol == "tcp" {
        choices.push("tcp option maxseg size set 1400");
    }
    let number = random.below(choices.len());
    // nft would put a condition that a statement implies behind the counter.
    let implied = match choices[number] {
        "ip dscp set cs1" | "add @seen { ip saddr }" => "meta nfproto ipv4",
        "tcp option maxseg size set 1400" => "meta l4proto tcp",
        _ => "",
    };
    format!(" {implied} counter {} accept", choices[number])
}

fn condition(random: &mut Random, about: About, protocol: &str, hook: &str) -> String {
    let not = if random.percent(25) { "!= " } else { "" };
    let side = random.pick(&["saddr", "daddr"]);
    let port = random.pick(&["sport", "dport"]);
    match random.below(14) {
        0 | 1 => address(random, about, side, not),
        2 | 3 if !protocol.is_empty() => format!("{protocol} {port} {}", ports(random, not)),
        4 if protocol == "tcp" => random
            .pick(&[
                "tcp flags syn",
                "tcp flags & (fin | syn | rst | ack) == ack",
                "tcp flags & (fin | syn | rst) == syn",
                "tcp flags & psh == psh",
                "tcp flags & (syn | ack) != syn",
                "tcp flags & (fin | rst) != 0",
                "tcp option maxseg exists",
            ])
            .into(),
        5 => connection(random, about),
        6 if !protocol.is_empty() && about == About::V4 => {
            let set = "{ 10.8.0.0/24 . 400-500, 10.8.7.1 . 22, 10.9.1.0-10.9.7.255 . 53-80 }";
            format!("ip {side} . {protocol} {port} {not}{set}")
        }
        7 if hook != "prerouting" => {
            format!(
                "oifname {not}{}",
                random.pick(&["\"lan\"", "\"wan\"", "\"wa*\"", "{ \"lan\", \"x*\" }"])
            )
        }
        8 => format!(
            "iifname {not}{}",
            random.pick(&["\"lan\"", "\"wan\"", "\"la*\"", "{ \"wan\", \"y\" }"])
        ),
        9 => random.pick(&["iif", "iif !="]).to_owned() + " lan",
        10 => random
            .pick(&[
                "meta l4proto tcp",
                "meta l4proto != udp",
                "meta l4proto { tcp, 33 }",
                "meta nfproto ipv6",
                "meta nfproto ipv4",
                "meta protocol ip",
                "meta pkttype host",
                "meta pkttype != host",
                "meta mark 0",
                "meta mark & 0x3 != 0",
                "meta mark < 0x10",
                "meta mark 0x1-0x7",
                "meta length > 70",
                "exthdr frag exists",
            ])
            .into(),
        11 if about == About::V4 => way_back(
            hook,
            random.pick(&[
                "ip frag-off & 0x3fff != 0",
                "ip frag-off & 0x1fff == 0",
                "ip protocol { tcp, icmp }",
                "ip ttl < 50",
                "ip version 4",
                "ip hdrlength 5",
                "fib daddr type local",
                "fib daddr type unicast",
                "fib daddr type != local",
                "fib saddr . iif oif exists",
                "fib saddr . iif oif missing",
            ]),
        )
        .into(),
        11 if about == About::V6 => way_back(
            hook,
            random.pick(&[
                "ip6 nexthdr tcp",
                "ip6 nexthdr != udp",
                "ip6 version 6",
                "exthdr frag exists",
                "frag nexthdr tcp",
                "fib saddr . iif . mark oif exists",
                "fib saddr . iif oif missing",
            ]),
        )
        .into(),
        _ => connection(random, about),
    }
}

/// nftables looks for the way back before postrouting only (nft(8), FIB EXPRESSIONS).
fn way_back(hook: &str, what: &'static str) -> &'static str {
    if hook == "postrouting" && what.starts_with("fib saddr") { "meta mark 0" } else { what }
}

fn address(random: &mut Random, about: About, side: &str, not: &str) -> String {
    let what = match about {
        About::V6 => random.pick(&[
            "2001:db8:8::/48",
            "2001:db8:8::7:0/112",
            "{ 2001:db8:9::1, 2001:db8:9::7:0/112 }",
            "@named6",
            "2001:db8:8::1-2001:db8:8::7:2",
        ]),
        _ => random.pick(&[
            "10.8.0.0/16",
            "10.8.7.0/24",
            "10.9.7.0/24",
            "10.9.99.1",
            "10.9.98.1",
            "10.8.0.1-10.8.7.2",
            "& 255.0.0.255 == 10.0.0.1",
            "{ 10.8.1.0/24, 10.9.1.2, 10.9.7.0-10.9.7.5 }",
            "@named4",
        ]),
    };
    // A mask has its own comparison.
    let not = if what.starts_with('&') { "" } else { not };
    format!("{} {side} {not}{what}", if about == About::V6 { "ip6" } else { "ip" })
}

fn ports(random: &mut Random, not: &str) -> String {
    match random.below(4) {
        0 => format!(
            "{} {}",
            random.pick(&["<", "<=", ">", ">="]),
            random.pick(&[53, 400, 443, 2010])
        ),
        _ => format!(
            "{not}{}",
            random.pick(&[
                "22",
                "443",
                "400-499",
                "2000-2020",
                "{ 22, 53, 2004 }",
                "{ 80-450, 8080 }"
            ])
        ),
    }
}

fn connection(random: &mut Random, about: About) -> String {
    let choices = [
        "ct state established,related",
        "ct state { established, related }",
        "ct state established",
        "ct state new",
        "ct state invalid",
        "ct state != established",
        "ct state != new",
        "ct status confirmed",
        "ct status seen-reply,confirmed",
        "ct status snat",
        "ct status dnat",
        "ct status & dying == dying",
        "ct status assured",
        "ct status & (snat | dnat) == 0",
        "ct status expected",
        "ct status & 0x180 == 0",
        "ct helper \"ftp\"",
        "ct helper != \"ftp\"",
        "ct expiration > 1h",
        "ct original zone 0",
        "ct reply zone 1",
        "ct direction original",
        "ct direction reply",
        "ct mark 0x4",
        "ct mark != 0",
        "ct mark & 0x6 == 0x4",
        "ct mark > 0x2",
        "ct zone 0",
        "meta l4proto tcp ct original proto-dst 400-499",
        "meta l4proto udp ct reply proto-dst 2000-2040",
        "ct mark 0x1-0x7",
        "ct mark { 0x3-0x7, 0x9 }",
        "ct original protocol tcp",
    ];
    let of_v4 = [
        "ct original ip saddr 10.8.7.0/24",
        "ct original ip daddr 10.9.7.0/24",
        "ct reply ip saddr 10.9.99.1",
        "ct reply ip daddr != 10.9.98.1",
    ];
    match about {
        About::V4 if random.percent(25) => random.pick(&of_v4).into(),
        _ => random.pick(&choices).into(),
    }
}

/// Chains of the operator's. Each may jump to the later ones.
const OWN: [&str; 2] = ["A", "B"];

fn iptables(random: &mut Random) -> String {
    let mut text = String::new();
    for (table, chains) in [
        ("raw", &["PREROUTING"][..]),
        ("mangle", &["PREROUTING", "FORWARD", "POSTROUTING"]),
        ("filter", &["FORWARD"]),
    ] {
        text += &format!("*{table}\n");
        for chain in chains {
            let drops = table == "filter" && random.percent(40);
            text += &format!(":{chain} {} [0:0]\n", if drops { "DROP" } else { "ACCEPT" });
        }
        OWN.iter().for_each(|own| text += &format!(":{own} - [0:0]\n"));
        let own = OWN.iter().enumerate().map(|(number, own)| (*own, &OWN[number + 1..], ""));
        let base = chains.iter().map(|chain| (*chain, &OWN[..], *chain));
        for (chain, jumps, hook) in base.chain(own) {
            let count = if table == "filter" { 1 + random.below(4) } else { random.below(2) };
            for _ in 0..count {
                text += &format!("-A {chain} {}\n", rule(random, table, jumps, hook));
            }
        }
        text += "COMMIT\n";
    }
    text
}

fn rule(random: &mut Random, table: &str, jumps: &[&str], hook: &str) -> String {
    let not = if random.percent(25) { "! " } else { "" };
    let mut text = match random.below(8) {
        0 => format!(
            "{not}-s {} ",
            random.pick(&["10.8.7.0/24", "10.8.0.1", "10.9.0.0/16", "10.9.98.1"])
        ),
        1 => format!("{not}-d {} ", random.pick(&["10.9.7.0/24", "10.9.99.1", "10.8.0.0/16"])),
        2 => format!("{not}-i {} ", random.pick(&["lan", "wan", "la+"])),
        3 if matches!(hook, "FORWARD" | "POSTROUTING") => {
            format!("{not}-o {} ", random.pick(&["lan", "wan", "w+"]))
        }
        _ => String::new(),
    };
    let protocol = random.pick(&["", "tcp", "udp"]);
    if !protocol.is_empty() {
        text += &format!("-p {protocol} ");
    }
    if !protocol.is_empty() && random.percent(50) {
        text += &match random.below(4) {
            0 => format!("-m {protocol} {not}--dport {} ", random.pick(&["22", "400:499", "443"])),
            1 => {
                format!("-m {protocol} {not}--sport {} ", random.pick(&["22", "2000:2020", "443"]))
            }
            2 if protocol == "tcp" => {
                format!(
                    "-m tcp {not}--tcp-flags {} ",
                    random.pick(&["SYN,RST SYN", "ALL NONE", "SYN,ACK ACK", "PSH PSH"])
                )
            }
            _ => {
                let side = random.pick(&["--dports", "--sports", "--ports"]);
                format!(
                    "-m multiport {not}{side} {} ",
                    random.pick(&["22,53", "400:499,8080", "2000:2040"])
                )
            }
        };
    } else if random.percent(60) {
        text += &match random.below(16) {
            10 | 11 => format!(
                "-m conntrack {not}--ctstatus {} ",
                random.pick(&["ASSURED", "EXPECTED", "CONFIRMED,SEEN_REPLY", "NONE"])
            ),
            12 | 13 => format!(
                "-m conntrack {not}--ct{} {} ",
                random.pick(&["origsrcport", "origdstport", "replsrcport", "repldstport"]),
                random.pick(&["22", "443", "2000:2020", "53:450"])
            ),
            14 => format!("-m helper {not}--helper ftp "),
            15 => format!("-m conntrack {not}--ctexpire 1:7 "),
            0..=2 => format!(
                "-m conntrack {not}--ctstate {} ",
                random.pick(&["RELATED,ESTABLISHED", "NEW", "INVALID", "SNAT", "DNAT"])
            ),
            3 => format!("-m conntrack --ctdir {} ", random.pick(&["ORIGINAL", "REPLY"])),
            4 => format!("-m conntrack {not}--ctorigsrc 10.8.7.0/24 "),
            5 => format!("-m conntrack {not}--ctrepldst 10.9.98.1 "),
            6 => format!("-m connmark {not}--mark {} ", random.pick(&["0x4", "0x4/0x6", "0"])),
            7 => format!("-m mark {not}--mark {} ", random.pick(&["0", "0x1/0x3"])),
            8 => format!("-m iprange {not}--src-range 10.8.0.1-10.8.7.2 "),
            _ => format!(
                "-m addrtype {not}--dst-type {} ",
                random.pick(&["LOCAL", "UNICAST", "BROADCAST"])
            ),
        };
    }
    if random.percent(10) {
        let mut more = vec![
            "-m comment --comment \"why\" ",
            "-m pkttype --pkt-type unicast ",
            "-m pkttype ! --pkt-type unicast ",
        ];
        if hook == "PREROUTING" && matches!(table, "raw" | "mangle") {
            more.extend(["-m rpfilter ", "-m rpfilter --invert "]);
        }
        // Without a draw: what follows stays as it is.
        text += more[text.len() % more.len()];
    }
    let mut targets = vec![
        "-j ACCEPT".to_owned(),
        "-j ACCEPT".into(),
        "-j DROP".into(),
        "-j RETURN".into(),
        String::new(),
    ];
    if random.percent(20) {
        targets = vec!["-j LOG".into()];
        if table == "mangle" {
            targets.extend([
                "-j MARK --set-xmark 0x1/0xf".into(),
                "-j CONNMARK --set-xmark 0x4/0xffffffff".into(),
            ]);
        }
        if table == "raw" {
            targets.push("-j CT --notrack".into());
        }
    }
    for chain in jumps {
        targets.extend([format!("-j {chain}"), format!("-g {chain}")]);
    }
    text + &targets.swap_remove(random.below(targets.len()))
}
