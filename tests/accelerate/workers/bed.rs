//! The bed of the worker tier's scenarios: hosts whose packets a driver can forward, queries of the accelerator,
//! and a thread of it that hangs.

use std::fs;

use manylane_api::accelerate::AcceleratedPort;
use manylane_lab::accelerated::Accelerated;
use manylane_lab::{Topology, until};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// A thread that hangs, until this is dropped: stopped by ptrace(2), by the thread that made this.
pub struct Hung(Pid);

impl Hung {
    pub fn stop(process: u32, name: &str) -> Hung {
        let thread = Pid::from_raw(thread_named(process, name) as i32);
        ptrace::seize(thread, ptrace::Options::empty()).expect("root may");
        ptrace::interrupt(thread).expect("it was just seized");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
        Hung(thread)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // The thread may have ended.
        let _ = ptrace::detach(self.0, None);
    }
}

fn thread_named(process: u32, name: &str) -> u32 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let is_named = |id: &u32| {
        let comm = fs::read_to_string(format!("/proc/{process}/task/{id}/comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    let mut ids = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.find(is_named).unwrap_or_else(|| panic!("no thread {name}"))
}

/// How often a thread has gone to sleep.
pub fn switches(process: u32, name: &str) -> u64 {
    let path = format!("/proc/{process}/task/{}/status", thread_named(process, name));
    let status = fs::read_to_string(path).expect("it runs");
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).expect("it is counted")
}

/// Changes the tier of a port.
pub fn set(accelerated: &Accelerated, name: &str, tier: &str) {
    let path = format!("/v1/config/port.{name}.tier");
    // The daemon refuses while its mirror thread has no core for seconds, and may have set the tier then.
    until(&path, || accelerated.put::<serde_json::Value>(&path, tier));
}

/// Packets that a tier has forwarded.
pub fn forwarded_by(accelerated: &Accelerated, tier: &str) -> u64 {
    accelerated.ledger().tiers.get(tier).copied().unwrap_or(0)
}

/// Waits until packets are forwarded by a tier.
pub fn is_forwarded_by(accelerated: &Accelerated, tier: &str) {
    let before = forwarded_by(accelerated, tier);
    until(&format!("packets are forwarded by {tier}"), || match forwarded_by(accelerated, tier) {
        now if now > before + 50 => Ok(()),
        _ => Err(format!("{:#?}", accelerated.ports())),
    });
}

/// Packets that workers have dropped.
pub fn dropped(accelerated: &Accelerated) -> u64 {
    accelerated.ledger().dropped.values().sum()
}

/// Packets that workers dropped as they were transit no more.
pub fn changed(accelerated: &Accelerated) -> u64 {
    accelerated.ledger().dropped.get("decision_changed").copied().unwrap_or(0)
}

/// Accelerates both ports of the router.
pub fn start(topology: &Topology, arguments: &[&str]) -> Accelerated {
    let program = env!("CARGO_BIN_EXE_manylane");
    Accelerated::start_with(topology.host("r1"), program, &["lan", "wan"], arguments)
}

/// Waits until both directions of a port are in a tier.
pub fn in_tier(accelerated: &Accelerated, name: &str, tier: &str) -> AcceleratedPort {
    until(&format!("{name} is in tier {tier}"), || match accelerated.port(name) {
        port if port.tier == tier && port.egress_tier == tier => Ok(port),
        port => Err(format!("{port:#?}\n{}", accelerated.said())),
    })
}

/// Waits until both directions of a port are the workers'.
pub fn by_workers(accelerated: &Accelerated, name: &str) -> AcceleratedPort {
    in_tier(accelerated, name, "workers")
}

/// Waits until both directions of both ports are the workers'.
pub fn both_by_workers(accelerated: &Accelerated) {
    for name in ["lan", "wan"] {
        by_workers(accelerated, name);
    }
}
