/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The routing policy (ip-rule(8)), where it is more than the usual three rules: which table routes a packet.
 * As `fib_rules_lookup` in the kernel's net/core/fib_rules.c: rule by rule, and on to the next where the table
 * has no route. `manylane-net` has the same in transit/policy.rs, where the words are explained.
 *
 * All of it is out of line: with only the usual rules, it costs one load of a word that is in the
 * line of the lease.
 */
#ifndef MANYLANE_PROGRAMS_RULES_H
#define MANYLANE_PROGRAMS_RULES_H

#include <bpf/bpf_endian.h>

#include "fib.h"
#include "tables.h"

/* Where in the word of lists IPv6's begins. */
#define LISTS_V6 16

/* Binary search: fewer than 2^19 ranges. */
#define STEPS_RANGES 19

/* What rules look at. */
struct query {
	/* By halves, in the host's byte order; an IPv4 address is the upper half of the first. */
	__u64 to[2], from[2];
	/* The packet's ingress interface. */
	__u32 interface;
	__u32 tos;
	/* What the merged tables say of `to`. */
	__u32 merged;
	__u32 list;
};

/* 1 if one number of 128 bits is smaller than another, else 0: what is borrowed when it is taken away. */
static __always_inline __u64 is_below(__u64 upper, __u64 lower, __u64 than_upper, __u64 than_lower)
{
	__u64 borrow = ((~lower & than_lower) | (~(lower ^ than_lower) & (lower - than_lower))) >> 63;
	__u64 rest = upper - than_upper - borrow;

	return ((~upper & than_upper) | (~(upper ^ than_upper) & rest)) >> 63;
}

/* The next hop of an address in a further table. Not static: the verifier follows it by itself, once. */
__noinline __u32 in_table(__u32 table, __u64 upper, __u64 lower)
{
	__u64 root = LOAD(roots[table & (TABLES - 1)]);
	__u64 at = root & 0xffffffff, left = root >> 32;
	int step;

	/* The first range begins with the first address. */
	for (step = 0; step < STEPS_RANGES && left > 1; step++) {
		__u64 half = left >> 1, middle = at + half * RANGE_WORDS;

		BOUNDED(middle);
		if (middle > FURTHER_WORDS - RANGE_WORDS)
			return 0;
		/* All ones if the range begins at the address or before, else nothing. */
		at += half * RANGE_WORDS &
		      (is_below(upper, lower, LOAD(further[middle]), LOAD(further[middle + 1])) - 1);
		left -= half;
	}
	BOUNDED(at);
	if (!left || at > FURTHER_WORDS - RANGE_WORDS)
		return 0;
	return LOAD(further[at + RANGE_ID]) & (NEXT_HOPS - 1);
}

static __always_inline __u32 kind_of(__u32 id)
{
	return LOAD(next_hops[id & (NEXT_HOPS - 1)]) & 0xff;
}

/* What of a packet is not as a rule says. */
static __always_inline __u64 differs(const struct query *query, const __u64 *rule, __u64 head)
{
	__u64 ingress = LOAD(rule[RULE_INGRESS]);
	__u64 other = (query->from[0] ^ LOAD(rule[RULE_FROM])) & LOAD(rule[RULE_FROM_MASK]);

	other |= (query->from[1] ^ LOAD(rule[RULE_FROM + 1])) & LOAD(rule[RULE_FROM_MASK + 1]);
	other |= (query->to[0] ^ LOAD(rule[RULE_TO])) & LOAD(rule[RULE_TO_MASK]);
	other |= (query->to[1] ^ LOAD(rule[RULE_TO + 1])) & LOAD(rule[RULE_TO_MASK + 1]);
	other |= (query->tos ^ head >> 24) & (head >> 32 & 0xff);
	return ingress ? other | (ingress ^ query->interface) : other;
}

/* The next hop by the rules of a list; a verdict below 0, if they lead to none. Not static, as `in_table`. */
__noinline int by_rules(const struct query *query)
{
	int number;

	if (!query)
		return -KERNEL_ROUTE; /* Every caller has one; the verifier wants to see that. */
	/* The route could be one of the local table, which is read first. */
	if (query->merged == UNKNOWN)
		return -KERNEL_ROUTE;
	for (number = 0; number < RULES; number++) {
		const __u64 *rule = &rules[((query->list & (RULE_LISTS - 1)) * RULES + number) * RULE_WORDS];
		__u64 head = LOAD(rule[RULE_HEAD]);
		__u32 id;

		if ((head & 0xff) == ACTION_END)
			break;
		if (!differs(query, rule, head) == !!(head & RULE_INVERTED))
			continue;
		switch (head & 0xff) {
		case ACTION_LOCAL:
			id = kind_of(query->merged);
			if (id == HOP_LOCAL || id == HOP_BROADCAST)
				return query->merged;
			break;
		case ACTION_MERGED:
			if (kind_of(query->merged) != HOP_NONE)
				return query->merged;
			break;
		case ACTION_TABLE:
			id = in_table(head >> 16 & 0xff, query->to[0], query->to[1]);
			if (kind_of(id) != HOP_NONE)
				return id;
			break;
		case ACTION_NOWHERE:
			return -NOWHERE;
		default:
			return -KERNEL_ROUTE;
		}
	}
	return -NO_ROUTE;
}

/* The next hop of an IPv4 packet with these addresses, in the host's byte order, by the rules of a list. */
static __noinline int by_rules4(__u64 from, __u64 to, __u64 interface_and_tos, __u32 merged, __u32 list)
{
	struct query query = {
		.to = { to << 32 },
		.from = { from << 32 },
		.interface = interface_and_tos >> 8,
		.tos = interface_and_tos & 0xff,
		.merged = merged,
		.list = list,
	};

	return by_rules(&query);
}

/* The next hop of an IPv6 packet with these addresses, as they lie in memory, by the rules of a list. */
static __noinline int by_rules6(const __u32 *from, const __u64 *to, __u64 interface_and_tos, __u32 merged, __u32 list)
{
	struct query query = {
		.to = { bpf_be64_to_cpu(to[0]), bpf_be64_to_cpu(to[1]) },
		.interface = interface_and_tos >> 8,
		.tos = interface_and_tos & 0xff,
		.merged = merged,
		.list = list,
	};
	int half;

	__builtin_memcpy(query.from, from, 16);
#pragma unroll
	for (half = 0; half < 2; half++)
		query.from[half] = bpf_be64_to_cpu(query.from[half]);
	return by_rules(&query);
}

#endif
