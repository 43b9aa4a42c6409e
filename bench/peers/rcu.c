/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Grace periods by DPDK's `rte_rcu_qsbr`: the peer of `manylane-bench compare rcu`.
 *
 *     peer-rcu EAL-OPTIONS        (two cores, the first one the main one)
 *
 * The program prints a line with its version. Then the program reads lines `ROW GAP COUNT MS` from standard input, and
 * prints a line for each with its shares (watch.h). The rows are those of bench/src/mechanisms/rcu.rs. A reader on the
 * second core is quiescent every GAP nanoseconds. Rows of latencies take COUNT of them, and say two quantiles as well.
 */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_pause.h>
#include <rte_rcu_qsbr.h>
#include <rte_version.h>

#include "memory.h"
#include "watch.h"

#define READERS_MAX 8
#define OPERATIONS 64
#define LATENCIES_MAX 20000
/* Objects that may wait. */
#define ROOM 4096
#define HEAP_LEN (8ul << 20)
/* Turns without a gap between two looks at the clock. */
#define LOOK_EVERY 1024
#define WRITER 0
#define READER 1

static struct rte_rcu_qsbr *domain;
static struct rte_rcu_qsbr_dq *queue;
static uint64_t gap, count;
static uint64_t latencies[LATENCIES_MAX];
static volatile uint32_t freed;

/* What waits, in batches with one token each: what a program that knows its batches keeps instead of a defer queue. */
static struct {
	uint32_t objects[ROOM];
	uint32_t first, len, open;
	struct {
		uint64_t token;
		uint32_t len;
	} batches[ROOM / OPERATIONS];
	uint32_t batches_first, batches_len;
} limbo;

static void enter(unsigned int thread)
{
	if (rte_rcu_qsbr_thread_register(domain, thread)) {
		fprintf(stderr, "a thread cannot be a reader\n");
		exit(1);
	}
	rte_rcu_qsbr_thread_online(domain, thread);
}

static void leave(unsigned int thread)
{
	rte_rcu_qsbr_thread_offline(domain, thread);
	rte_rcu_qsbr_thread_unregister(domain, thread);
}

/* What the compiler does not know of: each operation loads what it reads. */
static __rte_always_inline struct rte_rcu_qsbr *opaque(struct rte_rcu_qsbr *of)
{
	__asm__ volatile("" : "+r"(of) : : "memory");
	return of;
}

static uint64_t quiescent_batch(void *of)
{
	for (unsigned int i = 0; i < OPERATIONS; i++)
		rte_rcu_qsbr_quiescent(opaque(of), WRITER);
	return OPERATIONS;
}

static uint64_t offline_online_batch(void *of)
{
	for (unsigned int i = 0; i < OPERATIONS; i++) {
		rte_rcu_qsbr_thread_offline(opaque(of), WRITER);
		rte_rcu_qsbr_thread_online(opaque(of), WRITER);
	}
	return OPERATIONS;
}

static uint64_t start_batch(void *of)
{
	for (unsigned int i = 0; i < OPERATIONS; i++)
		rte_rcu_qsbr_start(opaque(of));
	return OPERATIONS;
}

static void free_one(void *of, void *object, unsigned int objects)
{
	(void)of;
	(void)objects;
	freed = *(uint32_t *)object;
}

/* Retires a batch into a defer queue, is quiescent, and frees what is over. */
static uint64_t retire_queue_batch(void *of)
{
	uint32_t object = 7;

	for (unsigned int i = 0; i < OPERATIONS; i++) {
		while (unlikely(rte_rcu_qsbr_dq_enqueue(queue, &object))) {
			rte_rcu_qsbr_quiescent(of, WRITER);
			rte_rcu_qsbr_dq_reclaim(queue, ROOM, NULL, NULL, NULL);
		}
	}
	rte_rcu_qsbr_quiescent(of, WRITER);
	rte_rcu_qsbr_dq_reclaim(queue, ROOM, NULL, NULL, NULL);
	return OPERATIONS;
}

