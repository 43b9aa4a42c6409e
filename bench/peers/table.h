/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The file that `manylane-bench forward --peer dpdk` writes: routes, what the device writes, and where it goes. Both
 * sides read the same one, so they forward the same frames by the same table. Numbers are in the machine's byte order,
 * addresses and checksums in the network's.
 */

#ifndef TABLE_H
#define TABLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_LEN 64
#define KINDS 3
#define PORTS 2

enum family { IPV4, IPV6, FAMILIES };

struct table_head {
	char magic[8];
	uint32_t ipv4_routes;
	uint32_t ipv6_routes;
	/* A power of two. */
	uint32_t targets;
	/* Bytes of a frame of each kind. */
	uint32_t lens[KINDS];
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

struct ipv4_target {
	uint32_t address;
	uint16_t checksum;
	uint16_t kind;
};

struct ipv6_target {
	uint8_t address[16];
	uint16_t checksum;
	uint16_t kind;
};

struct table {
	struct table_head head;
	struct ipv4_route *ipv4;
	struct ipv6_route *ipv6;
	uint8_t templates[FAMILIES][PORTS][KINDS][HEAD_LEN];
	/* Frames of 64 bytes, then frames of mixed lengths. */
	struct ipv4_target *ipv4_targets[2];
	struct ipv6_target *ipv6_targets[2];
};

static void table_read(FILE *file, void *to, size_t size, const char *what)
{
	if (fread(to, size, 1, file) != 1) {
		fprintf(stderr, "the table file ends within its %s\n", what);
		exit(1);
	}
}

static void *table_array(FILE *file, size_t count, size_t size, const char *what)
{
	void *array = aligned_alloc(64, (count * size + 63) / 64 * 64);

	if (!array) {
		fprintf(stderr, "no memory for the %s\n", what);
		exit(1);
	}
	table_read(file, array, count * size, what);
	return array;
}

static struct table table_open(const char *path)
{
	struct table table;
	FILE *file = fopen(path, "rb");

	if (!file) {
		perror(path);
		exit(1);
	}
	table_read(file, &table.head, sizeof(table.head), "head");
	if (memcmp(table.head.magic, "MLPEER01", 8)) {
		fprintf(stderr, "%s: not a file that manylane-bench wrote for its peers\n", path);
		exit(1);
	}
	table.ipv4 = table_array(file, table.head.ipv4_routes, sizeof(*table.ipv4), "IPv4 routes");
	table.ipv6 = table_array(file, table.head.ipv6_routes, sizeof(*table.ipv6), "IPv6 routes");
	table_read(file, table.templates, sizeof(table.templates), "templates");
	for (int mix = 0; mix < 2; mix++) {
		table.ipv4_targets[mix] =
			table_array(file, table.head.targets, sizeof(struct ipv4_target), "IPv4 targets");
		table.ipv6_targets[mix] =
			table_array(file, table.head.targets, sizeof(struct ipv6_target), "IPv6 targets");
	}
	fclose(file);
	return table;
}

#endif
