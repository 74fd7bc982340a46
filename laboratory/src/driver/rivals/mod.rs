//! Compares the event channel with other middleware. Each has programs of its own, which all behave in the
//! same way.
//!
//! ```text
//!   publisher -- middleware (and its broker, if any) --> subscriber [, and a stopped subscriber]
//! ```
//! One run of one middleware has these parts: paced events for the delay; paced events, with busy loops on
//! every processor, for missed deadlines; unpaced events for the throughput; unpaced events with an
//! additional, stopped subscriber (SIGSTOP); and streams in the middle of which one party, or all, are killed
//! by SIGKILL (`killed`). At the end a paced stream shows whether everything works again.

use crate::workload::rival::RivalStream;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;
use unisono_events_client::ChannelWait;
use unisono_linux::clock::{self, Instant};
use unisono_linux::programs::on_path;
use unisono_linux::signal::Signal;
use unisono_measure::record::Figure;
use unisono_measure::{Histogram, quantile};
use unisono_study::child::{self, StudyChild};
use unisono_study::driver::run_host::{MeasuredParty, RunHost, run_in_thread};
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};
use unisono_study::peer::PeerFile;

mod killed;

pub const RIVALS: DriverKind = DriverKind::new::<RivalsDriver>("rivals");

/// The time for processes to start and to find each other.
const START_TIME: Duration = Duration::from_millis(300);
/// The start time for middleware with slow discovery: DDS takes the longest; zenoh starts its threads and
/// tries again after a second.
const DISCOVERY_TIME: Duration = Duration::from_millis(1200);
/// If no event arrives, an end was not ready when measuring began, because the machine is busy. For the next
/// attempt the start time is multiplied by this factor.
const RETRY_TIME_FACTOR: u32 = 4;
/// The maximum number of additional attempts, each with more time.
const MAX_RETRIES: u32 = 2;
/// The time for a subscriber to write its result.
const RESULT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for a broker to begin to listen. A broker once took more than five seconds, for an unknown
/// reason.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);
const PORT: u16 = 5190;
/// The time for a publisher to close its connection if nothing blocks it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings of Cyclone DDS for loopback, a network without multicast.
const CYCLONE_CONFIG: &str = "<General><Interfaces><NetworkInterface name=\"lo\" multicast=\"false\"/></Interfaces>\
     <AllowMulticast>false</AllowMulticast></General>\
     <Discovery><Peers><Peer Address=\"127.0.0.1\"/></Peers><ParticipantIndex>auto</ParticipantIndex></Discovery>";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RivalsDriver {
    /// A program of the catalogue, `rival-...`.
    program: String,
    meet: RivalAddress,
    broker: RivalBroker,
    message_bytes: usize,
    /// The event rate of the parts that measure delay and deadlines.
    events_per_s: f64,
    /// The deadline of a paced event after it was sent, in the part with busy loops.
    deadline_ms: f64,
    /// How the event channel's programs and its broker wait.
    wait: ChannelWait,
    /// Whether publisher and subscriber each have a processor of their own, and the broker, too, if there is
    /// a third one.
    pinned: bool,
}

impl Default for RivalsDriver {
    fn default() -> Self {
        Self {
            program: "rival-channel".to_owned(),
            meet: RivalAddress::Path,
            broker: RivalBroker::None,
            message_bytes: 1024,
            events_per_s: 500.0,
            deadline_ms: 5.0,
            wait: ChannelWait::Sleep,
            pinned: false,
        }
    }
}

/// The form of the address at which the ends of a middleware meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RivalAddress {
    Address,
    Tcp,
    Path,
    /// Shared memory, announced through a socket at a path.
    Shm,
    Ipc,
    /// A TCP address in zenoh's form.
    Locator,
    Port,
    Domain,
    /// A name, if the middleware has a directory of its own.
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RivalBroker {
    /// There is no broker: the ends find each other.
    None,
    Unisono,
    /// The event channel's listener for MQTT clients.
    UnisonoMqtt,
    Mosquitto,
}

