//! How many frames the daemon needs: a sum with one line for each place where frames can be.
//!
//! A region of that size does not run dry, whatever stops moving: every line is a bound that its holder
//! keeps. Where the configuration has fewer, the lines are made shorter until they fit: first the spare
//! queues go, then the transmit rings, the holds, the workers' lists and the rings between them are halved, then
//! the receive rings, and so on in turn, down to what a ring and a list have at least. So a port whose device does
//! not send cannot keep all frames, nor can packets that wait for neighbours. What is too
//! little even so shows at receive (`manylane_frame::pool`).
//!
//! A running region does not grow. So it has room for one receive queue more (`spare_queues`), of the
//! port whose queues take most, without what wraps it. Until ports can come to a running daemon, it is
//! the workers' lists that may grow into it. One is enough for both, and more has its price: a queue of
//! AF_XDP is 8192 frames with one worker, and the kernel pins their memory.

use manylane_frame::vocabulary::WorkerId;
use manylane_frame::{BATCH_MAX, HEADROOM, HOT_LIST_LENGTHS, MAGAZINE};

use manylane_io::port::tap::TapConfig;
use manylane_io::port::tee::COPIES_MAX;

use super::steering;
use crate::config::{Config, Driver, Faults, Port, Tee};

/// The frames of a daemon.
pub struct Budget {
    /// The configuration, with rings, holds and lists as long as the frames allow.
    pub config: Config,
    /// The sum, line by line.
    pub lines: Vec<Line>,
    /// Frames of the region.
    pub frames: u32,
}

/// Frames at one place, at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The place.
    pub holder: String,
    /// How the number comes about.
    pub reckoning: String,
    /// The number.
    pub frames: u64,
}

impl Budget {
    /// The sum for `config`, whose ports have their drivers and whose queues are owned by `owners`.
    pub fn new(config: &Config, owners: &[Vec<WorkerId>]) -> Budget {
        let Some(frames) = config.frames.count else {
            let lines = lines(config, owners);
            // More than a region can have is refused by it.
            let frames = total(&lines).try_into().unwrap_or(u32::MAX);
            return Budget { config: config.clone(), lines, frames };
        };
        let mut config = config.clone();
        let mut steps = 0;
        loop {
            let lines = lines(&config, owners);
            if total(&lines) <= frames.into() || steps == STEPS {
                return Budget { config, lines, frames };
            }
            shorten(&mut config, steps);
            steps += 1;
        }
    }

    /// Frames for receive queues that come later.
    pub fn spare(&self) -> u64 {
        let spare = self.lines.iter().filter(|line| line.holder == SPARE).map(|line| line.frames);
        spare.sum()
    }

    /// The longest list that each worker may have while everything else finds its place.
    pub fn hot_list_len_max(&self) -> u32 {
        let workers = self.config.workers.count() as u64;
        let lists = workers * u64::from(self.config.frames.hot_list_len);
        // Spare queues are for later: until then, lists may have their frames.
        let others = total(&self.lines) - lists - self.spare();
        let each = u64::from(self.frames).saturating_sub(others) / workers;
        let (min, max) = (*HOT_LIST_LENGTHS.start(), *HOT_LIST_LENGTHS.end());
        each.clamp(min.max(self.config.frames.hot_list_len).into(), max.into()) as u32
    }
}

fn total(lines: &[Line]) -> u64 {
    lines.iter().map(|line| line.frames).sum()
}

fn lines(config: &Config, owners: &[Vec<WorkerId>]) -> Vec<Line> {
    let workers = config.workers.count() as u64;
    let chain = config.ports.iter().map(|port| chain_frames(port, config.frames.size)).max();
    let chain = chain.unwrap_or(1);
    let mut lines = Vec::new();
    let mut spare_queue = 0;
    for (port, owners) in config.ports.iter().zip(owners) {
        let crowd = Crowd { queues: owners.len() as u64, workers, chain };
        let of_port = lines_of_port(port, crowd, config.frames.size);
        spare_queue = spare_queue.max(total(&of_port).div_ceil(owners.len().max(1) as u64));
        lines.extend(of_port);
        lines.extend(lines_of_wraps(port, crowd, config.frames.size));
    }
    lines.extend(steering::lines(config, owners, chain));
    let (batch, ports) = (BATCH_MAX as u64, config.ports.len() as u64);
    let times = if chain > 1 { format!(" of {chain} frames") } else { String::new() };
    let hold = u64::from(config.neighbour.hold_per_worker);
    let list = u64::from(config.frames.hot_list_len);
    let spare = u64::from(config.frames.spare_queues);
    lines.extend([
        Line {
            holder: "in workers' hands".into(),
            reckoning: format!("{workers} x (1 + {ports} ports) x {batch} packets{times}"),
            frames: workers * (1 + ports) * batch * chain,
        },
        Line {
            holder: "held for neighbours".into(),
            reckoning: format!("{workers} x {hold}"),
            frames: workers * hold,
        },
        Line {
            holder: "in workers' lists".into(),
            reckoning: format!("{workers} x {list}"),
            frames: workers * list,
        },
        Line {
            holder: SPARE.into(),
            reckoning: format!("{spare} x {spare_queue}"),
            frames: spare * spare_queue,
        },
    ]);
    lines.retain(|line| line.frames > 0);
    let rest = total(&lines) % MAGAZINE as u64;
    if rest > 0 {
        lines.push(Line {
            holder: "to whole magazines".into(),
            reckoning: format!("of {MAGAZINE}"),
            frames: MAGAZINE as u64 - rest,
        });
    }
    lines
}

