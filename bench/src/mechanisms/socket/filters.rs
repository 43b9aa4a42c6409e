//! What a filter costs for each frame that it does not let pass: by itself, over frames in memory.
//!
//! The frames are of TCP and UDP, in an order without a pattern, and none matches. The filters are tcpdump's for Ethernet, as
//! libpcap 1.10 compiles them. A floor is the same question as a function of Rust: compiled, with no interpreter and
//! nothing to look up.

use manylane_lab::packet::{SENDER, emit_udp, router_mac};
use manylane_net::filter::{Chosen, Columns, Instruction, Program};

use crate::prelude::*;

/// Measures each filter, a batch at once and one packet after the other, and its floor.
pub fn measure(bench: &mut Bench) -> Result {
    let frames = frames();
    let batches: Vec<Vec<&[u8]>> = frames
        .chunks(BATCH_MAX)
        .map(|batch| batch.iter().map(|frame| &frame[..]).collect())
        .collect();
    for Filter { name, instructions, floor } in FILTERS {
        let instruction = |&(code, jt, jf, k): &_| Instruction { code, jt, jf, k };
        let program = Program::new(instructions.iter().map(instruction).collect())?;
        each(bench, &format!("filter_{name}_floor_ns"), &batches, |batch| {
            batch.iter().filter(|frame| floor(black_box(frame))).count()
        })?;
        each(bench, &format!("filter_{name}_alone_ns"), &batches, |batch| {
            batch.iter().filter(|frame| program.run(frame) != 0).count()
        })?;
        let columns = Mutex::new(Columns::default());
        each(bench, &format!("filter_{name}_ns"), &batches, |batch| {
            let all = Chosen::first(batch.len());
            program.run_together(batch, all, &mut lock(&columns)).count()
        })?;
    }
    Ok(())
}

/// Nanoseconds a frame of `decide`, which says how many frames of a batch match.
fn each(
    bench: &mut Bench,
    name: &str,
    batches: &[Vec<&[u8]>],
    decide: impl Fn(&[&[u8]]) -> usize + Sync,
) -> Result {
    bench.time(name, 1, |_, lap| {
        let mut batches = batches.iter().cycle();
        lap.run_of(BATCH_MAX as u64, || {
            let batch = batches.next().expect("they go around");
            assert_eq!(decide(black_box(batch)), 0, "no frame matches");
        })
    })?;
    Ok(())
}

/// Whole batches, more than a predictor of branches remembers.
fn frames() -> Vec<Head> {
    let mut random = Random(7);
    let frame = |_| {
        let mut frame = [0; FRAME_LEN];
        let [from, to] =
            [0x0a00_0000, 0xc633_6400].map(|net| Ipv4Addr::from(net | random.below(200) as u32));
        emit_udp(&mut frame, FRAME_LEN, [router_mac(0), SENDER], [from.into(), to.into()]);
        if random.below(2) == 0 {
            frame[23] = 6; // TCP. The checksum is wrong then, which no filter looks at.
        }
        let ports = [1024 + random.below(50_000), 443].map(|port| (port as u16).to_be_bytes());
        frame[34..38].copy_from_slice(ports.as_flattened());
        frame
    };
    (0..64 * BATCH_MAX).map(frame).collect()
}

struct Filter {
    name: &'static str,
    instructions: &'static [(u16, u8, u8, u32)],
    floor: fn(&[u8]) -> bool,
}

#[rustfmt::skip]
const FILTERS: [Filter; 3] = [
    Filter {
        name: "icmp",
        instructions: &[
            (0x28, 0, 0, 12), (0x15, 0, 3, 0x0800), (0x30, 0, 0, 23), (0x15, 0, 1, 1),
            (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0),
        ],
        floor: |frame| half(frame, 12) == Some(0x0800) && frame.get(23) == Some(&1),
    },
    Filter {
        name: "host", // 192.0.2.1
        instructions: &[
            (0x28, 0, 0, 12), (0x15, 0, 4, 0x0800), (0x20, 0, 0, 26), (0x15, 8, 0, 0xc000_0201),
            (0x20, 0, 0, 30), (0x15, 6, 7, 0xc000_0201), (0x15, 1, 0, 0x0806), (0x15, 0, 5, 0x8035),
            (0x20, 0, 0, 28), (0x15, 2, 0, 0xc000_0201), (0x20, 0, 0, 38), (0x15, 0, 1, 0xc000_0201),
            (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0),
        ],
        floor: |frame| {
            let address = |at| word(frame, at) == Some(0xc000_0201);
            match half(frame, 12) {
                Some(0x0800) => address(26) || address(30),
                Some(0x0806 | 0x8035) => address(28) || address(38),
                _ => false,
            }
        },
    },
    Filter {
        name: "port", // tcp port 22
        instructions: &[
            (0x28, 0, 0, 12), (0x15, 0, 6, 0x86dd), (0x30, 0, 0, 20), (0x15, 0, 15, 6),
            (0x28, 0, 0, 54), (0x15, 12, 0, 22), (0x28, 0, 0, 56), (0x15, 10, 11, 22),
            (0x15, 0, 10, 0x0800), (0x30, 0, 0, 23), (0x15, 0, 8, 6), (0x28, 0, 0, 20),
            (0x45, 6, 0, 0x1fff), (0xb1, 0, 0, 14), (0x48, 0, 0, 14), (0x15, 2, 0, 22),
            (0x48, 0, 0, 16), (0x15, 0, 1, 22), (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0),
        ],
        floor: |frame| match half(frame, 12) {
            Some(0x86dd) => {
                frame.get(20) == Some(&6) && (half(frame, 54) == Some(22) || half(frame, 56) == Some(22))
            }
            Some(0x0800) if frame.get(23) == Some(&6) => {
                let len = usize::from(frame[14] & 0xf) * 4;
                half(frame, 20).is_some_and(|fragment| fragment & 0x1fff == 0)
                    && (half(frame, 14 + len) == Some(22) || half(frame, 16 + len) == Some(22))
            }
            _ => false,
        },
    },
];

fn half(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

fn word(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?))
}
