//! Scenarios of the router: whole systems in network namespaces, with a kernel's stack at both ends.
//!
//! One file is one scenario; `cargo test -p manylane --test netns ping::` runs its tests. The tests need root, and
//! print `SKIPPED` without it.
//!
//! All share one process, so none may change what belongs to it: signals, environment, working folder, limits,
//! privileges. A scenario that needs those starts the command (`Running`). Run more than a few with
//! `-- --test-threads=1`: when a child of one scenario ends, its SIGCHLD can interrupt a socket's wait in another
//! (signal(7): with a timeout, a socket answers EINTR).

mod baseline;
mod capture;
mod carrier;
mod config;
mod demo;
mod drivers;
mod first_packet;
mod fragments;
mod frames;
mod groups;
mod handoff;
mod hop_limit;
mod http;
mod idle;
mod jumbo;
mod mirror;
mod neighbours;
mod no_route;
mod not_for_us;
mod own_addresses;
mod ping;
mod privileges;
mod scan;
mod scenario;
mod sflow;
mod show;
mod silent_neighbour;
mod tcp;
mod too_big;
mod two_daemons;
mod two_workers;
mod tx_queue;
mod udp;
mod vlans;
mod wraps;
