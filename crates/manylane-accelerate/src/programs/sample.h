/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Some packets' headers, to list the flows (`samples.rs`). `samples[0]` is 0 while no thread wants any. Else
 * its lower byte says that one packet in two to the power of it is noted, and the rest is another number each time: so
 * no thread has to empty the places of a CPU, and when they are full no more is noted.
 */
#ifndef MANYLANE_PROGRAMS_SAMPLE_H
#define MANYLANE_PROGRAMS_SAMPLE_H

#include "tables.h"

#define SAMPLE_WORDS 8
#define SAMPLES 64
/* A CPU's places, behind the number that they are of, and how many are taken. */
#define SAMPLES_OF_CPU ((SAMPLES + 1) * SAMPLE_WORDS)

/* The tier that forwards, or the kernel. */
#define BY_KERNEL 0
#define BY_INGRESS 1
#define BY_DRIVER 2
#define BY_WORKERS 3

/* From the Ethernet type on: all, those of the shortest frame with its padding, an IPv4 header and ports. */
#define TYPE_AT 12
#define SAMPLE_BYTES ((SAMPLE_WORDS - 1) * 8)
#define SAMPLE_BYTES_PADDED 48
#define SAMPLE_BYTES_V4 28

static __noinline int sample(void *context, __u64 what)
{
	__u64 at = SAMPLE_WORDS + (__u64)bpf_get_smp_processor_id() * SAMPLES_OF_CPU;
	__u64 asked = LOAD(samples[0]), count;
	__u64 *mine, *one;

	if (!asked || at > NUMBER(samples_words) - SAMPLES_OF_CPU)
		return 0;
	if (bpf_get_prandom_u32() & ((1u << (asked & 31)) - 1))
		return 0;
	mine = &samples[at];
	if (mine[0] != asked) {
		mine[0] = asked;
		mine[1] = 0;
	}
	count = mine[1];
	if (count >= SAMPLES)
		return 0;
	BOUNDED(count);
	one = &mine[(1 + (count & (SAMPLES - 1))) * SAMPLE_WORDS];
	if (LOAD_BYTES(context, TYPE_AT, &one[1], SAMPLE_BYTES) &&
	    LOAD_BYTES(context, TYPE_AT, &one[1], SAMPLE_BYTES_PADDED) &&
	    LOAD_BYTES(context, TYPE_AT, &one[1], SAMPLE_BYTES_V4))
		return 0;
	one[0] = what;
	mine[1] = count + 1;
	return 0;
}

/* A packet of `len` bytes, received by port `ingress`, and what becomes of it. */
static __always_inline void may_sample(void *context, __u32 ingress, __u32 verdict, __u32 by, __u32 len)
{
	if (LOAD(samples[0]))
		sample(context, (ingress & 0xff) | (verdict & 0xff) << 8 | by << 16 | (__u64)len << 32);
}

#endif
