//! The API's thread.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;

use manylane_api::Doors;
use manylane_api::accelerate::Accelerated;
use manylane_api::server::accelerate::serve;

/// Answers until it is dropped.
pub(super) struct ApiThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiThread {
    /// Answers at `doors`, in the namespace of the calling thread.
    pub fn start(doors: Doors, source: Arc<dyn Accelerated>) -> io::Result<ApiThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = Builder::new().name("api".into()).spawn(move || {
            let stopped = async move { drop(stopped.await) };
            if let Err(error) = runtime.block_on(serve(doors, source, stopped)) {
                // Forwarding does not need it.
                let line = format!("manylane: the API has ended: {error}\n");
                let _ = io::stderr().write_all(line.as_bytes());
            }
        })?;
        Ok(ApiThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ApiThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has panicked, and its message has said why.
            let _ = thread.join();
        }
    }
}
