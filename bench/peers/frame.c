/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Packet memory by DPDK's pools: the peer of `manylane-bench compare frame`.
 *
 *     peer-frame EAL-OPTIONS        (two cores, the first one the main one)
 *
 * The program prints a line with its version when its pools are there. Then the program reads lines `WAY BULK OUTSTANDING
 * CORES MS` from standard input, takes memory of packets and gives it back for MS milliseconds as
 * bench/src/mechanisms/frame/work.rs does, on one core or from one core to the other, and prints a line with the shares.
 */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "memory.h"
#include "watch.h"

#define FRAMES 16383
#define FRAME_LEN 2048
/* The most that a pool allows. */
#define CACHED RTE_MEMPOOL_CACHE_MAX_SIZE
#define BULK_MAX 64
#define OUTSTANDING_MAX 4096
#define HEAP_LEN (512ul << 20)
/* Packets, or looks at an empty ring, between two looks at the clock. */
#define LOOK_EVERY 256
/* Packets have from 60 bytes to 1080, as those of scheme.rs. */
#define LENGTHS 1021

enum way { MEMPOOL, MEMPOOL_STACK, MBUF, MBUF_FAST, WAYS };

static const char *const way_names[WAYS] = { "mempool", "mempool_stack", "mbuf", "mbuf_fast" };
static struct rte_mempool *pools[WAYS];
static uint64_t mbuf_initializer;

/* What is measured. */
static struct {
	enum way way;
	unsigned int bulk;
	unsigned int outstanding;
	struct rte_ring *ring;
} row;

/* What differs from packet to packet. */
struct turn {
	uint16_t longer;
	uint16_t port;
};

static void *held[OUTSTANDING_MAX];
static struct turn turn;

/* What a receiving driver writes where the application wants port, length and a checked checksum. */
static __rte_always_inline void fill_in(struct rte_mbuf *packet, const enum way way)
{
	uint64_t rearm_data;
	uint16_t len;

	turn.longer = turn.longer == LENGTHS - 1 ? 0 : turn.longer + 1;
	turn.port++;
	len = 60 + turn.longer;
	if (way == MBUF) {
		packet->port = turn.port;
		packet->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
		packet->pkt_len = len;
		packet->data_len = len;
		return;
	}
	/* As vector drivers do: offset, references, segments and port by one store; type, lengths and tag by another. A packet
	 * that leaves by `RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE` has `next` as a new one has. */
	rearm_data = mbuf_initializer | (uint64_t)turn.port << 48;
	memcpy((char *)packet + offsetof(struct rte_mbuf, rearm_data), &rearm_data, sizeof(rearm_data));
	packet->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
#ifdef __SSE2__
	_mm_storeu_si128((void *)((char *)packet + offsetof(struct rte_mbuf, rx_descriptor_fields1)),
			 _mm_setr_epi32(0, len, len, 0));
#else
	packet->packet_type = 0;
	packet->pkt_len = len;
	packet->data_len = len;
	packet->vlan_tci = 0;
	packet->hash.rss = 0;
#endif
}

static __rte_always_inline bool take(void **packets, const enum way way, const unsigned int bulk)
{
	int failed;

	if (way == MBUF && bulk == 1) {
		packets[0] = rte_pktmbuf_alloc(pools[way]);
		failed = !packets[0];
	} else if (way == MBUF) {
		failed = rte_pktmbuf_alloc_bulk(pools[way], (struct rte_mbuf **)packets, bulk);
	} else {
		failed = rte_mempool_get_bulk(pools[way], packets, bulk);
	}
	if (unlikely(failed))
		return false;
	if (way == MBUF || way == MBUF_FAST)
		for (unsigned int i = 0; i < bulk; i++)
			fill_in(packets[i], way);
	return true;
}

static __rte_always_inline void give_back(void **packets, const enum way way, const unsigned int bulk)
{
	if (way == MBUF && bulk == 1)
		rte_pktmbuf_free(packets[0]);
	else if (way == MBUF)
		rte_pktmbuf_free_bulk((struct rte_mbuf **)packets, bulk);
	else
		rte_mempool_put_bulk(pools[way], packets, bulk);
}

