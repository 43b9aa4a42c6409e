/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Packets for sFlow (`sflow.rs`): one in N of what a port receives, and packets that the kernel will discard.
 *
 * A packet counts where its tier is known: the driver's program counts what that program forwards or hands to a worker, and
 * the program at tcx all that it sees. Each CPU skips a random number of each port's packets, 1 to 2N - 1, and notes the next
 * packet as received. A packet of segments counts as many packets as it has segments.
 *
 * A file that includes this one defines LEN(context): the frame's length in bytes.
 *
 * | memory       | index                    | writer                                                              |
 * |--------------|--------------------------|---------------------------------------------------------------------|
 * | sflow_rates  | port: N, 0 = no samples  | the daemon                                                          |
 * |              | SFLOW_REPORTED...        | which verdicts are reported, and how many reports of a CPU a period |
 * | sflow_counts | (cpu * 256 + port) * 8: SFLOW_... | programs, each CPU its own                                 |
 * | sflow_kept   | cpu * 24: `struct sflow_kept`    | programs, each CPU its own                                  |
 * | sflow_ring   | a ring buffer of `struct sflow_note` | programs                                                |
 */
#ifndef MANYLANE_PROGRAMS_SFLOW_H
#define MANYLANE_PROGRAMS_SFLOW_H

#include <bpf/bpf_helpers.h>

#include "decide.h"
#include "sample.h"

#define SFLOW_WORDS 8
#define SFLOW_HEADER 128

/* Words of `sflow_rates` behind those of ports: a bit for each verdict that is reported; reports in a period; its ticks. */
#define SFLOW_REPORTED PORTS
#define SFLOW_REPORTS (PORTS + 1)
#define SFLOW_PERIOD (PORTS + 2)
#define SFLOW_RATES (PORTS + 16)

/* Words of `sflow_counts`: N and, below, how many packets until the next note; the sum of all skips, with the present one's
 * rest; samples and reports that found no room or were too many; the present period, and reports in it, of port 0 only;
 * samples that were noted. */
#define SFLOW_SKIP 0
#define SFLOW_SKIPS 1
#define SFLOW_LOST 2
#define SFLOW_UNREPORTED 3
#define SFLOW_SINCE 4
#define SFLOW_DONE 5
#define SFLOW_NOTED 6

extern const __u32 sflow_rates[SFLOW_RATES];
extern __u64 sflow_counts[];
extern const char sflow_counts_words[];
extern __u64 sflow_kept[];
extern const char sflow_kept_words[];
extern char sflow_ring[];

struct sflow_note {
	/* The port, the verdict from bit 8, the tier from bit 16, SFLOW_IS_... from bit 24, the length from bit 32. */
	__u64 what;
	/* Packets that it stands for on the wire, how many of these are samples, N, bytes of `header`. */
	__u32 packets, samples, rate, header_len;
	/* The ingress interface; the second half of the tag that the kernel took off. */
	__u32 interface, vid;
	/* If forwarded: the egress interface; the neighbour's Ethernet address, as in a record. */
	__u32 egress, mac[2], unused;
	/* If translated: IPv4's new addresses, new ports, IPv6's new destination and source. */
	__u64 new_addresses, new_ports, new_v6[4];
	__u8 header[SFLOW_HEADER];
};

#define SFLOW_IS_TAGGED (1 << 24)
#define SFLOW_IS_802_1AD (1 << 25)
#define SFLOW_IS_TRANSLATED (1 << 26)
#define SFLOW_IS_V6 (1 << 27)
#define SFLOW_IS_REPORT (1 << 28)
#define SFLOW_IS_TRACKED (1 << 29) /* by an entry of the flow table */

/* What is kept of a packet until it is done. */
struct sflow_kept {
	__u64 what;
	__u32 wanted, packets, interface, vid, egress, mac[2], flow, is_ipv6, header_len;
	__u8 header[SFLOW_HEADER];
};

#define SFLOW_KEPT_WORDS 24

/* What a packet that is kept may be. */
#define SFLOW_SAMPLE 1
#define SFLOW_REPORT 2

