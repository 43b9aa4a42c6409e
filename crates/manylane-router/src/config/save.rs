//! Writing a configuration so that a crash at any moment leaves the old file or the new one, whole.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

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

/// Has `file` hold `text`, with the owner and the permissions that it has. A new file beside it, under a name that no
/// process can guess, takes its place when all of it is on the disk (rename(2), fsync(2)): so a link that another user
/// puts into the folder is never written through.
pub fn save(file: &Path, text: &str) -> Result<(), SaveError> {
    let failed = |step| move |source| SaveError { file: file.to_owned(), step, source };
    let (folder, name) = place(file).map_err(failed("follow its links"))?;
    let known = known(&folder, &name).map_err(failed("look at it"))?;
    let beside = beside(&name);
    let beside = beside.as_os_str();
    let written = write(&folder, beside, known.as_ref(), text).and_then(|()| {
        renameat(&folder, beside, &folder, name.as_os_str())
            .map_err(|errno| ("put the new file in its place", errno.into()))
    });
    written.map_err(|(step, source)| {
        let _ = unlinkat(&folder, beside, UnlinkatFlags::NoRemoveDir);
        failed(step)(source)
    })?;
    folder.sync_all().map_err(failed("write its folder"))
}

/// The folder of a file and the file's name in it. Of a link, what it leads to is written, and the link stays: if root
/// or this user made it, since any other user could make it lead to any file.
fn place(file: &Path) -> io::Result<(File, OsString)> {
    let mut file = file.to_owned();
    for _ in 0..LINKS_MAX {
        let name = file.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
        let parent = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_DIRECTORY);
        let folder = options.open(parent)?;
        // The link itself, so that no other link takes its place between the look and the step.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let link = match openat(&folder, name.as_os_str(), flags, Mode::empty()) {
            Ok(link) => link,
            Err(Errno::ENOENT) => return Ok((folder, name)),
            Err(errno) => return Err(errno.into()),
        };
        let facts = fstat(&link)?;
        if facts.st_mode & libc::S_IFMT != libc::S_IFLNK {
            return Ok((folder, name));
        }
        if ![0, geteuid().as_raw()].contains(&facts.st_uid) {
            let error = format!("user {} made the link {}", facts.st_uid, file.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        file = parent.join(readlinkat(&link, "")?);
    }
    Err(Errno::ELOOP.into())
}

/// As many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// What a file is, if it is there.
fn known(folder: &File, name: &OsStr) -> io::Result<Option<FileStat>> {
    match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(known) if known.st_mode & libc::S_IFMT == libc::S_IFREG => Ok(Some(known)),
        Ok(known) if known.st_mode & libc::S_IFMT == libc::S_IFDIR => Err(Errno::EISDIR.into()),
        Ok(_) => Err(io::Error::other("it is no regular file")),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// A name beside a file's, from the system's random numbers.
fn beside(name: &OsStr) -> OsString {
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{:016x}", RandomState::new().hash_one(name)));
    beside
}

type Failed = (&'static str, io::Error);

fn write(
    folder: &File,
    beside: &OsStr,
    known: Option<&FileStat>,
    text: &str,
) -> Result<(), Failed> {
    let failed = |step| move |source| (step, source);
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // Until it has its owner, no other user may read it.
    let mode = if known.is_some() { 0o600 } else { 0o644 };
    let new = openat(folder, beside, flags, Mode::from_bits_truncate(mode));
    let mut new: File = new.map_err(|errno| ("write a new file beside it", errno.into()))?.into();
    if let Some(known) = known {
        let facts = new.metadata().map_err(failed("look at the new file"))?;
        if (facts.uid(), facts.gid()) != (known.st_uid, known.st_gid) {
            fchown(&new, Some(known.st_uid), Some(known.st_gid))
                .map_err(failed("keep its owner"))?;
        }
        let mode = fs::Permissions::from_mode(known.st_mode & 0o7777);
        new.set_permissions(mode).map_err(failed("keep its permissions"))?;
    }
    new.write_all(text.as_bytes()).map_err(failed("write a new file beside it"))?;
    new.sync_all().map_err(failed("write a new file beside it"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

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
        let left = [".router.toml.new", ".router.toml.0123456789abcdef"];
        for name in left {
            fs::write(folder.0.join(name), "ne").expect("the folder is ours");
        }
        save(&file, "new").expect("the folder is ours");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
        for name in left {
            assert_eq!(fs::read_to_string(folder.0.join(name)).expect("it is there"), "ne");
        }
        assert_eq!(folder.names().len(), 3);
    }

    /// The name beside the file used to be known before, and a link of that name was written through.
    #[test]
    fn a_link_that_waits_beside_the_file_is_not_written_through() {
        let folder = Folder::new("planted");
        let (file, victim) = (folder.0.join("router.toml"), folder.0.join("shadow"));
        fs::write(&file, "old").expect("the folder is ours");
        fs::write(&victim, "secret").expect("the folder is ours");
        symlink(&victim, folder.0.join(".router.toml.new")).expect("the folder is ours");
        save(&file, "new").expect("the folder is ours");
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "secret");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
        assert_ne!(beside(OsStr::new("a")), beside(OsStr::new("a")), "no name is used twice");
    }

    /// As root: another user's link would have root write any file.
    #[test]
    fn another_users_link_is_not_followed() {
        let folder = Folder::new("stranger");
        let (victim, link) = (folder.0.join("shadow"), folder.0.join("router.toml"));
        fs::write(&victim, "secret").expect("the folder is ours");
        symlink(&victim, &link).expect("the folder is ours");
        if lchown(&link, Some(65534), Some(65534)).is_err() {
            println!("SKIPPED another_users_link_is_not_followed: needs root, to be two users");
            return;
        }
        let said = save(&link, "new").expect_err("nobody made the link").to_string();
        assert!(said.contains("cannot follow its links: user 65534 made the link"), "{said}");
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "secret");
        assert_eq!(folder.names().len(), 2);
    }

    /// As root: the file of another user used to become root's.
    #[test]
    fn the_file_keeps_its_owner_and_its_mode() {
        let folder = Folder::new("owner");
        let file = folder.0.join("router.toml");
        fs::write(&file, "old").expect("the folder is ours");
        if fchown(File::open(&file).expect("it is there"), Some(65534), Some(65533)).is_err() {
            println!("SKIPPED the_file_keeps_its_owner_and_its_mode: needs root, to be two users");
            return;
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("we are root");
        save(&file, "new").expect("we are root");
        let facts = fs::metadata(&file).expect("it is there");
        assert_eq!((facts.uid(), facts.gid(), facts.mode() & 0o7777), (65534, 65533, 0o640));
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
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
        symlink(&file, &link).expect("the folder is ours");
        save(&link, "new").expect("the folder is ours");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    }
}
