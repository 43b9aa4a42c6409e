//! The translation held against the interpreter of `manylane-net`, over random programs, tcpdump's language, and random
//! packets; planted bugs have to be found.

use manylane_io::bpf::call::Instruction as Code;
use manylane_io::bpf::object::{MADE_STACK, Meant, link};
use manylane_io::libpcap;
use manylane_net::filter::{Instruction, Program};

use super::translate::{HEAD, UNDECIDED, translate, undecided};

/// Runs a translated filter as the kernel does.
fn run(code: &[Code], head: &[u8], len: u64) -> u64 {
    const HEAD_AT: u64 = 1 << 40;
    const STACK_AT: u64 = 1 << 41;
    let mut registers = [0u64; 11];
    let mut stack = [0u64; 64];
    (registers[1], registers[2], registers[3]) = (HEAD_AT, HEAD_AT + head.len() as u64, len);
    registers[10] = STACK_AT;
    let mut next = 0usize;
    while next < code.len() {
        let [op, both, low, high, a, b, c, d] = code[next];
        next += 1;
        let (to, from) = (usize::from(both & 0xf), usize::from(both >> 4));
        let offset = i16::from_le_bytes([low, high]);
        let k = i32::from_le_bytes([a, b, c, d]);
        let other = if op & 8 == 0 { k as i64 as u64 } else { registers[from] };
        let (x, y) = (registers[to] as u32, other as u32);
        let jump = |next: usize| (next as i64 + i64::from(offset)) as usize;
        match op {
            0xb7 | 0xbf => registers[to] = other,
            0x07 | 0x0f => registers[to] = registers[to].wrapping_add(other),
            0x67 => registers[to] <<= k,
            0xdc => {
                registers[to] = match k {
                    16 => (registers[to] as u16).swap_bytes().into(),
                    _ => u64::from((registers[to] as u32).swap_bytes()),
                }
            }
            0x79 => registers[to] = stack[(-offset) as usize / 8],
            0x7b => stack[(-offset) as usize / 8] = registers[from],
            0x71 | 0x69 | 0x61 => {
                let size = match op {
                    0x71 => 1,
                    0x69 => 2,
                    _ => 4,
                };
                let at = registers[from].wrapping_add(offset as i64 as u64) - HEAD_AT;
                let bytes = &head[at as usize..][..size];
                let mut word = [0; 8];
                word[..size].copy_from_slice(bytes);
                registers[to] = u64::from_le_bytes(word);
            }
            0x05 => next = jump(next),
            0x25 | 0x2d if registers[to] > other => next = jump(next),
            0x25 | 0x2d => {}
            op if op & 7 == 4 => {
                registers[to] = u64::from(match op & 0xf0 {
                    0x00 => x.wrapping_add(y),
                    0x10 => x.wrapping_sub(y),
                    0x20 => x.wrapping_mul(y),
                    0x30 => x.checked_div(y).unwrap_or(0),
                    0x40 => x | y,
                    0x50 => x & y,
                    0x60 => x.wrapping_shl(y),
                    0x70 => x.wrapping_shr(y),
                    0x80 => x.wrapping_neg(),
                    0x90 => x.checked_rem(y).unwrap_or(x),
                    0xa0 => x ^ y,
                    0xb0 => y,
                    _ => panic!("no arithmetic: {op:#x}"),
                });
            }
            op if op & 7 == 6 => {
                let holds = match op & 0xf0 {
                    0x10 => x == y,
                    0x20 => x > y,
                    0x30 => x >= y,
                    0x40 => x & y != 0,
                    _ => panic!("no condition: {op:#x}"),
                };
                if holds {
                    next = jump(next);
                }
            }
            op => panic!("no instruction: {op:#x}"),
        }
    }
    registers[0]
}

