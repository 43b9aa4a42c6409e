/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A table in each of DPDK's structures that finds a longest match.
 */

#ifndef LOOKUPS_H
#define LOOKUPS_H

#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_prefetch.h>

#include "memory.h"
#include "table.h"

static struct rte_lpm *lpm;
static struct rte_fib *fib;
static struct rte_fib6 *fib6;

static int shorter(const void *one, const void *other)
{
	return (int)((const struct ipv4_route *)one)->len - (int)((const struct ipv4_route *)other)->len;
}

/* Routes of up to 24 bits are written into the public table directly, shortest first, which leaves what `rte_lpm_add`
 * would leave: that function compares each route with all others of its length. */
static void load_lpm(struct table *table, int socket)
{
	const struct rte_lpm_config config = { .max_rules = 65536, .number_tbl8s = 65536 };

	lpm = rte_lpm_create("peer", socket, &config);
	if (!lpm)
		die("rte_lpm");
	qsort(table->ipv4, table->head.ipv4_routes, sizeof(*table->ipv4), shorter);
	for (uint32_t i = 0; i < table->head.ipv4_routes; i++) {
		const struct ipv4_route *route = &table->ipv4[i];
		const struct rte_lpm_tbl_entry entry = {
			.next_hop = route->hop,
			.valid = 1,
			.valid_group = 0,
			.depth = route->len,
		};

		if (route->len > 24) {
			if (rte_lpm_add(lpm, route->address, route->len, route->hop))
				die("rte_lpm_add");
			continue;
		}
		for (uint32_t at = 0; at < 1u << (24 - route->len); at++)
			lpm->tbl24[(route->address >> 8) + at] = entry;
	}
}

static void load_fibs(const struct table *table, int socket)
{
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.max_routes = 1100000,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_4B, .num_tbl8 = 65536 },
	};
	/* A table of a quarter of that size is full before the prefixes of a real table are in it. */
	struct rte_fib6_conf config6 = {
		.type = RTE_FIB6_TRIE,
		.max_routes = 400000,
		.trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = 1 << 20 },
	};

	fib = rte_fib_create("peer", socket, &config);
	fib6 = rte_fib6_create("peer6", socket, &config6);
	if (!fib || !fib6)
		die("rte_fib");
	for (uint32_t i = 0; i < table->head.ipv4_routes; i++)
		if (rte_fib_add(fib, table->ipv4[i].address, table->ipv4[i].len, table->ipv4[i].hop) < 0)
			die("rte_fib_add");
	for (uint32_t i = 0; i < table->head.ipv6_routes; i++)
		if (rte_fib6_add(fib6, table->ipv6[i].address, table->ipv6[i].len, table->ipv6[i].hop) < 0)
			die("rte_fib6_add");
}

/* Up to 64 next hops by `rte_lpm`; 0 where it has none. */
static __rte_always_inline void lpm_look_up(const uint32_t *addresses, uint32_t *hops, unsigned int len, const bool by_four)
{
	unsigned int i = 0;

	if (!by_four) {
		rte_lpm_lookup_bulk(lpm, addresses, hops, len);
		for (; i < len; i++)
			hops[i] = hops[i] & RTE_LPM_LOOKUP_SUCCESS ? hops[i] & 0xffffff : 0;
		return;
	}
	for (; i + 4 <= len; i += 4)
		rte_lpm_lookupx4(lpm, _mm_loadu_si128((const void *)(addresses + i)), hops + i, 0);
	for (; i < len; i++) {
		hops[i] = 0;
		rte_lpm_lookup(lpm, addresses[i], &hops[i]);
	}
}

/* Loads what `rte_lpm` reads first of an address. */
static __rte_always_inline void lpm_prefetch(uint32_t address)
{
	rte_prefetch0(&lpm->tbl24[address >> 8]);
}

#endif