impl Driver for RivalsDriver {
    fn estimated_overhead(&self, seconds: f64) -> Duration {
        // the parts after the first one (of which the last is cut in two), and the start of each part
        let kills = u32::from(self.broker != RivalBroker::None) + 3;
        self.start() * (5 + kills) + Duration::from_secs_f64(seconds * (3.5 + f64::from(kills)))
    }

    fn programs(&self) -> Vec<&str> {
        vec![&self.program]
    }

    fn run(&self, context: Context, seconds: f64, _: u64) -> Result<RunResult, NoResult> {
        let mut program = context.bench.program(&self.program)?.clone();
        if self.wait != ChannelWait::Sleep {
            program = program.with(["--wait", self.wait.name()]);
        }
        run_in_thread(context, "rivals", |host, interrupted| {
            let run = RivalRun {
                driver: self,
                program: &program,
                host,
                measured: Duration::from_secs_f64(seconds),
                interrupted,
            };
            run.measure_all()
        })
    }
}

impl RivalsDriver {
    /// Returns the time from the start of the processes to the start of measuring.
    fn start(&self) -> Duration {
        if matches!(self.meet, RivalAddress::Domain | RivalAddress::Locator) {
            DISCOVERY_TIME
        } else {
            START_TIME
        }
    }
}

struct RivalRun<'a> {
    driver: &'a RivalsDriver,
    program: &'a PeerFile,
    host: &'a RunHost<'a>,
    measured: Duration,
    interrupted: child::Interrupted<'a>,
}

/// The processes of a part. The drop kills them.
struct RivalProcesses {
    publisher: StudyChild,
    subscribers: Vec<StudyChild>,
    broker: Option<StudyChild>,
    from: Instant,
}