/// How many share a port, and how many frames a packet may have that leaves by it.
#[derive(Clone, Copy)]
struct Crowd {
    queues: u64,
    workers: u64,
    chain: u64,
}

/// Frames at a port: those of its receive queues and of its transmitters.
fn lines_of_port(port: &Port, crowd: Crowd, frame_size: u32) -> Vec<Line> {
    let Crowd { queues, workers, chain } = crowd;
    let (rx_ring, tx_ring) = (u64::from(port.rx_ring), u64::from(port.tx_ring));
    let name = &port.name;
    // A packet socket or a TAP has taken what it sends when the call returns.
    let landing = |packets: u32| {
        let packet = u64::from(TapConfig::default().frames_posted(frame_size)); // For one.
        let each = if packets == 1 { "a packet".into() } else { format!("{packets} packets") };
        Line {
            holder: format!("{name} to receive"),
            reckoning: format!("{queues} x {each} of {packet}"),
            frames: queues * u64::from(packets) * packet,
        }
    };
    match port.driver {
        Driver::AfPacket(ref af_packet) => vec![landing(af_packet.packets)],
        Driver::Tap(_) => vec![landing(1)],
        Driver::Auto(_) => unreachable!("`choose` has left none"),
        Driver::AfXdp(_) => vec![
            Line {
                holder: format!("{name} to receive"),
                // Posted by us and not yet taken by the device; received and not yet read by us.
                reckoning: format!("{queues} x ({rx_ring} posted + {rx_ring} received)"),
                frames: queues * 2 * rx_ring,
            },
            Line {
                holder: format!("{name} to transmit"),
                // Queued by us and not yet taken by the kernel; taken and not yet reclaimed by us.
                reckoning: format!("{workers} x {tx_ring} queued + {queues} x {tx_ring} sent"),
                frames: workers * tx_ring + queues * tx_ring,
            },
        ],
        // A file is read into memory of its own.
        Driver::Pcap(_) => Vec::new(),
        // A generator and a sink keep none.
        Driver::Memory(ref memory) if memory.peer.is_none() => Vec::new(),
        // On a wire from each worker to each queue: packets, and as many frames behind their first ones.
        Driver::Memory(_) => {
            let (packets, frames) = match chain {
                1 => (format!("{rx_ring}"), rx_ring),
                _ => (format!("({rx_ring} packets + {rx_ring} parts)"), 2 * rx_ring),
            };
            vec![Line {
                holder: format!("{name} on its wires"),
                reckoning: format!("{workers} x {queues} x {packets}"),
                frames: workers * queues * frames,
            }]
        }
    }
}

/// What wraps of a port hold: late packets, and what a call makes of a batch; copies in hand.
fn lines_of_wraps(port: &Port, crowd: Crowd, frame_size: u32) -> Vec<Line> {
    let Crowd { queues, workers, chain } = crowd;
    let (name, batch) = (&port.name, BATCH_MAX as u64);
    let mut lines = Vec::new();
    if let Some(faults) = &port.faults.receive {
        let (held, chain) = (u64::from(faults.frames_max), chain_frames(port, frame_size));
        lines.push(Line {
            holder: format!("{name} late to receive"),
            reckoning: format!("{queues} x ({held} + 3 x {batch} packets of {chain})"),
            frames: queues * (held + 3 * batch * chain),
        });
    }
    if let Some(faults) = &port.faults.transmit {
        let held = u64::from(faults.frames_max);
        lines.push(Line {
            holder: format!("{name} late to transmit"),
            reckoning: format!("{workers} x ({held} + 2 x {batch} packets of {chain})"),
            frames: workers * (held + 2 * batch * chain),
        });
    }
    if port.tee.as_ref().is_some_and(Tee::transmits) {
        let copies = COPIES_MAX as u64;
        lines.push(Line {
            holder: format!("{name} copies"),
            reckoning: format!("{workers} x ({copies} + a packet of {chain})"),
            frames: workers * (copies + chain),
        });
    }
    lines
}

