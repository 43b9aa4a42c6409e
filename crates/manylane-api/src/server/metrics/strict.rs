//! A reader of OpenMetrics 1.0, and one of the older text format, that take nothing but what grammar and rules allow, as
//! far as this project uses them: counters, gauges and infos.

use std::collections::{BTreeMap, BTreeSet};

/// What a page has.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    /// Type of each family.
    pub families: BTreeMap<String, String>,
    /// Value of each sample, by its name and labels as they are written.
    pub samples: BTreeMap<String, f64>,
    /// Whether it is of the older format: a family is named as its samples are, and has no unit.
    is_text: bool,
}

impl Exposed {
    /// Reads a page of OpenMetrics, or says what is wrong with it.
    pub fn read(page: &str) -> Result<Exposed, String> {
        let body = page.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?;
        Exposed::lines(body, Exposed::default())
    }

    /// Reads a page of the text format 0.0.4, named as its conventions want.
    pub fn read_text(page: &str) -> Result<Exposed, String> {
        let body = page.strip_suffix('\n').ok_or("its last line does not end")?;
        Exposed::lines(body, Exposed { is_text: true, ..Exposed::default() })
    }

    fn lines(body: &str, mut exposed: Exposed) -> Result<Exposed, String> {
        let mut family = Family::default();
        for line in body.lines() {
            let read = match line.strip_prefix("# ") {
                Some(metadata) => exposed.metadata(metadata, &mut family),
                None => exposed.sample(line, &mut family),
            };
            read.map_err(|problem| format!("{problem}: {line}"))?;
        }
        Ok(exposed)
    }

    /// The sum of all samples of a name.
    pub fn sum(&self, name: &str) -> f64 {
        let samples = self.samples.iter();
        samples.filter(|(series, _)| series.split('{').next() == Some(name)).map(|(_, n)| n).sum()
    }

    /// The names of samples that a page has, or would have for a longer list.
    pub fn names(&self) -> BTreeSet<String> {
        let of = |(name, kind): (&String, &String)| match kind.as_str() {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.clone(),
        };
        self.families.iter().map(of).collect()
    }

    fn metadata(&mut self, line: &str, family: &mut Family) -> Result<(), String> {
        let mut words = line.splitn(3, ' ');
        let (Some(word), Some(name), Some(text)) = (words.next(), words.next(), words.next())
        else {
            return Err("a word is missing".into());
        };
        if name != family.name {
            if !is_name(name) {
                return Err("that is no name".into());
            }
            if self.families.contains_key(name) {
                return Err("the family is there already, or not in one piece".into());
            }
            *family = Family { name: name.into(), ..Family::default() };
            self.families.insert(name.into(), "unknown".into());
        }
        if family.samples > 0 {
            return Err("metadata comes before samples".into());
        }
        if !family.metadata.insert(word.into()) {
            return Err("it is said twice".into());
        }
        match word {
            "HELP" if text.is_empty() => Err("its help is empty".into()),
            "HELP" if text.contains(['\\', '"']) => {
                Err("the formats escape that differently".into())
            }
            "HELP" => Ok(()),
            "TYPE" if self.is_text && ["counter", "gauge"].contains(&text) => {
                if (text == "counter") != name.ends_with("_total") {
                    return Err("counters, and only counters, have the suffix".into());
                }
                family.kind = text.into();
                self.families.insert(name.into(), text.into());
                Ok(())
            }
            _ if self.is_text => Err("the format does not have that".into()),
            "TYPE" if ["counter", "gauge", "info"].contains(&text) => {
                if text == "counter" && name.ends_with("_total") {
                    return Err("a counter's family has no suffix".into());
                }
                family.kind = text.into();
                self.families.insert(name.into(), text.into());
                Ok(())
            }
            "UNIT" if name.ends_with(&format!("_{text}")) && family.kind != "info" => Ok(()),
            _ => Err("that is none".into()),
        }
    }

    fn sample(&mut self, line: &str, family: &mut Family) -> Result<(), String> {
        let (series, value) = line.rsplit_once(' ').ok_or("it has no value")?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').ok_or("it is not closed")?),
            None => (series, ""),
        };
        let suffix = match family.kind.as_str() {
            "counter" | "gauge" if self.is_text => "",
            "counter" => "_total",
            "info" => "_info",
            "gauge" => "",
            _ => return Err("its type is missing".into()),
        };
        if name != format!("{}{suffix}", family.name) {
            return Err(format!("a sample of {} is not called so", family.name));
        }
        if !["HELP", "TYPE"].iter().all(|word| family.metadata.contains(*word)) {
            return Err("its family is not described".into());
        }
        if series.ends_with("{}") {
            return Err("braces around nothing".into());
        }
        are_labels(labels)?;
        let number: f64 = value.parse().map_err(|_| "its value is no number")?;
        if !number.is_finite() || (family.kind != "gauge" && number < 0.0) {
            return Err("it cannot have this value".into());
        }
        family.samples += 1;
        match self.samples.insert(series.into(), number) {
            Some(_) => Err("the series is there twice".into()),
            None => Ok(()),
        }
    }
}

/// The family that is being read.
#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    metadata: BTreeSet<String>,
    samples: usize,
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == ':')
        && name.chars().all(|other| other.is_ascii_alphanumeric() || "_:".contains(other))
}

/// `a="b",c="d"`, where `"`, `\` and line ends are escaped.
fn are_labels(mut text: &str) -> Result<(), String> {
    let mut names = BTreeSet::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").ok_or("a label has no value")?;
        if !is_name(name) || name.contains(':') || !names.insert(name) {
            return Err(format!("{name:?} cannot be a label, or is there twice"));
        }
        let mut escaped = false;
        let end = rest.char_indices().find(|&(_, letter)| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        let (end, _) = end.ok_or("a label does not end")?;
        text = &rest[end + 1..];
        text = match text.strip_prefix(',') {
            Some("") => return Err("a label is missing".into()),
            Some(more) => more,
            None if text.is_empty() => text,
            None => return Err("a comma is missing".into()),
        };
    }
    Ok(())
}
