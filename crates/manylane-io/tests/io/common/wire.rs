//! Two ports as a wire: a packet received by one is transmitted by the other, with its marks; and TCP over it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use manylane_frame::{Batch, Pool};
use manylane_io::poll::poll;
use manylane_io::port::{Receiver, Transmitter, Wait};

/// What a wire has seen in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Packets.
    pub packets: usize,
    /// Those that stood for several.
    pub segmented: usize,
    /// Bytes of the largest.
    pub largest: usize,
}

/// A wire's end.
pub struct End {
    pub receivers: Vec<Receiver>,
    pub transmitter: Transmitter,
}

/// Carries packets between two ends until `done`; returns what went from the first to the second, and
/// back.
pub fn carry(ends: &mut [End; 2], pool: &mut Pool, done: impl Fn() -> bool) -> [Seen; 2] {
    let mut seen = [Seen::default(); 2];
    while !done() {
        let [one, other] = ends;
        let moved = pass(&mut one.receivers, &mut other.transmitter, pool, &mut seen[0])
            + pass(&mut other.receivers, &mut one.transmitter, pool, &mut seen[1]);
        if moved == 0 {
            let receivers = one.receivers.iter().chain(&other.receivers);
            let fds: Vec<_> = receivers
                .filter_map(|receiver| match receiver.wait() {
                    Wait::Readable(fd) => Some(fd),
                    _ => None,
                })
                .collect();
            poll(&fds, Some(Duration::from_millis(10))).expect("the ports are open");
        }
    }
    seen
}

fn pass(
    receivers: &mut [Receiver],
    transmitter: &mut Transmitter,
    pool: &mut Pool,
    seen: &mut Seen,
) -> usize {
    let mut moved = 0;
    for receiver in receivers {
        let mut batch = Batch::new();
        receiver.receive(pool, &mut batch, 0);
        for frame in batch.iter() {
            let meta = pool.region().meta(frame);
            seen.packets += 1;
            seen.segmented += usize::from(meta.segments.any());
            seen.largest = seen.largest.max(meta.packet_len());
        }
        moved += batch.len();
        while !batch.is_empty() {
            transmitter.transmit(pool, &mut batch, |_| ());
            transmitter.flush();
        }
    }
    moved
}

/// Starts sending `bytes` bytes of a pattern to a server, which checks every one and says how many came.
pub fn tcp(
    server: TcpListener,
    connect: impl FnOnce() -> TcpStream + Send + 'static,
    bytes: usize,
) -> thread::JoinHandle<()> {
    let serve = thread::spawn(move || {
        let (mut stream, _) = server.accept().expect("a client comes");
        let (mut seen, mut buffer) = (0, vec![0; 1 << 16]);
        loop {
            let count = stream.read(&mut buffer).expect("the connection holds");
            if count == 0 {
                break;
            }
            for &byte in &buffer[..count] {
                assert_eq!(byte, pattern(seen), "byte {seen}");
                seen += 1;
            }
        }
        stream.write_all(&seen.to_le_bytes()).expect("the connection holds");
    });
    thread::spawn(move || {
        let mut stream = connect();
        let data: Vec<u8> = (0..bytes).map(pattern).collect();
        stream.write_all(&data).expect("the connection holds");
        stream.shutdown(Shutdown::Write).expect("it is connected");
        let mut count = [0; 8];
        stream.read_exact(&mut count).expect("the server answers");
        assert_eq!(usize::from_le_bytes(count), bytes);
        serve.join().expect("the server has checked every byte");
    })
}

/// No two segments are alike, wherever they are cut.
fn pattern(place: usize) -> u8 {
    (place % 251 + place / 251 % 241) as u8
}
