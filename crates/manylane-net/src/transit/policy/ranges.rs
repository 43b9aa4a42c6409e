//! From prefixes, which contain each other, to ranges, which do not.

use super::network;
use crate::fib::{IpPrefix, NextHopId};

/// Where ranges of addresses begin, and their next-hop ids, 0 for none. The first one begins with address 0, and two in
/// a row always differ. The prefixes are of one family, each once.
pub(super) fn ranges(routes: impl IntoIterator<Item = (IpPrefix, NextHopId)>) -> Vec<(u128, u16)> {
    let mut prefixes: Vec<(u128, u128, u16)> = routes
        .into_iter()
        .map(|(prefix, id)| {
            let (first, mask) = network(prefix);
            (first, first | !mask, id.raw())
        })
        .collect();
    // Those that contain others first.
    prefixes.sort_unstable_by_key(|&(first, last, _)| (first, std::cmp::Reverse(last)));
    let mut ranges = vec![(0, 0)];
    // The prefixes that contain the present address: the last address and the id, the longest prefix last.
    let mut open: Vec<(u128, u16)> = Vec::new();
    for (first, last, id) in prefixes {
        close(&mut open, &mut ranges, Some(first));
        begin(&mut ranges, first, id);
        open.push((last, id));
    }
    close(&mut open, &mut ranges, None);
    ranges
}

/// Ends the prefixes that end before this address; with `None`, all.
fn close(open: &mut Vec<(u128, u16)>, ranges: &mut Vec<(u128, u16)>, before: Option<u128>) {
    while let Some((last, _)) = open.pop_if(|(last, _)| before.is_none_or(|before| *last < before))
    {
        let outer = open.last().map_or(0, |&(_, id)| id);
        if let Some(next) = last.checked_add(1) {
            begin(ranges, next, outer);
        }
    }
}

/// From this address on, it is this id.
fn begin(ranges: &mut Vec<(u128, u16)>, first: u128, id: u16) {
    ranges.pop_if(|(last, _)| *last == first);
    if ranges.last().is_none_or(|&(_, last)| last != id) {
        ranges.push((first, id));
    }
}
