/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lookups of the longest prefix, as `manylane-net` has them in fib/v4 and fib/v6 (tree.rs); what is to be known
 * of the tables is said there. A next-hop id comes back, 0 without a route. An index out of bounds finds no route
 * either; a writer that keeps its word writes none.
 *
 * Nothing here branches on what is found but to leave a loop: with a branch on each comparison the verifier
 * would walk every way through the searches.
 */
#ifndef MANYLANE_PROGRAMS_FIB_H
#define MANYLANE_PROGRAMS_FIB_H

#include "tables.h"

/* Of direct4: a chunk's line. */
#define CHUNK (1u << 31)
#define LINE_WORDS 8
/* Words of a chunk: of bits, then one of counts; where the words of /24s begin, in sixteenths of bits. */
#define BIT_WORDS 4
#define FIRST 20
/* How many words behind its first a chunk may have. */
#define REACH 128

/* Of words of /24s. */
#define LIST 0x8000

/* Of words of direct6 and index6, and of leaves. */
#define LEAF (1u << 31)
#define INDEX (1u << 30)
#define HOST (1u << 29)
#define NEAR (1u << 28)
#define NUMBER_BITS ((1u << 24) - 1)
#define NEAR_WORDS 4
#define NEAR_KEYS 7
#define FAR_WORDS 8
#define FAR_KEYS 5
#define INDEX_WORDS 16
/* A stride takes four bits at least: of the 64 that a half has, or of what a bucket leaves of it. */
#define STEPS_UPPER 12
#define STEPS_LOWER 16

/* Out of line: few /24s have a list. */
static __noinline __u32 in_list4(__u32 address, __u32 number)
{
	__u64 at = (__u64)LOAD(blocks4[address >> 16]) + number;
	__u64 low = address & 0xff, left;
	int step;

	if (at >= NUMBER(groups4_words))
		return 0;
	at = LOAD(groups4[at]);
	if (at >= NUMBER(ranges4_words))
		return 0;
	left = LOAD(ranges4[at]);
	at++;
	/* A list has at most 256 entries; the first one always begins in time. */
	for (step = 0; step < 8 && left > 1; step++) {
		__u64 half = left >> 1, middle = at + half;

		if (middle >= NUMBER(ranges4_words))
			return 0;
		/* All ones if the ingress begins at the address or before, else nothing. */
		at += half & (__u64)((__s64)((LOAD(ranges4[middle]) >> 16) - low - 1) >> 63);
		left -= half;
	}
	if (at >= NUMBER(ranges4_words))
		return 0;
	return LOAD(ranges4[at]) & 0xffff;
}

/* The word of an address's /24, in its /16's chunk: as many words behind the first as bits are set up to the
 * /24's own. */
static __always_inline __u32 in_chunk4(__u32 line, __u32 address)
{
	__u64 at = (__u64)line * LINE_WORDS, place;
	__u32 part = address >> 14 & (BIT_WORDS - 1);

	BOUNDED(at);
	if (at > CHUNKS4_WORDS - REACH)
		return 0;
	/* As in `in_near6`. */
	asm volatile("" : "+r"(at));
	place = LOAD(chunks4[at + BIT_WORDS]) >> 16 * part & 0xffff;
	place += __builtin_popcountll(LOAD(chunks4[at + part]) << (63 - (address >> 8 & 63)));
	place = (place + FIRST - 1) & (REACH * 4 - 1);
	return LOAD(((const __u16 *)chunks4)[at * 4 + place]);
}

/* The next hop of an IPv4 address, in the host's byte order. */
static __always_inline __u32 lookup4(__u32 address)
{
	__u32 word = LOAD(direct4[address >> 16]);

	if (word & CHUNK) {
		word = in_chunk4(word & ~CHUNK, address);
		if (word & LIST)
			return in_list4(address, word & ~LIST);
	}
	return word & (NEXT_HOPS - 1);
}

/* The word of the near leaf that `word` leads to, by the bits of an address that led to no entry. */
static __always_inline __u32 in_near6(__u32 word, __u64 left)
{
	const __u16 *quarters = (const __u16 *)leaves6;
	__u64 at = (__u64)(word & NUMBER_BITS) * NEAR_WORDS;
	__u64 below = 0;
	int number;

	BOUNDED(at);
	if (at > NUMBER(leaves6_words) - NEAR_WORDS)
		return 0;
	/* That its two lower bits are 0 must not be known from here on: the compiler would use "or" for the addition, after
	 * which the verifier takes the bound for the next power of two. */
	asm volatile("" : "+r"(at));
	left >>= 48;
	/* Keys ascend, and missing ones are the largest. */
#pragma unroll
	for (number = 0; number < NEAR_KEYS; number++)
		below += ((__u64)LOAD(quarters[at * 4 + number]) - left) >> 63;
	below &= 7;
	BOUNDED(below);
	return LOAD(quarters[at * 4 + 8 + below]);
}

/* The word of the far leaf that `word` leads to, for one half of an address. */
static __always_inline __u32 in_far6(__u32 word, __u64 key)
{
	__u64 at = (__u64)(word & NUMBER_BITS) * NEAR_WORDS;
	__u32 number;

	BOUNDED(at);
	/* The loader makes no table shorter than a far leaf. */
	if (at > NUMBER(leaves6_words) - FAR_WORDS)
		return 0;
	/* As in `in_near6`. */
	asm volatile("" : "+r"(at));
#pragma unroll
	for (number = 0; number < FAR_KEYS; number++)
		if (LOAD(leaves6[at + number]) >= key)
			break;
	/* Two values in a word, the low half first. */
	return LOAD(((const __u32 *)leaves6)[(at + FAR_KEYS) * 2 + number]);
}

/* Through one half of an address: `left` begins with those of its bits that are not used yet. The word that
 * comes back leads on to the other half if it says so. */
static __always_inline __u32 walk6(__u32 word, __u64 key, __u64 left, int steps)
{
	int step;

	word &= ~HOST;
#pragma unroll 1
	for (step = 0; step < steps && (word & (INDEX | HOST)) == INDEX; step++) {
		__u32 stride = word >> 24 & 15;
		__u64 at = (__u64)(word & NUMBER_BITS) * INDEX_WORDS + (left >> (-stride & 63));

		BOUNDED(at);
		if (at >= NUMBER(index6_words))
			return 0;
		word = LOAD(index6[at]);
		left <<= stride;
	}
	if ((word & (LEAF | HOST)) != LEAF)
		return word;
	return word & NEAR ? in_near6(word, left) : in_far6(word, key);
}

/* Out of line: few networks have routes longer than /64. */
static __noinline __u32 in_host6(__u32 word, __u64 lower)
{
	return walk6(word, lower, lower, STEPS_LOWER);
}

/* The next hop of an IPv6 address, by its halves in the host's byte order. */
static __always_inline __u32 lookup6(__u64 upper, __u64 lower)
{
	__u32 word;

	/* The compiler would swap 16 bits for the 64 and the shift, and the verifier of Linux 6.12 takes what is swapped for any
	 * number. */
	BOUNDED(upper);
	word = walk6(LOAD(direct6[upper >> 48]), upper, upper << 16, STEPS_UPPER);
	return word & HOST ? in_host6(word, lower) : word;
}

#endif
