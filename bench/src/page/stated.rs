//! Finds measurements that a page states by itself, without a link to the figure.

use super::quotes::TARGET;

/// Measurements that a page states by itself, without a link to a figure: a number and a measurement's unit.
pub fn stated(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let prose = prose(page);
    let words: Vec<&str> = words(&prose).collect();
    for pair in words.windows(2) {
        let [number, unit] = [pair[0], pair[1]];
        let is_part = number.strip_prefix("1/").is_some_and(is_number);
        if is_part && !unit.is_empty() || is_number(number) && UNITS.contains(&unit) {
            found.push(format!("{number} {unit}"));
        }
    }
    found
}

/// Numbers with one point.
pub fn points(page: &str) -> Vec<String> {
    let is_point = |word: &&str| is_number(word) && word.matches('.').count() == 1;
    words(&prose(page)).filter(is_point).map(str::to_owned).collect()
}

/// A page without blocks of code, code and quotes.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let prose = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    without_quotes(&prose.collect::<Vec<_>>().join(" "))
}

fn words(prose: &str) -> impl Iterator<Item = &str> {
    prose.split_whitespace().map(|word| word.trim_matches(&MARKS[..]))
}

const MARKS: [char; 11] = ['(', ')', '[', ']', ',', ';', ':', '.', '|', '*', '"'];
/// Units of what is measured. Limits and defaults are in s, ms and bytes.
const UNITS: [&str; 6] = ["Mpps", "Gb/s", "ns", "us", "times", "%"];

fn is_number(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
        && word.chars().all(|digit| digit.is_ascii_digit() || matches!(digit, '.' | ','))
}

/// Without inline code, and with links' texts that quote a figure taken away.
fn without_quotes(text: &str) -> String {
    let no_code: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut parts = no_code.split(TARGET);
    let mut prose = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let opened = prose.rfind('[').unwrap_or(prose.len());
        if part.split(')').next().is_some_and(|target| target.contains('.')) {
            prose.truncate(opened);
        }
        prose += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    prose
}
