// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Hears of each flush of redirected frames to a device, at the kernel's tracepoint xdp_devmap_xmit. A driver may
// refuse all of them though it says that it takes them (a veth whose peer cannot receive them does); the kernel reports
// it nowhere else, and the frames are lost. From the first such flush on `driver.bpf.c` sends no more there: at most
// the frames of one turn of each CPU are lost before.
//
// A flush that takes only some has no error: the device's queue is full, as it may be.
//
// The tracepoint hears all network namespaces: only devices of ours count. Where the kernel's structures have what
// is read is in its own type information, from which the loader has the numbers.
//
// Built as `ingress.bpf.c`, to `flush.bpf.o`.

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "devices.h"

/* Where `struct net_device` has its number and its namespace, where that has its own number, and ours. */
extern const char device_index_at[], device_net_at[], net_number_at[], net_number[];

SEC("raw_tp/xdp_devmap_xmit")
int flush(struct bpf_raw_tracepoint_args *flushed_to)
{
	/* from_dev, to_dev, sent, drops, err */
	const char *device = (const char *)flushed_to->args[1];
	__s32 error = flushed_to->args[4];
	__u32 index = 0, number = 0, port;
	const char *net = 0;

	if (error >= 0)
		return 0;
	if (bpf_probe_read_kernel(&net, sizeof(net), device + NUMBER(device_net_at)) || !net ||
	    bpf_probe_read_kernel(&number, sizeof(number), net + NUMBER(net_number_at)) ||
	    number != NUMBER(net_number) ||
	    bpf_probe_read_kernel(&index, sizeof(index), device + NUMBER(device_index_at)))
		return 0;
	if (index >= INTERFACES)
		return 0;
	port = LOAD(port_of[index]) & (PORTS - 1);
	if (!port)
		return 0;
	flushed[port * 2 + 1] = -error;
	__sync_fetch_and_add(&flushed[port * 2], flushed_to->args[3]);
	__sync_fetch_and_add(&failing[port], 1);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
