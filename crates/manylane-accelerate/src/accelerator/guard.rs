//! The guard of the lease: a notification of a filter or a translation revokes the lease at once, whatever the mirror's
//! thread does meanwhile.
//!
//! The mirror's thread attaches programs, lets the gate judge, and compares tables, each for many milliseconds and more where
//! another process holds the kernel's locks. So another thread sleeps on the gate's sockets, and the lease's word is
//! behind one lock with them:
//!
//! | thread        | holds the lock while it                                                                    |
//! |---------------|--------------------------------------------------------------------------------------------|
//! | guard         | reads the sockets; if something has changed, counts that and revokes the lease             |
//! | mirror thread | reads them, too, and then stamps the lease if the gate has judged all changes counted so far  |
//!
//! A stamp is therefore never written behind a change that the kernel has announced: the announcement is in a socket
//! before the command that made the change returns, and whichever thread takes the lock next reads it there. What is
//! opened, written or attached under a judgement that is out of date is of no effect until the gate has judged again.
//! The lock is held for a few system calls that do not wait. If the guard's thread does not run, the sockets are still
//! read at each stamp, and without stamps the lease lapses.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manylane_io::affinity;
use manylane_io::eventfd::EventFd;
use manylane_io::joined::Joined;
use manylane_io::netlink::nftables::SetName;
use manylane_io::poll::poll;
use manylane_net::transit::LeaseMut;
use manylane_sync::doorbell::Wake;

use crate::gate::{Changes, Heard};

/// The mirror thread's handle. The guard's thread ends with it.
pub(super) struct Guard {
    // First, so that the thread has ended when the lease is dropped.
    _thread: Joined,
    guarded: Arc<Mutex<Guarded>>,
}

/// What both threads reach, one at a time.
struct Guarded {
    changes: Changes,
    lease: LeaseMut,
    /// The mirror thread's.
    doorbell: Arc<EventFd>,
    /// Looks that found a change.
    changes_heard: u64,
    /// Which of them the gate has judged: none at first.
    changes_judged: Option<u64>,
    /// Looks that found a change of rules.
    rules_heard: u64,
    /// Sets and maps that have other elements since the mirror thread took the last ones; `None` if nothing is decided by
    /// elements.
    elements: Option<BTreeSet<SetName>>,
}

impl Guard {
    /// Starts the thread, which rings `doorbell` when something has changed: the elements of sets, too, if `watches_elements`.
    /// These revoke nothing.
    pub fn start(
        changes: Changes,
        lease: LeaseMut,
        doorbell: Arc<EventFd>,
        watches_elements: bool,
    ) -> io::Result<Guard> {
        let fds = changes.fds().into_iter().map(|fd| fd.try_clone_to_owned());
        let fds = fds.collect::<io::Result<Vec<OwnedFd>>>()?;
        let guarded = Guarded {
            changes,
            lease,
            doorbell,
            changes_heard: 0,
            changes_judged: None,
            rules_heard: 0,
            elements: watches_elements.then(BTreeSet::new),
        };
        let guarded = Arc::new(Mutex::new(guarded));
        let end = Arc::new(EventFd::open()?);
        let (theirs, ends) = (guarded.clone(), end.clone());
        let run = move || watch(&fds, &theirs, &ends);
        Ok(Guard { guarded, _thread: Joined::start("guard", end, run)? })
    }

    /// Looks whether something has changed. Returns how many looks have found a change, for
    /// [`mark_judged`](Guard::mark_judged) when the gate has judged after this look.
    pub fn look(&self) -> u64 {
        let mut guarded = lock(&self.guarded);
        // A socket that fails is a change at each look.
        let _ = guarded.look();
        guarded.changes_heard
    }

    /// The mirror thread has found other rules where none are announced (legacy iptables).
    pub fn note_rules(&self) {
        lock(&self.guarded).rules_heard += 1;
    }

    /// How many looks have found a change of rules: what was decided by rules before the last one is out of date. A look of the
    /// guard's thread that finds one revokes the lease, and [`stamp`](Guard::stamp) gives none before the gate has judged:
    /// by then the mirror thread has to have seen this number.
    pub fn rules_heard(&self) -> u64 {
        lock(&self.guarded).rules_heard
    }

