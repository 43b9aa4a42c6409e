//! What is wrong with a configuration: one message that names line, key, cause and next step.
//!
//! A [`Problem`] is found by a check and knows places as byte ranges of the text. `Config::parse`
//! turns the first one into a [`ConfigError`], which is the text an operator reads.

use std::fmt;
use std::io;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// Why a configuration was not accepted. Its `Display` is the one message to show.
#[non_exhaustive]
#[derive(Debug)]
pub enum ConfigError {
    /// The file could not be read at all.
    Unreadable {
        /// The file, as the operator named it.
        file_name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The text says something that cannot be done.
    Invalid {
        /// Line of the fault, from 1.
        line: usize,
        /// What is wrong, in one line.
        title: String,
        /// The whole message: place, quoted line, caret, cause and help.
        message: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { file_name, source } => {
                write!(f, "error: cannot read the configuration {file_name}: {source}\n{HELP_READ}")
            }
            ConfigError::Invalid { message, .. } => f.write_str(message),
        }
    }
}

const HELP_READ: &str = "help: name a TOML file that this user can read";

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConfigError::Unreadable { source, .. } => Some(source),
            ConfigError::Invalid { .. } => None,
        }
    }
}

/// A byte range of the configuration's text.
pub(super) type Span = Range<usize>;

/// One fault, before it is rendered.
#[derive(Debug)]
pub(super) struct Problem {
    /// What is wrong, naming the key.
    title: String,
    /// Where the caret goes.
    span: Span,
    /// What stands at the caret: the cause.
    label: String,
    /// What to do about it.
    help: String,
    /// Another place that matters, as the first use of something used twice.
    also: Option<Box<(Span, String)>>,
}

impl Problem {
    /// The four parts that every message has.
    pub(super) fn new(
        span: Span,
        title: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let (title, label, help) = (title.into(), label.into(), help.into());
        Problem { title, span, label, help, also: None }
    }

    /// Points at a second place as well.
    pub(super) fn also(mut self, span: Span, label: impl Into<String>) -> Self {
        self.also = Some(Box::new((span, label.into())));
        self
    }

    /// What the TOML parser refused. Its words are kept: they say what it expected.
    pub(super) fn syntax(error: &toml::de::Error) -> Self {
        Problem::new(
            error.span().unwrap_or_default(),
            "this is not TOML",
            error.message(),
            "look for a missing quote, bracket or `=`, or a key written twice",
        )
    }

    /// As the operator reads it.
    pub(super) fn render(self, text: &str, file_name: &str) -> ConfigError {
        let span = within(text, &self.span);
        let mut snippet = Snippet::source(text)
            .path(file_name)
            .annotation(AnnotationKind::Primary.span(span.clone()).label(self.label));
        if let Some(also) = self.also {
            let (span, label) = *also;
            let context = AnnotationKind::Context.span(within(text, &span)).label(label);
            snippet = snippet.annotation(context);
        }
        let report = [
            Level::ERROR.primary_title(self.title.as_str()).element(snippet),
            Group::with_title(Level::HELP.secondary_title(self.help)),
        ];
        let message = Renderer::plain().render(&report);
        let line = text[..span.start].matches('\n').count() + 1;
        ConfigError::Invalid { line, title: self.title, message }
    }
}

/// `span`, moved to where the renderer can quote it: inside the text and between characters.
fn within(text: &str, span: &Span) -> Span {
    let floor = |mut at: usize| {
        at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let start = floor(span.start);
    start..floor(span.end).max(start)
}
