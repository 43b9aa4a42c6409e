//! The files in `/run/manylane` that hold locks.

use std::path::Path;

use manylane_io::interface_lock::InterfaceLocks;

use crate::common;

/// Hundreds of namespaces of tests and demos left a file each, for as long as the machine ran.
#[test]
fn the_lock_file_of_a_namespace_goes_with_the_host_that_made_it() {
    let Some(host) = common::host("locks") else { return };
    let (locks, number) = host.run(|| {
        let name = std::fs::read_link("/proc/thread-self/ns/net").expect("it is there");
        let name = name.display().to_string();
        let number = name.trim_start_matches("net:[").trim_end_matches(']').to_owned();
        (InterfaceLocks::open("test", None).expect("root may"), number)
    });
    let file = format!("/run/manylane/interfaces-{number}.lock");
    assert!(Path::new(&file).exists(), "{file}");
    drop(locks);
    assert!(Path::new(&file).exists(), "others may have it open: {file}");
    drop(host);
    assert!(!Path::new(&file).exists(), "{file}");
}
