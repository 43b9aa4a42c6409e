// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Forwarders for benches, to measure ours against. Both age a packet as a router does, and redirect it by a map of
// devices; what they do not forward they pass on.
//
// | program           | which way                                             | what it looks at                |
// |-------------------|-------------------------------------------------------|---------------------------------|
// | `yardstick_fib`   | the kernel's tables, by its helper (`bpf_fib_lookup`) | version, lengths, options, checksum, TTL, the way's MTU |
// | `yardstick_floor` | always the same                                       | the type and the TTL            |
// | `yardstick_touch` | always the same                                       | these, and a line of memory for the destination, in which it counts |
//
// Built by `ci.sh bpf` as `xsk.bpf.c` says, to `yardstick.bpf.o`.

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TYPE_IPV4 bpf_htons(0x0800)
#define TYPE_IPV6 bpf_htons(0x86dd)
#define INET 2
#define INET6 10
#define HOP_BY_HOP 0
#define ROUTING 43

// By the number of an interface.
extern char yardstick_devices[];
// What `yardstick_floor` writes: destination and source address, 12 bytes; and the device that frames leave by.
extern const __u32 yardstick_way[4];
// Lines of memory that `yardstick_touch` counts in, eight words each: a power of two of them.
extern __u64 yardstick_lines[];
extern const char yardstick_lines_words[];

#define NUMBER(symbol) ((__u64)(symbol))
#define LINE_WORDS 8
#define MULTIPLIER 0x9e3779b97f4a7c15ull

struct ethernet {
	__u8 destination[6], source[6];
	__u16 type;
} __attribute__((packed));

struct ipv4 {
	__u8 version, tos;
	__u16 len, id, fragment;
	__u8 ttl, protocol;
	__u16 sum;
	__u32 source, destination;
};

struct ipv6 {
	__u32 first;
	__u16 payload_len;
	__u8 next, hop_limit;
	__u32 source[4], destination[4];
};

static __always_inline void age4(struct ipv4 *ip)
{
	__u32 sum = ip->sum + bpf_htons(0x0100);

	ip->sum = sum + (sum >= 0xffff);
	ip->ttl--;
}

SEC("xdp/fib")
int yardstick_fib(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct bpf_fib_lookup way = { .ifindex = xdp->ingress_ifindex };
	struct ethernet *ethernet = data;
	struct ipv4 *ip4 = data + sizeof(*ethernet);
	struct ipv6 *ip6 = data + sizeof(*ethernet);
	__u16 *word = (void *)ip4;
	__u32 sum = 0, len, at;

	if (data + sizeof(*ethernet) > end)
		return XDP_PASS;
	if (ethernet->type == TYPE_IPV4) {
		if ((void *)(ip4 + 1) > end || ip4->version != 0x45 || ip4->ttl <= 1)
			return XDP_PASS;
		len = bpf_ntohs(ip4->len);
		if (len < sizeof(*ip4) || len > end - (void *)ip4)
			return XDP_PASS;
#pragma unroll
		for (at = 0; at < sizeof(*ip4) / 2; at++)
			sum += word[at];
		sum = (sum & 0xffff) + (sum >> 16);
		if (((sum & 0xffff) + (sum >> 16)) != 0xffff)
			return XDP_PASS;
		way.family = INET;
		way.tos = ip4->tos;
		way.l4_protocol = ip4->protocol;
		way.tot_len = len;
		way.ipv4_src = ip4->source;
		way.ipv4_dst = ip4->destination;
	} else if (ethernet->type == TYPE_IPV6) {
		if ((void *)(ip6 + 1) > end || (ip6->first & 0xf0) != 0x60 || ip6->hop_limit <= 1 ||
		    ip6->next == HOP_BY_HOP || ip6->next == ROUTING)
			return XDP_PASS;
		len = sizeof(*ip6) + bpf_ntohs(ip6->payload_len);
		if (len > end - (void *)ip6)
			return XDP_PASS;
		way.family = INET6;
		way.flowinfo = ip6->first & bpf_htonl(0x0fffffff);
		way.l4_protocol = ip6->next;
		way.tot_len = len;
		__builtin_memcpy(way.ipv6_src, ip6->source, 16);
		__builtin_memcpy(way.ipv6_dst, ip6->destination, 16);
	} else {
		return XDP_PASS;
	}
	if (bpf_fib_lookup(xdp, &way, sizeof(way), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return XDP_PASS;
	if (bpf_redirect_map(&yardstick_devices, way.ifindex, XDP_PASS) != XDP_REDIRECT)
		return XDP_PASS;
	if (way.family == INET)
		age4(ip4);
	else
		ip6->hop_limit--;
	__builtin_memcpy(ethernet->destination, way.dmac, 6);
	__builtin_memcpy(ethernet->source, way.smac, 6);
	return XDP_REDIRECT;
}

// Sends any packet that a router would age; counts it first in its destination's line, if it `touches` one.
static __always_inline int send(struct xdp_md *xdp, int touches)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethernet *ethernet = data;
	struct ipv4 *ip4 = data + sizeof(*ethernet);
	struct ipv6 *ip6 = data + sizeof(*ethernet);
	__u32 *addresses = data;
	__u64 line;

	if (data + sizeof(*ethernet) + sizeof(*ip6) > end)
		return XDP_PASS;
	if (ethernet->type == TYPE_IPV4 && ip4->ttl > 1) {
		line = ip4->destination;
		age4(ip4);
	} else if (ethernet->type == TYPE_IPV6 && ip6->hop_limit > 1) {
		line = (__u64)ip6->destination[0] << 32 ^ ip6->destination[1] ^ (__u64)ip6->destination[2] << 32 ^
		       ip6->destination[3];
		ip6->hop_limit--;
	} else {
		return XDP_PASS;
	}
	if (touches) {
		line = (line * MULTIPLIER >> 32) * LINE_WORDS & (NUMBER(yardstick_lines_words) - 1);
		asm volatile("" : "+r"(line));
		if (line >= NUMBER(yardstick_lines_words))
			return XDP_PASS;
		yardstick_lines[line]++;
	}
	addresses[0] = yardstick_way[0];
	addresses[1] = yardstick_way[1];
	addresses[2] = yardstick_way[2];
	return bpf_redirect_map(&yardstick_devices, yardstick_way[3], XDP_DROP);
}

SEC("xdp/floor")
int yardstick_floor(struct xdp_md *xdp)
{
	return send(xdp, 0);
}

SEC("xdp/touch")
int yardstick_touch(struct xdp_md *xdp)
{
	return send(xdp, 1);
}

char _license[] SEC("license") = "Dual MIT/GPL";
