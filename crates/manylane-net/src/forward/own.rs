//! Our own addresses: claims of other stations to them, and what we send about them.
//!
//! What a claim means, and when something is sent, is `neighbour::own`'s. Here is what counts as one:
//!
//! | packet                                              | is           | rule                             |
//! |-----------------------------------------------------|--------------|----------------------------------|
//! | ARP with our address as sender                      | `Used`       | RFC 5227 §2.1.1, §2.4            |
//! | ARP probe for our address, which we do not use yet  | `Wanted`     | RFC 5227 §2.1.1                  |
//! | advertisement of our address                        | `Used`       | RFC 4862 §5.4.4                  |
//! | solicitation from our address for one that we use   | `Used`       | (ours, as for ARP)               |
//! | solicitation from `::` for one we do not use yet    | `Wanted`     | RFC 4862 §5.4.3                  |
//! | any of these from our own station                   | nothing      | RFC 4862 §5.4.3: it was looped back |

use std::net::IpAddr;

use manylane_frame::vocabulary::PortId;
use manylane_frame::{Frame, HEADROOM};

use super::{Fate, Forwarder};
use crate::neighbour::{Claim, Key, Report, Standing};
use crate::wire::arp;
use crate::wire::ethernet::Mac;
use crate::wire::nd::{self, Advertisement, Solicitation};

impl Forwarder {
    /// What may be done with an address of ours.
    pub(super) fn standing(&self, port: PortId, addr: impl Into<IpAddr>) -> Standing {
        self.tables.own.standing(Key { port, addr: addr.into() })
    }

    /// Whether this is an address of ours that we use.
    pub(super) fn uses(&self, port: PortId, addr: impl Into<IpAddr>) -> bool {
        let addr = addr.into();
        self.port(port).owns(addr) && self.standing(port, addr).is_in_use()
    }

    /// Reports that `station` lays claim to our address, once a second, unless it is ourselves.
    pub(super) fn claimed(
        &mut self,
        port: PortId,
        addr: impl Into<IpAddr>,
        station: Mac,
        claim: Claim,
        now_ns: u64,
    ) {
        let key = Key { port, addr: addr.into() };
        if station != self.port(port).mac && self.may_report_claim(key, now_ns) {
            self.report(Report::Claimed { key, mac: station.0, claim });
        }
    }

    /// Writes the question whether any station has our address into a fresh frame, from the unspecified address (RFC
    /// 5227 §2.1.1, RFC 4862 §5.4.2).
    pub fn probe(&mut self, frame: &mut Frame, key: Key) -> Option<PortId> {
        self.write(frame, key.port, |buf, station| match key.addr {
            IpAddr::V4(own) => {
                let probe = arp::Packet::request(station, std::net::Ipv4Addr::UNSPECIFIED, own);
                probe.emit_frame(buf, Mac::BROADCAST)
            }
            IpAddr::V6(own) => {
                Solicitation::detect_duplicate(own).emit(buf, station, Mac::BROADCAST)
            }
        })
    }

    /// Writes the news that our address is here into a fresh frame: an ARP announcement, as a request (RFC
    /// 5227 §2.3 and §3), or an unsolicited advertisement to all nodes (RFC 4861 §7.2.6).
    pub fn announce(&mut self, frame: &mut Frame, key: Key) -> Option<PortId> {
        self.write(frame, key.port, |buf, station| match key.addr {
            IpAddr::V4(own) => {
                arp::Packet::request(station, own, own).emit_frame(buf, Mac::BROADCAST)
            }
            IpAddr::V6(own) => {
                Advertisement::unsolicited(own, station).emit(buf, station, Mac::BROADCAST)
            }
        })
    }

    /// Opens a fresh frame for a packet about addresses of `port`, cuts it to what `emit` wrote, and gives it
    /// the port's tags. The port by whose device it leaves; `None` if nothing was written.
    pub(super) fn write(
        &mut self,
        frame: &mut Frame,
        port: PortId,
        emit: impl FnOnce(&mut [u8], Mac) -> Option<usize>,
    ) -> Option<PortId> {
        let station = self.port(port).mac;
        self.region.set_window(frame, HEADROOM, HEADROOM + nd::FRAME_LEN_MAX as u16);
        let len = emit(self.region.bytes_mut(frame), station)?;
        self.region.truncate(frame, len);
        match self.egress(frame, port) {
            Fate::Transmit(device) => Some(device),
            _ => None,
        }
    }
}
