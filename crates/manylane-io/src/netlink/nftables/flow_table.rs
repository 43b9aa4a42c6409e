//! Flow tables: the kernel's own fast path, which rules with `flow add` fill.

use super::{NFGENMSG_OF_ALL, NFNL_SUBSYS_NFTABLES, TableFamily, look, open};
use crate::netlink::NetlinkError;
use crate::netlink::plain::{Plain, attribute, big_u32, text};

/// A flow table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTable {
    /// The family of its table.
    pub family: TableFamily,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// The number of rules that add connections to it.
    pub uses: u32,
}

/// Reads the flow tables of the calling thread's network namespace.
pub fn flow_tables() -> Result<Vec<FlowTable>, NetlinkError> {
    let all = Plain::list(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETFLOWTABLE, &NFGENMSG_OF_ALL);
    look("read the flow tables of nftables", |socket| all.collect(socket, flow_table))
}

fn flow_table(bytes: &[u8]) -> Option<FlowTable> {
    let (family, bytes) = open(bytes)?;
    Some(FlowTable {
        family,
        table: attribute(bytes, NFTA_FLOWTABLE_TABLE).map(text)?,
        name: attribute(bytes, NFTA_FLOWTABLE_NAME).map(text)?,
        uses: attribute(bytes, NFTA_FLOWTABLE_USE).and_then(big_u32).unwrap_or(0),
    })
}

const NFT_MSG_GETFLOWTABLE: u16 = 23;
const NFTA_FLOWTABLE_TABLE: u16 = 1;
const NFTA_FLOWTABLE_NAME: u16 = 2;
const NFTA_FLOWTABLE_USE: u16 = 4;