/* Takes as many as are outstanding, call by call, and gives them back, call by call. */
static __rte_always_inline uint64_t sweep(const enum way way, const unsigned int bulk)
{
	for (unsigned int i = 0; i < row.outstanding; i += bulk) {
		if (unlikely(!take(held + i, way, bulk))) {
			fprintf(stderr, "the pool of %s is empty\n", way_names[way]);
			exit(1);
		}
	}
	for (unsigned int i = 0; i < row.outstanding; i += bulk)
		give_back(held + i, way, bulk);
	return row.outstanding;
}

/* Takes a call's packets and hands them over. Waits without a pause instruction, as the giving side does. */
static __rte_always_inline uint64_t hand_over(const enum way way, const unsigned int bulk)
{
	void *packets[BULK_MAX];

	while (unlikely(!take(packets, way, bulk)))
		;
	while (!rte_ring_sp_enqueue_bulk(row.ring, packets, bulk, NULL))
		;
	return bulk;
}

/* Gives back what is handed over, until the other side is done and the ring is empty. */
static __rte_always_inline struct share give_back_all(struct lap *lap, const enum way way, const unsigned int bulk)
{
	const uint64_t pause = cycles_of_us(PAUSE_US);
	struct watch watch = lap_start(lap);
	unsigned int idle = 0, received;
	uint64_t packets = 0, look_at = LOOK_EVERY;
	void *batch[BULK_MAX];

	for (;;) {
		received = rte_ring_sc_dequeue_burst(row.ring, batch, bulk, NULL);
		if (received == bulk) {
			give_back(batch, way, bulk);
		} else if (received) {
			give_back(batch, way, received);
		} else {
			idle++;
			/* Acquire: with it this side sees the last packets when it looks again. */
			if (__atomic_load_n(&lap->stop, __ATOMIC_ACQUIRE) && rte_ring_empty(row.ring))
				break;
		}
		packets += received;
		if (packets >= look_at || idle >= LOOK_EVERY) {
			watch_look(&watch, pause);
			look_at = packets + LOOK_EVERY;
			idle = 0;
		}
	}
	watch_look(&watch, pause);
	return watch_share(&watch, packets);
}