/// Most frames of a packet that a port receives.
fn chain_frames(port: &Port, frame_size: u32) -> u64 {
    if let Driver::AfPacket(_) | Driver::Tap(_) | Driver::Pcap(_) = port.driver {
        return TapConfig::default().frames_posted(frame_size).into(); // One packet's of 64 KiB.
    }
    let bytes = u64::from(port.mtu.unwrap_or(1500)) + LINK_BYTES;
    bytes.div_ceil(u64::from(frame_size - u32::from(HEADROOM)))
}

/// Makes what is long half as long: step by step, transmit rings and receive rings in turn.
fn shorten(config: &mut Config, step: u32) {
    let ring = |len: &mut u32| *len = (*len / 2).max(RING_MIN).min(*len);
    if step == 0 {
        config.frames.spare_queues = 0;
    } else if step % 2 == 1 {
        config.ports.iter_mut().for_each(|port| ring(&mut port.tx_ring));
        ring(&mut config.neighbour.hold_per_worker);
        let hold = &mut config.neighbour;
        hold.hold_per_entry = hold.hold_per_entry.min(hold.hold_per_worker);
        let list = &mut config.frames.hot_list_len;
        *list = (*list / 2).max(*HOT_LIST_LENGTHS.start());
        ring(&mut config.steering.netdev_max_backlog);
    } else {
        for port in &mut config.ports {
            ring(&mut port.rx_ring);
            if let Driver::AfPacket(af_packet) = &mut port.driver {
                af_packet.packets = (af_packet.packets / 2).max(1);
            }
            let Faults { receive, transmit } = &mut port.faults;
            for faults in [receive, transmit].into_iter().flatten() {
                ring(&mut faults.frames_max);
            }
        }
    }
}

const SPARE: &str = "spare queues";

/// Ethernet header and one VLAN tag.
const LINK_BYTES: u64 = 18;

/// Two batches: AF_XDP takes no shorter receive ring.
const RING_MIN: u32 = 2 * BATCH_MAX as u32;

