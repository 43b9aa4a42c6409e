//! Traces: the next packets that match a filter, with all that is done with each of them.
//!
//! Workers look at packets one by one only while a client wants a trace, and then only at those it is about: at
//! the receive point a packet that matches gets a number (`manylane_frame::Trace`), which its frames keep, and
//! which what is made of it has, too. A worker that does something with a numbered packet records
//! that in a ring of its own; this room puts the records together.
//!
//! | file              | what                                                                   |
//! |-------------------|------------------------------------------------------------------------|
//! | `stage`           | [`Stage`]: what was done with a packet, as a worker records it         |
//! | `control`         | [`Traces`]: one trace at a time, begun and ended; [`Trace`]: reading it |
//! | `shown`           | a stage in words: names for numbers, and the route's prefix            |
//! | `header`          | a packet's headers in a line                                           |
//! | `together`        | packets put together of their stages; whether a packet has ended       |
//! | `text`            | a packet as people read it                                             |
//! | `command`         | `manylane trace`                                                       |
//! | `worker/trace.rs` | the workers' side                                                      |
//! | `net`'s `forward/explain.rs` | what the tables say of a packet                             |
//!
//! No packet is numbered before every worker has heard of the trace: control publishes it, lets a grace period
//! pass, and only then says that packets may be. So each is followed from its first stage to its last. Only some
//! get a number between two reads, so that the rings have places; of more traffic than that, it is the next ones. A
//! frame's number is of one session, and means nothing in another: what is still on its way when a trace ends is passed
//! on as any other packet.

mod control;
mod shown;
#[cfg(test)]
mod tests;
pub mod text;
pub mod together;

pub use control::{Trace, TraceError, Traces, Tracing};
pub use manylane_worker::recorder::{PACKETS_MAX, TracePort, Wanted};
pub use manylane_worker::stage::{HEADER_LEN_MAX, Header, Made, Stage, What};
pub use shown::{Names, shown};
