// SPDX-License-Identifier: MIT OR Apache-2.0
//
// As xsk.bpf.c, for a device that may have taken a VLAN tag off the frame: it is put back, so that the
// socket's frame is as it was on the wire. On a veth the peer has removed it (`tx-vlan-offload`): its
// kernel hands the tag over beside the frame, and frames of all VLANs would look alike.
//
// A kernel function reads the tag (Linux 6.8, Documentation/networking/
// xdp-rx-metadata.rst), whose number is another in each kernel. The loader (`tagged.rs`) puts it in where
// this calls RX_VLAN_TAG, no helper's number, and makes the program one of the device's (xdp.frags for
// what xsk.bpf.c says).
//
// Built by `ci.sh bpf` as `xsk.bpf.c` says, to `xsk_tag.bpf.o`.

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define RX_VLAN_TAG 0x7661

static int (*rx_vlan_tag)(struct xdp_md *ctx, __be16 *type, __u16 *tag) = (void *)RX_VLAN_TAG;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

SEC("xdp.frags")
int to_socket(struct xdp_md *ctx)
{
	int verdict = bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
	__u16 *word, tag;
	__be16 type;

	// Without a socket the frame is the kernel's, which knows the tag.
	if (verdict != XDP_REDIRECT || rx_vlan_tag(ctx, &type, &tag) < 0)
		return verdict;
	if (bpf_xdp_adjust_head(ctx, -4) < 0)
		return XDP_ABORTED;
	word = (void *)(long)ctx->data;
	if ((void *)(word + 8) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	// The two addresses.
	word[0] = word[2];
	word[1] = word[3];
	word[2] = word[4];
	word[3] = word[5];
	word[4] = word[6];
	word[5] = word[7];
	word[6] = type;
	word[7] = bpf_htons(tag);
	return XDP_REDIRECT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
