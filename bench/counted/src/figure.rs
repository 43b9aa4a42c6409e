//! Figures, printed in the shape of the bench's.

#[path = "../../src/figure.rs"]
#[allow(dead_code, reason = "the bench's, which measures; what is counted needs one function")]
mod shape;

pub use shape::Output;

/// Prints `count` for each of `operations`, as `name_what_<workers>w`. Exact, so from one run.
pub fn print(output: &Output, name: &str, workers: usize, what: &str, count: u64, operations: u64) {
    let figure = format!("{name}_{what}_{workers}w");
    let unit = if what == "failed" { "CAS" } else { "lines" };
    output.figure(&figure, unit, &[count as f64 / operations as f64]);
}
