//! The host of the runs, and its load by other programs.
//!
//! Foreign load is the share of all processors that was busy in the gaps between runs, when no program of the
//! study runs. The kernel counts in ticks of 10 ms, so recent gaps are added up until they contain
//! `WINDOW_TICKS`. Steal is the time that the hypervisor took during the run, from the same counters.
//!
//! Before the first run, [`watch_background`] watches the load of others for a few seconds.
//!
//! Cost: one read of `/proc/stat` and a gap of `IDLE_INTERVAL` before each run. Reference: proc_stat(5).

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::Duration;
use unisono_linux::affinity::{self, Tid};
use unisono_linux::processor_ticks::ProcessorTicks;
use unisono_measure::background::BackgroundLoad;
use unisono_measure::record::HostFacts;
use unisono_measure::tick_share::TickShare;

/// The pause before each run in which foreign load is measured.
pub(crate) const IDLE_INTERVAL: Duration = Duration::from_millis(10);

/// Ticks (of all processors together) from which foreign load is computed.
pub(crate) const WINDOW_TICKS: u64 = 60;

/// Returns the facts that do not change while a study runs.
pub fn facts() -> HostFacts {
    let read = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    HostFacts {
        kernel: read("/proc/sys/kernel/osrelease"),
        cpu: field("model name").or_else(|| field("Hardware")).unwrap_or_else(|| "unknown".into()),
        cpus: cpus().len().try_into().unwrap_or(u32::MAX),
        virtualization: virtualization(&cpuinfo),
        root: unisono_linux::process::is_root(),
        foreign_load: None,
        foreign_load_during: None,
        steal: None,
        background: None,
    }
}

pub fn cpus() -> Vec<usize> {
    affinity::allowed(Tid::SELF).map(|set| set.iter().collect()).unwrap_or_else(|_| vec![0])
}

fn virtualization(cpuinfo: &str) -> Option<String> {
    let container = ["/.dockerenv", "/run/.containerenv"].iter().any(|p| Path::new(p).exists());
    let guest = cpuinfo
        .lines()
        .find(|l| l.starts_with("flags"))
        .is_some_and(|l| l.split_whitespace().any(|f| f == "hypervisor"));
    match (container, guest) {
        (true, true) => Some("container in a virtual machine".into()),
        (true, false) => Some("container".into()),
        (false, true) => Some("virtual machine".into()),
        (false, false) => None,
    }
}

/// Windows of the watch before a study.
const BACKGROUND_WINDOWS: usize = 6;

/// The length of a window: 50 ticks of each processor, so that a single tick is only 2 % of a processor's
/// time.
const BACKGROUND_WINDOW: Duration = Duration::from_millis(500);

/// Watches for three seconds how much of the processors others take, while the study runs nothing. `None` if
/// the kernel does not report it, or a signal arrived.
pub fn watch_background(interrupted: &dyn Fn() -> Option<&'static str>) -> Option<BackgroundLoad> {
    let (mut windows, mut stolen) = (Vec::new(), 0);
    for _ in 0..BACKGROUND_WINDOWS {
        let start = ProcessorTicks::now()?;
        std::thread::sleep(BACKGROUND_WINDOW);
        let during = ProcessorTicks::now()?.since(start);
        let steal = during.steal.unwrap_or(0);
        windows.push(TickShare { taken: during.busy + steal, all: during.all() });
        stolen += steal;
        if interrupted().is_some() {
            return None;
        }
    }
    BackgroundLoad::from_windows(&windows, stolen)
}

#[derive(Debug, Default)]
pub(crate) struct LoadWatch {
    gaps: VecDeque<ProcessorTicks>,
    run_began: Option<ProcessorTicks>,
}

impl LoadWatch {
    /// Waits through the gap before a run; returns the foreign load over the last gaps.
    pub(crate) fn before_run(&mut self) -> Option<f64> {
        let start = ProcessorTicks::now();
        std::thread::sleep(IDLE_INTERVAL);
        let end = ProcessorTicks::now();
        self.run_began = end;
        self.note(end?.since(start?))
    }

    fn note(&mut self, gap: ProcessorTicks) -> Option<f64> {
        self.gaps.push_back(gap);
        let sum = |gaps: &VecDeque<ProcessorTicks>| {
            gaps.iter().fold((0, 0), |(b, a), g| (b + g.busy + g.steal.unwrap_or(0), a + g.all()))
        };
        while self.gaps.len() > 1 && sum(&self.gaps).1 - self.gaps[0].all() >= WINDOW_TICKS {
            self.gaps.pop_front();
        }
        let (busy, all) = sum(&self.gaps);
        (all >= WINDOW_TICKS).then(|| busy as f64 / all as f64)
    }

    /// Returns the processors' time since [`before_run`](Self::before_run).
    pub(crate) fn during_run(&self) -> Option<ProcessorTicks> {
        Some(ProcessorTicks::now()?.since(self.run_began?)).filter(|during| during.all() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_stated_once_enough_gaps_have_been_seen_and_forgets_old_ones() {
        let mut watch = LoadWatch::default();
        assert_eq!(
            watch.note(ProcessorTicks { busy: 15, idle: 15, steal: None }),
            None,
            "30 ticks are too few"
        );
        assert_eq!(watch.note(ProcessorTicks { busy: 0, idle: 30, steal: None }), Some(0.25));
        assert_eq!(
            watch.note(ProcessorTicks { busy: 0, idle: 30, steal: None }),
            Some(0.0),
            "the first gap is forgotten"
        );
    }

    #[test]
    fn the_facts_of_this_host_are_found() {
        let facts = facts();
        assert!(!facts.kernel.is_empty() && facts.cpus > 0, "{facts:?}");
    }
}
