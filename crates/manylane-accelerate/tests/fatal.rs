//! What ends first when a process does. Needs root.

#[path = "../../manylane-io/tests/io/common/mod.rs"]
mod common;

use std::env;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::panic;
use std::process::{Command, Output};

use manylane_accelerate::programs::{IngressProgram, Sizes, attached};
use manylane_io::fatal::{DetachOnCrash, detach_links_on_crash, disable_core_dumps};
use manylane_io::interface::Interface;
use manylane_io::namespace::Namespace;
use manylane_io::netlink::{LinkEnd, Netlink};

/// The former hook is called, and finds nothing attached any more.
#[test]
fn a_panic_detaches_programs_before_its_message() {
    if let Err(error) = Namespace::new_for_this_thread() {
        return common::skip(error);
    }
    let output = child("panic");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("attached before: 1\n"), "{output:?}");
    assert!(said.contains("attached in the hook: 0\n"), "{output:?}");
    assert_eq!(output.status.signal(), Some(ABORT), "{output:?}");
    assert!(!output.status.core_dumped(), "{output:?}");
}

/// Not by a hook, and as dead as without us: by the signal that it was.
#[test]
fn a_stack_overflow_is_reported_and_ends_the_process() {
    if let Err(error) = Namespace::new_for_this_thread() {
        return common::skip(error);
    }
    let output = child("overflow");
    assert!(String::from_utf8_lossy(&output.stderr).contains("overflowed its stack"), "{output:?}");
    assert_eq!(output.status.signal(), Some(ABORT), "{output:?}");
}

/// As under a service manager that allows no cores, and gives no right to say otherwise.
#[test]
fn forbidden_core_dumps_need_no_change() {
    if let Err(error) = Namespace::new_for_this_thread() {
        return common::skip(error);
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_resource", "prlimit", "--core=0"]);
    let output = run_in(command, "panic");
    assert_eq!(output.status.signal(), Some(ABORT), "{output:?}");
    assert!(!output.status.core_dumped(), "{output:?}");
}

/// Of this very program, in which only [`dies`] runs.
fn child(how: &str) -> Output {
    run_in(Command::new("env"), how)
}

/// As above, started by another program.
fn run_in(mut command: Command, how: &str) -> Output {
    command.arg(env::current_exe().expect("it is running"));
    command.args(["--exact", "dies", "--nocapture", "--test-threads=1"]).env(ROLE, how);
    command.output().expect("it can be started")
}

/// What the child does; nothing in the parent.
#[test]
fn dies() {
    let Ok(how) = env::var(ROLE) else { return };
    Namespace::new_for_this_thread().expect("we are root");
    let mut netlink = Netlink::open().expect("netlink is always there");
    netlink.create_veth(&LinkEnd::new("a"), &LinkEnd::new("b"), None).expect("we are root");
    let interface = Interface::read("a").expect("it was made");
    let sizes =
        Sizes { groups4: 1024, ranges4: 4096, index6: 8192, leaves6: 1024, flows: [64, 256, 128] };
    let (fast, _tables) = IngressProgram::load(&sizes).unwrap_or_else(|error| panic!("{error}"));
    let link = fast.attach(&interface).expect("nothing is there");
    let _first = DetachOnCrash::register(link.as_fd()).expect("there are places");
    let count = move || attached(&interface).expect("everybody may ask").programs.len();
    println!("\nattached before: {}", count());
    panic::set_hook(Box::new(move |_| println!("attached in the hook: {}", count())));
    disable_core_dumps().and_then(|()| detach_links_on_crash()).expect("everybody may");
    match how.as_str() {
        "panic" => panic!("on purpose"),
        _ => println!("{}", deeper(1)),
    }
}

#[expect(unconditional_recursion, reason = "on purpose")]
fn deeper(number: u64) -> u64 {
    let place = std::hint::black_box([number; 64]);
    deeper(place[7]) + place[9]
}

const ROLE: &str = "MANYLANE_DIES";
/// `SIGABRT`; after its message about the stack, the standard library aborts.
const ABORT: i32 = 6;
