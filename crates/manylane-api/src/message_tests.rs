//! All messages of the API's doors and clients.

use std::io;
use std::time::Duration;

use crate::{ApiError, BindError, ClientError, ListenError};

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

fn said(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn exposed() -> ListenError {
    ListenError::Exposed { address: "192.0.2.1:9176".parse().unwrap() }
}

fn answered() -> BindError {
    BindError::Answered { path: "/run/s".into() }
}

#[test]
fn doors() {
    let path = || "/etc/token".into();
    let address = "192.0.2.1:9176".parse().unwrap();
    messages!(ListenError {
        Exposed: [(exposed(), ["192.0.2.1:9176"], "or name a file with a token")],
        Unreadable: [(
            Unreadable { path: path(), source: said(ENOENT) },
            ["/etc/token", "No such file"],
            "name a file that this user can read"
        )],
        Open: [(
            Open { path: path(), mode: 0o644 },
            ["/etc/token", "mode 0644"],
            "`chmod 600 /etc/token`"
        )],
        NoToken: [(
            NoToken { path: path(), what: "it is empty" },
            ["/etc/token", "it is empty"],
            "`openssl rand -hex 32` makes one"
        )],
        Refused: [(
            Refused { address, source: said(EPERM) },
            ["192.0.2.1:9176", "not permitted"],
            "name another address with --listen"
        )],
    });
    messages!(BindError {
        Answered: [(answered(), ["/run/s"], "stop it, or name another socket")],
        Locked: [(
            Locked { path: "/run/s.lock".into(), holder: "process 7 (sleep)".into() },
            ["process 7 (sleep)", "/run/s.lock"],
            "end it, or name another socket with --socket"
        )],
        Lock: [(
            Lock { path: "/run/s.lock".into(), step: "open", source: said(EPERM) },
            ["open the lock /run/s.lock", "not permitted"],
            "name a path this user may write with --socket"
        )],
        TooLong: [(
            TooLong { path: "/run/s".into() },
            ["/run/s", "at most 107"],
            "name a shorter one with --socket"
        )],
        NotASocket: [(NotASocket { path: "/run/s".into() }, ["/run/s"], "remove it")],
        Refused: [(
            Refused { path: "/run/s".into(), step: "listen at", source: said(EPERM) },
            ["listen at the socket /run/s", "not permitted"],
            "name a path this user may write with --socket"
        )],
    });
}

#[test]
fn clients() {
    let socket = || "/run/s".into();
    let error = ApiError { error: "there is no port wna".into(), help: "choose among lan".into() };
    messages!(ClientError {
        NoDaemon: [(
            NoDaemon { socket: socket() },
            ["/run/s"],
            "start one with `manylane run FILE` or `manylane accelerate IF...`"
        )],
        Unreachable: [
            (
                Unreachable { socket: socket(), source: said(EPERM) },
                ["/run/s", "not permitted"],
                "ask as root"
            ),
            (
                Unreachable { socket: socket(), source: said(EMFILE) },
                ["/run/s", "Too many open files"],
                "raise its limit (`ulimit -n`"
            ),
            (
                Unreachable { socket: socket(), source: said(ENFILE) },
                ["/run/s", "Too many open files in system"],
                "raise the sysctl fs.file-max"
            ),
            (
                Unreachable { socket: "s".repeat(108).into(), source: said(EPERM) },
                ["sss", "108 bytes"],
                "name the daemon's with --socket"
            ),
        ],
        Stranger: [(
            Stranger { socket: socket(), uid: 65534 },
            ["user 65534", "/run/s"],
            "ask as the user that started it"
        )],
        Closed: [(Closed { socket: socket() }, ["/run/s", "file descriptor"], "try again")],
        Silent: [(
            Silent { socket: socket(), waited: Duration::from_secs(10) },
            ["/run/s", "10 s"],
            "look at its log"
        )],
        WrongDaemon: [(
            WrongDaemon(ApiError {
                error: "this is `manylane run`: it has no copy of the kernel's routing".into(),
                help: "`manylane show routes` lists the routes".into()
            }),
            ["`manylane run`"],
            "`manylane show routes`"
        )],
        Refused: [(Refused(error), ["there is no port wna"], "choose among lan")],
        Unexpected: [(
            Unexpected { socket: socket(), source: "EOF while parsing".into() },
            ["/run/s", "EOF while parsing"],
            "compare `manylane --version`"
        )],
    });
}
