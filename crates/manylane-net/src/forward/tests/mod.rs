//! Every rule, once; and what must hold for any bytes.
//!
//! `bed` has the fixture and the packets; etherparse is the oracle for the results.

mod anything;
mod bed;
mod chains;
mod claims;
mod cut;
mod errors;
mod groups;
mod neighbours;
mod ours;
mod own;
mod redirects;
mod rules;
mod sections;
mod segments;
mod sorting;
mod vlans;
