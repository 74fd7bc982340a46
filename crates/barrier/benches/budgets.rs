//! The cost of an episode of this crate's barriers and of two others, in the cases of the performance
//! budgets.
//!
//! ```text
//! cargo bench -p unisono-barrier --bench budgets -- [CASE...] [samples=8] [ms=150]
//! ```
//! Every case runs its variants interleaved, A B C C B A, each sample with a new group of threads. It prints
//! for each variant: the number of samples, their median with the interval of the middle 90 %, the worst
//! sample, the median episode (or batch of episodes, where an episode is shorter than reading the clock), and
//! the worst episode of all. Variants are named `algorithm/wait`; `pthread` and `std` are the C library's and
//! Rust's barriers; `processes` is the recommended barrier between processes; `bare` is the minimum for two
//! threads: a store and polling loads, with no way to sleep, to leave or to fail. (The cost of an exchange
//! between two threads depends on where the hypervisor has put the two processors; only rows of one table can
//! be compared.)

#![cfg(not(loom))]
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use unisono_barrier::{Algorithm, GroupSpec, Wait};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::clock::{Duration, Ticks, now, ticks};

struct Case {
    name: &'static str,
    threads: usize,
    pinned: bool,
    busy: usize,
    /// The names of the variants, separated by spaces.
    variants: &'static str,
}

const CASES: [Case; 7] = [
    Case {
        name: "idle2",
        threads: 2,
        pinned: true,
        busy: 0,
        variants: "recommended bare dissemination/adaptive dissemination/spin dissemination/spin-block \
                   processes per-core/adaptive competitive/adaptive competitive/spin-block \
                   central/spin-block mcs-tree/spin-block std pthread",
    },
    Case {
        name: "idle4",
        threads: 4,
        pinned: true,
        busy: 0,
        variants: "recommended processes per-core/adaptive competitive/adaptive competitive/yield \
                   central/yield central/adaptive competitive/spin-block competitive/block std pthread",
    },
    Case {
        name: "idle8",
        threads: 8,
        pinned: true,
        busy: 0,
        variants: "recommended processes per-core/adaptive competitive/adaptive competitive/yield \
                   central/yield central/adaptive competitive/block std pthread",
    },
    Case {
        name: "load8",
        threads: 8,
        pinned: false,
        busy: 2,
        variants: "recommended per-core/adaptive competitive/adaptive competitive/block central/block \
                   competitive/spin-block std pthread",
    },
    Case {
        name: "load8pinned",
        threads: 8,
        pinned: true,
        busy: 2,
        variants: "recommended per-core/adaptive competitive/adaptive competitive/block central/block \
                   std pthread",
    },
    Case {
        name: "load2",
        threads: 2,
        pinned: true,
        busy: 2,
        variants: "recommended dissemination/adaptive dissemination/spin-block competitive/spin-block \
                   competitive/block std pthread",
    },
    Case {
        name: "free2",
        threads: 2,
        pinned: false,
        busy: 0,
        variants: "recommended dissemination/adaptive dissemination/spin-block per-core/adaptive \
                   competitive/adaptive std pthread",
    },
];

struct Settings {
    samples: usize,
    length: Duration,
    picked: Vec<String>,
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    if arguments.first().is_some_and(|one| one == "member") {
        member(&arguments[1..]);
        return;
    }
    if arguments.first().is_some_and(|one| one == "busy") {
        let cpu = arguments.get(1).and_then(|cpu| cpu.parse().ok()).unwrap_or(0);
        let _ = affinity::restrict_own(&CpuSet::single(cpu));
        let start = now();
        // Ends after two minutes, also if its parent was killed.
        while now() - start < Duration::from_secs(120) {
            std::hint::spin_loop();
        }
        return;
    }
    let value = |name: &str| arguments.iter().find_map(|one| one.strip_prefix(name)?.parse::<usize>().ok());
    let samples = value("samples=").unwrap_or(8);
    let length = Duration::from_millis(value("ms=").unwrap_or(150) as u64);
    if arguments.first().is_some_and(|one| one == "regimes") {
        regimes(value("threads=").unwrap_or(8));
        return;
    }
    let only = value("only=");
    arguments.retain(|one| !one.contains('='));
    let settings = Settings { samples, length, picked: arguments };
    println!(
        "{:<12} {:<26} {:>3} {:>12} {:>25} {:>12} {:>12} {:>12}",
        "case", "variant", "n", "ns/barrier", "[5 %, 95 %]", "worst run", "typical", "worst us"
    );
    for case in &CASES {
        if settings.picked.is_empty() || settings.picked.iter().any(|name| name == case.name) {
            run(case, &settings, only);
        }
    }
}

