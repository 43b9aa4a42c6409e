//! Where a collector is: `udp://HOST:PORT` or `tcp://HOST:PORT`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use thiserror::Error;

/// By what messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// A message is a datagram.
    Udp,
    /// Messages follow each other in one connection.
    Tcp,
}

impl Transport {
    /// As an address spells it.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        }
    }
}

/// A collector as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CollectorAddress {
    transport: Transport,
    host: String,
    port: u16,
}

impl CollectorAddress {
    /// Reads `SCHEME://HOST[:PORT]`, with an IPv6 address in brackets. `transports` are the schemes that the protocol has.
    pub fn parse(
        text: &str,
        transports: &[Transport],
        default_port: u16,
    ) -> Result<CollectorAddress, AddressError> {
        let scheme_error = || AddressError::Scheme { text: text.into(), cure: cure(transports) };
        let (scheme, rest) = text.split_once("://").ok_or_else(scheme_error)?;
        let is_named = |transport: &&Transport| transport.name() == scheme;
        let transport = *transports.iter().find(is_named).ok_or_else(scheme_error)?;
        let host_error = || AddressError::Host { text: text.into() };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(host_error)?;
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':').ok_or_else(host_error)?)),
                }
            }
            None => match rest.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err(host_error()),
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        if host.is_empty() || host.contains(['/', '@', ' ']) {
            return Err(host_error());
        }
        let port = port.map_or(Ok(default_port), str::parse);
        match port {
            Ok(port) if port > 0 => Ok(CollectorAddress { transport, host: host.into(), port }),
            _ => Err(AddressError::Port { text: text.into(), default_port }),
        }
    }

    /// By what messages travel.
    pub fn transport(&self) -> Transport {
        self.transport
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CollectorAddress { transport, host, port } = self;
        match host.contains(':') {
            true => write!(to, "{}://[{host}]:{port}", transport.name()),
            false => write!(to, "{}://{host}:{port}", transport.name()),
        }
    }
}

/// A collector with its socket's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    address: CollectorAddress,
    socket: SocketAddr,
}

impl Destination {
    /// Looks up the names of these collectors, which may wait for a resolver. Two collectors of one address are an error.
    pub fn resolve(addresses: &[CollectorAddress]) -> Result<Vec<Destination>, AddressError> {
        let mut resolved: Vec<Destination> = Vec::new();
        for address in addresses {
            let one = Destination::of(address.clone())?;
            let is_same = |other: &&Destination| {
                other.socket == one.socket && other.transport() == one.transport()
            };
            if let Some(other) = resolved.iter().find(is_same) {
                let [first, second] = [other, &one].map(|one| one.address.to_string());
                return Err(AddressError::Twice { first, second });
            }
            resolved.push(one);
        }
        Ok(resolved)
    }

    fn of(address: CollectorAddress) -> Result<Destination, AddressError> {
        let CollectorAddress { host, port, .. } = &address;
        let found = (host.as_str(), *port).to_socket_addrs();
        let socket = found.and_then(|mut found| {
            found.next().ok_or_else(|| io::Error::other("the name has no address"))
        });
        match socket {
            Ok(socket) => Ok(Destination { address, socket }),
            Err(source) => Err(AddressError::Unresolved {
                host: host.clone(),
                text: address.to_string(),
                source,
            }),
        }
    }

    /// As the operator wrote it.
    pub fn address(&self) -> &CollectorAddress {
        &self.address
    }

    /// By what messages travel.
    pub fn transport(&self) -> Transport {
        self.address.transport
    }

    /// The socket that receives messages.
    pub fn socket_address(&self) -> SocketAddr {
        self.socket
    }
}

/// Why an address is none.
#[derive(Debug, Error)]
pub enum AddressError {
    /// The protocol has no such transport.
    #[error("the collector {text:?} has no transport that manylane knows: write {cure}")]
    Scheme {
        /// As written.
        text: String,
        /// What may be written.
        cure: String,
    },
    /// The host cannot be read.
    #[error(
        "the collector {text:?} names no host: write HOST or HOST:PORT behind the `//`, and an IPv6 address in brackets"
    )]
    Host {
        /// As written.
        text: String,
    },
    /// The port is none.
    #[error(
        "the collector {text:?} has a port that is no number from 1 to 65535: write one, or none for port {default_port}"
    )]
    Port {
        /// As written.
        text: String,
        /// The protocol's own.
        default_port: u16,
    },
    /// The name has no address.
    #[error(
        "the collector {text} has the host {host:?}, which does not resolve ({source}): write an address, or mend the name"
    )]
    Unresolved {
        /// The host.
        host: String,
        /// The collector.
        text: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Two collectors are one.
    #[error("the collectors {first} and {second} have one address: write one of them")]
    Twice {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
}

fn cure(transports: &[Transport]) -> String {
    let all: Vec<_> = transports.iter().map(|one| format!("{}://HOST", one.name())).collect();
    all.join(" or ")
}
