//! How much an accelerator accelerates: what its log, its service manager and `manylane show` say first.

use std::fmt;

use super::accelerate::AcceleratedPort;

/// How many of its interfaces an accelerator accelerates, received and transmitted packets alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Interfaces that are accelerated.
    pub accelerated: usize,
    /// All its interfaces.
    pub interfaces: usize,
    /// A packet can be received by one and transmitted by another.
    pub has_way: bool,
}

impl Extent {
    /// Of interfaces that may be ingress, and may be egress.
    pub fn of(interfaces: impl IntoIterator<Item = (bool, bool)>) -> Extent {
        let all: Vec<_> = interfaces.into_iter().collect();
        let way = |(from, one): (usize, &(bool, bool))| {
            let mut others = all.iter().enumerate();
            one.0 && others.any(|(to, other)| to != from && other.1)
        };
        Extent {
            accelerated: all.iter().filter(|(ingress, egress)| *ingress && *egress).count(),
            interfaces: all.len(),
            has_way: all.iter().enumerate().any(way),
        }
    }

    /// Of an accelerator's ports, while its lease holds or not. By a port without a link no packet passes.
    pub fn now(ports: &[AcceleratedPort], lease_holds: bool) -> Extent {
        Extent::of(ports.iter().map(|port| {
            let passes = lease_holds && port.link_up;
            (port.ingress && passes, port.egress && passes)
        }))
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Extent { accelerated, interfaces, has_way } = self;
        let plural = if *interfaces == 1 { "" } else { "s" };
        write!(f, "{accelerated} of {interfaces} interface{plural} accelerated")?;
        match (has_way, accelerated) {
            (true, _) => Ok(()),
            (false, 0) => f.write_str(": the kernel forwards everything"),
            (false, _) => f.write_str(": a packet needs two, so the kernel forwards everything"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_takes_two_interfaces() {
        const FULL: (bool, bool) = (true, true);
        const KEPT: (bool, bool) = (false, false);
        const INGRESS: (bool, bool) = (true, false);
        const EGRESS: (bool, bool) = (false, true);
        for (interfaces, said) in [
            (vec![FULL, FULL], "2 of 2 interfaces accelerated"),
            (vec![FULL, EGRESS], "1 of 2 interfaces accelerated"),
            (vec![INGRESS, EGRESS], "0 of 2 interfaces accelerated"),
            (
                vec![FULL, KEPT],
                "1 of 2 interfaces accelerated: a packet needs two, so the kernel forwards everything",
            ),
            (
                vec![INGRESS, INGRESS],
                "0 of 2 interfaces accelerated: the kernel forwards everything",
            ),
            (vec![KEPT, KEPT], "0 of 2 interfaces accelerated: the kernel forwards everything"),
            (
                vec![FULL],
                "1 of 1 interface accelerated: a packet needs two, so the kernel forwards everything",
            ),
        ] {
            assert_eq!(Extent::of(interfaces.clone()).to_string(), said, "{interfaces:?}");
        }
    }

    fn port(link_up: bool) -> AcceleratedPort {
        AcceleratedPort { ingress: true, egress: true, link_up, ..AcceleratedPort::default() }
    }

    /// The lie: "2 of 2 interfaces accelerated" while a cable is out.
    #[test]
    fn a_port_without_a_link_is_not_accelerated() {
        let said = |ports: &[AcceleratedPort]| Extent::now(ports, true).to_string();
        assert_eq!(
            said(&[port(true), port(false)]),
            "1 of 2 interfaces accelerated: a packet needs two, so the kernel forwards everything"
        );
        assert_eq!(said(&[port(true), port(true), port(false)]), "2 of 3 interfaces accelerated");
    }

    /// Without a lease no port does what it may.
    #[test]
    fn a_lapsed_lease_accelerates_nothing() {
        let ports = [port(true), port(true)];
        assert_eq!(Extent::now(&ports, true).accelerated, 2);
        let said = Extent::now(&ports, false).to_string();
        assert_eq!(said, "0 of 2 interfaces accelerated: the kernel forwards everything");
    }
}
