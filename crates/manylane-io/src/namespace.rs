//! Anonymous network namespaces: a separate network stack for one thread.
//!
//! A namespace lives as long as a thread is in it or a descriptor of it is open. Nothing is mounted
//! under `/run/netns`, so nothing is left behind when the process dies, by SIGKILL too. Labs and tests
//! give each [`Host`] such a thread.

use crate::syscall::exhausted;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use crate::affinity::name_thread;
use crate::interface_lock::remove_lock_files;
use crate::syscall::check;

/// An open network namespace: it exists at least as long as this does.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Moves the calling thread into a new namespace, whose only link is `lo`, down.
    pub fn new_for_this_thread() -> Result<Namespace, NamespaceError> {
        // SAFETY: unshare(2) takes no pointer; CLONE_NEWNET concerns the calling thread only.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
            .map_err(|source| NamespaceError { step: "make", source })?;
        Namespace::of_this_thread()
    }

    /// The calling thread's namespace.
    pub fn of_this_thread() -> Result<Namespace, NamespaceError> {
        File::open("/proc/thread-self/ns/net")
            .map(|file| Namespace(file.into()))
            .map_err(|source| NamespaceError { step: "open", source })
    }

    /// The namespace of another process, by its id.
    pub fn of_process(id: u32) -> Result<Namespace, NamespaceError> {
        File::open(format!("/proc/{id}/ns/net"))
            .map(|file| Namespace(file.into()))
            .map_err(|source| NamespaceError { step: "open", source })
    }

    /// Moves the calling thread into this namespace.
    pub fn enter(&self) -> Result<(), NamespaceError> {
        // SAFETY: setns(2) takes no pointer; for CLONE_NEWNET it concerns the calling thread only.
        check(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) })
            .map_err(|source| NamespaceError { step: "enter", source })?;
        Ok(())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A network namespace that could not be made, opened or entered.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} a network namespace: {source}; {}", next_step(.source))]
pub struct NamespaceError {
    pub(crate) step: &'static str,
    pub(crate) source: io::Error,
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM) => "needs root (CAP_SYS_ADMIN)",
        Some(libc::ENOSPC) => "raise /proc/sys/user/max_net_namespaces",
        Some(libc::ENOENT) => "mount /proc",
        _ => exhausted(source).unwrap_or("`lsns -t net` lists the existing ones"),
    }
}

/// A thread in its own network namespace, which runs the jobs that it is given.
///
/// Any thread may use the sockets and ports that a host opens: a socket belongs to the namespace in which it was
/// opened. When the host is dropped and nothing of it is open, its links vanish.
pub struct Host {
    /// `None` only while dropping.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
    namespace: Namespace,
}

type Job = Box<dyn FnOnce() + Send>;

impl Host {
    /// Starts a host; `name` becomes its thread's name.
    pub fn start(name: &str) -> Result<Host, NamespaceError> {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (sender, receiver) = mpsc::channel();
        let name = name.to_owned();
        let life = move || {
            name_thread(&name);
            let namespace = Namespace::new_for_this_thread();
            let born = namespace.is_ok();
            sender.send(namespace).expect("`start` waits for it");
            if born {
                todo.iter().for_each(|job| job());
            }
        };
        let thread = thread::Builder::new()
            .spawn(life)
            .map_err(|source| NamespaceError { step: "start a thread for", source })?;
        let namespace = receiver.recv().expect("the thread sends before it ends")?;
        Ok(Host { jobs: Some(jobs), thread: Some(thread), namespace })
    }

    /// Runs `job` on the host's thread and waits for what it returns.
    ///
    /// # Panics
    ///
    /// When `job` panics, with its message.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (sender, receiver) = mpsc::channel();
        let caught = move || {
            // A panic belongs to the caller; the host continues.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            sender.send(outcome).expect("`run` waits for it");
        };
        let jobs = self.jobs.as_ref().expect("only `drop` takes it");
        jobs.send(Box::new(caught)).expect("the thread lives as long as the host");
        match receiver.recv().expect("the job sends, whatever happens") {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// The host's namespace, for other threads to enter and links to be moved to.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.jobs.take()); // The thread's loop ends when its last sender is gone.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // The thread cannot have panicked: `run` catches that.
        }
        remove_lock_files(self.namespace.as_fd());
    }
}
