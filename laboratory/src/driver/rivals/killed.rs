//! Counts the files, shared memory and processes that remain after a party of a stream, or all of them, are
//! killed by SIGKILL.
//!
//! After the kill, the other parties have the stream's remaining time and another second to end by
//! themselves; a broker gets SIGTERM. A party that has not ended by then counts as a remaining process, and
//! is killed before the files are counted.

use super::{OtherSubscriber, RivalBroker, RivalProcesses, RivalRun};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unisono_linux::signal::Signal;
use unisono_measure::record::Figure;
use unisono_study::child::{POLL_INTERVAL, StudyChild};
use unisono_study::driver::NoResult;

/// The directories in which middleware leaves shared objects: POSIX shared memory, and iceoryx2's directory.
const LEFTOVER_DIRECTORIES: [&str; 2] = ["/dev/shm", "/tmp/iceoryx2"];
/// The additional time that a party may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KilledParty {
    Publisher,
    Subscriber,
    Broker,
    All,
}

/// Files and processes that did not exist before.
#[derive(Debug)]
struct Leftovers {
    files: BTreeSet<PathBuf>,
    processes: usize,
}

impl RivalRun<'_> {
    pub(super) fn kill_figures(&self) -> Result<Vec<Figure>, NoResult> {
        use KilledParty::{All, Broker, Publisher, Subscriber};
        let mut figures = Vec::new();
        let mut processes = 0;
        for (party, name) in [(Publisher, "publisher"), (Subscriber, "subscriber"), (Broker, "broker")] {
            if let Some(left) = self.kill(party)? {
                let name = format!("left_files_by_{name}");
                figures.push(Figure::new(name, left.files.len() as f64, "1"));
                processes += left.processes;
            }
        }
        if let Some(left) = self.kill(All)? {
            let shared = left
                .files
                .iter()
                .filter(|file| LEFTOVER_DIRECTORIES.iter().any(|place| file.starts_with(place)));
            figures.push(Figure::new("left_shared_files", shared.count() as f64, "1"));
            figures.push(Figure::new("left_files", left.files.len() as f64, "1"));
            processes += left.processes;
        }
        figures.push(Figure::new("left_processes", processes as f64, "1"));
        Ok(figures)
    }

    /// Kills a party in the middle of a stream. Returns what remains, or `None` if this middleware has no
    /// such party.
    fn kill(&self, party: KilledParty) -> Result<Option<Leftovers>, NoResult> {
        if party == KilledParty::Broker && self.driver.broker == RivalBroker::None {
            return Ok(None);
        }
        // removes the file that an earlier broker left, which must not count for this one
        std::fs::remove_file(self.host.files.path("meet")).ok();
        let before = self.files();
        let RivalProcesses { publisher, subscribers, broker, .. } =
            self.start(self.driver.start(), 0.0, OtherSubscriber::Absent)?;
        std::thread::sleep(self.driver.start() + self.measured / 2);
        let mut ends = vec![(KilledParty::Publisher, publisher)];
        ends.extend(subscribers.into_iter().map(|subscriber| (KilledParty::Subscriber, subscriber)));
        let mut broker: Vec<_> = broker.into_iter().map(|broker| (KilledParty::Broker, broker)).collect();
        for (which, child) in ends.iter().chain(&broker) {
            if party == *which || party == KilledParty::All {
                send_signal(child, Signal::Kill)?;
            }
        }
        let mut processes = count_running(&mut ends, self.measured / 2 + EXIT_TIMEOUT);
        for (_, child) in &broker {
            send_signal(child, Signal::Terminate)?;
        }
        processes += count_running(&mut broker, EXIT_TIMEOUT);
        drop((ends, broker));
        Ok(Some(Leftovers { files: self.files().difference(&before).cloned().collect(), processes }))
    }

    /// Lists the files in the directories in which middleware leaves some.
    fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for directory in LEFTOVER_DIRECTORIES {
            collect_files(Path::new(directory), &mut found);
        }
        let meeting = self.host.files.path("meet");
        if meeting.exists() {
            found.insert(meeting);
        }
        found
    }
}

fn send_signal(child: &StudyChild, signal: Signal) -> Result<(), NoResult> {
    let told = child.group().send_signal(signal);
    told.map_err(|error| NoResult::Failed(error.to_string()))
}

/// Returns the number of processes that have not ended within a time.
fn count_running(children: &mut [(KilledParty, StudyChild)], time: Duration) -> usize {
    let by = Instant::now() + time;
    loop {
        let there = children.iter_mut().map(|(_, child)| usize::from(child.failure().is_none())).sum();
        if there == 0 || Instant::now() >= by {
            return there;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn collect_files(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    // entries that vanish while the directory is read do not count as remaining
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_files(&path, found);
        } else {
            found.insert(path);
        }
    }
}