#[derive(Clone, Copy)]
struct Sample {
    mean: f64,
    typical: f64,
    worst: f64,
}

fn run(case: &Case, settings: &Settings, only: Option<usize>) {
    let _busy = Busy::start(case.busy);
    let variants: Vec<&str> = case.variants.split(' ').take(only.unwrap_or(usize::MAX)).collect();
    let mut taken: Vec<Vec<Sample>> = vec![Vec::new(); variants.len()];
    for round in 0..settings.samples {
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            taken[at].push(sample(case, variants[at], settings.length));
        }
    }
    for (variant, samples) in variants.iter().zip(taken) {
        let sorted = |pick: fn(&Sample) -> f64| {
            let mut all: Vec<f64> = samples.iter().map(pick).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (mean, typical, worst) = (sorted(|s| s.mean), sorted(|s| s.typical), sorted(|s| s.worst));
        let interval = format!("[{:.1}, {:.1}]", at(&mean, 0.05), at(&mean, 0.95));
        println!(
            "{:<12} {variant:<26} {:>3} {:>12.1} {interval:>25} {:>12.1} {:>12.1} {:>12.0}",
            case.name,
            samples.len(),
            at(&mean, 0.5),
            at(&mean, 1.0),
            at(&typical, 0.5),
            at(&worst, 1.0) / 1e3
        );
    }
}

fn at(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position in a short list"
    )]
    let index = ((sorted.len() - 1) as f64 * share).round() as usize;
    sorted[index]
}

type Wait1 = Box<dyn FnMut() + Send>;

/// Returns one wait function per thread.
fn waiters(variant: &str, threads: usize) -> Vec<Wait1> {
    match variant {
        "std" => {
            let barrier = Arc::new(std::sync::Barrier::new(threads));
            let one = || -> Wait1 {
                let barrier = Arc::clone(&barrier);
                Box::new(move || {
                    let _ = barrier.wait();
                })
            };
            (0..threads).map(|_| one()).collect()
        }
        "pthread" => {
            let barrier = Arc::new(pthread::Barrier::new(threads));
            let one = || -> Wait1 {
                let barrier = Arc::clone(&barrier);
                Box::new(move || barrier.wait())
            };
            (0..threads).map(|_| one()).collect()
        }
        "bare" => {
            let words = Arc::new(Pair::default());
            let one = |id: usize| -> Wait1 {
                let (words, mut episode) = (Arc::clone(&words), 0);
                Box::new(move || words.wait(id, &mut episode))
            };
            (0..threads).map(one).collect()
        }
        _ => ours(variant, threads),
    }
}

/// Two words in the same cache line.
#[derive(Default)]
#[repr(align(128))]
struct Pair([AtomicU32; 2]);

impl Pair {
    fn wait(&self, id: usize, episode: &mut u32) {
        *episode += 1;
        self.0[1 - id].store(*episode, Ordering::Release);
        while self.0[id].load(Ordering::Acquire).wrapping_sub(*episode).cast_signed() < 0 {
            std::hint::spin_loop();
        }
    }
}

/// Starts the other members of a barrier between processes, each in its own process; they end when the first
/// member goes away.
fn others(path: &std::path::Path, threads: usize, pinned: bool) -> Vec<Child> {
    let program = std::env::current_exe().expect("a program knows its file");
    let one = |id: usize| {
        let mut command = Command::new(&program);
        command.arg("member").arg(path).args([id.to_string(), pinned.to_string()]).stdin(Stdio::null());
        command.spawn().expect("can start itself")
    };
    (1..threads).map(one).collect()
}

