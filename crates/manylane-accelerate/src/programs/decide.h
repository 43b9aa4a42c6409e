/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Whether a packet is transit that the kernel would do nothing to but route it, and which way it goes. Nothing
 * is written. The checks are those of `manylane-net` (forward/) and may be stricter, never laxer: what fails
 * one is the kernel's, with the verdict counted. The checks follow in the order of this file.
 *
 * What the program knows of a packet beside its bytes is in `struct packet`, so that this can be included where
 * no `__sk_buff` exists. A file that includes this one defines
 *
 *     LOAD_BYTES(context, at, to, len)   load bytes of the frame, wherever they are; 0 if they are there
 *     NOW()                              the kernel's ticks (jiffies)
 *
 * and makes sure that HEADERS_FLOW bytes of the frame, or all if it is shorter, lie between `data` and `end`.
 */
#ifndef MANYLANE_PROGRAMS_DECIDE_H
#define MANYLANE_PROGRAMS_DECIDE_H

#include <bpf/bpf_endian.h>

#include "fib.h"
#include "flow.h"
#include "flow_table.h"
#include "rules.h"
#include "tables.h"

#define LINK_HEADER 14
#define HEADER_V4 20
#define HEADER_V6 40
#define HEADER_TCP 20
#define HEADER_UDP 8
/* Where checksums stand in these; in UDP's it is behind the length. */
#define CHECKSUM_TCP 16
#define CHECKSUM_UDP 6
/* What is looked at of every packet, and of those that need a flow. */
#define HEADERS (LINK_HEADER + HEADER_V6)
#define HEADERS_FLOW (HEADERS + HEADER_TCP)

#define TYPE_IPV4 bpf_htons(0x0800)
#define TYPE_IPV6 bpf_htons(0x86dd)

/* Of the word of flags and offset, as it lies in memory. */
#define FRAGMENT_V4 bpf_htons(0x3fff)

/* The shortest Ethernet frame, without its checksum: senders pad to it. */
#define ETHERNET_MIN 60

/* Extension headers in front of TCP that are walked, and where a frame's headers end at the latest. */
#define EXTENSIONS 6
#define HEADERS_MAX 512

struct packet {
	void *data, *end;
	/* Handed to LOAD_BYTES. */
	void *context;
	/* The ingress interface, and its VLAN, if it has a tag, which is not in the bytes. Both in one word of the stack,
	 * which nothing reads behind the first checks: the verifier follows each of their values as long as it is read. */
	__u32 interface;
	__u8 is_tagged, is_802_1ad;
	__u16 vid;
	/* Bytes of payload in each of the segments that it stands for; 0 when it stands for itself. */
	__u32 gso_size;
	/* The length in bytes. */
	__u32 len;
};

/* The decision upon a packet. `decide` begins it; the caller need not, since most of it is for flows alone. */
struct decision {
	/* The number plus one of its entry in the flow table; 0 if it has none, or needs none. */
	__u32 flow;
	/* TCP: it opens, closes or resets the connection. */
	__u8 closes;
	__u8 has_payload;
	/* The packet needs an entry, has none or one for another port, and is as those of a connection that has one. */
	__u8 is_candidate;
	__u8 unused;
	/* The ingress port's number; the VLAN's port, if the packet has a tag. */
	__u32 ingress;
	/* What follows is there when it is forwarded. */
	__u32 is_ipv6;
	const __u32 *record;
	/* Of a packet with a flow, bytes from the IP header on: padding is not counted. */
	__u32 len;
	/* Where its entry is looked for. */
	struct flow_key key;
};

/* The words of a port. */
static __always_inline const __u32 *port_at(__u32 port)
{
	return &ports[(port & (PORTS - 1)) * PORT_WORDS];
}

/* Whether a packet of `len` bytes does not fill its frame: it is longer, or bytes beyond Ethernet's padding follow, which
 * the kernel would cut off. Without a branch: the verifier would follow short frames and others apart from here on. */