/* Loops for one way and one number of packets a call: all that is known at compile time is. */
#define LOOPS(way, bulk)                                                          \
	static uint64_t sweep_##way##_##bulk(void *of)                            \
	{                                                                         \
		(void)of;                                                         \
		return sweep(way, bulk);                                          \
	}                                                                         \
	static uint64_t hand_over_##way##_##bulk(void *of)                        \
	{                                                                         \
		(void)of;                                                         \
		return hand_over(way, bulk);                                      \
	}                                                                         \
	static __rte_noinline struct share one_core_##way##_##bulk(struct lap *lap) \
	{                                                                         \
		return lap_run(lap, sweep_##way##_##bulk, NULL);                  \
	}                                                                         \
	static __rte_noinline struct share take_##way##_##bulk(struct lap *lap)   \
	{                                                                         \
		return lap_run(lap, hand_over_##way##_##bulk, NULL);              \
	}                                                                         \
	static __rte_noinline struct share give_##way##_##bulk(struct lap *lap)   \
	{                                                                         \
		return give_back_all(lap, way, bulk);                             \
	}
#define LOOPS_OF(way) LOOPS(way, 1) LOOPS(way, 4) LOOPS(way, 16) LOOPS(way, 32) LOOPS(way, 64)

LOOPS_OF(MEMPOOL)
LOOPS_OF(MEMPOOL_STACK)
LOOPS_OF(MBUF)
LOOPS_OF(MBUF_FAST)

struct loops {
	enum way way;
	unsigned int bulk;
	struct share (*one_core)(struct lap *lap);
	struct share (*take)(struct lap *lap);
	struct share (*give)(struct lap *lap);
};

#define ENTRY(way, bulk) { way, bulk, one_core_##way##_##bulk, take_##way##_##bulk, give_##way##_##bulk }
#define ENTRIES(way) ENTRY(way, 1), ENTRY(way, 4), ENTRY(way, 16), ENTRY(way, 32), ENTRY(way, 64)

static const struct loops all_loops[] = { ENTRIES(MEMPOOL), ENTRIES(MEMPOOL_STACK), ENTRIES(MBUF), ENTRIES(MBUF_FAST) };
static const struct loops *loops;

static void on_one_core(struct lap *lap)
{
	lap->shares[0] = loops->one_core(lap);
}

static void on_the_taking_core(struct lap *lap)
{
	lap->shares[0] = loops->take(lap);
}

static int on_the_giving_core(void *lap)
{
	((struct lap *)lap)->shares[1] = loops->give(lap);
	return 0;
}

static void make_pools(int socket)
{
	struct rte_mempool *stack;
	struct rte_mbuf *packet;

	pools[MEMPOOL] = rte_mempool_create("ring", FRAMES, FRAME_LEN, CACHED, 0, NULL, NULL, NULL, NULL, socket, 0);
	stack = rte_mempool_create_empty("stack", FRAMES, FRAME_LEN, CACHED, 0, socket, 0);
	if (!stack || rte_mempool_set_ops_byname(stack, "stack", NULL) || rte_mempool_populate_default(stack) < 0)
		die("a pool with a stack");
	pools[MEMPOOL_STACK] = stack;
	pools[MBUF] = rte_pktmbuf_pool_create("mbuf", FRAMES, CACHED, 0, RTE_MBUF_DEFAULT_BUF_SIZE, socket);
	if (!pools[MEMPOOL] || !pools[MBUF])
		die("pools");
	pools[MBUF_FAST] = pools[MBUF];
	packet = rte_pktmbuf_alloc(pools[MBUF]);
	if (!packet)
		die("a packet");
	packet->port = 0;
	memcpy(&mbuf_initializer, (char *)packet + offsetof(struct rte_mbuf, rearm_data), sizeof(mbuf_initializer));
	rte_pktmbuf_free(packet);
}

static void answer(const char *way, const char *cores, unsigned int ms, int socket)
{
	const bool is_cross = !strcmp(cores, "cross");
	struct lap lap;

	row.way = WAYS;
	for (unsigned int i = 0; i < WAYS; i++)
		if (!strcmp(way_names[i], way))
			row.way = i;
	loops = NULL;
	for (const struct loops *one = all_loops; one < all_loops + RTE_DIM(all_loops); one++)
		if (one->way == row.way && one->bulk == row.bulk)
			loops = one;
	if (!loops || row.outstanding > OUTSTANDING_MAX || row.outstanding % row.bulk) {
		fprintf(stderr, "%s has no loop with %u of %u\n", way, row.bulk, row.outstanding);
		exit(1);
	}
	if (is_cross) {
		row.ring = rte_ring_create("between", row.outstanding, socket,
					   RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
		if (!row.ring)
			die("a ring");
	}
	if (is_cross)
		lap_both(&lap, ms, on_the_taking_core, on_the_giving_core);
	else
		lap_both(&lap, ms, on_one_core, NULL);
	if (is_cross)
		rte_ring_free(row.ring);
	lap_print(&lap);
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[128], way[32], cores[32];
	unsigned int ms;
	int socket;

	if (rte_eal_init(argc, argv) < 0)
		die("DPDK does not start");
	socket = memory_socket(HEAP_LEN);
	if (socket < 0)
		die("DPDK's heap");
	make_pools(socket);
	printf("{\"version\":\"%s\"}\n", rte_version());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %u %u %31s %u", way, &row.bulk, &row.outstanding, cores, &ms) != 5) {
			fprintf(stderr, "not a line of WAY BULK OUTSTANDING CORES MS: %s", line);
			return 1;
		}
		answer(way, cores, ms, socket);
	}
	return 0;
}
