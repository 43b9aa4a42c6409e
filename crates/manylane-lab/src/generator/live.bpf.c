// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Frames for benches, and where they end. `live_generate` runs over and over on frames that the kernel makes for
// it (BPF_F_TEST_XDP_LIVE_FRAMES, Documentation/bpf/bpf_prog_run.rst) and sends each out of an interface;
// `live_drop` counts received frames.
//
// A frame's memory is used again with what others have written into it, by whichever device it went: so all
// headers are written each time, from eight words that the loader has made.
//
// Built by `ci.sh bpf` as `xsk.bpf.c` says, to `live.bpf.o`. Names that are not defined here are tables and
// numbers, as in `fast/tables.h`.

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define HEAD_WORDS 8
#define CPU_WORDS 32

// The first 64 bytes of each frame, without destination and source port, and without checksums.
extern const __u64 live_head[];
// Destinations, their bytes with the first lowest: of IPv4 four in a word each, of IPv6 the first eight.
extern const __u64 live_to[];
extern const __u64 live_setting[];
extern __u64 live_state[];
extern __u64 live_dropped[];
extern const char live_to_words[], live_dropped_words[];

#define NUMBER(symbol) ((__u64)(symbol))

// Words of the setting.
#define INTERFACE 0
#define IS_IPV6 1
#define PORTS 2
#define FIRST_PORT 3
// What live_head's IPv4 header adds up to, and the pseudo-header and UDP in IPv6.
#define SUM 4
// Sixteenths of a nanosecond from frame to frame; 0 for none.
#define INTERVAL 5
// The last eight bytes of all destinations in IPv6, and what they add up to is in SUM.
#define LOWER 6
// 0: destinations in turn. Else: drawn; and where this is 2, not from `live_to`, but from 2^16 IPv4 addresses: FIRST,
// and number times FACTOR beyond it, within 96 /8 networks.
#define DRAWN 7
#define FIRST 8
#define FACTOR 9

// Words of the state, which only the one run has.
#define TO 0
#define PORT 1
#define SENT 2
#define DUE 3

// How late a frame may be until the time is lost that it was waited for.
#define LATE (200000ull << 4)

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

static __always_inline __u64 halves(__u64 word)
{
	return (word & 0xffffffff) + (word >> 32);
}

SEC("xdp/generate")
int live_generate(struct xdp_md *xdp)
{
	__u64 *frame = (void *)(long)xdp->data;
	__u64 at = live_state[TO], to, port, interval = live_setting[INTERVAL];
	__u16 sum;
	int word;

	if ((void *)(frame + HEAD_WORDS) > (void *)(long)xdp->data_end)
		return XDP_ABORTED;
	if (interval) {
		__u64 now = bpf_ktime_get_ns() << 4;

		if (now < live_state[DUE])
			return XDP_DROP; // The kernel runs the next frame at once.
		if (now > live_state[DUE] + LATE)
			live_state[DUE] = now;
		live_state[DUE] += interval;
	}
	port = live_state[PORT];
	if (live_setting[DRAWN]) {
		// One word for each destination; 2^32 times a part of them.
		at = bpf_get_prandom_u32() * NUMBER(live_to_words) >> 32;
	} else {
		// All destinations, then all again from the next port.
		if (at >= NUMBER(live_to_words))
			at = 0;
		live_state[TO] = at + 1;
		if (at == 0) {
			port = port + 1 < live_setting[PORTS] ? port + 1 : 0;
			live_state[PORT] = port;
		}
	}
	port = __builtin_bswap16(live_setting[FIRST_PORT] + port);
	asm volatile("" : "+r"(at));
	if (live_setting[DRAWN] == 2)
		to = __builtin_bswap32(live_setting[FIRST] +
				       (__u32)((bpf_get_prandom_u32() & 0xffff) * live_setting[FACTOR]) % 0x60000000);
	else if (at < NUMBER(live_to_words))
		to = live_to[at];
	else
		return XDP_ABORTED;
#pragma unroll
	for (word = 0; word < HEAD_WORDS; word++)
		frame[word] = live_head[word];
	if (live_setting[IS_IPV6]) {
		*(__u64 *)((void *)frame + 38) = to;
		*(__u64 *)((void *)frame + 46) = live_setting[LOWER];
		*(__u16 *)((void *)frame + 54) = port;
		sum = folded(live_setting[SUM] + halves(to) + port);
		// 0 would mean no checksum.
		*(__u16 *)((void *)frame + 60) = sum ? sum : 0xffff;
	} else {
		*(__u32 *)((void *)frame + 30) = to;
		*(__u16 *)((void *)frame + 34) = port;
		*(__u16 *)((void *)frame + 24) = folded(live_setting[SUM] + to);
	}
	live_state[SENT]++;
	return bpf_redirect(live_setting[INTERFACE], 0);
}

// What each CPU has dropped: frames, bytes.
SEC("xdp/drop")
int live_drop(struct xdp_md *xdp)
{
	__u64 at = (__u64)bpf_get_smp_processor_id() * CPU_WORDS;

	if (at <= NUMBER(live_dropped_words) - CPU_WORDS) {
		live_dropped[at]++;
		live_dropped[at + 1] += xdp->data_end - xdp->data;
	}
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual MIT/GPL";
