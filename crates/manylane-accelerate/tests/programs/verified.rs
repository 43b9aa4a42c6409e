//! How long the kernel's verifier follows the programs.

use std::fs;

use crate::rig::Rig;

/// A kernel gives up after a million instructions (`BPF_COMPLEXITY_LIMIT_INSNS`), and how many it follows of a program
/// differs from kernel to kernel. A daemon that starts waits for that, too.
const FOLLOWED_MAX: u64 = 200_000;

#[test]
fn the_verifier_is_soon_done_with_each_program() {
    let Some(rig) = Rig::new() else { return };
    let _driver = rig.fast.driver().expect("the same kernel loads it");
    let mut seen = 0;
    for entry in fs::read_dir("/proc/self/fdinfo").expect("/proc is mounted") {
        let path = entry.expect("it can be listed").path();
        // Other tests close theirs meanwhile.
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = |name| text.lines().find_map(|line| line.strip_prefix(name));
        let followed = line("verified_insns:").and_then(|number| number.trim().parse::<u64>().ok());
        if let Some(followed) = followed {
            assert!(followed < FOLLOWED_MAX, "{text}");
            seen += u32::from(followed > 10_000);
        }
    }
    assert!(seen >= 3, "the program at ingress, and two in the driver: {seen}");
}
