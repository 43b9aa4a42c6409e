//! All messages of ports.

use std::ops::RangeInclusive;

use super::{EIO, EPERM, absent, said, unloadable};
use crate::bpf::Mode;
use crate::port::af_packet::OpenError as AfPacketError;
use crate::port::af_xdp::{OpenError as AfXdpError, TagsHidden};
use crate::port::fault::FaultError;
use crate::port::pcap::{Damage, OpenError as PcapError, ReadError, Skipped, WriteError};
use crate::port::tap::OpenError as TapError;

const ETH0: fn() -> String = || "eth0".into();

#[test]
fn af_packet() {
    let refused = |number| {
        let step = "open a packet socket";
        AfPacketError::Refused { interface: ETH0(), step, source: said(number) }
    };
    messages!(AfPacketError {
        Interface: [(Interface(absent()), ["eth7"], "existing interfaces: lo, eth0")],
        PacketMax: [(
            PacketMax { interface: ETH0(), packet_max: 100, least: 1532 },
            ["eth0", "packet_max = 100"],
            "take 1532"
        )],
        Program: [(Program(unloadable()), ["program that steers", EPERM], "needs root")],
        Refused: [
            (refused(libc::EPERM), ["eth0", "open a packet socket", EPERM], "needs root"),
            (refused(libc::EAFNOSUPPORT), ["eth0"], "needs a kernel"),
            (refused(libc::ENODEV), ["eth0"], "`ip link` lists"),
            (refused(libc::ENOSPC), ["eth0"], "take fewer workers"),
            (refused(libc::EIO), ["eth0", EIO], "`manylane doctor`"),
        ],
    });
}

#[test]
fn af_xdp() {
    let hidden =
        |driver: &str| TagsHidden { interface: ETH0(), driver: driver.into(), mode: Mode::Generic };
    let too_large = |mtu, frame_size, frames_max| AfXdpError::MtuTooLarge {
        interface: ETH0(),
        mtu,
        frame_size,
        frames_max,
    };
    let refused = |number| {
        let step = "bind the AF_XDP socket";
        AfXdpError::Refused { interface: ETH0(), queue: 3, step, source: said(number) }
    };
    messages!(AfXdpError {
        Interface: [(Interface(absent()), ["eth7"], "existing interfaces: lo, eth0")],
        Owners: [(
            Owners { interface: ETH0(), queues: 4, owners: 2 },
            ["eth0", "4 receive queues", "2 have an owner"],
            "name one for each (`ethtool -l eth0` shows them)"
        )],
        MtuTooLarge: [
            (too_large(3000, 2048, 1), ["eth0", "3000", "2048"], "set `size = 4096` in [frames]"),
            (too_large(9000, 2048, 1), ["eth0", "9000"], "ip link set dev eth0 mtu 3822 with"),
            (too_large(9000, 4096, 1), ["eth0", "9000"], "ip link set dev eth0 mtu 3822"),
        ],
        RingSize: [(
            RingSize { ring: "rx_ring", entries: 100 },
            ["rx_ring = 100"],
            "take a power of two from 128"
        )],
        Program: [(Program(unloadable()), ["program that steers", EPERM], "needs root")],
        TagsHidden: [
            (TagsHidden(hidden("ixgbe")), ["eth0", "generic"], "ethtool -K eth0 rxvlan off"),
            (TagsHidden(hidden("veth")), ["eth0", "generic"], "`driver = \"af_packet\"`"),
        ],
        Busy: [(
            Busy { interface: ETH0(), queue: 3 },
            ["queue 3 of eth0", "another AF_XDP socket"],
            "`ss --xdp -p` shows"
        )],
        Refused: [
            (refused(libc::EPERM), ["eth0 queue 3", "bind the AF_XDP socket", EPERM], "needs root"),
            (refused(libc::EAFNOSUPPORT), ["eth0 queue 3"], "needs a kernel"),
            (refused(libc::ENOBUFS), ["eth0 queue 3"], "raise the limit of locked memory"),
            (refused(libc::ENODEV), ["eth0 queue 3"], "`ip link` lists"),
            (refused(libc::EOPNOTSUPP), ["eth0 queue 3"], "try zero_copy = false"),
            (refused(libc::EIO), ["eth0 queue 3", EIO], "`manylane doctor`"),
        ],
    });
}