fn member(told: &[String]) {
    let [path, id, pinned] = told else { panic!("a path, a place, whether pinned; not {told:?}") };
    let id: usize = id.parse().expect("a number");
    if pinned == "true" {
        pin(id);
    }
    let group = unisono_barrier::Group::open(path.as_ref()).expect("the first member lives");
    let mut me = group.participant(id).expect("the place is free");
    while me.wait().is_ok() {}
}

fn pin(id: usize) {
    let cpus = affinity::allowed(Tid::current()).map_or(1, |set| set.iter().count());
    affinity::restrict_own(&CpuSet::single(id % cpus)).expect("a CPU to run on");
}

fn ours(variant: &str, threads: usize) -> Vec<Wait1> {
    let spec = GroupSpec::new(threads).expect("a small group");
    let spec = match variant.split_once('/') {
        Some((algorithm, wait)) => spec
            .algorithm(algorithm.parse::<Algorithm>().expect("a name from the table"))
            .wait(wait.parse::<Wait>().expect("a name from the table")),
        None => spec,
    };
    let participants = spec.for_threads().and_then(|group| group.participants()).expect("a fresh group");
    let one = |mut me: unisono_barrier::Participant| -> Wait1 {
        Box::new(move || {
            me.wait().expect("nobody goes away before the end");
        })
    };
    participants.into_iter().map(one).collect()
}

fn sample(case: &Case, variant: &str, length: Duration) -> Sample {
    // Short episodes are timed in batches, so that the time to read the clock is negligible.
    let batch = if case.threads == 2 { 64 } else { 1 };
    if variant == "processes" {
        let group =
            GroupSpec::new(case.threads).and_then(|spec| spec.for_processes()).expect("a small group");
        let path = group.path().expect("a group in shared memory has a path");
        let mut me = group.participant(0).expect("a fresh group");
        let mut others = others(&path, case.threads, case.pinned);
        let measured = thread::scope(|scope| {
            let first = scope.spawn(|| {
                if case.pinned {
                    pin(0);
                }
                let mut wait: Wait1 = Box::new(move || {
                    me.wait().expect("nobody goes away before the end");
                });
                measure(0, &mut wait, batch, length, &AtomicU32::new(u32::MAX))
            });
            first.join().expect("no panic")
        });
        for other in &mut others {
            let _ = other.wait();
        }
        return measured;
    }
    let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let stop_at = Arc::new(AtomicU32::new(u32::MAX));
    let running: Vec<_> = waiters(variant, case.threads)
        .into_iter()
        .enumerate()
        .map(|(id, mut wait)| {
            let (stop_at, pinned) = (Arc::clone(&stop_at), case.pinned);
            thread::spawn(move || {
                if pinned {
                    affinity::restrict_own(&CpuSet::single(id % cpus)).expect("a CPU to run on");
                }
                measure(id, &mut wait, batch, length, &stop_at)
            })
        })
        .collect();
    let mut results: Vec<_> = running.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    results.swap_remove(0)
}

