//! The judgement about the driver tier.

use manylane_io::netlink::XdpFeatures;
use manylane_io::netlink::traffic::{Filter, Place, Qdisc};

use super::*;

/// eth0 and eth1 are NICs whose drivers can all of it.
fn nics() -> Facts {
    with(|facts| {
        let all = XdpFeatures {
            redirects: true,
            transmits: true,
            transmits_pieces: true,
            zero_copy: false,
        };
        for link in &mut facts.kernel.links {
            link.kind = None;
            facts.features.push((link.index, all));
        }
    })
}

fn of_eth0(change: impl FnOnce(&mut Facts)) -> Standing {
    let mut facts = nics();
    change(&mut facts);
    stand(&facts)[0].clone()
}

#[test]
fn a_nic_that_can_all_of_it_is_in_the_driver_by_auto() {
    let standing = of_eth0(|_| ());
    assert_eq!(standing.tier, Tier::Driver);
    assert_eq!(standing.driver, DriverStanding { takes_pieces: true, ..DriverStanding::default() });
    // One that only lets frames out has nothing to forward in the driver.
    let standing = of_eth0(|facts| facts.features[0].1.redirects = false);
    assert_eq!(standing.tier, Tier::Ingress, "{standing:#?}");
    assert!(standing.is_free(), "nothing keeps it in the kernel: {standing:#?}");
    let standing = of_eth0(|facts| facts.features.clear());
    assert_eq!(standing.tier, Tier::Ingress, "what is not known is not used: {standing:#?}");
}

#[test]
fn what_would_be_skipped_or_not_seen_keeps_one_direction_out_of_the_driver() {
    type Case = (&'static str, Option<&'static str>, [bool; 2], fn(&mut Facts));
    let cases: [Case; 12] = [
        ("the driver runs no XDP programs", None, [false, true], |facts| {
            facts.features[0].1.redirects = false;
        }),
        ("XDP program 8 is on eth0", None, [false, true], |facts| {
            facts.kernel.links[0].xdp = Some(8);
        }),
        ("program 7 (cil)", None, [false, true], |facts| {
            facts.programs =
                vec![Program { link: ETH0, id: 7, name: "cil".into(), is_behind: false }];
        }),
        ("rx-vlan-offload is on", Some("ethtool -K eth0 rxvlan off"), [false, true], |facts| {
            let offloads = Offloads { link: ETH0, gro: true, tso: true, takes_tags_off: true };
            facts.offloads = vec![offloads];
        }),
        ("eth1 is a VLAN of eth0, a veth", None, [false, true], |facts| {
            facts.kernel.links[0].kind = Some("veth".into());
            facts.kernel.links[1].vlan = Some((0x8100, 5));
            facts.kernel.links[1].lower = Some(ETH0);
        }),
        ("takes no redirected frames", None, [true, false], |facts| {
            facts.features[0].1.transmits = false;
        }),
        ("takes no redirected frames", None, [true, false], |facts| {
            facts.kernel.links[0].kind = Some("veth".into());
            facts.features[0].1.transmits = false;
        }),
        ("rx-vlan-offload is on", None, [false, true], |facts| {
            facts.kernel.links[0].kind = Some("bridge".into());
            let offloads = Offloads { link: ETH0, gro: true, tso: true, takes_tags_off: true };
            facts.offloads = vec![offloads];
        }),
        ("qdisc tbf on eth0", None, [true, false], |facts| {
            facts.qdiscs = vec![Qdisc { link: ETH0, kind: "tbf".into(), place: Place::Root }];
        }),
        ("at egress of eth0: u32", None, [true, false], |facts| {
            facts.egress_filters = vec![(ETH0, Filter { kind: "u32".into(), preference: 1 })];
        }),
        ("program 9 (cil)", None, [true, false], |facts| {
            facts.egress_programs =
                vec![Program { link: ETH0, id: 9, name: "cil".into(), is_behind: false }];
        }),
        ("", None, [true, true], |facts| {
            facts.qdiscs = vec![Qdisc { link: ETH0, kind: "mq".into(), place: Place::Root }];
        }),
    ];
    for (what, command, [ingress, egress], change) in cases {
        let standing = of_eth0(change);
        let driver = &standing.driver;
        assert_eq!(
            [driver.ingress.is_empty(), driver.egress.is_empty()],
            [ingress, egress],
            "{what}"
        );
        assert!(standing.is_free(), "at tcx it may all be forwarded: {standing:#?}");
        // Workers' sockets need no driver that takes redirected frames, and skip all else that these skip.
        let sends = egress || what == "takes no redirected frames";
        assert_eq!((driver.sends.is_empty(), driver.sockets.len()), (sends, 0), "{what}");
        for reason in driver.ingress.iter().chain(&driver.egress) {
            assert!(reason.what.contains(what), "{:?} has to contain {what:?}", reason.what);
            assert_eq!(reason.command.as_deref(), command, "{what}");
        }
    }
}

#[test]
fn packets_that_are_longer_than_their_frames_keep_a_port_from_workers() {
    for (mtu, fits) in [(1500, true), (1774, true), (1775, false), (9000, false)] {
        let standing = of_eth0(|facts| facts.kernel.links[0].mtu = mtu);
        assert_eq!(standing.driver.sockets.is_empty(), fits, "{mtu}");
        assert_eq!(standing.tier, Tier::Driver, "nobody else minds");
    }
}

#[test]
fn a_software_device_is_in_the_driver_only_by_name() {
    let standing = of_eth0(|facts| facts.kernel.links[0].kind = Some("veth".into()));
    assert_eq!(standing.tier, Tier::Ingress);
    let DriverStanding { ingress, egress, auto, .. } = &standing.driver;
    assert!(ingress.is_empty() && egress.is_empty(), "{standing:#?}");
    let [reason] = &auto[..] else { panic!("one reason: {auto:#?}") };
    assert_eq!(reason.what, "a software device (veth)", "without a name, to be said once for many");
    assert_eq!(reason.command, None, "it is not offered: {reason}");
}

/// The attack: advice that an operator copies, and with which TCP between hosts with offloads transfers nothing. A veth or
/// bridge gets no command that leads into its driver, whatever its driver lacks.
#[test]
fn no_command_leads_into_the_driver_of_a_software_device() {
    for kind in ["veth", "bridge", "bond", "tun"] {
        let standing = of_eth0(|facts| {
            facts.kernel.links[0].kind = Some(kind.into());
            facts.features.clear();
            let offloads = Offloads { link: ETH0, gro: true, tso: true, takes_tags_off: true };
            facts.offloads = vec![offloads];
        });
        let DriverStanding { ingress, egress, sends, auto, sockets, takes_pieces: _ } =
            standing.driver;
        let all = [ingress, egress, sends, auto, sockets].concat();
        assert!(all.len() >= 3, "{kind}: {all:#?}");
        for reason in &all {
            assert_eq!(reason.command, None, "{kind}: {reason}");
        }
        let right = all.iter().any(|reason| reason.why.contains("`ingress` is right for it"));
        assert!(right, "{kind}: it is said what to do instead: {all:#?}");
    }
}
