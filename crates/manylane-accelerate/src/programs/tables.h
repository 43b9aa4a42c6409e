/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The memory that a fast program reads, and the daemon writes with plain stores: one array for each table, in
 * the words of `manylane-net`. Native byte order, which here is little-endian.
 *
 * Each is a BPF array of one element, mapped by the daemon (BPF_F_MMAPABLE). The program has no lookup for it
 * but the element's address, which the loader puts in where the object names the table (`object.rs`): so an
 * access is an addition and a load, and an array of u16 is not eight bytes apart. What is bounded by a mask
 * needs no branch; the others' words are `X_words`, a number that the loader puts in too.
 *
 * | table                                     | index                                                   |
 * |-------------------------------------------|---------------------------------------------------------|
 * | direct4, chunks4                          | fib/v4 of `manylane-net`, packed                        |
 * | blocks4, groups4, ranges4                 | fib/v4, routes longer than /24                          |
 * | direct6, index6, leaves6                  | fib/v6                                                  |
 * | own4                                      | a bit for each hash of an IPv4 address: 0 if it is none of ours |
 * | next_hops                                 | next-hop id: the kind in the low byte, its number from bit 32 |
 * | buckets                                   | group * 512 + bucket: a slot                            |
 * | record_of                                 | slot: a record's number, 0 = none                       |
 * | records                                   | record * 16                                             |
 * | ports                                     | port * 16; port 0 is none                             |
 * | port_of                                   | interface's number: a port, 0 = none                    |
 * | vlan_port                                 | (parent port * 2 + (802.1ad ? 1 : 0)) * 4096 + vid      |
 * | control                                   | CONTROL_...                                             |
 * | rules                                     | (list * 32 + rule) * 16; list 0 is unused             |
 * | roots                                     | further table: its first word in `further`, how many ranges from bit 32 |
 * | further                                   | ranges of further tables, three words each: RANGE_...   |
 * | flow_index, flow_entries, flow_addresses  | `flow_table.h`                                          |
 * | counters                                  | (cpu * 256 + port) * 32 + place: written here           |
 * | samples                                   | 8 + (cpu * 65 + 1 + sample) * 8: written here (`sample.h`) |
 */
#ifndef MANYLANE_PROGRAMS_TABLES_H
#define MANYLANE_PROGRAMS_TABLES_H

#include <linux/types.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checksums and leaves are read as little-endian words"
#endif

/* Words; `memory.rs` has the same numbers. */
#define DIRECT4_WORDS (1 << 16)
#define CHUNKS4_WORDS ((32 << 16) + 128)
#define BLOCKS4_WORDS (1 << 16)
#define DIRECT6_WORDS (1 << 16)
#define OWN_WORDS 1024
#define NEXT_HOPS (1 << 15)
#define SLOTS (1 << 15)
#define GROUPS 512
#define BUCKETS 512
#define RECORDS (1 << 16)
#define RECORD_WORDS 16
#define PORTS 256
#define PORT_WORDS 16
#define INTERFACES (1 << 16)
#define VLANS 4096
#define CONTROL_WORDS 64
#define RULE_LISTS 16
#define RULES 32
#define RULE_WORDS 16
#define TABLES 64
#define FURTHER_WORDS (1 << 20)
#define RANGE_WORDS 3
#define PLACES 32

extern const __u32 direct4[DIRECT4_WORDS];
extern const __u64 chunks4[CHUNKS4_WORDS];
extern const __u32 blocks4[BLOCKS4_WORDS];
extern const __u32 groups4[];
extern const __u32 ranges4[];
extern const __u32 direct6[DIRECT6_WORDS];
extern const __u32 index6[];
extern const __u64 leaves6[];
extern const __u64 own4[OWN_WORDS];
extern const __u64 next_hops[NEXT_HOPS];
extern const __u16 buckets[GROUPS * BUCKETS];
extern const __u32 record_of[SLOTS];
extern const __u32 records[RECORDS * RECORD_WORDS];
extern const __u32 ports[PORTS * PORT_WORDS];
extern const __u16 port_of[INTERFACES];
extern const __u16 vlan_port[PORTS * 2 * VLANS];
extern const __u64 control[CONTROL_WORDS];
extern const __u64 rules[RULE_LISTS * RULES * RULE_WORDS];
extern const __u64 roots[TABLES];
extern const __u64 further[FURTHER_WORDS];
extern __u64 counters[];
extern __u64 samples[];

/* Symbols whose "address" is the number. */
extern const char groups4_words[], ranges4_words[], index6_words[], leaves6_words[], counters_words[],
	samples_words[];

#define NUMBER(symbol) ((__u64)(symbol))

/* One load, where and when it is written: another thread stores here. */
#define LOAD(place) (*(const volatile __typeof__(place) *)&(place))

