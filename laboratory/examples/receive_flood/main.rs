//! The packets and the work that a class keeps while another class is flooded with small packets: lazy
//! receiver processing, tried.
//!
//! ```sh
//! cargo build --release -p unisono-laboratory --example receive_flood
//! sudo target/release/examples/receive_flood --rounds 7 --seconds 2
//! ```
//! ```text
//!   processor 1: a flood of 60-byte frames (class rest), 2,000 packets/s (class video), 100 pings/s (video)
//!                           |  a cable between two network namespaces
//!   processor 0: receiving  +--> rest's program reads all it gets; video's reads, and computes 1.4 ms of
//!                                every 2 ms
//! ```
//! The policy gives video three quarters and rest one quarter; the programs have nice values in this
//! proportion. Three ways to receive, each with and without the flood, in turns:
//!
//! - `stock`: receive packet steering puts all packets on processor 0, whose soft interrupt receives them.
//! - `threaded`: a kernel thread of the device receives them (threaded NAPI), with the nice value of rest
//!   divided between the thread and rest's program.
//! - `classes`: an XDP program classifies each frame by the policy and passes it to a kernel thread of its
//!   class (a cpumap), with the nice value of the class divided likewise. Frames that the thread has no time
//!   for are dropped before the stack sees them.
//!
//! `--nice -15` adds -15 to the nice values of all programs and threads, for a host with other work.
//!
//! It needs root, two processors and Linux 6.11. Everything that it makes ends with it.
#![allow(clippy::print_stdout, reason = "the table is its answer")]

mod programs;
mod receiving;

use anyhow::{Context as _, bail};
use programs::{Outcome, WorkUnit};
use receiving::{ReceivingWay, Stage};
use unisono_linux::process::is_root;
use unisono_linux::scheduling::SchedulingPolicy;
use unisono_measure::quantile::median;

/// The receiving and the sending processor.
const RECEIVER: usize = 0;
const SENDER: usize = 1;

#[derive(Clone, Copy)]
struct Options {
    rounds: usize,
    seconds: f64,
    nice: NiceValues,
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options { rounds: 7, seconds: 2.0, nice: NiceValues::new(0)? };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().with_context(|| format!("{name} needs a value"))?;
        let bad = || format!("{name} {value}: write a number");
        match name.as_str() {
            "--rounds" => options.rounds = value.parse().with_context(bad)?,
            "--seconds" => options.seconds = value.parse().with_context(bad)?,
            "--nice" => options.nice = NiceValues::new(value.parse().with_context(bad)?)?,
            _ => bail!("unknown option {name}; there are --rounds N, --seconds S and --nice N"),
        }
    }
    if options.rounds == 0 || !options.seconds.is_finite() || options.seconds < 0.5 {
        bail!("take at least one round of 0.5 s");
    }
    Ok(options)
}

/// The nice values of programs and threads, in proportion to the weights of their classes.
#[derive(Clone, Copy)]
struct NiceValues {
    video: SchedulingPolicy,
    rest: SchedulingPolicy,
    /// For each of the two threads of rest, its program's thread and the receiving thread: together a
    /// quarter.
    half_of_rest: SchedulingPolicy,
}

impl NiceValues {
    /// A quarter beside three quarters: each step of nice is a factor of 1.25.
    const REST_ABOVE_VIDEO: i32 = 5;
    /// An eighth.
    const HALF_ABOVE_VIDEO: i32 = 8;

    fn new(video: i32) -> anyhow::Result<Self> {
        if !(-20..=19 - Self::HALF_ABOVE_VIDEO).contains(&video) {
            bail!("--nice {video}: choose from -20 to {}", 19 - Self::HALF_ABOVE_VIDEO);
        }
        let of = |nice| SchedulingPolicy::Other { nice, slice: None };
        Ok(Self {
            video: of(video),
            rest: of(video + Self::REST_ABOVE_VIDEO),
            half_of_rest: of(video + Self::HALF_ABOVE_VIDEO),
        })
    }
}

/// Each run has a thread of its own, because a network namespace belongs to a thread.
fn run(way: ReceivingWay, flood: bool, unit: WorkUnit, options: Options) -> anyhow::Result<Outcome> {
    let run = std::thread::spawn(move || {
        let stage = Stage::set(way, options.nice)?;
        programs::run(&stage, flood, unit, options)
    });
    run.join().map_err(|_| anyhow::anyhow!("a run has panicked"))?
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
    if !is_root() {
        bail!("it makes network namespaces and loads programs into the kernel; run it with sudo");
    }
    let unit = WorkUnit::calibrated()?;
    let cells: Vec<(ReceivingWay, bool)> =
        ReceivingWay::ALL.into_iter().flat_map(|way| [(way, false), (way, true)]).collect();
    let mut outcomes: Vec<Vec<Outcome>> = cells.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds {
        for step in 0..cells.len() {
            // A B B A: the cells of every second round run in the opposite order
            let at = if round % 2 == 0 { step } else { cells.len() - 1 - step };
            let (way, flood) = cells[at];
            outcomes[at].push(run(way, flood, unit, options)?);
        }
    }
    println!(
        "{:<9} {:<5} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>10}",
        "receives",
        "flood",
        "computes",
        "packets",
        "ping",
        "p99",
        "lost",
        "sent/s",
        "rest/s",
        "video rx",
        "rest rx"
    );
    for ((way, flood), outcomes) in cells.iter().zip(&outcomes) {
        let of = |value: fn(&Outcome) -> f64| {
            median(&outcomes.iter().map(value).collect::<Vec<_>>()).expect("there is a round")
        };
        let receiving = |value: fn(&Outcome) -> Option<f64>| {
            let known = median(&outcomes.iter().filter_map(value).collect::<Vec<_>>());
            known.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
        };
        println!(
            "{:<9} {:<5} {:>8.1} % {:>7.1} % {:>6.0} us {:>6.0} us {:>7.1} % {:>9.0} {:>10.0} {:>10} {:>10}",
            way.name(),
            if *flood { "yes" } else { "no" },
            of(|outcome| outcome.computed * 100.0),
            of(|outcome| outcome.received * 100.0),
            of(|outcome| outcome.ping_median_us),
            of(|outcome| outcome.ping_p99_us),
            of(|outcome| outcome.pings_lost * 100.0),
            of(|outcome| outcome.flood_sent_per_s),
            of(|outcome| outcome.flood_received_per_s),
            receiving(|outcome| outcome.video_receiving),
            receiving(|outcome| outcome.rest_receiving),
        );
    }
    Ok(())
}
