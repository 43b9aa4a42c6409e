//! What the report shows of each mechanism: `content.txt`, read.
//!
//! | Line                                     | Says                                                                        |
//! |------------------------------------------|-----------------------------------------------------------------------------|
//! | `section ID / TITLE / BENCHES / GAINS`   | a mechanism, its benches, and how many times as good as `before` the fix, rebuilt, and manylane are: figures of the first bench, or `-` for the medians of the first plot's bars |
//! | `text ...`                               | what it is about, and what the source found and did                          |
//! | `plot BENCH / TITLE / UNIT / less [log]` | bars, where less or more is better; the first plot is the source's own    |
//! | `ROLE LABEL / FIGURE`                    | a bar of the bench's figure; `= VALUE [LEAST MOST]` is what the source says   |
//!
//! Fields are divided by ` | `, for which `/` stands above.

use super::plot::{Bar, Bars, Of, Role};

#[derive(Default)]
pub struct Section {
    /// For links.
    pub id: &'static str,
    pub title: &'static str,
    pub text: String,
    /// The source's own figures, from its machine; then what is measured here.
    pub plots: Vec<Bars>,
    pub gains: Vec<Option<&'static str>>,
    /// The benches whose figures follow in full.
    pub benches: Vec<&'static str>,
}

impl Section {
    /// The source's own figures, and what is measured here.
    pub fn parts(&self) -> (&Bars, &[Bars]) {
        self.plots.split_first().expect("the first is the source's")
    }
}

pub fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in include_str!("content.txt").lines() {
        let (word, rest) = line.split_once(' ').expect("a line has a word and more");
        let fields: Vec<&str> = rest.split(" | ").collect();
        if let ("section", [id, title, benches, gains]) = (word, &fields[..]) {
            let gains = gains.split(' ').map(|gain| (gain != "-").then_some(gain)).collect();
            let benches = benches.split(' ').collect();
            sections.push(Section { id, title, benches, gains, ..Section::default() });
            continue;
        }
        let section = sections.last_mut().expect("a section begins");
        match (word, &fields[..]) {
            ("text", _) => {
                section.text += &format!("{}{rest}", if section.text.is_empty() { "" } else { " " })
            }
            ("plot", [bench, title, unit, how]) => {
                let (less_is_better, logarithmic) = (how.starts_with("less"), how.ends_with("log"));
                let bars = Vec::new();
                section.plots.push(Bars { bench, title, unit, less_is_better, logarithmic, bars });
            }
            (role, [label, of]) => {
                let role = Role::ALL.into_iter().find(|known| known.name() == role);
                let role = role.expect("it is one of the four");
                let of = match of.strip_prefix("= ") {
                    None => Of::Figure(of),
                    Some(values) => {
                        let values =
                            values.split(' ').map(|value| value.parse().expect("a number"));
                        match values.collect::<Vec<f64>>()[..] {
                            [value, least, most] => Of::Stated([value, least, most]),
                            ref values => Of::Stated([values[0]; 3]),
                        }
                    }
                };
                section.plots.last_mut().expect("a plot begins").bars.push(Bar { role, label, of });
            }
            _ => panic!("not a line of the report: {line}"),
        }
    }
    sections
}

/// What `scale` models, as figures before the number of workers.
pub const MODEL: [(Role, &str, &str); 3] = [
    (Role::Before, "before: compare-and-swap", "model_lockstep_cas_ns"),
    (Role::Fix, "the fix: rcuref; manylane: debt", "model_lockstep_rcuref_ns"),
    (Role::Manylane, "manylane: no count", "model_guard_ns"),
];
