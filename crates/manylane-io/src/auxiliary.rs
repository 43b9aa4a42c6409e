//! What a packet socket says beside a frame: the tag that the kernel took off.

use std::mem;

/// Room for the one control message of an ordinary packet socket, `PACKET_AUXDATA`, as cmsg(3) lays it
/// out.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Auxiliary {
    header: libc::cmsghdr,
    data: libc::tpacket_auxdata,
    _padding: u32,
}

/// A tag of 802.1Q, in the order of its bytes: TPID, TCI.
pub(crate) type Tag = [u8; 4];

impl Auxiliary {
    pub(crate) fn new() -> Auxiliary {
        // SAFETY: all zeroes is a valid `Auxiliary`: integers.
        unsafe { mem::zeroed() }
    }

    /// The tag that was taken off the frame that this came with, if the kernel has put in `written` bytes.
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
