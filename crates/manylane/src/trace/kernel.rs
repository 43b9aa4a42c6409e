//! What the kernel says of its part: watched in the daemon's network namespace, as far as this process may.

use std::collections::BTreeMap;
use std::process;
use std::thread;

use manylane_accelerate::firewall::Firewall;
use manylane_accelerate::programs::KernelDrops;
use manylane_io::iptables::{self, Legacy};
use manylane_io::libpcap;
use manylane_io::namespace::Namespace;
use manylane_io::netlink::nftables::trace::{FILTER_MAX, Marks, TraceEvents, TraceTable};
use manylane_io::netlink::{Netlink, NetlinkError};

use super::follow::{Follow, Sees};

/// Everything that is watched. Nothing of it stays when this is dropped, or the process ends.
#[derive(Default)]
pub(super) struct Kernel {
    rules: Option<(TraceEvents, TraceTable)>,
    drops: Option<KernelDrops>,
    /// What is not seen, and how to get it.
    pub notes: Vec<String>,
    /// Devices by number.
    pub devices: BTreeMap<u32, String>,
    pub firewall: Firewall,
    has_lost: bool,
}

impl Kernel {
    /// Watches packets that pass the filter and that `port` receives, in the network namespace of a process.
    pub fn watch(process: u32, filter: &str, port: Option<&str>) -> Kernel {
        // Sockets and programs belong to the namespace in which they were opened.
        let watched = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let mut kernel = Kernel::default();
                match Namespace::of_process(process).and_then(|namespace| namespace.enter()) {
                    Ok(()) => kernel.open(filter, port),
                    Err(error) => kernel.note(format!(
                        "the kernel's part is not followed: {error}; run `manylane trace` as root"
                    )),
                }
                kernel
            });
            inside.join()
        });
        watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// What of it is watched.
    pub fn sees(&self) -> Sees {
        Sees { rules: self.rules.is_some(), drops: self.drops.is_some() }
    }

    /// Hands on what was seen since.
    pub fn drain(&mut self, follow: &mut Follow, now_ns: u64) {
        if let Some(drops) = &mut self.drops {
            drops.drain(|drop| follow.dropped(drop));
        }
        if let Some((events, _)) = &mut self.rules {
            // What cannot be read is as lost.
            self.has_lost |= events.drain(|event| follow.event(event, now_ns)).unwrap_or(true);
        }
    }

    /// What was lost, for a note.
    pub fn lost(&self) -> Option<String> {
        let drops = self.drops.as_ref().map_or(0, KernelDrops::lost);
        let events = if self.has_lost { "events of nftables, " } else { "" };
        (self.has_lost || drops > 0).then(|| {
            format!(
                "{events}{drops} drops of the kernel were lost: too much happened at once; use a filter"
            )
        })
    }

    fn note(&mut self, note: String) {
        self.notes.push(format!("note: {note}"));
    }

    fn open(&mut self, filter: &str, port: Option<&str>) {
        match Netlink::open().and_then(|mut netlink| netlink.dump_links()) {
            Ok(links) => {
                self.devices = links.into_iter().map(|link| (link.index, link.name)).collect();
            }
            Err(error) => self.note(format!("devices have no names: {error}")),
        }
        match KernelDrops::open() {
            Ok(drops) => self.drops = Some(drops),
            Err(error) => self.note(format!(
                "the kernel's drops have no reasons: {error}; needs root (CAP_BPF, CAP_PERFMON) and a kernel with \
                 CONFIG_DEBUG_INFO_BTF"
            )),
        }
        // Before the rules are read: a change meanwhile has a handle that is not known, and no wrong text.
        match TraceEvents::open()
            .and_then(|events| Ok((events, self.mark(filter, self.index(port))?)))
        {
            Ok(rules) => self.rules = Some(rules),
            Err(error) => self.note(format!(
                "rules are not followed: {error}; needs root (CAP_NET_ADMIN) and a kernel with nf_tables"
            )),
        }
        match Firewall::read() {
            Ok(firewall) => self.firewall = firewall,
            Err(error) => self.note(format!("rules have handles only: {error}")),
        }
        if let Some(note) = iptables::legacy().ok().and_then(|legacy| of_legacy(&legacy)) {
            self.note(note);
        }
    }

    fn index(&self, name: Option<&str>) -> Option<u32> {
        let name = name?;
        self.devices.iter().find(|(_, known)| *known == name).map(|(&index, _)| index)
    }

    /// The table that marks packets: those of the filter, if the kernel can tell.
    fn mark(&mut self, filter: &str, interface: Option<u32>) -> Result<TraceTable, NetlinkError> {
        let suffix = process::id().to_string();
        let all = Marks { filter: None, interface, rate: RATE };
        if filter.is_empty() {
            return TraceTable::create(&suffix, &all);
        }
        let program = libpcap::compile_for_ip(filter, libpcap::SNAP_MAX);
        let program = program.map_err(|error| error.to_string()).and_then(|program| {
            let len = program.len();
            if len <= FILTER_MAX {
                Ok(program)
            } else {
                Err(format!("it has {len} instructions, and {FILTER_MAX} are the most"))
            }
        });
        let marked = program.and_then(|program| {
            let marks = Marks { filter: Some(&program), ..all };
            TraceTable::create(&suffix, &marks).map_err(|error| {
                format!("{error}; needs nft_compat and xt_bpf (`modprobe -a nft_compat xt_bpf`)")
            })
        });
        marked.or_else(|why| {
            let table = TraceTable::create(&suffix, &all)?;
            self.note(format!(
                "nftables cannot filter so, and reports all packets, at most {RATE} a second: {why}"
            ));
            Ok(table)
        })
    }
}

/// Legacy tables have no traces of this kind.
fn of_legacy(legacy: &Legacy) -> Option<String> {
    let chain = legacy.chains.iter().find(|chain| chain.rules > 0 || chain.drops)?;
    let version = if chain.is_v6 { "ip6tables-legacy" } else { "iptables-legacy" };
    Some(format!(
        "rules of {version} are not followed (chain {} of table {}): the kernel names only the end of a packet there, \
         NETFILTER_DROP; `{version}-save -c` lists them with counters",
        chain.chain, chain.table
    ))
}

/// Packets of a second that may be marked.
const RATE: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_io::iptables::LegacyChain;

    #[test]
    fn legacy_tables_that_matter_are_named() {
        let chain = |rules, drops| LegacyChain {
            is_v6: true,
            table: "filter".into(),
            chain: "FORWARD",
            rules,
            drops,
        };
        let of = |chains| of_legacy(&Legacy { chains, ..Legacy::default() });
        assert_eq!(of(vec![chain(0, false)]), None);
        for busy in [chain(1, false), chain(0, true)] {
            let note = of(vec![chain(0, false), busy]).expect("it matters");
            assert!(note.contains("ip6tables-legacy") && note.contains("FORWARD"), "{note}");
        }
    }

    #[test]
    fn a_process_that_may_not_look_says_so() {
        // No process has this id: the largest is 2^22.
        let kernel = Kernel::watch(u32::MAX, "", None);
        assert_eq!(kernel.sees(), Sees::default());
        let note = kernel.notes.first().expect("there is one");
        assert!(note.starts_with("note: the kernel's part is not followed: "), "{note}");
        assert!(note.ends_with("run `manylane trace` as root"), "{note}");
        assert_eq!(kernel.lost(), None);
    }
}
