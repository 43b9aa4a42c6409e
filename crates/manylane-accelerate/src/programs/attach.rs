//! Where the programs run: last in the tcx chain at an interface's ingress, and in its driver (XDP).
//!
//! A driver has one program at most. Ours is attached by a link, in the driver's own mode only, and the
//! kernel refuses it where another one is, in whatever mode.
//!
//! A chain has a *revision*, which every change of it changes. We read chain and revision and say with the
//! attachment which one it is for (`expected_revision`): if another process came between, the kernel refuses, and we
//! look again. So `attached` and what the kernel has do not drift apart unseen.

use manylane_io::syscall::exhausted;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use manylane_io::bpf::call;
use manylane_io::bpf::elf::u32_at;
use manylane_io::interface::Interface;

/// The program on an interface, until this is dropped or the process dies.
#[derive(Debug)]
pub struct Link {
    link: OwnedFd,
    program: u32,
    interface: String,
}

/// What is on an interface's tcx ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The kernel's number and the name of each program, in the order in which they run.
    pub programs: Vec<(u32, String)>,
    /// Another number after each change.
    pub revision: u64,
}

/// Why the program is not on an interface.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel refused.
    #[error("cannot {step} {interface} (tcx ingress): {source}; {}", cure_at_ingress(.source))]
    Refused {
        /// The interface.
        interface: String,
        /// `attach to` or `read what is on`.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Others changed the chain each time that we were about to.
    #[error(
        "cannot attach to {interface} (tcx ingress): its programs changed {tries} times while we were about to; see \
         bpftool net for whose they are, and try again when they are settled"
    )]
    Contended {
        /// The interface.
        interface: String,
        /// How often we tried.
        tries: u32,
    },
    /// The kernel refused to put it into the driver.
    #[error("cannot attach to the driver of {interface} (XDP): {source}; {}", cure_in_the_driver(.source))]
    Driver {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What helps when the kernel refuses a program at an interface's ingress.
fn cure_at_ingress(refusal: &io::Error) -> &'static str {
    match refusal.raw_os_error() {
        Some(libc::EPERM) => "needs root (CAP_BPF, CAP_NET_ADMIN)",
        Some(libc::EINVAL) => "needs Linux 6.6",
        Some(libc::ENODEV) => "the interface is gone; `ip link` lists those that exist",
        Some(libc::ERANGE) => {
            "as many programs are there as fit, and they stay: bpftool net shows whose"
        }
        _ => exhausted(refusal).unwrap_or("`manylane doctor` shows what this machine can"),
    }
}

/// What helps when the kernel refuses a program in an interface's driver.
fn cure_in_the_driver(refusal: &io::Error) -> &'static str {
    match refusal.raw_os_error() {
        Some(libc::EPERM) => "needs root (CAP_BPF, CAP_NET_ADMIN)",
        Some(libc::ENODEV) => "the interface is gone; `ip link` lists those that exist",
        Some(libc::EBUSY | libc::EEXIST) => {
            "another program is there, and stays: bpftool net shows whose"
        }
        Some(libc::EOPNOTSUPP) => "its driver takes no XDP programs: leave it at the ingress tier",
        Some(libc::EINVAL | libc::ERANGE | libc::ENOSPC) => {
            "its driver takes none as it is set up now: MTU, queues (ethtool -l) or offloads (ethtool -k) are in the way"
        }
        _ => exhausted(refusal).unwrap_or("`manylane doctor` shows what this machine can"),
    }
}

