/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs of the driver tier have beside the tables of `tables.h`.
 *
 * | memory            | index                                  | who writes                                    |
 * |-------------------|----------------------------------------|-----------------------------------------------|
 * | devices           | port: the device that frames leave by  | the daemon; the kernel takes out what is gone |
 * | driver_counters   | (cpu * 256 + port) * 8 + place         | `driver.bpf.c`, each CPU its own rows         |
 * | failing           | port: flushes that failed, 0 = none    | `flush.bpf.c` adds, the daemon sets to 0      |
 * | flushed           | port * 2: frames lost by these; errno of the last | `flush.bpf.c`                      |
 *
 * `devices` is a map, not memory: the loader puts the map's own address in.
 */
#ifndef MANYLANE_FAST_DEVICES_H
#define MANYLANE_FAST_DEVICES_H

#include "tables.h"

#define DRIVER_PLACES 8

extern char devices[];
extern __u64 driver_counters[];
extern __u64 failing[PORTS];
extern __u64 flushed[PORTS * 2];

/* Numbers. The second may be 0, which no address is unless it says so. */
extern const char driver_counters_words[];
extern const char takes_pieces[] __attribute__((weak));

/* Flags of a port, beside those of `tables.h`. */
#define DRIVER_ENTRY 256
#define DRIVER_EXIT 512
/* It takes frames in pieces (NDO_XMIT_SG). */
#define DRIVER_EXIT_PIECES 2048

/* Places of driver_counters: in the entry port's row, and in the exit port's. */
#define DRIVER_PACKETS_IN 0
#define DRIVER_BYTES_IN 1
#define DRIVER_PACKETS_OUT 2
#define DRIVER_BYTES_OUT 3
#define DRIVER_REFUSED 4

#endif
