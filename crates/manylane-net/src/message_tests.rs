//! All messages of this crate.

use std::net::IpAddr;

use manylane_frame::vocabulary::PortId;

use crate::fib::{EditError, IpPrefix, PrefixError};
use crate::filter::FilterError;
use crate::generate::{FarEndError, StreamId};
use crate::messages::Page;
use crate::neighbour::adjacency::RecordsInUse;
use crate::neighbour::{Key, TableFull};
use crate::nexthop::GroupsFull;
use crate::nexthop::dst::DstsInUse;
use crate::wire::ethernet::MacError;

#[test]
fn prefixes() {
    messages!(PrefixError {
        TooLong: [(TooLong { len: 33, max: 32 }, ["prefix length 33", "32 bits"], "use 0 to 32")],
        HostBits: [(
            HostBits { addr: addr("10.1.0.1"), network: prefix("10.1.0.0/24") },
            ["10.1.0.1", "bits set below"],
            "write its network, 10.1.0.0/24"
        )],
        NoLength: [(NoLength { text: "10.1.0.0".into() }, ["`10.1.0.0`"], "write address/length")],
        Address: [(
            Address { text: "ten".into(), source: "ten".parse::<IpAddr>().unwrap_err() },
            ["`ten`", "invalid IP address syntax"],
            "write one like 10.1.0.0 or 2001:db8::"
        )],
        Length: [(
            Length { text: "x".into(), source: "x".parse::<u8>().unwrap_err() },
            ["`x`", "invalid digit"],
            "write a number of bits"
        )],
    });
}

#[test]
fn edits() {
    messages!(EditError {
        Busy: [(Busy { waiting: 7, waiting_max: 8 }, ["7 of at most 8"], "repeat the edit")],
        Full: [(
            Full { table: "lists", words: 64, wanted: 4 },
            ["`lists`", "64 words", "4 more"],
            "make it larger"
        )],
        TooManyRoutes: [(TooManyRoutes { routes_max: 9 }, ["9 routes"], "raise the limit")],
        NotEmpty: [(NotEmpty { routes: 9 }, ["9 routes"], "load an empty one")],
    });
}

#[test]
fn link_layer_addresses() {
    messages!(MacError {
        Parts: [(
            Parts { text: "02:00".into(), count: 2 },
            ["\"02:00\"", "2 parts where six belong"],
            "write it like 02:00:5e:10:00:01"
        )],
        Part: [(
            Part { text: "02:00:00:00:00:0g".into(), position: 6 },
            ["\"02:00:00:00:00:0g\"", "part 6"],
            "write it like 02:00:5e:10:00:01"
        )],
    });
}

#[test]
fn filters() {
    messages!(FilterError {
        Empty: [(Empty, ["the filter has no instruction"], "`ret #262144`")],
        TooLong: [(
            TooLong { len: 5000 },
            ["5000 instructions", "more than"],
            "use several captures"
        )],
        UnknownCode: [(
            UnknownCode { at: 3, code: 0xff },
            ["instruction 3", "code 0xff"],
            "see that it was not made for another machine"
        )],
        JumpOutside: [(
            JumpOutside { at: 3, to: 99 },
            ["instruction 3", "jumps to 99"],
            "see that all instructions were handed over"
        )],
        JumpBackward: [(
            JumpBackward { at: 3 },
            ["instruction 3", "jumps backward"],
            "use `proto`"
        )],
        NoEnd: [(
            NoEnd { at: 3 },
            ["instruction 3", "no `ret`"],
            "see that all instructions were handed over"
        )],
        MemoryOutside: [(
            MemoryOutside { at: 3, cell: 16 },
            ["instruction 3", "word 16"],
            "use words 0 to 15"
        )],
        MemoryUnwritten: [(
            MemoryUnwritten { at: 3, cell: 1 },
            ["instruction 3", "word 1"],
            "store a value first"
        )],
        DivisionByZero: [(
            DivisionByZero { at: 3 },
            ["instruction 3", "by 0"],
            "use another divisor"
        )],
        ShiftTooFar: [(
            ShiftTooFar { at: 3, by: 32 },
            ["instruction 3", "32 bits"],
            "use at most 31"
        )],
        LinuxOffset: [(
            LinuxOffset { at: 3, offset: -4096 },
            ["instruction 3", "-0x1000"],
            "leave out `inbound`"
        )],
    });
}

#[test]
fn generators() {
    messages!(FarEndError {
        NoQueue: [(NoQueue, ["no receive queue"], "give it one")],
        Families: [(
            Families { source: addr("10.1.0.1"), destination: addr("2001:db8::1") },
            ["10.1.0.1", "2001:db8::1"],
            "take both from one family"
        )],
        PrefixLength: [(
            PrefixLength { len: 33, len_max: 32 },
            ["prefix length 33", "32 bits"],
            "take no more"
        )],
        Flows: [(Flows(0), ["0 flows"], "take 1 to ")],
        NoRate: [(NoRate, ["0 packets per second"], "leave the rate out")],
        FrameTooLong: [(
            FrameTooLong { len: 2000, room: 1792 },
            ["2000 bytes", "1792"],
            "take no more"
        )],
        Streams: [(Streams(99), ["99 streams"], "take at most")],
        SameStream: [(SameStream(StreamId(7)), ["id 7"], "give each its own")],
    });
}

#[test]
fn tables() {
    let mut page = Page::new("tables");
    let key = Key { port: PortId(0), addr: addr("10.1.0.9") };
    let full = TableFull { key, entries_max: 64 };
    page.row("TableFull", &full.to_string(), &["10.1.0.9", "64 entries"], "try again, or raise");
    let full = GroupsFull { groups_max: 8 };
    page.row("GroupsFull", &full.to_string(), &["8 groups"], "use the same members");
    let used = RecordsInUse { records: 9, waiting: 4 };
    page.row("RecordsInUse", &used.to_string(), &["4 of 9"], "publish again");
    let used = DstsInUse { records: 9, held: 4 };
    page.row("DstsInUse", &used.to_string(), &["9 dst records", "4 are"], "publish again");
    page.finish();
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}