static __always_inline int has_other_len(const struct packet *packet, __u32 len)
{
	__s64 more = (__s64)packet->len - LINK_HEADER - len, none = -more, padded = ETHERNET_MIN - (__s64)packet->len;

	/* So that the compiler makes no branches of the signs. */
	BOUNDED(more);
	BOUNDED(none);
	BOUNDED(padded);
	return (more | (none & padded)) < 0;
}

/* Checks the rest of an IPv4 header with options, whose first 20 bytes add up to `sum`. */
static __noinline int options4(void *context, __u32 header_len, __u64 sum)
{
	__u32 at, word;

	for (at = HEADER_V4; at < 60 && at < header_len; at += 4) {
		if (LOAD_BYTES(context, LINK_HEADER + at, &word, 4))
			return MALFORMED;
		sum += word;
	}
	return sum % 0xffff ? BAD_CHECKSUM : OPTIONS;
}

/* Whether an IPv4 address, as it lies in memory, is none that a router forwards to or from by itself. */
static __always_inline int is_martian4(__u32 address)
{
	__u8 first = address;

	return first == 0 || first == 127 || first >= 240;
}

static __always_inline int is_group4(__u32 address)
{
	return (address & 0xf0) == 0xe0;
}

/* For IPv6, by the halves of an address: unspecified, loopback, IPv4-mapped, link-local. */
static __always_inline int is_martian6(__u64 upper, __u64 lower)
{
	if (upper == 0)
		return lower <= 1 || lower >> 32 == 0xffff;
	return upper >> 54 == 0x3fa; /* fe80::/10 */
}

static __always_inline int is_group6(__u64 upper)
{
	return upper >> 56 == 0xff;
}

/* Whether an IPv4 source with this next hop is valid here. Never one of our own addresses (fib_validate_source); by
 * rp_filter, one to which the route leads out by the ingress port, or anywhere when that is enough. */
static __always_inline int passes_reverse_path(__u32 id, __u32 ingress, __u32 flags)
{
	__u64 hop = LOAD(next_hops[id & (NEXT_HOPS - 1)]);
	__u32 kind = hop & 0xff, number = hop >> 32;

	/* What is not known could be one of these. */
	if (kind == HOP_LOCAL || kind == HOP_BROADCAST || id == UNKNOWN)
		return 0;
	if (!(flags & (RP_STRICT | RP_LOOSE)))
		return 1;
	if (!(flags & RP_STRICT))
		return kind == HOP_VIA || kind == HOP_CONNECTED || kind == HOP_GROUP;
	if (kind == HOP_CONNECTED)
		return number == ingress;
	if (kind != HOP_VIA)
		return 0; /* The members of a group are not searched. */
	number = LOAD(record_of[number & (SLOTS - 1)]) & (RECORDS - 1);
	return number && LOAD(records[number * RECORD_WORDS + RECORD_PORT]) == ingress;
}

/* Whether an IPv4 source may be one of our own addresses: a table of 8 KiB in place of that of all routes, for nearly
 * all packets. */
static __always_inline int may_be_local(__u32 source)
{
	__u32 bit = source * 0x9e3779b1 >> 16;

	return LOAD(own4[bit / 64]) >> bit % 64 & 1;
}

static __always_inline __u32 tos4(const __u32 *header)
{
	return header[0] >> 8 & 0xff;
}

static __noinline int source_is_valid(__u32 source, __u32 ingress, __u32 flags)
{
	return passes_reverse_path(lookup4(bpf_ntohl(source)), ingress, flags);
}

/* The check by rules. The kernel evaluates them for a packet in the reverse direction, received where this one leaves. */
static __noinline int source_is_valid_by_rules(const __u32 *header, __u32 destination, __u32 egress, __u32 ingress, __u32 flags)
{
	__u32 source = bpf_ntohl(header[3]);
	int id = by_rules4(bpf_ntohl(destination), source, (__u64)egress << 8 | tos4(header), lookup4(source),
			   LOAD(control[CONTROL_RULES]) & 0xffff);

	if (id < 0)
		return id != -KERNEL_ROUTE && !(flags & (RP_STRICT | RP_LOOSE));
	return kind_of(id) != HOP_KERNEL && passes_reverse_path(id, ingress, flags);
}

