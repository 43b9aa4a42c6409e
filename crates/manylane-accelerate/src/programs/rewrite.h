/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What forwarding does to a packet: its link header is the record's, and it is one hop older. The headers are
 * there: `decide` has looked.
 */
#ifndef MANYLANE_PROGRAMS_REWRITE_H
#define MANYLANE_PROGRAMS_REWRITE_H

#include "decide.h"

/* What the sum of an IPv6 packet becomes less by: one of the lower byte of its second word of 32 bits. */
#define DECREMENT_V6 bpf_htons(1)

/* Writes the 12 bytes of Ethernet addresses. */
static __always_inline void write_addresses(void *frame, const __u32 *record)
{
	__u32 *addresses = frame;

	addresses[0] = LOAD(record[RECORD_ADDRESSES]);
	addresses[1] = LOAD(record[RECORD_ADDRESSES + 1]);
	addresses[2] = LOAD(record[RECORD_ADDRESSES + 2]);
}

/* Counts the TTL down and keeps the header checksum right, by RFC 1624: their two words grow by -1 and 1, in
 * the byte order in which the TTL is the lower byte of its (RFC 1071 §2), with the carry brought around. */
static __always_inline void rewrite4(void *frame, const __u32 *record)
{
	__u32 *word = frame + LINK_HEADER + 8;

	*word += *word >= 0xfffe0000 ? 0x0001ffff : 0x0000ffff;
	write_addresses(frame, record);
}

static __always_inline void rewrite6(void *frame, const __u32 *record)
{
	*(__u8 *)(frame + LINK_HEADER + 7) -= 1;
	write_addresses(frame, record);
}

/* The queueing priority of an IPv4 packet, as the kernel's rt_tos2priority has it: best effort, bulk,
 * interactive, interactive bulk, by the two lower bits of the precedence-less type of service. */
static __always_inline __u32 priority4(__u8 tos)
{
	return 0x4620 >> (tos >> 3 & 3) * 4 & 0xf;
}

#endif
