/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Captures (`capture.bpf.c`): while one is open, its programs are called in front of a program that forwards, and behind
 * it, as tail calls. Without one a packet costs two loads from one line.
 *
 * | word of `observed`                  | what                                                              |
 * |-------------------------------------|-------------------------------------------------------------------|
 * | 0                                   | the first capture that wants packets as received, a number from 1; 0: none.
 *                                         From bit 8 on another number after each change                    |
 * | 1                                   | the first one that wants packets at the end                      |
 * | 16 + capture, 32 + capture          | the next one of each list, 0 at its end                          |
 * | 64 + cpu * 8 + OBSERVED_...         | this CPU's packet at hand, written here                         |
 *
 * The programs are in the map `observers`: that which forwards at 0, one of capture N at N, the other at 16 + N. Where a
 * call finds none, the packet is handled as if no capture were open.
 *
 * A packet that has been shown as received comes back to the program that forwards, at its start: OBSERVED_SHOWN then
 * is as word 0.
 */
#ifndef MANYLANE_PROGRAMS_OBSERVE_H
#define MANYLANE_PROGRAMS_OBSERVE_H

#include <bpf/bpf_helpers.h>

#include "tables.h"

#define CAPTURES 16
#define OBSERVED_RECEIVED 0
#define OBSERVED_DONE 1
#define OBSERVED_NEXT_RECEIVED 16
#define OBSERVED_NEXT_DONE 32
#define OBSERVED_CPUS 64
#define OBSERVED_OF_CPU 8

/* A CPU's words. */
#define OBSERVED_SHOWN 0
#define OBSERVED_NOTE 1 /* Where the packet at hand leaves, or why it does not. */
#define OBSERVED_ACTION 2 /* What is to be returned for it. */

#define NOTE_LEAVES (1ull << 62)
#define NOTE_STAYS (1ull << 63)

extern __u64 observed[];
extern const char observed_words[];
extern const char observers[];

static __always_inline __u64 *observed_here(void)
{
	__u64 at = OBSERVED_CPUS + (__u64)bpf_get_smp_processor_id() * OBSERVED_OF_CPU;

	return at > NUMBER(observed_words) - OBSERVED_OF_CPU ? 0 : &observed[at];
}

/* At the start of a program that forwards. */
static __always_inline void observe_received(void *context)
{
	__u64 first = LOAD(observed[OBSERVED_RECEIVED]), *mine;

	if (!(first & 0xff))
		return;
	mine = observed_here();
	if (!mine || mine[OBSERVED_SHOWN] == first) {
		if (mine)
			mine[OBSERVED_SHOWN] = 0;
		return;
	}
	bpf_tail_call(context, (void *)observers, first & (CAPTURES - 1));
}

/* At the end of one: returns what it returns. */
static __always_inline int observe_done(void *context, int action, __u64 note)
{
	__u64 first = LOAD(observed[OBSERVED_DONE]), *mine;

	if (!first)
		return action;
	mine = observed_here();
	if (!mine)
		return action;
	mine[OBSERVED_NOTE] = note;
	mine[OBSERVED_ACTION] = action;
	bpf_tail_call(context, (void *)observers, CAPTURES + (first & (CAPTURES - 1)));
	return action;
}

#endif
