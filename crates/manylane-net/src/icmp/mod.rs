//! ICMP and ICMPv6 as a router must speak them: errors, echo, and when to be silent.
//!
//! Read RFC 1812 §4.3 and RFC 4443 §2.4 before changing a rule. The bytes are in
//! [`crate::wire::icmp`] and [`crate::wire::icmpv6`].
//!
//! # An error, made out of the packet it is about
//!
//! | step                                                         | by                |
//! |--------------------------------------------------------------|-------------------|
//! | may this packet be answered with an error at all?            | [`may_answer_v4`], [`may_answer_v6`] |
//! | have we not said enough lately?                              | [`ErrorLimits`]   |
//! | cut the packet to what is quoted of it                       | caller, by [`quote_len_v4`], [`quote_len_v6`] |
//! | open [`ERROR_HEADROOM_V4`] or [`ERROR_HEADROOM_V6`] in front | caller            |
//! | write both headers, addressed to the quoted source           | [`emit_v4_error`], [`emit_v6_error`] |
//! | forward it like any packet of ours                           | caller            |
//!
//! The packet may have been changed by then as forwarding changes it (TTL, header checksum): RFC 1812
//! §4.3.2.3 allows that, and traceroute shows what others do.
//!
//! An echo request for us becomes its reply in place: [`echo_reply_v4`], [`echo_reply_v6`]; or, when it
//! does not lie in one piece, [`turn_echo_v4`], [`turn_echo_v6`] of its front.
//!
//! Nothing here panics, whatever the bytes.

mod echo;
mod error;
mod limit;
mod rules;

pub use echo::{echo_reply_v4, echo_reply_v6, set_source_v6, turn_echo_v4, turn_echo_v6};
pub use error::{
    ERROR_HEADROOM_V4, ERROR_HEADROOM_V6, ErrorKind, emit_v4_error, emit_v6_error, quote_len_v4,
    quote_len_v6,
};
pub use limit::{ErrorLimits, RateLimit};
pub use rules::{may_answer_v4, may_answer_v6};

/// What our own packets start with (RFC 1700 "IP TIME TO LIVE PARAMETER", as Linux).
const TTL: u8 = 64;
