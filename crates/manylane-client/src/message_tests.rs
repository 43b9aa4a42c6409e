//! All messages of packet sockets in other processes.

use std::io;

use manylane_io::libpcap::PcapError;
use manylane_io::packet_ring::RingError;

use crate::RemoteError;
use crate::message::{Kind, Refusal};

const EPERM: i32 = 1;

fn said(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

#[test]
fn remote_sockets() {
    let path = || "/run/s".into();
    let error = "there is no port `wna`; `manylane show ports` lists them".into();
    messages!(RemoteError {
        NoDaemon: [(NoDaemon { path: path() }, ["/run/s"], "start one with `manylane run FILE`")],
        Unreachable: [(
            Unreachable { path: path(), source: said(EPERM) },
            ["/run/s", "not permitted"],
            "capture as root or as a member of the group"
        )],
        Refused: [(
            Refused(Refusal { kind: Kind::BadRequest, error }),
            ["`wna`"],
            "`manylane show ports` lists them"
        )],
        Silent: [(Silent { path: path() }, ["/run/s", "10 s"], "look at its log")],
        Gone: [(Gone { path: path() }, ["/run/s"], "see whether it still runs")],
        Unexpected: [(
            Unexpected { path: path(), what: "it sent no ring".into() },
            ["/run/s", "it sent no ring"],
            "use the program that came with the daemon"
        )],
        TooLong: [(TooLong { len: 70_000, max: 65_536 }, ["70000", "65536"], "send a shorter")],
        Expression: [(
            Expression(PcapError::Expression { expression: "prot 1".into(), message: "no".into() }),
            ["`prot 1`"],
            "pcap-filter(7)"
        )],
        Ring: [(Ring(RingError::Lanes(0)), ["0 lanes"], "take 1 to")],
        System: [(
            System { step: "epoll_ctl", source: said(EPERM) },
            ["epoll_ctl", "not permitted"],
            "raise `ulimit -n`"
        )],
    });
}
