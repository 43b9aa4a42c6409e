//! What a peer says of a slice.

use serde::Deserialize;

use crate::prelude::*;
use crate::threads::Span;

/// A slice of a peer, as `bench/peers/watch.h` prints it.
#[derive(Deserialize)]
pub struct Answer<More = Nothing> {
    shares: Vec<Span>,
    #[serde(flatten)]
    pub more: More,
}

/// No more than the shares.
#[derive(Deserialize)]
pub struct Nothing {}

impl<More> Answer<More> {
    /// The slice, to be judged as manylane's own are.
    pub fn slice(&self) -> Slice {
        Slice::of_spans(&self.shares)
    }

    /// Operations of the first thread.
    pub fn operations(&self) -> u64 {
        self.shares.first().map_or(0, |share| share.operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::judged;

    /// Two threads. The second one was away for `away` nanoseconds, while another thread had its core.
    fn answer(away: u64) -> Result<Answer> {
        let shares = [(1_000_000, 101_000_000, 0), (1_500_000, 101_200_000, away)];
        let shares = shares.map(|(start, end, away)| {
            format!(
                r#"{{"operations":5000,"start":{start},"end":{end},"away":{away},"ran":1,"waited":{away}}}"#
            )
        });
        Ok(serde_json::from_str(&format!(r#"{{"shares":[{}]}}"#, shares.join(",")))?)
    }

    #[derive(Deserialize)]
    struct Dropped {
        dropped: u64,
    }

    #[test]
    fn an_answer_has_shares_and_what_else_the_question_wants() {
        let text = r#"{"shares":[{"operations":64,"start":10,"end":650,"away":0,"ran":640,"waited":0}],"dropped":3}"#;
        let answer: Answer<Dropped> = serde_json::from_str(text).expect("it is an answer");
        assert_eq!((answer.slice().ns(), answer.operations(), answer.more.dropped), (10.0, 64, 3));
        assert!(serde_json::from_str::<Answer>("{}").is_err(), "an answer without shares is none");
    }

    #[test]
    fn a_slice_of_a_peer_is_refused_by_the_one_rule() {
        let judged = |away| {
            judged(false, || answer(away).map(|answer| answer.slice())).expect("it is an answer")
        };
        let slice = judged(3_000_000).expect("3 of 100 ms may be lost");
        assert_eq!(slice.of(1).ns(), 19_940.0);
        let cause = judged(5_000_000).expect_err("5 of 100 ms are more than 4 %");
        assert_eq!(cause, "another thread of the machine had the core for 5.0 ms");
    }
}
