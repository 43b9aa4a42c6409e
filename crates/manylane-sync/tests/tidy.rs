//! House rules that a compiler does not check.

use std::path::Path;

/// `primitive` exchanges atomics for loom's. An atomic taken from elsewhere would escape the model.
#[test]
fn primitive_is_the_only_importer_of_atomics() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for path in rust_files(&source) {
        let text = std::fs::read_to_string(&path).expect("the file was just listed");
        if path.ends_with("primitive.rs") {
            assert!(text.contains("std::sync::atomic"), "this test looks for the wrong words");
            continue;
        }
        if path.ends_with("primitive/counted/atomics.rs") {
            continue; // The same ones, each access entered.
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            assert!(
                !code.contains("std::sync::atomic") && !code.contains("core::sync::atomic"),
                "{}:{}: take atomics from crate::primitive",
                path.display(),
                number + 1
            );
        }
        checked += 1;
    }
    assert!(checked > 5, "only {checked} files were found");
}

fn rust_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the source folder can be read") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
    files
}
