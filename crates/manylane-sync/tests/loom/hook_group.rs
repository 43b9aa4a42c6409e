//! `hook`, when one socket's hook carries another's generation: as a group's, which delivers to its members.
//!
//! Control renews the member, and binds the group to the generation that this returns. The models are of the crate's
//! own types; the mutants are of this caller.

use loom::thread;
use manylane_sync::hook::{Binding, Bound, Generation, HookReader, Hooks, Socket};
use manylane_sync::rcu::{Domain, Reader};
use manylane_sync::ring::{Consumer, Producer, ring};

use super::{Seen, explore};

/// A worker delivers, a third thread admits, and control reads what is left, once the group is bound anew.
#[test]
fn hook_a_and_b_of_a_member_whose_group_is_bound_anew() {
    explore("hook_a and b, a member", PREEMPTIONS, || renew(Caller::Right));
    for seen in [&STALE, &NEW, &LATE] {
        seen.assert();
    }
}

/// Of the third thread: it is enough for each mutant to be found.
const PREEMPTIONS: Option<usize> = Some(3);

static STALE: Seen = Seen::new("the third thread was given something stale");
static NEW: Seen = Seen::new("the third thread was given something of the new binding");
static LATE: Seen = Seen::new("control was given something of the old binding");

macro_rules! mutant {
    ($name:ident, $expected:literal, $caller:expr) => {
        #[test]
        #[should_panic(expected = $expected)]
        fn $name() {
            explore(stringify!($name), PREEMPTIONS, || renew($caller));
        }
    };
}

mutant!(
    mutant_a_group_bound_before_its_member_is_renewed_takes_the_new_for_stale,
    "of the binding in force is stale",
    Caller::BindsFirst
);
mutant!(
    mutant_a_member_that_is_not_renewed_admits_what_came_by_the_old_binding,
    "came by an old binding",
    Caller::AsksOnly
);
mutant!(
    mutant_a_stamp_of_the_group_is_stale_for_its_member,
    "of the binding in force is stale",
    Caller::StampsByGroup
);

/// What control and the worker do.
#[derive(Clone, Copy, PartialEq)]
enum Caller {
    Right,
    /// Binds the group to the generation that the member will have, and then renews it.
    BindsFirst,
    /// Calls `generation`, in place of `renew`.
    AsksOnly,
    /// The worker stamps with the generation of the hook.
    StampsByGroup,
}

/// What a group's hook says of its one member: its stamp, and the number of the binding.
#[derive(PartialEq)]
struct Seat(Generation, u32);

/// What is delivered: as in the seat.
type Packet = (Generation, u32);

const OLD: u32 = 1;
const IN_FORCE: u32 = 2;

fn renew(caller: Caller) {
    let domain = Domain::new(1);
    let mut reader = domain.register().expect("the first fits");
    let mut hooks = Hooks::new(domain, 2, 1);
    let (group, _) = hooks.open().expect("the first fits");
    let (member, mut binding) = hooks.open().expect("the second fits");
    let stamp = hooks.renew(&member);
    bind(&mut hooks, &group, Seat(stamp, OLD));
    let found = hooks.reader();
    let (mut producer, mut socket) = ring(2);
    let worker = thread::spawn(move || {
        deliver(&found, &reader, &mut producer, caller);
        reader.quiescent();
        deliver(&found, &reader, &mut producer, caller);
    });
    let elsewhere = thread::spawn(move || {
        for (number, admitted) in read(&mut socket, &mut binding) {
            if number == IN_FORCE {
                NEW.note();
            } else if !admitted {
                STALE.note();
            }
        }
        (socket, binding)
    });
    match caller {
        Caller::BindsFirst => {
            // A bind gives the group the next one.
            let expected = Generation(hooks.generation(&group).0 + 2);
            bind(&mut hooks, &group, Seat(expected, IN_FORCE));
            assert_eq!(hooks.renew(&member), expected);
        }
        Caller::AsksOnly => {
            let stamp = hooks.generation(&member);
            bind(&mut hooks, &group, Seat(stamp, IN_FORCE));
        }
        Caller::Right | Caller::StampsByGroup => {
            let stamp = hooks.renew(&member);
            bind(&mut hooks, &group, Seat(stamp, IN_FORCE));
        }
    }
    let (mut socket, mut binding) = elsewhere.join().expect("the third thread does not panic");
    read_bound(&mut socket, &mut binding);
    worker.join().expect("the worker does not panic");
    read_bound(&mut socket, &mut binding);
}

/// Reads what waits, now that `bind` has returned.
fn read_bound(socket: &mut Consumer<Packet>, binding: &mut Binding) {
    for (number, admitted) in read(socket, binding) {
        if number == OLD {
            LATE.note();
            assert!(!admitted, "it came by an old binding");
        }
    }
}

fn bind(hooks: &mut Hooks<Seat>, group: &Socket, seat: Seat) {
    assert!(matches!(hooks.bind(group, Some(seat)), Ok(Bound::Changed)), "there is room");
}

/// Delivers a packet to the member, by the group's hook.
fn deliver(
    found: &HookReader<Seat>,
    reader: &Reader,
    socket: &mut Producer<Packet>,
    caller: Caller,
) {
    for hook in found.enter(reader.guard()).iter() {
        let Seat(stamp, number) = hook.wanted;
        let stamp = if caller == Caller::StampsByGroup { hook.generation } else { stamp };
        socket.push((stamp, number)).expect("there is room for both turns");
        socket.submit();
    }
}

/// Reads what waits: the number of the binding, and whether the member's socket admitted it.
fn read(socket: &mut Consumer<Packet>, binding: &mut Binding) -> Vec<(u32, bool)> {
    let packets: Vec<Packet> = socket.pop_up_to(2).collect();
    let look = |(stamp, number): Packet| {
        let admitted = binding.admit(stamp);
        assert!(admitted || number != IN_FORCE, "something of the binding in force is stale");
        (number, admitted)
    };
    packets.into_iter().map(look).collect()
}
