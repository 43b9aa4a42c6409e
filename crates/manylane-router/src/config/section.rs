//! A table of the configuration, read key by key.
//!
//! serde could do it in fewer lines, but its errors carry neither the candidates for a mistyped key
//! nor a place for help. Here every complaint is made where place, cause and next step are known.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Problem, Span};
use super::keys;

/// One table, whose keys are known to be allowed.
pub(super) struct Section<'a> {
    /// As the operator writes it, as `[workers]` or `[[port]]`.
    name: &'static str,
    /// Its header, for complaints about what is not there.
    span: Span,
    /// Nothing if the file does not have it: every key has its default.
    table: Option<&'a DeTable<'a>>,
}

impl<'a> Section<'a> {
    /// Refuses a key that the table cannot have.
    pub(super) fn open(
        name: &'static str,
        span: Span,
        table: &'a DeTable<'a>,
    ) -> Result<Self, Problem> {
        let known = keys::names(name);
        // The table is sorted by name; the message is to be about the first in the file.
        let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            return Err(unknown_key(name, key, &known));
        }
        Ok(Section { name, span, table: Some(table) })
    }

    /// The table `key` of this one, empty if it is not there.
    pub(super) fn table(&self, key: &str, name: &'static str) -> Result<Section<'a>, Problem> {
        let Some(value) = self.value(key) else {
            return Ok(Section { name, span: self.span(), table: None });
        };
        match value.get_ref() {
            DeValue::Table(table) => Section::open(name, value.span(), table),
            other => Err(Problem::new(
                value.span(),
                format!("`{key}` has to be a table"),
                format!("this is {}", kind(other)),
                format!("write {name} on a line of its own, and its keys below"),
            )),
        }
    }

    /// The tables `[[key]]` of this one, in the order of the file.
    pub(super) fn tables(
        &self,
        key: &str,
        name: &'static str,
    ) -> Result<Vec<Section<'a>>, Problem> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let wrong = |span: Span, found: &DeValue<'_>| {
            Problem::new(
                span,
                format!("`{key}` has to be a list of tables"),
                format!("this is {}", kind(found)),
                format!("write {name}, with two brackets, once for each"),
            )
        };
        let DeValue::Array(list) = value.get_ref() else {
            return Err(wrong(value.span(), value.get_ref()));
        };
        list.iter()
            .map(|item| match item.get_ref() {
                DeValue::Table(table) => Section::open(name, item.span(), table),
                other => Err(wrong(item.span(), other)),
            })
            .collect()
    }

    /// A text, if the key is there.
    pub(super) fn text(&self, key: &str) -> Result<Option<Spanned<&'a str>>, Problem> {
        self.value(key).map(|value| self.as_text(key, value)).transpose()
    }

    /// A text that has to be there. `help` says what to write.
    pub(super) fn required(&self, key: &str, help: &str) -> Result<Spanned<&'a str>, Problem> {
        self.text(key)?.ok_or_else(|| self.missing(key, help))
    }

    /// A list of texts, if the key is there.
    pub(super) fn texts(
        &self,
        key: &str,
    ) -> Result<Option<Spanned<Vec<Spanned<&'a str>>>>, Problem> {
        self.list(key, |value| self.as_text(key, value))
    }

    /// Whether the key is there, with a list.
    pub(super) fn is_list(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| matches!(value.get_ref(), DeValue::Array(_)))
    }

    /// A whole number within `bounds`, if the key is there.
    pub(super) fn number<T: TryFrom<u64>>(
        &self,
        key: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<Option<Spanned<T>>, Problem> {
        self.value(key).map(|value| self.as_number(key, value, &bounds)).transpose()
    }

    /// A number within `bounds`, with a fraction or without, if the key is there.
    pub(super) fn fraction(
        &self,
        key: &str,
        bounds: RangeInclusive<f64>,
    ) -> Result<Option<Spanned<f64>>, Problem> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number: Option<f64> = match value.get_ref() {
            DeValue::Float(digits) => digits.as_str().parse().ok(),
            DeValue::Integer(digits) => digits.as_str().parse().ok(),
            _ => {
                let help = "write it without quotes, for example 0.01";
                return Err(self.wrong_type(key, value, "a number", help));
            }
        };
        match number.filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(Spanned::new(value.span(), number))),
            None => Err(self.out_of_bounds(key, value.span(), bounds.start(), bounds.end())),
        }
    }

    /// True or false, if the key is there.
    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, Problem> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Boolean(value) => Ok(Some(*value)),
            _ => Err(self.wrong_type(key, value, "true or false", "write it without quotes")),
        }
    }

    /// A list of whole numbers within `bounds`, if the key is there.
    pub(super) fn numbers<T: TryFrom<u64>>(
        &self,
        key: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<Option<Spanned<Vec<Spanned<T>>>>, Problem> {
        self.list(key, |value| self.as_number(key, value, &bounds))
    }

    /// One of a few words, if the key is there.
    pub(super) fn choice<T: Clone>(
        &self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let found = choices.iter().find(|(word, _)| word == text.get_ref());
        match found {
            Some((_, value)) => Ok(Some(value.clone())),
            None => Err(self.unknown_word(key, &text, choices.iter().map(|(word, _)| *word))),
        }
    }

    /// A word that is none of `words`.
    pub(super) fn unknown_word<'w>(
        &self,
        key: &str,
        text: &Spanned<&str>,
        words: impl Iterator<Item = &'w str> + Clone,
    ) -> Problem {
        let list: Vec<_> = words.clone().map(|word| format!("`{word}`")).collect();
        let help = match nearest(text.get_ref(), words) {
            Some(word) => format!("did you mean `{word}`? Known are {}", list.join(", ")),
            None => format!("choose one of {}", list.join(", ")),
        };
        let title = format!("unknown value `{}` for `{key}` in {}", text.get_ref(), self.name);
        Problem::new(text.span(), title, format!("not a value of `{key}`"), help)
    }

    /// `key` has to be there and is not.
    pub(super) fn missing(&self, key: &str, help: &str) -> Problem {
        let title = format!("missing key `{key}` in {}", self.name);
        Problem::new(self.span.clone(), title, format!("this has no `{key}`"), help)
    }

    /// `key` must not be there, because of `why`.
    pub(super) fn refuse(&self, key: &str, why: &str, help: &str) -> Result<(), Problem> {
        match self.key_span(key) {
            Some(span) => Err(Problem::new(
                span,
                format!("misplaced key `{key}` in {}", self.name),
                why,
                help,
            )),
            None => Ok(()),
        }
    }

    /// Whether the file has this table.
    pub(super) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// Where the table's header is.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// As the operator writes the header.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Where the key itself is written.
    pub(super) fn key_span(&self, key: &str) -> Option<Span> {
        self.table?.get_key_value(key).map(|(key, _)| key.span())
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table?.get(key)
    }

    fn list<T>(
        &self,
        key: &str,
        read: impl Fn(&'a Spanned<DeValue<'a>>) -> Result<T, Problem>,
    ) -> Result<Option<Spanned<Vec<T>>>, Problem> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let DeValue::Array(list) = value.get_ref() else {
            return Err(self.wrong_type(key, value, "a list", "put the values in [ and ]"));
        };
        let items = list.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Some(Spanned::new(value.span(), items)))
    }

    fn as_text(
        &self,
        key: &str,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Result<Spanned<&'a str>, Problem> {
        match value.get_ref() {
            DeValue::String(text) => Ok(Spanned::new(value.span(), text.as_ref())),
            _ => Err(self.wrong_type(key, value, "a text", "put it in double quotes")),
        }
    }

    fn as_number<T: TryFrom<u64>>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'a>>,
        bounds: &RangeInclusive<u64>,
    ) -> Result<Spanned<T>, Problem> {
        let DeValue::Integer(digits) = value.get_ref() else {
            let help = "write digits, without quotes or a decimal point";
            return Err(self.wrong_type(key, value, "a whole number", help));
        };
        let number = u64::from_str_radix(digits.as_str(), digits.radix()).ok();
        match number.filter(|number| bounds.contains(number)).map(T::try_from) {
            Some(Ok(number)) => Ok(Spanned::new(value.span(), number)),
            _ => Err(self.out_of_bounds(key, value.span(), bounds.start(), bounds.end())),
        }
    }

    fn out_of_bounds(
        &self,
        key: &str,
        span: Span,
        least: &dyn fmt::Display,
        most: &dyn fmt::Display,
    ) -> Problem {
        Problem::new(
            span,
            format!("`{key}` in {} is out of bounds", self.name),
            format!("not in {least} to {most}"),
            format!("choose a number from {least} to {most}"),
        )
    }

    fn wrong_type(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        wanted: &str,
        help: &str,
    ) -> Problem {
        Problem::new(
            value.span(),
            format!("`{key}` in {} has to be {wanted}", self.name),
            format!("this is {}", kind(value.get_ref())),
            help,
        )
    }
}

/// The word of `words` that `text` may have meant.
pub(super) fn nearest<'w>(text: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    // 0.8 takes one wrong letter in a short word and two in a long one.
    words
        .map(|word| (strsim::jaro_winkler(text, word), word))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, word)| word)
}

/// The help for a name that is none of `names`.
pub(super) fn suggest<'n>(name: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    let list: Vec<_> = names.clone().map(|name| format!("`{name}`")).collect();
    match nearest(name, names) {
        Some(near) => format!("did you mean `{near}`? Known are {}", list.join(", ")),
        None => format!("choose among {}", list.join(", ")),
    }
}

fn unknown_key(name: &str, key: &Spanned<Cow<'_, str>>, known: &[&str]) -> Problem {
    let list: Vec<_> = known.iter().map(|word| format!("`{word}`")).collect();
    let help = match nearest(key.get_ref(), known.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("there are {}", list.join(", ")),
    };
    let title = format!("unknown key `{}` in {name}", key.get_ref());
    Problem::new(key.span(), title, "no setting has this name", help)
}

/// What a value is, in TOML's words, with an article.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
