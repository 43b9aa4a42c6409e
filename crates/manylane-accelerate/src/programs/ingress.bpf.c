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
#define LEN(context) LOAD(((struct __sk_buff *)(context))->len)
#define NOW() bpf_jiffies64()

#include "candidates.h"
#include "decide.h"
#include "observe.h"
#include "rewrite.h"
#include "sample.h"
#include "sflow.h"
#include "translate.h"

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

// Whether the kernel took a tag off, read anew.
static __always_inline int has_tag(struct __sk_buff *skb)
{
#ifdef TRIAL
	return LOAD(skb->priority) >> 31;
#else
	return LOAD(skb->vlan_present) != 0;
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

// As `translate`, for a packet whose checksum may be complete or partial, or summed up by the device.
static __always_inline int translate_skb(struct __sk_buff *skb, const struct decision *decision,
					 const struct translation *translation)
{
	__u32 transport = LINK_HEADER + (decision->is_ipv6 ? HEADER_V6 : HEADER_V4);
	int is_tcp = (decision->key.ends >> 32 & 0xff) == PROTOCOL_TCP;
	__u32 at = transport + (is_tcp ? CHECKSUM_TCP : CHECKSUM_UDP);
	__u64 flags = is_tcp ? 0 : BPF_F_MARK_MANGLED_0;
	void *frame = data(skb), *limit = end(skb);

	if (frame + transport + CHECKSUM_UDP + 2 > limit)
		return 0; // The header was there a moment ago.
	if (!is_tcp && !*(__u16 *)(frame + transport + CHECKSUM_UDP)) {
		// Without a checksum nothing makes up for the ports, nor, in IPv6, for the addresses.
		bpf_csum_update(skb, translation->for_ports + (decision->is_ipv6 ? translation->for_addresses : 0));
	} else {
		if (translation->for_addresses &&
		    bpf_l4_csum_replace(skb, at, 0, translation->for_addresses, flags | BPF_F_PSEUDO_HDR))
			return 0;
		// The helper has taken the addresses out of the packet's sum. IPv4's header checksum does so by itself, IPv6 has none.
		if (translation->for_addresses && decision->is_ipv6)
			bpf_csum_update(skb, translation->for_addresses);
		if (translation->for_ports && bpf_l4_csum_replace(skb, at, 0, translation->for_ports, flags))
			return 0;
	}
	frame = data(skb);
	limit = end(skb);
	if (decision->is_ipv6) {
		if (frame + LINK_HEADER + HEADER_V6 + 4 > limit)
			return 0;
		translate6(frame + LINK_HEADER, frame + LINK_HEADER + HEADER_V6, translation);
	} else {
		if (frame + LINK_HEADER + HEADER_V4 + 4 > limit)
			return 0;
		translate4(frame + LINK_HEADER, frame + LINK_HEADER + HEADER_V4, translation);
	}
	return 1;
}

// Packets on the wire that this one stands for.
static __always_inline __u32 packets_of(const struct __sk_buff *skb)
{
	__u32 size = LOAD(skb->gso_size), segments;

	if (!size)
		return 1;
	segments = skb->gso_segs;
	return segments ? segments : (LOAD(skb->len) + size - 1) / size;
}

// Whether the packet's tag leads to a VLAN's interface that is a port of ours.
static __always_inline int is_of_vlan(struct __sk_buff *skb)
{
	__u32 interface = LOAD(skb->ifindex), row;

	if (!has_tag(skb) || interface >= INTERFACES)
		return 0;
	row = (LOAD(port_of[interface]) & (PORTS - 1)) * 2 + (LOAD(skb->vlan_proto) == bpf_htons(ETH_P_8021AD));
	return (LOAD(vlan_port[row * VLANS + (LOAD(skb->vlan_tci) & (VLANS - 1))]) & (PORTS - 1)) != 0;
}

// Keeps a packet that may be a sample, or a report of a packet that the kernel discards. What a VLAN's interface will
// receive counts there, where this program sees it again. An interface that the kernel keeps has this program for its
// samples alone: then the verdict is NOT_INGRESS. Returns whether something is kept.
static __always_inline int may_keep(struct __sk_buff *skb, const struct decision *decision, __u32 verdict)
{
	__u32 packets = packets_of(skb), wanted = 0;
	__u64 what;

	if (verdict != FORWARDED && is_of_vlan(skb))
		return 0;
	if (!sflow_skips(decision->ingress, packets))
		wanted = SFLOW_SAMPLE;
	if (verdict != FORWARDED && LOAD(sflow_rates[SFLOW_REPORTED]) >> (verdict & 31) & 1)
		wanted |= SFLOW_REPORT;
	if (!wanted)
		return 0;
	what = sflow_what(decision->ingress, verdict, verdict == FORWARDED ? BY_INGRESS : BY_KERNEL, LOAD(skb->len));
	what |= (has_tag(skb) ? SFLOW_IS_TAGGED : 0) |
		(LOAD(skb->vlan_proto) == bpf_htons(ETH_P_8021AD) ? SFLOW_IS_802_1AD : 0);
	keep(skb, decision, what, wanted, packets, LOAD(skb->ifindex), LOAD(skb->vlan_tci), verdict == FORWARDED);
	return 1;
}

// Returns what the program returns. `note` is what a capture wants to know of the packet.
static __always_inline int decided(struct __sk_buff *skb, int *is_kept, __u64 *note)
{
	struct packet packet = {
		.data = data(skb),
		.end = end(skb),
		.context = skb,
		.interface = skb->ifindex,
		.len = skb->len,
		.gso_size = skb->gso_size,
	};
	struct decision decision;
	struct translation translation;
	enum verdict verdict;
	void *frame, *limit;
	__u32 egress;

	// The headers of all but odd packets are in front of the fragments.
	if (packet.data + HEADERS_FLOW > packet.end && packet.len > (__u64)(packet.end - packet.data)) {
		// Its length read anew: the verifier would follow short packets and others apart from here on.
		__u32 len = LOAD(skb->len);

		bpf_skb_pull_data(skb, len < HEADERS_FLOW ? len : HEADERS_FLOW);
		packet.data = data(skb);
		packet.end = end(skb);
	}
	read_tag(skb, &packet);
	verdict = decide(&packet, &decision);
	may_sample(skb, decision.ingress, verdict, verdict == FORWARDED ? BY_INGRESS : BY_KERNEL, packet.len);
	*is_kept = may_keep(skb, &decision, verdict);
	*note = NOTE_STAYS | (decision.ingress & 0xff) | (verdict & 0xff) << 8;
	if (verdict != FORWARDED) {
		if (decision.flow)
			leave_flow(decision.flow, decision.closes);
		if (decision.is_candidate)
			consider(&decision);
		return next(decision.ingress, verdict);
	}

	// The tag is not in the bytes: it goes without moving any.
	if (has_tag(skb) && bpf_skb_vlan_pop(skb)) {
		*note |= UNKNOWN_VLAN << 8;
		return next(decision.ingress, UNKNOWN_VLAN);
	}
	if (decision.flow) {
		// The headers are in front of the fragments, and no copy's: the kernel saw to that before the program ran.
		if (is_translated(decision.flow, &translation) && !translate_skb(skb, &decision, &translation))
			return DROP;
		count_flow(decision.flow, decision.len, decision.has_payload);
	}
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
	egress = LOAD(decision.record[RECORD_PORT]);
	*note = NOTE_LEAVES | (egress & 0xff);
	count_forwarded(decision.ingress, egress, packet.len);
	return bpf_redirect(LOAD(decision.record[RECORD_EGRESS]), 0);
}

SEC("tcx/ingress")
int forward(struct __sk_buff *skb)
{
	int is_kept = 0, action;
	__u64 note = 0;

	observe_received(skb);
	action = decided(skb, &is_kept, &note);
	if (is_kept)
		sflow();
	return observe_done(skb, action, note);
}

char _license[] SEC("license") = "Dual MIT/GPL";
