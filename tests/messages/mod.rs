//! The pages of messages: all that an error of ours can say, held against what a message has to have.
//!
//! [`messages!`] takes a row or more for each variant of an error, and no variant can be without: its `match` has no
//! wildcard. With `--nocapture` the pages are printed, to be read.

/// The messages of one error.
pub(crate) struct Page {
    text: String,
    faults: Vec<String>,
}

impl Page {
    pub fn new(title: &str) -> Page {
        Page { text: format!("\n{title}\n"), faults: Vec::new() }
    }

    /// Holds one against the rules: it has the names that were put in, and says what to do next.
    pub fn row(&mut self, variant: &str, message: &str, names: &[&str], next: &str) {
        self.text += &format!("  {variant:<20} {message}\n");
        let mut fault = |what: String| self.faults.push(format!("{variant}: {what}: {message:?}"));
        // A configuration is quoted, and its help is the last line.
        let is_quoted = message.contains(" --> ") || message.contains("\nhelp: ");
        if message.trim().is_empty() || (message.contains('\n') && !is_quoted) {
            fault("it is not one line".into());
        }
        if message.ends_with('.') || message.ends_with(char::is_whitespace) {
            fault("it ends with what no message ends with".into());
        }
        for raw in ["Os {", "Some(", "None", "kind: ", " { ", "  "] {
            if message.contains(raw) && !is_quoted {
                fault(format!("{raw:?} is for programmers"));
            }
        }
        for name in names.iter().filter(|name| !message.contains(**name)) {
            fault(format!("it does not name {name:?}"));
        }
        if next.len() < 4 || !message.contains(next) {
            fault(format!("it does not say what to do: {next:?}"));
        }
    }

    /// Prints the page, and fails if anything is wrong with it.
    pub fn finish(self) {
        print!("{}", self.text);
        assert!(self.faults.is_empty(), "{}", self.faults.join("\n"));
    }
}

/// `messages!(Error { Variant: [(an error, [what it names], what to do next), ...], ... })`: all variants, and only
/// rows that are theirs.
macro_rules! messages {
    ($kind:ident { $($variant:ident: [
        $(($error:expr, [$($name:expr),* $(,)?], $next:expr $(,)?)),+ $(,)?
    ]),+ $(,)? }) => {{
        #[allow(unused_imports)]
        use $kind::*;
        fn variant(error: &$kind) -> &'static str {
            match error {
                $($kind::$variant { .. } => stringify!($variant),)+
            }
        }
        let mut page = $crate::messages::Page::new(stringify!($kind));
        $($(
            let error: $kind = $error;
            assert_eq!(variant(&error), stringify!($variant), "a row of another");
            page.row(stringify!($variant), &error.to_string(), &[$($name),*], $next);
        )+)+
        page.finish();
    }};
}
