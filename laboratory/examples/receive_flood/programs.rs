//! The programs at both ends of the cable, and what one run gives.

use crate::receiving::{FAR, NEAR, REST_PORT, Stage, VIDEO_PORT};
use crate::{Options, RECEIVER, SENDER};
use anyhow::Context as _;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketType, ipproto};
use std::hint::black_box;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration as StdDuration;
use unisono_linux::affinity::{self, CpuSet};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::poll;
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};
use unisono_linux::socket::set_segment_bytes;
use unisono_linux::timer;
use unisono_measure::quantile::quantile;

const VIDEO_INTERVAL: Duration = Duration::from_micros(500);
const PING_INTERVAL: Duration = Duration::from_millis(10);
const PING_TIMEOUT: StdDuration = StdDuration::from_millis(200);
/// Seven tenths of the processor, where video's share is three quarters.
const WORK: StdDuration = StdDuration::from_micros(1400);
const WORK_INTERVAL: Duration = Duration::from_millis(2);
/// Work that is later than this is left out, as a player leaves out frames.
const MAX_LATE: Duration = Duration::from_millis(50);
/// The interval at which a receiver without packets checks whether the run is over.
const POLL_INTERVAL: StdDuration = StdDuration::from_millis(20);
/// A frame of 60 bytes, 64 with its check sequence: the shortest of Ethernet.
const FLOOD_BYTES: usize = 60 - 14 - 20 - 8;
/// The flood's packets that the kernel makes of one message, so that system calls do not limit the flood.
const FLOOD_BATCH: usize = 64;
const VIDEO_BYTES: usize = 200;

/// The results of one run; shares are between 0 and 1.
pub(crate) struct Outcome {
    /// Video's work that was done, of the work that was due.
    pub(crate) computed: f64,
    /// Video's packets that its program read, of those sent.
    pub(crate) received: f64,
    pub(crate) ping_median_us: f64,
    pub(crate) ping_p99_us: f64,
    pub(crate) pings_lost: f64,
    pub(crate) flood_sent_per_s: f64,
    pub(crate) flood_received_per_s: f64,
    /// The share of the processor that receiving took for each class, if it is known.
    pub(crate) video_receiving: Option<f64>,
    pub(crate) rest_receiving: Option<f64>,
}

/// Iterations that take [`WORK`] on an idle processor. A thread's own clock would not do: time that a soft
/// interrupt takes counts as the time of the thread that it interrupts.
#[derive(Clone, Copy)]
pub(crate) struct WorkUnit(u64);

impl WorkUnit {
    pub(crate) fn calibrated() -> anyhow::Result<Self> {
        const TRIAL: u64 = 100_000;
        let trials = thread::spawn(|| -> anyhow::Result<StdDuration> {
            run_on(RECEIVER, SchedulingPolicy::DEFAULT)?;
            let trial = || {
                let start = std::time::Instant::now();
                Self(TRIAL).work();
                start.elapsed()
            };
            (0..200).map(|_| trial()).min().context("there are trials")
        });
        let shortest = trials.join().map_err(|_| anyhow::anyhow!("the calibration has panicked"))??;
        Ok(Self((TRIAL as f64 * WORK.as_secs_f64() / shortest.as_secs_f64()) as u64))
    }

    fn work(self) {
        let mut value = 1_u64;
        for step in 0..self.0 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step));
        }
    }
}

fn run_on(processor: usize, policy: SchedulingPolicy) -> anyhow::Result<()> {
    affinity::restrict_own(&CpuSet::single(processor))
        .with_context(|| format!("no processor {processor}"))?;
    Ok(scheduling::set_own(policy, Children::Inherit)?)
}

/// A run's end, and its counters.
#[derive(Default)]
struct Progress {
    is_over: AtomicBool,
    video_sent: AtomicU64,
    video_received: AtomicU64,
    flood_sent: AtomicU64,
    flood_received: AtomicU64,
    work_due: AtomicU64,
    work_done: AtomicU64,
}

impl Progress {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Calls `act` at every interval until the run is over.
    fn every(&self, interval: Duration, mut act: impl FnMut(Instant)) {
        let mut due = clock::now();
        while self.goes_on() {
            act(due);
            due += interval;
            timer::sleep_until(due);
        }
    }

