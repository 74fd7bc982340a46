//! Writes output without ever blocking the launcher: a thread writes the output, which waits in a short
//! queue.
//!
//! The launcher has to handle signals and ends of ranks even while the reader of its output is slow (a pager,
//! a full pipe). While the queue is full, it does not read the ranks' pipes, so the ranks block as they would
//! with a slow reader of their own. When the reader is gone ([`OutputSink::is_closed`]), the launcher closes
//! the ranks' pipes, and a rank that writes to them gets SIGPIPE, as in any pipeline.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};

const QUEUE: usize = 16;

/// An output stream of the launcher.
#[derive(Debug)]
pub(crate) struct OutputSink {
    queue: Option<SyncSender<Vec<u8>>>,
    /// A piece that did not fit into the queue.
    kept: Option<Vec<u8>>,
    thread: JoinHandle<()>,
    closed: Arc<AtomicBool>,
}

impl OutputSink {
    /// Starts the thread that writes to `to`.
    pub(crate) fn new(to: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, pieces) = sync_channel(QUEUE);
        let closed = Arc::new(AtomicBool::new(false));
        let is_closed = Arc::clone(&closed);
        let thread = Builder::new().name("output".into()).spawn(move || write(to, &pieces, &is_closed))?;
        Ok(Self { queue: Some(queue), kept: None, thread, closed })
    }

    /// Passes on a piece, or keeps it if the queue is full. A piece that comes while another is kept is
    /// appended to that one, so the launcher reads a pipe only while there is room
    /// ([`has_room`](Self::has_room)).
    pub(crate) fn push(&mut self, piece: Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(&piece);
        } else {
            self.kept = Some(piece);
        }
        self.has_room();
    }

    /// Returns whether the next piece can be passed on. First tries to pass on the kept piece.
    pub(crate) fn has_room(&mut self) -> bool {
        if let (Some(piece), Some(queue)) = (self.kept.take(), &self.queue) {
            match queue.try_send(piece) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(piece)) => self.kept = Some(piece),
            }
        }
        self.kept.is_none()
    }

    pub(crate) fn is_closed(&self) -> bool {
        // a stale value does no harm: pieces are dropped until the new one is visible
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns whether all output is written. It ends the queue, so no further piece may be passed on.
    pub(crate) fn is_finished(&mut self) -> bool {
        if self.has_room() {
            self.queue = None;
        }
        self.thread.is_finished()
    }
}

fn write(mut to: impl Write, pieces: &Receiver<Vec<u8>>, closed: &AtomicBool) {
    for piece in pieces {
        if to.write_all(&piece).and_then(|()| to.flush()).is_err() {
            closed.store(true, Ordering::Relaxed);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn finish(mut sink: OutputSink) {
        let start = Instant::now();
        while !sink.is_finished() {
            assert!(start.elapsed() < Duration::from_secs(30), "the writer hangs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn everything_passed_on_is_written_in_order_however_full_the_queue() {
        let to = Shared::default();
        let mut sink = OutputSink::new(to.clone()).expect("a thread");
        for number in 0..1000 {
            sink.push(format!("{number} ").into_bytes());
        }
        finish(sink);
        let expected: String = (0..1000).map(|number| format!("{number} ")).collect();
        assert_eq!(*to.0.lock().expect("no writer panicked"), expected.into_bytes());
    }

    #[test]
    fn a_reader_that_is_gone_is_noticed() {
        let mut sink = OutputSink::new(Gone).expect("a thread");
        sink.push(b"x".to_vec());
        let start = Instant::now();
        while !sink.is_closed() {
            assert!(start.elapsed() < Duration::from_secs(30), "never noticed");
            std::thread::yield_now();
        }
        finish(sink);
    }
}