/* The words of a port on this CPU; 0 beyond the table. */
static __always_inline __u64 *sflow_of(__u32 port)
{
	__u64 at = ((__u64)bpf_get_smp_processor_id() * PORTS + (port & (PORTS - 1))) * SFLOW_WORDS;

	BOUNDED(at);
	return at > NUMBER(sflow_counts_words) - SFLOW_WORDS ? 0 : &sflow_counts[at];
}

/* How many packets pass from one note to the next: N on average. */
static __always_inline __u32 draw_skip(__u64 *mine, __u32 rate)
{
	__u32 skip = bpf_get_prandom_u32() % (2 * rate - 1) + 1;

	mine[SFLOW_SKIPS] += skip;
	return skip;
}

/* How many samples `packets` more packets are. */
static __always_inline __u32 samples_of(__u64 *mine, __u32 rate, __u32 packets)
{
	__u64 word = mine[SFLOW_SKIP];
	__u32 left = word, samples;

	if (word >> 32 != rate) {
		/* N is another: what is left of the former skip does not count. */
		mine[SFLOW_SKIPS] -= left;
		left = draw_skip(mine, rate);
	}
	if (left > packets) {
		mine[SFLOW_SKIP] = (__u64)rate << 32 | (left - packets);
		return 0;
	}
	packets -= left;
	samples = 1;
	left = draw_skip(mine, rate);
	if (packets >= left) {
		/* Segments, and a small N. What is left of them is drawn at once, without skips: an Nth on average. */
		packets -= left;
		samples += 1 + (packets + bpf_get_prandom_u32() % rate) / rate;
		mine[SFLOW_SKIPS] += packets;
		packets = 0;
		left = draw_skip(mine, rate);
	}
	mine[SFLOW_SKIP] = (__u64)rate << 32 | (left - packets);
	return samples;
}

/* Writes the new ends of a packet that follows this entry. */
static __always_inline void note_translation(struct sflow_note *note, __u32 place, __u32 is_ipv6)
{
	const __u64 *entry = flow_at(place), *other;

	if (!place || !entry || !(LOAD(entry[FLOW_STATE]) >> 48 & FLOW_TRANSLATED))
		return;
	note->new_addresses = LOAD(entry[FLOW_NEW_ADDRESSES]);
	note->new_ports = LOAD(entry[FLOW_NEW_PORTS]);
	note->what |= SFLOW_IS_TRANSLATED;
	if (!is_ipv6)
		return;
	other = flow_addresses_at(other_flow(entry));
	if (!other)
		return;
	note->what |= SFLOW_IS_V6;
	note->new_v6[0] = LOAD(other[0]);
	note->new_v6[1] = LOAD(other[1]);
	note->new_v6[2] = LOAD(other[2]);
	note->new_v6[3] = LOAD(other[3]);
}

/* The words of this CPU; 0 beyond the table. */
static __always_inline struct sflow_kept *kept(void)
{
	__u64 at = (__u64)bpf_get_smp_processor_id() * SFLOW_KEPT_WORDS;

	BOUNDED(at);
	return at > NUMBER(sflow_kept_words) - SFLOW_KEPT_WORDS ? 0 : (struct sflow_kept *)&sflow_kept[at];
}

/* Keeps a packet that may be noted, before it is rewritten; `sflow` does the rest when the packet is done. The verifier
 * comes here by hundreds of ways and there by a few. Of what the decision has compared, nothing is used in a branch or as a
 * length here: the verifier would keep apart all values that the comparisons have told apart. */
static __always_inline void keep(void *context, const struct decision *decision, __u64 what, __u32 wanted, __u32 packets,
				 __u32 interface, __u32 vid, int is_forwarded)
{
	struct sflow_kept *keeps = kept();
	__u32 len = LEN(context);

	if (!keeps)
		return;
	keeps->what = what;
	keeps->wanted = wanted;
	keeps->packets = packets;
	keeps->interface = interface;
	keeps->vid = vid;
	keeps->flow = 0;
	if (is_forwarded) {
		keeps->egress = LOAD(decision->record[RECORD_EGRESS]);
		keeps->mac[0] = LOAD(decision->record[RECORD_ADDRESSES]);
		keeps->mac[1] = LOAD(decision->record[RECORD_ADDRESSES + 1]);
		keeps->flow = decision->flow;
		keeps->is_ipv6 = decision->is_ipv6;
	}
	if (len > SFLOW_HEADER)
		len = SFLOW_HEADER;
	BOUNDED(len);
	/* From a comparison the verifier of Linux 6.12 learns no least length here, and refuses the program. */
	len = ((len - 1) & (SFLOW_HEADER - 1)) + 1;
	keeps->header_len = LOAD_BYTES(context, 0, keeps->header, len) ? 0 : len;
}

