/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * How a thread spends a slice: what `bench/src/threads.rs` needs to judge a peer's slice by the rule of manylane's own. A
 * thread looks at its clock about every 50 us; two looks that are further apart than PAUSE_US mean that the thread was
 * away. The program measures, and manylane-bench decides whether the slice counts.
 */

#ifndef WATCH_H
#define WATCH_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>

/* As `PAUSE`, `HOPELESS` and `BETWEEN_LOOKS` of threads.rs. */
#define PAUSE_US 250
#define HOPELESS_US 20000
#define BETWEEN_LOOKS_US 50
#define THREADS 2

/* What a thread did: times in cycles, but the kernel's account of it in nanoseconds. */
struct share {
	uint64_t operations;
	uint64_t start;
	uint64_t end;
	uint64_t away;
	uint64_t ran;
	uint64_t waited;
};

struct watch {
	struct share share;
	uint64_t last;
};

/* A slice of one thread, or of two that begin together. */
struct lap {
	uint64_t cycles;
	unsigned int threads;
	unsigned int arrived;
	/* The first thread has ended. */
	bool stop;
	struct share shares[THREADS];
};

static uint64_t cycles_of_us(uint64_t us)
{
	return rte_get_tsc_hz() * us / 1000000;
}

/* Adds, or takes away, what the kernel says of this thread: time on a core, and time ready without one. */
static void watch_account(struct share *share, int sign)
{
	unsigned long ran = 0, waited = 0;
	FILE *file = fopen("/proc/thread-self/schedstat", "r");

	if (!file)
		return;
	if (fscanf(file, "%lu %lu", &ran, &waited) == 2) {
		share->ran += sign * ran;
		share->waited += sign * waited;
	}
	fclose(file);
}

/* Waits for the other thread, if the slice has two. */
static struct watch lap_start(struct lap *lap)
{
	struct watch watch = { .last = 0 };

	watch_account(&watch.share, -1);
	/* Release and acquire: what each thread prepared is there when the other begins. */
	__atomic_add_fetch(&lap->arrived, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&lap->arrived, __ATOMIC_ACQUIRE) < lap->threads)
		sched_yield();
	watch.share.start = watch.last = rte_rdtsc();
	return watch;
}

/* Cycles since the start. */
static __rte_always_inline uint64_t watch_look(struct watch *watch, uint64_t pause)
{
	const uint64_t now = rte_rdtsc();

	if (now - watch->last > pause)
		watch->share.away += now - watch->last;
	watch->last = now;
	return now - watch->share.start;
}

/* The slice ended at the last look. */
static struct share watch_share(struct watch *watch, uint64_t operations)
{
	watch->share.operations = operations;
	watch->share.end = watch->last;
	watch_account(&watch->share, 1);
	return watch->share;
}

/* Repeats `batch`, which returns how many operations it did, for the length of the slice. */
static __rte_always_inline struct share lap_run(struct lap *lap, uint64_t (*batch)(void *of), void *of)
{
	const uint64_t pause = cycles_of_us(PAUSE_US), between = cycles_of_us(BETWEEN_LOOKS_US);
	struct watch watch = lap_start(lap);
	uint64_t operations = 0, step = 1, before = 0, now;

	for (;;) {
		for (uint64_t i = 0; i < step; i++)
			operations += batch(of);
		now = watch_look(&watch, pause);
		if (now >= lap->cycles)
			return watch_share(&watch, operations);
		if (now - before < between)
			step += (step + 1) / 2;
		else if (now - before > between * 2)
			step = (step + 1) / 2;
		before = now;
	}
}

static void share_print(const struct share *share, const char *comma)
{
	const double ns = 1e9 / rte_get_tsc_hz();

	printf("%s{\"operations\":%lu,\"start\":%.0f,\"end\":%.0f,\"away\":%.0f,\"ran\":%lu,\"waited\":%lu}", comma,
	       share->operations, share->start * ns, share->end * ns, share->away * ns, share->ran, share->waited);
}

/* The beginning of an answer. */
static void lap_print(const struct lap *lap)
{
	printf("{\"shares\":[");
	for (unsigned int i = 0; i < lap->threads; i++)
		share_print(&lap->shares[i], i ? "," : "");
	printf("]");
}

/* Measures: `main_thread` on the first core, and `other` on the second unless it is null. Each sets its own share. */
static __rte_unused void lap_both(struct lap *lap, unsigned int ms, void (*main_thread)(struct lap *lap),
				  lcore_function_t *other)
{
	const unsigned int core = rte_get_next_lcore(-1, 1, 0);

	*lap = (struct lap){ .cycles = cycles_of_us(1000ul * ms), .threads = other ? 2 : 1 };
	if (other && rte_eal_remote_launch(other, lap, core)) {
		fprintf(stderr, "the second core does not start\n");
		exit(1);
	}
	main_thread(lap);
	__atomic_store_n(&lap->stop, true, __ATOMIC_RELEASE);
	if (other)
		rte_eal_wait_lcore(core);
}

#endif
