// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Hears of each packet that the kernel drops, at the tracepoint skb/kfree_skb, and copies its headers and the reason
// into the ring `drops`. Attached only while a trace runs (`manylane trace`), which looks for its own
// packets among them.
//
// The tracepoint hears all network namespaces: a packet whose device is in another one than ours is passed over. Where
// the kernel's structures have what is read is in its own type information, from which the loader has the numbers.
//
// Built as `ingress.bpf.c`, to `drops.bpf.o`.

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "tables.h"

/* Where `struct sk_buff` has these, `struct net_device` its namespace, where that has its own number, and ours. The
 * first of a structure may be at 0: weak, else the compiler would take them for other numbers. */
extern const char head_at[] __attribute__((weak)), network_at[] __attribute__((weak)),
	protocol_at[] __attribute__((weak)), device_at[] __attribute__((weak)), device_net_at[] __attribute__((weak)),
	net_number_at[] __attribute__((weak)), net_number[];
/* The ring, and how many packets found no room in it. */
extern const char drops[];
extern __u64 lost[];

/* An IPv6 header, 32 bytes of extension headers, and what tells packets of a connection apart. */
#define HEAD_BYTES 80

struct record {
	__u64 time;
	__u32 reason, protocol;
	__u8 head[HEAD_BYTES];
};

SEC("raw_tp/kfree_skb")
int drop(struct bpf_raw_tracepoint_args *dropped)
{
	/* skb, location, reason */
	const char *skb = (const char *)dropped->args[0], *device = 0, *net = 0, *head = 0;
	struct record record = {};
	__u16 network = 0, protocol = 0;
	__u32 number = 0;

	if (bpf_probe_read_kernel(&protocol, sizeof(protocol), skb + NUMBER(protocol_at)) ||
	    (protocol != bpf_htons(0x0800) && protocol != bpf_htons(0x86dd)))
		return 0;
	if (bpf_probe_read_kernel(&device, sizeof(device), skb + NUMBER(device_at)))
		return 0;
	/* A packet without a device may be ours: its headers say so. */
	if (device && (bpf_probe_read_kernel(&net, sizeof(net), device + NUMBER(device_net_at)) || !net ||
		       bpf_probe_read_kernel(&number, sizeof(number), net + NUMBER(net_number_at)) ||
		       number != NUMBER(net_number)))
		return 0;
	if (bpf_probe_read_kernel(&head, sizeof(head), skb + NUMBER(head_at)) ||
	    bpf_probe_read_kernel(&network, sizeof(network), skb + NUMBER(network_at)) ||
	    bpf_probe_read_kernel(record.head, sizeof(record.head), head + network))
		return 0;
	record.time = bpf_ktime_get_ns();
	record.reason = dropped->args[2];
	record.protocol = bpf_ntohs(protocol);
	/* The reader looks from time to time. */
	if (bpf_ringbuf_output((void *)drops, &record, sizeof(record), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost[0], 1);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
