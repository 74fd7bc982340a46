//! Two clocks: a clock that all processes agree on, and a cheap clock for spinning.
//!
//! [`now`] is `CLOCK_MONOTONIC`, the clock of futex deadlines. [`ticks`] is the cheapest counter of this
//! machine that runs at a constant rate: the time stamp counter if the kernel calls it constant and non-stop,
//! else `CLOCK_MONOTONIC` itself, so that a tick is a nanosecond. A spin budget is converted to ticks once
//! ([`Ticks::from_duration`]) and then compared without a division.
//!
//! Cost: `now` ~20-40 ns (vDSO), `ticks` ~8-20 ns (`rdtsc`, not ordered against other loads: good for
//! budgets, not for timing ten instructions). The first use calibrates for about a millisecond. When not to
//! use: comparing `ticks` of two machines, or of a virtual machine before and after migration. Reference:
//! clock_gettime(2), vdso(7).

use std::sync::OnceLock;
use std::time::SystemTime;

pub use unisono_time::{Duration, Instant};

/// Ticks of the machine's cheapest constant-rate counter; see [`TickSource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

/// The counter that [`ticks`] reads on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickSource {
    /// The x86 time stamp counter, constant and non-stop.
    TimeStampCounter,
    /// `CLOCK_MONOTONIC` through the vDSO: one tick is one nanosecond.
    Monotonic,
}

impl Ticks {
    /// Converts a duration to ticks of the calibrated counter, saturating.
    pub fn from_duration(length: Duration) -> Self {
        let calibration = calibration();
        Self(saturate(
            (u128::from(length.as_nanos()) * u128::from(calibration.ticks_per_2_30_ns)) >> 30,
        ))
    }

    /// Converts this number of ticks to a duration, saturating.
    pub fn to_duration(self) -> Duration {
        let calibration = calibration();
        Duration::from_nanos(saturate((u128::from(self.0) << 30) / u128::from(calibration.ticks_per_2_30_ns)))
    }

    /// Returns the ticks from `start` to `self`; zero if another core's counter lags a little.
    #[must_use]
    pub const fn since(self, start: Self) -> Self {
        Self(self.0.saturating_sub(start.0))
    }
}

#[inline]
pub fn now() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call fills; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Instant::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// Returns the period of the kernel's timer interrupt: a scheduler slice ends at such an interrupt.
pub fn kernel_tick() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call fills; this clock exists since Linux 2.6.32.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    Duration::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// Returns the lead of the time of day (`CLOCK_REALTIME`, since 1970) over [`now`]. It changes when the clock
/// is set or adjusted.
pub fn wall_ahead() -> Duration {
    let before = now();
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // the midpoint of two readings, because this thread may lose its core between any two
    let monotonic = before.as_nanos().midpoint(now().as_nanos());
    Duration::from(wall) - Duration::from_nanos(monotonic)
}

/// Reads the counter for spin budgets.
#[inline]
pub fn ticks() -> Ticks {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if source() == TickSource::TimeStampCounter {
        return Ticks(read_time_stamp_counter());
    }
    Ticks(now().as_nanos())
}

#[inline]
pub fn source() -> TickSource {
    calibration().source
}

struct Calibration {
    source: TickSource,
    ticks_per_2_30_ns: u64,
}

#[inline]
fn calibration() -> &'static Calibration {
    static CALIBRATION: OnceLock<Calibration> = OnceLock::new();
    CALIBRATION.get_or_init(calibrate)
}

fn calibrate() -> Calibration {
    let monotonic = Calibration { source: TickSource::Monotonic, ticks_per_2_30_ns: 1 << 30 };
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if time_stamp_counter_is_constant(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) {
        let start = bracketed_pair();
        while now() - start.0 < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        let end = bracketed_pair();
        let (ns, counted) = ((end.0 - start.0).as_nanos(), end.1.saturating_sub(start.1));
        let rate = saturate((u128::from(counted) << 30) / u128::from(ns.max(1)));
        if rate > 0 {
            return Calibration { source: TickSource::TimeStampCounter, ticks_per_2_30_ns: rate };
        }
    }
    monotonic
}

/// Reads the monotonic clock and the counter several times; returns the pair whose two readings were closest
/// together.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn bracketed_pair() -> (Instant, u64) {
    let sample = || {
        let before = now();
        let counter = read_time_stamp_counter();
        let after = now();
        (after - before, (before + (after - before) / 2, counter))
    };
    (0..8).map(|_| sample()).min_by_key(|(width, _)| *width).map_or((Instant::ZERO, 0), |(_, pair)| pair)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn read_time_stamp_counter() -> u64 {
    // SAFETY: RDTSC has no preconditions; a kernel that forbids it to user space does not list the counter as
    // constant in /proc/cpuinfo's flags. The flags are checked before.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(any(test, all(target_arch = "x86_64", not(miri))))]
fn time_stamp_counter_is_constant(cpuinfo: &str) -> bool {
    cpuinfo.lines().filter_map(|line| line.strip_prefix("flags")).any(|flags| {
        ["constant_tsc", "nonstop_tsc"].iter().all(|wanted| flags.split_whitespace().any(|f| f == *wanted))
    })
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_of_the_kernel_has_one_to_ten_milliseconds() {
        let tick = kernel_tick();
        assert!((Duration::from_millis(1)..=Duration::from_millis(10)).contains(&tick), "{tick:?}");
    }

    #[test]
    fn a_length_survives_the_way_to_ticks_and_back_within_a_part_per_thousand() {
        for ns in [1_000, 50_000, 1_000_000, 3_600_000_000_000] {
            let back = Ticks::from_duration(Duration::from_nanos(ns)).to_duration().as_nanos();
            assert!(back.abs_diff(ns) <= ns / 1000 + 1, "{ns} ns came back as {back}");
        }
    }

    #[test]
    fn the_counter_never_reports_less_time_than_the_kernel_by_more_than_a_percent() {
        let (start, from) = (now(), ticks());
        while now() - start < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let (counted, kernel) = (ticks().since(from).to_duration().as_nanos(), (now() - start).as_nanos());
        assert!(counted + counted / 100 + 1_000_000 >= 20_000_000, "{counted} of {kernel} ns");
    }

    #[test]
    fn forever_saturates_instead_of_wrapping() {
        assert!(Ticks::from_duration(Duration::MAX).0 > u64::MAX / 100);
    }

    #[test]
    fn only_a_constant_and_non_stop_counter_is_trusted() {
        assert!(time_stamp_counter_is_constant("flags\t\t: fpu constant_tsc rep_good nonstop_tsc\n"));
        assert!(!time_stamp_counter_is_constant("flags\t\t: fpu tsc constant_tsc\n"));
        assert!(!time_stamp_counter_is_constant(""));
    }
}
