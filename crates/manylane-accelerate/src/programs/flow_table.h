/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The flow table: the connections that the kernel's firewall and translation have decided about. `manylane-net` has the
 * same in transit/flows/, which says what the words mean and which side writes them.
 *
 * An entry is one direction of a connection, and names that of the other. Its place is a home of its hash, one of two lines
 * side by side, or where the index leads. What identifies it is compared whole, wherever it is.
 *
 * | table          | index                                                                       |
 * |----------------|-----------------------------------------------------------------------------|
 * | flow_index     | bucket * 8 + place: the upper half of the hash; below, the entry plus one   |
 * | flow_entries   | entry * 8: FLOW_...                                                         |
 * | flow_addresses | entry * 4: IPv6 source and destination                                      |
 */
#ifndef MANYLANE_PROGRAMS_FLOW_TABLE_H
#define MANYLANE_PROGRAMS_FLOW_TABLE_H

#include "flow.h"
#include "tables.h"

#define FLOW_BUCKET 8
#define FLOW_WORDS 8

extern const __u64 flow_index[];
extern __u64 flow_entries[];
extern const __u64 flow_addresses[];
extern const char flow_index_words[], flow_entries_words[], flow_addresses_words[];

/* Words of an entry. The daemon writes the first five, programs the rest. */
#define FLOW_ADDRESSES 0 /* IPv4: source, destination from bit 32, as they lie in memory. */
#define FLOW_ENDS 1 /* Ports as they lie in memory, protocol from bit 32, 1 for IPv6 at 40; 1 at 41 when it was taken out;
		     * the other direction's entry from 42. */
#define FLOW_NEW_ADDRESSES 2 /* IPv4: as FLOW_ADDRESSES, translated. */
#define FLOW_NEW_PORTS 3 /* Ports, translated; from bit 32 what is added to sums for the addresses, from 48 for ports. */
#define FLOW_STATE 4 /* Generation; from bit 32 the ingress and the egress port; from bit 48 flags. */
#define FLOW_PACKETS 5
#define FLOW_BYTES 6
#define FLOW_USE 7 /* Three parts: FLOW_USED_..., FLOW_SEEN_..., FLOW_CLOSES_... */

#define FLOW_TRANSLATED 1
#define FLOW_OTHER_FROM 42

/* Of FLOW_USE: 32 bits, the tick of the last packet times two, plus one if it had a payload; 16 bits, packets that the
 * kernel got; 16 bits, 1 when the connection is being opened, closed or reset. */
#define FLOW_USED(entry) (((__u32 *)&(entry)[FLOW_USE])[0])
#define FLOW_SEEN(entry) (((__u16 *)&(entry)[FLOW_USE])[2])
#define FLOW_CLOSES(entry) (((__u16 *)&(entry)[FLOW_USE])[3])

/* What identifies a direction of a connection. */
struct flow_key {
	/* IPv4: the first alone, as FLOW_ADDRESSES. IPv6: source, destination. */
	__u64 addresses[4];
	/* As FLOW_ENDS. */
	__u64 ends;
	__u64 hash;
};

static __always_inline __u64 mixed(__u64 word, __u64 by)
{
	return fold(word * by);
}

/* The key's hash: by multipliers that follow from the accelerator's seed, which senders do not know. */
static __always_inline void hash_flow(struct flow_key *key, int is_ipv6)
{
	struct flow_seed seed = seeded(LOAD(control[CONTROL_SEED]));
	__u64 hash = mixed(key->addresses[0] ^ seed.sum, seed.end);

	if (is_ipv6) {
		hash = mixed(hash ^ key->addresses[1], seed.end);
		hash = mixed(hash ^ key->addresses[2], seed.end);
		hash = mixed(hash ^ key->addresses[3], seed.end);
	}
	key->hash = mixed(hash ^ key->ends, seed.port);
}

/* The words of an entry, by its number plus one; 0 beyond the table. */
static __always_inline __u64 *flow_at(__u32 place)
{
	__u64 at = ((__u64)place - 1) * FLOW_WORDS;

	BOUNDED(at);
	return at > NUMBER(flow_entries_words) - FLOW_WORDS ? 0 : &flow_entries[at];
}

