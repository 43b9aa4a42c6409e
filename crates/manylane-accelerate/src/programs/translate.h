/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the translation of a flow does to a packet: addresses, ports, and the sums over them (RFC 1624). `manylane-net` has
 * the same in transit/flows/translate.rs. The caller has decided that the packet is forwarded.
 */
#ifndef MANYLANE_PROGRAMS_TRANSLATE_H
#define MANYLANE_PROGRAMS_TRANSLATE_H

#include "decide.h"

/* What the packet's entry says of its translation. */
struct translation {
	/* IPv4's addresses, and ports, as they lie in memory. */
	__u64 addresses;
	__u32 ports;
	/* What is added to sums for the addresses, and for the ports. */
	__u32 for_addresses, for_ports;
	/* IPv6's destination and source are the source and destination of what comes the other way. */
	const __u64 *other;
};

/* Whether the flow is translated; then how. */
static __always_inline int is_translated(__u32 place, struct translation *translation)
{
	const __u64 *entry = flow_at(place);
	__u64 ports;

	if (!entry || !(LOAD(entry[FLOW_STATE]) >> 48 & FLOW_TRANSLATED))
		return 0;
	ports = LOAD(entry[FLOW_NEW_PORTS]);
	translation->addresses = LOAD(entry[FLOW_NEW_ADDRESSES]);
	translation->ports = ports;
	translation->for_addresses = ports >> 32 & 0xffff;
	translation->for_ports = ports >> 48;
	translation->other = flow_addresses_at(other_flow(entry));
	return translation->other != 0;
}

/* A checksum over what has changed so that its sum is larger by `by`. */
static __always_inline __u16 with_sum(__u16 checksum, __u32 by)
{
	__u32 sum = (__u16)~checksum + by;

	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

/* Writes addresses and ports, and IPv4's header checksum. `header` and what it leads to is there. */
static __always_inline void translate4(__u32 *header, __u32 *ports, const struct translation *translation)
{
	__u16 *checksum = (__u16 *)header + 5;

	*checksum = with_sum(*checksum, translation->for_addresses);
	header[3] = translation->addresses;
	header[4] = translation->addresses >> 32;
	*ports = translation->ports;
}

static __always_inline void translate6(__u32 *header, __u32 *ports, const struct translation *translation)
{
	__u64 addresses[4] = { LOAD(translation->other[2]), LOAD(translation->other[3]), LOAD(translation->other[0]),
			       LOAD(translation->other[1]) };

	__builtin_memcpy(header + 2, addresses, 32);
	*ports = translation->ports;
}

/* The whole of it for a frame whose checksum is complete; 0 if the headers are not there, and nothing is written. */
static __always_inline int translate(void *data, const void *end, const struct decision *decision,
				     const struct translation *translation)
{
	__u32 *header = data + LINK_HEADER;
	void *transport = (void *)header + (decision->is_ipv6 ? HEADER_V6 : HEADER_V4);
	int is_tcp = (decision->key.ends >> 32 & 0xff) == PROTOCOL_TCP;
	__u32 by = translation->for_addresses + translation->for_ports;
	__u16 *checksum;

	if (decision->is_ipv6) {
		transport = (void *)header + HEADER_V6;
		checksum = transport + (is_tcp ? CHECKSUM_TCP : CHECKSUM_UDP);
		if ((void *)(checksum + 1) > end)
			return 0;
		translate6(header, transport, translation);
	} else {
		transport = (void *)header + HEADER_V4;
		checksum = transport + (is_tcp ? CHECKSUM_TCP : CHECKSUM_UDP);
		if ((void *)(checksum + 1) > end)
			return 0;
		translate4(header, transport, translation);
	}
	if (is_tcp)
		*checksum = with_sum(*checksum, by);
	else if (*checksum) {
		/* 0 would say that the sender computed none (RFC 768). */
		__u16 sum = with_sum(*checksum, by);

		*checksum = sum ? sum : 0xffff;
	}
	return 1;
}

#endif
