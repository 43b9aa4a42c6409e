//! What the process may do, and gives up before it has threads.
//!
//! Capabilities are a thread's own, and a new thread has its maker's (capabilities(7)): so [`Privileges::narrow`] is called
//! while the process has only one. Bounding set and `no_new_privs` see to it that no program run later has more.
//!
//! | Command      | Keeps            | For                                                                          |
//! |--------------|------------------|------------------------------------------------------------------------------|
//! | `run`        | `CAP_NET_RAW`    | packet sockets; all else was opened before, and is closed without any         |
//! | `accelerate` | `CAP_NET_ADMIN`  | programs on devices, reading netfilter and XFRM, a receive buffer for floods, neighbours |
//! |              | `CAP_BPF`        | loading programs and tables, also when an interface comes                    |
//! |              | `CAP_PERFMON`    | the tracepoint that tells of redirects that failed; pointers in programs      |
//! |              | `CAP_NET_RAW`    | AF_XDP sockets, when a port becomes the workers'                             |
//!
//! Memory that the kernel shares with a device is locked, and was not counted for root: the limit of it is lifted
//! first. If root may not lift it (a container without `CAP_SYS_RESOURCE`), `accelerate` keeps `CAP_IPC_LOCK`,
//! if it was there. Programs by number are root's alone (`CAP_SYS_ADMIN`): ours are remembered (`crate::bpf::fast`), those
//! of others have no name.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::{Gid, Uid, User, geteuid, setgroups, setresgid, setresuid};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Why privileges could not be given up.
#[non_exhaustive]
#[derive(Debug)]
pub enum PrivilegeError {
    /// The machine has no user of this name.
    NoSuchUser {
        /// The name.
        name: String,
    },
    /// Only root can become another user.
    NotRoot {
        /// The name of the user to become.
        name: String,
    },
    /// The kernel refused one step.
    Refused {
        /// What was tried, as in "cannot ...".
        step: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The kernel refused a change of capabilities.
    Capabilities(CapsError),
}

/// What to be from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// What `manylane run` needs once its ports are open.
    Forwarding,
    /// What `manylane accelerate` needs.
    Accelerating,
}

impl Keep {
    fn capabilities(self) -> CapsHashSet {
        use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON};
        match self {
            Keep::Forwarding => [CAP_NET_RAW].into(),
            Keep::Accelerating => [CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON, CAP_NET_RAW].into(),
        }
    }

    /// Root's group alone reads which tables legacy iptables has, and without that nothing is accelerated.
    fn groups(self, own: Gid) -> Vec<Gid> {
        match self {
            Keep::Forwarding => vec![own],
            Keep::Accelerating => vec![own, Gid::from_raw(0)],
        }
    }
}

/// The user to become, and the capabilities to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    keep: Keep,
    user: Option<User>,
    folders: Vec<PathBuf>,
}

impl Privileges {
    /// As `user`, if one is given.
    pub fn new(keep: Keep, user: Option<&str>) -> Result<Privileges, PrivilegeError> {
        let user = user.map(by_name).transpose()?;
        // A process that already runs as that user changes nothing.
        let user = user.filter(|user| user.uid != geteuid());
        if let Some(User { name, .. }) = &user
            && !geteuid().is_root()
        {
            return Err(PrivilegeError::NotRoot { name: name.clone() });
        }
        Ok(Privileges { keep, user, folders: vec![FOLDER.into()] })
    }

    /// Gives up the rest. The calling thread is the only one; otherwise the others keep their privileges.
    pub fn narrow(&self) -> Result<(), PrivilegeError> {
        let mut keep = self.keep.capabilities();
        let unlimited = Rlimit { current: None, maximum: None };
        let is_limited = setrlimit(Resource::Memlock, unlimited).is_err();
        if is_limited && self.keep == Keep::Accelerating {
            keep.insert(Capability::CAP_IPC_LOCK);
        }
        let held = caps::read(None, CapSet::Permitted).map_err(PrivilegeError::Capabilities)?;
        let kept: CapsHashSet = held.intersection(&keep).copied().collect();
        self.bound(&keep)?;
        self.become_user()?;
        // What is in effect is always permitted: so it goes first.
        for set in [CapSet::Effective, CapSet::Permitted] {
            caps::set(None, set, &kept).map_err(PrivilegeError::Capabilities)?;
        }
        caps::clear(None, CapSet::Inheritable).map_err(PrivilegeError::Capabilities)?;
        set_no_new_privs().map_err(refused("set no_new_privs"))
    }

