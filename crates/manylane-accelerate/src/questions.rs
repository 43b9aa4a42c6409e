//! Questions to a thread: asked by others, answered between two of its turns.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manylane_io::eventfd::EventFd;
use manylane_sync::doorbell::Wake;

use manylane_api::ApiError;
use manylane_api::accelerate::AskError;

/// A question to the thread that owns a `B`.
type Job<B> = Box<dyn FnOnce(&mut B) + Send>;

/// Where others ask.
pub(crate) struct Questions<B> {
    jobs: Mutex<Sender<Job<B>>>,
    doorbell: Arc<EventFd>,
    /// What the thread does, and what becomes of that without it.
    who: Who,
}

/// The thread that a question is for.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    /// The thread, as the subject of "... does not answer".
    pub thread: &'static str,
    /// What the operator may do about that.
    pub help: &'static str,
}

/// The thread's end of the queue.
pub(crate) struct QuestionQueue<B>(Receiver<Job<B>>);

/// Both sides. The doorbell is rung for each question.
pub(crate) fn question_queue<B>(
    doorbell: Arc<EventFd>,
    who: Who,
) -> (Questions<B>, QuestionQueue<B>) {
    let (jobs, asked) = channel();
    (Questions { jobs: Mutex::new(jobs), doorbell, who }, QuestionQueue(asked))
}

impl<B> Questions<B> {
    /// Asks, and waits for the answer: not for ever, since the thread may hang.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut B) -> T + Send + 'static,
    ) -> Result<T, AskError> {
        self.ask_within(PATIENCE, question)
    }

    /// Asks, and waits for an answer that may take up to `patience`.
    pub fn ask_within<T: Send + 'static>(
        &self,
        patience: Duration,
        question: impl FnOnce(&mut B) -> T + Send + 'static,
    ) -> Result<T, AskError> {
        let (answer, answered) = sync_channel(1);
        let waits = Arc::new(());
        let is_awaited = Arc::downgrade(&waits);
        let job: Job<B> = Box::new(move |thread| {
            // Otherwise questions that were given up would keep the thread from those that are not.
            if is_awaited.strong_count() > 0 {
                let _ = answer.send(question(thread));
            }
        });
        let sent = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        sent.map_err(|_| self.silent("has ended"))?;
        self.doorbell.wake();
        answered.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => self.silent("does not answer"),
            RecvTimeoutError::Disconnected => self.silent("has ended"),
        })
    }

    /// Has the thread do something. The caller does not wait for it.
    pub fn tell(&self, job: impl FnOnce(&mut B) + Send + 'static) {
        // Without a thread the job has nothing to work on.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(Box::new(job));
        self.doorbell.wake();
    }

    fn silent(&self, what: &str) -> AskError {
        let Who { thread, help } = self.who;
        AskError::Silent(ApiError { error: format!("{thread} {what}"), help: help.into() })
    }
}

impl<B> QuestionQueue<B> {
    /// The next question: call it.
    pub fn take(&self) -> Option<Job<B>> {
        self.0.try_recv().ok()
    }
}

/// A resynchronization of a million routes takes seconds; the client waits for ten.
const PATIENCE: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const WHO: Who = Who { thread: "the thread", help: "start it again" };

    /// A thread that is slower than the patience of a client that tries again and again.
    #[test]
    fn a_question_that_was_given_up_is_not_answered() {
        let doorbell = Arc::new(EventFd::open().expect("eventfds are to be had"));
        let (questions, end) = question_queue::<u32>(doorbell, WHO);
        let given_up = questions.ask_within(Duration::ZERO, |number| *number += 1);
        assert!(given_up.is_err());
        let mut answered = 0;
        (end.take().expect("it is in the queue"))(&mut answered);
        assert_eq!(answered, 0, "nothing was done for it");
    }

    #[test]
    fn a_question_is_answered_by_the_thread() {
        let doorbell = Arc::new(EventFd::open().expect("eventfds are to be had"));
        let (questions, end) = question_queue::<u32>(doorbell.clone(), WHO);
        thread::scope(|scope| {
            scope.spawn(move || {
                use std::os::fd::AsFd;
                manylane_io::poll::poll(&[doorbell.as_fd()], None).expect("it is open");
                (end.take().expect("the doorbell was rung for it"))(&mut 7);
                assert!(end.take().is_none());
            });
            assert_eq!(questions.ask(|number| *number + 1), Ok(8));
        });
        let Err(AskError::Silent(error)) = questions.ask(|number| *number) else {
            panic!("it ended")
        };
        assert!(error.error.ends_with("has ended"), "{error:?}");
    }
}
