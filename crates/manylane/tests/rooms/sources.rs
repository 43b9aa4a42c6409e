//! The sources that are read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of one crate: path below `src`, text.
pub type Sources = Vec<(String, String)>;

/// Every crate under `crates/`, by its folder's name.
pub fn crates() -> BTreeMap<String, Sources> {
    let top = option_env!("CARGO_MANIFEST_DIR")
        .map_or(PathBuf::from("crates"), |own| Path::new(own).join(".."));
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(&top).expect("the crates' folder can be read") {
        let folder = entry.expect("the crates' folder can be read").path();
        let src = folder.join("src");
        if src.join("lib.rs").is_file() {
            let mut sources = Vec::new();
            read_folder(&src, &src, &mut sources);
            sources.sort();
            let name = folder.file_name().expect("an entry has a name").to_string_lossy();
            crates.insert(name.into_owned(), sources);
        }
    }
    crates
}

fn read_folder(folder: &Path, src: &Path, sources: &mut Sources) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("a source folder can be read").path();
        if path.is_dir() {
            read_folder(&path, src, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(src).expect("the file lies in it").to_string_lossy();
            sources.push((
                name.into_owned(),
                fs::read_to_string(&path).expect("a source can be read"),
            ));
        }
    }
}
