//! All messages of packet sockets, here and in other processes.

use manylane_frame::vocabulary::PortId;
use manylane_io::libpcap::PcapError;
use manylane_io::packet_ring::RingError;

use super::{EPERM, said};
use crate::socket::SocketError;
use crate::socket::remote::message::{Kind, Refusal};
use manylane_client::RemoteError;

#[test]
fn sockets() {
    messages!(SocketError {
        TooMany: [(TooMany { max: 64 }, ["64 packet sockets"], "close one, or raise `max`")],
        Wake: [(Wake(said(EPERM)), ["eventfd", "not permitted"], "raise `ulimit -n`")],
        Memory: [(
            Memory { wanted: 4096, left: 100 },
            ["4096 bytes", "100 are left"],
            "raise `memory_max` in [sockets]"
        )],
        Ring: [(Ring(RingError::Blocks(0)), ["0 blocks"], "take ")],
        NoSuchPort: [(NoSuchPort(PortId(7)), ["port 7"], "`manylane show ports` lists")],
        Busy: [(Busy, ["too many bindings"], "try again")],
        GroupDiffers: [(GroupDiffers, ["fanout group"], "name another group")],
        GroupFull: [(GroupFull, ["fanout group"], "name another")],
        InGroup: [(InGroup, ["fanout group"], "leave it first")],
        NotBound: [(NotBound, ["bound to no port"], "bind it first")],
        SendFull: [(SendFull, ["too many packets"], "try again")],
        Length: [(Length { len: 9, max: 1514 }, ["9 bytes"], "make it 14 to 1514 bytes long")],
    });
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
        Silent: [(Silent { path: path() }, ["/run/s"], "look at what its process does")],
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
