/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A forwarder on DPDK between ports in memory, made as quick as the library allows: the peer of `manylane-bench forward`.
 *
 *     peer-forward EAL-OPTIONS -- TABLE
 *
 * The program prints one line when it has loaded the table, with its version and lookups. Then the program reads lines
 * `ROW LOOKUP MS` from standard input, forwards frames of that row for MS milliseconds, and prints a line with its share
 * (watch.h) and the number of frames that it dropped. The lookup `none` measures the device's part alone: take buffers,
 * write frames, give them back.
 */

#include <stdbool.h>

#include <rte_eal.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#include "frames.h"
#include "lookups.h"
#include "memory.h"
#include "watch.h"

#define BATCH 64
#define NEXT_HOPS 256
#define FRAMES 16383
#define CACHED 512
#define ETHERNET_LEN 14
/* For the tables of all lookups, and the buffers. */
#define HEAP_LEN (4ul << 30)

enum lookup { NONE, LPM_BULK, LPM_X4, FIB };

struct next_hop {
	/* Destination, then source. */
	uint8_t macs[16];
	uint32_t port;
	uint32_t unused[3];
};

/* Packets that were checked, and whose next hops are not yet looked up. */
struct checked {
	unsigned int len;
	struct rte_mbuf *packets[BATCH];
	uint32_t ipv4[BATCH];
	uint8_t ipv6[BATCH][16];
};

/* What leaves, by port. */
struct leaving {
	unsigned int len[PORTS];
	struct rte_mbuf *packets[PORTS][BATCH];
};

struct row {
	const char *name;
	enum family family;
	bool is_same;
	bool is_mixed;
	bool has_two_ports;
};

static const struct row rows[] = {
	{ "ipv4_random", IPV4, false, false, false }, { "ipv4_same", IPV4, true, false, false },
	{ "ipv4_imix", IPV4, false, true, false },    { "ipv4_ports", IPV4, false, false, true },
	{ "ipv6_random", IPV6, false, false, false }, { "ipv6_same", IPV6, true, false, false },
	{ "ipv6_imix", IPV6, false, true, false },    { "ipv6_ports", IPV6, false, false, true },
};

static struct frames frames;
static struct rte_mempool *pool;
static struct next_hop next_hops[NEXT_HOPS + 1] __rte_cache_aligned;
/* One target, for a batch of frames to one destination. */
static struct ipv4_target ipv4_same[BATCH];
static struct ipv6_target ipv6_same[BATCH];
static uint64_t dropped;

/* Writes what a device would: a batch of frames that begin at `first` of the row's targets. */
static __rte_always_inline unsigned int receive(const struct row *row, struct rte_mbuf **batch, uint32_t first,
						unsigned int port, const enum family family)
{
	const struct ipv4_target *ipv4 = row->is_same ? ipv4_same : frames.ipv4[row->is_mixed] + first;
	const struct ipv6_target *ipv6 = row->is_same ? ipv6_same : frames.ipv6[row->is_mixed] + first;

	if (unlikely(rte_pktmbuf_alloc_bulk(pool, batch, BATCH)))
		return 0;
	for (unsigned int i = 0; i < BATCH; i++) {
		const unsigned int kind = family == IPV4 ? ipv4[i].kind : ipv6[i].kind;
		uint8_t *bytes = rte_pktmbuf_mtod(batch[i], uint8_t *);

		batch[i]->pkt_len = frames.lens[kind];
		batch[i]->data_len = frames.lens[kind];
		batch[i]->port = port;
		memcpy(bytes, frames.templates[family][port][kind], HEAD_LEN);
		if (family == IPV4) {
			memcpy(bytes + 24, &ipv4[i].checksum, 2);
			memcpy(bytes + 30, &ipv4[i].address, 4);
		} else {
			memcpy(bytes + 38, ipv6[i].address, 16);
			memcpy(bytes + 60, &ipv6[i].checksum, 2);
		}
	}
	return BATCH;
}

