// A broker on a thread, for the examples of the documentation, which include this file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

pub struct ServedBroker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    directory: Arc<tempfile::TempDir>,
}

#[allow(dead_code, reason = "each example uses some of it")]
impl ServedBroker {
    pub fn start() -> Self {
        Self::serve(|broker| broker)
    }

    /// Also forwards messages on paths.
    pub fn with_paths(rate: &str) -> Self {
        let rate = rate.parse().expect("a rate");
        let pace = unisono_fairqueue::LinkPace::new(rate, unisono_broker::Limits::MAX_LATENESS);
        Self::serve(move |broker| broker.with_paths(pace))
    }

    /// Ends this broker, and starts another one at its address after a pause.
    pub fn restarted(self, pause: std::time::Duration) -> Self {
        let directory = Arc::clone(&self.directory);
        drop(self);
        std::thread::sleep(pause);
        Self::serve_in(directory, |broker| broker)
    }

    fn serve(with: impl FnOnce(unisono_broker::Broker) -> unisono_broker::Broker) -> Self {
        Self::serve_in(Arc::new(tempfile::tempdir().expect("a scratch directory")), with)
    }

    fn serve_in(
        directory: Arc<tempfile::TempDir>,
        with: impl FnOnce(unisono_broker::Broker) -> unisono_broker::Broker,
    ) -> Self {
        let classes = unisono_fairqueue::Hierarchy::new(unisono_fairqueue::ClassSpec::new("all"));
        let classes = classes.and_then(|all| all.with_default("rest")).expect("two names");
        let broker = with(unisono_broker::Broker::new(classes, unisono_broker::Limits::default()));
        let wait = unisono_events_client::ChannelWait::Sleep;
        let mut server = unisono_broker::Server::new(broker, wait).expect("descriptors are left");
        server.listen_unix(&directory.path().join("events"), unisono_broker::OWNER).expect("it listens");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serving = move || {
            server.serve(&|| stopped.load(Ordering::Relaxed)).expect("it serves");
        };
        Self { stop, thread: Some(std::thread::spawn(serving)), directory }
    }

    pub fn address(&self) -> unisono_events_client::BrokerAddress {
        unisono_events_client::BrokerAddress::Shared(self.directory.path().join("events"))
    }
}

impl Drop for ServedBroker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}
