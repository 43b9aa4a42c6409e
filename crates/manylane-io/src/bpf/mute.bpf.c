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

SEC("classifier")
int mute(struct __sk_buff *skb)
{
	return TC_ACT_SHOT; // The same number as TCX_DROP, which older headers lack.
}

char _license[] SEC("license") = "Dual MIT/GPL";