/* Why a packet is the kernel's whose route leads to no neighbour. */
static __always_inline enum verdict not_a_neighbour(__u32 kind)
{
	switch (kind) {
	case HOP_BLACKHOLE:
	case HOP_UNREACHABLE:
	case HOP_PROHIBIT:
		return NOWHERE;
	case HOP_CONNECTED:
		return UNRESOLVED;
	case HOP_LOCAL:
	case HOP_BROADCAST:
		return LOCAL;
	case HOP_KERNEL:
		return KERNEL_ROUTE;
	default:
		return NO_ROUTE;
	}
}

/* How many bytes of L3 the largest of the segments has that a packet stands for; a verdict below 0, if that
 * cannot be known. The packet has `len` bytes of L3. */
static __noinline int segment_len(void *context, __u32 protocol, __u32 at, __u32 len, __u32 gso_size)
{
	__u8 header[4], data_offset;
	int step;

	/* Only IPv6 has extension headers; 51, 60 and such in IPv4 are not TCP either. */
	for (step = 0; at >= HEADER_V6 && is_extension(protocol); step++) {
		/* A fragment is no segment; hop-by-hop options elsewhere than in front are none. */
		if (step == EXTENSIONS || protocol == PROTOCOL_FRAGMENT ||
		    protocol == PROTOCOL_HOP_BY_HOP ||
		    LOAD_BYTES(context, LINK_HEADER + at, header, 4))
			return -EXTENSION;
		at += protocol == PROTOCOL_AUTHENTICATION ? (header[1] + 2) * 4 : (header[1] + 1) * 8;
		if (at > len)
			return -EXTENSION;
		protocol = header[0];
	}
	if (protocol != PROTOCOL_TCP || at + HEADER_TCP > len ||
	    LOAD_BYTES(context, LINK_HEADER + at + 12, &data_offset, 1))
		return -SEGMENTS;
	at += (data_offset >> 4) * 4;
	if ((data_offset >> 4) * 4 < HEADER_TCP || at > len)
		return -SEGMENTS;
	if (LINK_HEADER + at > HEADERS_MAX)
		return -EXTENSION;
	return at + (gso_size & 0xffff);
}

/* What a group wants to know of the packet with this header, of `len` bytes, to this address. */
static __always_inline void describe_flow(struct flow *flow, const __u32 *header, const void *destination, int is_ipv6,
					  __u32 len)
{
	__u64 multipath = LOAD(control[CONTROL_MULTIPATH]);

	if (is_ipv6) {
		__builtin_memcpy(flow->source, header + 2, 16);
		__builtin_memcpy(flow->destination, destination, 16);
		flow->protocol = header[1] >> 16;
		flow->hashes_ports = (multipath & PORTS_HASHED_V6) != 0;
	} else {
		flow->source[0] = header[3];
		flow->destination[0] = *(const __u32 *)destination;
		flow->protocol = header[2] >> 8;
		flow->is_fragment = (header[1] >> 16 & FRAGMENT_V4) != 0;
		flow->hashes_ports = (multipath & PORTS_HASHED_V4) != 0;
	}
	flow->is_ipv6 = is_ipv6;
	flow->transport_at = LINK_HEADER + (is_ipv6 ? HEADER_V6 : HEADER_V4);
	flow->transport_len = len - (is_ipv6 ? HEADER_V6 : HEADER_V4);
}

/* Whether a flow is approved for packets that leave by this port. */
static __always_inline int leaves_by(__u32 place, __u32 egress)
{
	const __u64 *entry = flow_at(place);

	return entry && (LOAD(entry[FLOW_STATE]) >> 40 & 0xff) == egress;
}

