//! The Internet's routing table: of a checkout, or one made like it.

use std::path::{Path, PathBuf};

use manylane_lab::prefixes::Prefixes;

/// The table, and where it is from, to be read after "the table".
pub(super) fn read() -> (Prefixes, String) {
    for path in places() {
        match Prefixes::read(&path) {
            Ok(table) => return (table, format!("of {FILE}, a day's table of the Internet")),
            Err(error) if path.exists() => {
                let why = format!("made for this demo, because of {error}");
                return (Prefixes::synthetic(), why);
            }
            Err(_) => {}
        }
    }
    let why = format!("made like the Internet's, as large and as mixed ({FILE} is not here)");
    (Prefixes::synthetic(), why)
}

/// Where a checkout has it: beside this folder, or where this program was compiled.
fn places() -> [PathBuf; 2] {
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    [PathBuf::from(FILE), compiled.join(FILE)]
}

const FILE: &str = "testdata/prefixes.txt.gz";
