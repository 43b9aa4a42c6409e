//! A daemon that hangs: no command waits for it without end, and each says what it waited for. No privilege is needed.

mod router;

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use manylane_api::Client;
use manylane_io::rights::pass_rights;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use router::{Router, command};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

#[test]
fn no_command_waits_without_end_for_a_daemon_that_hangs() {
    let router = Router::start("hangs");
    let socket = router.socket();
    let answer: manylane_api::Daemon =
        Client::new(socket.as_ref()).ask("/v1/daemon").expect("it answers");
    let pid = Pid::from_raw(answer.pid.try_into().expect("a pid is an i32"));
    // This one has its answer, and waits for more.
    let begun = command(&["trace", "-i", "quiet", "--socket", &socket]);
    let mut traces = piped(begun);
    let mut said = std::io::BufReader::new(traces.stderr.take().expect("it is piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).expect("what it says is text");
    assert!(line.starts_with("looking for packets"), "{line}");

    kill(pid, Signal::SIGSTOP).expect("it is ours");
    let commands: Vec<(&[&str], Child)> = [
        &["show", "ports"][..],
        &["show", "ports", "--json"],
        &["config", "show"],
        &["config", "set", "workers", "1"],
        &["neighbour", "delete", "west", "10.1.0.9"],
        &["port", "remove", "quiet"],
        &["trace"],
        &["capture", "-c", "1"],
    ]
    .into_iter()
    .map(|words| (words, piped(command(&[words, &["--socket", &socket]].concat()))))
    .collect();
    for (words, child) in commands {
        let output = child.wait_with_output().expect("it is ours");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(
            said.contains("has not answered for 10 s: it is still starting, or hangs"),
            "{words:?}: {said}"
        );
    }
    line.clear();
    std::io::BufRead::read_line(&mut said, &mut line).expect("what it says is text");
    assert!(line.contains("has not answered for 10 s: it is still starting, or hangs"), "{line}");
    assert_eq!(traces.wait().expect("it is ours").code(), Some(1));
    kill(pid, Signal::SIGCONT).expect("it is ours");
    router.stop();
}

/// A client passed a socket whose close waits for its peer: the API answered no other client for 31 s. Where the kernel can
/// (6.16), the message does not even arrive.
#[test]
fn the_api_takes_no_descriptor_whose_close_may_hang_it() {
    let router = Router::start("rights");
    let client = UnixStream::connect(router.socket()).expect("it listens");
    if pass_rights(&client, true).is_err() {
        println!("SKIPPED: this kernel has no SO_PASSRIGHTS");
        return router.stop();
    }
    let null = File::open("/dev/null").expect("there is one");
    let rights = [null.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
    let request = IoSlice::new(b"GET /v1/ports HTTP/1.1\r\n");
    let sent = sendmsg(&client, &[request], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Err(Errno::PERM));
    router.stop();
}

fn piped(mut command: std::process::Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program is there")
}