/* From the route of the destination on: `id` is its next hop. The packet with this header has `len` bytes. `destination`
 * is as it is routed, which a flow may translate. */
static __always_inline enum verdict route_out(const struct packet *packet, struct decision *decision, __u32 flags, __u32 id,
					      const __u32 *header, const void *destination, int is_ipv6, __u32 len)
{
	__u64 hop = LOAD(next_hops[id & (NEXT_HOPS - 1)]);
	__u32 kind = hop & 0xff, slot = hop >> 32, number, egress;
	const __u32 *record;

	if (kind != HOP_VIA) {
		struct flow flow = {};
		int chosen;

		if (kind != HOP_GROUP)
			return not_a_neighbour(kind);
		if (!(LOAD(control[CONTROL_MULTIPATH]) & (is_ipv6 ? MULTIPATH_V6 : MULTIPATH_V4)))
			return MULTIPATH;
		describe_flow(&flow, header, destination, is_ipv6, len);
		chosen = member(packet->context, &flow, slot);
		if (chosen < 0)
			return MULTIPATH;
		slot = chosen;
	}
	number = LOAD(record_of[slot & (SLOTS - 1)]) & (RECORDS - 1);
	record = &records[number * RECORD_WORDS];
	/* A record is replaced whole. One that was not, because a writer broke that rule, is none. */
	if (!number || LOAD(record[RECORD_STAMP]) != LOAD(record[RECORD_STAMP_AGAIN]))
		return UNRESOLVED;
	if (!is_ipv6) {
		if (LOAD(control[CONTROL_RULES]) & 0xffff ?
			    !source_is_valid_by_rules(header, *(const __u32 *)destination, LOAD(record[RECORD_EGRESS]),
						      decision->ingress, flags) :
			    (flags & (RP_STRICT | RP_LOOSE) || may_be_local(header[3])) &&
				    !source_is_valid(header[3], decision->ingress, flags))
			return REVERSE_PATH;
	}
	egress = LOAD(record[RECORD_PORT]);
	if (decision->flow && !leaves_by(decision->flow, egress))
		return FLOW_PAUSED;
	if (egress == decision->ingress && flags & (is_ipv6 ? REDIRECTS_V6 : REDIRECTS_V4))
		return SAME_PORT;
	if (!(LOAD(port_at(egress)[PORT_FLAGS]) & EGRESS))
		return EGRESS_KERNEL;
	if (packet->gso_size) {
		__u32 is_part = !is_ipv6 && header[1] >> 16 & FRAGMENT_V4;
		int largest = segment_len(packet->context, is_ipv6 ? header[1] >> 16 & 0xff : header[2] >> 8 & 0xff,
					  is_ipv6 ? HEADER_V6 : HEADER_V4, is_part ? 0 : len,
					  packet->gso_size);

		if (largest < 0)
			return -largest;
		len = largest;
	}
	if (len > LOAD(record[RECORD_MTU]))
		return TOO_BIG;
	decision->is_ipv6 = is_ipv6;
	decision->record = record;
	return FORWARDED;
}

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 16
#define TCP_URG 32

/* Whether the transport's header, `at` bytes behind the frame's start, is as conntrack wants it; reads ports and flags.
 * `len` bytes of the packet are behind the IP header. */
static __always_inline int reads_transport(const struct packet *packet, struct decision *decision, __u32 at,
					   __u32 protocol, __u32 len, __u64 is_ipv6)
{
	const void *header = packet->data + at;
	__u32 flags, offset;

	if (header + HEADER_UDP > packet->end || len < HEADER_UDP)
		return 0;
	decision->key.ends = *(const __u32 *)header | (__u64)protocol << 32 | is_ipv6 << 40;
	if (protocol == PROTOCOL_UDP) {
		decision->has_payload = 1;
		return bpf_ntohs(*(const __u16 *)(header + 4)) == len;
	}
	if (protocol != PROTOCOL_TCP || header + HEADER_TCP > packet->end)
		return 0;
	offset = (*(const __u8 *)(header + 12) >> 4) * 4;
	flags = *(const __u8 *)(header + 13);
	if (offset < HEADER_TCP || offset > len)
		return 0;
	decision->has_payload = len > offset;
	decision->closes = (flags & (TCP_FIN | TCP_SYN | TCP_RST)) != 0;
	return decision->closes || (flags & (TCP_ACK | TCP_URG)) == TCP_ACK;
}