impl Link {
    /// The interface's name when the program was attached.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The kernel's number of the program, as [`attached`] tells it.
    pub fn program(&self) -> u32 {
        self.program
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// Attaches a program behind all others to an interface of the calling thread's network namespace. `look` reads
/// what is there.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    id: u32,
    interface: &Interface,
    look: impl Fn(&Interface) -> io::Result<Attached>,
) -> Result<Link, AttachError> {
    let refused =
        |step, source| AttachError::Refused { interface: interface.name.clone(), step, source };
    for _ in 0..TRIES {
        let before = look(interface).map_err(|error| refused("read what is on", error))?;
        let mut attributes = Create {
            program: program.as_raw_fd() as u32,
            interface: interface.index,
            attach: TCX_INGRESS,
            flags: AFTER,
            relative: 0,
            padding: 0,
            revision: before.revision,
        };
        // SAFETY: BPF_LINK_CREATE reads `union bpf_attr` as `Create` lays it out, and returns a descriptor; no field
        // is a pointer.
        match unsafe { call::open(LINK_CREATE, &mut attributes) } {
            Ok(link) => {
                let interface = interface.name.clone();
                return Ok(Link { link, program: id, interface });
            }
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {}
            Err(error) => return Err(refused("attach to", error)),
        }
    }
    Err(AttachError::Contended { interface: interface.name.clone(), tries: TRIES })
}

/// Puts a program into the driver of an interface of the calling thread's network namespace.
pub(super) fn attach_driver(
    program: BorrowedFd<'_>,
    id: u32,
    interface: &Interface,
) -> Result<Link, AttachError> {
    let mut attributes = CreateDriver {
        program: program.as_raw_fd() as u32,
        interface: interface.index,
        attach: XDP,
        flags: DRIVER_MODE,
    };
    // SAFETY: BPF_LINK_CREATE reads `union bpf_attr` as `CreateDriver` lays it out, and returns a descriptor; no
    // field is a pointer.
    let link = unsafe { call::open(LINK_CREATE, &mut attributes) };
    let interface = interface.name.clone();
    match link {
        Ok(link) => Ok(Link { link, program: id, interface }),
        Err(source) => Err(AttachError::Driver { interface, source }),
    }
}

/// What is on the tcx ingress of an interface of the calling thread's network namespace.
pub fn attached(interface: &Interface) -> io::Result<Attached> {
    on(interface, TCX_INGRESS)
}

/// What is on its tcx egress.
pub fn attached_egress(interface: &Interface) -> io::Result<Attached> {
    on(interface, TCX_EGRESS)
}

fn on(interface: &Interface, chain: u32) -> io::Result<Attached> {
    let mut ids = [0u32; PROGRAMS_MAX];
    let mut attributes = Query {
        interface: interface.index,
        attach: chain,
        ids: ids.as_mut_ptr() as u64,
        count: ids.len() as u32,
        ..Query::default()
    };
    // SAFETY: BPF_PROG_QUERY reads and writes `union bpf_attr` as `Query` lays it out, and writes at most `count`
    // numbers to `ids`, which outlives the call; the pointers that are 0 are left alone.
    let returned = unsafe { call::call(PROGRAM_QUERY, &mut attributes) };
    match returned {
        Ok(_) => {}
        // No chain, on kernels that say so (before 6.7): the first change of one is from 1.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            return Ok(Attached { programs: Vec::new(), revision: 1 });
        }
        Err(error) => return Err(error),
    }
    let ids = &ids[..(attributes.count as usize).min(ids.len())];
    // Without a name if the program has gone meanwhile.
    let programs = ids.iter().map(|&id| (id, program_name(id).unwrap_or_default())).collect();
    Ok(Attached { programs, revision: attributes.revision })
}

/// The name of the program of this number. Only root may query foreign ones (`CAP_SYS_ADMIN`).
pub fn program_name(id: u32) -> io::Result<String> {
    if let Some(name) = ours().get(&id) {
        return Ok(name.clone());
    }
    let mut by_id = ById { id, next: 0, flags: 0 };
    // SAFETY: BPF_PROG_GET_FD_BY_ID reads `union bpf_attr` as `ById` lays it out, and returns a descriptor; no field
    // is a pointer.
    let program = unsafe { call::open(PROGRAM_BY_ID, &mut by_id) }?;
    Ok(name(&info(&program)?))
}

/// How many programs of this name the kernel has, of all processes. Only root may ask.
pub fn programs_named(name: &str) -> io::Result<usize> {
    let mut count = 0;
    let mut by_id = ById { id: 0, next: 0, flags: 0 };
    loop {
        // SAFETY: BPF_PROG_GET_NEXT_ID reads and writes `union bpf_attr` as `ById` lays it out; no field is a pointer.
        match unsafe { call::call(NEXT_PROGRAM, &mut by_id) } {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(count),
            Err(error) => return Err(error),
        }
        // One that has gone meanwhile has no name.
        count += usize::from(program_name(by_id.next).is_ok_and(|known| known == name));
        by_id.id = by_id.next;
    }
}

/// The kernel's number of a program of ours, which is remembered.
pub(super) fn id(program: &OwnedFd) -> io::Result<u32> {
    let info = info(program)?;
    let id = u32_at(&info, ID_AT).expect("it has more bytes");
    ours().insert(id, name(&info));
    Ok(id)
}

