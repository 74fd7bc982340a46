//! The heat equation on a square plate, divided by rows: in each step a rank puts its first and last row into
//! its neighbors' ghost rows.
//!
//! ```text
//!   rank 0  | row row row  last |                      window of a rank, twice (even and odd steps):
//!                        |  ^  put                       [ ghost row from above | ghost row from below ]
//!                   put  v  |
//!   rank 1           | first row row  last |
//! ```
//! Ghost rows exist twice, for even and odd steps: a neighbor that is a step ahead writes the ghost rows of
//! the next step while this rank still reads the ghost rows of the current step. So one synchronization per
//! step is enough.
#![forbid(unsafe_code)]

use anyhow::{bail, ensure};
use clap::{Parser, ValueEnum};
use std::time::Instant;
use unisono_examples::{combined, join, part};
use unisono_rma::{Assert, Job, Operation, Rank, Spec, Window};

/// Solve the heat equation with ghost-row exchange, and compare with the sequential solution
///
/// The plate's upper edge is kept at 100 degrees, the others at 0. Each rank has some rows.
#[derive(Parser)]
#[command(after_help = "Example: unisono run -n 4 heat --size 256 --steps 500")]
struct Args {
    /// Points along each side of the plate
    #[arg(long, default_value_t = 256)]
    size: usize,
    #[arg(long, default_value_t = 500)]
    steps: usize,
    /// How neighbours synchronize
    #[arg(long, value_enum, default_value_t = Synchronization::Fence)]
    synchronization: Synchronization,
    /// Do not compute the sequential solution
    #[arg(long)]
    no_check: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Synchronization {
    /// All ranks together
    Fence,
    /// Neighbours with each other: post, start, complete, wait
    Pscw,
}

impl Synchronization {
    fn name(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Pscw => "pscw",
        }
    }
}

const HOT: f64 = 100.0;

/// Computes one step of some rows: each point moves towards the mean of its neighbors.
fn step(above: &[f64], rows: &[f64], below: &[f64], next: &mut [f64]) {
    let size = above.len();
    let count = rows.len() / size;
    for row in 0..count {
        let here = &rows[row * size..][..size];
        let up = if row == 0 { above } else { &rows[(row - 1) * size..][..size] };
        let down = if row + 1 == count { below } else { &rows[(row + 1) * size..][..size] };
        for x in 0..size {
            let left = if x == 0 { 0.0 } else { here[x - 1] };
            let right = if x + 1 == size { 0.0 } else { here[x + 1] };
            next[row * size + x] = 0.25 * (up[x] + down[x] + left + right);
        }
    }
}

/// This rank's share of the plate, and the state for the exchange.
struct Plate {
    window: Window,
    size: usize,
    rows: Vec<f64>,
    up: Option<Rank>,
    down: Option<Rank>,
    neighbours: Vec<Rank>,
    synchronization: Synchronization,
}

impl Plate {
    fn new(job: &mut Job, args: &Args) -> anyhow::Result<Self> {
        let (rank, ranks, size) = (job.rank().index(), job.size(), args.size);
        ensure!(
            size >= ranks,
            "a plate of {size} rows has none for some of {ranks} ranks; give --size {ranks}"
        );
        // two ghost rows for even steps, two for odd ones
        let window = job.allocate(4 * size as u64 * 8, Spec::new().unit(8))?;
        let up = (rank > 0).then(|| Rank::at(rank - 1));
        let down = (rank + 1 < ranks).then(|| Rank::at(rank + 1));
        Ok(Self {
            window,
            size,
            rows: vec![0.0; part(size, rank, ranks).len() * size],
            up,
            down,
            neighbours: up.into_iter().chain(down).collect(),
            synchronization: args.synchronization,
        })
    }

    /// Returns the offset of a ghost row of step `step` in elements: from above, or from below.
    fn ghost(&self, step: usize, from_below: bool) -> usize {
        (step % 2 * 2 + usize::from(from_below)) * self.size
    }

    fn put_edges(&mut self, step: usize) -> Result<(), unisono_rma::Error> {
        let last = self.rows.len() - self.size;
        if let Some(up) = self.up {
            let place = self.ghost(step, true) as i64;
            self.window.put(&self.rows[..self.size], up, place)?;
        }
        if let Some(down) = self.down {
            let place = self.ghost(step, false) as i64;
            self.window.put(&self.rows[last..], down, place)?;
        }
        Ok(())
    }

    fn exchange(&mut self, step: usize) -> Result<(), unisono_rma::Error> {
        match self.synchronization {
            Synchronization::Fence => {
                self.put_edges(step)?;
                self.window.fence(Assert::NO_STORE)
            }
            Synchronization::Pscw => {
                self.window.post(&self.neighbours, Assert::NO_STORE)?;
                self.window.start(&self.neighbours, Assert::NONE)?;
                self.put_edges(step)?;
                self.window.complete()?;
                self.window.wait()
            }
        }
    }

    fn run(&mut self, steps: usize) -> Result<(), unisono_rma::Error> {
        let (mut above, mut below) = (vec![HOT; self.size], vec![0.0; self.size]);
        let mut next = self.rows.clone();
        if matches!(self.synchronization, Synchronization::Fence) {
            self.window.fence(Assert::NO_PRECEDE)?;
        }
        for now in 0..steps {
            self.exchange(now)?;
            if self.up.is_some() {
                self.window.load(8 * self.ghost(now, false), &mut above)?;
            }
            if self.down.is_some() {
                self.window.load(8 * self.ghost(now, true), &mut below)?;
            }
            step(&above, &self.rows, &below, &mut next);
            std::mem::swap(&mut self.rows, &mut next);
        }
        if matches!(self.synchronization, Synchronization::Fence) {
            self.window.fence(Assert::NO_SUCCEED)?;
        }
        Ok(())
    }
}

fn sequential(size: usize, steps: usize) -> Vec<f64> {
    let (above, below) = (vec![HOT; size], vec![0.0; size]);
    let mut plate = vec![0.0; size * size];
    let mut next = plate.clone();
    for _ in 0..steps {
        step(&above, &plate, &below, &mut next);
        std::mem::swap(&mut plate, &mut next);
    }
    plate
}

#[allow(clippy::print_stdout, reason = "a program speaks")]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut job = join()?;
    let mut plate = Plate::new(&mut job, &args)?;
    job.barrier()?;
    let start = Instant::now();
    plate.run(args.steps)?;
    let seconds = start.elapsed().as_secs_f64();
    let own = part(args.size, job.rank().index(), job.size());
    let mut verdict = String::new();
    if !args.no_check {
        let right = sequential(args.size, args.steps);
        let right = &right[own.start * args.size..own.end * args.size];
        let difference = plate.rows.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let difference = combined(&mut job, difference, Operation::Max)?;
        // the same additions in the same order: the results must be equal bit for bit
        if difference != 0.0 {
            bail!("the plate differs from the sequential solution by up to {difference}");
        }
        verdict = "; equal to the sequential solution".to_owned();
    }
    if job.rank() == Rank(0) {
        let (size, steps, ranks) = (args.size, args.steps, job.size());
        let each = seconds * 1e6 / steps.max(1) as f64;
        let synchronization = args.synchronization.name();
        println!(
            "heat: {size} x {size} points, {steps} steps, {ranks} ranks, {synchronization}: {seconds:.3} s, {each:.1} us a step{verdict}"
        );
    }
    plate.window.free()?;
    job.finalize()?;
    Ok(())
}