impl RivalRun<'_> {
    fn measure_all(&self) -> Result<RunResult, NoResult> {
        let bytes = self.driver.message_bytes as f64;
        let paced = self.stream(self.driver.events_per_s, OtherSubscriber::Absent)?;
        let mut figures = delay_figures(&paced);
        figures.push(Figure::new("late_under_load_percent", self.late_percent_under_load()?, "%"));
        let alone = self.throughput(OtherSubscriber::Absent)?;
        figures.push(Figure::new("events_per_s", alone, "1/s"));
        figures.push(Figure::new("megabytes_per_s", alone * bytes / 1e6, "MB/s"));
        let beside = self.throughput(OtherSubscriber::Stopped)?;
        figures.push(Figure::new("beside_stopped_per_s", beside, "1/s"));
        figures.push(Figure::new("beside_stopped_percent", 100.0 * beside / alone.max(1.0), "%"));
        figures.extend(self.kill_figures()?);
        let again = self.stream(self.driver.events_per_s, OtherSubscriber::Absent);
        let again = again.map_or(0.0, |again| again.events as f64);
        let after = 100.0 * again / self.paced_events();
        figures.push(Figure::new("after_kill_percent", after.min(100.0), "%"));
        Ok(RunResult { figures, ..RunResult::default() })
    }

    /// Returns the number of events in a paced stream.
    fn paced_events(&self) -> f64 {
        (self.driver.events_per_s * self.measured.as_secs_f64()).max(1.0)
    }

    /// Measures the percentage of a paced stream's events that miss their deadline while a busy loop competes
    /// for each processor.
    fn late_percent_under_load(&self) -> Result<f64, NoResult> {
        let _loops = self.host.competitors()?;
        let stream = self.stream(self.driver.events_per_s, OtherSubscriber::Absent)?;
        let by = (self.driver.deadline_ms * 1e6) as u64;
        let in_time = stream.delays_ns.iter().filter(|delay| **delay <= by).count() as f64;
        Ok(100.0 * (1.0 - in_time / self.paced_events()).max(0.0))
    }

    fn throughput(&self, other: OtherSubscriber) -> Result<f64, NoResult> {
        Ok(self.stream(0.0, other)?.events as f64 / self.measured.as_secs_f64())
    }

    /// Runs a stream to its end. Returns the counts of the subscriber that is not stopped.
    fn stream(&self, events_per_s: f64, other: OtherSubscriber) -> Result<RivalStream, NoResult> {
        let leads = (0..=MAX_RETRIES).map(|more| self.driver.start() * RETRY_TIME_FACTOR.pow(more));
        first_with_events(leads, |lead| self.stream_with_lead(lead, events_per_s, other))
    }

    /// Runs a stream as [`Self::stream`] does, with `lead` as the time for the processes to start.
    fn stream_with_lead(
        &self,
        lead: Duration,
        events_per_s: f64,
        other: OtherSubscriber,
    ) -> Result<RivalStream, NoResult> {
        let mut processes = self.start(lead, events_per_s, other)?;
        if other == OtherSubscriber::Stopped
            && let Some(stopped) = processes.subscribers.last().map(StudyChild::group)
        {
            std::thread::sleep((processes.from - clock::now()).into());
            stopped.send_signal(Signal::Stop).map_err(|error| NoResult::Failed(error.to_string()))?;
        }
        let longest = lead + self.measured + RESULT_TIMEOUT;
        child::wait_all(&mut processes.subscribers[..1], longest, self.interrupted)?;
        if other == OtherSubscriber::Absent {
            // the publisher removes its resources itself; if it does not end, it is killed below
            let publisher = std::slice::from_mut(&mut processes.publisher);
            child::wait_all(publisher, CLOSE_TIMEOUT, self.interrupted).ok();
        }
        let stream: RivalStream = self.host.files.read("subscriber")?;
        if stream.wrong_length > 0 {
            let wrong = stream.wrong_length;
            return Err(NoResult::Failed(format!("{wrong} events came with another length than was sent")));
        }
        Ok(stream)
    }

    fn start(
        &self,
        lead: Duration,
        events_per_s: f64,
        other: OtherSubscriber,
    ) -> Result<RivalProcesses, NoResult> {
        let broker = self.broker()?;
        let from = clock::now() + lead.into();
        let process = |party: MeasuredParty, role: &str, result: &str| {
            let mut command = self.program.plain_command();
            command.env("CYCLONEDDS_URI", CYCLONE_CONFIG);
            command.args([role, &self.address(), &self.driver.message_bytes.to_string()]);
            command.args([events_per_s.to_string(), from.as_nanos().to_string()]);
            command
                .arg((from + self.measured.into()).as_nanos().to_string())
                .arg(self.host.files.path(result));
            self.host.start(party, self.driver.pinned, command)
        };
        // removes the result of an earlier part, which would be taken for this part's result
        std::fs::remove_file(self.host.files.path("subscriber")).ok();
        let publisher = process(MeasuredParty::Sender, "publish", "publisher")?;
        let mut subscribers = vec![process(MeasuredParty::Receiver, "subscribe", "subscriber")?];
        if other == OtherSubscriber::Stopped {
            subscribers.push(process(MeasuredParty::Receiver, "stopped", "stopped")?);
        }
        Ok(RivalProcesses { publisher, subscribers, broker, from })
    }

    fn address(&self) -> String {
        let path = self.host.files.path("meet").display().to_string();
        let tcp = format!("127.0.0.1:{PORT}");
        match self.driver.meet {
            RivalAddress::Address => tcp,
            RivalAddress::Tcp => format!("tcp:{tcp}"),
            RivalAddress::Path => format!("unix:{path}"),
            RivalAddress::Shm => path,
            RivalAddress::Locator => format!("tcp/{tcp}"),
            RivalAddress::Ipc => format!("ipc://{path}"),
            RivalAddress::Port => PORT.to_string(),
            // the number of a domain that no other program of the user is likely to use
            RivalAddress::Domain => "71".to_owned(),
            RivalAddress::Name => format!("unisono-rival-{}", std::process::id()),
        }
    }

    fn broker(&self) -> Result<Option<StudyChild>, NoResult> {
        let command = match self.driver.broker {
            RivalBroker::None => return self.host.files.write("here", "").map(|_| None),
            RivalBroker::Unisono => {
                self.host.files.write("here", "")?;
                let mut command = self.host.unisono(&["events", "serve", "--listen"]);
                command.arg(self.address());
                command.args(["--wait", self.driver.wait.name()]);
                command
            }
            RivalBroker::UnisonoMqtt => {
                let own = self.host.files.write("here", "")?.with_file_name("own");
                let mut command = self.host.unisono(&["events", "serve", "--listen"]);
                command.arg(own).args(["--mqtt", &format!("127.0.0.1:{PORT}")]);
                command
            }
            RivalBroker::Mosquitto => {
                let missing = "there is no mosquitto on PATH; install it (Debian: apt-get install mosquitto)";
                let mosquitto = on_path("mosquitto").ok_or_else(|| NoResult::Skipped(missing.to_owned()))?;
                let config =
                    format!("listener {PORT} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n");
                let mut command = Command::new(mosquitto);
                command.arg("-c").arg(self.host.files.write("mosquitto.conf", &config)?);
                command
            }
        };
        // removes the socket that the killed broker of an earlier part has left
        std::fs::remove_file(self.host.files.path("meet")).ok();
        let mut broker = self.host.start(MeasuredParty::Broker, self.driver.pinned, command)?;
        self.await_broker(&mut broker)?;
        Ok(Some(broker))
    }

    fn await_broker(&self, broker: &mut StudyChild) -> Result<(), NoResult> {
        let by = clock::now() + LISTEN_TIMEOUT.into();
        let listens = || match self.driver.meet {
            RivalAddress::Path | RivalAddress::Shm => {
                std::os::unix::net::UnixStream::connect(self.host.files.path("meet")).is_ok()
            }
            _ => TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).is_ok(),
        };
        while !listens() {
            if let Some(failure) = broker.failure() {
                return Err(NoResult::Failed(failure.to_string()));
            }
            if clock::now() > by {
                let why =
                    format!("the broker does not listen at {} after {LISTEN_TIMEOUT:?}", self.address());
                return Err(NoResult::Failed(why));
            }
            std::thread::sleep(child::POLL_INTERVAL);
        }
        Ok(())
    }
}

