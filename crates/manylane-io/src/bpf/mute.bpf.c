// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Takes every frame of an AF_PACKET port away from the host's own stack: packet sockets have their copy
// by now (`__netif_receive_skb_core` serves them before tcx ingress), and only manylane is to answer or
// forward what the port has received.
//
// Built by `ci.sh bpf` as `xsk.bpf.c` says, to `mute.bpf.o`.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

// 1 when the port closes. One word for both programs: a frame that its sockets refuse is the stack's, so none is
// lost without a counter of either.
volatile __u32 released = 0;

SEC("classifier")
int mute(struct __sk_buff *skb)
{
	// The numbers of TCX_NEXT and TCX_DROP, which older headers lack.
	return released ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

// The sockets' filter while they close: all of a frame, or nothing.
SEC("socket")
int shut(struct __sk_buff *skb)
{
	return released ? 0 : 0xffffffff;
}

char _license[] SEC("license") = "Dual MIT/GPL";
