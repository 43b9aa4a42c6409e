/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs of the driver tier have beside the tables of `tables.h`.
 *
 * | memory            | index                                  | writer                                        |
 * |-------------------|----------------------------------------|-----------------------------------------------|
 * | devices           | port: the device that frames leave by  | the daemon; the kernel takes out what is gone |
 * | driver_counters   | (cpu * 256 + port) * 16 + place        | `driver.bpf.c`, each CPU its own rows         |
 * | failing           | port: flushes that failed, 0 = none    | `flush.bpf.c` adds, the daemon sets to 0      |
 * | flushed           | port * 2: frames lost by these; errno of the last | `flush.bpf.c`                      |
 * | sockets           | port * 64 + receive queue: a worker's AF_XDP socket | the daemon; the kernel takes out what is closed |
 * | socket_workers    | as `sockets`: which worker's, 0 = none | the daemon                                    |
 * | heartbeats        | worker * 8: the tick until which it is known to turn | that worker                     |
 *
 * `devices` and `sockets` are maps, not memory: the loader puts the map's own address in.
 */
#ifndef MANYLANE_PROGRAMS_DEVICES_H
#define MANYLANE_PROGRAMS_DEVICES_H

#include "tables.h"

#define DRIVER_PLACES 16
/* Receive queues of a port that workers can have; workers, the first unused, each with a line of its own. */
#define QUEUES 64
#define WORKERS 128
#define HEARTBEAT_WORDS 8

extern char devices[];
extern __u64 driver_counters[];
extern __u64 failing[PORTS];
extern __u64 flushed[PORTS * 2];
extern char sockets[];
extern const __u16 socket_workers[PORTS * QUEUES];
extern const __u64 heartbeats[WORKERS * HEARTBEAT_WORDS];

/* Numbers. The second may be 0, which no address is unless it says so. */
extern const char driver_counters_words[];
extern const char takes_pieces[] __attribute__((weak));
/* The longest frame that a worker takes. */
extern const char worker_bytes[];

/* Flags of a port, beside those of `tables.h`. */
#define DRIVER_INGRESS 256
#define DRIVER_EGRESS 512
/* The device takes frames in pieces (NDO_XMIT_SG). */
#define DRIVER_EGRESS_PIECES 2048
/* Received packets are handed to workers; workers have sockets to send by. */
#define WORKERS_INGRESS 4096
#define WORKERS_EGRESS 8192

/* Places of driver_counters: in the ingress port's row, and in the egress port's. */
#define DRIVER_PACKETS_IN 0
#define DRIVER_BYTES_IN 1
#define DRIVER_PACKETS_OUT 2
#define DRIVER_BYTES_OUT 3
#define DRIVER_REFUSED 4
/* In the ingress port's row: handed to workers, and passed on since the queue's worker did not turn. */
#define WORKERS_PACKETS 5
#define WORKERS_BYTES 6
#define WORKERS_ABSENT 7
/* Again the driver's: passed on since the checksum is still to be filled in. */
#define DRIVER_PARTIAL 8

#endif
