//! Which flow fills a backlog: its packets are dropped first, so that other flows' stay.
//!
//! Linux's flow limit (net/core/dev.c, `skb_flow_limit`): while a backlog is more than half full, the last
//! [`HISTORY`] packets for it are counted by flow, and a flow with more than half of them is
//! dropped. Flows that share a count share the fate; the number of counts is [`COUNTS`], as in Linux.

/// The last packets for one backlog, by flow.
pub(super) struct FlowLimit {
    history: [u16; HISTORY],
    next: usize,
    /// The last one is of places in the history that no packet has filled yet.
    counts: Box<[u16; COUNTS + 1]>,
}

/// Packets that are looked back at.
const HISTORY: usize = 256;

/// Counts of flows: Linux's default of `flow_limit_table_len`.
const COUNTS: usize = 4096;

impl FlowLimit {
    pub(super) fn new() -> FlowLimit {
        let mut counts = Box::new([0; COUNTS + 1]);
        counts[COUNTS] = HISTORY as u16;
        FlowLimit { history: [COUNTS as u16; HISTORY], next: 0, counts }
    }

    /// Counts a packet of the flow with this hash; whether its flow is the one to drop.
    pub(super) fn exceeds(&mut self, hash: u32) -> bool {
        // Other bits than those that choose the bucket: here all flows belong to a few buckets.
        let flow = (hash >> 8) as usize % COUNTS;
        let old = std::mem::replace(&mut self.history[self.next], flow as u16);
        self.next = (self.next + 1) % HISTORY;
        self.counts[usize::from(old)] -= 1;
        self.counts[flow] += 1;
        usize::from(self.counts[flow]) > HISTORY / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One in two packets is not more than half of them.
    #[test]
    fn only_a_flow_with_more_than_half_of_the_packets_exceeds() {
        let mut limit = FlowLimit::new();
        let mut exceeded = |flow: &dyn Fn(u32) -> u32| {
            (0..4 * HISTORY as u32).filter(|&n| limit.exceeds(flow(n) << 8)).count()
        };
        assert_eq!(exceeded(&|n| n % 1000), 0);
        assert_eq!(exceeded(&|n| if n % 2 == 0 { 7 } else { 1 + n % 1000 }), 0);
        let elephant = exceeded(&|n| if n % 4 == 0 { 1 + n % 1000 } else { 7 });
        assert!(elephant > 3 * HISTORY / 2, "only {elephant} of {}", 3 * HISTORY);
        assert_eq!(exceeded(&|n| 2000 + n % 1000), 0, "what is over is forgotten");
    }
}