/* A number that the compiler knows nothing of: what is compared with a bound is then what is used. Without, it may
 * make the address anew from what the number was made of, for which the verifier knows no bound. */
#define BOUNDED(number) asm volatile("" : "+r"(number))

/* Words of `control`. */
#define CONTROL_FLOWS 0 /* Which packets need a flow; from bit 32 the generation of flows that may be followed. */
#define CONTROL_SEED 1
#define CONTROL_MULTIPATH 2
#define CONTROL_LEASE_TICKS 4
#define CONTROL_RULES 3 /* The lists of rules: IPv4's in the lower 16 bits, IPv6's in the next. 0: the usual rules. */
#define FLOWS_V4 1
#define FLOWS_V6 2
#define MULTIPATH_V4 1
#define MULTIPATH_V6 2
#define PORTS_HASHED_V4 4
#define PORTS_HASHED_V6 8

/* Words of a rule. Addresses are two words, an IPv4 one the upper half of the first. */
#define RULE_HEAD 0 /* Action, flags, table from bit 16, type of service from bit 24; from bit 32 its mask. */
#define RULE_INGRESS 1 /* The ingress interface of packets; 0 for any. */
#define RULE_FROM 2
#define RULE_FROM_MASK 4
#define RULE_TO 6
#define RULE_TO_MASK 8
#define RULE_INVERTED (1 << 8)

/* What a rule says of the packets that match. */
enum action {
	ACTION_END = 0, /* The list ends here. */
	ACTION_LOCAL = 1, /* What the merged tables say, if that is said by the local one. */
	ACTION_MERGED = 2, /* What the merged tables say. */
	ACTION_TABLE = 3,
	ACTION_NOWHERE = 4,
	ACTION_KERNEL = 5,
};

/* Words of a range: from this address on, up to the next one's. */
#define RANGE_FIRST 0
#define RANGE_ID 2 /* A next-hop id, 0 for none. */

/* Words of a record. */
#define RECORD_EGRESS 0
#define RECORD_PORT 1
#define RECORD_MTU 2
#define RECORD_FLAGS 3
#define RECORD_ADDRESSES 4 /* 12 bytes: destination and source. */
#define RECORD_STAMP 7
#define RECORD_STAMP_AGAIN 15

/* Words of a port. */
#define PORT_FLAGS 0
#define PORT_INTERFACE 1
#define PORT_MAC 2 /* Four bytes, then two. */

/* Flags of a port. */
#define INGRESS 1
#define EGRESS 2
#define FORWARDING_V4 4
#define FORWARDING_V6 8
#define RP_STRICT 16
#define RP_LOOSE 32
#define REDIRECTS_V4 64
#define REDIRECTS_V6 128
#define RP_STRICT_V6 16384

/* What becomes of a packet, and where that is counted in its ingress port's row. */
enum verdict {
	FORWARDED = 0,
	LAPSED = 1,
	NOT_FOR_US = 2,
	LINK_GROUP = 3,
	NOT_IP = 4,
	UNKNOWN_VLAN = 5,
	MALFORMED = 6,
	BAD_CHECKSUM = 7,
	OPTIONS = 8,
	EXPIRED = 9,
	MARTIAN = 10,
	LOCAL = 11,
	GROUP_ADDRESS = 12,
	NO_ROUTE = 13,
	NOWHERE = 14,
	UNRESOLVED = 15,
	TOO_BIG = 16,
	SAME_PORT = 17,
	REVERSE_PATH = 18,
	NOT_FORWARDING = 19,
	EGRESS_KERNEL = 20,
	MULTIPATH = 21,
	KERNEL_ROUTE = 22,
	EXTENSION = 23,
	SEGMENTS = 24,
	NOT_INGRESS = 25,
	DECISION_CHANGED = 26, /* Of workers. */
	NO_FLOW = 27,
	FLOW_PAUSED = 28,
};

/* Other places: in the egress port's row, and bytes in the ingress port's. */
#define PLACE_BYTES_OUT 29
#define PLACE_PACKETS_OUT 30
#define PLACE_BYTES_IN 31

/* What a next hop is. */
enum next_hop {
	HOP_NONE = 0,
	HOP_VIA = 1,
	HOP_CONNECTED = 2,
	HOP_LOCAL = 3,
	HOP_BROADCAST = 4,
	HOP_BLACKHOLE = 5,
	HOP_UNREACHABLE = 6,
	HOP_PROHIBIT = 7,
	HOP_GROUP = 8,
	HOP_KERNEL = 9,
};

/* The next hop of IPv4 addresses whose routes find no room; always HOP_KERNEL. */
#define UNKNOWN (NEXT_HOPS - 1)

#endif
