//! Where frames enter and leave.

pub mod af_xdp;
