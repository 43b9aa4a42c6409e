//! The ledger of the accelerated router: the fate of every packet that manylane saw.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::child::Accelerator;
use crate::terminal::table::{count, signed};
use manylane_api::accelerate::AcceleratedLedger;

/// The ledger after all traffic has paused, once the last packets have left.
pub(super) fn settled(child: &Accelerator) -> Result<AcceleratedLedger, String> {
    let mut ledger = child.ledger()?;
    for _ in 0..LOOKS {
        if faults(&ledger).is_empty() {
            break;
        }
        thread::sleep(PAUSE); // The kernel's programs send no event when their counters change.
        ledger = child.ledger()?;
    }
    Ok(ledger)
}

/// The sums, and whether they are right.
pub(super) fn text(ledger: &AcceleratedLedger) -> String {
    let AcceleratedLedger { seen, forwarded, sent, missing, .. } = ledger;
    let left: u64 = ledger.passed.values().sum();
    let verdict = match faults(ledger)[..] {
        [] => "Everything is accounted for.",
        _ => "Something is NOT accounted for.",
    };
    format!(
        "Ledger of `manylane accelerate`, with all traffic paused:\n  packets seen         {}\n= forwarded            \
         {}  ({})\n+ left to the kernel   {}  ({})\n  forwarded, less sent {}  ({} sent)\n{verdict}\n",
        count(*seen),
        count(*forwarded),
        parts(&ledger.tiers),
        count(left),
        parts(&ledger.passed),
        signed(*missing),
        count(*sent),
    )
}

/// Every sum that does not add up.
pub(super) fn faults(ledger: &AcceleratedLedger) -> Vec<String> {
    let mut faults = Vec::new();
    let parts: u64 = ledger.passed.values().chain(ledger.dropped.values()).sum();
    let known = ledger.forwarded + parts + ledger.queued;
    if ledger.seen != known {
        faults.push(format!("{} packets are in no sum", count(ledger.seen.abs_diff(known))));
    }
    if ledger.missing != 0 {
        faults.push(format!("{} packets were forwarded and not sent", signed(ledger.missing)));
    }
    faults
}

fn parts(parts: &BTreeMap<String, u64>) -> String {
    let parts = parts.iter().filter(|(_, packets)| **packets > 0);
    let parts: Vec<_> =
        parts.map(|(name, packets)| format!("{name} {}", count(*packets))).collect();
    if parts.is_empty() { "none".into() } else { parts.join(", ") }
}

const LOOKS: u32 = 150;
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_say_what_was_left_to_the_kernel_and_what_is_missing() {
        let mut ledger = AcceleratedLedger {
            seen: 3000,
            forwarded: 2000,
            sent: 2000,
            ..AcceleratedLedger::default()
        };
        ledger.passed.insert("not_ip".into(), 1000);
        ledger.passed.insert("ttl".into(), 0);
        ledger.tiers.insert("driver".into(), 2000);
        let said = text(&ledger);
        for line in [
            "  packets seen         3,000\n",
            "= forwarded            2,000  (driver 2,000)\n",
            "+ left to the kernel   1,000  (not_ip 1,000)\n",
            "  forwarded, less sent 0  (2,000 sent)\nEverything is accounted for.\n",
        ] {
            assert!(said.contains(line), "{said}");
        }

        ledger.seen += 7;
        ledger.missing = 2;
        assert!(text(&ledger).contains("NOT accounted for"));
        assert_eq!(faults(&ledger).len(), 2);
    }
}