static __rte_always_inline bool ipv4_is_good(const uint8_t *bytes, uint32_t frame_len)
{
	const struct rte_ipv4_hdr *header = (const void *)(bytes + ETHERNET_LEN);
	const unaligned_uint32_t *words = (const void *)(bytes + ETHERNET_LEN);
	const uint32_t len = rte_be_to_cpu_16(header->total_length);
	uint64_t sum = (uint64_t)words[0] + words[1] + words[2] + words[3] + words[4];

	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (*(const unaligned_uint16_t *)(bytes + 12) == RTE_BE16(0x0800)) & (header->version_ihl == 0x45) &
	       (sum == 0xffff) & (header->time_to_live > 1) & (len >= 20) & (len + ETHERNET_LEN <= frame_len);
}

static __rte_always_inline bool ipv6_is_good(const uint8_t *bytes, uint32_t frame_len)
{
	const struct rte_ipv6_hdr *header = (const void *)(bytes + ETHERNET_LEN);
	const uint32_t len = rte_be_to_cpu_16(header->payload_len);

	return (*(const unaligned_uint16_t *)(bytes + 12) == RTE_BE16(0x86dd)) &
	       ((*(const uint8_t *)header & 0xf0) == 0x60) & (header->hop_limits > 1) &
	       (len + ETHERNET_LEN + 40 <= frame_len);
}

/* Keeps the packets that may be forwarded, and loads their table lines if `prefetch` says so. */
static __rte_always_inline void check(struct rte_mbuf **batch, unsigned int len, struct checked *checked,
				      const enum family family, const bool prefetch)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < len; i++) {
		const uint8_t *bytes = rte_pktmbuf_mtod(batch[i], const uint8_t *);
		bool is_good;

		checked->packets[kept] = batch[i];
		if (family == IPV4) {
			is_good = ipv4_is_good(bytes, batch[i]->data_len);
			checked->ipv4[kept] = rte_be_to_cpu_32(*(const unaligned_uint32_t *)(bytes + 30));
			if (prefetch)
				lpm_prefetch(checked->ipv4[kept]);
		} else {
			is_good = ipv6_is_good(bytes, batch[i]->data_len);
			memcpy(checked->ipv6[kept], bytes + 38, 16);
		}
		if (likely(is_good)) {
			kept++;
		} else {
			rte_pktmbuf_free(batch[i]);
			dropped++;
		}
	}
	checked->len = kept;
}

/* The next hops of checked packets; 0 has none. */
static __rte_always_inline void look_up(struct checked *checked, uint64_t *hops, const enum family family,
					const enum lookup lookup)
{
	uint32_t found[BATCH];

	if (family == IPV6) {
		rte_fib6_lookup_bulk(fib6, checked->ipv6, hops, checked->len);
		return;
	}
	if (lookup == FIB) {
		rte_fib_lookup_bulk(fib, checked->ipv4, hops, checked->len);
		return;
	}
	lpm_look_up(checked->ipv4, found, checked->len, lookup == LPM_X4);
	for (unsigned int i = 0; i < checked->len; i++)
		hops[i] = found[i];
}

/* Rewrites checked packets, and sorts them by port. */
static __rte_always_inline void finish(struct checked *checked, struct leaving *leaving, const enum family family,
				       const enum lookup lookup)
{
	uint64_t hops[BATCH];

	look_up(checked, hops, family, lookup);
	for (unsigned int i = 0; i < checked->len; i++) {
		const struct next_hop *hop = &next_hops[hops[i] & 0xffff];
		uint8_t *bytes = rte_pktmbuf_mtod(checked->packets[i], uint8_t *);

		if (unlikely(hops[i] - 1 >= NEXT_HOPS)) {
			rte_pktmbuf_free(checked->packets[i]);
			dropped++;
			continue;
		}
		memcpy(bytes, hop->macs, 12);
		if (family == IPV4) {
			struct rte_ipv4_hdr *header = (void *)(bytes + ETHERNET_LEN);
			uint32_t sum = header->hdr_checksum + RTE_BE16(0x0100);

			header->time_to_live--;
			header->hdr_checksum = sum + (sum >= 0xffff);
		} else {
			((struct rte_ipv6_hdr *)(bytes + ETHERNET_LEN))->hop_limits--;
		}
		leaving->packets[hop->port][leaving->len[hop->port]++] = checked->packets[i];
	}
	checked->len = 0;
}

