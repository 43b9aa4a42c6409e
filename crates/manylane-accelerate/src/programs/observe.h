/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Captures (`capture.bpf.c`): while one is open, its programs are called in front of a program that forwards, and behind
 * it, as tail calls. Without one a packet costs two loads from one line.
 *
 * | word of `observed`          | what                                                                             |
 * |-----------------------------|----------------------------------------------------------------------------------|
 * | 0                           | 0 while no capture wants packets as received; another number after each change   |
 * | 1                           | as word 0, for packets at the end                                                |
 * | 8 + cpu * 8 + OBSERVED_...  | this CPU's packet at hand, written here                                          |
 *
 * | place in the map `observers`        | the program                                                            |
 * |-------------------------------------|------------------------------------------------------------------------|
 * | OBSERVERS_FORWARD                   | the one that forwards                                                  |
 * | OBSERVERS_RECEIVED, OBSERVERS_DONE  | of the first capture in front of it, and behind it                     |
 * | `next_place`, a capture's own       | what the capture calls next: the next capture's program; behind the last one at the
 *                                         start the one that forwards, at the end none                           |
 *
 * All places are constants in the code: the kernel then makes a plain jump of the call (`map_poke_run`), where an index
 * that is looked up costs an indirect one, which CPUs do not predict under retpolines. Where a call finds no program, the
 * packet is handled as if no capture were open.
 *
 * A packet that has been shown as received comes back to the program that forwards, at its start: OBSERVED_SHOWN then
 * is as word 0.
 */
#ifndef MANYLANE_PROGRAMS_OBSERVE_H
#define MANYLANE_PROGRAMS_OBSERVE_H

#include <bpf/bpf_helpers.h>

#include "tables.h"

#define OBSERVED_RECEIVED 0
#define OBSERVED_DONE 1
#define OBSERVED_CPUS 8
#define OBSERVED_OF_CPU 8

#define OBSERVERS_FORWARD 0
#define OBSERVERS_RECEIVED 1
#define OBSERVERS_DONE 2

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
	__u64 change = LOAD(observed[OBSERVED_RECEIVED]), *mine;

	if (!change)
		return;
	mine = observed_here();
	if (!mine || mine[OBSERVED_SHOWN] == change) {
		if (mine)
			mine[OBSERVED_SHOWN] = 0;
		return;
	}
	bpf_tail_call(context, (void *)observers, OBSERVERS_RECEIVED);
}

/* At the end of one: returns what it returns. */
static __always_inline int observe_done(void *context, int action, __u64 note)
{
	__u64 *mine;

	if (!LOAD(observed[OBSERVED_DONE]))
		return action;
	mine = observed_here();
	if (!mine)
		return action;
	mine[OBSERVED_NOTE] = note;
	mine[OBSERVED_ACTION] = action;
	bpf_tail_call(context, (void *)observers, OBSERVERS_DONE);
	return action;
}

#endif
