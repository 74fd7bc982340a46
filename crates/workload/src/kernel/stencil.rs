//! Heat in a plate: red-black Gauss-Seidel on a square grid.
//!
//! A cell becomes the mean of its four neighbors, which have the other color. So all cells of one color may
//! be computed at once, and the result does not depend on the number of threads. An iteration has two
//! barriers, about 50 us apart with two threads and the default size, close to the grain of the paper's
//! stream clustering (81 us).
//!
//! Two runtimes: rayon's work stealing, and threads with one of Unisono's barriers. The twin in C with OpenMP
//! is `peers/stencil_openmp.c`.

use crate::barrier_choice::{BarrierChoice, BarrierMember};
use crate::{Error, Measurement, Options, barrier, meter, options};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Cells along a side by default.
pub(crate) const DEFAULT_SIZE: usize = 512;

/// The grid with its boundary, stored by color: cell `(row, column)` has color `(row + column) % 2` and is
/// stored at index `row * width + column / 2`.
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

/// Returns, for the cells of one color in a row, the indices of the first cell and of its left neighbor.
fn first_places(row: usize, colour: usize) -> (usize, usize) {
    let column = 1 + (row + 1 + colour) % 2;
    (column / 2, (column - 1) / 2)
}

/// Returns the number of cells of one color in an inner row.
fn cells(size: usize, row: usize, colour: usize) -> usize {
    let column = 1 + (row + 1 + colour) % 2;
    (size + 2 - column) / 2
}

