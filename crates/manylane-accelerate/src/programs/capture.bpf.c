// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Copies packets for a capture (`manylane capture`). While a capture is open, the programs that forward call these as
// tail calls (`observe.h`): without one, nothing of this exists.
//
// | section          | called by                  | shows                                                     |
// |------------------|----------------------------|-----------------------------------------------------------|
// | ingress/received | `ingress.bpf.c`, at its start | packets as received, unless the driver has shown them     |
// | ingress/done     | `ingress.bpf.c`, at its end   | packets as they leave, and those that the kernel gets      |
// | driver/received  | `driver.bpf.c`, at its start  | packets as received                                       |
// | driver/done      | `driver.bpf.c`, at its end    | packets as they leave                                      |
//
// Each ends with a call of the next capture's program; behind the last of those at the start, the program that forwards
// is called again. Programs attached to those that forward (BPF_TRACE_FENTRY, BPF_TRACE_FEXIT) would do without a word
// to look at, but some machines refuse them (EPERM for all that needs a trampoline, also BPF_PROG_TYPE_EXT).
//
// A filter is code that the loader makes of a program of classic BPF (`capture/translate.rs`) and puts in the place of the
// one call of `filter` that each program has. The filter reads the packet where it is. Where the packet's first piece of
// memory does not suffice, the packet is copied whole, and the reader decides.
//
// Nothing is written, and no helper is called, for a packet that the filter does not want. The others go into the ring of
// this CPU, in the table `packets`, which the reader has mapped (`manylane-io`'s `bpf/rings.rs`):
//
// | byte of `packets`        | what                                                                               |
// |--------------------------|------------------------------------------------------------------------------------|
// | cpu * 128                | the byte at which this CPU's ring begins, 0 if it has none                         |
// | cpu * 128 + 8            | bytes that were ever written to the ring: the reader reads up to there             |
// | cpu * 128 + 16, + 24     | packets that were wanted; those of them that found no room                         |
// | cpu * 128 + 64           | bytes that the reader has taken: in a line of its own, which only the reader writes |
// | a ring's, `ring_bytes`   | records; the last one may end behind the ring, where nothing else is               |
//
// A CPU runs one of these programs at a time, to its end: a ring has one writer.
//
// Built as `ingress.bpf.c`, to `capture.bpf.o`.

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "devices.h"
#include "observe.h"

/* Words of a CPU in `packets`. */
#define OF_CPU 16
#define RING 0
#define WRITTEN 1
#define MATCHED 2
#define LOST 3
#define TAKEN 8

extern __u64 packets[];
/* How many CPUs have words, bytes of a ring, and where the last ring begins. */
extern const char packets_cpus[], ring_bytes[], ring_last[];

/* What is captured: bits of points, a port or 0, bytes of a packet, and how many of its first ones the filter reads, 0
 * without a filter. Weak: else the compiler would take them for other numbers than 0. */
extern const char wanted_points[] __attribute__((weak)), wanted_port[] __attribute__((weak)), wanted_bytes[],
	filter_bytes[] __attribute__((weak));
/* The place of the program that is called behind this one. */
extern const char next_place[];
/* Whether the program takes frames in several pieces. */
extern const char takes_pieces[] __attribute__((weak));

/* What the filter says of the packet between `data` and `end`, of `len` bytes in all: 0 for no, else how many bytes to
 * keep, or that more of it is needed. */
extern __u64 filter(const void *data, const void *end, __u64 len);
#define UNDECIDED (1ull << 32)

/* Points. */
#define RECEIVE 0
#define TRANSMIT 1
#define DROPPED 2
#define KERNEL 3

#define NEXT -1
#define REDIRECT 7

/* A record holds no more of a packet: the helper of XDP copies no more. */
#define KEEP_MAX 0xffff

#define IS_UNDECIDED 1
#define IS_TAGGED 2

struct record {
	/* Of the whole record, a multiple of 8. */
	__u32 bytes;
	/* The packet's length, and how many of its bytes follow. */
	__u32 len;
	__u64 time;
	__u32 kept;
	__u16 port, queue;
	__u8 point, verdict, flags, unused;
	/* The tag that was taken off, if IS_TAGGED; the protocol as it lies in memory. */
	__u16 tag, tag_protocol;
};

static __always_inline int is_wanted(__u32 point, __u32 port)
{
	return NUMBER(wanted_points) >> point & 1 && (!NUMBER(wanted_port) || NUMBER(wanted_port) == port);
}

