//! `refcount::Shared` and `WeakShared`: the crate's own, with clone, downgrade, upgrade and drop.
//!
//! Their block watches its own memory under loom (`src/refcount/memory.rs`); the value watches itself.

use loom::thread;
use manylane_sync::refcount::{Shared, WeakShared};

use super::{Seen, Watched, explore};

/// A value that notices when it is used after its drop, dropped twice, or never.
struct Value {
    cell: Watched,
    /// Its drop lets loom check for a leak.
    _allocation: loom::alloc::Track<()>,
}

impl Value {
    fn new() -> Value {
        Value { cell: Watched::new(1), _allocation: loom::alloc::Track::new(()) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // A model that fails unwinds with values of all ages.
        if !std::thread::panicking() {
            self.cell.end();
        }
    }
}

#[test]
fn shared_owners_and_a_weak_handle_in_three_threads() {
    static UPGRADED: Seen = Seen::new("the upgrade succeeded");
    static TOO_LATE: Seen = Seen::new("the upgrade came too late");
    explore("shared: 2 owners, 1 weak", None, || {
        let one = Shared::new(Value::new());
        let (two, weak) = (one.clone(), Shared::downgrade(&one));
        thread::spawn(move || two.cell.assert_alive());
        thread::spawn(move || upgrade_and_use(&weak, &UPGRADED, &TOO_LATE));
        one.cell.assert_alive();
    });
    UPGRADED.assert();
    TOO_LATE.assert();
}

#[test]
fn shared_weak_handles_cloned_and_upgraded_in_two_threads() {
    static UPGRADED: Seen = Seen::new("an upgrade succeeded");
    static TOO_LATE: Seen = Seen::new("an upgrade came too late");
    explore("shared: 1 owner, 2 weak", Some(4), || {
        let owner = Shared::new(Value::new());
        let weak = Shared::downgrade(&owner);
        let other = weak.clone();
        thread::spawn(move || upgrade_and_use(&other.clone(), &UPGRADED, &TOO_LATE));
        thread::spawn(move || upgrade_and_use(&weak, &UPGRADED, &TOO_LATE));
        drop(owner);
    });
    UPGRADED.assert();
    TOO_LATE.assert();
}

/// One thread makes handles of both kinds out of its own while another upgrades, clones the result, and drops the weak
/// handle first.
#[test]
fn shared_handles_made_of_handles_while_others_go() {
    static UPGRADED: Seen = Seen::new("the upgrade succeeded");
    static OUTLIVED: Seen = Seen::new("what was upgraded outlived the first owner");
    explore("shared: clones, downgrades", None, || {
        let owner = Shared::new(Value::new());
        let weak = Shared::downgrade(&owner);
        thread::spawn(move || {
            let Some(upgraded) = weak.upgrade() else { return };
            UPGRADED.note();
            drop(weak);
            let clone = upgraded.clone();
            drop(upgraded);
            if Shared::strong_count(&clone) == 1 {
                OUTLIVED.note();
            }
            clone.cell.assert_alive();
        });
        let again = Shared::downgrade(&owner);
        drop(owner);
        if let Some(back) = again.upgrade() {
            back.cell.assert_alive();
        }
    });
    UPGRADED.assert();
    OUTLIVED.assert();
}

/// The watch that a block keeps of its own memory works.
#[test]
#[should_panic(expected = "leaked")]
fn a_forgotten_owner_is_seen() {
    explore("shared: forgotten", None, || std::mem::forget(Shared::new(())));
}

fn upgrade_and_use(weak: &WeakShared<Value>, upgraded: &Seen, too_late: &Seen) {
    match weak.upgrade() {
        Some(owner) => {
            upgraded.note();
            owner.cell.assert_alive();
        }
        None => too_late.note(),
    }
}