/// A subscriber in addition to the measured one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherSubscriber {
    Absent,
    /// A second subscriber, stopped when measuring begins.
    Stopped,
}

/// Returns the first stream that has events. `leads` are the start times of the attempts.
fn first_with_events(
    leads: impl IntoIterator<Item = Duration>,
    mut stream: impl FnMut(Duration) -> Result<RivalStream, NoResult>,
) -> Result<RivalStream, NoResult> {
    for lead in leads {
        let stream = stream(lead)?;
        if stream.events > 0 {
            return Ok(stream);
        }
    }
    Err(NoResult::Failed("no event came".to_owned()))
}

fn delay_figures(stream: &RivalStream) -> Vec<Figure> {
    let mut histogram = Histogram::new();
    stream.delays_ns.iter().for_each(|delay| histogram.record_nanos(*delay));
    let us: Vec<f64> = stream.delays_ns.iter().map(|delay| *delay as f64 / 1e3).collect();
    let median = histogram.distribution(1e3).map(|all| Figure::from_distribution("one_way_us", "us", all));
    let tail = |name: &str, part| quantile::quantile(&us, part).map(|value| Figure::new(name, value, "us"));
    [median, tail("one_way_p99_us", 0.99), tail("one_way_p999_us", 0.999)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_the_delays_has_figures_of_its_own() {
        let stream = RivalStream {
            events: 1000,
            delays_ns: (1..=1000).map(|us| us * 1000).collect(),
            ..RivalStream::default()
        };
        let figures = delay_figures(&stream);
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).expect("there").value;
        assert!((value("one_way_us") - 500.0).abs() < 5.0);
        assert!(
            (value("one_way_p99_us") - 990.0).abs() < 2.0 && (value("one_way_p999_us") - 999.0).abs() < 2.0
        );
    }

    #[test]
    fn ends_that_were_too_late_get_more_time_and_not_for_ever() {
        let of = |events| Ok(RivalStream { events, ..RivalStream::default() });
        let leads = || [1, 4, 16].map(Duration::from_secs);
        let mut tried = Vec::new();
        let came = first_with_events(leads(), |lead| {
            tried.push(lead.as_secs());
            of(u64::from(lead.as_secs() == 4))
        });
        assert_eq!((came.expect("it came").events, tried), (1, vec![1, 4]));
        let nothing = first_with_events(leads(), |_| of(0)).expect_err("nothing came");
        assert!(matches!(nothing, NoResult::Failed(said) if said == "no event came"));
    }
}
