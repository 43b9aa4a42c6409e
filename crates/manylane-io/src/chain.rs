//! An error message with its whole chain of sources.

use std::error::Error;
use std::fmt;
use std::io;

/// Formats an error and its sources in one line: the messages of aya and libloading omit the system's error. Where that is
/// a lack of permission, it is the whole message: what the library had tried, and an empty log of the verifier, help
/// neither operator.
pub(crate) struct Chain<'e>(pub(crate) &'e (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut next = Some(self.0);
        while let Some(error) = next {
            if is_refused(error) {
                return write!(f, "{error}");
            }
            next = error.source();
        }
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(source) = next {
            write!(f, ": {source}")?;
            next = source.source();
        }
        Ok(())
    }
}

fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let system = error.downcast_ref::<io::Error>();
    system.is_some_and(|error| error.raw_os_error() == Some(libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Library(io::Error);

    impl fmt::Display for Library {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "the syscall returned {}. Verifier output: ", self.0)
        }
    }

    impl Error for Library {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_lack_of_permission_is_said_without_the_librarys_words() {
        let said = |number| Chain(&Library(io::Error::from_raw_os_error(number))).to_string();
        assert_eq!(said(libc::EPERM), "Operation not permitted (os error 1)");
        let other = said(libc::ENOMEM);
        assert!(other.starts_with("the syscall returned Cannot allocate memory"), "{other}");
        assert!(other.ends_with(": Cannot allocate memory (os error 12)"), "{other}");
    }
}
