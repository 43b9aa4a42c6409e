//! What others do, written as well as we can: what our own is measured against.

pub mod calls;
pub mod frame;
pub mod handoff;
pub mod hook;
pub mod neighbour;
pub mod refcount;