    /// Sets and maps that have other elements since the last call. The lease stays in force meanwhile.
    pub fn take_elements(&self) -> BTreeSet<SetName> {
        lock(&self.guarded).elements.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The gate judged after the look that returned this number, and the ports are as it said.
    pub fn mark_judged(&self, heard: u64) {
        lock(&self.guarded).changes_judged = Some(heard);
    }

    /// Writes until when packets may be forwarded, or that none may, if the gate has not judged what has changed. Both as
    /// [`LeaseMut::set`] takes them.
    pub fn stamp(&self, until_ns: u64, until_ticks: u64) {
        let mut guarded = lock(&self.guarded);
        let _ = guarded.look();
        match guarded.changes_judged == Some(guarded.changes_heard) {
            true => guarded.lease.set(until_ns, until_ticks),
            false => guarded.lease.revoke(),
        }
    }
}

impl Guarded {
    fn look(&mut self) -> io::Result<()> {
        let mut heard = Heard::default();
        let looked = self.changes.drain(&mut heard);
        if heard.is_change {
            self.lease.revoke();
            self.changes_heard += 1;
        }
        self.rules_heard += u64::from(heard.rules);
        let mut is_news = heard.is_change;
        if let Some(elements) = &mut self.elements {
            is_news |= !heard.elements.is_empty();
            elements.append(&mut heard.elements);
            // Sets that come and go have other names each time.
            if elements.len() > SETS_MAX {
                elements.clear();
                self.rules_heard += 1;
            }
        }
        if is_news {
            self.doorbell.wake();
        }
        looked
    }
}

/// The guard's thread, until its end.
fn watch(sockets: &[OwnedFd], guarded: &Mutex<Guarded>, end: &EventFd) {
    // So that it need not wait for the end of another thread's slice. Where the kernel has none, it may.
    let _ = affinity::set_slice(SLICE);
    let mut fds: Vec<BorrowedFd<'_>> = vec![end.as_fd()];
    fds.extend(sockets.iter().map(AsFd::as_fd));
    while !end.drain() {
        // The one failure of poll is ENOMEM: then it looks without having slept.
        let slept = poll(&fds, None).map(drop);
        let looked = lock(guarded).look();
        if slept.and(looked).is_err() {
            // Sockets that fail are readable all the time. Meanwhile each stamp looks, too.
            let _ = poll(&fds[..1], Some(FAILING));
        }
    }
}

fn lock(guarded: &Mutex<Guarded>) -> MutexGuard<'_, Guarded> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shortest that the kernel has: a look takes less.
const SLICE: Duration = Duration::from_micros(100);
/// Sets that are told apart until the mirror thread takes them; more are a change of rules.
const SETS_MAX: usize = 256;
/// How long the thread leaves sockets alone that fail.
const FAILING: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::process::Command;

    use manylane_net::transit::layout::control;
    use manylane_net::transit::{Memory, Sizes, TransitMut};
    use manylane_sync::rcu::Domain;
    use manylane_sync::words::Words;

    use super::*;
    use crate::gate::Gate;
    use manylane_io::namespace::Host;
    use manylane_io::netlink::nftables::TableFamily;
    use manylane_lab::scenario::has;
    use manylane_net::fib::Limits;

    /// The attack: a filter appears while the mirror's thread is busy, or between its judgement and its stamp.
    #[test]
    fn a_change_revokes_the_lease_while_the_mirrors_thread_does_something_else() {
        in_a_namespace(|guard, lease, doorbell| {
            guard.stamp(100, 10);
            assert_eq!(read(lease), [0, 0], "the gate has not been asked");
            guard.mark_judged(guard.look());
            guard.stamp(100, 10);
            assert_eq!(read(lease), [100, 10]);
            doorbell.drain();
            change();
            poll(&[doorbell.as_fd()], None).expect("it is open");
            assert_eq!(read(lease), [0, 0], "revoked by the guard's thread");
            guard.stamp(200, 20);
            assert_eq!(read(lease), [0, 0], "until the gate has judged");
            guard.mark_judged(guard.look());
            guard.stamp(200, 20);
            assert_eq!(read(lease), [200, 20]);
        });
    }

