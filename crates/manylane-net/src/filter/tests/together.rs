//! Packets that run together end as each does alone.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Chosen, Columns, INSTRUCTIONS_MAX, Instruction, Program, TOGETHER_MAX};
use super::{checked, filter};

#[test]
fn chosen_packets_are_named_by_their_places() {
    assert_eq!(Chosen(0b1011).collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!(Chosen(1 << 63).collect::<Vec<_>>(), [63]);
    for count in 0..=TOGETHER_MAX {
        let chosen = Chosen::first(count);
        assert_eq!(chosen.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
        assert_eq!(chosen.is_empty(), count == 0);
        assert!((0..70).all(|place| chosen.has(place) == (place < count)));
    }
}

/// Each packet leaves the others at another instruction, the last ones of the longest program.
#[test]
fn the_longest_program_has_a_place_for_every_packet() {
    const TESTS: usize = INSTRUCTIONS_MAX / 2 - 1;
    let test = |at: usize| {
        let byte = at.checked_sub(TESTS - TOGETHER_MAX).map_or(1000, |byte| byte as u32);
        [(0x15, 0, 1, byte), (0x06, 0, 0, byte + 1)]
    };
    let first = std::iter::once((0x30, 0, 0, 0));
    let instructions: Vec<_> =
        first.chain((0..TESTS).flat_map(test)).chain([(0x06, 0, 0, 0)]).collect();
    assert_eq!(instructions.len(), INSTRUCTIONS_MAX);
    let packets: Vec<[u8; 1]> = (0..64).map(|byte| [byte]).collect();
    let packets: Vec<&[u8]> = packets.iter().map(|packet| &packet[..]).collect();
    agree(&filter(&instructions), &packets, u64::MAX, &mut Columns::default());
}

#[test]
fn few_packets_and_none_are_decided_too() {
    let program = filter(&[(0x30, 0, 0, 1), (0x15, 0, 1, 7), (0x06, 0, 0, 9), (0x06, 0, 0, 0)]);
    let packets = [&[0, 7][..], &[0, 8], &[0], &[], &[0, 7, 9]];
    let mut columns = Columns::default();
    for chosen in 0..1 << packets.len() {
        agree(&program, &packets, chosen, &mut columns);
    }
    assert!(program.run_together(&[], Chosen::first(0), &mut columns).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn together_means_what_alone_means(
        program in program(),
        packets in vec(packet(), 0..=TOGETHER_MAX),
        chosen: u64,
        all: bool,
    ) {
        let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        let chosen = if all { u64::MAX } else { chosen };
        let mut columns = Columns::default();
        agree(&program, &packets, chosen, &mut columns);
        // Nothing of a run is left behind.
        agree(&program, &packets, !chosen | 1, &mut columns);
    }
}

/// Those of `packets` that `chosen` has end together as they do alone.
fn agree(program: &Program, packets: &[&[u8]], chosen: u64, columns: &mut Columns) {
    let chosen = Chosen(chosen & Chosen::first(packets.len()).0);
    let taken = program.run_together(packets, chosen, columns);
    assert_eq!(taken.0 & !chosen.0, 0, "what was not chosen does not match");
    for place in chosen {
        let alone = program.run(packets[place]);
        let together = if taken.has(place) { columns.kept(place) } else { 0 };
        assert_eq!(together, alone, "{:x?} of {program:x?}", packets[place]);
    }
}

/// Bytes of few values, so that tests are often true, and short packets, so that loads are often outside.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![4 => 0..4_u8, 1 => any::<u8>()], 0..24)
}

/// Any program that may run.
fn program() -> impl Strategy<Value = Program> {
    // A program that reads memory finds some of it written, or is refused.
    let writes = vec((prop_oneof![Just(0x02), Just(0x03)], 0..16_u32), 0..3);
    let writes = writes.prop_map(|all| all.into_iter().map(|(code, k)| (code, 0, 0, k)).collect());
    let start = prop_oneof![3 => Just(Vec::new()), 1 => writes];
    (start, vec(instruction(), 1..40), 0..5_u32).prop_filter_map("it may run", |parts| {
        let (mut list, body, end) = parts;
        let len = body.len();
        let left = |at: usize| (len - at) as u32; // The end counts, too.
        list.extend(body.into_iter().enumerate().map(|(at, instruction)| {
            let Instruction { code, jt, jf, k } = instruction;
            let skip = |by: u8| (u32::from(by) % left(at)) as u8;
            match code {
                0x05 => (code, 0, 0, k % left(at)),
                _ if code & 7 == 5 => (code, skip(jt), skip(jf), k),
                _ => (code, jt, jf, k),
            }
        }));
        list.push(if end == 4 { (0x16, 0, 0, 0) } else { (0x06, 0, 0, end) });
        checked(&list).ok()
    })
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let code = prop_oneof![
        // What filters mostly have.
        4 => prop::sample::select(&[0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1][..]),
        4 => prop::sample::select(&[0x15, 0x25, 0x35, 0x45, 0x05, 0x54][..]),
        1 => prop::sample::select(&[
            0x00, 0x01, 0x02, 0x03, 0x04, 0x06, 0x07, 0x0c, 0x14, 0x16, 0x1c, 0x1d, 0x24, 0x2c,
            0x2d, 0x34, 0x3c, 0x3d, 0x44, 0x4c, 0x4d, 0x5c, 0x60, 0x61, 0x64, 0x6c, 0x74, 0x7c,
            0x80, 0x81, 0x84, 0x87, 0x94, 0x9c, 0xa4, 0xac,
        ][..]),
    ];
    let k = prop_oneof![6 => 0..12_u32, 2 => 0..0x0404_u32, 1 => any::<u32>()];
    (code, any::<u8>(), any::<u8>(), k).prop_map(|(code, jt, jf, k)| {
        let k = if matches!(code, 0x02 | 0x03 | 0x60 | 0x61) { k % 16 } else { k };
        Instruction { code, jt, jf, k }
    })
}