/// A generator of numbers (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn packet(&mut self) -> Vec<u8> {
        let len = [0, 13, 34, 60, 100, 700][self.below(6) as usize] + self.below(40) as usize;
        let mut packet: Vec<u8> = (0..len).map(|_| self.next() as u8).collect();
        // Mostly one of the usual ones.
        let kind: &[u8] = [&[8, 0][..], &[0x86, 0xdd], &[0x81, 0], &[8, 6]][self.below(4) as usize];
        if len > 40 && self.below(8) > 0 {
            packet[12..14].copy_from_slice(kind);
            packet[14] = if kind[0] == 8 { 0x45 + (self.below(3) as u8) } else { 0x60 };
            packet[20] = if kind[0] == 8 { 0 } else { [6, 17, 58, 0][self.below(4) as usize] };
            packet[21] = 0;
            packet[23] = [1, 6, 17, 99][self.below(4) as usize];
            packet[36..38].copy_from_slice(&[0, 53]);
        }
        packet
    }

    /// Any program that the check takes.
    fn program(&mut self) -> Program {
        const CODES: [u16; 44] = [
            0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1, 0x80, 0x81, 0x00, 0x01, 0x60, 0x61, 0x02,
            0x03, 0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x84, 0x94, 0xa4, 0x0c, 0x1c,
            0x2c, 0x3c, 0x4c, 0x5c, 0x6c, 0x7c, 0x9c, 0xac, 0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d,
            0x07, 0x87,
        ];
        loop {
            let len = 2 + self.below(20);
            let mut all: Vec<Instruction> = (0..len)
                .map(|at| {
                    let left = len - at;
                    let k = match self.below(4) {
                        0 => self.below(16),
                        1 => self.below(64),
                        2 => self.below(800),
                        _ => self.next(),
                    };
                    let code = CODES[self.below(44) as usize];
                    let k = if matches!(code, 0x60 | 0x61 | 0x02 | 0x03 | 0x64 | 0x74) {
                        k % 16
                    } else {
                        k
                    };
                    let skip = |numbers: &mut Numbers| numbers.below(left.min(4)) as u8;
                    Instruction { code, jt: skip(self), jf: skip(self), k: k as u32 }
                })
                .collect();
            let last = [0x06, 0x16][self.below(2) as usize];
            all.push(Instruction { code: last, jt: 0, jf: 0, k: self.next() as u32 });
            if let Ok(program) = Program::new(all) {
                return program;
            }
        }
    }
}

/// What differs for this packet, with this much of it at hand, if anything.
fn difference(program: &Program, code: &[Code], packet: &[u8], head: usize) -> Option<String> {
    let expected = u64::from(program.run(packet));
    let head = head.min(packet.len());
    let found = run(code, &packet[..head], packet.len() as u64);
    let whole = head == packet.len();
    let is_right = found == expected || found == UNDECIDED && !whole;
    (!is_right).then(|| format!("{found:#x} for {expected:#x}, {head} of {} bytes", packet.len()))
}

fn compiled(expression: &str) -> Option<Program> {
    let instructions = libpcap::compile(expression, 262_144).ok()?;
    Program::new(instructions.into_iter().map(Instruction::from).collect()).ok()
}

const EXPRESSIONS: [&str; 22] = [
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp port 53",
    "tcp port 80 or tcp port 443",
    "host 10.1.0.1",
    "net 10.0.0.0/8",
    "ip6 host 2001:db8::1",
    "vlan 100",
    "vlan and ip",
    "mpls",
    "icmp[0] = 8",
    "tcp[13] & 2 != 0",
    "ip[2:2] - ((ip[0] & 0xf) << 2) > 100",
    "len > 100",
    "greater 200 and udp",
    "ether[0] & 1 = 1",
    "udp[8:4] = 0x01020304",
    "ip[((ip[0] & 0xf) << 2) + 600] = 7",
    "portrange 1000-2000",
    "not (ip or ip6 or arp)",
];

