/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Longest matches by DPDK's libraries: the peer of `manylane-bench fib`.
 *
 *     peer-fib EAL-OPTIONS -- TABLE
 *
 * The program prints one line when it has loaded the table, with its version, its lookups, and a sum of the next hops of
 * all destinations. Then the program reads lines `LOOKUP WHICH MS` from standard input, looks up destinations of the table
 * (`random`) or one of them (`same`) for MS milliseconds, and prints a line with its share (watch.h).
 */

#include <stdbool.h>

#include <rte_eal.h>
#include <rte_lpm6.h>
#include <rte_version.h>

#include "lookups.h"
#include "memory.h"
#include "table.h"
#include "watch.h"

#define BATCH 32
/* For the tables of all lookups. */
#define HEAP_LEN (5ul << 30)

enum lookup { LPM_BULK, LPM_X4, LPM_ONE, FIB, FIB_ONE, FIB6, FIB6_ONE, LPM6, LPM6_ONE };

static uint32_t *ipv4;
static uint8_t (*ipv6)[16];
static uint32_t targets;
static struct rte_lpm6 *lpm6;
/* One destination, for a batch of lookups of it. */
static uint32_t ipv4_same[BATCH * 2];
static uint8_t ipv6_same[BATCH * 2][16];

/* Destinations, batch by batch, for ever. */
struct source {
	const uint32_t *ipv4;
	uint8_t (*ipv6)[16];
	uint32_t next;
	uint32_t mask;
};

/* The next hops of a batch; 0 where a lookup finds none. */
static __rte_always_inline void look_up(const uint32_t *v4, uint8_t (*v6)[16], uint64_t *hops, const enum lookup lookup)
{
	uint32_t found[BATCH] = { 0 };

	switch (lookup) {
	case FIB:
		rte_fib_lookup_bulk(fib, (uint32_t *)(uintptr_t)v4, hops, BATCH);
		return;
	case FIB_ONE:
		for (unsigned int i = 0; i < BATCH; i++)
			rte_fib_lookup_bulk(fib, (uint32_t *)(uintptr_t)v4 + i, hops + i, 1);
		return;
	case FIB6:
		rte_fib6_lookup_bulk(fib6, v6, hops, BATCH);
		return;
	case FIB6_ONE:
		for (unsigned int i = 0; i < BATCH; i++)
			rte_fib6_lookup_bulk(fib6, v6 + i, hops + i, 1);
		return;
	case LPM_BULK:
	case LPM_X4:
		lpm_look_up(v4, found, BATCH, lookup == LPM_X4);
		break;
	case LPM_ONE:
		for (unsigned int i = 0; i < BATCH; i++)
			rte_lpm_lookup(lpm, v4[i], &found[i]);
		break;
	case LPM6:
		rte_lpm6_lookup_bulk_func(lpm6, v6, (int32_t *)found, BATCH);
		break;
	case LPM6_ONE:
		for (unsigned int i = 0; i < BATCH; i++)
			rte_lpm6_lookup(lpm6, v6[i], &found[i]);
		break;
	}
	for (unsigned int i = 0; i < BATCH; i++)
		hops[i] = found[i];
}

/* Looks up a batch. With `ahead`, loads the lines of the next one first. */
static __rte_always_inline uint64_t look_up_next(struct source *source, const enum lookup lookup, const bool ahead)
{
	uint64_t hops[BATCH];
	const uint32_t first = source->next, next = (first + BATCH) & source->mask;

	source->next = next;
	if (ahead)
		for (unsigned int i = 0; i < BATCH; i++)
			lpm_prefetch(source->ipv4[next + i]);
	look_up(source->ipv4 + first, source->ipv6 + first, hops, lookup);
	/* The next hops are used. */
	__asm__ volatile("" : : "r"(hops) : "memory");
	return BATCH;
}

