//! Writing a configuration so that a crash at any moment leaves the old file or the new one, whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a configuration was not saved: the file is as it was.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot save {}: cannot {step}: {source}; the file is as it was; {}",
    .file.display(), cure(.source)
)]
pub struct SaveError {
    /// The file.
    pub file: PathBuf,
    /// What was tried, as in "cannot ...".
    pub step: &'static str,
    /// What the system said.
    pub source: io::Error,
}

/// What the operator can do about it.
fn cure(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room (`df` shows it), or name a file on another disk"
        }
        io::ErrorKind::ReadOnlyFilesystem => "name a file on a disk that can be written",
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "make its folder first, or name a file in another"
        }
        io::ErrorKind::IsADirectory => "name a file, not a folder",
        _ => "name another, or save as a user that may write there",
    }
}

/// Has `file` hold `text`, with the permissions that it has. A new file beside it takes its place when all of it is on
/// the disk (rename(2), fsync(2)); what a crash leaves of such a one is overwritten by the next.
pub fn save(file: &Path, text: &str) -> Result<(), SaveError> {
    let failed = |step| move |source| SaveError { file: file.to_owned(), step, source };
    // Of a link, what it leads to is written, and the link stays.
    let file = &fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let name = file.file_name().ok_or(io::ErrorKind::IsADirectory.into());
    let name = name.map_err(failed("find its name"))?.to_string_lossy().into_owned();
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let beside = folder.join(format!(".{name}.new"));
    let written = write(file, &beside, text).map_err(failed("write a new file beside it"));
    written.inspect_err(|_| _ = fs::remove_file(&beside))?;
    fs::rename(&beside, file).map_err(failed("put the new file in its place"))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("write its folder"))
}

fn write(file: &Path, beside: &Path, text: &str) -> io::Result<()> {
    let mut new =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(beside)?;
    if let Ok(known) = fs::metadata(file) {
        new.set_permissions(known.permissions())?;
    }
    new.write_all(text.as_bytes())?;
    new.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use nix::libc;

    use super::*;

    /// A folder for one test, removed behind it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("manylane-save-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).expect("the temporary folder can be written");
            Folder(folder)
        }

        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).expect("it is there").flatten();
            names.map(|one| one.file_name().to_string_lossy().into_owned()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_file_is_replaced_with_its_permissions_and_nothing_is_left_beside_it() {
        let folder = Folder::new("whole");
        let file = folder.0.join("router.toml");
        fs::write(&file, "old").expect("the folder is ours");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        save(&file, "# new\n").expect("the folder is ours");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "# new\n");
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.names(), ["router.toml"]);
    }

    /// A crash before the rename: the old file is whole, and what is beside it does not disturb the next.
    #[test]
    fn a_crash_in_the_middle_loses_nothing() {
        let folder = Folder::new("crash");
        let file = folder.0.join("router.toml");
        fs::write(&file, "old").expect("the folder is ours");
        for part in ["", "ne", "new and a longer text than what comes"] {
            fs::write(folder.0.join(".router.toml.new"), part).expect("the folder is ours");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), "old");
        }
        save(&file, "new").expect("the folder is ours");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
        assert_eq!(folder.names(), ["router.toml"]);
    }

    #[test]
    fn what_cannot_be_written_is_named_and_stays() {
        let error = save(Path::new("/nowhere/at/all.toml"), "new").expect_err("there is no folder");
        let said = error.to_string();
        assert!(said.contains("/nowhere/at/all.toml") && said.contains("as it was"), "{said}");
        let folder = Folder::new("folder");
        assert!(save(&folder.0, "new").is_err(), "it is a folder");
        assert_eq!(folder.names(), [""; 0]);
    }

    #[test]
    fn the_cure_is_that_of_the_cause() {
        let said = |number| {
            let source = io::Error::from_raw_os_error(number);
            SaveError { file: "x".into(), step: "write a new file beside it", source }.to_string()
        };
        for (number, cure) in [
            (libc::ENOSPC, "make room (`df` shows it), or name a file on another disk"),
            (libc::EDQUOT, "make room (`df` shows it), or name a file on another disk"),
            (libc::EROFS, "name a file on a disk that can be written"),
            (libc::ENOENT, "make its folder first, or name a file in another"),
            (libc::EISDIR, "name a file, not a folder"),
            (libc::EACCES, "name another, or save as a user that may write there"),
            (libc::EPERM, "name another, or save as a user that may write there"),
        ] {
            assert!(said(number).ends_with(cure), "{}", said(number));
        }
    }

    #[test]
    fn a_link_stays_one() {
        let folder = Folder::new("link");
        let (file, link) = (folder.0.join("real.toml"), folder.0.join("link.toml"));
        fs::write(&file, "old").expect("the folder is ours");
        std::os::unix::fs::symlink(&file, &link).expect("the folder is ours");
        save(&link, "new").expect("the folder is ours");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    }
}
