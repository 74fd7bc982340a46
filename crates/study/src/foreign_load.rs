//! The processor time that programs outside the study take during a run.
//!
//! The idea: a process that existed before a run began, and is neither this process nor its descendant, is
//! foreign. The foreign processes' processor time during the run is lost to the run. Processes that begin
//! meanwhile may belong to the run; descendants of a foreign process count when they end, as time of its
//! children. The ancestors of this process (its shell, `init`) are an exception: the kernel makes them the
//! parents of the run's orphans, such as the worker of an interposed queue, and then adds an orphan's time to
//! theirs. Processes that this process cannot see, such as the processes of another container, count only in
//! [`crate::host::LoadWatch`].
//!
//! Cost: one read of `/proc/PID/stat` (about 10 us) for each process, before a run and after it.

use std::collections::BTreeMap;
use unisono_linux::process_list;
use unisono_linux::process_stat::ProcessStat;

/// The parent of the kernel's threads, which work for any process.
const KTHREADD: i32 = 2;

/// The foreign processes, with their usage at the start of a run.
#[derive(Debug)]
pub(crate) struct ForeignLoadWatch(BTreeMap<i32, ForeignProcess>);

#[derive(Debug)]
struct ForeignProcess {
    before: ProcessStat,
    /// Whether it is an ancestor of this process, so that orphans of the run become its children.
    is_above: bool,
}

/// The processor time of foreign processes during a run.
#[derive(Debug)]
pub(crate) struct ForeignUse {
    /// Ticks of a hundredth of a second.
    pub(crate) ticks: u64,
    /// The process that used most, its ended children included: `rustc (process 41)`.
    pub(crate) most: Option<String>,
}

fn named(number: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    format!("{} (process {number})", if name.trim().is_empty() { "a program" } else { name.trim() })
}

impl ForeignLoadWatch {
    pub(crate) fn start() -> Self {
        let own = std::process::id().cast_signed();
        let ours = process_list::with_descendants(|one| one.number == own);
        let parent = |number: &i32| ProcessStat::read(number).map(|stat| stat.parent);
        let above: Vec<i32> = std::iter::successors(parent(&own), parent).collect();
        let foreign = process_list::with_descendants(|_| true).into_iter();
        let foreign = foreign.filter(|number| !ours.contains(number) && *number != KTHREADD);
        let known = foreign.filter_map(|number| {
            let before = ProcessStat::read(number).filter(|stat| stat.parent != KTHREADD)?;
            Some((number, ForeignProcess { before, is_above: above.contains(&number) }))
        });
        Self(known.collect())
    }

    /// Returns the processor time that the foreign processes have used since the start of the run.
    pub(crate) fn used(&self) -> ForeignUse {
        let used = self.0.iter().filter_map(|(number, ForeignProcess { before, is_above })| {
            // another process may have the number by now
            let now = ProcessStat::read(number).filter(|now| now.started == before.started)?;
            let ended = if *is_above { 0 } else { now.children_ticks.saturating_sub(before.children_ticks) };
            Some((number, now.own_ticks.saturating_sub(before.own_ticks) + ended))
        });
        let (mut ticks, mut most) = (0, None);
        for (number, own) in used.filter(|(_, own)| *own > 0) {
            ticks += own;
            most = most.filter(|(_, most)| *most >= own).or(Some((number, own)));
        }
        ForeignUse { ticks, most: most.map(|(number, _)| named(*number)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn what_this_program_and_its_children_use_is_no_foreign_load() {
        let watch = ForeignLoadWatch::start();
        let own = std::process::id().cast_signed();
        assert!(!watch.0.contains_key(&own));
        assert!(watch.0.contains_key(&std::os::unix::process::parent_id().cast_signed()));
    }

    /// Makes a watch that treats this process as a foreign process.
    fn watch_of_this(is_above: bool) -> ForeignLoadWatch {
        let own = std::process::id().cast_signed();
        let before = ProcessStat::read(own).expect("it runs");
        ForeignLoadWatch(BTreeMap::from([(own, ForeignProcess { before, is_above })]))
    }

    #[test]
    fn what_a_stranger_uses_counts() {
        let mut watch = watch_of_this(false);
        let start = Instant::now();
        while watch.used().ticks < 3 {
            assert!(start.elapsed() < Duration::from_secs(60), "30 ms of work are seen");
        }
        let most = watch.used().most.expect("it is the only one");
        let name = std::fs::read_to_string("/proc/self/comm").expect("a name");
        assert_eq!(most, format!("{} (process {})", name.trim(), std::process::id()));
        for stranger in watch.0.values_mut() {
            stranger.before.started += 1;
        }
        assert_eq!(watch.used().ticks, 0, "another process");
    }

    #[test]
    fn what_an_ended_child_used_counts_unless_the_child_may_be_an_orphan_of_the_run() {
        let [stranger, above] = [false, true].map(watch_of_this);
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        let ended = Command::new("sh").args(["-c", busy]).status().expect("sh runs");
        assert!(ended.success());
        // the time of this process itself counts in both watches
        let (stranger, above) = (stranger.used().ticks, above.used().ticks);
        assert!(
            stranger > above + 2,
            "a loop of 200,000 rounds takes more than 20 ms: {stranger}, {above}"
        );
    }

    #[test]
    fn the_processes_above_this_one_are_known() {
        let watch = ForeignLoadWatch::start();
        let parent = std::os::unix::process::parent_id().cast_signed();
        assert!(watch.0[&parent].is_above);
        assert!(watch.0.get(&1).is_none_or(|first| first.is_above), "everything descends from init");
    }
}
