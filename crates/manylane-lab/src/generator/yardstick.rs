//! Forwarders for benches, to measure ours against: what a router in XDP costs that reads the kernel's tables, and what
//! it costs to redirect a frame and nothing else.

use std::io;
use std::os::fd::OwnedFd;

use manylane_sync::words::WordsMut;

use manylane_io::bpf::BpfError;
use manylane_io::bpf::maps::{Devices, Maps};
use manylane_io::bpf::object::{self, Meant};
use manylane_io::interface::Interface;

use super::live::{KIND, attach_native};

/// Interfaces that frames can leave by: their numbers are below this.
const PORTS: usize = 256;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yardstick {
    /// Looks up each packet in the kernel's tables (`bpf_fib_lookup`, bpf-helpers(7)), with the checks of a router.
    Fib,
    /// Sends all packets the same way: no lookup.
    Floor,
    /// As [`Yardstick::Floor`]; and adds one to a word of the destination's own line of memory: the least that any table with
    /// an entry and a count for each flow costs. This number of lines, a power of two from 2 up.
    Touch(usize),
}

/// A forwarder of all packets that an interface receives, until this is dropped.
pub struct YardstickLink {
    _link: OwnedFd,
    // The program's own hold on them keeps these alive, too; they are here to say whose they are.
    _devices: Devices,
    _way: WordsMut<u32>,
    _lines: WordsMut<u64>,
}

impl Yardstick {
    /// Puts it natively into the driver of `entry`. Frames leave by `exit`; [`Yardstick::Fib`] writes the addresses
    /// that the kernel knows, and the others `addresses`, destination and source. Both interfaces are of the calling thread's
    /// network namespace, and have numbers below 256.
    pub fn attach(
        self,
        entry: &Interface,
        exit: &Interface,
        addresses: [[u8; 6]; 2],
    ) -> Result<YardstickLink, BpfError> {
        let mut maps = Maps::default();
        let mut way: WordsMut<u32> = maps.add("yardstick_way", WAY_WORDS)?;
        let lines = if let Yardstick::Touch(lines) = self { lines } else { LINES_MIN };
        let lines: WordsMut<u64> = maps.add("yardstick_lines", lines * LINE_WORDS)?;
        let devices = Devices::new(PORTS as u32).map_err(|source| failed("load", source))?;
        let number = u16::try_from(exit.index).ok().filter(|number| usize::from(*number) < PORTS);
        let number = number.ok_or_else(|| {
            let text = format!("{} has the number {}, 255 is the largest", exit.name, exit.index);
            failed("attach", io::Error::new(io::ErrorKind::InvalidInput, text))
        })?;
        devices.set(number, Some(exit.index)).map_err(|source| failed("attach", source))?;
        for (at, bytes) in addresses.as_flattened().as_chunks::<4>().0.iter().enumerate() {
            way.store(at, u32::from_ne_bytes(*bytes));
        }
        way.store(WAY_WORDS - 1, exit.index);
        let meant = |name: &str| match name {
            "yardstick_devices" => Some(Meant::Map(devices.fd())),
            name => maps.meant(name),
        };
        let (section, name) = match self {
            Yardstick::Fib => ("xdp/fib", "yardstick_fib"),
            Yardstick::Floor => ("xdp/floor", "yardstick_floor"),
            Yardstick::Touch(_) => ("xdp/touch", "yardstick_touch"),
        };
        let program = object::program(OBJECT, section, meant);
        let program = program.map_err(|source| failed("load", source))?;
        let program =
            program.load(KIND, name).map_err(|complaint| failed_with("load", complaint.into()))?;
        let link = attach_native(&program, entry).map_err(|source| failed("attach", source))?;
        Ok(YardstickLink { _link: link, _devices: devices, _way: way, _lines: lines })
    }
}

fn failed(step: &'static str, source: io::Error) -> BpfError {
    failed_with(step, source.into())
}

fn failed_with(step: &'static str, source: Box<dyn std::error::Error + Send + Sync>) -> BpfError {
    BpfError::Program {
        program: "the forwarder to measure against",
        step,
        needs: "Linux 6.1",
        source,
    }
}

/// Words of a line of memory, and the lines of programs that touch none.
const LINE_WORDS: usize = 8;
const LINES_MIN: usize = 2;

/// Three words of addresses, and the exit's number.
const WAY_WORDS: usize = 4;

static OBJECT: &[u8] = aya::include_bytes_aligned!("yardstick.bpf.o");
