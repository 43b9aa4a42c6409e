// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Puts an interface into a VLAN, as a VLAN device of the kernel's on top of it would: for labs on kernels
// without such devices. The outer tag is left to the device where that takes it (`tx-vlan-offload`), the
// inner one is in the frame, as there.
//
// Built by `ci.sh bpf` as `xsk.bpf.c` says, to `vlan.bpf.o`.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define VLAN 0x0fff

// Ether type and number of each; no inner tag if it is 0.
volatile const __u32 outer;
volatile const __u32 inner;

static __always_inline int put(struct __sk_buff *skb, __u32 tag)
{
	return bpf_skb_vlan_push(skb, bpf_htons(tag >> 16), tag & VLAN);
}

// Whether the tag was there, and is no longer.
static __always_inline int take(struct __sk_buff *skb, __u32 tag)
{
	return skb->vlan_present && skb->vlan_proto == bpf_htons(tag >> 16) &&
	       (skb->vlan_tci & VLAN) == (tag & VLAN) && bpf_skb_vlan_pop(skb) == 0;
}

SEC("classifier")
int put_on(struct __sk_buff *skb)
{
	if (inner && put(skb, inner) < 0)
		return TC_ACT_SHOT;
	return put(skb, outer) < 0 ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

// Drops a frame that is in no VLAN, or in another.
SEC("classifier")
int take_off(struct __sk_buff *skb)
{
	if (!take(skb, outer) || (inner && !take(skb, inner)))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual MIT/GPL";
