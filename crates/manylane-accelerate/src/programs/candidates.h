/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which connections are worth an entry in the flow table. A packet that needs an entry and has none is counted in a sketch,
 * a cell for each hash, of this CPU: at the 16th of a direction the daemon hears of it, once more at the 32nd after that,
 * and so on, twice as many each time. A cell belongs to the flow that most of its packets are of (Boyer and Moore's
 * majority vote), so a flood of new connections changes cells and wakes no thread.
 */
#ifndef MANYLANE_PROGRAMS_CANDIDATES_H
#define MANYLANE_PROGRAMS_CANDIDATES_H

#include <bpf/bpf_helpers.h>

#include "decide.h"

#define SKETCH_CELLS 4096
#define WORTH 16
/* How often the number doubles at the most. */
#define DOUBLINGS 10

/* A cell: the upper half of the hash, then how often the daemon has heard from bit 24, and packets below. */
extern __u64 flow_sketch[];
extern const char flow_sketch_words[];
/* A ring buffer of `struct candidate`. */
extern char candidates[];

/* Both ends of a packet, as in `struct flow_key`, and the port that received it. */
struct candidate {
	__u64 addresses[4];
	__u64 ends;
	__u64 ingress;
};

/* A packet of a direction that has no entry. */
static __noinline int consider(const struct decision *decision)
{
	__u64 at = (__u64)bpf_get_smp_processor_id() * SKETCH_CELLS, cell, packets, heard;
	__u64 hash = decision->key.hash;
	struct candidate found;

	if (at > NUMBER(flow_sketch_words) - SKETCH_CELLS)
		return 0;
	at += hash & (SKETCH_CELLS - 1);
	BOUNDED(at);
	if (at >= NUMBER(flow_sketch_words))
		return 0;
	cell = flow_sketch[at];
	packets = cell & 0xffffff;
	heard = cell >> 24 & 0xff;
	if (cell >> 32 != hash >> 32) {
		flow_sketch[at] = packets ? cell - 1 : (hash >> 32 << 32) + 1;
		return 0;
	}
	if (packets + 1 < (__u64)WORTH << heard) {
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
	flow_sketch[at] = (hash >> 32 << 32) | (heard < DOUBLINGS ? heard + 1 : heard) << 24;
	return 0;
}

#endif
