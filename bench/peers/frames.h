/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What follows the routes in the file of `manylane-bench forward --peer dpdk`: the frames that a device writes.
 */

#ifndef FRAMES_H
#define FRAMES_H

#include "table.h"

#define HEAD_LEN 64
#define KINDS 3
#define PORTS 2

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

struct frames {
	/* A power of two. */
	uint32_t targets;
	/* Bytes of a frame of each kind. */
	uint32_t lens[KINDS];
	uint8_t templates[FAMILIES][PORTS][KINDS][HEAD_LEN];
	/* Frames of 64 bytes, then frames of mixed lengths. */
	struct ipv4_target *ipv4[2];
	struct ipv6_target *ipv6[2];
};

static struct frames frames_read(struct table *table)
{
	struct frames frames = { .targets = table->head.targets };

	table_read(table, frames.lens, sizeof(frames.lens), "lengths");
	table_read(table, frames.templates, sizeof(frames.templates), "templates");
	for (int mix = 0; mix < 2; mix++) {
		frames.ipv4[mix] = table_array(table, frames.targets, sizeof(struct ipv4_target), "IPv4 targets");
		frames.ipv6[mix] = table_array(table, frames.targets, sizeof(struct ipv6_target), "IPv6 targets");
	}
	fclose(table->file);
	return frames;
}

#endif
