// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Forwards transit packets of an interface in its driver (XDP), before the kernel has made anything of them. It
// decides as `ingress.bpf.c` does, by the same code and the same memory, and stands in front of that program, not
// for it: what it does not forward it passes on unchanged and uncounted, and `ingress.bpf.c` decides again, counts,
// and forwards or leaves it to the kernel. So nothing is lost here that the other one would not lose.
//
// | a frame                                       | why it is passed on                                     |
// |-----------------------------------------------|---------------------------------------------------------|
// | with a tag in its bytes                       | its type is none of IP: the other one sees the tag      |
// | whose exit is a VLAN, or any port that is not DRIVER_EXIT | such a device takes none from here, or loses them |
// | in several pieces, for an exit that takes one | the same                                                |
// | whose exit has just lost frames (`failing`)   | until the daemon has looked why                         |
//
// The redirect is asked for first, and the frame written only when it is granted: an exit that is not in the map
// any more costs nothing. A tag that the device took off is not seen: the daemon sees to it that there are none.
//
// Built as `ingress.bpf.c`, to `driver.bpf.o`.

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define LOAD_BYTES(context, at, to, len) bpf_xdp_load_bytes(context, at, to, len)
#define NOW() bpf_jiffies64()

#include "decide.h"
#include "devices.h"
#include "rewrite.h"

// The rows of this CPU, which nobody else writes while we run; 0 if there are more CPUs than there can be.
static __always_inline __u64 *rows(void)
{
	__u64 at = (__u64)bpf_get_smp_processor_id() * (PORTS * DRIVER_PLACES);

	return at > NUMBER(driver_counters_words) - PORTS * DRIVER_PLACES ? 0 : &driver_counters[at];
}

static __always_inline __u64 *row(__u64 *rows, __u32 port)
{
	return &rows[(port & (PORTS - 1)) * DRIVER_PLACES];
}

static __always_inline void count_refused(__u32 exit)
{
	__u64 *all = rows();

	if (all)
		row(all, exit)[DRIVER_REFUSED]++;
}

static __always_inline void count_forwarded(__u32 entry, __u32 exit, __u64 len)
{
	__u64 *all = rows(), *in, *out;

	if (!all)
		return;
	in = row(all, entry);
	out = row(all, exit);
	in[DRIVER_PACKETS_IN]++;
	in[DRIVER_BYTES_IN] += len;
	out[DRIVER_PACKETS_OUT]++;
	out[DRIVER_BYTES_OUT] += len;
}

SEC("xdp")
int forward(struct xdp_md *xdp)
{
	struct packet packet = {
		.data = (void *)(long)xdp->data,
		.end = (void *)(long)xdp->data_end,
		.context = xdp,
		.interface = xdp->ingress_ifindex,
	};
	struct way way = {};
	__u32 exit, flags;
	const __u32 *port;

	packet.len = packet.end - packet.data;
	// A number that the verifier knows: where it is 0, this is not there.
	if (NUMBER(takes_pieces))
		packet.len = bpf_xdp_get_buff_len(xdp);
	// The headers of a frame in pieces may be in the second.
	if (packet.data + HEADERS > packet.end && packet.len > (__u64)(packet.end - packet.data))
		return XDP_PASS;
	if (decide(&packet, &way) != FORWARDED)
		return XDP_PASS;
	if (!(LOAD(port_at(way.entry)[PORT_FLAGS]) & DRIVER_ENTRY))
		return XDP_PASS;
	exit = LOAD(way.record[RECORD_PORT]) & (PORTS - 1);
	port = port_at(exit);
	flags = LOAD(port[PORT_FLAGS]);
	// The record may be older than the port: then the map has another device for it.
	if (!(flags & DRIVER_EXIT) || LOAD(failing[exit]) ||
	    LOAD(port[PORT_INTERFACE]) != LOAD(way.record[RECORD_EXIT]))
		return XDP_PASS;
	if (NUMBER(takes_pieces) && packet.len > (__u64)(packet.end - packet.data) && !(flags & DRIVER_EXIT_PIECES))
		return XDP_PASS;
	if (bpf_redirect_map(&devices, exit, XDP_PASS) != XDP_REDIRECT) {
		count_refused(exit);
		return XDP_PASS;
	}
	// They are there: `decide` has looked, and the verifier wants to see it.
	if (way.is_ipv6) {
		if (packet.data + LINK_HEADER + HEADER_V6 > packet.end)
			return XDP_DROP;
		rewrite6(packet.data, way.record);
	} else {
		if (packet.data + LINK_HEADER + HEADER_V4 > packet.end)
			return XDP_DROP;
		rewrite4(packet.data, way.record);
	}
	count_forwarded(way.entry, exit, packet.len);
	return XDP_REDIRECT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
