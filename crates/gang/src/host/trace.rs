//! A file for trace viewers: the gangs on each processor over time (`--trace FILE` of `gang run` and `gang
//! daemon`).
//!
//! ```text
//!   scheduler's thread (real-time)              writer's thread (fair)
//!   TraceEvent --- at most 4096 wait ---------> one line each, in the trace event format
//!   never waits: events without room are counted
//! ```
//!
//! The format is an array of JSON objects that need not be closed: a run that was killed leaves a readable
//! file. Each processor is a row. A turn of a gang is a bar in the rows of the gang's processors. The bar
//! begins when the switch was enforced, and ends at the next switch. `late_us` is the time from the planned
//! moment to the enforced one. The counter `leaked_us` has a value for each turn in which context switches
//! were recorded; the daemon records none.
//!
//! Cost: for each turn, an allocation for its gangs and a message to another thread. The file grows by about
//! 150 bytes per turn and processor, up to [`MAX_TRACE_BYTES`].
//!
//! Reference: "Trace Event Format", which ui.perfetto.dev and chrome://tracing read.

use crate::error::{Error, Result, system};
use crate::gang::GangId;
use crate::matrix::SlotPlace;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use unisono_linux::clock::{self, Duration, Instant};

/// Maximum number of events that wait for the writer: the turns of four seconds at the shortest slice.
const WAITING: usize = 4096;
/// Maximum size of a trace in bytes; viewers in a browser can open about this much.
const MAX_TRACE_BYTES: u64 = 256 << 20;
/// Time without a new event after which the writer flushes its buffer to the file.
const FLUSH: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) enum TraceEvent {
    /// A turn that began at `from` is over.
    Turn { from: Instant, until: Instant, late: Duration, run: Vec<SlotPlace>, lent: Vec<GangId> },
    /// Time that gangs ran outside their turns, in one watched turn.
    Leaked { at: Instant, leaked: Duration },
    /// A gang has joined; its turns begin.
    Joined { gang: GangId, name: String },
    /// The gang has no threads left.
    Left { at: Instant, gang: GangId },
    /// The gang has ended, or runs on without turns.
    Released { at: Instant, gang: GangId },
}

/// The scheduler's end of the channel.
#[derive(Debug)]
pub(crate) struct Tracer {
    events: SyncSender<TraceEvent>,
    missed: Arc<AtomicU64>,
    /// The running turn: when it was enforced, how late, the running gangs, the backfilled gangs.
    turn: Option<(Instant, Duration, Vec<SlotPlace>, Vec<GangId>)>,
}

impl Tracer {
    /// Records that a turn was enforced, `late` after the planned moment.
    pub(crate) fn begin(&mut self, enforced: Instant, late: Duration, run: &[SlotPlace], lent: &[GangId]) {
        self.end(enforced);
        self.turn = Some((enforced, late, run.to_vec(), lent.to_vec()));
    }

    /// Ends the running turn, if there is one.
    pub(crate) fn end(&mut self, until: Instant) {
        if let Some((from, late, run, lent)) = self.turn.take() {
            self.record(TraceEvent::Turn { from, until, late, run, lent });
        }
    }