fn name(info: &[u8; INFO_LEN]) -> String {
    let name = info[NAME_AT..NAME_AT + 16].split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Names of programs that this process has loaded, by number: a handful. The kernel gives a number again only after
/// two thousand millions of others.
fn ours() -> MutexGuard<'static, BTreeMap<u32, String>> {
    static OURS: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first bytes of `struct bpf_prog_info`.
fn info(program: &OwnedFd) -> io::Result<[u8; INFO_LEN]> {
    let mut info = [0u8; INFO_LEN];
    let mut attributes = Info {
        fd: program.as_raw_fd() as u32,
        len: info.len() as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: BPF_OBJ_GET_INFO_BY_FD reads and writes `union bpf_attr` as `Info` lays it out, and at most `len`
    // bytes of `info`, which outlives the call. All of `info` is 0, so that it requests no array.
    unsafe { call::call(OBJECT_INFO, &mut attributes) }?;
    Ok(info)
}

/// `union bpf_attr` for BPF_LINK_CREATE of a tcx link.
#[repr(C)]
struct Create {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    revision: u64,
}

/// `union bpf_attr` for BPF_LINK_CREATE of an XDP link.
#[repr(C)]
struct CreateDriver {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

/// `union bpf_attr` for BPF_PROG_QUERY.
#[repr(C)]
#[derive(Default)]
struct Query {
    interface: u32,
    attach: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
    program_flags: u64,
    link_ids: u64,
    link_flags: u64,
    revision: u64,
}
const _: () = assert!(size_of::<Query>() == 64);

/// `union bpf_attr` for BPF_PROG_GET_FD_BY_ID.
#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

/// `union bpf_attr` for BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct Info {
    fd: u32,
    len: u32,
    info: u64,
}

/// Of how many changes by others in a row we make light.
const TRIES: u32 = 16;

/// Programs on one chain (`BPF_MPROG_MAX`).
const PROGRAMS_MAX: usize = 64;

// Where `struct bpf_prog_info` has number and name.
const ID_AT: usize = 4;
const NAME_AT: usize = 64;
const INFO_LEN: usize = 80;

// linux/bpf.h.
const NEXT_PROGRAM: libc::c_int = 11;
const PROGRAM_BY_ID: libc::c_int = 13;
const OBJECT_INFO: libc::c_int = 15;
const PROGRAM_QUERY: libc::c_int = 16;
const LINK_CREATE: libc::c_int = 28;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
const XDP: u32 = 37;
/// `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
const DRIVER_MODE: u32 = 1 << 2;
const AFTER: u32 = 1 << 4;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc;

    use super::*;
    use manylane_io::bpf::MuteProgram;
    use manylane_io::bpf::call::Kind;
    use manylane_io::namespace::Host;

    /// Another process changes the chain between look and attachment, once, and then each time.
    #[test]
    fn a_chain_that_changed_is_looked_at_again() {
        let host = match Host::start("chain") {
            Ok(host) => host,
            Err(error) => return eprintln!("SKIPPED {error}"),
        };
        let outcome = host.run(|| {
            let lo = Interface::read("lo").expect("every namespace has one");
            // r0 = TCX_NEXT; exit.
            let code = [[0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], [0x95, 0, 0, 0, 0, 0, 0, 0]];
            let kind = Kind { program: 3, attach: 0, flags: 0, interface: 0 };
            let program = call::load(kind, "nothing", &code)?;
            let id = id(&program)?;
            let (sender, others) = mpsc::channel();
            let intrude = || {
                let other = MuteProgram::load().and_then(|mute| mute.attach(&lo));
                sender.send(other.expect("it loads where ours does")).expect("we listen");
            };
            let looks = std::cell::Cell::new(0);
            let once = |interface: &Interface| {
                let found = attached(interface)?;
                looks.set(looks.get() + 1);
                if looks.get() == 1 {
                    intrude();
                }
                Ok(found)
            };
            let link = attach(program.as_fd(), id, &lo, once).expect("the second time");
            let there = attached(&lo)?;
            let names: Vec<_> = there.programs.iter().map(|(_, name)| name.as_str()).collect();
            assert_eq!((looks.get(), names), (2, vec!["mute", "nothing"]));
            drop((link, others.try_recv()));

            let always = |interface: &Interface| {
                let found = attached(interface)?;
                intrude();
                Ok(found)
            };
            let refused = attach(program.as_fd(), id, &lo, always).expect_err("it goes on");
            let text = refused.to_string();
            assert!(text.contains("lo (tcx ingress)") && text.contains("16 times"), "{text}");
            Ok::<_, io::Error>(())
        });
        outcome.expect("the kernel does what it is told");
    }
}