/* Finds the packet's entry, and whether the packet may follow it. */
static __always_inline enum verdict follows_flow(struct decision *decision, int is_ipv6)
{
	const __u64 *entry;
	__u64 state;

	decision->flow = find_flow(&decision->key, is_ipv6);
	entry = flow_at(decision->flow);
	if (!decision->flow || !entry) {
		decision->flow = 0;
		decision->is_candidate = !decision->closes;
		return NO_FLOW;
	}
	state = LOAD(entry[FLOW_STATE]);
	if (decision->closes || FLOW_CLOSES(entry))
		return FLOW_PAUSED;
	if ((state >> 32 & 0xff) != decision->ingress) {
		/* Answers may arrive by another uplink: the daemon may approve the direction for this port in place of that one. */
		decision->is_candidate = 1;
		return FLOW_PAUSED;
	}
	return (__u32)state == LOAD(control[CONTROL_FLOWS]) >> 32 ? FORWARDED : FLOW_PAUSED;
}

/* Finds the flow of a packet that needs one, and the destination by which it is routed: route and way back see the source
 * as it came and the destination as it is translated, as in the kernel, which translates sources at the very end. Returns a verdict
 * below 0, if it has no flow to follow. */
static __noinline int by_flow4(const struct packet *packet, struct decision *decision, __u32 flags, __u32 *destination)
{
	const __u32 *header = packet->data + LINK_HEADER;
	const __u64 *entry;
	__u32 len;
	int verdict;

	if ((void *)header + HEADER_V4 > packet->end)
		return -MALFORMED;
	len = bpf_ntohs(header[0] >> 16);
	if (header[1] >> 16 & FRAGMENT_V4 ||
	    !reads_transport(packet, decision, LINK_HEADER + HEADER_V4, header[2] >> 8 & 0xff, len - HEADER_V4, 0))
		return -NO_FLOW;
	decision->key.addresses[0] = header[3] | (__u64)header[4] << 32;
	decision->key.addresses[1] = decision->key.addresses[2] = decision->key.addresses[3] = 0;
	verdict = follows_flow(decision, 0);
	entry = flow_at(decision->flow);
	if (verdict != FORWARDED)
		return -verdict;
	if (!entry)
		return -NO_FLOW; /* The entry was there a moment ago. */
	/* A rule of the firewall that looks at the way back evaluates rules of the policy in a way of its own. */
	if (flags & RP_STRICT && LOAD(control[CONTROL_RULES]) & 0xffff)
		return -KERNEL_ROUTE;
	*destination = LOAD(entry[FLOW_NEW_ADDRESSES]) >> 32;
	decision->len = len;
	return 0;
}

/* Whether a route to an IPv6 source leads out by the ingress port, where a rule of the firewall wants that. */
static __noinline int source_is_valid6(const __u64 *address, __u32 ingress)
{
	return passes_reverse_path(lookup6(bpf_be64_to_cpu(address[0]), bpf_be64_to_cpu(address[1])), ingress, RP_STRICT);
}

