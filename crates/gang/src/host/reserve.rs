//! Steers the gangs' weight against other programs by the processor time that those programs used.
//!
//! A weight alone is no share: Linux counts a whole session as one program, and spreads a program's weight
//! over the cores where it runs. And a weight that keeps a heavy build small delays the first run of a short
//! command by tens of milliseconds. So the weight follows the measured times: as long as other programs use
//! less than their reserve, the gangs weigh little and a new process runs almost at once; when other programs
//! use more, the gangs weigh more, up to a bound.
//!
//! Cost: two open files read, 60 to 100 us with cold caches, five times a second while the weight changes and
//! two or three times a second otherwise. When not to use: without a `cpu` controller, or with real-time
//! gangs, which the kernel's own reserve interrupts. Reference: Documentation/admin-guide/cgroup-v2.rst,
//! `cpu.weight`; sched-design-CFS.rst, autogroups in sched(7).

use crate::cgroups::GangCgroups;
use crate::steering::Steering;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use unisono_linux::affinity::CpuSet;
use unisono_linux::cgroup::GroupMeter;
use unisono_linux::clock::{self, Duration, Instant};

/// Interval between two readings while the weight changes. Other programs feel a new weight after one period.
/// A reading takes 60 to 100 us with cold caches, 0.05 % of one core; `/proc/stat` counts in 10 ms, so a much
/// shorter period would steer by noise.
const PERIOD: Duration = Duration::from_millis(200);
/// Longest interval between two readings. With twice this, a program that starts to compute would be held
/// back by its old weight for the better part of a second. Chosen, not measured.
const CALM: Duration = Duration::from_millis(400);
/// Minimum number of bytes read from `/proc/stat`: the lines of processors come first, and this holds 64 of
/// them.
const STAT_BUFFER_BYTES: usize = 8192;

/// Processor times at one moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct TimesSoFar {
    at: Instant,
    gangs: f64,
    unused: f64,
}

impl TimesSoFar {
    /// Returns the seconds of processor time on `cores` cores since `earlier`: of the gangs, of other
    /// programs, and in total.
    fn since(self, earlier: TimesSoFar, cores: usize) -> (f64, f64, f64) {
        let all = (self.at - earlier.at).as_secs_f64() * cores as f64;
        let gangs = self.gangs - earlier.gangs;
        (gangs, all - gangs - (self.unused - earlier.unused), all)
    }
}

/// Minimum time (s) before the other programs' part is reported: `/proc/stat` counts in hundredths of a
/// second.
const MIN_RUN_S: f64 = 0.5;

/// Reads the processor times and sets the weight.
#[derive(Debug)]
pub(crate) struct Reserve {
    cgroups: Arc<GangCgroups>,
    cpus: CpuSet,
    steering: Steering,
    /// The times at the first and at the last reading.
    first: Option<TimesSoFar>,
    before: Option<TimesSoFar>,
    period: Duration,
    gangs: GroupMeter,
    all: File,
}

impl Reserve {
    /// Starts with the weight that the groups were made with; `None` without a weight or without readable
    /// times.
    pub(crate) fn new(cgroups: Arc<GangCgroups>, cpus: CpuSet, share: f64) -> Option<Reserve> {
        cgroups.scale.as_ref()?;
        let gangs = cgroups.control.meter().ok()?;
        let all = File::open("/proc/stat").ok()?;
        let steering = Steering::new(share);
        let mut reserve =
            Reserve { cgroups, cpus, steering, first: None, before: None, period: PERIOD, gangs, all };
        reserve.first = reserve.figures();
        Some(reserve)
    }

    /// Reads the times if a reading is due, and sets the weight. If they cannot be read, the weight stays.
    pub(crate) fn update(&mut self) {
        if self.before.is_some_and(|before| clock::now() - before.at < self.period) {
            return;
        }
        let Some(now) = self.figures() else { return };
        let Some(before) = self.before.replace(now) else { return };
        let (gangs, others, _) = now.since(before, self.cpus.len());
        let Some(weight) = self.steering.learn(gangs, others) else {
            self.period = (self.period * 2).min(CALM);
            return;
        };
        self.period = PERIOD;
        if let Some(scale) = &self.cgroups.scale {
            let _ = scale.set_weight(weight * self.cpus.len() as f64); // on failure the old weight stays
        }
    }

    /// Returns the part of the processors' time that other programs got so far; `None`: too early to tell.
    pub(crate) fn others(&mut self) -> Option<f64> {
        let (_, others, all) = self.figures()?.since(self.first?, self.cpus.len());
        (all > MIN_RUN_S).then(|| (others / all).clamp(0.0, 1.0))
    }

    fn figures(&self) -> Option<TimesSoFar> {
        let (at, unused, gangs) = (clock::now(), self.unused_s()?, self.gangs.used_ns().ok()?);
        Some(TimesSoFar { at, gangs: gangs as f64 / 1e9, unused })
    }

    fn unused_s(&self) -> Option<f64> {
        let mut bytes = vec![0; STAT_BUFFER_BYTES.max(128 * self.cpus.iter().max()?)];
        let read = self.all.read_at(&mut bytes, 0).ok()?;
        unused_s(&String::from_utf8_lossy(&bytes[..read]), &self.cpus)
    }
}

/// Returns the idle and stolen seconds of these processors, from `/proc/stat`.
fn unused_s(stat: &str, cpus: &CpuSet) -> Option<f64> {
    let mut sum = 0.0;
    for cpu in cpus.iter() {
        let name = format!("cpu{cpu} ");
        let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
        // hundredths of a second: user, nice, system, idle, waiting for a disk, interrupts, soft, stolen
        let times: Vec<f64> = line.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
        sum += (times.get(3)? + times.get(4)? + times.get(7).unwrap_or(&0.0)) / 100.0;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_time_is_idle_waiting_and_stolen_of_the_processors_meant() {
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 400 50 6 7 8 0 0\ncpu1 0 0 0 100 0 0 0 0\ncpu10 0 0 0 9 0 0 0 0\n";
        let one = unused_s(stat, &CpuSet::single(0)).expect("its line");
        assert!((one - 4.58).abs() < 1e-9, "{one}");
        assert_eq!(unused_s(stat, &CpuSet::single(2)), None);
    }
}
