use super::*;
use crate::rcu::Reader;

#[test]
fn a_bound_socket_is_found_by_what_it_wants() {
    let (mut hooks, reader, found) = rig();
    assert!(found.enter(reader.guard()).is_empty());
    let [(one, mut in_one), (two, mut in_two)] = [(); 2].map(|()| hooks.open().expect("two fit"));
    assert!(hooks.open().is_none());
    assert!(found.enter(reader.guard()).is_empty(), "bound to nothing, it sees nothing");
    assert_eq!(hooks.bind(&two, Some("ip")), Ok(Bound::Changed));
    assert_eq!(hooks.bind(&one, Some("arp")), Ok(Bound::Changed));
    let hooks_found: Vec<_> = found.enter(reader.guard()).iter().collect();
    assert_eq!([hooks_found[0].wanted, hooks_found[1].wanted], ["arp", "ip"]);
    assert!(in_one.admit(hooks_found[0].generation));
    assert!(in_two.admit(hooks_found[1].generation));
}

/// Delivered before, read after: the stamp decides.
#[test]
fn what_came_by_an_old_binding_is_stale() {
    let (mut hooks, reader, found) = rig();
    let (socket, mut binding) = hooks.open().expect("two fit");
    let stamp = || found.enter(reader.guard()).iter().next().map(|hook| hook.generation);
    let mut stamps = Vec::new();
    for wanted in ["ip", "arp"] {
        assert_eq!(hooks.bind(&socket, Some(wanted)), Ok(Bound::Changed));
        stamps.push(stamp().expect("it is bound"));
    }
    assert_eq!([binding.admit(stamps[0]), binding.admit(stamps[1])], [false, true]);
    assert_eq!(hooks.bind(&socket, None), Ok(Bound::Changed));
    assert_eq!((stamp(), binding.admit(stamps[1])), (None, false));
    assert_eq!(binding.stale(), 2);
}

#[test]
fn a_bind_that_changes_nothing_does_nothing() {
    let (mut hooks, reader, found) = rig();
    let (socket, mut binding) = hooks.open().expect("two fit");
    assert_eq!(hooks.bind(&socket, None), Ok(Bound::Unchanged));
    assert_eq!(hooks.bind(&socket, Some("ip")), Ok(Bound::Changed));
    let stamp = found.enter(reader.guard()).iter().next().expect("it is bound").generation;
    assert_eq!(hooks.bind(&socket, Some("ip")), Ok(Bound::Unchanged));
    assert!(binding.admit(stamp));
    assert_eq!(hooks.retired(), 0);
}

/// As a member of a group, whose hook has the member's stamp.
#[test]
fn what_came_before_a_socket_was_renewed_is_stale() {
    let (mut hooks, _, _) = rig();
    let (socket, mut binding) = hooks.open().expect("two fit");
    let before = hooks.generation(&socket);
    let renewed = hooks.renew(&socket);
    assert_eq!((hooks.generation(&socket), hooks.retired()), (renewed, 0));
    assert_eq!([binding.admit(before), binding.admit(renewed)], [false, true]);
}

#[test]
fn what_is_bound_above_others_that_are_not_is_found() {
    let (mut hooks, reader, found) = rig();
    let [(one, _), (two, _)] = [(); 2].map(|()| hooks.open().expect("two fit"));
    assert_eq!(hooks.bind(&two, Some("ip")), Ok(Bound::Changed));
    assert_eq!(hooks.bind(&one, Some("arp")), Ok(Bound::Changed));
    assert_eq!(hooks.bind(&one, None), Ok(Bound::Changed));
    assert_eq!(found.enter(reader.guard()).iter().count(), 1);
    hooks.close(two);
    assert!(found.enter(reader.guard()).is_empty());
}

/// Nor does `close`, with a worker that never ends its turn.
#[test]
fn a_bind_never_waits_and_is_handed_back_at_the_bound() {
    let (mut hooks, mut reader, found) = rig();
    let (socket, mut binding) = hooks.open().expect("two fit");
    for wanted in ["a", "b", "c", "d"] {
        assert_eq!(hooks.bind(&socket, Some(wanted)), Ok(Bound::Changed));
    }
    assert_eq!(hooks.bind(&socket, Some("e")), Err("e"));
    let stamp = found.enter(reader.guard()).iter().next().expect("it is bound").generation;
    assert!(binding.admit(stamp), "the binding is what it was");
    assert_eq!(hooks.bind(&socket, None), Ok(Bound::Changed));
    hooks.close(socket);
    assert_eq!(hooks.retired(), 4);
    reader.quiescent();
    hooks.reclaim();
    assert_eq!(hooks.retired(), 0);
}

#[test]
fn what_a_closed_socket_kept_alive_is_dropped_after_the_grace_period() {
    let ring = Arc::new("ring");
    let domain = Domain::new(1);
    let mut reader = domain.register().expect("the first fits");
    let mut hooks = Hooks::new(domain, 1, 1);
    let (socket, _) = hooks.open().expect("one fits");
    assert_eq!(hooks.bind(&socket, Some(ring.clone())), Ok(Bound::Changed));
    let found = hooks.reader();
    hooks.close(socket);
    assert!(found.enter(reader.guard()).is_empty());
    assert_eq!(Arc::strong_count(&ring), 2);
    reader.quiescent();
    hooks.reclaim();
    assert_eq!(Arc::strong_count(&ring), 1);
    assert!(hooks.open().is_some());
}

#[test]
#[should_panic(expected = "of another domain")]
fn a_reader_of_another_domain_is_refused() {
    let (_hooks, _, found) = rig();
    let other = Domain::new(1).register().expect("the first fits");
    found.enter(other.guard());
}

/// Room for two sockets and two retired hooks, and a worker.
fn rig() -> (Hooks<&'static str>, Reader, HookReader<&'static str>) {
    let domain = Domain::new(1);
    let reader = domain.register().expect("the first fits");
    let hooks = Hooks::new(domain, 2, 2);
    let found = hooks.reader();
    (hooks, reader, found)
}
