//! What the interpreter does, instruction by instruction, and what is refused. That whole filters mean what
//! libpcap means by them is looked at in `manylane`'s test `filter`, which has libpcap.

use manylane_frame::{Depot, Region, RegionConfig};

use super::op::Op;
use super::{FilterError, INSTRUCTIONS_MAX, Instruction, Program};

mod known;
mod together;

const PACKET: [u8; 8] = [0x01, 0x02, 0x03, 0x84, 0xf5, 0x06, 0x07, 0x08];

/// What A is after instructions without jumps, on [`PACKET`]; 0 if they end before.
#[test]
fn every_instruction_without_a_jump_does_what_it_says() {
    for (instructions, a) in [
        // Loads: words, half words and bytes, big-endian; the last ones inside.
        (&[(0x20, 0)][..], 0x0102_0384),
        (&[(0x20, 4)], 0xf506_0708),
        (&[(0x28, 3)], 0x84f5),
        (&[(0x28, 6)], 0x0708),
        (&[(0x30, 3)], 0x84),
        (&[(0x30, 7)], 0x08),
        (&[(0x01, 3), (0x40, 1)], 0xf506_0708),
        (&[(0x01, 3), (0x48, 3)], 0x0708),
        (&[(0x01, 3), (0x50, 4)], 0x08),
        (&[(0xb1, 3), (0x87, 0)], 16),
        (&[(0xb1, 4), (0x87, 0)], 20),
        (&[(0x80, 0)], 8),
        (&[(0x81, 0), (0x87, 0)], 8),
        (&[(0x00, 0xdead_beef)], 0xdead_beef),
        (&[(0x01, 0xdead_beef), (0x87, 0)], 0xdead_beef),
        // Memory, and from register to register.
        (&[(0x00, 7), (0x02, 15), (0x00, 1), (0x60, 15)], 7),
        (&[(0x01, 7), (0x03, 0), (0x00, 1), (0x60, 0)], 7),
        (&[(0x00, 7), (0x02, 3), (0x61, 3), (0x00, 1), (0x87, 0)], 7),
        (&[(0x00, 9), (0x07, 0), (0x00, 0), (0x87, 0)], 9),
        // Arithmetic with a constant.
        (&[(0x00, 0xffff_ffff), (0x04, 2)], 1),
        (&[(0x00, 1), (0x14, 2)], 0xffff_ffff),
        (&[(0x00, 0x8000_0001), (0x24, 3)], 0x8000_0003),
        (&[(0x00, 0xffff_ffff), (0x34, 16)], 0x0fff_ffff),
        (&[(0x00, 0xffff_ffff), (0x94, 16)], 15),
        (&[(0x00, 0xf0f0), (0x54, 0xff)], 0xf0),
        (&[(0x00, 0xf0f0), (0x44, 0xff)], 0xf0ff),
        (&[(0x00, 0xf0f0), (0xa4, 0xff)], 0xf00f),
        (&[(0x00, 3), (0x64, 31)], 0x8000_0000),
        (&[(0x00, 0x8000_0000), (0x74, 31)], 1),
        (&[(0x00, 1), (0x84, 0)], 0xffff_ffff),
        (&[(0x00, 0x8000_0000), (0x84, 0)], 0x8000_0000),
        // As above, with X.
        (&[(0x00, 0xffff_ffff), (0x01, 2), (0x0c, 0)], 1),
        (&[(0x00, 1), (0x01, 2), (0x1c, 0)], 0xffff_ffff),
        (&[(0x00, 0x8000_0001), (0x01, 3), (0x2c, 0)], 0x8000_0003),
        (&[(0x00, 0xffff_ffff), (0x01, 16), (0x3c, 0)], 0x0fff_ffff),
        (&[(0x00, 0xffff_ffff), (0x01, 16), (0x9c, 0)], 15),
        (&[(0x00, 0xf0f0), (0x01, 0xff), (0x5c, 0)], 0xf0),
        (&[(0x00, 0xf0f0), (0x01, 0xff), (0x4c, 0)], 0xf0ff),
        (&[(0x00, 0xf0f0), (0x01, 0xff), (0xac, 0)], 0xf00f),
        (&[(0x00, 3), (0x01, 31), (0x6c, 0)], 0x8000_0000),
        (&[(0x00, 0x8000_0000), (0x01, 31), (0x7c, 0)], 1),
        (&[(0x00, 3), (0x01, 32), (0x6c, 0)], 0),
        (&[(0x00, 3), (0x01, 0xffff_ffff), (0x7c, 0)], 0),
        // Registers begin as 0.
        (&[(0x87, 0)], 0),
        (&[(0x04, 5)], 5),
    ] {
        assert_eq!(accumulator(instructions).run(&PACKET), a, "{instructions:x?}");
    }
}

