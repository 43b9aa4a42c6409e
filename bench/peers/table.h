/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The file that `manylane-bench --peer dpdk` writes: routes, and what is to be looked up by them. Both sides read these
 * routes and destinations. Numbers are in the machine's byte order, addresses within frames in the network's.
 */

#ifndef TABLE_H
#define TABLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum family { IPV4, IPV6, FAMILIES };

struct table_head {
	char magic[8];
	uint32_t ipv4_routes;
	uint32_t ipv6_routes;
	/* Destinations of each family: a power of two. */
	uint32_t targets;
};

/* The address is a number here. */
struct ipv4_route {
	uint32_t address;
	uint32_t len;
	uint32_t hop;
};

struct ipv6_route {
	uint8_t address[16];
	uint32_t len;
	uint32_t hop;
};

struct table {
	FILE *file;
	struct table_head head;
	struct ipv4_route *ipv4;
	struct ipv6_route *ipv6;
};

static void table_read(struct table *table, void *to, size_t size, const char *what)
{
	if (fread(to, size, 1, table->file) != 1) {
		fprintf(stderr, "the table file ends within its %s\n", what);
		exit(1);
	}
}

static void *table_array(struct table *table, size_t count, size_t size, const char *what)
{
	void *array = aligned_alloc(64, (count * size + 63) / 64 * 64);

	if (!array) {
		fprintf(stderr, "no memory for the %s\n", what);
		exit(1);
	}
	table_read(table, array, count * size, what);
	return array;
}

/* Reads the routes. The program reads what follows them, and closes the file. */
static struct table table_open(const char *path)
{
	struct table table = { .file = fopen(path, "rb") };

	if (!table.file) {
		perror(path);
		exit(1);
	}
	table_read(&table, &table.head, sizeof(table.head), "head");
	if (memcmp(table.head.magic, "MLPEER02", 8)) {
		fprintf(stderr, "%s: not a file that manylane-bench wrote for its peers\n", path);
		exit(1);
	}
	table.ipv4 = table_array(&table, table.head.ipv4_routes, sizeof(*table.ipv4), "IPv4 routes");
	table.ipv6 = table_array(&table, table.head.ipv6_routes, sizeof(*table.ipv6), "IPv6 routes");
	return table;
}

#endif
