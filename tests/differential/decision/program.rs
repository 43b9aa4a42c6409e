//! The program in the kernel, tried on a packet; and how it differs from its twin.

use std::path::PathBuf;
use std::{env, fmt, fs};

use manylane_accelerate::programs::{
    Counters, Driver, IngressProgram, NEXT, REDIRECT, Sizes, TryOptions,
};
use manylane_io::bpf::BpfError;
use manylane_io::interface::Interface;
use manylane_io::namespace::Host;
use manylane_io::netlink::{LinkEnd, Netlink};
use manylane_net::transit::layout::{self, counter};
use manylane_net::transit::{Memory, Transit, Verdict, flows, priority_ipv4};
use manylane_net::wire::ethernet::ether_type;
use manylane_sync::rcu::Guard;

use super::packets::Packet;
use super::world::{DEVICES, PORTS, sizes};

/// Where the program is tried: a namespace with the interfaces that packets name as their ingress.
pub struct Lab {
    pub host: Host,
    /// Those of the ports.
    pub interfaces: Vec<u32>,
    /// One that is no port.
    pub stranger: u32,
}

impl Lab {
    /// Makes the lab; an error says why that failed.
    pub fn new() -> Result<Lab, String> {
        let host = Host::start("decision").map_err(|error| error.to_string())?;
        let made = host.run(|| -> Result<Vec<u32>, String> {
            let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
            let mut indices = Vec::new();
            for pair in 0..=DEVICES / 2 {
                let names = ["a", "b"].map(|end| format!("{end}{pair}"));
                let [one, other] = names.each_ref().map(|name| LinkEnd::new(name));
                let made = netlink.create_veth(&one, &other, None);
                made.map_err(|error| error.to_string())?;
                for name in &names {
                    let read = Interface::read(name).map_err(|error| error.to_string())?;
                    indices.push(read.index);
                }
            }
            Ok(indices)
        });
        let mut interfaces = made?;
        let stranger = interfaces.pop().expect("there are more than ports");
        interfaces.truncate(DEVICES.into());
        Ok(Lab { host, interfaces, stranger })
    }
}

/// The program, and its counts at the last look.
pub struct Program {
    fast: IngressProgram,
    counters: Counters,
    counted: Vec<[u64; layout::COUNTERS]>,
    /// Whether the queueing priority says which tag the packet had.
    by_priority: bool,
}

/// What the program or its twin makes of a packet.
#[derive(Clone, PartialEq, Eq)]
pub struct Made {
    pub verdict: Option<Verdict>,
    /// The port in whose row it was counted.
    pub entry: u16,
    /// The port that it left by.
    pub exit: Option<u16>,
    pub priority: u32,
    pub frame: Vec<u8>,
}

/// What both made of a packet, where that is not the same.
pub struct Difference {
    pub packet: Packet,
    pub program: Made,
    pub twin: Made,
}

impl Program {
    /// Loads the program for ports, and its tables. For tags, from the object that reads them from the
    /// priority.
    pub fn load(by_priority: bool) -> Result<(Program, Memory), BpfError> {
        let sizes = Sizes {
            groups4: sizes().ipv4.groups,
            ranges4: sizes().ipv4.ranges,
            index6: sizes().ipv6.index,
            leaves6: sizes().ipv6.leaves,
            flows: flows::words(sizes().flows),
        };
        let name = if by_priority { "trial.bpf.o" } else { "ingress.bpf.o" };
        let (fast, tables) = match (other_object(name), by_priority) {
            (Some(object), _) => IngressProgram::load_object(&object, &sizes)?,
            (None, true) => IngressProgram::load_object(TRIAL, &sizes)?,
            (None, false) => IngressProgram::load(&sizes)?,
        };
        let memory = Memory {
            own4: tables.own4,
            direct4: tables.direct4,
            chunks4: tables.chunks4,
            blocks4: tables.blocks4,
            groups4: tables.groups4,
            ranges4: tables.ranges4,
            direct6: tables.direct6,
            index6: tables.index6,
            leaves6: tables.leaves6,
            next_hops: tables.next_hops,
            buckets: tables.buckets,
            record_of: tables.record_of,
            records: tables.records,
            ports: tables.ports,
            port_of: tables.port_of,
            vlan_port: tables.vlan_port,
            control: tables.control,
            rules: tables.rules,
            roots: tables.roots,
            further: tables.further,
            flow_index: tables.flow_index,
            flow_entries: tables.flow_entries,
            flow_addresses: tables.flow_addresses,
        };
        let counters = fast.counters();
        let counted = (0..PORTS).map(|port| counters.port(port)).collect();
        Ok((Program { fast, counters, counted, by_priority }, memory))
    }

    /// The programs of the driver tier, over the same tables.
    pub fn driver(&self) -> Driver {
        let object = other_object("driver.bpf.o");
        let driver = match object {
            Some(object) => self.fast.driver_object(&object),
            None => self.fast.driver(),
        };
        driver.expect("it loads where the other did")
    }

    /// The wait for whatever runs the program.
    pub fn grace(&self) -> manylane_accelerate::programs::Grace {
        self.fast.grace()
    }

