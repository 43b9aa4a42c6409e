//! Workers on memory ports, turned by hand: nothing is lost, nothing overtakes, every bound counts.
//!
//! `rig` has a worker with its ports and the control thread's part, played by the test.

mod bounds;
mod floor;
mod handoff;
mod leave;
mod ledger;
mod order;
mod patience;
mod rig;
mod samples;
mod socket;
mod taken_late;
mod trace;
