/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A DPDK heap in pages like those of manylane's tables and frames: of 2 MiB from the reserve (`vm.nr_hugepages`) when it
 * suffices, else normal pages that the kernel may join. So DPDK runs with `--no-huge` and loses nothing by it.
 */

#ifndef MEMORY_H
#define MEMORY_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_errno.h>
#include <rte_malloc.h>

#define HUGE_PAGE (2ul << 20)
#define HUGE_FLAGS (MAP_HUGETLB | 21 << MAP_HUGE_SHIFT)

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, rte_strerror(rte_errno));
	exit(1);
}

/* The number of DPDK's socket whose memory this is. */
static int memory_socket(size_t len)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *base = mmap(NULL, len, prot, flags | HUGE_FLAGS, -1, 0);

	if (base == MAP_FAILED) {
		base = mmap(NULL, len + HUGE_PAGE, prot, flags, -1, 0);
		if (base == MAP_FAILED) {
			perror("memory for DPDK's heap");
			exit(1);
		}
		base = (char *)(((uintptr_t)base + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
		if (madvise(base, len, MADV_HUGEPAGE))
			perror("warning: no joined pages for DPDK's heap");
	}
	if (rte_malloc_heap_create("peer") ||
	    rte_malloc_heap_memory_add("peer", base, len, NULL, len / HUGE_PAGE, HUGE_PAGE))
		die("DPDK's heap");
	return rte_malloc_heap_get_socket("peer");
}

#endif
