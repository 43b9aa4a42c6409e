// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Gives each frame to the AF_XDP socket of its receive queue; without one it is the kernel's.
//
// One map for each interface: an entry whose socket belongs to another device makes the kernel drop
// every frame without counting it. The loader sets the number of entries to the number of queues.
//
// "xdp.frags": a program that does not promise to cope with frames in several buffers cannot be
// attached natively while the MTU is large. This one never looks at the bytes.
//
// Built by `ci.sh bpf`, from this folder (clang 14 or newer, libbpf-dev):
//
//     clang -O2 -g -fdebug-compilation-dir=. -target bpf -I/usr/include/$(uname -m)-linux-gnu \
//         -c xsk.bpf.c -o xsk.bpf.o
//     llvm-strip -g xsk.bpf.o        # DWARF goes, BTF stays: the map's definition is BTF
//
// The object is committed, so that building manylane needs no clang.

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

SEC("xdp.frags")
int to_socket(struct xdp_md *ctx)
{
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

char _license[] SEC("license") = "Dual MIT/GPL";
