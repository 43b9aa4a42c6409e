//! What the evaluator of the firewall's rules says, held against rulesets that firewalls write: `fixtures.rs`.
//!
//! All tests need root, and print `SKIPPED` without it.

mod fixtures;
