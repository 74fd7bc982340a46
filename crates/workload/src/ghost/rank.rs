//! One rank's part of the exchange.

use super::grid::{Grid, NEIGHBOURS, OPPOSITE};
use super::{Exchange, GhostMeasurement};
use crate::Error;
use crate::options::pin_participant;
use std::fs::File;
use std::io::Write;
use std::time::Instant;
use unisono_rma::{Assert, Job, Lock, Operation, Rank, Spec, Window};

/// The minimum length, in bytes, of the buffer for one side: the length of the longest single operation
/// ([`LENGTHS`]).
const MIN_WINDOW_BYTES: usize = 1 << 20;

/// The maximum number of steps of a batch, whatever the time.
const MAX_STEPS: u64 = 1 << 24;
/// The factor by which the number of steps grows at most from one batch to the next, because the first steps
/// may have been slow for other reasons, or too fast for the clock.
const MAX_GROWTH: f64 = 64.0;

/// Lengths of single operations.
const LENGTHS: [usize; 4] = [8, 1024, 65_536, 1 << 20];

/// The data sent to one side. It is never freed, so the engine need not copy it before sending.
type BorrowedData = &'static [u8];

struct GhostSide<'a> {
    job: Job,
    exchange: &'a Exchange,
    grid: Grid,
    sent: [BorrowedData; NEIGHBOURS],
    numbers: &'static [f64],
    out: Box<dyn Write>,
}

fn exchange_error(error: unisono_rma::Error) -> Error {
    Error::Exchange(error.to_string())
}

type ExchangeStep<'s> = &'s mut dyn FnMut(Option<&mut Window>, &mut Job) -> Result<(), unisono_rma::Error>;

/// Takes part as a rank of the job. Rank 0 writes the results.
pub fn run(job: Job, exchange: &Exchange) -> Result<(), Error> {
    exchange.check()?;
    let rank = job.rank().index();
    pin_participant(&exchange.pin.placement()?, rank)?;
    let longest = exchange.sizes.iter().copied().max().unwrap_or(1).max(MIN_WINDOW_BYTES);
    let sent = [0, 1, 2, 3].map(|side| &*vec![pattern(rank, side); longest].leak());
    let out: Box<dyn Write> = match &exchange.result {
        Some(path) if rank == 0 => {
            Box::new(File::create(path).map_err(|source| Error::Result { path: path.clone(), source })?)
        }
        Some(_) => Box::new(std::io::sink()),
        None => Box::new(std::io::stdout()),
    };
    let numbers = vec![1.0; MIN_WINDOW_BYTES / 8].leak();
    let grid = Grid::from_rank(rank, job.size());
    let mut member = GhostSide { job, exchange, grid, sent, numbers, out };
    if exchange.is_selected("barrier") {
        member.measure("barrier", "none", 0, None, &mut |_, job| job.barrier())?;
    }
    let bytes = (NEIGHBOURS * longest) as u64;
    let spec = Spec::new().style(exchange.style);
    for memory in &exchange.windows {
        let made = match memory.as_str() {
            "allocated" => member.job.allocate(bytes, spec),
            "created" => member.job.create_static(vec![0; bytes as usize].leak(), spec),
            other => {
                return Err(Error::Options(format!("{other:?} is no window; write allocated or created")));
            }
        };
        let mut window = made.map_err(exchange_error)?;
        member.windows(memory, &mut window)?;
        window.free().map_err(exchange_error)?;
    }
    member.job.finalize().map_err(exchange_error)
}

/// Returns the byte that `rank` sends to `side`.
fn pattern(rank: usize, side: usize) -> u8 {
    (16 * rank + side) as u8
}

/// Puts data to all neighbors, each time into the neighbor's ghost area on the opposite side.
#[inline]
fn put_all(
    window: &mut Window,
    grid: &Grid,
    sent: &[BorrowedData; NEIGHBOURS],
    bytes: usize,
) -> Result<(), unisono_rma::Error> {
    for side in 0..NEIGHBOURS {
        let place = (OPPOSITE[side] * bytes) as i64;
        window.put_static(&sent[side][..bytes], grid.neighbour[side], place)?;
    }
    Ok(())
}