/// After these even the longest hold of the configuration is as short as it gets: 65,536 >> 10.
const STEPS: u32 = 1 + 2 * 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    #[test]
    fn every_place_has_its_line_and_they_add_up() {
        let budget = budget("", 2);
        let shown: Vec<_> =
            budget.lines.iter().map(|line| format!("{} {}", line.holder, line.frames)).collect();
        assert_eq!(
            shown,
            [
                "lan to receive 8192",
                "lan to transmit 8192",
                "left on its wires 4096",
                "right on its wires 4096",
                "between workers 1024",
                "in workers' hands 512",
                "held for neighbours 2048",
                "in workers' lists 2048",
                "spare queues 8192",
            ]
        );
        assert_eq!(u64::from(budget.frames), total(&budget.lines));
        assert_eq!(budget.lines[1].reckoning, "2 x 2048 queued + 2 x 2048 sent");
        assert!(budget.frames.is_multiple_of(MAGAZINE as u32));
    }

    #[test]
    fn with_fewer_frames_the_spare_queues_go_first_and_then_transmit_rings_are_halved() {
        let shape = |budget: &Budget| {
            let Config { frames, neighbour, ports, .. } = &budget.config;
            (
                frames.spare_queues,
                (ports[0].tx_ring, neighbour.hold_per_worker, frames.hot_list_len),
                ports[0].rx_ring,
            )
        };
        let of = |count: u32| shape(&budget(&format!("[frames]\ncount = {count}\n"), 2));
        assert_eq!(of(100_000), (1, (2048, 1024, 1024), 2048));
        assert_eq!(of(31_000), (0, (2048, 1024, 1024), 2048));
        assert_eq!(of(25_000), (0, (1024, 512, 512), 2048));
        assert_eq!(of(20_000), (0, (1024, 512, 512), 1024));
        assert_eq!(of(1024), (0, (128, 128, 128), 128));
    }

    /// A capture may contain packets of 64 KiB, which then lie on any wire; what wraps a port has its lines.
    #[test]
    fn chains_faults_and_copies_are_in_the_sum() {
        let text = "[workers]\ncores = [0, 1]\n\
                    [[port]]\nname = \"file\"\ndriver = \"pcap\"\nread = \"a.pcap\"\n\
                    addresses = [\"10.1.0.254/24\"]\n\
                    [port.fault.receive]\nframes_max = 512\n\
                    [[port]]\nname = \"left\"\ndriver = \"memory\"\npeer = \"right\"\nrx_ring = 64\n\
                    addresses = [\"10.2.0.254/24\"]\n[port.tee]\nwrite = \"b.pcapng\"\n\
                    [port.fault.transmit]\n\
                    [[port]]\nname = \"right\"\ndriver = \"memory\"\naddresses = [\"10.3.0.254/24\"]\n\
                    [port.tee]\nwrite = \"c.pcapng\"\ndirection = \"receive\"\n";
        let config = parse(text);
        let owners = vec![WorkerId(0)];
        let budget = Budget::new(&config, &[owners.clone(), owners.clone(), owners]);
        let shown = budget
            .lines
            .iter()
            .map(|Line { holder, reckoning, frames }| format!("{holder}: {reckoning} = {frames}"));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "file late to receive: 1 x (512 + 3 x 64 packets of 33) = 6848",
                "left on its wires: 2 x 1 x (64 packets + 64 parts) = 256",
                "left late to transmit: 2 x (1024 + 2 x 64 packets of 33) = 10496",
                "left copies: 2 x (128 + a packet of 33) = 322",
                "right on its wires: 2 x 1 x (2048 packets + 2048 parts) = 8192",
                "between workers: 1 x 1 x (1024 packets + 1024 parts + 64 x 32) = 4096",
                "in workers' hands: 2 x (1 + 3 ports) x 64 packets of 33 frames = 16896",
                "held for neighbours: 2 x 1024 = 2048",
                "in workers' lists: 2 x 1024 = 2048",
                "spare queues: 1 x 8192 = 8192",
                "to whole magazines: of 64 = 62",
            ]
        );
    }

    /// Whatever the count, if it can be kept at all: the lines are within it.
    #[test]
    fn the_lines_fit_the_frames() {
        for count in (3000..60_000).step_by(997) {
            let budget = budget(&format!("[frames]\ncount = {count}\n"), 2);
            assert!(total(&budget.lines) <= count, "{count}: {:?}", budget.lines);
            assert_eq!(u64::from(budget.frames), count);
        }
    }

    #[test]
    fn lists_may_grow_into_what_is_spare() {
        assert_eq!(budget("", 2).hot_list_len_max(), 1024 + 4096);
        assert_eq!(budget("[frames]\nspare_queues = 0\n", 2).hot_list_len_max(), 1024);
        assert_eq!(budget("[frames]\nspare_queues = 2\n", 2).hot_list_len_max(), 8192);
        // 30,208 for everything but spare queues; 2,048 of the 30,208 are lists.
        let budget_of = |count| budget(&format!("[frames]\ncount = {count}\n"), 2);
        assert_eq!(budget_of(30_208).hot_list_len_max(), 1024);
        assert_eq!(budget_of(30_208 + 512).hot_list_len_max(), 1024 + 256);
        assert_eq!(budget_of(1024).hot_list_len_max(), 128, "no list is shorter");
    }

    fn budget(frames: &str, queues: u16) -> Budget {
        let text = format!(
            "{frames}[workers]\ncores = [0, 1]\n\
             [[port]]\nname = \"lan\"\ndriver = \"af_xdp\"\ninterface = \"eth0\"\n\
             addresses = [\"10.1.0.254/24\"]\n\
             [[port]]\nname = \"left\"\ndriver = \"memory\"\npeer = \"right\"\n\
             addresses = [\"10.2.0.254/24\"]\n\
             [[port]]\nname = \"right\"\ndriver = \"memory\"\naddresses = [\"10.3.0.254/24\"]\n"
        );
        let config = parse(&text);
        let owners = |queues| (0..queues).map(WorkerId).collect::<Vec<_>>();
        Budget::new(&config, &[owners(queues), owners(1), owners(1)])
    }

    fn parse(text: &str) -> Config {
        let environment = Environment {
            cores: vec![0, 1],
            socket: "/tmp/manylane.sock".into(),
            interfaces: &|_| Ok(()),
        };
        let config = Config::parse(text, "router.toml", &environment);
        config.unwrap_or_else(|error| panic!("{error}"))
    }
}
