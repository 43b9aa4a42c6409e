// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Chooses the queue of a TAP port for a frame that the host sends: by a hash of its flow, the same both
// ways. Left alone, the kernel moves a flow to the queue by which an answer to it was last written, so
// that frames that still lie in the other queue are overtaken.
//
// Fragments have no ports (but the first), so only the addresses count for all of a datagram.
//
// Built by `ci.sh bpf` as `xsk.bpf.c` says, to `steer.bpf.o`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define IP_FRAGMENT 0x3fff // More fragments, or an offset.

// Counted from the Ethernet header, wherever the packet's own pointer is; no farther than its first
// piece, where the headers are.
static __always_inline int load(struct __sk_buff *skb, __u32 offset, void *to, __u32 len)
{
	return bpf_skb_load_bytes_relative(skb, offset, to, len, BPF_HDR_START_MAC);
}

static __always_inline __u32 spread(__u32 sum)
{
	sum *= 0x9e3779b1; // Knuth's multiplicative hash; its upper bits are the good ones.
	return sum ^ sum >> 16;
}

static __always_inline __u32 ports(struct __sk_buff *skb, __u32 offset, __u8 protocol)
{
	__u16 port[2];

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return 0;
	if (load(skb, offset, port, sizeof(port)) < 0)
		return 0;
	return (__u32)(port[0] ^ port[1]) << 16 | (__u16)(port[0] + port[1]);
}

// The kernel takes the value modulo the number of queues.
SEC("socket")
int steer(struct __sk_buff *skb)
{
	__be16 type;

	if (load(skb, ETH_HLEN - 2, &type, sizeof(type)) < 0)
		return 0;
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;
		__u32 sum;

		if (load(skb, ETH_HLEN, &ip, sizeof(ip)) < 0)
			return 0;
		sum = ip.saddr ^ ip.daddr;
		if (!(ip.frag_off & bpf_htons(IP_FRAGMENT)))
			sum += ports(skb, ETH_HLEN + ip.ihl * 4, ip.protocol);
		return spread(sum);
	}
	if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;
		__u32 *from = ip.saddr.in6_u.u6_addr32, *to = ip.daddr.in6_u.u6_addr32, sum;

		if (load(skb, ETH_HLEN, &ip, sizeof(ip)) < 0)
			return 0;
		sum = (from[0] ^ to[0]) + (from[1] ^ to[1]) + (from[2] ^ to[2]) + (from[3] ^ to[3]);
		return spread(sum + ports(skb, ETH_HLEN + sizeof(ip), ip.nexthdr));
	}
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
