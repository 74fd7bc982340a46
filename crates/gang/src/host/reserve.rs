//! The weight that the gangs have against other programs, steered by what those took.
//!
//! A weight alone is no share: Linux counts a whole session as one program, and a program's weight is spread
//! over the cores where it runs. And a weight that keeps a heavy build small makes a short command wait for
//! tens of milliseconds before it is ever picked. So the weight follows the figures: as long as others take
//! less than is reserved for them the gangs weigh little and a new process runs almost at once; when they
//! take more the gangs weigh more, up to a bound.
//!
//! Cost: two open files read, 60 to 100 us with cold caches, five times a second while the weight changes and
//! two or three times a second while it does not. When not: no `cpu` controller, or real-time gangs, which
//! the kernel's own reserve interrupts. Reference: Documentation/admin-guide/cgroup-v2.rst, `cpu.weight`;
//! sched-design-CFS.rst, autogroups in sched(7).

use super::arena::Arena;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_linux::affinity::CpuSet;
use unisono_linux::cgroup::GroupMeter;

/// How often the figures are read while the weight changes.
const PERIOD: Duration = Duration::from_millis(200);
/// And at the least.
const CALM: Duration = Duration::from_millis(400);
/// The lines of processors come first in `/proc/stat`; so many bytes hold 64 of them.
const ENOUGH: usize = 8192;

/// The weight, in default tasks a core, for a share of contended time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steering {
    share: f64,
    weight: f64,
}

impl Steering {
    /// Below the even weight by so much while others are content. No less: a single busy program on one core
    /// would hold up a whole gang.
    const LEAST: f64 = 1.0 / 3.0;
    /// And above it by so much. No more: a second scheduler is another program too, and two that outbid each
    /// other would leave nothing to the rest.
    const MOST: f64 = 2.0;

    /// The first weight: others are content until they show otherwise.
    pub(crate) fn new(share: f64) -> Steering {
        Steering { share, weight: Self::even(share) * Self::LEAST }
    }

    /// What gives this share against one default task.
    fn even(share: f64) -> f64 {
        share / (1.0 - share).max(0.001)
    }

    /// The weight in default tasks a core.
    pub(crate) fn weight(self) -> f64 {
        self.weight
    }

    /// So much processor time went to gangs and to others; the weight if it changes.
    pub(crate) fn learn(&mut self, gangs: f64, others: f64) -> Option<f64> {
        let even = Self::even(self.share);
        let odds = gangs.max(0.0) / others.max(gangs * 0.001).max(f64::MIN_POSITIVE);
        // one step would do if weights were shares; half of it does not swing
        let step = (even / odds.max(f64::MIN_POSITIVE)).sqrt().clamp(0.5, 2.0);
        let next = (self.weight * step).clamp(even * Self::LEAST, even * Self::MOST);
        // a write makes every core weigh anew
        if (next / self.weight - 1.0).abs() < 0.1 {
            return None;
        }
        self.weight = next;
        Some(next)
    }
}

/// Seconds of processor time at one moment.
#[derive(Clone, Copy, Debug)]
struct Figures {
    at: Instant,
    gangs: f64,
    unused: f64,
}

impl Figures {
    /// Seconds that gangs, others, and all together got between `earlier` and these, on so many cores.
    fn since(self, earlier: Figures, cores: usize) -> (f64, f64, f64) {
        let all = (self.at - earlier.at).as_secs_f64() * cores as f64;
        let gangs = self.gangs - earlier.gangs;
        (gangs, all - gangs - (self.unused - earlier.unused), all)
    }
}

/// The shortest run of which it is said what others got: `/proc/stat` counts in hundredths of a second.
const TELLING: f64 = 0.5;

/// Reads the figures and sets the weight.
#[derive(Debug)]
pub(crate) struct Reserve {
    arena: Arc<Arena>,
    cpus: CpuSet,
    steering: Steering,
    /// The figures at the first look and at the last.
    first: Option<Figures>,
    before: Option<Figures>,
    period: Duration,
    gangs: GroupMeter,
    all: File,
}

