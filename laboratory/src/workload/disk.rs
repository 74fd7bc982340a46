//! A file server's requests to one disk: bulk reads, reads that a user waits for, and reads with a deadline.
//!
//! Three classes share a file of `FILE_BYTES` bytes. Two downloads always have four reads of 256 KiB waiting
//! each (*throughput*). A user reads 8 KiB at a random offset and thinks for 2 ms (*interactive*). A player
//! reads 64 KiB every 10 ms and needs them within 10 ms (*real-time*).
//!
//! Cost: the file is written once and afterwards read without the page cache. When not to use it: on a file
//! system in memory, whose requests have no order.

use super::disk_service::{DiskOperation, DiskRule, Reply, Service};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use unisono_fairqueue::{ClassId, ClassSpec, Hierarchy, Weight};
use unisono_linux::direct::{FileAccess, open};
use unisono_measure::Histogram;
use unisono_measure::record::Distribution;
use unisono_study::child::POLL_INTERVAL;

/// The classes, by weight 5, 2 and 3.
pub const CLASS_NAMES: [&str; 3] = ["throughput", "interactive", "real-time"];
const WEIGHTS: [u16; 3] = [5, 2, 3];
/// The maximum number of requests that can wait at a time: the downloads' readahead, one request of the user,
/// and seven of a player that has fallen behind.
pub const MAX_WAITING_REQUESTS: usize = 2 * READS_AHEAD + 1 + 7;
/// The size of the file in bytes: larger than a disk's own cache, but written within seconds.
const FILE_BYTES: u64 = 256 << 20;
const FILE_NAME: &str = "disk-workload";
// the load is an example: the downloads of a file server, a user, and a player of 50 Mbit/s
/// The number of waiting reads of each download, so that the disk is never idle.
const READS_AHEAD: usize = 4;
/// The size of a download's read in bytes: twice the kernel's default readahead (128 KiB).
const BULK_READ_BYTES: u32 = 256 << 10;
const SMALL_READ_BYTES: u32 = 8192;
const FRAME_BYTES: u32 = 64 << 10;
const THINK_TIME: Duration = Duration::from_millis(2);
const PERIOD: Duration = Duration::from_millis(10);

pub fn hierarchy() -> Hierarchy {
    let leaf = |(name, weight): (&str, u16)| {
        ClassSpec::new(name).weighing(Weight::from_integer(std::num::NonZeroU32::from(
            std::num::NonZeroU16::new(weight).unwrap_or(std::num::NonZeroU16::MIN),
        )))
    };
    Hierarchy::new(ClassSpec::new("disk").with(CLASS_NAMES.into_iter().zip(WEIGHTS).map(leaf)))
        .expect("sound because names differ")
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ClassResult {
    /// The megabytes per second that were read in the measured time.
    pub mb_per_s: f64,
    /// The time from the request to the arrival of its data.
    pub latency_ms: Option<Distribution>,
    /// The number of requests with a deadline.
    pub due: u64,
    /// The number of requests that ended after their deadline.
    pub late: u64,
}

#[derive(Clone, Debug)]
pub struct SharedFile(Arc<File>);

impl SharedFile {
    /// Opens the file in a directory so that the page cache is bypassed. Writes the file first if it does not
    /// exist.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE_NAME);
        if std::fs::metadata(&path).map_or(0, |facts| facts.len()) != FILE_BYTES {
            let mut file = File::create(&path)?;
            let block = vec![7; 1 << 20];
            for _ in 0..FILE_BYTES >> 20 {
                file.write_all(&block)?;
            }
            file.sync_all()?;
        }
        Ok(Self(Arc::new(open(&path, FileAccess::Read)?)))
    }
}

struct DiskClient<'a> {
    service: &'a Service,
    file: &'a SharedFile,
    class: ClassId,
    reply: Sender<Reply>,
    replies: Receiver<Reply>,
    due: u64,
    late: u64,
    took: Histogram,
}

impl<'a> DiskClient<'a> {
    fn new(service: &'a Service, file: &'a SharedFile, class: ClassId) -> Self {
        let (reply, replies) = channel();
        Self { service, file, class, reply, replies, due: 0, late: 0, took: Histogram::new() }
    }

    fn submit_read(&self, position: u64, length: u32, due: Option<Duration>) -> io::Result<()> {
        let asked = self.service.submit(
            self.class,
            &self.file.0,
            position % FILE_BYTES,
            DiskOperation::Read(length),
            due.map(Into::into),
            &self.reply,
        );
        asked.map_err(io::Error::other)
    }