/* Gives back what left, in bulk: all of it is of one pool, without other references. */
static __rte_always_inline uint64_t transmit(struct leaving *leaving)
{
	uint64_t sent = 0;

	for (unsigned int port = 0; port < PORTS; port++) {
		if (leaving->len[port])
			rte_mempool_put_bulk(pool, (void **)leaving->packets[port], leaving->len[port]);
		sent += leaving->len[port];
		leaving->len[port] = 0;
	}
	return sent;
}

/* A row while it is measured. */
struct turn {
	const struct row *row;
	unsigned int number;
	struct checked checked[2];
	struct leaving leaving;
};

/* Forwards a batch. With `late`, a batch's lookups wait until the next batch has been checked: by then the lines that
 * `check` has prefetched are there. */
static __rte_always_inline uint64_t turn_once(struct turn *turn, const enum family family, const enum lookup lookup,
					      const bool late)
{
	struct rte_mbuf *batch[BATCH];
	const unsigned int odd = turn->number++ & 1;
	static uint32_t next;
	unsigned int len = receive(turn->row, batch, next, turn->row->has_two_ports ? odd : 0, family);

	next = (next + BATCH) & (frames.targets - 1);
	if (lookup == NONE) {
		rte_mempool_put_bulk(pool, (void **)batch, len);
		return len;
	}
	check(batch, len, &turn->checked[odd], family, late);
	finish(&turn->checked[late ? !odd : odd], &turn->leaving, family, lookup);
	return transmit(&turn->leaving);
}

