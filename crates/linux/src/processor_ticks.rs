//! The time of all processors together since this machine started: the first line of `/proc/stat`.
//!
//! Reference: proc_stat(5).

use std::fs;

/// Processor time in ticks of a hundredth of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTicks {
    pub busy: u64,
    pub idle: u64,
    /// Time taken by the hypervisor. `None`: the kernel does not count it.
    pub steal: Option<u64>,
}

impl ProcessorTicks {
    /// Reads the counters; `None` if `/proc/stat` is not readable.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    pub fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        let at = |field: usize| fields.get(field).copied().unwrap_or(0);
        // user, nice, system, idle, waiting for a disk, interrupts, soft interrupts, stolen
        (fields.len() >= 4).then(|| Self {
            busy: at(0) + at(1) + at(2) + at(5) + at(6),
            idle: at(3) + at(4),
            steal: fields.get(7).copied(),
        })
    }

    #[must_use]
    pub fn since(self, start: Self) -> Self {
        let steal = |ticks: Self| ticks.steal.unwrap_or(0);
        Self {
            busy: self.busy.saturating_sub(start.busy),
            idle: self.idle.saturating_sub(start.idle),
            steal: self.steal.map(|_| steal(self).saturating_sub(steal(start))),
        }
    }

    pub fn all(self) -> u64 {
        self.busy + self.idle + self.steal.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_read_by_their_places() {
        let text = "cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1\n";
        let read = ProcessorTicks { busy: 163, idle: 450, steal: Some(8) };
        assert_eq!(ProcessorTicks::parse(text), Some(read));
        assert_eq!(read.all(), 621);
        assert_eq!(ProcessorTicks::parse("cpu 50 0 0 25\n").map(|ticks| ticks.steal), Some(None));
        assert_eq!(ProcessorTicks::parse("intr 1 2 3\n"), None);
        assert_eq!(ProcessorTicks::parse("cpu0 1 2 3 4\n"), None);
    }
}
