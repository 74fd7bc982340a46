//! Heat in a plate: red-black Gauss-Seidel on a square grid.
//!
//! A cell becomes the mean of its four neighbours, which have the other colour; so all cells of a colour
//! may be computed at once, and the result does not depend on the number of threads. Two barriers an
//! iteration, about 50 us apart with two threads and the default size: the grain of the paper's
//! stream clustering (81 us).
//!
//! Two runtimes: rayon's work stealing, and threads with one of Unisono's barriers. The twin in C with
//! OpenMP is `peers/stencil_openmp.c`.

use crate::workload::own::{Choice, Seat};
use crate::workload::{Error, Measurement, Options, barrier, meter, options};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Cells along a side, where the options do not say.
pub const DEFAULT_SIZE: usize = 512;

/// The grid with its rim, each colour by itself: cell `(row, column)` has colour `(row + column) % 2` and
/// lies at `row * width + column / 2`.
struct Plate<T> {
    size: usize,
    width: usize,
    colours: [Vec<T>; 2],
}

impl<T> Plate<T> {
    fn new(size: usize, cell: impl Fn(f64) -> T) -> Self {
        let side = size + 2;
        let width = side.div_ceil(2);
        let initial = |row: usize, column: usize| match (row, column) {
            (0, _) => 1.0,
            (row, column) if row == size + 1 || column == 0 || column > size => 0.0,
            _ => 0.5,
        };
        let colour = |colour: usize| {
            let cells =
                (0..side).flat_map(|row| (0..width).map(move |half| (row, 2 * half + (row + colour) % 2)));
            cells.map(|(row, column)| cell(initial(row, column))).collect()
        };
        Self { size, width, colours: [colour(0), colour(1)] }
    }

    /// Sums the cells row by row, as the twin in C does.
    fn checksum(&self, value: impl Fn(&T) -> f64) -> f64 {
        let cell =
            |row: usize, column: usize| &self.colours[(row + column) % 2][row * self.width + column / 2];
        (1..=self.size)
            .flat_map(|row| (1..=self.size).map(move |column| (row, column)))
            .fold(0.0, |sum, (row, column)| sum + value(cell(row, column)))
    }
}

/// For the cells of one colour in a row: the place of the first, and of its left neighbour, in their rows.
fn first_places(row: usize, colour: usize) -> (usize, usize) {
    let column = 1 + (row + 1 + colour) % 2;
    (column / 2, (column - 1) / 2)
}

/// How many cells of one colour an inner row has.
fn cells(size: usize, row: usize, colour: usize) -> usize {
    let column = 1 + (row + 1 + colour) % 2;
    (size + 2 - column) / 2
}

/// With rayon: a pool of so many workers, a parallel loop over rows for each colour.
///
/// # Errors
/// Options out of range, workers that cannot be started.
pub fn run_rayon(options: &Options) -> Result<Measurement, Error> {
    options.check()?;
    let placement = options.pin.placement()?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .start_handler(move |index| {
            // The placement was checked; a worker that cannot be pinned runs where it is.
            options::pin_participant(&placement, index).ok();
        })
        .build()
        .map_err(|error| {
            Error::Options(format!("rayon cannot start {} workers: {error}", options.threads))
        })?;
    let size = options.size.unwrap_or(DEFAULT_SIZE);
    let mut plate = Plate::new(size, |value| value);
    let (meter, iterations) = pool.install(|| {
        let mut meter = meter::Meter::start(options);
        let mut iteration = 0;
        loop {
            iteration += 1;
            let then = meter.episode(iteration);
            sweep_rayon(&mut plate, 0);
            sweep_rayon(&mut plate, 1);
            if then == meter::Then::Stop {
                return (meter, iteration);
            }
        }
    });
    Ok(Measurement {
        implementation: "stencil-rayon".into(),
        version: "rayon 1".into(),
        algorithm: "work stealing".into(),
        wait: "spin-block".into(),
        checksum: Some(plate.checksum(|value| *value)),
        ..meter.measurement(options, vec![iterations; options.threads], 2)
    })
}

