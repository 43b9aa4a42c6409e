/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The worker tier: a frame that would be forwarded goes up as it came, to the AF_XDP socket of its receive
 * queue. The worker there decides again. What is not granted is passed on, as everything else is:
 *
 * | a frame                                 | why it is passed on                                                |
 * |-----------------------------------------|--------------------------------------------------------------------|
 * | whose queue's worker has not stamped its word in time | it hangs, or waits for one that does; what is in its rings waits |
 * | of a queue without a socket             | the daemon has none there, any more or yet                         |
 * | that a socket's frames are too short for | it would be dropped                                               |
 *
 * A socket whose rings are full drops a frame that was granted: the socket counts it.
 */
#ifndef MANYLANE_PROGRAMS_WORKERS_H
#define MANYLANE_PROGRAMS_WORKERS_H

#include "rows.h"

static __always_inline int to_worker(__u32 queue, __u32 ingress, __u32 len)
{
	__u32 place, worker;

	if (queue >= QUEUES || len > NUMBER(worker_bytes))
		return XDP_PASS;
	place = (ingress & (PORTS - 1)) * QUEUES + queue;
	BOUNDED(place);
	worker = LOAD(socket_workers[place & (PORTS * QUEUES - 1)]) & (WORKERS - 1);
	if (!worker)
		return XDP_PASS;
	if (NOW() >= LOAD(heartbeats[worker * HEARTBEAT_WORDS])) {
		count_one(ingress, WORKERS_ABSENT);
		return XDP_PASS;
	}
	if (bpf_redirect_map(&sockets, place, XDP_PASS) != XDP_REDIRECT)
		return XDP_PASS;
	count_handed(ingress, len);
	return XDP_REDIRECT;
}

#endif