/* As `by_flow4`, for IPv6. */
static __noinline int by_flow6(const struct packet *packet, struct decision *decision, __u32 flags, __u64 *destination)
{
	const __u32 *header = packet->data + LINK_HEADER;
	const __u64 *entry, *other, *addresses;
	__u32 len;
	int verdict, word;

	if ((void *)header + HEADER_V6 > packet->end)
		return -MALFORMED;
	len = HEADER_V6 + bpf_ntohs(header[1] & 0xffff);
	if (!reads_transport(packet, decision, LINK_HEADER + HEADER_V6, header[1] >> 16 & 0xff, len - HEADER_V6, 1))
		return -NO_FLOW;
	addresses = (const __u64 *)(header + 2);
	/* Word by word, as the hash reads them: a load of what two stores have written waits for both. */
#pragma unroll
	for (word = 0; word < 4; word++)
		decision->key.addresses[word] = addresses[word];
	verdict = follows_flow(decision, 1);
	entry = flow_at(decision->flow);
	if (verdict != FORWARDED)
		return -verdict;
	if (!entry)
		return -NO_FLOW;
	if (flags & RP_STRICT_V6) {
		if (LOAD(control[CONTROL_RULES]) >> LISTS_V6 & 0xffff)
			return -KERNEL_ROUTE;
		if (!source_is_valid6(decision->key.addresses, decision->ingress))
			return -REVERSE_PATH;
	}
	decision->len = len;
	if (LOAD(entry[FLOW_STATE]) >> 48 & FLOW_TRANSLATED) {
		/* The destination is the source of what comes the other way. */
		other = flow_addresses_at(other_flow(entry));
		if (!other)
			return -NO_FLOW;
		destination[0] = LOAD(other[0]);
		destination[1] = LOAD(other[1]);
	}
	return 0;
}

static __always_inline enum verdict decide4(const struct packet *packet, struct decision *decision, __u32 flags)
{
	const __u32 *header = packet->data + LINK_HEADER;
	__u32 first, header_len, len, source, destination, list;
	__u64 sum;
	int id;

	if ((void *)header + HEADER_V4 > packet->end)
		return MALFORMED;
	first = header[0];
	source = header[3];
	destination = header[4];
	header_len = (first & 0xf) * 4;
	len = bpf_ntohs(first >> 16);
	if ((first & 0xf0) != 0x40 || header_len < HEADER_V4 || len < header_len || has_other_len(packet, len))
		return MALFORMED;
	/* The ones-complement sum of a right header is 0xffff (RFC 1071), and that of longer words is the same
	 * modulo 0xffff (§2); it is not 0, since the version is not. */
	sum = (__u64)first + header[1] + header[2] + source + destination;
	if (header_len > HEADER_V4)
		return options4(packet->context, header_len, sum);
	/* Multiples of 0xffff become the numbers up to the largest quotient when multiplied by the inverse. */
	if (sum * 0xfffefffefffeffffull > ~0ull / 0xffff)
		return BAD_CHECKSUM;
	if (!(flags & FORWARDING_V4))
		return NOT_FORWARDING;
	if (is_martian4(source) || is_group4(source) || is_martian4(destination))
		return MARTIAN;
	if (is_group4(destination))
		return GROUP_ADDRESS;
	if ((header[2] & 0xff) <= 1)
		return EXPIRED;
	if (LOAD(control[CONTROL_FLOWS]) & FLOWS_V4) {
		id = by_flow4(packet, decision, flags, &destination);
		if (id < 0)
			return -id;
	}
	id = lookup4(bpf_ntohl(destination));
	list = LOAD(control[CONTROL_RULES]) & 0xffff;
	if (list) {
		__u64 interface = LOAD(port_at(decision->ingress)[PORT_INTERFACE]);

		id = by_rules4(bpf_ntohl(source), bpf_ntohl(destination), interface << 8 | tos4(header), id, list);
		if (id < 0)
			return -id;
	}
	return route_out(packet, decision, flags, id, header, &destination, 0, len);
}

