//! Generates the frame sizes of an MPEG-1 video of 1.5 Mbit/s and 30 frames per second.
//!
//! A group of pictures is `IBBPBBPBBPBBPBB`. Frames of the same kind vary in size: the logarithms of their
//! sizes are normally distributed, as was found for MPEG-1 films (Rose, Statistical Properties of MPEG Video
//! Traffic, 1995). The sizes of the kinds have the ratio 5 (I) to 3 (P) to 1 (B), a usual setting of
//! encoders. The mean size corresponds exactly to the rate.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub(super) const FRAMES_PER_S: u64 = 30;
const BITS_PER_S: f64 = 1.5e6;
const PATTERN: &[u8] = b"IBBPBBPBBPBBPBB";
/// The standard deviation of the logarithm of a frame's size.
const SIZE_DEVIATION: f64 = 0.25;
/// The size of the smallest frame, in bytes: the header of a picture without any change.
const MIN_FRAME_BYTES: f64 = 64.0;

/// The sizes in bytes, as an endless iterator. Equal seeds give equal sizes.
pub(super) struct FrameSizes {
    random: Pcg64Mcg,
    next: usize,
}

impl FrameSizes {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Pcg64Mcg::seed_from_u64(seed), next: 0 }
    }
}

fn part(kind: u8) -> f64 {
    match kind {
        b'I' => 5.0,
        b'P' => 3.0,
        _ => 1.0,
    }
}

impl Iterator for FrameSizes {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let kind = PATTERN[self.next % PATTERN.len()];
        self.next += 1;
        let all: f64 = PATTERN.iter().map(|kind| part(*kind)).sum();
        let mean = BITS_PER_S / 8.0 / FRAMES_PER_S as f64 * PATTERN.len() as f64 * part(kind) / all;
        // Box-Muller transform; `u` is in (0, 1], because 0 has no logarithm
        let (u, v): (f64, f64) = (1.0 - self.random.random::<f64>(), self.random.random());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        Some(
            (mean * (SIZE_DEVIATION * normal - SIZE_DEVIATION * SIZE_DEVIATION / 2.0).exp())
                .max(MIN_FRAME_BYTES) as usize,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_of_video_have_the_rate_and_the_kinds_their_sizes() {
        let sizes: Vec<usize> = FrameSizes::new(7).take(18_000).collect();
        let bits = sizes.iter().sum::<usize>() as f64 * 8.0 / 600.0;
        assert!((bits / BITS_PER_S - 1.0).abs() < 0.01, "{bits} bit/s");
        let mean = |at: usize| {
            let of = sizes.iter().skip(at).step_by(PATTERN.len());
            of.clone().sum::<usize>() as f64 / of.count() as f64
        };
        assert!((mean(0) / mean(1) - 5.0).abs() < 0.25 && (mean(3) / mean(1) - 3.0).abs() < 0.15);
        assert_eq!(sizes[..50], FrameSizes::new(7).take(50).collect::<Vec<_>>());
    }
}
