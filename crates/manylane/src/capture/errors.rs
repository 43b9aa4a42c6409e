//! All messages of `manylane capture`.

use std::io;

use super::files::WriteError;
use super::{CaptureError, OpenError, UsageError};

fn said(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

const ENOSPC: i32 = 28;
const ENOENT: i32 = 2;

#[test]
fn usage() {
    messages!(UsageError {
        RotationWithoutFile: [(RotationWithoutFile { option: "-G" }, ["-G"], "add -w FILE")],
        RotationOfStandardOutput: [(
            RotationOfStandardOutput { option: "-C" },
            ["-C", "`-w -`"],
            "name a file, or leave -C out"
        )],
        FilesWithoutRotation: [(FilesWithoutRotation, ["-W"], "add -G SECONDS or -C MILLIONS")],
        TimePattern: [(
            TimePattern { name: "%Q.pcap".into(), message: "no such directive".into() },
            ["`%Q.pcap`", "no such directive"],
            "write %% for a percent sign"
        )],
        NameNotUtf8: [(
            NameNotUtf8 { name: "x.pcap".into() },
            ["\"x.pcap\""],
            "choose another name"
        )],
        Terminal: [(Terminal, ["`-w -`"], "pipe it to a program")],
        Extcap: [(
            Extcap { option: "--capture", lacks: "--fifo" },
            ["--capture", "--fifo"],
            "add it, or leave --capture out"
        )],
        ExtcapInterface: [(
            ExtcapInterface { name: "eth0".into() },
            ["`eth0`"],
            "--extcap-interfaces lists them"
        )],
    });
}

#[test]
fn sources() {
    let no_port = |ports: &[&str]| {
        let ports = ports.iter().map(|&port| port.into()).collect();
        OpenError::NoSuchPort { name: "wna".into(), ports }
    };
    messages!(OpenError {
        NoDaemon: [(
            NoDaemon { socket: "/run/s".into(), source: said(ENOENT) },
            ["/run/s", "No such file"],
            "start one with `manylane run`"
        )],
        NotAllowed: [(
            NotAllowed { socket: "/run/s".into(), group: "sniffers".into() },
            ["/run/s"],
            "be root, or a member of the group `sniffers`"
        )],
        NoSuchPort: [
            (no_port(&["wan", "lan"]), ["`wna`"], "existing ports: wan, lan, and `any`"),
            (no_port(&[]), ["`wna`"], "add one to its configuration"),
        ],
        Filter: [(
            Filter { filter: "prot 1".into(), message: "syntax error".into() },
            ["`prot 1`", "syntax error"],
            "pcap-filter(7) is its grammar"
        )],
        NoLibpcap: [(
            NoLibpcap { message: "libpcap.so.1: not found".into() },
            ["libpcap.so.1: not found"],
            "`apt install libpcap0.8`"
        )],
        // The daemon's own words, which have their next step.
        Refused: [(
            Refused { message: "16 captures run; end one".into() },
            ["16 captures"],
            "end one"
        )],
        System: [(
            System { what: "receiving packets", source: said(ENOENT) },
            ["receiving packets", "No such file"],
            "try again"
        )],
    });
}

#[test]
fn captures() {
    let unmade = || WriteError::Create { path: "f.pcap".into(), source: said(ENOENT) };
    messages!(WriteError {
        Create: [(unmade(), ["f.pcap", "No such file"], "name a file that you may write with -w")],
        Write: [(
            Write { path: "f.pcap".into(), packets: 7, source: said(ENOSPC) },
            ["f.pcap", "7 packets", "No space left"],
            "make room"
        )],
    });
    messages!(CaptureError {
        Usage: [(Usage(UsageError::Terminal), ["`-w -`"], "pipe it to a program")],
        Open: [(
            Open(OpenError::NotAllowed { socket: "/run/s".into(), group: "g".into() }),
            ["/run/s"],
            "be root"
        )],
        Write: [(Write(unmade()), ["f.pcap"], "name a file")],
        Closed: [(Closed, ["reader of the output"], "use -w FILE")],
        Ended: [(Ended, ["the daemon has ended the capture"], "`manylane show ports` tells")],
        // The client's own words, which have their next step.
        Silent: [(
            Silent { message: "the daemon hangs; look at what its process does".into() },
            ["hangs"],
            "look at what its process does"
        )],
        System: [(
            System { what: "standard output", source: said(ENOSPC) },
            ["standard output", "No space left"],
            "try again"
        )],
    });
}
