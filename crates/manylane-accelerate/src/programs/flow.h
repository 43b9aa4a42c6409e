/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which member of a group takes a packet: the flow's hash as `manylane-net` has it in wire/flow.rs, and the
 * bucket as in nexthop/group.rs. All numbers are the same, so that a flow that changes its tier stays with its
 * neighbour.
 *
 * | packet                                     | what is hashed                                         |
 * |--------------------------------------------|--------------------------------------------------------|
 * | TCP, UDP, SCTP, DCCP, UDP-Lite             | both ends and the protocol; addresses only by policy 0 |
 * | an IPv4 fragment, also the first           | both addresses                                         |
 * | an ICMP or ICMPv6 error                    | nothing: to the kernel, which looks at what it quotes  |
 * | IPv6 with an extension header in front     | nothing: what stands behind it may be any of these     |
 * | anything else                              | both addresses                                         |
 *
 * A file that includes this one says how bytes are loaded that may not be where the program can see them:
 * LOAD_BYTES(context, at, to, len), 0 if they were.
 */
#ifndef MANYLANE_PROGRAMS_FLOW_H
#define MANYLANE_PROGRAMS_FLOW_H

#include "tables.h"

#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_DCCP 33
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_AUTHENTICATION 51
#define PROTOCOL_ICMPV6 58
#define PROTOCOL_NONE 59
#define PROTOCOL_DESTINATION 60
#define PROTOCOL_SCTP 132
#define PROTOCOL_UDP_LITE 136

/* The packet is the kernel's. No hash has more than 32 bits. */
#define NO_HASH (~0ull)

/* The public multipliers: those of MurmurHash3's finaliser (`fmix64`, by Austin Appleby, public domain), and 2^64 over
 * the golden ratio. Senders know them, so flows are hashed by a key that follows from the accelerator's seed
 * (`FlowKey::seeded`). */
#define ODD_0 0xff51afd7ed558ccdull
#define ODD_1 0xc4ceb9fe1a85ec53ull
#define ODD_2 0x9e3779b97f4a7c15ull

/* The multipliers. */
struct flow_seed {
	__u64 end, sum, port;
};

/* What a group wants to know of a packet. */
struct flow {
	/* The addresses as they lie in memory; of IPv4 in the first word. */
	__u64 source[2], destination[2];
	/* Where the transport begins, counted from the frame's start, and how long it is. */
	__u32 transport_at, transport_len;
	__u8 protocol;
	__u8 is_ipv6;
	__u8 is_fragment;
	__u8 hashes_ports;
};

static __always_inline int is_extension(__u8 protocol)
{
	return protocol == PROTOCOL_HOP_BY_HOP || protocol == PROTOCOL_ROUTING ||
	       protocol == PROTOCOL_FRAGMENT || protocol == PROTOCOL_AUTHENTICATION ||
	       protocol == PROTOCOL_DESTINATION;
}

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP ||
	       protocol == PROTOCOL_DCCP || protocol == PROTOCOL_UDP_LITE;
}

/* Whether a message of this protocol and type reports about another packet. */
static __always_inline int is_error(__u8 protocol, __u8 type)
{
	if (protocol == PROTOCOL_ICMPV6)
		return type < 128;
	return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

static __always_inline __u64 fold(__u64 product)
{
	return product ^ __builtin_bswap64(product);
}

static __always_inline __u64 rotate_left(__u64 word, int by)
{
	return word << by | word >> (64 - by);
}

static __always_inline struct flow_seed seeded(__u64 seed)
{
	struct flow_seed key = {
		.end = (ODD_0 ^ seed) | 1,
		.sum = (((ODD_1 ^ rotate_left(seed, 21)) | 1) & ~0xff000000ull) | 1ull << 32,
		.port = (ODD_2 ^ rotate_left(seed, 42)) | 1,
	};

	return key;
}

static __always_inline __u64 flow_end(const struct flow *flow, const struct flow_seed *key,
				      const __u64 *address, __u64 port)
{
	__u64 network;

	if (!flow->is_ipv6)
		return fold((port << 32 | address[0]) * key->end);
	network = fold(address[0] * key->sum);
	return fold(((network ^ address[1]) + port * key->port) * key->end);
}

static __always_inline __u64 mix(const struct flow *flow, __u64 seed, __u32 port_words, __u8 protocol)
{
	struct flow_seed key = seeded(seed);
	__u64 sum = flow_end(flow, &key, flow->source, port_words & 0xffff) +
		    flow_end(flow, &key, flow->destination, port_words >> 16);

	return ((sum ^ protocol) * key.sum) >> 32;
}

static __always_inline __u64 flow_hash(void *context, const struct flow *flow, __u64 seed)
{
	__u8 protocol = flow->protocol, type;
	__u32 port_words;

	if (flow->is_ipv6 && is_extension(protocol))
		return NO_HASH;
	if (flow->is_fragment)
		return mix(flow, seed, 0, PROTOCOL_NONE);
	if (has_ports(protocol) && flow->hashes_ports && flow->transport_len >= 4) {
		if (LOAD_BYTES(context, flow->transport_at, &port_words, 4))
			return NO_HASH;
		return mix(flow, seed, port_words, protocol);
	}
	/* Their shortest header. */
	if ((protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6) && flow->transport_len >= 8) {
		if (LOAD_BYTES(context, flow->transport_at, &type, 1) || is_error(protocol, type))
			return NO_HASH;
	}
	return mix(flow, seed, 0, PROTOCOL_NONE);
}

static __always_inline __u32 bucket(__u64 seed, __u64 hash)
{
	__u64 word = (hash << 32 | hash) ^ seed;

	word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
	word = (word ^ word >> 27) * 0x94d049bb133111ebull;
	return (word ^ word >> 31) & (BUCKETS - 1);
}

/* The slot of the member that takes the packet; below 0 if that is the kernel's to say. */
static __noinline int member(void *context, const struct flow *flow, __u32 group)
{
	__u64 seed = LOAD(control[CONTROL_SEED]);
	__u64 hash = flow_hash(context, flow, seed);

	if (hash == NO_HASH)
		return -1;
	group &= GROUPS - 1;
	return LOAD(buckets[group * BUCKETS + bucket(seed, hash)]);
}

#endif