/// Runs with rayon: a pool of workers, and a parallel loop over rows for each color.
pub fn run_rayon(options: &Options) -> Result<Measurement, Error> {
    options.check()?;
    let placement = options.pin.placement()?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .start_handler(move |index| {
            // the placement was checked; a worker that cannot be pinned runs unpinned
            options::pin_participant(&placement, index).ok();
        })
        .build()
        .map_err(|error| {
            Error::Options(format!("rayon cannot start {} workers: {error}", options.threads))
        })?;
    let size = options.size.unwrap_or(DEFAULT_SIZE);
    let mut plate = Plate::new(size, |value| value);
    let (meter, iterations) = pool.install(|| {
        let mut meter = meter::LeaderMeter::start(options);
        let mut iteration = 0;
        loop {
            iteration += 1;
            let then = meter.episode(iteration);
            sweep_rayon(&mut plate, 0);
            sweep_rayon(&mut plate, 1);
            if then == meter::NextStep::Stop {
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
        let other = |row: usize| &other[row * width..][..width];
        sweep_row(own, [other(row - 1), other(row), other(row + 1)], row, size, colour);
    });
}

/// Computes the cells of one color in a row from the other color's cells in this row and the rows above and
/// below.
#[inline]
fn sweep_row(own: &mut [f64], [above, beside, below]: [&[f64]; 3], row: usize, size: usize, colour: usize) {
    let (first, left) = first_places(row, colour);
    let count = cells(size, row, colour);
    let own = &mut own[first..][..count];
    let (up, down) = (&above[first..][..count], &below[first..][..count]);
    let (left, right) = (&beside[left..][..count], &beside[left + 1..][..count]);
    for (i, cell) in own.iter_mut().enumerate() {
        *cell = 0.25 * (((up[i] + down[i]) + left[i]) + right[i]);
    }
}

/// One thread's rows, with a copy of the row above and the row below.
struct PlatePart {
    rows: Range<usize>,
    colours: [Vec<f64>; 2],
}

impl PlatePart {
    fn new(plate: &Plate<AtomicU64>, index: usize, threads: usize) -> Self {
        let rows = 1 + plate.size * index / threads..1 + plate.size * (index + 1) / threads;
        let cells = (rows.start - 1) * plate.width..(rows.end + 1) * plate.width;
        let colour = |colour: usize| plate.colours[colour][cells.clone()].iter().map(value).collect();
        Self { colours: [colour(0), colour(1)], rows }
    }

    fn sweep(&mut self, plate: &Plate<AtomicU64>, colour: usize) {
        let (size, width) = (plate.size, plate.width);
        let [red, black] = &mut self.colours;
        let (own, other) = if colour == 0 { (red, &*black) } else { (black, &*red) };
        for (place, row) in self.rows.clone().enumerate() {
            let other = |place: usize| &other[place * width..][..width];
            let neighbours = [other(place), other(place + 1), other(place + 2)];
            sweep_row(&mut own[(place + 1) * width..][..width], neighbours, row, size, colour);
        }
    }

    /// Publishes the rows at the edges of this share to the other threads.
    fn publish(&self, plate: &Plate<AtomicU64>, colour: usize) {
        for row in [self.rows.start, self.rows.end - 1] {
            let place = (row + 1 - self.rows.start) * plate.width;
            let shown = &plate.colours[colour][row * plate.width..][..plate.width];
            for (shown, own) in shown.iter().zip(&self.colours[colour][place..]) {
                // SYNC(stencil-edge) release: arriving at the barrier after this sweep publishes the row
                shown.store(own.to_bits(), Relaxed);
            }
        }
    }

    /// Copies the rows above and below this share, as their owners published them.
    fn read_neighbours(&mut self, plate: &Plate<AtomicU64>, colour: usize) {
        let width = plate.width;
        for row in [self.rows.start - 1, self.rows.end] {
            let place = (row + 1 - self.rows.start) * width;
            let shown = &plate.colours[colour][row * width..][..width];
            for (own, shown) in self.colours[colour][place..].iter_mut().zip(shown) {
                // SYNC(stencil-edge) acquire: leaving the barrier after that sweep orders the loads
                *own = value(shown);
            }
        }
    }
}

fn value(cell: &AtomicU64) -> f64 {
    f64::from_bits(cell.load(Relaxed))
}

/// Runs with threads and one of Unisono's barriers. Each thread has its own rows, and publishes the outermost
/// ones to its neighbors.
pub fn run_unisono(choice: &BarrierChoice, options: &Options) -> Result<Measurement, Error> {
    options.check()?;
    let (group, chosen_because) = choice.group(options)?;
    let size = options.size.unwrap_or(DEFAULT_SIZE);
    let plate = Plate::new(size, |value: f64| AtomicU64::new(value.to_bits()));
    let shares: Vec<Mutex<PlatePart>> = (0..options.threads)
        .map(|index| Mutex::new(PlatePart::new(&plate, index, options.threads)))
        .collect();
    let own = |index: usize| shares[index].lock().unwrap_or_else(PoisonError::into_inner);
    let measured = barrier::run_iterations(options, 2, |index| {
        // no other thread locks it before the end
        let mut share = own(index);
        let mut seat = BarrierMember::join(&group, index);
        let plate = &plate;
        move |_| {
            for colour in 0..2 {
                if !share.rows.is_empty() {
                    share.sweep(plate, colour);
                    share.publish(plate, colour);
                }
                seat.wait()?;
                if !share.rows.is_empty() {
                    share.read_neighbours(plate, colour);
                }
            }
            Ok(())
        }
    })?;
    for index in 0..options.threads {
        let share = own(index);
        for colour in 0..2 {
            let cells = &plate.colours[colour][share.rows.start * plate.width..share.rows.end * plate.width];
            for (cell, own) in cells.iter().zip(&share.colours[colour][plate.width..]) {
                cell.store(own.to_bits(), Relaxed);
            }
        }
    }
    let checksum = Some(plate.checksum(value));
    Ok(choice.label(&group, chosen_because, Measurement { checksum, ..measured }, "stencil-unisono"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the textbook loop on one grid, sequentially.
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
            for threads in [1, 2, 3, 6] {
                let options =
                    Options { threads, size: Some(size), iterations: Some(20), ..Options::default() };
                let rayon = run_rayon(&options).expect("measured");
                let own = run_unisono(&BarrierChoice::default(), &options).expect("measured");
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
