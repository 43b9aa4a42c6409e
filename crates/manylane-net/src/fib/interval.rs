//! From nested prefixes to elementary intervals: the pieces between two boundaries.
//!
//! A boundary is where a prefix begins or where one has ended. Neighbours with equal values stay
//! apart, on purpose: then the boundaries follow from the set of prefixes alone, and a changed value
//! changes no boundary (see the door).

/// The owner of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// What the table says there: a next-hop id, or in IPv6 also what leads on.
    pub value: u32,
    /// The owner's prefix length + 1; 0 without a route.
    pub depth: u8,
}

impl Owner {
    /// No route.
    pub const NONE: Owner = Owner { value: 0, depth: 0 };

    /// The owner that a search of the RIB found.
    pub fn of(found: Option<(u8, super::NextHopId)>) -> Owner {
        found.map_or(Owner::NONE, |(len, id)| Owner { value: id.raw().into(), depth: len + 1 })
    }
}

/// A prefix as a span of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub first: u64,
    pub last: u64,
    pub owner: Owner,
}

/// The keys from `first` up to the next interval's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub first: u64,
    pub owner: Owner,
}

/// Cuts `first..=last` at every boundary of `spans`: nested or apart, inside, each one after those that contain it.
/// Outside all spans, `base` owns.
pub(super) fn intervals(
    (first, last): (u64, u64),
    base: Owner,
    spans: impl IntoIterator<Item = Span>,
) -> Vec<Interval> {
    let mut cut = vec![Interval { first, owner: base }];
    let mut open: Vec<Span> = Vec::new();
    for span in spans {
        close(&mut open, &mut cut, base, |ended| ended < span.first);
        begin(&mut cut, span.first, span.owner);
        open.push(span);
    }
    close(&mut open, &mut cut, base, |ended| ended < last);
    cut
}

/// Ends the open spans, innermost first, whose last key is `over`.
fn close(open: &mut Vec<Span>, cut: &mut Vec<Interval>, base: Owner, over: impl Fn(u64) -> bool) {
    while let Some(inner) = open.pop_if(|span| over(span.last)) {
        let outer = open.last().map_or(base, |span| span.owner);
        begin(cut, inner.last + 1, outer);
    }
}

/// An interval from `first`; instead of the last one, where that began in the same place.
fn begin(cut: &mut Vec<Interval>, first: u64, owner: Owner) {
    match cut.last_mut() {
        Some(interval) if interval.first == first => interval.owner = owner,
        _ => cut.push(Interval { first, owner }),
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use super::*;

    fn owner(value: u32) -> Owner {
        Owner { value, depth: 1 }
    }

    fn cut(spans: &[(u64, u64, u32)]) -> Vec<(u64, u32)> {
        let spans =
            spans.iter().map(|&(first, last, value)| Span { first, last, owner: owner(value) });
        let cut = intervals((0, 15), Owner::NONE, spans);
        cut.iter().map(|interval| (interval.first, interval.owner.value)).collect()
    }

    #[test]
    fn an_empty_range_is_one_interval() {
        assert_eq!(cut(&[]), [(0, 0)]);
    }

    #[test]
    fn a_prefix_ends_where_what_contains_it_goes_on() {
        assert_eq!(cut(&[(4, 7, 1), (5, 5, 2)]), [(0, 0), (4, 1), (5, 2), (6, 1), (8, 0)]);
    }

    #[test]
    fn prefixes_that_begin_or_end_together_have_one_boundary() {
        assert_eq!(cut(&[(0, 15, 1), (0, 7, 2), (0, 3, 3)]), [(0, 3), (4, 2), (8, 1)]);
        assert_eq!(cut(&[(8, 15, 1), (12, 15, 2)]), [(0, 0), (8, 1), (12, 2)]);
        assert_eq!(cut(&[(0, 7, 1), (4, 7, 2), (8, 9, 3)]), [(0, 1), (4, 2), (8, 3), (10, 0)]);
    }

    #[test]
    fn neighbours_of_equal_value_stay_apart() {
        assert_eq!(cut(&[(0, 7, 1), (8, 15, 1)]), [(0, 1), (8, 1)]);
    }
}
