/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the program in the driver counts.
 */
#ifndef MANYLANE_PROGRAMS_ROWS_H
#define MANYLANE_PROGRAMS_ROWS_H

#include <bpf/bpf_helpers.h>

#include "devices.h"

/* The rows of this CPU, which no other CPU writes; 0 if this CPU's number is beyond the table. */
static __always_inline __u64 *rows(void)
{
	__u64 at = (__u64)bpf_get_smp_processor_id() * (PORTS * DRIVER_PLACES);

	return at > NUMBER(driver_counters_words) - PORTS * DRIVER_PLACES ? 0 : &driver_counters[at];
}

static __always_inline __u64 *row(__u64 *rows, __u32 port)
{
	return &rows[(port & (PORTS - 1)) * DRIVER_PLACES];
}

static __always_inline void count_one(__u32 port, __u32 place)
{
	__u64 *all = rows();

	if (all)
		row(all, port)[place & (DRIVER_PLACES - 1)]++;
}

static __always_inline void count_forwarded(__u32 ingress, __u32 egress, __u64 len)
{
	__u64 *all = rows(), *in, *out;

	if (!all)
		return;
	in = row(all, ingress);
	out = row(all, egress);
	in[DRIVER_PACKETS_IN]++;
	in[DRIVER_BYTES_IN] += len;
	out[DRIVER_PACKETS_OUT]++;
	out[DRIVER_BYTES_OUT] += len;
}

static __always_inline void count_handed(__u32 ingress, __u64 len)
{
	__u64 *all = rows(), *in;

	if (!all)
		return;
	in = row(all, ingress);
	in[WORKERS_PACKETS]++;
	in[WORKERS_BYTES] += len;
}

#endif