/// The filter's answer is 0 then, whatever was to come.
#[test]
fn what_cannot_be_done_ends_the_program() {
    for instructions in [
        &[(0x20, 5)][..],
        &[(0x28, 7)],
        &[(0x30, 8)],
        &[(0x20, 0x7fff_ffff)],
        &[(0xb1, 8)],
        &[(0x01, 5), (0x40, 0)],
        &[(0x01, 0), (0x40, 5)],
        &[(0x01, 4), (0x48, 3)],
        &[(0x01, 4), (0x50, 4)],
        // X + k goes around 32 bits and would be inside again.
        &[(0x01, 0xffff_ffff), (0x50, 1)],
        &[(0x01, 0xffff_fffe), (0x48, 4)],
        &[(0x01, 0), (0x3c, 0)],
        &[(0x01, 0), (0x9c, 0)],
    ] {
        let with_end: Vec<_> = instructions.iter().copied().chain([(0x00, 1)]).collect();
        assert_eq!(accumulator(&with_end).run(&PACKET), 0, "{instructions:x?}");
    }
}

#[test]
fn every_condition_knows_below_equal_and_above() {
    // The code with a constant, that with X, and which of A = 5, 6, 7 jump, compared with 6.
    for (constant, with_x, jumps) in [
        (0x15, 0x1d, [false, true, false]),
        (0x25, 0x2d, [false, false, true]),
        (0x35, 0x3d, [false, true, true]),
        (0x45, 0x4d, [true, true, true]),
    ] {
        for (a, jumps) in [5, 6, 7].into_iter().zip(jumps) {
            for code in [constant, with_x] {
                let k = if code == constant { 6 } else { 99 };
                let program = [
                    (0x01, 0, 0, 6),
                    (0x00, 0, 0, a),
                    (code, 1, 2, k),
                    (0x06, 0, 0, 0),
                    (0x06, 0, 0, 1),
                    (0x06, 0, 0, 2),
                ];
                let found = filter(&program).run(&PACKET);
                assert_eq!(found, if jumps { 1 } else { 2 }, "{code:#x} {a}");
            }
        }
    }
    let bits = filter(&[(0x00, 0, 0, 5), (0x45, 0, 1, 10), (0x06, 0, 0, 1), (0x06, 0, 0, 2)]);
    assert_eq!(bits.run(&PACKET), 2);
    let far =
        [[(0x05, 0, 0, 300)].as_slice(), &[(0x06, 0, 0, 1); 300], &[(0x06, 0, 0, 2)]].concat();
    assert_eq!(filter(&far).run(&PACKET), 2);
}

/// The load and its test are one for a path from above. A path that jumps between them brings another A.
#[test]
fn a_jump_into_a_joined_pair_finds_its_second_half() {
    for (load, at, test, k) in [
        (0x20, 0, 0x15, 0x0102_0384),
        (0x28, 0, 0x15, 0x0102),
        (0x30, 0, 0x15, 0x01),
        (0x28, 0, 0x45, 0x0100),
        (0x48, 0, 0x15, 0x0102),
    ] {
        let pair = |first| {
            filter(&[
                (0x00, 0, 0, 0x1_0000),
                (0x05, 0, 0, first),
                (load, 0, 0, at),
                (test, 0, 1, k),
                (0x16, 0, 0, 0),
                (0x06, 0, 0, 7),
            ])
        };
        let joined = pair(0);
        assert!(!matches!(joined.ops[2], Op::Word(_) | Op::Half(_) | Op::Byte(_) | Op::HalfX(_)));
        assert_eq!(joined.run(&PACKET), if test == 0x45 { 0x0102 } else { k }, "A was loaded");
        assert_eq!(joined.run(&[0x55; 8]), if test == 0x45 { 0x5555 } else { 7 });
        assert_eq!(joined.run(&[]), 0);
        assert_eq!(pair(1).run(&PACKET), 7);
    }
    // An offset that does not fit into a pair.
    let far = filter(&[(0x28, 0, 0, 0x1_0000), (0x15, 0, 1, 0), (0x06, 0, 0, 1), (0x06, 0, 0, 2)]);
    assert_eq!((far.run(&[0; 0x1_0001]), far.run(&[0; 0x1_0002])), (0, 1));
}

