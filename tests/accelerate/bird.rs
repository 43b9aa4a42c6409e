//! BIRD on four accelerated routers in a diamond: an AS of its own for each, BGP by each link, and `merge paths`, which
//! gives the kernel all equal ways; IPv4 and IPv6.

use crate::diamond::{Diamond, LINKS, addresses};
use manylane_lab::daemons::Bird;
use manylane_lab::{SERVER_V4, SERVER_V6};

#[test]
fn traffic_follows_bird_and_flows_are_spread_at_both_hops() {
    if !Bird::is_here() {
        return;
    }
    let Some(diamond) = Diamond::make() else { return };
    let daemons =
        [1, 2, 3, 4].map(|router| Bird::start(diamond.router(router), &configuration(router)));
    let shown = || {
        let said =
            daemons.iter().flat_map(|bird| [bird.ask("show protocols"), bird.ask("show route")]);
        said.collect::<String>()
    };
    diamond.check(&[SERVER_V4, SERVER_V6], &shown);
}

fn configuration(router: u8) -> String {
    let mut text = format!(
        "router id 10.255.0.{router};
         protocol device {{ scan time 10; }}
         protocol kernel {{ merge paths yes; ipv4 {{ export all; }}; }}
         protocol kernel {{ merge paths yes; ipv6 {{ export all; }}; }}
         protocol direct {{ ipv4; ipv6; interface \"host\"; }}
         template bgp fabric {{
           connect retry time 1; connect delay time 1; error wait time 1, 3; hold time 60;
         }}\n"
    );
    for (one, _, other, _, net) in LINKS {
        let neighbour = match router {
            _ if router == one => other,
            _ if router == other => one,
            _ => continue,
        };
        let [[our4, our6], [their4, their6]] =
            [router, neighbour].map(|number| addresses(net, number));
        for (version, ours, theirs) in [(4, our4, their4), (6, our6, their6)] {
            text += &format!(
                "protocol bgp v{version}_{net} from fabric {{
                   local {ours} as {}; neighbor {theirs} as {};
                   ipv{version} {{ import all; export all; next hop self; }};
                 }}\n",
                65_000 + u32::from(router),
                65_000 + u32::from(neighbour),
            );
        }
    }
    text
}
