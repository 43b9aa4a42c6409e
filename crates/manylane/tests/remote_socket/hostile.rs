use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg,
    sendmsg,
};

use super::Rig;

/// A client closed its sockets and kept their memfds: 1448 MiB of the daemon's memory where 64 MiB were allowed, and 0
/// were reported. Now a closed ring has no pages, whoever has its memfd, when the daemon says that its bytes are free.
#[test]
fn a_client_that_keeps_the_memfd_of_a_closed_socket_keeps_no_memory() {
    let rig = Rig::start("memfd", 2000, "[sockets]\nmemory_max = 33554432\n");
    // Small rings are freed by the thread that serves, large ones by another.
    let small = br#"{"request":"open","protocol":3,"block_size":4096,"blocks":8,"retire_ns":1000}"#;
    let large =
        br#"{"request":"open","protocol":3,"block_size":1048576,"blocks":12,"retire_ns":1000}"#;
    let mut kept = Vec::new();
    for open in [&small[..], large, large, small] {
        let connection = rig.connect();
        say(&connection, open);
        let (answer, [ring, _bell]) = answer_with_descriptors(&connection);
        assert!(answer.contains("opened"), "{answer}");
        let ring = File::from(ring);
        assert_eq!(held(&ring), rig.daemon.sockets().memory(), "all that is open");
        drop(connection);
        rig.await_nothing();
        kept.push(ring);
    }
    assert_eq!(kept.iter().map(held).sum::<u64>(), 0, "what the daemon counts as free is free");
    rig.stop();
}

/// Bytes that a file has in memory.
fn held(file: &File) -> u64 {
    file.metadata().expect("it is open").blocks() * 512
}

fn say(connection: &OwnedFd, bytes: &[u8]) {
    let mut none = SendAncillaryBuffer::default();
    let sent = sendmsg(connection, &[IoSlice::new(bytes)], &mut none, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

/// The answer to `open`, and what it brings.
fn answer_with_descriptors(connection: &OwnedFd) -> (String, [OwnedFd; 2]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut answer = vec![0; 4096];
    let mut parts = [IoSliceMut::new(&mut answer)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(connection, &mut parts, &mut control, flags).expect("it answers");
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let rights: Vec<OwnedFd> = rights.flatten().collect();
    answer.truncate(received.bytes);
    let answer = String::from_utf8(answer).expect("it is text");
    let rights = rights.try_into().unwrap_or_else(|_| panic!("no two descriptors: {answer}"));
    (answer, rights)
}
