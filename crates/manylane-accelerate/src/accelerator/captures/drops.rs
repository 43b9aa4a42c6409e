//! A pcapng file of packets that workers drop and of packets that are left to the kernel, written in the daemon itself, on
//! request of the API.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use manylane_api::{ApiError, CaptureFile, CapturePart, CaptureRequest, SetError};
use manylane_client::{Copied, CpuRings};
use manylane_frame::vocabulary::{Point, PortId};
use manylane_io::pcapng::{Captured, Interface, Memory, Section, Terms};

use super::Open;
use super::connection::system;
use crate::accelerator::lease::now_exactly;
use crate::accelerator::published::Published;
use crate::accelerator::reason_of;
use crate::programs::Wanted;

/// A file, and the capture whose packets it has.
struct DropsFile {
    rings: CpuRings,
    open: Open,
    /// None when it has ended.
    section: Option<Section>,
    written: Memory,
    /// Names of ports, and the interfaces of the file: of a port's drops, and of what it leaves to the kernel.
    names: BTreeMap<u16, String>,
    interfaces: BTreeMap<(u16, u8), u32>,
    left: u32,
    tagged: Vec<u8>,
}

/// Begins a file. `running` knows the one before.
pub(in crate::accelerator) fn begin(
    published: &Published,
    running: &mut Weak<()>,
    request: &CaptureRequest,
) -> Result<CaptureFile, SetError> {
    if running.upgrade().is_some() {
        return Err(no_room(
            "another capture of drops runs".into(),
            "wait until it ends, or use `manylane capture --point drop,kernel`",
        ));
    }
    let mut file = DropsFile::begin(published, request)?;
    let place = Arc::new(());
    *running = Arc::downgrade(&place);
    Ok(CaptureFile::new(move |is_over| {
        let _held = &place;
        match file.next(is_over) {
            (bytes, false) => CapturePart::Some(bytes),
            (bytes, true) => CapturePart::Last(bytes),
        }
    }))
}

impl DropsFile {
    fn begin(published: &Published, request: &CaptureRequest) -> Result<DropsFile, SetError> {
        let refused = |error: io::Error| {
            no_room(system(&error).error, "see whether `manylane capture` works")
        };
        let ports = published.view().ports.clone();
        let names: BTreeMap<_, _> =
            ports.into_iter().map(|port| (port.number, port.name)).collect();
        let (mut list, mut interfaces) = (Vec::new(), BTreeMap::new());
        for (number, name) in &names {
            for (point, what) in [(Point::Drop, "dropped"), (Point::Kernel, "left to the kernel")] {
                interfaces.insert((*number, point as u8), list.len() as u32);
                let description =
                    format!("Packets received by {name} and {what}; the comment tells why");
                list.push(Interface { name: format!("{name}:{point}"), description });
            }
        }
        let terms = Terms { snap: request.snap, filter: None };
        let written = Memory::default();
        let section = Section::begin(Box::new(written.clone()), &list, &terms, now_ns());
        let section = Some(section.expect("memory takes all that is written to it"));
        let points = [Point::Drop, Point::Kernel].into_iter();
        let points = points.fold(0, |all, point| all | 1 << point as u8);
        let wanted = Wanted { points, port: None, snap: request.snap, filter: None };
        let targets = published.targets().ok_or_else(|| {
            no_room("the programs are not loaded".into(), "restart `manylane accelerate`")
        })?;
        // Last: from here on packets are copied.
        let open = Open::begin(&targets, published, wanted).map_err(refused)?;
        let open = open.ok_or_else(|| {
            no_room("as many captures are open as may be".into(), "close one: `manylane capture`")
        })?;
        let rings = rings(&open).map_err(refused)?;
        let (left, tagged) = (request.packets, Vec::new());
        Ok(DropsFile { rings, open, section, written, names, interfaces, left, tagged })
    }

    /// The bytes of the file since the last call, and whether that is all: when it has its last packet, or `is_over`.
    fn next(&mut self, is_over: bool) -> (Vec<u8>, bool) {
        let Some(mut section) = self.section.take() else { return (Vec::new(), true) };
        let DropsFile { rings, names, interfaces, left, tagged, .. } = self;
        let since_1970_ns = now_ns().saturating_sub(now_exactly());
        let mut room = PART;
        if *left > 0 {
            rings.receive(|copied| {
                let copied = copied.with_tag(tagged);
                let interface = interfaces.get(&(copied.port, copied.point)).copied();
                if let (Some(interface), Some(name)) = (interface, names.get(&copied.port)) {
                    let written =
                        section.packet(interface, &captured(&copied, name, since_1970_ns), 0);
                    written.expect("memory takes all that is written to it");
                    *left -= 1;
                    room = room.saturating_sub(copied.bytes.len() + HEADS);
                }
                *left > 0 && room > 0
            });
        }
        let is_last = is_over || self.left == 0;
        let done = match is_last {
            true => section.end(self.open.counted().lost, now_ns()),
            false => section.flush().map(|()| self.section = Some(section)),
        };
        done.expect("memory takes all that is written to it");
        (self.written.take(), is_last)
    }
}

/// Reads a capture in this process.
fn rings(open: &Open) -> io::Result<CpuRings> {
    let programs = open.programs().rings();
    let mut rings = CpuRings::new(programs.descriptor(), programs.shape())?;
    if let Some(workers) = open.of_workers() {
        rings.add_workers(workers.try_clone_to_owned()?).map_err(io::Error::other)?;
    }
    Ok(rings)
}

fn captured<'c>(copied: &Copied<'c>, name: &'c str, since_1970_ns: u64) -> Captured<'c> {
    let point = Point::ALL.get(usize::from(copied.point)).copied().unwrap_or_default();
    let (reason, explanation) = reason_of(point, copied.verdict).unzip();
    Captured {
        time_ns: copied.time_ns.saturating_add(since_1970_ns),
        len: copied.len,
        bytes: copied.bytes,
        port: PortId(copied.port),
        port_name: name,
        queue: copied.queue,
        worker: copied.cpu as u16,
        point,
        reason,
        explanation,
    }
}

fn no_room(error: String, help: &str) -> SetError {
    SetError::NoRoom(ApiError { error, help: help.into() })
}

/// Since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64 // 584 years.
}

/// Bytes of a part of the file: the API's thread sends one every 10 ms.
const PART: usize = 4 << 20;
/// What a packet has beside its bytes, at most.
const HEADS: usize = 256;