#[test]
fn a_translated_filter_says_what_the_interpreter_says() {
    let mut numbers = Numbers(0x5eed_0001);
    let mut programs: Vec<_> = EXPRESSIONS.iter().filter_map(|one| compiled(one)).collect();
    assert!(programs.len() > 18 || compiled("ip").is_none(), "libpcap compiles nearly all of them");
    programs.extend((0..600).map(|_| numbers.program()));
    let (mut yes, mut open) = (0, 0);
    for program in &programs {
        let translated = translate(program).expect("it is short");
        assert!(translated.head <= HEAD);
        for _ in 0..300 {
            let packet = numbers.packet();
            let short = numbers.below(80) as usize;
            for head in [HEAD as usize, translated.head as usize, short] {
                let wrong = difference(program, &translated.code, &packet, head);
                assert_eq!(wrong, None, "{:?}", program.instructions());
            }
            yes += u32::from(program.run(&packet) != 0);
            let head = (translated.head as usize).min(packet.len());
            let says = run(&translated.code, &packet[..head], packet.len() as u64);
            open += u32::from(says == UNDECIDED);
        }
    }
    assert!(yes > 10_000 && open < yes, "{yes} packets match, {open} are undecided");
    assert_eq!(run(&undecided().code, &[], 60), UNDECIDED);
}

/// How deep an instruction reaches into the stack: by a load, a store, or an address made of register 10.
fn depth([before, code]: [Code; 2]) -> i64 {
    const ADD: u8 = 0x07;
    const MOVE: u8 = 0xbf;
    let [op, registers, low, high, value @ ..] = code;
    let (to, from) = (registers & 0xf, registers >> 4);
    let offset = i64::from(i16::from_le_bytes([low, high]));
    match op & 7 {
        1 if from == 10 => -offset,
        2 | 3 if to == 10 => -offset,
        _ if op == ADD && (before[0], before[1] >> 4) == (MOVE, 10) => {
            -i64::from(i32::from_le_bytes(value))
        }
        _ => 0,
    }
}

/// A filter's code shares the stack with the program that it is in.
#[test]
fn the_programs_leave_the_filter_its_part_of_the_stack() {
    let meant = |name: &str| match name {
        "observers" => Some(Meant::Map(7)),
        "packets" | "observed" | "port_of" | "ports" | "vlan_port" => Some(Meant::Table(7)),
        _ => Some(Meant::Number(64)),
    };
    for section in ["ingress/received", "ingress/done", "driver/received", "driver/done"] {
        let made = undecided().code;
        let program = link(super::OBJECT, section, meant, Some(("filter", &made)));
        let program = program.expect("it is ours");
        let depths = program.code().array_windows().map(|&pair| depth(pair));
        let deepest = depths.max().expect("there are instructions");
        assert!((1..=-i64::from(MADE_STACK)).contains(&deepest), "{section}: {deepest} bytes");
    }
}

/// Plants a bug in an instruction, if it is one of those.
type Plant = fn(&mut Code) -> bool;

/// Bugs in the translation, and whether the comparison finds them.
#[test]
fn planted_bugs_are_found() {
    let bugs: [(&str, Plant); 6] = [
        ("bytes in the wrong order", |code| plant(code, 0xdc, |code| code[4] = 16)),
        ("a header's length with its version", |code| {
            code[4] == 0xf && plant(code, 0x54, |code| code[4] = 0xff)
        }),
        ("shifts beyond 31 are not 0", |code| {
            code[4] == 31 && plant(code, 0x26, |code| code[4] = 0xff)
        }),
        ("division by 0 goes on", |code| {
            code[1] == 7 && plant(code, 0x16, |code| code[4..].fill(0x7f))
        }),
        ("all that is short is none", |code| plant(code, 0x67, |code| code[4] = 0)),
        ("the end is not looked at", |code| {
            code[1] == 0x93 && plant(code, 0x2d, |code| code[2..4].fill(0))
        }),
    ];
    for (bug, plant) in bugs {
        let mut numbers = Numbers(0x5eed_0002);
        let is_found = (0..3000).any(|_| {
            let program = numbers.program();
            let mut code = translate(&program).expect("it is short").code;
            let planted = code.iter_mut().filter_map(|one| plant(one).then_some(())).count();
            let packet = numbers.packet();
            let head = numbers.below(80) as usize;
            planted > 0
                && std::panic::catch_unwind(|| difference(&program, &code, &packet, head))
                    .map_or(true, |wrong| wrong.is_some())
        });
        assert!(is_found, "{bug}");
    }
}

/// Changes an instruction of this kind.
fn plant(code: &mut Code, kind: u8, change: fn(&mut Code)) -> bool {
    let is_it = code[0] == kind;
    if is_it {
        change(code);
    }
    is_it
}
