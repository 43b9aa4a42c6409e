// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Forwards transit packets of an interface at tcx ingress; everything else passes to the next program and
// to the kernel, unchanged. Decides by what the daemon writes into shared memory (`tables.h`), until its lease
// is over.
//
// TCX_NEXT, never TCX_PASS, for the kernel: that would skip the operator's filters. What leaves has the queues
// of the egress in front of it (`bpf_redirect` to egress), 64 KiB segments and partial checksums as they came.
//
// Built by `ci.sh bpf`, from this folder, as ../xsk.bpf.c says with `-mcpu=v3` before `-target`: without it
// each 32-bit comparison would take shifts. To `ingress.bpf.o`, by which `object.rs` makes the program: the
// tables are no maps of the object but symbols that it does not define.

#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LOAD_BYTES(context, at, to, len) bpf_skb_load_bytes(context, at, to, len)
#define NOW() bpf_jiffies64()

#include "decide.h"
#include "rewrite.h"
#include "sample.h"

// linux/bpf.h of 6.6 has these; older headers do not.
#define NEXT -1
#define DROP 2

static __always_inline void *data(struct __sk_buff *skb)
{
	return (void *)(long)skb->data;
}

static __always_inline void *end(struct __sk_buff *skb)
{
	return (void *)(long)skb->data_end;
}

// The tag that the kernel took off, if any.
static __always_inline void read_tag(struct __sk_buff *skb, struct packet *packet)
{
#ifdef TRIAL
	// A test run has no way to say so: see trial.bpf.c.
	packet->is_tagged = skb->priority >> 31;
	packet->is_802_1ad = skb->priority >> 30 & 1;
	packet->vid = skb->priority;
#else
	if (!skb->vlan_present)
		return;
	packet->is_tagged = 1;
	packet->is_802_1ad = skb->vlan_proto == bpf_htons(ETH_P_8021AD);
	packet->vid = skb->vlan_tci;
#endif
}

// The rows of this CPU, which no other CPU writes; 0 if this CPU's number is beyond the table.
static __always_inline __u64 *rows(void)
{
	__u64 at = (__u64)bpf_get_smp_processor_id() * (PORTS * PLACES);

	return at > NUMBER(counters_words) - PORTS * PLACES ? 0 : &counters[at];
}

static __always_inline __u64 *row(__u64 *rows, __u32 port)
{
	return &rows[(port & (PORTS - 1)) * PLACES];
}

static __always_inline int next(__u32 ingress, __u32 verdict)
{
	__u64 *all = rows();

	if (all)
		row(all, ingress)[verdict & (PLACES - 1)]++;
	return NEXT;
}

static __always_inline void count_forwarded(__u32 ingress, __u32 egress, __u64 len)
{
	__u64 *all = rows(), *in, *out;

	if (!all)
		return;
	in = row(all, ingress);
	out = row(all, egress);
	in[FORWARDED]++;
	in[PLACE_BYTES_IN] += len;
	out[PLACE_PACKETS_OUT]++;
	out[PLACE_BYTES_OUT] += len;
}

SEC("tcx/ingress")
int forward(struct __sk_buff *skb)
{
	struct packet packet = {
		.data = data(skb),
		.end = end(skb),
		.context = skb,
		.interface = skb->ifindex,
		.len = skb->len,
		.gso_size = skb->gso_size,
	};
	struct decision decision = {};
	enum verdict verdict;
	void *frame, *limit;

	// The headers of all but odd packets are in front of the fragments.
	if (packet.data + HEADERS > packet.end && packet.len > (__u64)(packet.end - packet.data)) {
		bpf_skb_pull_data(skb, packet.len < HEADERS ? packet.len : HEADERS);
		packet.data = data(skb);
		packet.end = end(skb);
	}
	read_tag(skb, &packet);
	verdict = decide(&packet, &decision);
	may_sample(skb, decision.ingress, verdict, verdict == FORWARDED ? BY_INGRESS : BY_KERNEL, packet.len);
	if (verdict != FORWARDED)
		return next(decision.ingress, verdict);

	// The tag is not in the bytes: it goes without moving any.
	if (packet.is_tagged && bpf_skb_vlan_pop(skb))
		return next(decision.ingress, UNKNOWN_VLAN);
	frame = data(skb);
	limit = end(skb);
	if (decision.is_ipv6) {
		if (frame + LINK_HEADER + HEADER_V6 > limit)
			return DROP; // The header was there a moment ago.
		rewrite6(frame, decision.record);
		bpf_csum_update(skb, ~(__u32)DECREMENT_V6);
	} else {
		if (frame + LINK_HEADER + HEADER_V4 > limit)
			return DROP;
		skb->priority = priority4(*(__u8 *)(frame + LINK_HEADER + 1));
		rewrite4(frame, decision.record);
	}
	count_forwarded(decision.ingress, LOAD(decision.record[RECORD_PORT]), packet.len);
	return bpf_redirect(LOAD(decision.record[RECORD_EGRESS]), 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
