//! Reference counts whose `get` is one unconditional addition.

mod debt;
mod faults;
mod memory;
mod rcuref;
mod shared;

pub use debt::DebtRef;
pub use faults::{Fault, Faults, faults, on_fault};
pub use rcuref::RcuRef;
pub use shared::{Shared, WeakShared};
