/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Whether a frame's TCP or UDP checksum is still to be filled in. A sender that leaves the checksum to its device
 * writes the folded sum of the pseudo-header in its place, not inverted (CHECKSUM_PARTIAL). Beside the bytes stands
 * that the checksum is open; a program in the driver sees the bytes only, and would send the frame so. `manylane-net`
 * has the same in transit/partial.rs.
 *
 * | a frame                                   | is                                                           |
 * |-------------------------------------------|--------------------------------------------------------------|
 * | TCP or UDP, with that sum in its place    | partial                                                      |
 * | complete, with that sum by chance         | partial, too: one in 65,535, and `ingress.bpf.c` forwards it |
 * | UDP without a checksum (0)                | complete: a folded sum is never 0                            |
 * | an IPv4 fragment; IPv6 with extension headers; any other protocol | complete                             |
 *
 * A complete UDP datagram over IPv4 costs 37 instructions, which read bytes that `decide` has read, or are beside them.
 */
#ifndef MANYLANE_PROGRAMS_PARTIAL_H
#define MANYLANE_PROGRAMS_PARTIAL_H

#include "decide.h"

#define LENGTH_UDP 4

/* Whether the checksum is the sum of the rest of the pseudo-header. As in `decide4`: they are equal modulo 0xffff, and
 * neither is 0. */
static __always_inline int is_sum(__u64 sum, __u32 checksum)
{
	return checksum && (sum + 0xffff - checksum) * 0xfffefffefffeffffull <= ~0ull / 0xffff;
}

/* `sum` is that of the addresses, the frame from `header_len` on is TCP or UDP. `protocol` and lengths are as 16 bits
 * of the pseudo-header lie in memory. */
static __always_inline int is_partial_transport(const struct packet *packet, __u32 header_len, __u32 protocol,
						__u32 len, __u64 sum)
{
	const void *at = packet->data + LINK_HEADER + header_len;
	__u32 word;

	if (protocol == PROTOCOL_UDP << 8) {
		if (at + LENGTH_UDP + 4 > packet->end)
			return 0;
		/* Its length, which the pseudo-header has too, and its checksum. */
		word = *(const __u32 *)(at + LENGTH_UDP);
		return is_sum(sum + (PROTOCOL_UDP << 8) + (word & 0xffff), word >> 16);
	}
	if (protocol != PROTOCOL_TCP << 8 || at + CHECKSUM_TCP + 2 > packet->end)
		return 0;
	return is_sum(sum + (PROTOCOL_TCP << 8) + len, *(const __u16 *)(at + CHECKSUM_TCP));
}

/* Of a frame that `decide` forwards. HEADERS_FLOW bytes of it, or all if it is shorter, are to be seen. */
static __always_inline int is_partial(const struct packet *packet, int is_ipv6)
{
	const __u32 *header = packet->data + LINK_HEADER;

	if (is_ipv6) {
		if ((void *)header + HEADER_V6 > packet->end)
			return 0;
		return is_partial_transport(packet, HEADER_V6, header[1] >> 8 & 0xff00, header[1] & 0xffff,
					    (__u64)header[2] + header[3] + header[4] + header[5] + header[6] +
						    header[7] + header[8] + header[9]);
	}
	if ((void *)header + HEADER_V4 > packet->end || header[1] >> 16 & FRAGMENT_V4)
		return 0;
	return is_partial_transport(packet, HEADER_V4, header[2] & 0xff00,
				    bpf_htons(bpf_ntohs(header[0] >> 16) - HEADER_V4), (__u64)header[3] + header[4]);
}

#endif
