//! The bytes on the wire, one file per protocol.
//!
//! # Contract
//!
//! **Nothing here panics, whatever the bytes.** What cannot be read is `None` (or a variant of an
//! answer enum), and the caller turns it into a counted drop. `tests/wire.rs` throws arbitrary and
//! damaged packets at every public function.
//!
//! **Checked** means: *every accessor of the view stays inside the bytes and says what the header says.*
//! `View::checked` looks at versions, header lengths and total lengths, and cuts the view to the length the header
//! claims, so Ethernet padding never reaches a payload. `View::checked` does **not** look at checksums, which cost a
//! pass over the bytes and which the caller may have reason to skip: they have methods of their own
//! (`has_valid_checksum`). The two small messages that are useless without their validity rules, [`arp`] and [`nd`],
//! are plain values and wholly verified.
//!
//! **`emit`** writes into the front of a slice and answers how many bytes it wrote; `None` means that
//! the slice is too short or the payload too long, and then nothing has been written.
//!
//! | file         | what                                    | read before changing it              |
//! |--------------|-----------------------------------------|--------------------------------------|
//! | [`ethernet`] | MAC addresses, ether types, the header  | RFC 1112 §6.4, RFC 2464 §7           |
//! | [`arp`]      | which station has this IPv4 address     | RFC 826, RFC 5227 §1.2               |
//! | [`ipv4`]     | header, options, martians               | RFC 791 §3.1, RFC 1812 §5.2.2, §5.3.7|
//! | [`ipv6`]     | header, extension headers, martians     | RFC 8200 §3 and §4, RFC 4291 §2.5    |
//! | [`ip`]       | either version, and where its transport starts |                               |
//! | [`udp`], [`tcp`] | ports, lengths, checksum fields     | RFC 768, RFC 9293 §3.1               |
//! | [`icmp`], [`icmpv6`] | types, codes, echo              | RFC 792, RFC 4443                    |
//! | [`nd`]       | neighbour discovery                     | RFC 4861 §7.1                        |
//! | [`checksum`] | ones' complement sums                   | RFC 1071, RFC 1624                   |
//! | [`repair`]   | completes what a local stack left to its device |                              |
//! | [`flow`]     | one number per flow, same both ways     |                                      |
//! | [`summary`]  | a packet's headers as one line of text  |                                      |
//!
//! Elsewhere: when to send an ICMP error or answer an echo is a rule, not a format: [`crate::icmp`].

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod flow;
pub mod icmp;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod nd;
pub mod protocol;
pub mod repair;
pub mod summary;
pub mod tcp;
pub mod udp;

pub use ethernet::Mac;

/// The big-endian word made of two bytes of a header.
///
/// The headers are arrays, so a wrong constant index does not compile.
#[inline(always)]
const fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