#define RUN(name, lookup, ahead)                                                    \
	static uint64_t name##_batch(void *source)                                  \
	{                                                                           \
		return look_up_next(source, lookup, ahead);                         \
	}                                                                           \
	static __rte_noinline struct share name(struct lap *lap, struct source *source) \
	{                                                                           \
		return lap_run(lap, name##_batch, source);                          \
	}                                                                           \
	static void name##_hops(uint32_t first, uint64_t *hops)                     \
	{                                                                           \
		look_up(ipv4 + first, ipv6 + first, hops, lookup);                  \
	}

RUN(lpm_bulk, LPM_BULK, false)
RUN(lpm_bulk_ahead, LPM_BULK, true)
RUN(lpm_x4, LPM_X4, false)
RUN(lpm_x4_ahead, LPM_X4, true)
RUN(lpm_one, LPM_ONE, false)
RUN(fib_batch, FIB, false)
RUN(fib_one, FIB_ONE, false)
RUN(fib6_batch, FIB6, false)
RUN(fib6_one, FIB6_ONE, false)
RUN(lpm6_bulk, LPM6, false)
RUN(lpm6_one, LPM6_ONE, false)

/* A way to look up. `type` is that of `rte_fib_select_lookup` or `rte_fib6_select_lookup`. */
struct way {
	const char *name;
	/* The row of manylane-bench that the way belongs to. */
	const char *row;
	enum family family;
	struct share (*run)(struct lap *lap, struct source *source);
	void (*hops)(uint32_t first, uint64_t *hops);
	int type;
	bool is_there;
};

#define WAY(name, row, family, run, type) { name, row, family, run, run##_hops, type, true }

static struct way ways[] = {
	WAY("lpm_bulk", "batch", IPV4, lpm_bulk, -1),
	WAY("lpm_x4", "batch", IPV4, lpm_x4, -1),
	WAY("fib_scalar", "batch", IPV4, fib_batch, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO),
	WAY("fib_avx512", "batch", IPV4, fib_batch, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512),
	WAY("lpm_bulk_ahead", "ahead", IPV4, lpm_bulk_ahead, -1),
	WAY("lpm_x4_ahead", "ahead", IPV4, lpm_x4_ahead, -1),
	WAY("lpm", "single", IPV4, lpm_one, -1),
	WAY("fib", "single", IPV4, fib_one, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO),
	WAY("fib6_scalar", "batch", IPV6, fib6_batch, RTE_FIB6_LOOKUP_TRIE_SCALAR),
	WAY("fib6_avx512", "batch", IPV6, fib6_batch, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512),
	WAY("lpm6_bulk", "batch", IPV6, lpm6_bulk, -1),
	WAY("fib6", "single", IPV6, fib6_one, RTE_FIB6_LOOKUP_TRIE_SCALAR),
	WAY("lpm6", "single", IPV6, lpm6_one, -1),
};

static bool way_select(const struct way *way)
{
	if (way->type < 0)
		return true;
	return !(way->family == IPV4 ? rte_fib_select_lookup(fib, way->type) : rte_fib6_select_lookup(fib6, way->type));
}

static void load_lpm6(const struct table *table, int socket)
{
	const struct rte_lpm6_config config = { .max_rules = 400000, .number_tbl8s = 1 << 20 };

	lpm6 = rte_lpm6_create("peer6", socket, &config);
	if (!lpm6)
		die("rte_lpm6");
	for (uint32_t i = 0; i < table->head.ipv6_routes; i++)
		if (rte_lpm6_add(lpm6, table->ipv6[i].address, table->ipv6[i].len, table->ipv6[i].hop))
			die("rte_lpm6_add");
}

/* The sum of all next hops that the way finds, as bench/src/fib/peer.rs adds them. */
static uint64_t way_sum(const struct way *way)
{
	uint64_t hops[BATCH], sum = 0;

	for (uint32_t first = 0; first < targets; first += BATCH) {
		way->hops(first, hops);
		for (unsigned int i = 0; i < BATCH; i++)
			sum = sum * 31 + hops[i];
	}
	return sum;
}

/* All ways to look up find the same next hops: what is measured is right. */
static void say_ready(void)
{
	uint64_t sums[FAMILIES] = { 0 };
	bool is_summed[FAMILIES] = { false };
	const char *comma = "";

	printf("{\"version\":\"%s\",\"ways\":[", rte_version());
	for (struct way *way = ways; way < ways + RTE_DIM(ways); way++) {
		uint64_t sum;

		way->is_there = way_select(way);
		if (!way->is_there)
			continue;
		sum = way_sum(way);
		if (is_summed[way->family] && sum != sums[way->family]) {
			fprintf(stderr, "%s finds other next hops than the lookups before it\n", way->name);
			exit(1);
		}
		is_summed[way->family] = true;
		sums[way->family] = sum;
		printf("%s[\"ipv%d\",\"%s\",\"%s\"]", comma, way->family == IPV4 ? 4 : 6, way->row, way->name);
		comma = ",";
	}
	printf("],\"sums\":[%lu,%lu]}\n", sums[IPV4], sums[IPV6]);
	fflush(stdout);
}

static void answer(const char *name, const char *which, unsigned int ms)
{
	struct lap lap = { .cycles = cycles_of_us(1000ul * ms), .threads = 1 };
	struct source source = { .ipv4 = ipv4, .ipv6 = ipv6, .mask = targets - 1 };
	const struct way *way = ways;

	while (way < ways + RTE_DIM(ways) && strcmp(way->name, name))
		way++;
	if (way == ways + RTE_DIM(ways) || !way_select(way)) {
		fprintf(stderr, "no lookup is named %s\n", name);
		exit(1);
	}
	if (!strcmp(which, "same"))
		source = (struct source){ .ipv4 = ipv4_same, .ipv6 = ipv6_same, .mask = BATCH - 1 };
	lap.shares[0] = way->run(&lap, &source);
	lap_print(&lap);
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[128], way[32], which[32];
	int used = rte_eal_init(argc, argv), socket;
	struct table table;
	unsigned int ms;

	if (used < 0)
		die("DPDK does not start");
	if (argc - used != 2) {
		fprintf(stderr, "usage: peer-fib EAL-OPTIONS -- TABLE\n");
		return 2;
	}
	table = table_open(argv[used + 1]);
	targets = table.head.targets;
	ipv4 = table_array(&table, targets, sizeof(*ipv4), "IPv4 destinations");
	ipv6 = table_array(&table, targets, sizeof(*ipv6), "IPv6 destinations");
	fclose(table.file);
	for (unsigned int i = 0; i < BATCH; i++) {
		ipv4_same[i] = ipv4[0];
		memcpy(ipv6_same[i], ipv6[0], sizeof(*ipv6));
	}
	socket = memory_socket(HEAP_LEN);
	if (socket < 0)
		die("DPDK's heap");
	load_lpm(&table, socket);
	load_fibs(&table, socket);
	load_lpm6(&table, socket);
	say_ready();
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %31s %u", way, which, &ms) != 3) {
			fprintf(stderr, "not a line of LOOKUP WHICH MS: %s", line);
			return 1;
		}
		answer(way, which, ms);
	}
	return 0;
}