/* The IPv6 addresses of an entry: four words; 0 beyond the table. */
static __always_inline const __u64 *flow_addresses_at(__u32 place)
{
	__u64 at = ((__u64)place - 1) * 4;

	BOUNDED(at);
	return at > NUMBER(flow_addresses_words) - 4 ? 0 : &flow_addresses[at];
}

/* The number plus one of the entry to which the index leads; 0 if to none. */
static __noinline __u32 stray_flow(__u64 hash)
{
	__u64 at = hash & (NUMBER(flow_index_words) - 1) & ~(__u64)(FLOW_BUCKET - 1), word;
	__u32 tag = hash >> 32 | 1;
	int half, number;

#pragma unroll
	for (half = 0; half < 2; half++) {
		BOUNDED(at);
		/* The loader makes no table shorter than two buckets. */
		if (at > NUMBER(flow_index_words) - FLOW_BUCKET)
			return 0;
		asm volatile("" : "+r"(at));
#pragma unroll
		for (number = 0; number < FLOW_BUCKET; number++) {
			word = LOAD(flow_index[at + number]);
			if (word >> 32 == tag)
				return word;
		}
		at ^= FLOW_BUCKET;
	}
	return 0;
}

/* Whether the entry has this key. What is loaded of the entry afterwards is loaded behind its ends: `place` is made to depend
 * on them. */
static __always_inline int is_flow(__u32 *place, const struct flow_key *key, int is_ipv6)
{
	const __u64 *entry = flow_at(*place), *addresses;
	__u64 differs;

	if (!entry)
		return 0;
	/* Above are the bits that lead to the other direction. */
	differs = (LOAD(entry[FLOW_ENDS]) ^ key->ends) << (64 - FLOW_OTHER_FROM);
	if (differs)
		return 0;
	BOUNDED(differs);
	*place += differs;
	if (is_ipv6) {
		addresses = flow_addresses_at(*place);
		if (!addresses)
			return 0;
		differs = (LOAD(addresses[0]) ^ key->addresses[0]) | (LOAD(addresses[1]) ^ key->addresses[1]) |
			  (LOAD(addresses[2]) ^ key->addresses[2]) | (LOAD(addresses[3]) ^ key->addresses[3]);
	} else {
		entry = flow_at(*place);
		if (!entry)
			return 0;
		differs = LOAD(entry[FLOW_ADDRESSES]) ^ key->addresses[0];
	}
	return !differs;
}

/* The number plus one of the entry with this key; 0 if none has it. */
static __noinline __u32 find_flow(struct flow_key *key, int is_ipv6)
{
	__u32 home, place;

	hash_flow(key, is_ipv6);
	home = (key->hash & 0xffffffff) * (NUMBER(flow_entries_words) / FLOW_WORDS) >> 32;
	place = home + 1;
	if (is_flow(&place, key, is_ipv6))
		return place;
	place = (home ^ 1) + 1;
	if (is_flow(&place, key, is_ipv6))
		return place;
	place = stray_flow(key->hash);
	return place && is_flow(&place, key, is_ipv6) ? place : 0;
}

/* The number plus one of the other direction's entry. */
static __always_inline __u32 other_flow(const __u64 *entry)
{
	return (LOAD(entry[FLOW_ENDS]) >> FLOW_OTHER_FROM) + 1;
}

/* A packet of `len` bytes of IP has been forwarded. Plain stores: a direction's packets are on one CPU, nearly always, and
 * where they are not, a packet may be missing from the sum. */
static __always_inline void count_flow(__u32 place, __u32 len, __u32 has_payload)
{
	__u64 *entry = flow_at(place);

	if (!entry)
		return;
	entry[FLOW_PACKETS]++;
	entry[FLOW_BYTES] += len;
	*(volatile __u32 *)&FLOW_USED(entry) = (__u32)NOW() << 1 | (has_payload != 0);
}

/* The kernel gets a packet of this direction; with `closes`, from here on all packets of both. */
static __always_inline void leave_flow(__u32 place, __u32 closes)
{
	__u64 *entry = flow_at(place), *other;

	if (!entry)
		return;
	*(volatile __u16 *)&FLOW_SEEN(entry) = FLOW_SEEN(entry) + 1;
	if (closes) {
		*(volatile __u16 *)&FLOW_CLOSES(entry) = 1;
		other = flow_at(other_flow(entry));
		if (other)
			*(volatile __u16 *)&FLOW_CLOSES(other) = 1;
	}
}

#endif