    /// What it makes of a packet; `None` when the kernel does not try what is so short.
    pub fn make(&mut self, packet: &Packet) -> Option<Made> {
        let priority = self.priority(packet);
        let options = TryOptions {
            ifindex: packet.arrival.ifindex,
            gso_size: packet.arrival.gso_size.into(),
            priority,
            is_summed: packet.is_summed,
            ..TryOptions::default()
        };
        let (action, frame, priority) = match self.fast.try_packet(&packet.frame, &options) {
            Ok(tried) => tried,
            Err(_) if packet.frame.len() < SHORTEST => return None,
            Err(error) => panic!("{error}: {packet:?}"),
        };
        let mut made = Made { verdict: None, entry: 0, exit: None, priority, frame };
        let (mut rows, mut bytes) = (0, [0; 2]);
        for port in 0..PORTS {
            let now = self.counters.port(port);
            let before = std::mem::replace(&mut self.counted[usize::from(port)], now);
            if now == before {
                continue;
            }
            let grown = |place: usize| now[place] - before[place];
            for verdict in Verdict::ALL.iter().filter(|verdict| grown(verdict.number()) > 0) {
                (made.verdict, made.entry) = (Some(*verdict), port);
                rows += grown(verdict.number());
            }
            if grown(counter::EGRESS_PACKETS) > 0 {
                made.exit = Some(port);
            }
            bytes[0] += grown(counter::INGRESS_BYTES);
            bytes[1] += grown(counter::EGRESS_BYTES);
        }
        assert_eq!(rows, 1, "a packet is counted once");
        let is_forwarded = made.verdict == Some(Verdict::Forwarded);
        let len = if is_forwarded { packet.frame.len() as u64 } else { 0 };
        assert_eq!((bytes, action), ([len; 2], if is_forwarded { REDIRECT } else { NEXT }));
        Some(made)
    }

    /// What its twin makes of it, as it would be counted.
    pub fn twin(&self, twin: &Transit, guard: Guard<'_>, packet: &Packet, entry: u16) -> Made {
        let mut frame = packet.frame.clone();
        let (verdict, exit) = twin.decide(guard, &mut frame, &packet.arrival);
        let is_ipv4 = frame.get(12..14) == Some(&ether_type::IPV4.to_be_bytes()[..]);
        let priority = match verdict {
            Verdict::Forwarded if is_ipv4 => priority_ipv4(frame[15]),
            _ => self.priority(packet),
        };
        let exit = exit.map(|interface| (interface - 1000) as u16);
        Made { verdict: Some(verdict), entry, exit, priority, frame }
    }

    /// Tries a packet in both ways. The packet counts for port `entry`, if that is certain.
    pub fn compare(
        &mut self,
        twin: &Transit,
        guard: Guard<'_>,
        packet: &Packet,
        entry: Option<u16>,
    ) -> Result<Option<Verdict>, Box<Difference>> {
        let Some(program) = self.make(packet) else { return Ok(None) };
        let twin = self.twin(twin, guard, packet, entry.unwrap_or(program.entry));
        match program == twin {
            true => Ok(program.verdict),
            false => Err(Box::new(Difference { packet: packet.clone(), program, twin })),
        }
    }

    fn priority(&self, packet: &Packet) -> u32 {
        match packet.arrival.tag {
            _ if !self.by_priority => packet.priority,
            None => packet.priority & 0xff,
            Some((ether_type, tag)) => {
                let is_service = ether_type == ether_type::SERVICE_VLAN;
                1 << 31 | u32::from(is_service) << 30 | u32::from(tag)
            }
        }
    }
}

/// The object that `MANYLANE_BPF_OBJECT` names, if it is of that program: another compiler's, or a mutant.
fn other_object(name: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(env::var_os("MANYLANE_BPF_OBJECT")?);
    path.ends_with(name).then(|| fs::read(&path).expect("MANYLANE_BPF_OBJECT can be read"))
}

/// The kernel tries no shorter packet (`bpf_prog_test_run_skb`): its headers would not be there.
const SHORTEST: usize = 54;

/// The program that reads tags from the priority: a test run has no other way to say them.
static TRIAL: &[u8] =
    include_bytes!("../../../crates/manylane-accelerate/src/programs/trial.bpf.o");

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { packet, program, twin } = self;
        let hex = |bytes: &[u8]| -> String {
            let shown: String = bytes.iter().take(100).map(|byte| format!("{byte:02x}")).collect();
            if bytes.len() > 100 { format!("{shown}... ({} bytes)", bytes.len()) } else { shown }
        };
        writeln!(f, "{}: {:?}", hex(&packet.frame), packet.arrival)?;
        for (who, Made { verdict, entry, exit, priority, frame }) in
            [("program", program), ("twin", twin)]
        {
            let verdict = verdict.map_or("nothing", Verdict::name);
            write!(f, "  {who}: {verdict}, in row {entry}, out by {exit:?}, priority {priority}")?;
            writeln!(f, ", {}", hex(frame))?;
        }
        Ok(())
    }
}
