// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Forwards transit packets of an interface in its driver (XDP), before the kernel has made anything of them,
// decides as `ingress.bpf.c` does, by the same code and the same memory, and stands in front of that program, not
// for it: what it does not forward it passes on unchanged, and `ingress.bpf.c` decides again, counts,
// and forwards or leaves it to the kernel. So nothing is lost here that the other one would not lose.
//
// | a frame                                       | why it is passed on                                     |
// |-----------------------------------------------|---------------------------------------------------------|
// | with a tag in its bytes                       | its type is none of IP: the other one sees the tag      |
// | whose egress is a VLAN, or any port that is not DRIVER_EGRESS | such a device takes none from here, or loses them |
// | in several pieces, for an egress that takes one | such a device takes none from here, or loses them       |
// | whose egress has just lost frames (`failing`)   | until the daemon has looked why                         |
// | whose checksum is still to be filled in (`partial.h`) | the other one sends it so that a device fills it in |
//
// Those of the last line are counted: the daemon takes a port out of the tier that receives many.
//
// Where the port is the workers', `workers.h` says what becomes of a frame that would be forwarded.
//
// The program requests the redirect first, and writes the frame only when it is granted: an egress that is not in
// the map any more costs nothing. A tag that the device took off is not seen: the daemon keeps tags in place.
//
// Built as `ingress.bpf.c`, to `driver.bpf.o`.

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define LOAD_BYTES(context, at, to, len) bpf_xdp_load_bytes(context, at, to, len)
#define LEN(context) bpf_xdp_get_buff_len(context)
#define NOW() bpf_jiffies64()

#include "decide.h"
#include "devices.h"
#include "observe.h"
#include "partial.h"
#include "rewrite.h"
#include "rows.h"
#include "sample.h"
#include "sflow.h"
#include "translate.h"
#include "workers.h"

// Keeps the packet if it may be a sample. Returns whether it is kept.
static __always_inline int may_keep(struct xdp_md *xdp, const struct packet *packet, const struct decision *decision,
				    __u32 by)
{
	if (sflow_skips(decision->ingress, 1))
		return 0;
	keep(xdp, decision, sflow_what(decision->ingress, FORWARDED, by, LEN(xdp)), SFLOW_SAMPLE, 1,
	     LOAD(xdp->ingress_ifindex), 0, 1);
	return 1;
}

// Returns what the program returns. `note` is what a capture wants to know of the frame.
static __always_inline int decided(struct xdp_md *xdp, int *is_kept, __u64 *note)
{
	struct packet packet = {
		.data = (void *)(long)xdp->data,
		.end = (void *)(long)xdp->data_end,
		.context = xdp,
		.interface = xdp->ingress_ifindex,
	};
	struct decision decision;
	struct translation translation;
	__u32 ingress, egress, flags;
	const __u32 *port;

	packet.len = packet.end - packet.data;
	// A number that the verifier knows: where it is 0, this is not there.
	if (NUMBER(takes_pieces))
		packet.len = bpf_xdp_get_buff_len(xdp);
	// The headers of a frame in pieces may be in the second.
	if (packet.data + HEADERS_FLOW > packet.end && packet.len > (__u64)(packet.end - packet.data))
		return XDP_PASS;
	if (decide(&packet, &decision) != FORWARDED)
		return XDP_PASS;
	ingress = LOAD(port_at(decision.ingress)[PORT_FLAGS]);
	if (!(ingress & (DRIVER_INGRESS | WORKERS_INGRESS)))
		return XDP_PASS;
	egress = LOAD(decision.record[RECORD_PORT]) & (PORTS - 1);
	port = port_at(egress);
	flags = LOAD(port[PORT_FLAGS]);
	// The record may be older than the port: then the port has another device.
	if (LOAD(port[PORT_INTERFACE]) != LOAD(decision.record[RECORD_EGRESS]))
		return XDP_PASS;
	if (!(flags & (ingress & WORKERS_INGRESS ? WORKERS_EGRESS : DRIVER_EGRESS)))
		return XDP_PASS;
	if (is_partial(&packet, decision.is_ipv6)) {
		count_one(decision.ingress, DRIVER_PARTIAL);
		return XDP_PASS;
	}
	if (ingress & WORKERS_INGRESS) {
		// Workers do not follow flows.
		if (decision.flow)
			return XDP_PASS;
		if (to_worker(xdp->rx_queue_index, decision.ingress, packet.len) != XDP_REDIRECT)
			return XDP_PASS;
		may_sample(xdp, decision.ingress, FORWARDED, BY_WORKERS, packet.len);
		*is_kept = may_keep(xdp, &packet, &decision, BY_WORKERS);
		return XDP_REDIRECT;
	}
	if (LOAD(failing[egress]))
		return XDP_PASS;
	if (NUMBER(takes_pieces) && packet.len > (__u64)(packet.end - packet.data) && !(flags & DRIVER_EGRESS_PIECES))
		return XDP_PASS;
	if (bpf_redirect_map(&devices, egress, XDP_PASS) != XDP_REDIRECT) {
		count_one(egress, DRIVER_REFUSED);
		return XDP_PASS;
	}
	may_sample(xdp, decision.ingress, FORWARDED, BY_DRIVER, packet.len);
	*is_kept = may_keep(xdp, &packet, &decision, BY_DRIVER);
	// `decide` has checked the lengths, and the verifier needs to see it.
	if (decision.flow) {
		if (is_translated(decision.flow, &translation) &&
		    !translate(packet.data, packet.end, &decision, &translation))
			return XDP_DROP;
		count_flow(decision.flow, decision.len, decision.has_payload);
	}
	if (decision.is_ipv6) {
		if (packet.data + LINK_HEADER + HEADER_V6 > packet.end)
			return XDP_DROP;
		rewrite6(packet.data, decision.record);
	} else {
		if (packet.data + LINK_HEADER + HEADER_V4 > packet.end)
			return XDP_DROP;
		rewrite4(packet.data, decision.record);
	}
	*note = NOTE_LEAVES | (egress & 0xff);
	count_forwarded(decision.ingress, egress, packet.len);
	return XDP_REDIRECT;
}

// A frame that is passed on ends at the other program.
SEC("xdp")
int forward(struct xdp_md *xdp)
{
	int is_kept = 0, action;
	__u64 note = 0;

	observe_received(xdp);
	action = decided(xdp, &is_kept, &note);
	if (is_kept)
		sflow();
	return action == XDP_PASS ? XDP_PASS : observe_done(xdp, action, note);
}

char _license[] SEC("license") = "Dual MIT/GPL";
