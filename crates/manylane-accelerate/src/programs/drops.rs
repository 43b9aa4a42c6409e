//! Hearing of packets that the kernel drops, and why: `drops.bpf.c` at the kernel's tracepoint.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use super::btf::Types;
use super::tracepoint::{self, offset, unknown};
use manylane_io::bpf::maps::{Maps, RingReader};
use manylane_io::bpf::object::{self, Meant};
use manylane_sync::words::WordsMut;

/// The drops of a network namespace, from the opening on until this is dropped.
pub struct KernelDrops {
    ring: RingReader,
    reasons: BTreeMap<u32, String>,
    /// One word, which programs write.
    lost: WordsMut<u64>,
    _link: OwnedFd,
}

/// A packet that the kernel has dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelDrop {
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// The reason's name, without what all names begin with (`enum skb_drop_reason`), or its number.
    pub reason: String,
    /// Whether it is an IPv6 packet; else it is one of IPv4.
    pub is_v6: bool,
    /// Its first bytes, from the IP header on, and whatever lay behind a shorter packet.
    pub head: [u8; HEAD],
}

impl KernelDrops {
    /// Begins, for the calling thread's network namespace. Needs CAP_BPF and CAP_PERFMON.
    pub fn open() -> io::Result<KernelDrops> {
        let btf = tracepoint::kernel_types()?;
        let types = Types::read(&btf).ok_or_else(|| unknown("no type information"))?;
        let places = [
            ("head_at", offset(&types, "sk_buff", &["head"])?),
            ("network_at", offset(&types, "sk_buff", &["network_header"])?),
            ("protocol_at", offset(&types, "sk_buff", &["protocol"])?),
            ("device_at", offset(&types, "sk_buff", &["dev"])?),
            ("device_net_at", offset(&types, "net_device", &["nd_net", "net"])?),
            ("net_number_at", offset(&types, "net", &["ns", "inum"])?),
            ("net_number", tracepoint::net_number()?),
        ];
        let reasons = types.enumeration("skb_drop_reason");
        let reasons = reasons.ok_or_else(|| unknown("no enum skb_drop_reason"))?;
        let mut maps = Maps::default();
        let ring = maps.add_ring("drops", RING).map_err(io::Error::other)?;
        let lost = maps.add("lost", 1).map_err(io::Error::other)?;
        let meant = |name: &str| {
            let place = places.iter().find(|(known, _)| *known == name);
            place.map(|&(_, number)| Meant::Number(number)).or_else(|| maps.meant(name))
        };
        let program = object::program(OBJECT, SECTION, meant)?;
        let _link = tracepoint::attach(TRACEPOINT, "manylane_drops", &program)?;
        Ok(KernelDrops { ring, reasons, lost, _link })
    }

    /// Gives all drops that wait to `see`, in order.
    pub fn drain(&mut self, mut see: impl FnMut(KernelDrop)) {
        let KernelDrops { ring, reasons, .. } = self;
        // A reader may be slower than the kernel drops.
        for _ in 0..RING as usize / RECORD {
            match ring.next(|record| KernelDrop::read(record, reasons)) {
                None => break,
                Some(drop) => drop.into_iter().for_each(&mut see),
            }
        }
    }

    /// Drops that found no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(0)
    }
}

impl KernelDrop {
    /// A `struct record` of `drops.bpf.c`. `None` for anything shorter.
    fn read(bytes: &[u8], reasons: &BTreeMap<u32, String>) -> Option<KernelDrop> {
        let (time, rest) = bytes.split_first_chunk()?;
        let (reason, rest) = rest.split_first_chunk()?;
        let (protocol, rest) = rest.split_first_chunk()?;
        let reason = u32::from_ne_bytes(*reason);
        let name = reasons.get(&reason).map(|name| name.strip_prefix(PREFIX).unwrap_or(name));
        Some(KernelDrop {
            time_ns: u64::from_ne_bytes(*time),
            reason: name.map_or_else(|| format!("reason {reason:#x}"), str::to_owned),
            is_v6: u32::from_ne_bytes(*protocol) == IPV6,
            head: *rest.first_chunk()?,
        })
    }
}

static OBJECT: &[u8] = aya::include_bytes_aligned!("drops.bpf.o");
const SECTION: &str = "raw_tp/kfree_skb";
const TRACEPOINT: &CStr = c"kfree_skb";

/// What the names of `enum skb_drop_reason` begin with.
const PREFIX: &str = "SKB_DROP_REASON_";
/// Bytes of the ring: ten thousand drops.
const RING: u32 = 1 << 20;
/// Bytes that a drop takes there.
const RECORD: usize = 24 + HEAD;
/// As in `drops.bpf.c`.
const HEAD: usize = 80;
/// `ETH_P_IPV6`.
const IPV6: u32 = 0x86dd;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_and_one_cut_short_is_none() {
        let reasons = BTreeMap::from([(7, "SKB_DROP_REASON_NETFILTER_DROP".to_owned())]);
        let record = |reason: u32| {
            let numbers = [5u64.to_ne_bytes().to_vec(), reason.to_ne_bytes().to_vec()].concat();
            [numbers, IPV6.to_ne_bytes().to_vec(), vec![0x60; HEAD]].concat()
        };
        let read = KernelDrop::read(&record(7), &reasons).expect("it is whole");
        assert_eq!((read.time_ns, read.is_v6, read.reason.as_str()), (5, true, "NETFILTER_DROP"));
        let read = KernelDrop::read(&record(0x2_0001), &reasons).expect("it is whole");
        assert_eq!(read.reason, "reason 0x20001");
        for len in 0..16 + HEAD {
            assert_eq!(KernelDrop::read(&record(7)[..len], &reasons), None);
        }
    }
}
