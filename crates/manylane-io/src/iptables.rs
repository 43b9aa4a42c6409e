//! Legacy iptables rules that affect routed packets: the tables of the kernel's old interface (iptables(8),
//! linux/netfilter_ipv4/ip_tables.h). [`nftables`](crate::netlink::nftables) has the rules of iptables-nft.
//!
//! The kernel creates a legacy table, empty, on first use and never removes it. So its chains are read, and an empty
//! chain with the policy `ACCEPT` is ignored. The kernel sends no notification of changes.

mod ruleset;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub use ruleset::ruleset;

use crate::syscall::check;

/// A chain of a legacy table that routed packets traverse, with rules or a drop policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyChain {
    /// IPv6 rather than IPv4.
    pub is_v6: bool,
    /// `filter`, `nat`, `mangle`, `raw`, `security`.
    pub table: String,
    /// `PREROUTING`, `FORWARD`, `POSTROUTING`.
    pub chain: &'static str,
    /// The number of rules in it.
    pub rules: usize,
    /// The policy drops packets that no rule decides.
    pub drops: bool,
}

/// The contents of the legacy tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Legacy {
    /// Chains that routed packets traverse.
    pub chains: Vec<LegacyChain>,
    /// Tables with a rule, in any chain, that needs connection tracking: whether IPv6, and the table's name.
    pub tracking: Vec<(bool, String)>,
    /// Of all that the tables hold but packets counted so far: other where a rule is other, if only in its place.
    pub digest: u64,
}

/// Reads the legacy tables that are in use in the calling thread's network namespace.
pub fn legacy() -> io::Result<Legacy> {
    let mut found = Legacy::default();
    // Always with the same keys: equal tables have equal digests, also of two looks.
    let mut digest = DefaultHasher::new();
    for kind in [&V4, &V6] {
        let names = match fs::read_to_string(kind.names) {
            Ok(names) => names,
            // A kernel without legacy iptables.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // Only existing tables: querying another would create it.
        for table in names.lines() {
            let (hooks, entries) = read(kind, table)?;
            let parts = walk(kind, &hooks, &entries);
            found.chains.extend(parts.chains.into_iter().map(|(chain, rules, drops)| {
                LegacyChain { is_v6: kind.is_v6, table: table.into(), chain, rules, drops }
            }));
            if parts.tracks {
                found.tracking.push((kind.is_v6, table.into()));
            }
            (kind.is_v6, table, hooks.valid, hooks.first, hooks.policy).hash(&mut digest);
            hash(kind, &entries, &mut digest);
        }
    }
    found.digest = digest.finish();
    Ok(found)
}

/// Hashes the entries of a table, without what the kernel writes as packets pass.
fn hash(kind: &Kind, entries: &[u8], to: &mut impl Hasher) {
    let mut at = 0;
    while let Some(entry) = Entry::at(kind, entries, at) {
        at += entry.length;
        // The counters are the last of an entry's own fields, and in front of them is a word of the kernel's own.
        entry.bytes[..kind.target_offset_at + 4].hash(to);
        entry.bytes[kind.entry_bytes..].hash(to);
    }
    entries[at..].hash(to);
}

/// The differences between IPv4's and IPv6's tables.
struct Kind {
    is_v6: bool,
    names: &'static str,
    family: libc::c_int,
    level: libc::c_int,
    /// Offset of the field `target_offset` in `ipt_entry` or `ip6t_entry`; the field `next_offset` follows.
    target_offset_at: usize,
    /// Size of the entry: the matches follow it.
    entry_bytes: usize,
}

const V4: Kind = Kind {
    is_v6: false,
    names: "/proc/thread-self/net/ip_tables_names",
    family: libc::AF_INET,
    level: libc::SOL_IP,
    target_offset_at: 88,
    entry_bytes: 112,
};

const V6: Kind = Kind {
    is_v6: true,
    names: "/proc/thread-self/net/ip6_tables_names",
    family: libc::AF_INET6,
    level: libc::SOL_IPV6,
    target_offset_at: 140,
    entry_bytes: 168,
};

/// `struct ipt_getinfo`, identical to `ip6t_getinfo`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Hooks {
    name: [u8; 32],
    /// The hooks in use, a bit each.
    valid: u32,
    /// Offset of each hook's first entry.
    first: [u32; 5],
    /// Offset of the policy.
    policy: [u32; 5],
    entries: u32,
    bytes: u32,
}

const _: () = assert!(size_of::<Hooks>() == 84);