/* Notes the packet that was kept; 0 if the ring has no room. */
static __always_inline int note_kept(const struct sflow_kept *keeps, __u32 samples, __u32 rate)
{
	struct sflow_note *note = bpf_ringbuf_reserve(&sflow_ring, sizeof(*note), 0);

	if (!note)
		return 0;
	__builtin_memset(note, 0, sizeof(*note) - SFLOW_HEADER);
	note->what = keeps->what;
	note->packets = keeps->packets;
	note->samples = samples;
	note->rate = rate;
	note->header_len = keeps->header_len;
	note->interface = keeps->interface;
	note->vid = keeps->vid;
	note->egress = keeps->egress;
	note->mac[0] = keeps->mac[0];
	note->mac[1] = keeps->mac[1];
	__builtin_memcpy(note->header, keeps->header, SFLOW_HEADER);
	if (keeps->flow)
		note->what |= SFLOW_IS_TRACKED;
	note_translation(note, keeps->flow, keeps->is_ipv6);
	bpf_ringbuf_submit(note, 0);
	return 1;
}

/* Whether another packet of this CPU may be reported in this period. */
static __always_inline int may_report(void)
{
	__u64 *all = sflow_of(0);
	__u64 now = NOW();

	if (!all)
		return 0;
	if (now - all[SFLOW_SINCE] >= LOAD(sflow_rates[SFLOW_PERIOD])) {
		all[SFLOW_SINCE] = now;
		all[SFLOW_DONE] = 0;
	}
	return all[SFLOW_DONE]++ < LOAD(sflow_rates[SFLOW_REPORTS]);
}

/* Notes the packet that was kept, if it is a sample, and if it is to be reported: one note may be both. */
static __noinline int sflow(void)
{
	struct sflow_kept *keeps = kept();
	__u32 rate, samples = 0, wanted;
	int reports = 0, is_noted = 0;
	__u64 *mine;

	if (!keeps)
		return 0;
	mine = sflow_of(keeps->what);
	rate = LOAD(sflow_rates[keeps->what & (PORTS - 1)]);
	wanted = keeps->wanted;
	if (!mine)
		return 0;
	if (wanted & SFLOW_SAMPLE && rate)
		samples = samples_of(mine, rate, keeps->packets);
	if (wanted & SFLOW_REPORT) {
		reports = may_report();
		if (reports)
			keeps->what |= SFLOW_IS_REPORT;
	}
	if (samples || reports)
		is_noted = note_kept(keeps, samples, rate);
	mine[is_noted ? SFLOW_NOTED : SFLOW_LOST] += samples;
	if (wanted & SFLOW_REPORT && !(reports && is_noted))
		mine[SFLOW_UNREPORTED]++;
	return 0;
}

/* Whether the next sample of the port is behind the packet; then the packet has been counted. */
static __always_inline int sflow_skips(__u32 ingress, __u32 packets)
{
	__u32 rate = LOAD(sflow_rates[ingress & (PORTS - 1)]);
	__u64 *mine, word;

	if (!rate)
		return 1;
	mine = sflow_of(ingress);
	if (!mine)
		return 1;
	word = mine[SFLOW_SKIP];
	if (word >> 32 != rate || (__u32)word <= packets)
		return 0;
	mine[SFLOW_SKIP] = word - packets;
	return 1;
}

/* As `may_sample` has them. */
static __always_inline __u64 sflow_what(__u32 ingress, __u32 verdict, __u32 by, __u32 len)
{
	return (ingress & 0xff) | (verdict & 0xff) << 8 | by << 16 | (__u64)len << 32;
}

#endif