    /// Reads and counts packets until the run is over.
    fn read(&self, socket: &UdpSocket, count: &AtomicU64) -> anyhow::Result<()> {
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        let mut packet = [0; 2048];
        while self.goes_on() {
            match socket.recv(&mut packet) {
                Ok(_) => _ = count.fetch_add(1, Ordering::Relaxed),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Runs all programs for some seconds; the calling thread is in the senders' namespace.
pub(crate) fn run(stage: &Stage, flood: bool, unit: WorkUnit, options: Options) -> anyhow::Result<Outcome> {
    let bound = |port| stage.at_the_receiver(|| Ok(UdpSocket::bind((FAR, port))?));
    let (video_in, rest_in) = (bound(VIDEO_PORT)?, bound(REST_PORT)?);
    let connected = |port| -> anyhow::Result<UdpSocket> {
        let socket = UdpSocket::bind((NEAR, 0))?;
        socket.connect((FAR, port))?;
        Ok(socket)
    };
    let (video_out, flood_out) = (connected(VIDEO_PORT)?, connected(REST_PORT)?);
    set_segment_bytes(&flood_out, FLOOD_BYTES as u16)?;
    let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP))?;
    rustix::net::connect(&raw, &SocketAddrV4::new(FAR, 0))?;
    // the neighbor's address is resolved before the run
    ping(&raw, 0)?;

    let urgent = |level| SchedulingPolicy::Fifo(Urgency::new(level));
    let progress = Progress::default();
    let progress = &progress;
    let receiving_before = stage.receiving_ns()?;
    let begin = std::time::Instant::now();
    let pings = thread::scope(|scope| {
        let mut programs = vec![
            start(scope, RECEIVER, options.nice.video, || progress.read(&video_in, &progress.video_received)),
            start(scope, RECEIVER, options.nice.video, || compute(progress, unit)),
            start(scope, RECEIVER, stage.rest_program, || progress.read(&rest_in, &progress.flood_received)),
            start(scope, SENDER, urgent(20), || {
                progress
                    .every(VIDEO_INTERVAL, |_| send(&video_out, &[0; VIDEO_BYTES], 1, &progress.video_sent));
                Ok(())
            }),
        ];
        if flood {
            programs.push(start(scope, SENDER, options.nice.video, || {
                while progress.goes_on() {
                    send(
                        &flood_out,
                        &[0; FLOOD_BYTES * FLOOD_BATCH],
                        FLOOD_BATCH as u64,
                        &progress.flood_sent,
                    );
                }
                Ok(())
            }));
        }
        let pinging = start(scope, SENDER, urgent(30), || {
            let (mut pings, mut number) = (Vec::new(), 0_u16);
            while progress.goes_on() {
                let due = clock::now() + PING_INTERVAL;
                number = number.wrapping_add(1);
                pings.push(ping(&raw, number)?);
                timer::sleep_until(due);
            }
            Ok(pings)
        });
        thread::sleep(StdDuration::from_secs_f64(options.seconds));
        progress.is_over.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a program has panicked");
        for program in programs {
            program.join().map_err(panicked)??;
        }
        pinging.join().map_err(panicked)?
    })?;
    let took = begin.elapsed().as_secs_f64();
    let receiving = match (receiving_before, stage.receiving_ns()?) {
        (Some(before), Some(now)) => {
            let share = |class: usize| (now[class] - before[class]) as f64 / 1e9 / took;
            [Some(share(0)), Some(share(1))]
        }
        _ => [None, None],
    };
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let answered: Vec<f64> = pings.iter().flatten().map(|ping| ping.as_secs_f64() * 1e6).collect();
    let of_pings = |part| quantile(&answered, part).unwrap_or(f64::INFINITY);
    Ok(Outcome {
        computed: count(&progress.work_done) / count(&progress.work_due),
        received: count(&progress.video_received) / count(&progress.video_sent),
        ping_median_us: of_pings(0.5),
        ping_p99_us: of_pings(0.99),
        pings_lost: 1.0 - answered.len() as f64 / pings.len() as f64,
        flood_sent_per_s: count(&progress.flood_sent) / took,
        flood_received_per_s: count(&progress.flood_received) / took,
        video_receiving: receiving[0],
        rest_receiving: receiving[1],
    })
}

/// Starts a program on a processor.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    processor: usize,
    policy: SchedulingPolicy,
    body: impl FnOnce() -> anyhow::Result<T> + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, anyhow::Result<T>> {
    scope.spawn(move || {
        run_on(processor, policy)?;
        body()
    })
}

/// Sends a message, and counts its packets if the kernel takes them.
fn send(socket: &UdpSocket, message: &[u8], packets: u64, sent: &AtomicU64) {
    if socket.send(message).is_ok() {
        sent.fetch_add(packets, Ordering::Relaxed);
    }
}

/// Does a unit of work at every interval.
fn compute(progress: &Progress, unit: WorkUnit) -> anyhow::Result<()> {
    progress.every(WORK_INTERVAL, |due| {
        progress.work_due.fetch_add(1, Ordering::Relaxed);
        if clock::now() - due < MAX_LATE {
            unit.work();
            progress.work_done.fetch_add(1, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Sends an echo request, and returns the time until the kernel's reply. `None`: none came.
fn ping(socket: &OwnedFd, number: u16) -> anyhow::Result<Option<StdDuration>> {
    const ECHO_REQUEST: u8 = 8;
    let [high, low] = number.to_be_bytes();
    // type, code, checksum, identifier, number; the checksum is the complement of the sum of the words
    let sum = u16::from_be_bytes([ECHO_REQUEST, 0]).wrapping_add(number);
    let carried = sum + u16::from(sum < number);
    let [sum_high, sum_low] = (!carried).to_be_bytes();
    let start = std::time::Instant::now();
    rustix::net::send(socket, &[ECHO_REQUEST, 0, sum_high, sum_low, 0, 0, high, low], SendFlags::empty())?;
    loop {
        let left = PING_TIMEOUT.saturating_sub(start.elapsed());
        if !poll::readable([socket.as_fd()], Some(left))?[0] {
            return Ok(None);
        }
        let mut reply = [0; 128];
        let (length, _) = rustix::net::recv(socket, &mut reply[..], RecvFlags::empty())?;
        // behind IP's header of 20 bytes: an echo reply has type 0
        if length >= 28 && reply[20] == 0 && reply[26..28] == [high, low] {
            return Ok(Some(start.elapsed()));
        }
    }
}