/// The table's description and its entries.
fn read(kind: &Kind, table: &str) -> io::Result<(Hooks, Vec<u8>)> {
    let named = |name: &mut [u8]| {
        // 32 bytes with the zero at the end (`XT_TABLE_MAXNAMELEN`).
        for (to, from) in name.iter_mut().zip(table.bytes().take(31)) {
            *to = from;
        }
    };
    // SAFETY: socket(2) takes no pointer.
    let fd = check(unsafe { libc::socket(kind.family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    for _ in 0..TRIES_MAX {
        let mut hooks = Hooks::default();
        named(&mut hooks.name);
        let mut length = size_of::<Hooks>() as libc::socklen_t;
        // SAFETY: IPT_SO_GET_INFO reads and writes at most `length` bytes of `hooks`, which is plain integers.
        check(unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                kind.level,
                IPT_SO_GET_INFO,
                (&raw mut hooks).cast(),
                &raw mut length,
            )
        })?;
        // `struct ipt_get_entries`: name, size of what follows, 4 bytes of padding.
        let mut answer = vec![0; ENTRIES_AT + hooks.bytes as usize];
        named(&mut answer[..32]);
        answer[32..36].copy_from_slice(&hooks.bytes.to_ne_bytes());
        let mut length = answer.len() as libc::socklen_t;
        // SAFETY: IPT_SO_GET_ENTRIES reads and writes at most `length` bytes of `answer`, its size.
        let got = check(unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                kind.level,
                IPT_SO_GET_ENTRIES,
                answer.as_mut_ptr().cast(),
                &raw mut length,
            )
        });
        match got {
            Ok(_) => return Ok((hooks, answer.split_off(ENTRIES_AT))),
            // The table was replaced by one of another size in between.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("the table {table} changes too fast to read")))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    /// Name, rules, drops.
    chains: Vec<(&'static str, usize, bool)>,
    tracks: bool,
}

fn walk(kind: &Kind, hooks: &Hooks, entries: &[u8]) -> Parts {
    let mut parts = Parts::default();
    for (hook, name) in TRANSIT {
        if hooks.valid >> hook & 1 == 0 {
            continue;
        }
        let (first, policy) = (hooks.first[hook] as usize, hooks.policy[hook] as usize);
        let mut at = first;
        let mut rules = 0;
        while at < policy {
            let Some(entry) = Entry::at(kind, entries, at) else { break };
            (at, rules) = (at + entry.length, rules + 1);
        }
        let drops =
            Entry::at(kind, entries, policy).is_some_and(|entry| entry.verdict() == Some(DROP));
        if rules > 0 || drops {
            parts.chains.push((name, rules, drops));
        }
    }
    let mut at = 0;
    while let Some(entry) = Entry::at(kind, entries, at) {
        at += entry.length;
        parts.tracks |= entry.tracks(kind);
    }
    parts
}

/// One entry: a rule, a policy, or the head of a chain.
struct Entry<'e> {
    bytes: &'e [u8],
    target: usize,
    length: usize,
}

impl<'e> Entry<'e> {
    fn at(kind: &Kind, entries: &'e [u8], at: usize) -> Option<Entry<'e>> {
        let bytes = entries.get(at..)?;
        let target = usize::from(u16_at(bytes, kind.target_offset_at)?);
        let length = usize::from(u16_at(bytes, kind.target_offset_at + 2)?);
        let bytes = bytes.get(..length)?;
        // The matches, and then the target with its header, lie inside the entry.
        (kind.entry_bytes <= target && target + TARGET_BYTES <= length).then_some(Entry {
            bytes,
            target,
            length,
        })
    }

    /// The verdict of the standard target, whose name is empty; negative verdicts are final.
    fn verdict(&self) -> Option<i32> {
        let target = &self.bytes[self.target..];
        let verdict = *target.get(TARGET_BYTES..)?.first_chunk()?;
        (target[2] == 0).then_some(i32::from_ne_bytes(verdict))
    }

    /// Whether a match or the target needs connection tracking.
    fn tracks(&self, kind: &Kind) -> bool {
        let mut at = kind.entry_bytes;
        while at < self.target {
            let Some(length) = u16_at(self.bytes, at).map(usize::from) else { break };
            if length < TARGET_BYTES {
                break;
            }
            if TRACKING.contains(&name(&self.bytes[at..])) {
                return true;
            }
            at += length;
        }
        TRACKING.contains(&name(&self.bytes[self.target..]))
    }
}

/// The name in a match or target: length, 29 bytes of name, revision.
fn name(part: &[u8]) -> &[u8] {
    let name = part.get(2..31).unwrap_or_default();
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The numbers of the hooks that routed packets traverse.
const TRANSIT: [(usize, &str); 3] = [(0, "PREROUTING"), (2, "FORWARD"), (4, "POSTROUTING")];
/// Matches and targets that need connection tracking (`nf_ct_netns_get`).
const TRACKING: [&[u8]; 17] = [
    b"conntrack",
    b"state",
    b"connmark",
    b"connlimit",
    b"connbytes",
    b"connlabel",
    b"helper",
    b"cluster",
    b"CT",
    b"CONNMARK",
    b"CONNSECMARK",
    b"MASQUERADE",
    b"SNAT",
    b"DNAT",
    b"REDIRECT",
    b"NETMAP",
    b"SYNPROXY",
];
const IPT_SO_GET_INFO: libc::c_int = 64;
const IPT_SO_GET_ENTRIES: libc::c_int = 65;
/// `offsetof(struct ipt_get_entries, entrytable)`.
const ENTRIES_AT: usize = 40;
/// `struct xt_entry_target`, and `xt_entry_match`.
const TARGET_BYTES: usize = 32;
/// `-NF_DROP - 1`.
const DROP: i32 = -1;
const TRIES_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry with this match, if any, and the standard target.
    fn entry(kind: &Kind, with: &[u8], verdict: i32) -> Vec<u8> {
        let mut part = vec![0; 40 * usize::from(!with.is_empty())];
        if let Some(length) = part.first_mut() {
            *length = 40;
            part[2..2 + with.len()].copy_from_slice(with);
        }
        let mut bytes = vec![0; kind.entry_bytes];
        let target = kind.entry_bytes + part.len();
        let length = target + 40;
        bytes[kind.target_offset_at..][..2].copy_from_slice(&(target as u16).to_ne_bytes());
        bytes[kind.target_offset_at + 2..][..2].copy_from_slice(&(length as u16).to_ne_bytes());
        bytes.extend(part);
        bytes.extend([40, 0]);
        bytes.resize(target + TARGET_BYTES, 0);
        bytes.extend(verdict.to_ne_bytes());
        bytes.resize(length, 0);
        bytes
    }

    /// A filter table: INPUT and FORWARD.
    fn table(kind: &Kind, forward: &[Vec<u8>], policy: i32) -> (Hooks, Vec<u8>) {
        let mut bytes = entry(kind, b"", -2);
        let first = bytes.len() as u32;
        bytes.extend(forward.concat());
        let last = bytes.len() as u32;
        bytes.extend(entry(kind, b"", policy));
        let hooks = Hooks {
            valid: 0b110,
            first: [0, 0, first, 0, 0],
            policy: [0, 0, last, 0, 0],
            ..Hooks::default()
        };
        (hooks, bytes)
    }

    #[test]
    fn only_rules_and_a_drop_policy_are_something() {
        for kind in [&V4, &V6] {
            let (hooks, bytes) = table(kind, &[], -2);
            assert_eq!(walk(kind, &hooks, &bytes), Parts::default());
            let (hooks, bytes) = table(kind, &[], DROP);
            assert_eq!(walk(kind, &hooks, &bytes).chains, [("FORWARD", 0, true)]);
            let rules = [entry(kind, b"", -2), entry(kind, b"state", -2)];
            let (hooks, bytes) = table(kind, &rules, -2);
            let found = walk(kind, &hooks, &bytes);
            assert_eq!(found, Parts { chains: vec![("FORWARD", 2, false)], tracks: true });
            for length in 0..bytes.len() {
                let _ = walk(kind, &hooks, &bytes[..length]); // Cut anywhere: less, and no panic.
            }
        }
    }

    #[test]
    fn a_digest_is_of_rules_and_not_of_counters() {
        let digest = |kind: &Kind, bytes: &[u8]| {
            let mut hasher = DefaultHasher::new();
            hash(kind, bytes, &mut hasher);
            hasher.finish()
        };
        for kind in [&V4, &V6] {
            let (_, bytes) = table(kind, &[entry(kind, b"state", -2)], -2);
            let before = digest(kind, &bytes);
            let length = entry(kind, b"", -2).len();
            let changed = |at: usize| {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1;
                digest(kind, &bytes) != before
            };
            // In the rule: an address, the last byte of its counters, its match's structure, its verdict.
            let rule = length;
            assert!(changed(rule) && changed(rule + kind.entry_bytes + 33));
            assert!(changed(rule + kind.entry_bytes + 40 + TARGET_BYTES));
            for counter in kind.entry_bytes - 16..kind.entry_bytes {
                assert!(!changed(rule + counter), "{counter}");
            }
            for length in 0..bytes.len() {
                digest(kind, &bytes[..length]); // Cut anywhere: no panic.
            }
        }
    }
}
