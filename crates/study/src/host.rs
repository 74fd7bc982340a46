//! What the runs are made on, and who else uses it.
//!
//! Foreign load is the part of all processors that was busy in the gaps between runs, when nothing of ours
//! runs. The kernel counts in ticks of 10 ms, so the last gaps are added until they make up [`WINDOW_TICKS`].
//! Steal is what the hypervisor took during the run, from the same counters.
//!
//! Cost: one read of `/proc/stat` and a gap of [`GAP`] before each run. Reference: proc_stat(5).

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::Duration;
use unisono_linux::affinity::{self, Tid};
use unisono_measure::record::HostFacts;

/// The pause before each run in which the others' load is seen.
pub const GAP: Duration = Duration::from_millis(10);

/// Ticks (of all processors together) on which a figure of foreign load is based.
pub const WINDOW_TICKS: u64 = 60;

/// What does not change while a study runs.
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
        steal: None,
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

/// The counters of `/proc/stat`, in ticks, of all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTicks {
    pub busy: u64,
    pub idle: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
}

impl ProcessorTicks {
    /// `None`: `/proc/stat` is not readable.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|l| l.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        let at = |i: usize| fields.get(i).copied().unwrap_or(0);
        (fields.len() >= 4).then(|| Self {
            busy: at(0) + at(1) + at(2) + at(5) + at(6),
            idle: at(3) + at(4),
            steal: at(7),
        })
    }

    fn since(self, start: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(start.busy),
            idle: self.idle.saturating_sub(start.idle),
            steal: self.steal.saturating_sub(start.steal),
        }
    }

    fn all(self) -> u64 {
        self.busy + self.idle + self.steal
    }
}

#[derive(Debug, Default)]
pub struct LoadWatch {
    gaps: VecDeque<ProcessorTicks>,
    run_began: Option<ProcessorTicks>,
}

impl LoadWatch {
    /// Waits through the gap before a run. Answers the foreign load over the last gaps.
    pub fn before_run(&mut self) -> Option<f64> {
        let start = ProcessorTicks::now();
        std::thread::sleep(GAP);
        let end = ProcessorTicks::now();
        self.run_began = end;
        self.note(end?.since(start?))
    }

    fn note(&mut self, gap: ProcessorTicks) -> Option<f64> {
        self.gaps.push_back(gap);
        let sum = |gaps: &VecDeque<ProcessorTicks>| {
            gaps.iter().fold((0, 0), |(b, a), g| (b + g.busy + g.steal, a + g.all()))
        };
        while self.gaps.len() > 1 && sum(&self.gaps).1 - self.gaps[0].all() >= WINDOW_TICKS {
            self.gaps.pop_front();
        }
        let (busy, all) = sum(&self.gaps);
        (all >= WINDOW_TICKS).then(|| busy as f64 / all as f64)
    }

    /// The steal since [`before_run`](Self::before_run).
    pub fn steal(&self) -> Option<f64> {
        let during = ProcessorTicks::now()?.since(self.run_began?);
        (during.all() > 0).then(|| during.steal as f64 / during.all() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_read_by_their_places() {
        let text = "cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(ProcessorTicks::parse(text), Some(ProcessorTicks { busy: 163, idle: 450, steal: 8 }));
        assert_eq!(ProcessorTicks::parse("intr 1 2 3\n"), None);
    }

    #[test]
    fn load_is_stated_once_enough_gaps_have_been_seen_and_forgets_old_ones() {
        let mut watch = LoadWatch::default();
        assert_eq!(watch.note(ProcessorTicks { busy: 15, idle: 15, steal: 0 }), None, "30 ticks are too few");
        assert_eq!(watch.note(ProcessorTicks { busy: 0, idle: 30, steal: 0 }), Some(0.25));
        assert_eq!(
            watch.note(ProcessorTicks { busy: 0, idle: 30, steal: 0 }),
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
