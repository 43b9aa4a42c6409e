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

/// One owner takes the value out while a weak handle is upgraded, used and dropped, and another owner goes.
#[test]
fn shared_value_unwrapped_beside_an_owner_and_a_weak_handle() {
    static UNWRAPPED: Seen = Seen::new("the value was taken out");
    static GIVEN_BACK: Seen = Seen::new("the handle was given back");
    static UPGRADED: Seen = Seen::new("the upgrade succeeded");
    static TOO_LATE: Seen = Seen::new("the upgrade came too late");
    explore("shared: unwrap, 1 weak", None, || {
        let owner = Shared::new(Value::new());
        let weak = Shared::downgrade(&owner);
        thread::spawn(move || upgrade_and_use(&weak, &UPGRADED, &TOO_LATE));
        unwrap(owner, &UNWRAPPED, &GIVEN_BACK);
    });
    explore("shared: unwrap, 1 owner, 1 weak", Some(4), || {
        let owner = Shared::new(Value::new());
        let (other, weak) = (owner.clone(), Shared::downgrade(&owner));
        thread::spawn(move || other.cell.assert_alive());
        thread::spawn(move || upgrade_and_use(&weak, &UPGRADED, &TOO_LATE));
        unwrap(owner, &UNWRAPPED, &GIVEN_BACK);
    });
    for seen in [&UNWRAPPED, &GIVEN_BACK, &UPGRADED, &TOO_LATE] {
        seen.assert();
    }
}

/// The thread that unwraps holds the reference that another revived: one that hit zero may still have to settle.
#[test]
fn shared_value_unwrapped_by_an_upgraded_owner() {
    static UNWRAPPED: Seen = Seen::new("the value was taken out");
    static GIVEN_BACK: Seen = Seen::new("the handle was given back");
    explore("shared: unwrap of an upgrade", None, || {
        let owner = Shared::new(Value::new());
        let weak = Shared::downgrade(&owner);
        thread::spawn(move || {
            if let Some(upgraded) = weak.upgrade() {
                unwrap(upgraded, &UNWRAPPED, &GIVEN_BACK);
            }
        });
        owner.cell.assert_alive();
    });
    UNWRAPPED.assert();
    GIVEN_BACK.assert();
}

/// Of two owners that both request the value one receives it, whatever a weak handle does; two that both unwrap may both
/// get their handles back.
#[test]
fn shared_value_asked_for_by_two_owners() {
    static BOTH: Seen = Seen::new("both handles were given back");
    explore("shared: 2 into_inner", None, || {
        let owner = Shared::new(Value::new());
        let other = owner.clone();
        let there = thread::spawn(move || Shared::into_inner(other).is_some());
        let here = Shared::into_inner(owner).is_some();
        assert!(here != there.join().expect("no thread panics"), "one of the two");
    });
    explore("shared: 2 unwrap", None, || {
        let owner = Shared::new(Value::new());
        let other = owner.clone();
        let there = thread::spawn(move || Shared::try_unwrap(other).is_ok());
        let here = Shared::try_unwrap(owner).is_ok();
        match (here, there.join().expect("no thread panics")) {
            (true, true) => panic!("both have the value"),
            (false, false) => BOTH.note(),
            _ => {}
        }
    });
    BOTH.assert();
}

/// Takes the value out, changes it, and drops it; or drops the handle that is given back.
fn unwrap(owner: Shared<Value>, unwrapped: &Seen, given_back: &Seen) {
    match Shared::try_unwrap(owner) {
        Ok(value) => {
            unwrapped.note();
            value.cell.write(2); // No other thread reads it.
        }
        Err(owner) => {
            given_back.note();
            owner.cell.assert_alive();
        }
    }
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
