//! An error message with its whole chain of sources.

use std::error::Error;
use std::fmt;

/// Formats an error and its sources in one line: the messages of aya and libloading omit the system's error.
pub(crate) struct Chain<'e>(pub(crate) &'e (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(source) = next {
            write!(f, ": {source}")?;
            next = source.source();
        }
        Ok(())
    }
}