static __always_inline __u32 port_of_interface(__u32 interface)
{
	return interface < INTERFACES ? LOAD(port_of[interface]) & (PORTS - 1) : 0;
}

/* Whether the driver's program shows what the port receives. */
static __always_inline int is_drivers(__u32 port)
{
	return LOAD(ports[(port & (PORTS - 1)) * PORT_WORDS + PORT_FLAGS]) & (DRIVER_INGRESS | WORKERS_INGRESS);
}

/* How many bytes of the packet to keep, or UNDECIDED. A filter counts from the first byte, with the tag, which may not be
 * there. */
static __always_inline __u64 filtered(const void *data, const void *end, __u64 len, int is_tagged)
{
	if (!NUMBER(filter_bytes))
		return NUMBER(wanted_bytes);
	return is_tagged ? UNDECIDED : filter(data, end, len);
}

static __always_inline __u32 kept_of(struct record *record, __u64 keep)
{
	__u32 kept = NUMBER(wanted_bytes);

	if (keep >= UNDECIDED) {
		record->flags |= IS_UNDECIDED;
		kept = KEEP_MAX;
	} else if (keep < kept) {
		kept = keep;
	}
	if (kept > record->len)
		kept = record->len;
	return kept > KEEP_MAX ? KEEP_MAX : kept;
}

/* A place in the ring of this CPU for a record of `bytes` bytes. None if it has no room. */
static __always_inline char *place(__u64 *mine, __u64 bytes)
{
	__u64 ring = LOAD(mine[RING]), at;

	if (!ring || ring > NUMBER(ring_last) || mine[WRITTEN] + bytes - LOAD(mine[TAKEN]) > NUMBER(ring_bytes))
		return 0;
	at = ring + (mine[WRITTEN] & (NUMBER(ring_bytes) - 1));
	return (char *)packets + at;
}

/* Copies the packet into the ring, by the helper that copies wherever its bytes are. `keep` is not 0. */
static __always_inline void copy(void *context, struct record *record, __u64 keep,
				 long (*load_bytes)(void *context, __u32 offset, void *to, __u32 len))
{
	__u64 cpu = bpf_get_smp_processor_id(), *mine;
	char *to;

	if (cpu >= NUMBER(packets_cpus))
		return;
	mine = &packets[cpu * OF_CPU];
	mine[MATCHED]++;
	record->kept = kept_of(record, keep);
	record->bytes = (sizeof(*record) + record->kept + 7) & ~7u;
	to = place(mine, record->bytes);
	if (!to || !record->kept || load_bytes(context, 0, to + sizeof(*record), record->kept)) {
		mine[LOST]++;
		return;
	}
	record->time = bpf_ktime_get_ns();
	__builtin_memcpy(to, record, sizeof(*record));
	/* Ordered behind all that was written: an exchange is, on every machine. */
	__sync_lock_test_and_set(&mine[WRITTEN], mine[WRITTEN] + record->bytes);
}

static long load_frame(void *xdp, __u32 offset, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(xdp, offset, to, len);
}

static long load_packet(void *skb, __u32 offset, void *to, __u32 len)
{
	return bpf_skb_load_bytes(skb, offset, to, len);
}

/* The program that forwards then knows the packet again. */
static __always_inline void go_on_received(void *context)
{
	__u64 *mine = observed_here();

	if (mine)
		mine[OBSERVED_SHOWN] = LOAD(observed[OBSERVED_RECEIVED]);
	bpf_tail_call(context, (void *)observers, NUMBER(next_place));
}

static __always_inline void go_on_done(void *context)
{
	bpf_tail_call(context, (void *)observers, NUMBER(next_place));
}

static __always_inline const void *data(const struct __sk_buff *skb)
{
	return (const void *)(long)skb->data;
}

static __always_inline const void *end(const struct __sk_buff *skb)
{
	return (const void *)(long)skb->data_end;
}

/* What the filter reads is in front of the fragments of all but odd packets. */
static __always_inline void pull(struct __sk_buff *skb, __u32 len)
{
	if (NUMBER(filter_bytes) && data(skb) + NUMBER(filter_bytes) > end(skb) && len > (__u64)(end(skb) - data(skb)))
		bpf_skb_pull_data(skb, len < NUMBER(filter_bytes) ? len : NUMBER(filter_bytes));
}

