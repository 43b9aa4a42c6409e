//! [`Lab`]: making the hosts and what connects them, by netlink and `/proc/sys` alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use manylane_io::bpf::BpfError;
use manylane_io::interface::InterfaceError;
use manylane_io::namespace::{Host, NamespaceError};
use manylane_io::netlink::{LinkEnd, Netlink, NetlinkError, Route};
use manylane_io::sysctl::{self, SysctlError};

/// The client's IPv4 address.
pub const CLIENT_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
/// The client's IPv6 address.
pub const CLIENT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1));
/// The router's IPv4 address towards the client.
pub const LAN_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 254));
/// The router's IPv6 address towards the client.
pub const LAN_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0xfe));
/// The server's IPv4 address.
pub const SERVER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1));
/// The server's IPv6 address.
pub const SERVER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1));
/// The router's IPv4 address towards the server.
pub const WAN_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 254));
/// The router's IPv6 address towards the server.
pub const WAN_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0xfe));

/// What kind of lab to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabOptions {
    /// Queues of every link, each way.
    pub queues: u32,
    /// The MTU of every link.
    pub mtu: u32,
    /// Whether the router's kernel forwards: the baseline, without manylane.
    pub kernel_router: bool,
}

impl Default for LabOptions {
    fn default() -> Self {
        LabOptions { queues: 1, mtu: 1500, kernel_router: false }
    }
}

/// Three hosts in a row.
pub struct Lab {
    /// Sends.
    pub client: Host,
    /// Between the two, with the links `lan` and `wan`.
    pub router: Host,
    /// Answers.
    pub server: Host,
}

impl Lab {
    /// Makes the hosts and connects them. When this returns, all links are up and all addresses usable.
    pub fn three_hosts(options: LabOptions) -> Result<Lab, LabError> {
        let lab = Lab {
            client: Host::start("client")?,
            router: Host::start("router")?,
            server: Host::start("server")?,
        };
        for host in [&lab.client, &lab.server] {
            set(host, END_HOST)?;
        }
        if options.kernel_router {
            set(&lab.router, ROUTER)?;
            lab.router.run(|| Netlink::open()?.set_up("lo"))?;
        } else {
            set(&lab.router, SILENT_KERNEL)?;
        }

        let to_client =
            RouterLink { link: "lan", ours: [LAN_V4, LAN_V6], theirs: [CLIENT_V4, CLIENT_V6] };
        let to_server =
            RouterLink { link: "wan", ours: [WAN_V4, WAN_V6], theirs: [SERVER_V4, SERVER_V6] };
        connect(&lab.router, &lab.client, to_client, options)?;
        connect(&lab.router, &lab.server, to_server, options)?;
        Ok(lab)
    }
}

/// A link of the router's, and the addresses at both ends.
#[derive(Clone, Copy)]
struct RouterLink {
    link: &'static str,
    ours: [IpAddr; 2],
    theirs: [IpAddr; 2],
}

fn connect(
    router: &Host,
    host: &Host,
    of_router: RouterLink,
    options: LabOptions,
) -> Result<(), LabError> {
    let other =
        host.namespace().as_fd().try_clone_to_owned().map_err(|source| {
            LabError::Setting(SysctlError { name: "fs/file-max".into(), source })
        })?;
    router.run(move || {
        let mut netlink = Netlink::open()?;
        let mtu = Some(options.mtu);
        let [end, far_end] = [of_router.link, "eth0"]
            .map(|name| LinkEnd { mtu, ..LinkEnd::new(name).queues(options.queues) });
        netlink.create_veth(&end, &far_end, Some(other.as_fd()))?;
        if options.kernel_router {
            add_addresses(&mut netlink, of_router.link, of_router.ours)?;
        }
        netlink.set_up(of_router.link)
    })?;
    host.run(move || {
        let mut netlink = Netlink::open()?;
        netlink.set_up("lo")?;
        add_addresses(&mut netlink, "eth0", of_router.theirs)?;
        netlink.set_up("eth0")?;
        // After "up": the kernel refuses a gateway whose link is down.
        let [v4, v6] = of_router.ours;
        netlink.add_route(&Route::via(Ipv4Addr::UNSPECIFIED.into(), 0, v4))?;
        netlink.add_route(&Route::via(Ipv6Addr::UNSPECIFIED.into(), 0, v6))
    })?;
    Ok(())
}

fn add_addresses(
    netlink: &mut Netlink,
    link: &str,
    [v4, v6]: [IpAddr; 2],
) -> Result<(), NetlinkError> {
    netlink.add_address(link, v4, 24)?;
    netlink.add_address(link, v6, 64)
}

/// Changes settings before the host's links are made: links copy `default` when they come.
pub(crate) fn set(
    host: &Host,
    settings: &'static [(&'static str, &'static str)],
) -> Result<(), LabError> {
    host.run(|| settings.iter().try_for_each(|(name, value)| sysctl::set(name, value)))?;
    Ok(())
}

/// IPv6 addresses usable at once (no duplicate address detection), and no chatter that a router would
/// have to answer. A host needs its link-local address to solicit neighbours.
pub(crate) const END_HOST: &[(&str, &str)] = &[
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// A namespace takes IPv4's settings from the first one, where they may be anything. Errors by ICMP are not limited:
/// one that is missing says that it was not sent.
pub(crate) const ROUTER: &[(&str, &str)] = &[
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    // Not `icmp_ratelimit` 0: that takes away what routes to nowhere may say (`ip_error` shares its tokens).
    ("net/ipv4/icmp_ratemask", "0"),
    ("net/ipv4/icmp_msgs_per_sec", "1000000"),
    ("net/ipv4/icmp_msgs_burst", "1000000"),
    ("net/ipv6/icmp/ratelimit", "0"),
];

/// The router's kernel neither forwards nor answers nor speaks: only manylane does.
const SILENT_KERNEL: &[(&str, &str)] = &[
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    ("net/ipv6/conf/all/forwarding", "0"),
    // A namespace takes IPv4's settings from the first one, where they may be anything
    // (`net.core.devconf_inherit_init_net`).
    ("net/ipv4/ip_forward", "0"),
];

/// Why a lab could not be made.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The kernel refused a network namespace.
    #[error("{0}")]
    Namespace(#[from] NamespaceError),
    /// A link, an address or a route was refused.
    #[error("{0}")]
    Netlink(#[from] NetlinkError),
    /// A setting of a host's kernel was refused.
    #[error("{0}")]
    Setting(#[from] SysctlError),
    /// The kernel tells nothing of an interface, or does not change it.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// A program that makes packets, or counts them, was refused.
    #[error("{0}")]
    Program(#[from] BpfError),
    /// A topology's text says something else than hosts and links.
    #[error("line {line}: {why}")]
    Text {
        /// Where.
        line: usize,
        /// What is wrong.
        why: String,
    },
}
