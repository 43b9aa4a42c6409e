//! Every key of the configuration: what the checker knows by name, and what `manylane config explain` says.
//!
//! The file format has one list of keys. `Section` takes the keys that a table may have from
//! it, so that no key is accepted that is not explained here. What the checker does with a value (bounds, words) stands
//! where the value is read; a test asks the checker for each, and compares.

mod daemon;
mod port;
#[cfg(test)]
mod tests;

use super::section::nearest;

/// One key, or one table in another.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As the file has it.
    pub name: &'static str,
    /// What it is for, in a line.
    pub about: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is where the file does not say; empty if it has to.
    pub default: &'static str,
    /// A value, as the file has it.
    pub example: &'static str,
    /// The command that changes it while the daemon runs, if one does.
    pub live: Option<&'static str>,
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number from one to the other, of a unit.
    Number(u64, u64, &'static str),
    /// Several of them, in brackets.
    Numbers(u64, u64, &'static str),
    /// A likelihood.
    Likelihood,
    /// `true` or `false`.
    Truth,
    /// One of these words, in quotes.
    Word(&'static [&'static str]),
    /// A text of this form, in quotes.
    Text(&'static str),
    /// Several of them, in brackets.
    Texts(&'static str),
    /// A table of this header, with keys of its own.
    Table(&'static str),
}

impl Kind {
    /// As it is said to an operator.
    pub fn text(self) -> String {
        let of = |unit: &str| match unit {
            "" => String::new(),
            _ => format!(" ({unit})"),
        };
        match self {
            Kind::Number(least, most, unit) => {
                format!("whole number{}, {least} to {most}", of(unit))
            }
            Kind::Numbers(least, most, unit) => {
                format!("list of whole numbers{}, {least} to {most}", of(unit))
            }
            Kind::Likelihood => "number with a fraction, 0 to 1".into(),
            Kind::Truth => "true or false".into(),
            Kind::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
                words.join(" or ")
            }
            Kind::Text(form) => format!("text: {form}"),
            Kind::Texts(form) => format!("list of texts: {form}"),
            Kind::Table(header) => format!("table {header}"),
        }
    }
}

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// As the operator writes it, as `[workers]` or `[[port]]`.
    pub header: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

impl Table {
    /// What is in front of its keys' names: `workers.`.
    pub fn path(&self) -> String {
        match self.header {
            THE_FILE => String::new(),
            header => header.trim_matches(['[', ']']).to_owned() + ".",
        }
    }
}

/// The table that has the others.
pub(super) const THE_FILE: &str = "the file";

/// All tables, in the order of `examples/router.toml`.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    daemon::TABLES.iter().chain(port::TABLES)
}

/// The names that the table `header` may have.
pub(super) fn names(header: &str) -> Vec<&'static str> {
    let table = tables().find(|table| table.header == header);
    let keys = table.expect("each table that is read has its keys here").keys;
    keys.iter().map(|key| key.name).collect()
}

/// What is explained: a key of a table, or a table with all of its keys.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// A key.
    Key(&'static Table, &'static Key),
    /// A table.
    Table(&'static Table),
}

/// Looks up a path as `port.mtu`, or a table as `port` or `[[port]]`. The error is the nearest known path.
pub fn find(path: &str) -> Result<Found, Option<String>> {
    let path = path.trim_matches(['[', ']']);
    let named = || tables().filter(|table| table.header != THE_FILE);
    if let Some(table) = named().find(|table| table.path().trim_end_matches('.') == path) {
        return Ok(Found::Table(table));
    }
    for table in named() {
        let key = table.keys.iter().find(|key| table.path() + key.name == path);
        if let Some(key) = key {
            return Ok(Found::Key(table, key));
        }
    }
    let all: Vec<_> = tables().flat_map(paths).collect();
    // A path without its table means the key.
    let last = |whole: &&String| whole.rsplit('.').next() == Some(path);
    let near = all.iter().find(last).cloned();
    Err(near.or_else(|| nearest(path, all.iter().map(String::as_str)).map(str::to_owned)))
}

fn paths(table: &'static Table) -> impl Iterator<Item = String> {
    table.keys.iter().map(|key| table.path() + key.name)
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    example: &'static str,
    about: &'static str,
) -> Key {
    Key { name, about, kind, default, example, live: None }
}

const fn table(name: &'static str, header: &'static str, about: &'static str) -> Key {
    key(name, Kind::Table(header), "none", "", about)
}

impl Key {
    /// The whole explanation, in lines.
    pub fn explained(&self, table: &Table) -> String {
        let mut text = format!("{}{}\n  {}\n", table.path(), self.name, self.about);
        let mut line = |what: &str, said: &str| text += &format!("  {what:<10}{said}\n");
        line("table", table.header);
        line("value", &self.kind.text());
        line(
            "default",
            if self.default.is_empty() { "none: it has to be there" } else { self.default },
        );
        if !self.example.is_empty() {
            line("example", &format!("{} = {}", self.name, self.example));
        }
        match self.live {
            Some(command) => {
                line("live", &format!("`manylane config apply FILE`, or `manylane {command}`"))
            }
            None if table.header == "[[route]]" => line("live", "`manylane config apply FILE`"),
            None => line("live", "no: a change wants a restart"),
        }
        text
    }

    const fn live(mut self, command: &'static str) -> Key {
        self.live = Some(command);
        self
    }
}