static __always_inline void show(struct __sk_buff *skb, __u32 point, __u32 port, __u32 queue, __u32 verdict, int is_tagged)
{
	__u32 len = skb->len;
	__u64 keep;

	if (!is_wanted(point, port))
		return;
	pull(skb, len);
	keep = filtered(data(skb), end(skb), len, is_tagged);
	if (keep) {
		struct record record = { .len = len, .port = port, .queue = queue, .point = point, .verdict = verdict };

		if (is_tagged) {
			record.tag_protocol = skb->vlan_proto;
			record.tag = skb->vlan_tci;
			record.flags = IS_TAGGED;
		}
		copy(skb, &record, keep, load_packet);
	}
}

static __always_inline void show_received(struct __sk_buff *skb)
{
	__u32 port = port_of_interface(skb->ifindex), of_vlan = 0, row, queue = skb->queue_mapping;
	int is_tagged = 0;

	if (skb->vlan_present) {
		row = port * 2 + (skb->vlan_proto == bpf_htons(0x88a8));
		of_vlan = LOAD(vlan_port[row * VLANS + (skb->vlan_tci & (VLANS - 1))]) & (PORTS - 1);
		is_tagged = !of_vlan;
	} else if (is_drivers(port)) {
		return;
	}
	show(skb, RECEIVE, of_vlan ? of_vlan : port, queue - (queue > 0), 0, is_tagged);
}

SEC("ingress/received")
int ingress_received(struct __sk_buff *skb)
{
	show_received(skb);
	go_on_received(skb);
	return NEXT;
}

static __always_inline void show_done(struct __sk_buff *skb, __s32 action, __u64 note)
{
	__u32 port = note & 0xff, point = DROPPED, verdict = 0;
	int is_tagged = 0;

	if (action == REDIRECT) {
		point = TRANSMIT;
	} else if (action == NEXT) {
		point = KERNEL;
		verdict = note >> 8 & 0xff;
		is_tagged = skb->vlan_present && port_of_interface(skb->ifindex) == port;
	}
	show(skb, point, port, 0, verdict, is_tagged);
}

SEC("ingress/done")
int ingress_done(struct __sk_buff *skb)
{
	__u64 *mine = observed_here();

	if (!mine)
		return NEXT;
	show_done(skb, mine[OBSERVED_ACTION], mine[OBSERVED_NOTE]);
	go_on_done(skb);
	return mine[OBSERVED_ACTION];
}

static __always_inline void show_frame(struct xdp_md *xdp, __u32 point, __u32 port, __u32 queue)
{
	const void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	__u32 len = NUMBER(takes_pieces) ? bpf_xdp_get_buff_len(xdp) : end - data;
	__u64 keep = filtered(data, end, len, 0);

	if (keep) {
		struct record record = { .len = len, .port = port, .queue = queue, .point = point };

		copy(xdp, &record, keep, load_frame);
	}
}

/* Whether the frame has a tag in its bytes: the program at ingress shows it, by the port of the VLAN. */
static __always_inline int has_tag_in_bytes(const struct xdp_md *xdp)
{
	const void *data = (void *)(long)xdp->data;
	__u16 type;

	if (data + 14 > (void *)(long)xdp->data_end)
		return 0;
	type = *(const __u16 *)(data + 12);
	return type == bpf_htons(0x8100) || type == bpf_htons(0x88a8);
}

SEC("driver/received")
int driver_received(struct xdp_md *xdp)
{
	__u32 port = port_of_interface(xdp->ingress_ifindex);

	if (is_wanted(RECEIVE, port) && is_drivers(port) && !has_tag_in_bytes(xdp))
		show_frame(xdp, RECEIVE, port, xdp->rx_queue_index);
	go_on_received(xdp);
	return XDP_PASS;
}

/* A frame for a worker has no note. */
static __always_inline void show_done_frame(struct xdp_md *xdp, __u32 action, __u64 note)
{
	__u32 port = note & 0xff, point = TRANSMIT;

	if (action == XDP_DROP) {
		point = DROPPED;
		port = port_of_interface(xdp->ingress_ifindex);
	} else if (action != XDP_REDIRECT || !(note & NOTE_LEAVES)) {
		return;
	}
	if (is_wanted(point, port))
		show_frame(xdp, point, port, 0);
}

SEC("driver/done")
int driver_done(struct xdp_md *xdp)
{
	__u64 *mine = observed_here();

	if (!mine)
		return XDP_PASS;
	show_done_frame(xdp, mine[OBSERVED_ACTION], mine[OBSERVED_NOTE]);
	go_on_done(xdp);
	return mine[OBSERVED_ACTION];
}

char _license[] SEC("license") = "Dual MIT/GPL";