    /// The sets that matter to programs that are run. If this process may not change the first, its service manager
    /// already did.
    fn bound(&self, keep: &CapsHashSet) -> Result<(), PrivilegeError> {
        let may = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP);
        if may.map_err(PrivilegeError::Capabilities)? {
            for capability in caps::runtime::thread_all_supported().difference(keep) {
                caps::drop(None, CapSet::Bounding, *capability)
                    .map_err(PrivilegeError::Capabilities)?;
            }
        }
        caps::clear(None, CapSet::Ambient).map_err(PrivilegeError::Capabilities)
    }

    /// Also gives it the folder that is there for us, so that our sockets can be taken away in the end.
    fn become_user(&self) -> Result<(), PrivilegeError> {
        let Some(User { uid, gid, .. }) = &self.user else { return Ok(()) };
        for folder in self.folders.iter().filter(|folder| fs::metadata(folder).is_ok()) {
            give(folder, *uid, *gid)?;
        }
        caps::securebits::set_keepcaps(true).map_err(PrivilegeError::Capabilities)?;
        setgroups(&self.keep.groups(*gid)).map_err(refused("leave root's groups"))?;
        setresgid(*gid, *gid, *gid).map_err(refused("change the group"))?;
        setresuid(*uid, *uid, *uid).map_err(refused("change the user"))?;
        caps::securebits::set_keepcaps(false).map_err(PrivilegeError::Capabilities)
    }
}

/// The capabilities that opening devices takes: sockets and programs of AF_XDP and AF_PACKET ports.
const OPENING: [Capability; 3] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF];

/// The names of the capabilities that this thread lacks to open devices by AF_XDP and AF_PACKET.
pub fn lacking_to_open() -> Vec<String> {
    // If the kernel does not say, it refuses a step later, in its own words.
    let Ok(held) = caps::read(None, CapSet::Effective) else { return Vec::new() };
    lacking(&held)
}

fn lacking(held: &CapsHashSet) -> Vec<String> {
    let stands_in = held.contains(&Capability::CAP_SYS_ADMIN); // For `CAP_BPF` (capabilities(7)).
    let lacks =
        |one: &Capability| !(held.contains(one) || stands_in && *one == Capability::CAP_BPF);
    OPENING.iter().filter(|one| lacks(one)).map(ToString::to_string).collect()
}

fn by_name(name: &str) -> Result<User, PrivilegeError> {
    let found = User::from_name(name).map_err(refused("look up the user"))?;
    found.ok_or_else(|| PrivilegeError::NoSuchUser { name: name.into() })
}

fn give(folder: &Path, user: Uid, group: Gid) -> Result<(), PrivilegeError> {
    let given = chown(folder, Some(user.as_raw()), Some(group.as_raw()));
    given.map_err(|source| PrivilegeError::Refused { step: "give away /run/manylane", source })
}

fn refused(step: &'static str) -> impl Fn(Errno) -> PrivilegeError {
    move |errno| PrivilegeError::Refused { step, source: errno.into() }
}

/// A container or a unit may take the means away by which privileges are given up.
const NEXT: &str = "leave out --user, or see what the container or the unit forbids";

/// Where sockets and locks are by default.
const FOLDER: &str = "/run/manylane";

impl fmt::Display for PrivilegeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrivilegeError::NoSuchUser { name } => write!(
                f,
                "user {name:?} does not exist; make it with `useradd --system {name}`, or leave out --user"
            ),
            PrivilegeError::NotRoot { name } => {
                write!(f, "only root can become the user {name:?}; leave out --user")
            }
            PrivilegeError::Refused { step, source } => {
                write!(f, "cannot give up privileges: cannot {step}: {source}; {NEXT}")
            }
            PrivilegeError::Capabilities(source) => {
                write!(f, "cannot give up privileges: {source}; {NEXT}")
            }
        }
    }
}

impl std::error::Error for PrivilegeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PrivilegeError::Refused { source, .. } => Some(source),
            PrivilegeError::Capabilities(source) => Some(source),
            PrivilegeError::NoSuchUser { .. } | PrivilegeError::NotRoot { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opening_lacks_is_named() {
        use Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN};
        let named = |held: &[Capability]| lacking(&held.iter().copied().collect()).join(", ");
        assert_eq!(named(&[]), "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF");
        assert_eq!(named(&[CAP_NET_RAW, CAP_NET_ADMIN]), "CAP_BPF");
        assert_eq!(named(&[CAP_NET_RAW, CAP_NET_ADMIN, CAP_SYS_ADMIN]), "");
        assert_eq!(named(&[CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF]), "");
    }
}
