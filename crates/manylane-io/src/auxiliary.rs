//! The control message beside a received frame: the VLAN tag that the kernel removed.

use std::mem;

/// A buffer for the only control message that a packet socket sends, `PACKET_AUXDATA`, in the layout of cmsg(3).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Auxiliary {
    header: libc::cmsghdr,
    data: libc::tpacket_auxdata,
    _padding: u32,
}

/// An 802.1Q tag in network byte order: TPID, TCI.
pub(crate) type Tag = [u8; 4];

impl Auxiliary {
    pub(crate) fn new() -> Auxiliary {
        // SAFETY: all zeroes is a valid `Auxiliary`: integers.
        unsafe { mem::zeroed() }
    }

    /// The VLAN tag removed from this message's frame; `written` is the length of the control message.
    #[inline(always)]
    pub(crate) fn tag(&self, written: usize) -> Option<Tag> {
        let Auxiliary { header, data, .. } = self;
        if written < size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>()
            || (header.cmsg_level, header.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA)
            || data.tp_status & libc::TP_STATUS_VLAN_VALID == 0
        {
            return None;
        }
        let tpid = match data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => libc::ETH_P_8021Q as u16,
            _ => data.tp_vlan_tpid,
        };
        let ([a, b], [c, d]) = (tpid.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
        Some([a, b, c, d])
    }
}