    pub(crate) fn record(&self, event: TraceEvent) {
        if self.events.try_send(event).is_err() {
            // Relaxed: a counter, read after this end has been dropped
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The writer's end: the thread that writes the file.
#[derive(Debug)]
pub(crate) struct TraceWriter {
    thread: JoinHandle<io::Result<bool>>,
    missed: Arc<AtomicU64>,
}

impl TraceWriter {
    /// Starts the thread that writes into `file`. `names`: the gangs that exist already; `cpus`: the numbers
    /// of the scheduled processors. Times in the file count from now.
    pub(crate) fn start(
        file: File,
        names: BTreeMap<GangId, String>,
        cpus: Vec<usize>,
    ) -> Result<(Self, Tracer)> {
        Self::start_at(file, names, cpus, clock::now()).map_err(system("start the trace's thread"))
    }

    fn start_at(
        file: File,
        names: BTreeMap<GangId, String>,
        cpus: Vec<usize>,
        origin: Instant,
    ) -> io::Result<(Self, Tracer)> {
        let (sender, events) = sync_channel(WAITING);
        let mut lines = TraceLines { out: BufWriter::new(file), names, cpus, origin, written: 0 };
        let thread = std::thread::Builder::new()
            .name("gang-trace".into())
            .spawn(move || lines.begin().and_then(|()| lines.follow(&events)))?;
        let missed = Arc::new(AtomicU64::new(0));
        let tracer = Tracer { events: sender, missed: Arc::clone(&missed), turn: None };
        Ok((Self { thread, missed }, tracer))
    }

    /// Waits until all events are written; the [`Tracer`] must have been dropped. Returns warnings about
    /// missing events.
    pub(crate) fn finish(self) -> Vec<String> {
        let mut lacks = Vec::new();
        match self.thread.join() {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => lacks.push(format!("the trace ends early, at {} MiB", MAX_TRACE_BYTES >> 20)),
            Ok(Err(error)) => lacks.push(format!("the trace ends early: {error}")),
            Err(_) => lacks.push("the trace ends early: its thread panicked".into()),
        }
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 && lacks.is_empty() {
            lacks.push(format!(
                "the trace lacks {missed} events, because its file could not be written in time"
            ));
        }
        lacks
    }
}

/// Creates the trace file before any program is started, so that an unwritable path is refused.
pub(crate) fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| {
        Error::Input(format!("cannot write the trace to {}: {error}; nothing was started", path.display()))
    })
}

struct TraceLines<W> {
    out: W,
    names: BTreeMap<GangId, String>,
    cpus: Vec<usize>,
    origin: Instant,
    written: u64,
}

impl<W: Write> TraceLines<W> {
    fn begin(&mut self) -> io::Result<()> {
        self.out.write_all(b"[\n")?;
        self.line(&json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": "gangs" } }))?;
        for cpu in self.cpus.clone() {
            let name = json!({ "name": format!("processor {cpu}") });
            self.line(&json!({ "ph": "M", "pid": 1, "tid": cpu, "name": "thread_name", "args": name }))?;
        }
        Ok(())
    }

    /// Writes until the [`Tracer`] is dropped. Returns whether all events fit into the file.
    fn follow(&mut self, events: &Receiver<TraceEvent>) -> io::Result<bool> {
        loop {
            match events.recv_timeout(FLUSH.into()) {
                Ok(event) => self.event(event)?,
                Err(RecvTimeoutError::Timeout) => self.out.flush()?,
                Err(RecvTimeoutError::Disconnected) => {
                    self.out.flush()?;
                    return Ok(true);
                }
            }
            if self.written > MAX_TRACE_BYTES {
                self.out.flush()?;
                return Ok(false);
            }
        }
    }

    fn event(&mut self, event: TraceEvent) -> io::Result<()> {
        match event {
            TraceEvent::Turn { from, until, late, run, lent } => {
                let (ts, dur) = (self.time(from), micros(until - from));
                for place in run {
                    for core in place.cores.clone() {
                        let Some(cpu) = self.cpus.get(core).copied() else { continue };
                        let name = self.name(place.gang);
                        let args = json!({ "late_us": micros(late) });
                        self.line(&json!({
                            "ph": "X", "pid": 1, "tid": cpu, "ts": ts, "dur": dur, "name": name, "args": args
                        }))?;
                    }
                }
                for gang in lent {
                    let name = format!("idle processors lent to {}", self.name(gang));
                    self.line(&json!({ "ph": "i", "s": "p", "pid": 1, "tid": 0, "ts": ts, "name": name }))?;
                }
                Ok(())
            }
            TraceEvent::Leaked { at, leaked } => {
                let (ts, args) = (self.time(at), json!({ "us": micros(leaked) }));
                self.line(&json!({ "ph": "C", "pid": 1, "ts": ts, "name": "leaked_us", "args": args }))
            }
            TraceEvent::Joined { gang, name } => {
                self.names.insert(gang, name);
                Ok(())
            }
            TraceEvent::Left { at, gang } => self.goes(at, gang, "has ended"),
            TraceEvent::Released { at, gang } => self.goes(at, gang, "is no gang any more"),
        }
    }

    fn goes(&mut self, at: Instant, gang: GangId, how: &str) -> io::Result<()> {
        let (ts, name) = (self.time(at), format!("{} {how}", self.name(gang)));
        self.line(&json!({ "ph": "i", "s": "g", "pid": 1, "tid": 0, "ts": ts, "name": name }))
    }

    fn line(&mut self, object: &Value) -> io::Result<()> {
        let text = format!("{object},\n");
        self.written += text.len() as u64;
        self.out.write_all(text.as_bytes())
    }

    fn name(&self, gang: GangId) -> String {
        self.names.get(&gang).map_or_else(|| gang.to_string(), |name| format!("{gang}: {name}"))
    }

    fn time(&self, at: Instant) -> f64 {
        micros(at - self.origin)
    }
}

/// Converts to the format's unit, microseconds.
fn micros(length: Duration) -> f64 {
    length.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Value> {
        // as viewers read it: an array that is not closed
        let closed = format!("{}]", text.trim_end().trim_end_matches(','));
        serde_json::from_str(&closed).expect("an array")
    }

    fn place(gang: usize, cores: std::ops::Range<usize>) -> SlotPlace {
        SlotPlace { gang: GangId(gang), cores }
    }

    #[test]
    fn each_turn_is_a_bar_on_the_processors_of_its_gangs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace");
        let file = File::create(&path).expect("a file");
        let names = BTreeMap::from([(GangId(0), "./a \"quoted\"".to_owned())]);
        let (writer, mut tracer) =
            TraceWriter::start_at(file, names, vec![4, 6, 7], Instant::from_millis(1)).expect("a thread");
        tracer.record(TraceEvent::Joined { gang: GangId(1), name: "./b".to_owned() });
        tracer.begin(Instant::from_micros(1010), Duration::from_micros(3), &[place(0, 0..3)], &[GangId(1)]);
        tracer.begin(Instant::from_micros(1030), Duration::from_nanos(500), &[place(1, 1..3)], &[]);
        tracer
            .record(TraceEvent::Leaked { at: Instant::from_micros(1040), leaked: Duration::from_nanos(250) });
        tracer.end(Instant::from_micros(1045));
        tracer.end(Instant::from_millis(9)); // no gang runs any more
        tracer.record(TraceEvent::Left { at: Instant::from_micros(1050), gang: GangId(0) });
        tracer.record(TraceEvent::Released { at: Instant::from_micros(1050), gang: GangId(1) });
        drop(tracer);
        assert_eq!(writer.finish(), Vec::<String>::new());

        let events = read(&std::fs::read_to_string(&path).expect("written"));
        let bars: Vec<_> = events
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|bar| (bar["tid"].as_u64(), bar["ts"].as_f64(), bar["dur"].as_f64(), bar["name"].as_str()))
            .collect();
        let (a, b) = (Some("gang 1: ./a \"quoted\""), Some("gang 2: ./b"));
        assert_eq!(
            bars,
            [
                (Some(4), Some(10.0), Some(20.0), a),
                (Some(6), Some(10.0), Some(20.0), a),
                (Some(7), Some(10.0), Some(20.0), a),
                (Some(6), Some(30.0), Some(15.0), b),
                (Some(7), Some(30.0), Some(15.0), b),
            ]
        );
        let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
        assert_eq!(of("M").len(), 4);
        assert_eq!(of("C")[0]["args"]["us"], 0.25);
        let said: Vec<_> = of("i").iter().map(|event| event["name"].as_str()).collect();
        let goes = [Some("gang 1: ./a \"quoted\" has ended"), Some("gang 2: ./b is no gang any more")];
        assert_eq!(said, [Some("idle processors lent to gang 2: ./b"), goes[0], goes[1]]);
    }

    /// `/dev/full` behaves as a file on a full disk.
    #[test]
    fn what_cannot_be_written_is_said_and_the_scheduler_never_waits() {
        let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
        let (writer, mut tracer) = TraceWriter::start(full, BTreeMap::new(), vec![0]).expect("a thread");
        for turn in 1..=3 * WAITING as u64 {
            tracer.begin(Instant::from_nanos(turn), Duration::ZERO, &[place(0, 0..1)], &[]);
        }
        drop(tracer);
        let lacks = writer.finish();
        assert!(lacks.len() == 1 && lacks[0].contains("No space left"), "{lacks:?}");
    }
}
