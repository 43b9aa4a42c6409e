// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The program of ingress.bpf.c, for test runs with tags (`tests/differential/decision/`): BPF_PROG_TEST_RUN hands
// over a packet without one, so here its queueing priority says what the tag was.
//
// | bits of the priority | say                                    |
// |----------------------|----------------------------------------|
// | 31                   | the frame had a tag                    |
// | 30                   | of 802.1ad, not of 802.1Q              |
// | 0 to 15              | its second half: priority and VLAN     |
#define TRIAL
#include "ingress.bpf.c"