impl GhostSide<'_> {
    /// Measures all methods that need a window.
    fn windows(&mut self, memory: &str, window: &mut Window) -> Result<(), Error> {
        let (grid, sent) = (self.grid.clone(), self.sent);
        for &bytes in &self.exchange.sizes {
            self.exchange_with("fence", memory, bytes, window, &mut |window, _| {
                let Some(window) = window else { return Ok(()) };
                window.fence(Assert::NO_PRECEDE)?;
                put_all(window, &grid, &sent, bytes)?;
                window.fence(Assert::NO_STORE | Assert::NO_PUT | Assert::NO_SUCCEED)
            })?;
        }
        for &bytes in &self.exchange.sizes {
            self.exchange_with("pscw", memory, bytes, window, &mut |window, _| {
                let Some(window) = window else { return Ok(()) };
                window.post(&grid.distinct, Assert::NONE)?;
                window.start(&grid.distinct, Assert::NONE)?;
                put_all(window, &grid, &sent, bytes)?;
                window.complete()?;
                window.wait()
            })?;
        }
        for &bytes in &self.exchange.sizes {
            self.exchange_with("lock", memory, bytes, window, &mut |window, _| {
                let Some(window) = window else { return Ok(()) };
                for side in 0..NEIGHBOURS {
                    let (target, place) = (grid.neighbour[side], (OPPOSITE[side] * bytes) as i64);
                    window.lock(target, Lock::Shared, Assert::NONE)?;
                    window.put_static(&sent[side][..bytes], target, place)?;
                    window.unlock(target)?;
                }
                Ok(())
            })?;
        }
        self.operations(memory, window)
    }

    /// Measures single operations with their completion: rank 0 to its right neighbor.
    fn operations(&mut self, memory: &str, window: &mut Window) -> Result<(), Error> {
        const NAMES: [&str; 4] = ["put_flush", "get_flush", "accumulate_flush", "fetch_flush"];
        if !NAMES.iter().any(|name| self.exchange.is_selected(name)) {
            return Ok(());
        }
        let (target, is_origin) = (self.grid.neighbour[1], self.job.rank() == Rank(0));
        let (data, numbers) = (self.sent[0], self.numbers);
        let mut into = vec![0_u8; MIN_WINDOW_BYTES];
        window.lock_all(Assert::NONE).map_err(exchange_error)?;
        for name in NAMES.into_iter().filter(|name| self.exchange.is_selected(name)) {
            let lengths = if name == "fetch_flush" { &LENGTHS[..1] } else { &LENGTHS[..] };
            for &bytes in lengths {
                self.measure(name, memory, bytes, Some(window), &mut |window, _| {
                    let Some(window) = window.filter(|_| is_origin) else { return Ok(()) };
                    match name {
                        "put_flush" => {
                            window.put_static(&data[..bytes], target, 0)?;
                            window.flush(target)
                        }
                        "get_flush" => window.get_now(&mut into[..bytes], target, 0),
                        "accumulate_flush" => {
                            window.accumulate_static(&numbers[..bytes / 8], target, 0, Operation::Sum)?;
                            window.flush(target)
                        }
                        _ => window.fetch_and_op(1_i64, target, 0, Operation::Sum).map(|_| ()),
                    }
                })?;
            }
        }
        window.unlock_all().map_err(exchange_error)
    }

    /// Checks that the neighbors' data arrives in the right places, then measures.
    fn exchange_with(
        &mut self,
        method: &str,
        memory: &str,
        bytes: usize,
        window: &mut Window,
        step: ExchangeStep,
    ) -> Result<(), Error> {
        if !self.exchange.is_selected(method) {
            return Ok(());
        }
        window.store(0, &vec![255_u8; NEIGHBOURS * bytes]).map_err(exchange_error)?;
        self.job.barrier().map_err(exchange_error)?;
        step(Some(&mut *window), &mut self.job).map_err(exchange_error)?;
        self.job.barrier().map_err(exchange_error)?;
        let mut area = vec![0_u8; NEIGHBOURS * bytes];
        window.load(0, &mut area).map_err(exchange_error)?;
        for side in 0..NEIGHBOURS {
            let expected = pattern(self.grid.neighbour[side].index(), OPPOSITE[side]);
            if area[side * bytes..][..bytes].iter().any(|byte| *byte != expected) {
                return Err(Error::Exchange(format!(
                    "rank {}: {method} of {bytes} bytes: side {side} has the wrong data",
                    self.job.rank()
                )));
            }
        }
        self.measure(method, memory, bytes, Some(window), step)
    }

    /// Makes this many steps. Returns the slowest rank's time for them in seconds; every rank gets the same
    /// value.
    fn batch(
        &mut self,
        steps: u64,
        mut window: Option<&mut Window>,
        step: ExchangeStep,
    ) -> Result<f64, Error> {
        self.job.barrier().map_err(exchange_error)?;
        let began = Instant::now();
        for _ in 0..steps {
            step(window.as_deref_mut(), &mut self.job).map_err(exchange_error)?;
        }
        let mine = began.elapsed().as_secs_f64();
        let all = self.job.gather(&mine.to_le_bytes()).map_err(exchange_error)?;
        let times = all.iter().filter_map(|bytes| bytes.as_slice().try_into().ok().map(f64::from_le_bytes));
        Ok(times.fold(mine, f64::max))
    }

    fn measure(
        &mut self,
        method: &str,
        memory: &str,
        bytes: usize,
        mut window: Option<&mut Window>,
        step: ExchangeStep,
    ) -> Result<(), Error> {
        let (seconds, repetitions) = (self.exchange.seconds, self.exchange.repetitions);
        let share = seconds / repetitions as f64;
        let mut times = Vec::new();
        let mut steps = 1_u64;
        // finds the number of steps that fills a repetition's share of the time, starting from fewer; the
        // faster of two batches decides, because one may have been interrupted
        loop {
            let took = self.batch(steps, window.as_deref_mut(), step)?;
            if took < share / 2.0 && steps < MAX_STEPS {
                steps *= (share / took.max(1e-9)).clamp(2.0, MAX_GROWTH) as u64;
                continue;
            }
            // the batch took far too long for an interruption to be the reason
            let is_hopeless = steps == 1 && took >= 4.0 * seconds;
            let again = if is_hopeless { took } else { self.batch(steps, window.as_deref_mut(), step)? };
            let least = took.min(again);
            if steps == 1 && least >= seconds {
                times.extend([took * 1e9, again * 1e9]);
                break;
            }
            if least >= share / 2.0 || steps >= MAX_STEPS {
                steps = ((steps as f64 * share / least.max(1e-9)) as u64).max(1);
                break;
            }
        }
        if times.is_empty() {
            for _ in 0..repetitions {
                times.push(self.batch(steps, window.as_deref_mut(), step)? / steps as f64 * 1e9);
            }
        }
        times.sort_by(f64::total_cmp);
        if self.job.rank() != Rank(0) {
            return Ok(());
        }
        let median = times[times.len() / 2];
        let line = GhostMeasurement {
            program: "ghost".into(),
            mpi: "unisono".into(),
            processes: self.job.size(),
            method: method.into(),
            window: memory.into(),
            bytes: bytes as u64,
            steps,
            repetitions: times.len() as u64,
            min_ns: times[0],
            median_ns: median,
            max_ns: times[times.len() - 1],
            median_mb_s: bytes as f64 / median * 1e3,
        };
        let written = serde_json::to_string(&line).map_err(std::io::Error::from).and_then(|text| {
            writeln!(self.out, "{text}")?;
            self.out.flush()
        });
        let path = self.exchange.result.clone().unwrap_or_else(|| "standard output".into());
        written.map_err(|source| Error::Result { path, source })
    }
}
