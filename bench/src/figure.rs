//! Figures and how they are printed.

use serde_json::json;

/// Where figures go.
pub struct Output {
    /// The question, as the `bench` field says it.
    pub bench: &'static str,
    /// One JSON object a line, instead of a table's row.
    pub json: bool,
}

impl Output {
    /// Prints the median of `runs` with the least and the largest.
    pub fn figure(&self, name: &str, unit: &str, runs: &[f64]) {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return };
        let value = sorted[sorted.len() / 2];
        if self.json {
            let line = json!({
                "bench": self.bench, "figure": name, "value": rounded(value), "min": rounded(min),
                "max": rounded(max), "runs": runs.len(), "unit": unit,
            });
            println!("{line}");
        } else {
            println!(
                "{name:<24} {value:>9.2} {unit:<5} ({min:.2} to {max:.2}, n = {})",
                runs.len()
            );
        }
    }

    /// Says something to people only.
    pub fn note(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }
}

/// Four digits behind the point are more than a measurement has.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