static __always_inline enum verdict decide6(const struct packet *packet, struct decision *decision, __u32 flags)
{
	const __u32 *header = packet->data + LINK_HEADER;
	__u64 address[2], upper, lower;
	__u32 protocol, len, list;
	int id;

	if ((void *)header + HEADER_V6 > packet->end)
		return MALFORMED;
	len = HEADER_V6 + bpf_ntohs(header[1] & 0xffff);
	if ((header[0] & 0xf0) != 0x60 || has_other_len(packet, len))
		return MALFORMED;
	protocol = header[1] >> 16 & 0xff;
	if (protocol == PROTOCOL_HOP_BY_HOP || protocol == PROTOCOL_ROUTING)
		return OPTIONS;
	if (!(flags & FORWARDING_V6))
		return NOT_FORWARDING;
	__builtin_memcpy(address, header + 2, 16);
	upper = bpf_be64_to_cpu(address[0]);
	if (is_martian6(upper, bpf_be64_to_cpu(address[1])) || is_group6(upper))
		return MARTIAN;
	__builtin_memcpy(address, header + 6, 16);
	upper = bpf_be64_to_cpu(address[0]);
	lower = bpf_be64_to_cpu(address[1]);
	if (is_martian6(upper, lower))
		return MARTIAN;
	if (is_group6(upper))
		return GROUP_ADDRESS;
	if (header[1] >> 24 <= 1)
		return EXPIRED;
	if (LOAD(control[CONTROL_FLOWS]) & FLOWS_V6) {
		id = by_flow6(packet, decision, flags, address);
		if (id < 0)
			return -id;
		upper = bpf_be64_to_cpu(address[0]);
		lower = bpf_be64_to_cpu(address[1]);
	}
	id = lookup6(upper, lower);
	list = LOAD(control[CONTROL_RULES]) >> LISTS_V6 & 0xffff;
	if (list) {
		__u64 interface = LOAD(port_at(decision->ingress)[PORT_INTERFACE]);
		__u32 tos = (header[0] & 0xf) << 4 | (header[0] >> 12 & 0xf);

		id = by_rules6(header + 2, address, interface << 8 | tos, id, list);
		if (id < 0)
			return -id;
	}
	return route_out(packet, decision, flags, id, header, address, 1, len);
}

static __always_inline enum verdict decide(const struct packet *packet, struct decision *decision)
{
	const __u8 *frame = packet->data;
	const __u32 *ingress;
	__u32 flags;
	__u16 type;

	decision->flow = 0;
	decision->closes = decision->has_payload = decision->is_candidate = decision->unused = 0;
	/* For the verifier, which does not know that no other verdict is FORWARDED where a function has returned it. */
	decision->record = records;
	decision->ingress = packet->interface < INTERFACES ? LOAD(port_of[packet->interface]) & (PORTS - 1) : 0;
	flags = LOAD(port_at(decision->ingress)[PORT_FLAGS]);
	if (!(flags & INGRESS))
		return NOT_INGRESS;
	if (NOW() >= LOAD(control[CONTROL_LEASE_TICKS]))
		return LAPSED;
	if (packet->is_tagged) {
		__u32 row = decision->ingress * 2 + (packet->is_802_1ad != 0);
		const __u16 *port = &vlan_port[row * VLANS + (packet->vid & (VLANS - 1))];

		if (!(LOAD(*port) & (PORTS - 1)))
			return UNKNOWN_VLAN;
		/* Read anew: the verifier would follow packets with a tag apart from here on, whose port is never 0. */
		decision->ingress = LOAD(*port) & (PORTS - 1);
		flags = LOAD(port_at(decision->ingress)[PORT_FLAGS]);
		if (!(flags & INGRESS))
			return NOT_INGRESS;
	}
	if ((void *)frame + LINK_HEADER > packet->end)
		return MALFORMED;
	ingress = port_at(decision->ingress);
	if (*(__u32 *)frame != LOAD(ingress[PORT_MAC]) ||
	    *(__u16 *)(frame + 4) != (LOAD(ingress[PORT_MAC + 1]) & 0xffff))
		return frame[0] & 1 ? LINK_GROUP : NOT_FOR_US;
	type = *(__u16 *)(frame + 12);
	if (type == TYPE_IPV4)
		return decide4(packet, decision, flags);
	if (type == TYPE_IPV6)
		return decide6(packet, decision, flags);
	return NOT_IP;
}

#endif