    fn receive_reply(&mut self) -> io::Result<()> {
        let reply = self.replies.recv().map_err(io::Error::other)?;
        reply.data?;
        self.took.record(reply.took.into());
        self.late += u64::from(reply.late);
        Ok(())
    }
}

/// Lets the clients send requests for `length`, or until `stopped` returns true.
pub fn serve(
    rule: DiskRule,
    threads: usize,
    file: &SharedFile,
    length: Duration,
    stopped: &dyn Fn() -> bool,
) -> io::Result<[ClassResult; 3]> {
    let tree = hierarchy();
    let mut classes = tree.classes().skip(1).map(|(id, _)| id);
    let [throughput, interactive, real_time] =
        [classes.next(), classes.next(), classes.next()].map(|class| class.unwrap_or(ClassId::ROOT));
    let service = Service::start(rule, threads)?;
    let began = Instant::now();
    let stop = AtomicBool::new(false);
    let goes_on = || began.elapsed() < length && !stop.load(Ordering::Relaxed);
    let download = |stream: u64| {
        let mut client = DiskClient::new(&service, file, throughput);
        let mut at = stream * FILE_BYTES / 2;
        let next = |at: &mut u64| std::mem::replace(at, *at + u64::from(BULK_READ_BYTES));
        for _ in 0..READS_AHEAD {
            client.submit_read(next(&mut at), BULK_READ_BYTES, None)?;
        }
        while goes_on() {
            client.receive_reply()?;
            client.submit_read(next(&mut at), BULK_READ_BYTES, None)?;
        }
        Ok(client)
    };
    let user = || {
        let mut client = DiskClient::new(&service, file, interactive);
        let mut random = 1_u64;
        while goes_on() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            client.submit_read(
                (random >> 33) % (FILE_BYTES / u64::from(SMALL_READ_BYTES)) * u64::from(SMALL_READ_BYTES),
                SMALL_READ_BYTES,
                None,
            )?;
            client.receive_reply()?;
            std::thread::sleep(THINK_TIME);
        }
        Ok(client)
    };
    let player = || {
        let mut client = DiskClient::new(&service, file, real_time);
        let mut next = Duration::ZERO;
        while goes_on() {
            client.submit_read(client.due * u64::from(FRAME_BYTES), FRAME_BYTES, Some(PERIOD))?;
            client.due += 1;
            next += PERIOD;
            std::thread::sleep(next.saturating_sub(began.elapsed()));
        }
        for _ in 0..client.due {
            client.receive_reply()?;
        }
        Ok(client)
    };
    let clients: Vec<io::Result<DiskClient<'_>>> = std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| download(0)),
            scope.spawn(|| download(1)),
            scope.spawn(user),
            scope.spawn(player),
        ];
        while threads.iter().any(|thread| !thread.is_finished()) {
            if stopped() {
                stop.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        threads
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
            .into()
    });
    let seconds = began.elapsed().as_secs_f64();
    let clients = clients.into_iter().collect::<io::Result<Vec<_>>>()?;
    Ok([throughput, interactive, real_time].map(|class| {
        let mut took = Histogram::new();
        let mut result = ClassResult {
            mb_per_s: service.figures(class).bytes as f64 / seconds / 1e6,
            ..ClassResult::default()
        };
        for client in clients.iter().filter(|client| client.class == class) {
            took.merge(&client.took);
            result.due += client.due;
            result.late += client.late;
        }
        result.latency_ms = took.distribution(1e6);
        result
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_gets_what_it_asked_for_under_either_rule() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let file = match SharedFile::open(directory.path()) {
            Ok(file) => file,
            Err(error) => return eprintln!("skipped: not past the page cache here: {error}"),
        };
        for threads in [1, MAX_WAITING_REQUESTS] {
            let rule = DiskRule::Fifo { hierarchy: hierarchy() };
            let result =
                serve(rule, threads, &file, Duration::from_millis(100), &|| false).expect("it is read");
            for result in &result {
                assert!(
                    result.mb_per_s > 0.0 && result.latency_ms.is_some_and(|took| took.n > 0),
                    "{result:?}"
                );
            }
            assert_eq!((result[0].due, result[1].due), (0, 0));
            assert!(result[2].due > 0 && result[2].late <= result[2].due);
        }
    }
}