#[test]
fn what_could_run_wrong_is_refused_by_its_number() {
    let end = (0x06, 0, 0, 0);
    for (program, error) in [
        (&[][..], FilterError::Empty),
        (&[(0x20, 0, 0, 0)], FilterError::NoEnd { at: 0 }),
        (&[end, (0x15, 0, 0, 0)], FilterError::JumpOutside { at: 1, to: 2 }),
        (&[(0x15, 0, 1, 0), end], FilterError::JumpOutside { at: 0, to: 2 }),
        (&[(0x1d, 1, 0, 0), end], FilterError::JumpOutside { at: 0, to: 2 }),
        (&[(0x05, 0, 0, 1), end], FilterError::JumpOutside { at: 0, to: 2 }),
        (&[(0x05, 0, 0, 0x7fff_ffff), end], FilterError::JumpOutside { at: 0, to: 0x8000_0000 }),
        (&[(0x00, 0, 0, 0), (0x05, 0, 0, 0xffff_fffe), end], FilterError::JumpBackward { at: 1 }),
        (&[(0x05, 0, 0, 0xffff_ffff), end], FilterError::JumpBackward { at: 0 }),
        (&[(0x34, 0, 0, 0), end], FilterError::DivisionByZero { at: 0 }),
        (&[(0x94, 0, 0, 0), end], FilterError::DivisionByZero { at: 0 }),
        (&[(0x64, 0, 0, 32), end], FilterError::ShiftTooFar { at: 0, by: 32 }),
        (&[(0x74, 0, 0, 99), end], FilterError::ShiftTooFar { at: 0, by: 99 }),
        (&[(0x02, 0, 0, 16), end], FilterError::MemoryOutside { at: 0, cell: 16 }),
        (&[(0x03, 0, 0, 16), end], FilterError::MemoryOutside { at: 0, cell: 16 }),
        (&[(0x60, 0, 0, 16), end], FilterError::MemoryOutside { at: 0, cell: 16 }),
        (&[(0x61, 0, 0, 99), end], FilterError::MemoryOutside { at: 0, cell: 99 }),
        (&[(0x60, 0, 0, 3), end], FilterError::MemoryUnwritten { at: 0, cell: 3 }),
        (&[(0x02, 0, 0, 2), (0x61, 0, 0, 3), end], FilterError::MemoryUnwritten { at: 1, cell: 3 }),
        (&[(0x28, 0, 0, 0xffff_f004), end], FilterError::LinuxOffset { at: 0, offset: -0xffc }),
        (&[(0x30, 0, 0, 0xfff0_0009), end], FilterError::LinuxOffset { at: 0, offset: -0xf_fff7 }),
        (&[(0x50, 0, 0, 0xffe0_0000), end], FilterError::LinuxOffset { at: 0, offset: -0x20_0000 }),
        (&[(0xb1, 0, 0, 0xfff0_0000), end], FilterError::LinuxOffset { at: 0, offset: -0x10_0000 }),
    ] {
        assert_eq!(checked(program), Err(error), "{program:x?}");
        let words = error.to_string();
        assert!(
            number(error)
                .is_none_or(|at| words.starts_with(&format!("instruction {at} of the filter "))),
            "{words}"
        );
    }
    let longest = vec![end; INSTRUCTIONS_MAX];
    assert!(checked(&longest).is_ok());
    let len = INSTRUCTIONS_MAX + 1;
    assert_eq!(checked(&vec![end; len]), Err(FilterError::TooLong { len }));
}