#define RUN(name, family, lookup, late)                                                 \
	static uint64_t name##_once(void *turn)                                         \
	{                                                                               \
		return turn_once(turn, family, lookup, late);                           \
	}                                                                               \
	static __rte_noinline struct share name(struct lap *lap, struct turn *turn)     \
	{                                                                               \
		return lap_run(lap, name##_once, turn);                                 \
	}

RUN(run_none, IPV4, NONE, false)
RUN(run_none6, IPV6, NONE, false)
RUN(run_bulk, IPV4, LPM_BULK, false)
RUN(run_bulk_late, IPV4, LPM_BULK, true)
RUN(run_x4, IPV4, LPM_X4, false)
RUN(run_x4_late, IPV4, LPM_X4, true)
RUN(run_fib, IPV4, FIB, false)
RUN(run_fib6, IPV6, FIB, false)

/* A way to look up. `type` is that of `rte_fib_select_lookup` or `rte_fib6_select_lookup`. */
struct way {
	const char *name;
	enum family family;
	struct share (*run)(struct lap *lap, struct turn *turn);
	int type;
	bool is_there;
};

static struct way ways[] = {
	{ "none", IPV4, run_none, -1, true },
	{ "none", IPV6, run_none6, -1, true },
	{ "lpm_bulk", IPV4, run_bulk, -1, true },
	{ "lpm_bulk_late", IPV4, run_bulk_late, -1, true },
	{ "lpm_x4", IPV4, run_x4, -1, true },
	{ "lpm_x4_late", IPV4, run_x4_late, -1, true },
	{ "fib_scalar", IPV4, run_fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO, true },
	{ "fib_avx512", IPV4, run_fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512, true },
	{ "fib6_scalar", IPV6, run_fib6, RTE_FIB6_LOOKUP_TRIE_SCALAR, true },
	{ "fib6_avx512", IPV6, run_fib6, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512, true },
};

static bool way_select(const struct way *way)
{
	if (way->type < 0)
		return true;
	return !(way->family == IPV4 ? rte_fib_select_lookup(fib, way->type) : rte_fib6_select_lookup(fib6, way->type));
}

/* All ways to look up find the same next hops: what is measured is right. */
static void compare_ways(void)
{
	static struct checked checked;
	uint64_t expected[BATCH], hops[BATCH];

	checked.len = BATCH;
	for (uint32_t first = 0; first < frames.targets; first += BATCH) {
		for (unsigned int i = 0; i < BATCH; i++) {
			checked.ipv4[i] = rte_be_to_cpu_32(frames.ipv4[0][first + i].address);
			memcpy(checked.ipv6[i], frames.ipv6[0][first + i].address, 16);
		}
		look_up(&checked, expected, IPV4, LPM_BULK);
		for (const struct way *way = ways; way < ways + RTE_DIM(ways); way++) {
			enum lookup lookup = way->run == run_bulk || way->run == run_bulk_late ? LPM_BULK :
					     way->run == run_x4 || way->run == run_x4_late     ? LPM_X4 :
												 FIB;

			if (way->family != IPV4 || way->run == run_none || !way->is_there || !way_select(way))
				continue;
			look_up(&checked, hops, IPV4, lookup);
			if (memcmp(hops, expected, sizeof(hops))) {
				fprintf(stderr, "%s finds another next hop than lpm_bulk\n", way->name);
				exit(1);
			}
		}
	}
}

static void set_next_hops(void)
{
	for (unsigned int i = 1; i <= NEXT_HOPS; i++) {
		const uint8_t macs[12] = { 2, 0x10, 0x10, 0x10, 0x10, i, 2, 0, 0, 0, 0, i & 1 };

		memcpy(next_hops[i].macs, macs, sizeof(macs));
		next_hops[i].port = i & 1;
	}
	for (unsigned int i = 0; i < BATCH; i++) {
		ipv4_same[i] = frames.ipv4[0][5];
		ipv6_same[i] = frames.ipv6[0][5];
	}
}

static void say_ready(void)
{
	const char *comma = "";

	printf("{\"version\":\"%s\",\"ways\":[", rte_version());
	for (struct way *way = ways; way < ways + RTE_DIM(ways); way++) {
		way->is_there = way_select(way);
		if (!way->is_there || way->run == run_none || way->run == run_none6)
			continue;
		printf("%s[\"ipv%d\",\"%s\"]", comma, way->family == IPV4 ? 4 : 6, way->name);
		comma = ",";
	}
	printf("]}\n");
	fflush(stdout);
}

static void answer(const char *row_name, const char *way_name, unsigned int ms)
{
	const struct row *row = rows;
	const struct way *way = ways;
	struct lap lap = { .cycles = cycles_of_us(1000ul * ms), .threads = 1 };
	static struct turn turn;

	while (row < rows + RTE_DIM(rows) && strcmp(row->name, row_name))
		row++;
	if (row == rows + RTE_DIM(rows)) {
		fprintf(stderr, "no row is named %s\n", row_name);
		exit(1);
	}
	while (way < ways + RTE_DIM(ways) && (way->family != row->family || strcmp(way->name, way_name)))
		way++;
	if (way == ways + RTE_DIM(ways) || !way_select(way)) {
		fprintf(stderr, "no lookup of %s is named %s\n", row_name, way_name);
		exit(1);
	}
	dropped = 0;
	turn.row = row;
	lap.shares[0] = way->run(&lap, &turn);
	/* Packets that were checked, and wait for the next batch. */
	for (unsigned int i = 0; i < RTE_DIM(turn.checked); i++) {
		rte_mempool_put_bulk(pool, (void **)turn.checked[i].packets, turn.checked[i].len);
		turn.checked[i].len = 0;
	}
	lap_print(&lap);
	printf(",\"dropped\":%lu}\n", dropped);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[128], row[32], way[32];
	int used = rte_eal_init(argc, argv), socket;
	struct table table;
	unsigned int ms;

	if (used < 0)
		die("DPDK does not start");
	if (argc - used != 2) {
		fprintf(stderr, "usage: peer-forward EAL-OPTIONS -- TABLE\n");
		return 2;
	}
	table = table_open(argv[used + 1]);
	frames = frames_read(&table);
	socket = memory_socket(HEAP_LEN);
	if (socket < 0)
		die("DPDK's heap");
	load_lpm(&table, socket);
	load_fibs(&table, socket);
	set_next_hops();
	pool = rte_pktmbuf_pool_create("peer", FRAMES, CACHED, 0, RTE_MBUF_DEFAULT_BUF_SIZE, socket);
	if (!pool)
		die("packet buffers");
	compare_ways();
	say_ready();
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %31s %u", row, way, &ms) != 3) {
			fprintf(stderr, "not a line of ROW LOOKUP MS: %s", line);
			return 1;
		}
		answer(row, way, ms);
	}
	return 0;
}
