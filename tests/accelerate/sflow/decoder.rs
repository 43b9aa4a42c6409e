//! A collector of sFlow that reads datagrams word by word, and knows nothing of the encoder.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use manylane_io::namespace::Host;
use nix::sys::socket::{setsockopt, sockopt};

/// A packet sample.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    pub rate: u32,
    pub pool: u32,
    pub drops: u32,
    pub input: u32,
    pub output: u32,
    pub frame_len: u32,
    pub header: Vec<u8>,
    pub switch: Option<[u32; 4]>,
    pub router: Option<(IpAddr, u32, u32)>,
    pub nat: Option<[IpAddr; 2]>,
    pub nat_ports: Option<[u32; 2]>,
}

/// All that a collector has received.
pub struct Collector {
    received: Receiver<Vec<u8>>,
    /// The datagrams as they are.
    pub datagrams: Vec<Vec<u8>>,
    pub agents: Vec<IpAddr>,
    pub flows: Vec<Flow>,
    /// Those that were forgotten.
    pub total: u64,
    /// Interface, bytes and packets received, packets sent.
    pub counters: Vec<(u32, u64, u32, u32)>,
    /// Interface, reason, unreported.
    pub discarded: Vec<(u32, u32, u32)>,
}

struct Reader<'d>(&'d [u8]);

impl Collector {
    /// The samples of UDP packets to an address.
    pub fn udp_to(&self, to: IpAddr) -> Vec<Flow> {
        self.flows.iter().filter(|flow| flow.udp_to() == Some(to)).cloned().collect()
    }

    pub fn bind(host: &Host, address: SocketAddr) -> Collector {
        let socket = host.run(move || UdpSocket::bind(address)).expect("the address is there");
        let (sender, received) = channel();
        // By default a socket holds a hundred datagrams.
        setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).expect("root may");
        // The thread ends with the process.
        thread::spawn(move || {
            let mut datagram = [0; 9000];
            while let Ok(len) = socket.recv(&mut datagram) {
                if sender.send(datagram[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (agents, flows, counters, discarded) = Default::default();
        Collector { received, datagrams: Vec::new(), total: 0, agents, flows, counters, discarded }
    }

    /// Forgets the samples so far.
    pub fn forget(&mut self) {
        self.total += self.flows.len() as u64;
        self.flows.clear();
    }

    /// Reads what has arrived.
    pub fn read(&mut self) {
        while let Ok(datagram) = self.received.try_recv() {
            self.datagram(&datagram);
            self.datagrams.push(datagram);
        }
    }

    fn datagram(&mut self, bytes: &[u8]) {
        let mut reader = Reader(bytes);
        assert_eq!(reader.word(), 5, "the version");
        let agent = reader.address();
        assert_eq!(reader.word(), 0, "the sub-agent");
        assert_eq!(reader.word() as usize, self.datagrams.len() + 1, "no datagram is missing");
        reader.word();
        let samples = reader.word();
        if !self.agents.contains(&agent) {
            self.agents.push(agent);
        }
        for _ in 0..samples {
            let (format, mut sample) = reader.part();
            match format {
                1 => self.flows.push(flow(&mut sample)),
                2 => self.counters.push(counters(&mut sample)),
                5 => {
                    let [_, class, input, drops, again, output, reason] = sample.words();
                    assert_eq!((class, again, output), (0, input, 0));
                    self.discarded.push((input, reason, drops));
                    assert_eq!(sample.word(), 1);
                    assert_eq!(sample.part().0, 1, "the header");
                }
                format => panic!("format {format}"),
            }
            assert!(sample.0.is_empty(), "format {format}: {} bytes more", sample.0.len());
        }
        assert!(reader.0.is_empty());
    }
}

fn flow(sample: &mut Reader) -> Flow {
    let [_, source, rate, pool, drops, input, output, records] = sample.words();
    assert_eq!(source, input, "the source is the interface");
    let mut flow = Flow { rate, pool, drops, input, output, ..Flow::default() };
    for _ in 0..records {
        let (format, mut record) = sample.part();
        match format {
            1 => {
                let [protocol, frame_len, stripped, len] = record.words();
                assert_eq!((protocol, stripped), (1, 4));
                (flow.frame_len, flow.header) = (frame_len, record.0[..len as usize].to_vec());
                record.0 = &[];
            }
            1001 => flow.switch = Some(record.words()),
            1002 => flow.router = Some((record.address(), record.word(), record.word())),
            1007 => flow.nat = Some([record.address(), record.address()]),
            1020 => flow.nat_ports = Some(record.words()),
            format => panic!("record {format}"),
        }
        assert!(record.0.is_empty(), "record {format}");
    }
    flow
}

fn counters(sample: &mut Reader) -> (u32, u64, u32, u32) {
    let [_, _, records, format, len] = sample.words();
    assert_eq!((records, format, len), (1, 1, 88));
    let words: [u32; 22] = sample.words();
    let bytes = u64::from(words[6]) << 32 | u64::from(words[7]);
    (words[0], bytes, words[8], words[16])
}

impl Flow {
    /// The destination of a UDP packet.
    pub fn udp_to(&self) -> Option<IpAddr> {
        let header = &self.header;
        match (header.get(12..14)?, header.get(23)?, header.get(20)?) {
            ([8, 0], 17, _) => Some(Ipv4Addr::from(*header[30..].first_chunk::<4>()?).into()),
            ([0x86, 0xdd], _, 17) => {
                Some(Ipv6Addr::from(*header[38..].first_chunk::<16>()?).into())
            }
            _ => None,
        }
    }
}

impl<'d> Reader<'d> {
    fn take(&mut self, len: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn words<const N: usize>(&mut self) -> [u32; N] {
        [(); N].map(|()| self.word())
    }

    fn address(&mut self) -> IpAddr {
        match self.word() {
            1 => Ipv4Addr::from(self.word()).into(),
            2 => Ipv6Addr::from(*self.take(16).first_chunk::<16>().expect("they are")).into(),
            kind => panic!("an address of type {kind}"),
        }
    }

    fn part(&mut self) -> (u32, Reader<'d>) {
        let [format, len] = self.words();
        (format, Reader(self.take(len as usize)))
    }
}

/// Whether a sum of samples is within five standard deviations of what it estimates: the number of samples is
/// binomial.
pub fn assert_near(sum: u64, packets: u64, rate: u64, what: &str) {
    let deviation = (packets as f64 * (rate as f64 - 1.0)).sqrt();
    println!("{what}: {sum} of {packets}, deviation {deviation:.0}");
    assert!(sum.abs_diff(packets) as f64 <= 5.0 * deviation, "{what}: {sum} of {packets}");
}