#[test]
fn tap() {
    let refused = |number| TapError::Refused {
        interface: ETH0(),
        step: "make the interface",
        source: said(number),
    };
    let tap0 = || "tap0".to_owned();
    messages!(TapError {
        Name: [(
            Name { interface: "a-name-too-long-for-it".into() },
            ["`a-name-too-long"],
            "choose another"
        )],
        Interface: [(Interface(absent()), ["eth7"], "existing interfaces: lo, eth0")],
        NotTap: [(
            NotTap { interface: ETH0(), driver: "veth".into() },
            ["eth0", "`veth`"],
            "choose another driver"
        )],
        Busy: [(Busy { interface: tap0() }, ["tap0 is in use"], "end the program that has it")],
        OtherQueues: [(
            OtherQueues { interface: tap0(), queues: 4 },
            ["tap0", "4 queues"],
            "`ip tuntap add dev tap0 mode tap multi_queue`"
        )],
        PacketMax: [(
            PacketMax { interface: tap0(), packet_max: 100, least: 1532 },
            ["tap0", "packet_max = 100"],
            "take 1532"
        )],
        NoStation: [(
            NoStation { interface: tap0(), mac: [1, 0, 0x5e, 0, 0, 1] },
            ["tap0", "01:00:5e:00:00:01"],
            "choose one like"
        )],
        SameMac: [(SameMac { interface: tap0() }, ["tap0", "the host's end"], "choose another")],
        Counts: [(
            Counts { interface: tap0(), source: said(libc::ENOENT) },
            ["tap0", "/proc", "No such file"],
            "mount /proc"
        )],
        Program: [(Program(unloadable()), ["program that steers", EPERM], "needs root")],
        Refused: [
            (refused(libc::EPERM), ["eth0", "make the interface", EPERM], "needs root"),
            (refused(libc::ENOENT), ["eth0"], "needs a kernel"),
            (refused(libc::EIO), ["eth0", EIO], "`manylane doctor`"),
        ],
    });
}

#[test]
fn captures() {
    let path = || "x.pcap".into();
    let unknown = |first: &[u8]| ReadError::Unknown { path: path(), first: first.into() };
    let damaged = |source| ReadError::Damaged { path: path(), offset: 24, packets: 7, source };
    let unreadable = || ReadError::Open { path: path(), source: said(libc::ENOENT) };
    let unwritable = || WriteError::Create { path: path(), source: said(libc::EACCES) };
    messages!(ReadError {
        Open: [(unreadable(), ["x.pcap", "No such file"], "name a file")],
        TooLarge: [(
            TooLarge { path: path(), bytes_max: 1000 },
            ["x.pcap", "1000 bytes"],
            "raise `bytes_max`"
        )],
        Unknown: [
            (unknown(b"GET "), ["x.pcap", "47 45 54 20"], "make one with `tcpdump -w`"),
            (unknown(b"\x1f\x8b\x08\x00"), ["x.pcap", "compressed"], "`gunzip`"),
            (unknown(b""), ["x.pcap", "is empty"], "make one with `tcpdump -w`"),
        ],
        NotEthernet: [(
            NotEthernet { path: path(), link_type: 113 },
            ["x.pcap", "link type is 113"],
            "capture on an Ethernet interface"
        )],
        CutShort: [(
            CutShort { path: path(), offset: 24, packets: 7 },
            ["x.pcap", "byte 24", "packet 7"],
            "`tcpdump -r x.pcap -w NEW`"
        )],
        Damaged: [
            (damaged(Damage::Length(1 << 30)), ["x.pcap", "byte 24", "1073741824"], "`tcpdump -r"),
            (damaged(Damage::Format("odd".into())), ["x.pcap", "byte 24", "odd"], "`tcpdump -r"),
        ],
        NothingToSend: [(
            NothingToSend {
                path: path(),
                skipped: Skipped { truncated: 1, too_large: 2, not_ethernet: 3 }
            },
            ["x.pcap", "1 were", "2 are", "3 are"],
            "name another capture"
        )],
    });
    messages!(WriteError {
        Create: [(unwritable(), ["x.pcap", "Permission denied"], "name a file")],
        SameFile: [(SameFile { path: path() }, ["x.pcap"], "write to another file")],
        Write: [(
            Write { path: path(), packets: 7, source: Box::new(said(libc::ENOSPC)) },
            ["x.pcap", "7 packets", "No space left"],
            "make room"
        )],
    });
    messages!(PcapError {
        Read: [(Read(unreadable()), ["x.pcap"], "name a file")],
        Write: [(Write(unwritable()), ["x.pcap"], "name a file")],
    });
}

#[test]
fn faults() {
    messages!(FaultError {
        Probability: [(Probability { key: "loss", value: 1.5 }, ["`loss` is 1.5"], "take 0 to 1")],
        Delay: [(
            Delay(RangeInclusive::new(2000, 1000)),
            ["2000 to 1000 ns"],
            "give the shorter one first"
        )],
        ReorderPackets: [(ReorderPackets, ["`reorder_packets` is 0"], "take 1 or more")],
    });
}
