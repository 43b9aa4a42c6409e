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
// A filter is a function that the loader makes of a program of classic BPF (`capture/translate.rs`). The filter sees the
// packet's first bytes, in `heads`. Where these do not suffice, the packet is copied whole, and the reader decides.
//
// A helper copies the packet into the ring of this CPU (`packets`), wherever its bytes are.
//
// Built as `ingress.bpf.c`, to `capture.bpf.o`.

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "devices.h"
#include "observe.h"

#define HEAD_BYTES 512
#define HEAD_WORDS (HEAD_BYTES / 8)

/* Words of a CPU in `copied`. */
#define COPIED_OF_CPU 8
#define MATCHED 0
#define LOST 1

extern __u64 copied[], heads[];
extern const char copied_words[];
extern const char packets[];

/* This capture's number. What is captured: bits of points, a port or 0, bytes of a packet, and of its head that the filter
 * may look at. Weak: else the compiler would take them for other numbers than 0. */
extern const char own_number[], wanted_points[] __attribute__((weak)), wanted_port[] __attribute__((weak)),
	wanted_bytes[], filter_bytes[] __attribute__((weak));

/* What the filter says: 0 for no, else how many bytes to keep, or that the head does not suffice. */
extern __u64 filter(const void *head, __u64 head_len, __u64 len);
#define UNDECIDED (1ull << 32)

/* Points. */
#define RECEIVE 0
#define TRANSMIT 1
#define DROPPED 2
#define KERNEL 3

#define NEXT -1
#define REDIRECT 7

/* A record holds no more: the ring's records have 16 bits for their length. */
#define KEEP_MAX 65000

#define IS_UNDECIDED 1
#define IS_TAGGED 2

struct record {
	__u64 time;
	/* The packet's, and how many of them follow. */
	__u32 len, kept;
	__u16 port, queue;
	__u8 point, verdict, flags, unused;
	/* The tag that was taken off, if IS_TAGGED; the protocol as it lies in memory. */
	__u16 tag, tag_protocol;
	__u32 unused2;
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

/* Copies the packet into the ring, if the filter lets it pass. */
static __always_inline void copy(void *context, struct record *record, int is_xdp)
{
	__u64 cpu = bpf_get_smp_processor_id(), len = record->len, says = UNDECIDED;
	__u64 *mine, *head;
	long refused;

	if (cpu >= NUMBER(copied_words) / COPIED_OF_CPU)
		return;
	record->kept = NUMBER(wanted_bytes);
	if (NUMBER(filter_bytes)) {
		head = &heads[cpu * HEAD_WORDS];
		if (len > NUMBER(filter_bytes))
			len = NUMBER(filter_bytes);
		BOUNDED(len);
		/* A filter counts from the first byte, with the tag, which is not there. */
		if (len && !(record->flags & IS_TAGGED) &&
		    !(is_xdp ? bpf_xdp_load_bytes(context, 0, head, len) : bpf_skb_load_bytes(context, 0, head, len)))
			says = filter(head, len, record->len);
		if (!says)
			return;
		if (says >= UNDECIDED) {
			record->flags |= IS_UNDECIDED;
			record->kept = KEEP_MAX;
		} else if (says < record->kept) {
			record->kept = says;
		}
	}
	if (record->kept > record->len)
		record->kept = record->len;
	if (record->kept > KEEP_MAX)
		record->kept = KEEP_MAX;
	record->time = bpf_ktime_get_ns();
	refused = bpf_perf_event_output(context, (void *)packets, BPF_F_CURRENT_CPU | (__u64)record->kept << 32, record,
					sizeof(*record));
	mine = &copied[cpu * COPIED_OF_CPU];
	mine[MATCHED]++;
	if (refused)
		mine[LOST]++;
}

/* The next capture; behind the last one the program that forwards, which then knows the packet again. */
static __always_inline void go_on_received(void *context)
{
	__u64 following = LOAD(observed[OBSERVED_NEXT_RECEIVED + NUMBER(own_number)]) & (CAPTURES - 1);
	__u64 *mine = observed_here();

	if (following)
		bpf_tail_call(context, (void *)observers, following);
	if (mine)
		mine[OBSERVED_SHOWN] = LOAD(observed[OBSERVED_RECEIVED]);
	bpf_tail_call(context, (void *)observers, 0);
}

static __always_inline void go_on_done(void *context)
{
	__u64 following = LOAD(observed[OBSERVED_NEXT_DONE + NUMBER(own_number)]) & (CAPTURES - 1);

	if (following)
		bpf_tail_call(context, (void *)observers, CAPTURES + following);
}

static __always_inline void note_tag(const struct __sk_buff *skb, struct record *record)
{
	record->tag_protocol = skb->vlan_proto;
	record->tag = skb->vlan_tci;
	record->flags = IS_TAGGED;
}

static __always_inline void show_received(struct __sk_buff *skb)
{
	struct record record = { .point = RECEIVE };
	__u32 port = port_of_interface(skb->ifindex), row;

	record.port = port;
	if (skb->vlan_present) {
		row = port * 2 + (skb->vlan_proto == bpf_htons(0x88a8));
		port = LOAD(vlan_port[row * VLANS + (skb->vlan_tci & (VLANS - 1))]) & (PORTS - 1);
		if (port)
			record.port = port;
		else
			note_tag(skb, &record);
	} else if (is_drivers(port)) {
		return;
	}
	if (!is_wanted(RECEIVE, record.port))
		return;
	record.len = skb->len;
	record.queue = skb->queue_mapping;
	record.queue -= record.queue > 0;
	copy(skb, &record, 0);
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
	struct record record = {};

	record.port = note & 0xff;
	if (action == REDIRECT) {
		record.point = TRANSMIT;
	} else if (action == NEXT) {
		record.point = KERNEL;
		record.verdict = note >> 8;
		if (skb->vlan_present && port_of_interface(skb->ifindex) == record.port)
			note_tag(skb, &record);
	} else {
		record.point = DROPPED;
	}
	if (!is_wanted(record.point, record.port))
		return;
	record.len = skb->len;
	copy(skb, &record, 0);
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

static __always_inline void show_received_frame(struct xdp_md *xdp)
{
	struct record record = { .point = RECEIVE };
	__u16 type = 0;

	record.port = port_of_interface(xdp->ingress_ifindex);
	if (!is_wanted(RECEIVE, record.port) || !is_drivers(record.port))
		return;
	/* The program at ingress shows frames with a tag, by the port of their VLAN. */
	if (bpf_xdp_load_bytes(xdp, 12, &type, sizeof(type)) || type == bpf_htons(0x8100) || type == bpf_htons(0x88a8))
		return;
	record.len = bpf_xdp_get_buff_len(xdp);
	record.queue = xdp->rx_queue_index;
	copy(xdp, &record, 1);
}

SEC("driver/received")
int driver_received(struct xdp_md *xdp)
{
	show_received_frame(xdp);
	go_on_received(xdp);
	return XDP_PASS;
}

/* A frame for a worker has no note. */
static __always_inline void show_done_frame(struct xdp_md *xdp, __u32 action, __u64 note)
{
	struct record record = {};

	record.port = note & 0xff;
	if (action == XDP_REDIRECT && note & NOTE_LEAVES) {
		record.point = TRANSMIT;
	} else if (action == XDP_DROP) {
		record.point = DROPPED;
		record.port = port_of_interface(xdp->ingress_ifindex);
	} else {
		return;
	}
	if (!is_wanted(record.point, record.port))
		return;
	record.len = bpf_xdp_get_buff_len(xdp);
	copy(xdp, &record, 1);
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