fn sweep_rayon(plate: &mut Plate<f64>, colour: usize) {
    let (size, width) = (plate.size, plate.width);
    let [red, black] = &mut plate.colours;
    let (own, other) = if colour == 0 { (red, &*black) } else { (black, &*red) };
    own.par_chunks_exact_mut(width).enumerate().skip(1).take(size).with_min_len(16).for_each(|(row, own)| {
        let (first, left) = first_places(row, colour);
        let count = cells(size, row, colour);
        let neighbours = |row: usize, from: usize| &other[row * width + from..][..count];
        let (up, down) = (neighbours(row - 1, first), neighbours(row + 1, first));
        let (left, right) = (neighbours(row, left), neighbours(row, left + 1));
        for (i, cell) in own[first..][..count].iter_mut().enumerate() {
            *cell = 0.25 * (((up[i] + down[i]) + left[i]) + right[i]);
        }
    });
}

/// With threads and one of Unisono's barriers: each thread has its rows.
///
/// # Errors
/// As [`barrier::run`].
pub fn run_unisono(choice: &Choice, options: &Options) -> Result<Measurement, Error> {
    options.check()?;
    let (group, chosen_because) = choice.group(options)?;
    let size = options.size.unwrap_or(DEFAULT_SIZE);
    // Relaxed atomics are plain loads and stores; the barriers order them.
    let plate = Plate::new(size, |value: f64| AtomicU64::new(value.to_bits()));
    let value = |cell: &AtomicU64| f64::from_bits(cell.load(Relaxed));
    let measured = barrier::run_iterations(options, 2, |index| {
        let rows = 1 + size * index / options.threads..1 + size * (index + 1) / options.threads;
        let mut seat = Seat::take(&group, index);
        let plate = &plate;
        move |_| {
            for colour in 0..2 {
                let (own, other) = (&plate.colours[colour], &plate.colours[1 - colour]);
                for row in rows.clone() {
                    let (first, left) = first_places(row, colour);
                    let count = cells(size, row, colour);
                    let neighbours = |row: usize, from: usize| &other[row * plate.width + from..][..count];
                    let (up, down) = (neighbours(row - 1, first), neighbours(row + 1, first));
                    let (left, right) = (neighbours(row, left), neighbours(row, left + 1));
                    for (i, cell) in own[row * plate.width + first..][..count].iter().enumerate() {
                        let sum = ((value(&up[i]) + value(&down[i])) + value(&left[i])) + value(&right[i]);
                        cell.store((0.25 * sum).to_bits(), Relaxed);
                    }
                }
                seat.wait()?;
            }
            Ok(())
        }
    })?;
    let checksum = Some(plate.checksum(value));
    Ok(choice.label(&group, chosen_because, Measurement { checksum, ..measured }, "stencil-unisono"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The textbook loop on one grid, sequentially.
    fn reference(size: usize, iterations: u64) -> f64 {
        let mut grid = vec![vec![0.5; size + 2]; size + 2];
        for row in &mut grid {
            (row[0], row[size + 1]) = (0.0, 0.0);
        }
        grid[size + 1] = vec![0.0; size + 2];
        grid[0] = vec![1.0; size + 2];
        for _ in 0..iterations {
            for colour in 0..2 {
                for row in 1..=size {
                    for column in (1..=size).filter(|column| (row + column) % 2 == colour) {
                        let (up, down) = (grid[row - 1][column], grid[row + 1][column]);
                        grid[row][column] =
                            0.25 * (((up + down) + grid[row][column - 1]) + grid[row][column + 1]);
                    }
                }
            }
        }
        (1..=size)
            .flat_map(|row| (1..=size).map(move |column| (row, column)))
            .fold(0.0, |sum, (r, c)| sum + grid[r][c])
    }

    #[test]
    fn every_runtime_computes_what_the_textbook_loop_does() {
        for size in [4, 7, 32, 33] {
            let expected = reference(size, 20);
            for threads in [1, 2, 3] {
                let options =
                    Options { threads, size: Some(size), iterations: Some(20), ..Options::default() };
                let rayon = run_rayon(&options).expect("measured");
                let own = run_unisono(&Choice::default(), &options).expect("measured");
                for measured in [rayon, own] {
                    let checksum = measured.checksum.expect("a checksum");
                    assert_eq!(
                        checksum.to_bits(),
                        expected.to_bits(),
                        "{} {size} {threads}",
                        measured.implementation
                    );
                    assert_eq!(measured.iterations, vec![20; threads]);
                }
            }
        }
    }
}
