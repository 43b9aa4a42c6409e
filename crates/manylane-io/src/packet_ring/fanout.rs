//! Which member of a group is given a packet.

/// How a fanout group shares packets among its members (packet(7), `PACKET_FANOUT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// By the flow's hash, the same both ways.
    Hash,
    /// In turn. Each worker has its own.
    LoadBalance,
    /// By the worker that has the packet.
    Cpu,
    /// To the first member with room.
    Rollover,
    /// By the packet's receive queue.
    QueueMapping,
}

impl Fanout {
    /// As packet(7)'s options spell them.
    pub const WORDS: &'static [(&'static str, Fanout)] = &[
        ("hash", Fanout::Hash),
        ("lb", Fanout::LoadBalance),
        ("cpu", Fanout::Cpu),
        ("rollover", Fanout::Rollover),
        ("qm", Fanout::QueueMapping),
    ];

    /// Its word.
    pub fn name(self) -> &'static str {
        let of = Fanout::WORDS.iter().find(|(_, fanout)| *fanout == self);
        of.expect("each has a word").0
    }

    /// The number of the member, below `members`, that receives a packet, or is tried first: by `hash` of the
    /// packet's flow, `turn` of this worker's count, the packet's `worker` and `queue`.
    #[inline]
    pub fn choose(
        self,
        members: usize,
        hash: impl FnOnce() -> u32,
        turn: u32,
        worker: u16,
        queue: u16,
    ) -> usize {
        let number = match self {
            // As the kernel's `reciprocal_scale`: the upper bits say.
            Fanout::Hash => return ((u64::from(hash()) * members as u64) >> 32) as usize,
            Fanout::LoadBalance => turn,
            Fanout::Cpu => worker.into(),
            Fanout::QueueMapping => queue.into(),
            Fanout::Rollover => 0,
        };
        number as usize % members
    }
}

/// Members of a group (`PACKET_FANOUT_MAX` is 256 without a larger `max_num_members`).
pub const MEMBERS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_chosen_and_none_beyond() {
        for members in 1..=5 {
            for &(word, fanout) in Fanout::WORDS {
                let mut seen = vec![false; members];
                for number in 0..1000u32 {
                    let hash = || number.wrapping_mul(0x9e37_79b9);
                    let of = fanout.choose(members, hash, number, number as u16, number as u16);
                    seen[of] = true;
                }
                let all = fanout != Fanout::Rollover;
                assert_eq!(seen.iter().all(|&seen| seen), all || members == 1, "{word}");
            }
        }
    }
}