static void limbo_reclaim(void)
{
	while (limbo.batches_len && rte_rcu_qsbr_check(domain, limbo.batches[limbo.batches_first].token, false) == 1) {
		for (uint32_t i = 0; i < limbo.batches[limbo.batches_first].len; i++)
			freed = limbo.objects[(limbo.first + i) % ROOM];
		limbo.first = (limbo.first + limbo.batches[limbo.batches_first].len) % ROOM;
		limbo.len -= limbo.batches[limbo.batches_first].len;
		limbo.batches_first = (limbo.batches_first + 1) % RTE_DIM(limbo.batches);
		limbo.batches_len--;
	}
}

static void limbo_retire(uint32_t object)
{
	limbo.objects[(limbo.first + limbo.len++) % ROOM] = object;
	if (++limbo.open == OPERATIONS) {
		const uint32_t last = (limbo.batches_first + limbo.batches_len++) % RTE_DIM(limbo.batches);

		limbo.batches[last].token = rte_rcu_qsbr_start(domain);
		limbo.batches[last].len = limbo.open;
		limbo.open = 0;
	}
}

/* Retires a batch with one token, is quiescent, and frees what is over. */
static uint64_t retire_batch(void *of)
{
	for (unsigned int i = 0; i < OPERATIONS; i++) {
		while (unlikely(limbo.len == ROOM)) {
			rte_rcu_qsbr_quiescent(of, WRITER);
			limbo_reclaim();
		}
		limbo_retire(7);
	}
	rte_rcu_qsbr_quiescent(of, WRITER);
	limbo_reclaim();
	return OPERATIONS;
}

/* Repeats a batch as a reader. What waits is freed before the domain loses its reader. */
static void as_a_reader(struct lap *lap, struct share (*run)(struct lap *lap))
{
	enter(WRITER);
	lap->shares[0] = run(lap);
	__atomic_store_n(&lap->stop, true, __ATOMIC_RELEASE);
	leave(WRITER);
	rte_rcu_qsbr_synchronize(domain, RTE_QSBR_THRID_INVALID);
	limbo_reclaim();
	rte_rcu_qsbr_dq_reclaim(queue, ROOM, NULL, NULL, NULL);
}

