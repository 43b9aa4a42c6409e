//! Fixed-size packet frames.

pub mod vocabulary;