impl Reserve {
    /// Nothing is measured yet; the weight is the one that the arena was built with.
    pub(crate) fn new(arena: Arc<Arena>, cpus: CpuSet, share: f64) -> Option<Reserve> {
        arena.scale.as_ref()?;
        let gangs = arena.control.meter().ok()?;
        let all = File::open("/proc/stat").ok()?;
        let steering = Steering::new(share);
        let mut reserve =
            Reserve { arena, cpus, steering, first: None, before: None, period: PERIOD, gangs, all };
        reserve.first = reserve.figures();
        Some(reserve)
    }

    /// Looks if it is time to. Figures that cannot be read leave the weight as it is.
    pub(crate) fn look(&mut self) {
        if self.before.is_some_and(|before| before.at.elapsed() < self.period) {
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
        if let Some(scale) = &self.arena.scale {
            let _ = scale.set_weight(weight * self.cpus.len() as f64); // as it was, then
        }
    }

    /// Part of the processors' time that others got so far; `None` when it is too early to tell.
    pub(crate) fn others(&mut self) -> Option<f64> {
        let (_, others, all) = self.figures()?.since(self.first?, self.cpus.len());
        (all > TELLING).then(|| (others / all).clamp(0.0, 1.0))
    }

    fn figures(&self) -> Option<Figures> {
        let (at, unused, gangs) = (Instant::now(), self.unused_s()?, self.gangs.used_ns().ok()?);
        Some(Figures { at, gangs: gangs as f64 / 1e9, unused })
    }

    fn unused_s(&self) -> Option<f64> {
        let mut bytes = vec![0; ENOUGH.max(128 * self.cpus.iter().max()?)];
        let read = self.all.read_at(&mut bytes, 0).ok()?;
        unused_s(&String::from_utf8_lossy(&bytes[..read]), &self.cpus)
    }
}

/// Seconds in which these processors had nothing to do or were taken from this machine; from `/proc/stat`.
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

    /// Others that want everything get `others` of the time for each unit of weight against `weight`.
    fn settle(share: f64, tasks: f64, wanted: f64) -> (Steering, f64) {
        let mut steering = Steering::new(share);
        let mut others = 0.0;
        for _ in 0..40 {
            others = (tasks / (tasks + steering.weight())).min(wanted);
            steering.learn(1.0 - others, others);
        }
        (steering, others)
    }

    #[test]
    fn others_that_want_little_get_it_at_the_least_weight() {
        let (steering, others) = settle(0.9, 1.0, 0.02);
        assert!((others - 0.02).abs() < 1e-9, "{others}");
        assert!((steering.weight() - 3.0).abs() < 1e-9, "{steering:?}");
    }

    #[test]
    fn others_that_want_all_get_the_reserve_whether_they_count_as_half_a_task_or_as_two() {
        for tasks in [0.5, 1.0, 2.0] {
            let (_, others) = settle(0.9, tasks, 1.0);
            assert!((0.08..0.13).contains(&others), "{others} for {tasks} tasks a core");
        }
    }

    #[test]
    fn schedulers_that_outbid_each_other_stop_at_a_bound() {
        let (steering, _) = settle(0.9, 1000.0, 1.0);
        assert!((steering.weight() - 18.0).abs() < 1e-9, "{steering:?}");
        assert!(settle(0.99, 1000.0, 1.0).0.weight().is_finite());
    }

    #[test]
    fn gangs_that_did_nothing_do_not_break_the_weight() {
        let mut steering = Steering::new(0.9);
        for (gangs, others) in [(0.0, 0.0), (0.0, 1.0), (1.0, -0.01), (1.0, 0.0)] {
            steering.learn(gangs, others);
            assert!((3.0..=18.0 + 1e-9).contains(&steering.weight()), "{steering:?}");
        }
    }

    #[test]
    fn unused_time_is_idle_waiting_and_stolen_of_the_processors_meant() {
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 400 50 6 7 8 0 0\ncpu1 0 0 0 100 0 0 0 0\ncpu10 0 0 0 9 0 0 0 0\n";
        let one = unused_s(stat, &CpuSet::single(0)).expect("its line");
        assert!((one - 4.58).abs() < 1e-9, "{one}");
        assert_eq!(unused_s(stat, &CpuSet::single(2)), None);
    }
}