#define REPEATED(name)                                                       \
	static __rte_noinline struct share name##_run(struct lap *lap)       \
	{                                                                    \
		return lap_run(lap, name##_batch, domain);                   \
	}                                                                    \
	static void name(struct lap *lap)                                    \
	{                                                                    \
		as_a_reader(lap, name##_run);                                \
	}

REPEATED(quiescent)
REPEATED(offline_online)
REPEATED(retire_queue)
REPEATED(retire)

static int starting(void *of)
{
	struct lap *lap = of;

	lap->shares[1] = lap_run(lap, start_batch, domain);
	return 0;
}

/* A reader that is quiescent every `gap`, until the other thread has ended. */
static int turning(void *of)
{
	struct lap *lap = of;
	const uint64_t pause = cycles_of_us(PAUSE_US);
	struct watch watch;
	uint64_t turns = 0, until;

	enter(READER);
	watch = lap_start(lap);
	while (!__atomic_load_n(&lap->stop, __ATOMIC_RELAXED)) {
		if (gap) {
			until = watch_look(&watch, pause) + gap;
			while (watch_look(&watch, pause) < until)
				;
		}
		rte_rcu_qsbr_quiescent(domain, READER);
		if (++turns % LOOK_EVERY == 0)
			watch_look(&watch, pause);
	}
	watch_look(&watch, pause);
	lap->shares[1] = watch_share(&watch, turns);
	leave(READER);
	return 0;
}

static __rte_always_inline void wait_in_a_row(struct lap *lap, void (*wait)(void))
{
	const uint64_t pause = cycles_of_us(PAUSE_US), hopeless = cycles_of_us(HOPELESS_US);
	struct watch watch = lap_start(lap);
	uint64_t done = 0, before = 0, now;

	while (done < count && watch.share.away <= hopeless) {
		wait();
		now = watch_look(&watch, pause);
		latencies[done++] = now - before;
		before = now;
	}
	lap->shares[0] = watch_share(&watch, done);
}

static void wait_whole(void)
{
	rte_rcu_qsbr_synchronize(domain, RTE_QSBR_THRID_INVALID);
}

static void wait_by_token(void)
{
	const uint64_t token = rte_rcu_qsbr_start(domain);

	while (rte_rcu_qsbr_check(domain, token, false) != 1)
		rte_pause();
}

static void synchronize(struct lap *lap)
{
	wait_in_a_row(lap, wait_whole);
}

static void ticket(struct lap *lap)
{
	wait_in_a_row(lap, wait_by_token);
}

struct row {
	const char *name;
	void (*writer)(struct lap *lap);
	lcore_function_t *other;
};

static const struct row rows[] = {
	{ "quiescent", quiescent, NULL },    { "quiescent_gp", quiescent, starting },
	{ "offline_online", offline_online, NULL }, { "retire", retire, NULL },
	{ "retire_queue", retire_queue, NULL },     { "retire_r1", retire, turning },
	{ "retire_queue_r1", retire_queue, turning }, { "synchronize", synchronize, turning },
	{ "ticket", ticket, turning },
};

static int less(const void *one, const void *other)
{
	const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return a < b ? -1 : a > b;
}

static void answer(const char *name, unsigned int ms)
{
	const struct row *row = rows;
	const double ns = 1e9 / rte_get_tsc_hz();
	struct lap lap;

	while (row < rows + RTE_DIM(rows) && strcmp(row->name, name))
		row++;
	if (row == rows + RTE_DIM(rows) || count > LATENCIES_MAX) {
		fprintf(stderr, "no row is named %s, or it has less than %lu latencies\n", name, count);
		exit(1);
	}
	lap_both(&lap, ms, row->writer, row->other);
	lap_print(&lap);
	if (count) {
		/* Fewer than COUNT if the thread was away for long: then the slice does not count. */
		const uint64_t taken = lap.shares[0].operations;

		qsort(latencies, taken, sizeof(*latencies), less);
		printf(",\"p50\":%.1f,\"p99\":%.1f", latencies[taken / 2] * ns, latencies[taken * 99 / 100] * ns);
	}
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct rte_rcu_qsbr_dq_parameters parameters = {
		.name = "peer",
		.size = ROOM,
		.esize = sizeof(uint32_t),
		/* Frees nothing by itself. */
		.trigger_reclaim_limit = ROOM + 1,
		.max_reclaim_size = ROOM,
		.free_fn = free_one,
	};
	char line[128], name[32];
	unsigned long gap_ns;
	unsigned int ms;
	int socket;

	if (rte_eal_init(argc, argv) < 0)
		die("DPDK does not start");
	socket = memory_socket(HEAP_LEN);
	if (socket < 0)
		die("DPDK's heap");
	domain = rte_zmalloc_socket("domain", rte_rcu_qsbr_get_memsize(READERS_MAX), RTE_CACHE_LINE_SIZE, socket);
	if (!domain || rte_rcu_qsbr_init(domain, READERS_MAX))
		die("rte_rcu_qsbr");
	parameters.v = domain;
	queue = rte_rcu_qsbr_dq_create(&parameters);
	if (!queue)
		die("a defer queue");
	printf("{\"version\":\"%s\"}\n", rte_version());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %lu %lu %u", name, &gap_ns, &count, &ms) != 4) {
			fprintf(stderr, "not a line of ROW GAP COUNT MS: %s", line);
			return 1;
		}
		gap = rte_get_tsc_hz() / 1000 * gap_ns / 1000000;
		answer(name, ms);
	}
	return 0;
}