/// Waits over and over; the first thread measures and decides when to stop.
fn measure(id: usize, wait: &mut Wait1, batch: u32, length: Duration, stop_at: &AtomicU32) -> Sample {
    let mut times: Vec<Ticks> = Vec::with_capacity(1 << 16);
    let warm_up = length / 10;
    let mut measured_from = None;
    let start = now();
    let mut round = 0_u32;
    let mut last = ticks();
    while round < stop_at.load(Ordering::Relaxed) {
        for _ in 0..batch {
            wait();
        }
        round += 1;
        if id == 0 {
            let time = ticks();
            if times.len() < times.capacity() || time.since(last) > Ticks(1 << 20) {
                times.push(time.since(last));
            }
            last = time;
            if round.is_multiple_of(16) || batch == 1 {
                let elapsed = now() - start;
                if measured_from.is_none() && elapsed > warm_up {
                    measured_from = Some((now(), round));
                    times.clear();
                } else if elapsed > length + warm_up && stop_at.load(Ordering::Relaxed) == u32::MAX {
                    // Every thread passes one more barrier after this store, so all threads see it before
                    // round + 2 and stop in the same round.
                    stop_at.store(round + 2, Ordering::Relaxed);
                }
            }
        }
    }
    if id != 0 {
        return Sample { mean: 0.0, typical: 0.0, worst: 0.0 };
    }
    let (from, first) = measured_from.unwrap_or((start, 0));
    let each = f64::from(batch);
    times.sort_unstable();
    let nanos = |ticks: Option<&Ticks>| precise(ticks.copied().unwrap_or_default().to_duration());
    Sample {
        mean: precise(now() - from) / (f64::from(round - first) * each),
        typical: nanos(times.get(times.len() / 2)) / each,
        worst: nanos(times.last()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "durations of seconds in nanoseconds")]
fn precise(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Prints the mean time of an episode for every 250 ms, for one variant after the other, while busy loops
/// come and go.
fn regimes(threads: usize) {
    for variant in ["recommended", "competitive/yield", "competitive/block", "recommended"] {
        println!("{variant}, {threads} threads: ns/barrier by 250 ms; busy loops run from 2 s to 5 s");
        let stop_at = Arc::new(AtomicU32::new(u32::MAX));
        let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        thread::scope(|scope| {
            for (id, mut wait) in waiters(variant, threads).into_iter().enumerate() {
                let stop_at = Arc::clone(&stop_at);
                scope.spawn(move || {
                    affinity::restrict_own(&CpuSet::single(id % cpus)).expect("a CPU to run on");
                    let (mut round, mut window, start) = (0_u32, (now(), 0_u32), now());
                    while round < stop_at.load(Ordering::Relaxed) {
                        wait();
                        round += 1;
                        if id != 0 || (threads == 2 && !round.is_multiple_of(64)) {
                            continue;
                        }
                        let time = now();
                        let elapsed = precise(time - window.0);
                        if elapsed > 250e6 {
                            print!(" {:.0}", elapsed / f64::from(round - window.1));
                            window = (time, round);
                        }
                        if time - start > Duration::from_secs(8)
                            && stop_at.load(Ordering::Relaxed) == u32::MAX
                        {
                            stop_at.store(round + 2, Ordering::Relaxed);
                        }
                    }
                });
            }
            thread::sleep(Duration::from_secs(2).into());
            let busy = Busy::start(2);
            thread::sleep(Duration::from_secs(3).into());
            drop(busy);
        });
        println!();
    }
}

/// Foreign load: a process with a busy loop on each of the first CPUs.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Self {
        let program = std::env::current_exe().expect("a program knows its file");
        let one = |cpu: usize| {
            let mut command = Command::new(&program);
            command.args(["busy", &cpu.to_string()]).stdin(Stdio::null()).spawn().expect("can start itself")
        };
        let busy = Self((0..count).map(one).collect());
        if count > 0 {
            thread::sleep(Duration::from_millis(50).into());
        }
        busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

mod pthread {
    //! The C library's barrier.
    use std::cell::UnsafeCell;

    pub(crate) struct Barrier(Box<UnsafeCell<libc::pthread_barrier_t>>);

    // SAFETY: a pthread barrier is made to be used by many threads; it stays in its box.
    unsafe impl Send for Barrier {}
    // SAFETY: a pthread barrier is made to be used by many threads; it stays in its box.
    unsafe impl Sync for Barrier {}

    impl Barrier {
        pub(crate) fn new(threads: usize) -> Self {
            // SAFETY: an all-zero pthread_barrier_t is plain bytes, initialized below.
            let barrier = Box::new(UnsafeCell::new(unsafe { std::mem::zeroed() }));
            let count = u32::try_from(threads).expect("a small group");
            // SAFETY: the barrier's memory is ours and stays in place.
            let made = unsafe { libc::pthread_barrier_init(barrier.get(), std::ptr::null(), count) };
            assert_eq!(made, 0);
            Self(barrier)
        }

        pub(crate) fn wait(&self) {
            // SAFETY: the barrier was initialized in `new` and is alive while borrowed.
            unsafe { libc::pthread_barrier_wait(self.0.get()) };
        }
    }
}