    /// What is announced between the look and the judgement's end is another change.
    #[test]
    fn a_judgement_that_is_out_of_date_opens_nothing() {
        in_a_namespace(|guard, lease, _| {
            let before = guard.look();
            change();
            // Whichever thread reads the socket, the stamp is behind it.
            guard.mark_judged(before);
            guard.stamp(100, 10);
            assert_eq!(read(lease), [0, 0]);
            assert!(guard.look() > before);
        });
    }

    /// What a forwarder of connections has to know: rules are announced to it at once, elements of sets revoke nothing.
    #[test]
    fn rules_revoke_the_lease_and_elements_of_sets_are_kept_for_the_mirrors_thread() {
        if !has("nft") {
            return;
        }
        in_a_namespace(|guard, lease, doorbell| {
            run("nft add table inet own; add set inet own banned { type ipv4_addr; }");
            guard.mark_judged(guard.look());
            assert_eq!(guard.take_elements(), BTreeSet::new());
            let rules = guard.rules_heard();
            guard.stamp(100, 10);
            doorbell.drain();
            run("nft add element inet own banned { 10.7.0.1, 10.7.0.2 }");
            poll(&[doorbell.as_fd()], None).expect("it is open");
            let banned =
                SetName { family: TableFamily::Inet, table: "own".into(), set: "banned".into() };
            assert_eq!(guard.take_elements(), BTreeSet::from([banned]));
            assert_eq!(guard.take_elements(), BTreeSet::new(), "once");
            assert_eq!((guard.rules_heard(), read(lease)), (rules, [100, 10]));
            doorbell.drain();
            for (number, command) in (1..).zip([
                "nft add chain inet own c { type filter hook forward priority 0; }",
                "nft add rule inet own c ip saddr @banned drop",
                "nft flush chain inet own c",
                "nft delete set inet own banned",
                "nft add map inet own marks { type ipv4_addr : mark; }",
            ]) {
                guard.mark_judged(guard.look());
                guard.stamp(100, 10);
                doorbell.drain();
                run(command);
                poll(&[doorbell.as_fd()], None).expect("it is open");
                assert_eq!(
                    (guard.rules_heard(), read(lease)),
                    (rules + number, [0, 0]),
                    "{command}"
                );
            }
            // Changes of other kinds are told apart.
            change();
            guard.look();
            assert_eq!(guard.rules_heard(), rules + 5);
            guard.note_rules();
            assert_eq!(guard.rules_heard(), rules + 6);
        });
    }

    fn in_a_namespace(test: impl FnOnce(&Guard, &Words<u64>, &EventFd) + Send + 'static) {
        let host = match Host::start("guard") {
            Ok(host) => host,
            Err(error) => return eprintln!("SKIPPED {error}"),
        };
        host.run(|| {
            let memory = Memory::zeroed(&Sizes::for_routes(16, 16));
            let words = memory.control.reader();
            let mut tables = TransitMut::new(memory, Domain::new(1), &Limits::default());
            let lease = tables.take_lease().expect("nothing else takes it");
            let mut gate =
                Gate::open(Box::new(|_, _| Ok(Vec::new()))).expect("sockets are to be had");
            let doorbell = Arc::new(EventFd::open().expect("eventfds are to be had"));
            let guard = Guard::start(gate.take_changes(), lease, doorbell.clone(), true);
            test(&guard.expect("a thread is to be had"), &words, &doorbell);
        });
    }

    /// A qdisc, announced as filters are.
    fn change() {
        run("tc qdisc add dev lo clsact");
    }

    fn run(command: &str) {
        let (program, rest) = command.split_once(' ').expect("there are arguments");
        let mut command = Command::new(program);
        match program {
            "nft" => command.arg(rest),
            _ => command.args(rest.split(' ')),
        };
        assert!(command.status().is_ok_and(|status| status.success()), "{rest}");
    }

    fn read(words: &Words<u64>) -> [u64; 2] {
        [words.load(control::LEASE), words.load(control::LEASE_TICKS)]
    }
}