/// All of them: those that no instruction of classic BPF has are refused, of 16 bits.
#[test]
fn every_other_code_is_refused() {
    let known: Vec<u16> = (0..=u16::MAX)
        .filter(|&code| {
            let found =
                checked(&[(0x02, 0, 0, 1), (code, 0, 0, 1), (0x06, 0, 0, 0), (0x06, 0, 0, 0)]);
            match found {
                Ok(_) => true,
                Err(FilterError::UnknownCode { at: 1, code: named }) if named == code => false,
                Err(error) => panic!("{code:#x}: {error}"),
            }
        })
        .collect();
    // filter.rst's table, in the order of the codes; `bpf_filter.c` has this table too.
    assert_eq!(
        known,
        [
            0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x0c, 0x14, 0x15, 0x16, 0x1c, 0x1d,
            0x20, 0x24, 0x25, 0x28, 0x2c, 0x2d, 0x30, 0x34, 0x35, 0x3c, 0x3d, 0x40, 0x44, 0x45,
            0x48, 0x4c, 0x4d, 0x50, 0x54, 0x5c, 0x60, 0x61, 0x64, 0x6c, 0x74, 0x7c, 0x80, 0x81,
            0x84, 0x87, 0x94, 0x9c, 0xa4, 0xac, 0xb1
        ]
    );
}

#[test]
fn memory_is_read_only_where_every_way_wrote_it() {
    let read = (0x60, 0, 0, 0);
    let (write, write_x, end) = ((0x02, 0, 0, 0), (0x03, 0, 0, 0), (0x16, 0, 0, 0));
    let ways = |yes, no| (0x15, yes, no, 0);
    // Both ways write, each by its own; then one of them does not.
    assert!(checked(&[ways(0, 2), write, (0x05, 0, 0, 1), write_x, read, end]).is_ok());
    let one = checked(&[ways(0, 2), write, (0x05, 0, 0, 1), (0x07, 0, 0, 0), read, end]);
    assert_eq!(one, Err(FilterError::MemoryUnwritten { at: 4, cell: 0 }));
    // A jump over the only write, taken or not.
    assert!(checked(&[ways(1, 0), write, read, end]).is_err());
    assert!(checked(&[ways(0, 1), write, read, end]).is_err());
    assert!(checked(&[(0x05, 0, 0, 1), write, read, end]).is_err());
    // What follows a `ret` knows only what those who jump there wrote.
    assert!(checked(&[write, ways(1, 0), end, read, end]).is_ok());
    assert!(checked(&[ways(2, 0), write, end, read, end]).is_err());
}

#[test]
fn memory_is_clear_for_every_packet() {
    // Keeps the first byte if it is not 0, and answers with what it reads back plus 1.
    let program = filter(&[
        (0x00, 0, 0, 0),
        (0x02, 0, 0, 5),
        (0x30, 0, 0, 0),
        (0x15, 1, 0, 0),
        (0x02, 0, 0, 5),
        (0x60, 0, 0, 5),
        (0x04, 0, 0, 1),
        (0x16, 0, 0, 0),
    ]);
    assert_eq!([[7], [0], [9]].map(|packet| program.run(&packet)), [8, 1, 10]);
}

/// Every width at every offset, with a border anywhere: as in one piece.
#[test]
fn loads_cross_the_borders_of_frames() {
    for (code, width) in
        [(0x20, 4), (0x28, 2), (0x30, 1), (0x40, 4), (0x48, 2), (0x50, 1), (0xb1, 1)]
    {
        for k in 0..=PACKET.len() as u32 {
            let last = if code == 0xb1 { (0x87, 0) } else { (0x04, 1) };
            let program = accumulator(&[(code, k), last]);
            let whole = program.run(&PACKET);
            assert_eq!(whole != 0, k as usize + width <= PACKET.len());
            for border in 0..=PACKET.len() {
                let (first, _) = PACKET.split_at(border);
                assert_eq!(in_parts(&program, first), whole, "{code:#x} at {k}, border {border}");
            }
        }
    }
    let len = accumulator(&[(0x80, 0)]);
    assert_eq!(in_parts(&len, &PACKET[..3]), 8);
    // Cut off: the length is that of the packet, the bytes are those that are left.
    assert_eq!(len.run_in_parts(&PACKET[..3], 1500, |_, _| 0), 1500);
    assert_eq!(accumulator(&[(0x30, 3)]).run_in_parts(&PACKET[..3], 1500, |_, _| 0), 0);
}

