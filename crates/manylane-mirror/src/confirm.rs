//! Neighbours to be kept alive in the kernel.
//!
//! The kernel forgets neighbours that it does not send to, and what is forwarded without it is nothing that it sends.
//! So neighbours with a slot that the kernel calls stale are marked as used (NTF_USE): the kernel probes them, and
//! learns whether they answer. Which slots packets use is not known; so all are marked, in turn.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::constants::NUD_STALE;
use super::kernel::Kernel;
use super::targets::Targets;

/// The time of each neighbour's last request.
#[derive(Default)]
pub(super) struct Confirm {
    asked: BTreeMap<(u32, IpAddr), u64>,
    /// Where the next turn begins.
    from: Option<(u32, IpAddr)>,
    round_ns: u64,
    in_round: usize,
}

/// The least time between two requests for a neighbour: the kernel needs five seconds until it probes
/// (`DELAY`), and three to give up.
const AGAIN_NS: u64 = 8_000_000_000;

/// The most requests in a second.
const ROUND_MAX: usize = 64;

const ROUND_NS: u64 = 1_000_000_000;

impl Confirm {
    /// The neighbours to request now.
    pub fn next(&mut self, kernel: &Kernel, targets: &Targets, now_ns: u64) -> Vec<(u32, IpAddr)> {
        if now_ns >= self.round_ns + ROUND_NS || now_ns < self.round_ns {
            (self.round_ns, self.in_round) = (now_ns, 0);
            self.asked.retain(|_, &mut asked| now_ns.saturating_sub(asked) < AGAIN_NS);
        }
        let mut chosen = Vec::new();
        if self.in_round >= ROUND_MAX {
            return chosen;
        }
        let is_stale = |&(link, address): &(u32, IpAddr)| {
            kernel.neighbour(link, address).is_some_and(|n| n.state & NUD_STALE != 0)
        };
        let all = || targets.slots().map(|(via, _)| (via.link, via.gateway));
        let from = self.from.take();
        let rest = all().filter(|whom| from.is_none_or(|from| *whom >= from));
        let begin = all().filter(|whom| from.is_some_and(|from| *whom < from));
        for whom in rest.chain(begin).filter(is_stale) {
            if self.asked.contains_key(&whom) {
                continue;
            }
            if self.in_round == ROUND_MAX {
                self.from = Some(whom);
                break;
            }
            self.in_round += 1;
            self.asked.insert(whom, now_ns);
            chosen.push(whom);
        }
        chosen
    }
}
