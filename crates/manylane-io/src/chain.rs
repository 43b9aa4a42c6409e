//! An error with all that it came from.

use std::error::Error;
use std::fmt;

/// An error and its sources in one line: the own texts of aya and libloading leave out what the system said.
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
