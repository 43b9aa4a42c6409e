/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which connections are worth an entry in the flow table. A packet that needs an entry and has none, or whose entry is
 * approved for another port than the one that received it, is counted in a sketch, in one of the eight cells of its hash's
 * bucket: at the 16th of a direction the daemon hears of it, once more at the 32nd after that, and so on, twice as many each
 * time. A flow that finds no cell of its own takes the one with fewest packets, or lets it grow older by one. So a flood of
 * new connections changes cells and wakes no thread. The sketch has a cell for each flow that fits into the table: flows
 * without one wait until others have their entries.
 *
 * All CPUs count in one sketch, by plain stores. A lost one delays an entry by a packet.
 */
#ifndef MANYLANE_PROGRAMS_CANDIDATES_H
#define MANYLANE_PROGRAMS_CANDIDATES_H

#include <bpf/bpf_helpers.h>

#include "decide.h"

#define SKETCH_BUCKET 8
#define WORTH 16
/* How often the number doubles at the most. */
#define DOUBLINGS 7

/* A cell: the upper quarter of the hash, how often the daemon has heard of it from bit 12, and packets below. */
extern __u32 flow_sketch[];
extern const char flow_sketch_words[];
/* A ring buffer of `struct candidate`. */
extern char candidates[];

/* Both ends of a packet, as in `struct flow_key`, and the port that received it. */
struct candidate {
	__u64 addresses[4];
	__u64 ends;
	__u64 ingress;
};

/* Where a flow with this tag counts: its cell, or the one of its bucket that gives way first; beyond the sketch, if the table
 * has none. */
static __noinline __u64 cell_of(__u64 hash)
{
	/* The loader makes as many cells as a power of two, and no fewer than a bucket. */
	__u64 at = hash & (NUMBER(flow_sketch_words) - 1) & ~(__u64)(SKETCH_BUCKET - 1), oldest = at;
	__u32 tag = hash >> 48, least = ~0, cell, rank;
	int number;

	BOUNDED(at);
	if (at > NUMBER(flow_sketch_words) - SKETCH_BUCKET)
		return at;
	asm volatile("" : "+r"(at));
#pragma unroll
	for (number = 0; number < SKETCH_BUCKET; number++) {
		cell = flow_sketch[at + number];
		if (cell >> 16 == tag)
			return at + number;
		/* By packets; of cells without any, those first whose flow was never reported. */
		rank = (cell & 0xfff) << 1 | ((cell & 0xf000) != 0);
		if (rank < least) {
			least = rank;
			oldest = at + number;
		}
	}
	return oldest;
}

/* A packet of a direction that has no entry, or one for another port. */
static __noinline int consider(const struct decision *decision)
{
	__u64 at = cell_of(decision->key.hash);
	__u32 tag = decision->key.hash >> 48 << 16, cell, packets, heard;
	struct candidate found;

	BOUNDED(at);
	if (at >= NUMBER(flow_sketch_words))
		return 0;
	cell = flow_sketch[at];
	packets = cell & 0xfff;
	heard = cell >> 12 & 0xf;
	if ((cell & 0xffff0000) != tag) {
		flow_sketch[at] = packets > 1 ? cell - 1 : tag | 1;
		return 0;
	}
	if (packets + 1 < WORTH << heard) {
		flow_sketch[at] = cell + 1;
		return 0;
	}
	found.addresses[0] = decision->key.addresses[0];
	found.addresses[1] = decision->key.addresses[1];
	found.addresses[2] = decision->key.addresses[2];
	found.addresses[3] = decision->key.addresses[3];
	found.ends = decision->key.ends;
	found.ingress = decision->ingress;
	/* If the buffer is full, the next packet tries again. */
	if (bpf_ringbuf_output(&candidates, &found, sizeof(found), 0))
		return 0;
	flow_sketch[at] = tag | (heard < DOUBLINGS ? heard + 1 : heard) << 12;
	return 0;
}

#endif