#[test]
fn a_chain_of_frames_is_one_packet() {
    let region =
        Region::new(RegionConfig { frames: 8, frame_size: 2048 }).expect("some KiB can be mapped");
    let mut pool = Depot::new(region, 1).expect("the frames are there").pool();
    let bytes: Vec<u8> = (0..5000).map(|byte| (byte % 251) as u8).collect();
    let mut frame = pool.take_packet(256, bytes.len()).expect("all are free");
    let mut rest = &bytes[..];
    for part in pool.region().view().parts_mut(&mut frame) {
        let from;
        (from, rest) = rest.split_at(part.len());
        part.copy_from_slice(from);
    }
    let view = pool.region().view();
    let border = view.bytes(&frame).len();
    assert!(frame.is_chained());
    for at in [0, border - 4, border - 3, border - 1, border, 4996, 4997] {
        let program = accumulator(&[(0x20, at as u32)]);
        assert_eq!(program.run_on_frame(view, &frame), program.run(&bytes), "at {at}");
    }
    assert_eq!(accumulator(&[(0x80, 0)]).run_on_frame(view, &frame), 5000);
    pool.give_back(frame);
    let frame = pool.take_packet(256, 8).expect("all are free");
    assert_eq!(accumulator(&[(0x80, 0)]).run_on_frame(pool.region().view(), &frame), 8);
    pool.give_back(frame);
}

#[test]
fn programs_are_equal_by_their_instructions() {
    let all = Program::accept_all();
    assert_eq!((all.run(&[]), all.run(&PACKET)), (u32::MAX, u32::MAX));
    assert_eq!(all, filter(&[(0x06, 0, 0, u32::MAX)]));
    assert_ne!(all, filter(&[(0x06, 0, 0, 262_144)]));
    assert_eq!(all.instructions(), [Instruction { code: 6, jt: 0, jf: 0, k: u32::MAX }]);
}

/// The instruction that an error names.
fn number(error: FilterError) -> Option<usize> {
    match error {
        FilterError::Empty | FilterError::TooLong { .. } => None,
        FilterError::UnknownCode { at, .. }
        | FilterError::JumpOutside { at, .. }
        | FilterError::JumpBackward { at }
        | FilterError::NoEnd { at }
        | FilterError::MemoryOutside { at, .. }
        | FilterError::MemoryUnwritten { at, .. }
        | FilterError::DivisionByZero { at }
        | FilterError::ShiftTooFar { at, .. }
        | FilterError::LinuxOffset { at, .. } => Some(at),
    }
}

fn in_parts(program: &Program, first: &[u8]) -> u32 {
    program.run_in_parts(first, PACKET.len() as u32, |offset, to| {
        assert!(offset + to.len() > first.len(), "the first frame has it");
        let from = PACKET.get(offset..).unwrap_or_default();
        let len = from.len().min(to.len());
        to[..len].copy_from_slice(&from[..len]);
        len
    })
}

/// Instructions without jumps, as (`code`, `k`), and then the answer is A.
fn accumulator(instructions: &[(u16, u32)]) -> Program {
    let instructions = instructions.iter().copied().chain([(0x16, 0)]);
    filter(&instructions.map(|(code, k)| (code, 0, 0, k)).collect::<Vec<_>>())
}

fn filter(instructions: &[(u16, u8, u8, u32)]) -> Program {
    checked(instructions).expect("a program to be run")
}

fn checked(instructions: &[(u16, u8, u8, u32)]) -> Result<Program, FilterError> {
    Program::new(instructions.iter().copied().map(Instruction::from).collect())
}
