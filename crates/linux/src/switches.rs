//! The threads that ran on a processor, and since when: the kernel's own records of context switches.
//!
//! A [`Recorder`] is a perf event that counts nothing. The kernel writes a record of every context switch of
//! a processor to the event's ring buffer, with the time of the switch on the monotonic clock. The totals in
//! `/proc/TID/schedstat` do not distinguish a thread that began late from a thread that was interrupted, and
//! are as old as the last tick.
//!
//! Cost: while it records, each context switch writes two records of 32 bytes (about 0.2 us); starting and
//! stopping interrupt the processor once. The ring holds 4,000 switches. When it is full, the kernel stops
//! recording, and [`Recording::full`] is the time until which the records are complete.
//!
//! Reference: perf_event_open(2), `PERF_RECORD_SWITCH_CPU_WIDE`.

use crate::affinity::Tid;
use crate::clock::Instant;
use crate::mapping::Mapping;
use crate::shared_memory::page_size;
use rustix::mm::MapFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of the ring; a power of two.
const PAGES: usize = 64;
/// Byte offsets in the first page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// The ring counts as full once less than this is free. A record has 32 bytes, and the kernel keeps one byte
/// free.
const ROOM: usize = 64;

const SWITCH: u64 = 15;
const SWITCHED_OUT: u64 = 1 << 13;
const PREEMPTED: u64 = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchReason {
    /// The thread sleeps, or has ended.
    Asleep,
    /// The thread was still runnable.
    Preempted,
    /// The kernel recorded only the start of the next thread.
    Unknown,
}

/// At `time`, `from` stopped running on the processor and `to` started; thread 0 is the idle loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSwitch {
    /// The time of the switch, on the monotonic clock.
    pub time: Instant,
    /// The thread that ran until then.
    pub from: Tid,
    /// The reason why that thread stopped running.
    pub reason: SwitchReason,
    /// The thread that runs from then on.
    pub to: Tid,
}

/// The switches of a processor since [`Recorder::start`], in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    pub changes: Vec<ContextSwitch>,
    /// The time of the last switch before the ring became full: later switches were not recorded. `None`: the
    /// ring did not become full.
    pub full: Option<Instant>,
}

/// Records the context switches of a processor.
#[derive(Debug)]
pub struct Recorder {
    event: OwnedFd,
    ring: Mapping,
}

/// The kernel's `struct perf_event_attr`, as far as it is needed (its third version).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    unused: [u64; 5],
    stack: u32,
    clock: i32,
}

impl Recorder {
    /// Makes a recorder of this processor, not yet started. Fails with `EACCES` or `EPERM` without
    /// `CAP_PERFMON`, and with `ENOENT` or `ENOSYS` on a kernel without perf events.
    pub fn new(cpu: usize) -> io::Result<Recorder> {
        const SOFTWARE: u32 = 1;
        const DUMMY: u64 = 9;
        const THREAD_AND_TIME: u64 = 1 << 1 | 1 << 2;
        const DISABLED: u64 = 1;
        const SAMPLE_ID_ALL: u64 = 1 << 18;
        const USE_CLOCK: u64 = 1 << 25;
        const CONTEXT_SWITCH: u64 = 1 << 26;
        let attributes = PerfEventAttributes {
            kind: SOFTWARE,
            size: size_of::<PerfEventAttributes>() as u32,
            config: DUMMY,
            sample_type: THREAD_AND_TIME,
            flags: DISABLED | SAMPLE_ID_ALL | USE_CLOCK | CONTEXT_SWITCH,
            clock: libc::CLOCK_MONOTONIC,
            ..PerfEventAttributes::default()
        };
        let (anybody, no_group, close_on_exec) = (-1_i32, -1_i32, 8_u64);
        let at = &raw const attributes;
        // SAFETY: `attributes` is valid for reads of its `size`.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, at, anybody, cpu as i32, no_group, close_on_exec)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and has no other owner.
        let event = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let bytes = (PAGES + 1) * page_size();
        let ring = Mapping::shared(event.as_fd(), 0, bytes, MapFlags::empty())?;
        Ok(Recorder { event, ring })
    }

    /// Discards earlier records and starts recording.
    pub fn start(&mut self) -> io::Result<()> {
        const ENABLE: libc::c_ulong = 0x2400;
        // SYNC(ring) acquire, release: no record is read here; the kernel may overwrite all of them
        let head = self.word(HEAD).load(Ordering::Acquire);
        self.word(TAIL).store(head, Ordering::Release);
        self.order(ENABLE)
    }

    /// Stops recording. `None`: the records are invalid.
    pub fn stop(&mut self) -> io::Result<Option<Recording>> {
        const DISABLE: libc::c_ulong = 0x2401;
        self.order(DISABLE)?;
        let ring = self.ring.bytes() - page_size();
        // SYNC(ring) acquire: the kernel wrote the records before it moved the head.
        let head = self.word(HEAD).load(Ordering::Acquire);
        let tail = self.word(TAIL).load(Ordering::Relaxed);
        let words: Vec<u64> = (tail..head)
            .step_by(8)
            .map(|at| self.word(page_size() + at as usize % ring).load(Ordering::Relaxed))
            .collect();
        // SYNC(ring) release: the records are read before the kernel may overwrite them.
        self.word(TAIL).store(head, Ordering::Release);
        let full = head.wrapping_sub(tail) as usize + ROOM > ring;
        Ok(parse(&words).map(|changes| Recording {
            full: changes.last().filter(|_| full).map(|change| change.time),
            changes,
        }))
    }

    fn order(&self, what: libc::c_ulong) -> io::Result<()> {
        // SAFETY: these two requests take no argument.
        let answer = unsafe { libc::ioctl(self.event.as_raw_fd(), what as _, 0) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.ring.bytes() && offset.is_multiple_of(8), "inside the mapping");
        // SAFETY: inside the mapping, as just checked.
        let word = unsafe { self.ring.start().add(offset) }.cast::<u64>();
        // SAFETY: aligned, mapped as long as `self` lives, and shared with the kernel only through atomics.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }
}

/// Parses records; `None` if they are invalid. Skips the kernel's report of records lost before the start.
///
/// A switch normally has two records, one of the thread that stops and one of the thread that starts; each
/// names both threads. Some kernels write no record when the idle loop stops, so the record of a start
/// without the record of the stop counts as a switch, too. If both records of a switch are missing, the
/// `from` of the next change differs from the `to` of the change before it.
fn parse(words: &[u64]) -> Option<Vec<ContextSwitch>> {
    let thread = |word: u64| Tid((word >> 32) as i32);
    let mut changes = Vec::new();
    // the two threads of a switch whose second record is still to come
    let mut half = None;
    let mut rest = words;
    // a record: header (kind in 32 bits, flags in 16, length in bytes in 16), the other process and thread,
    // the own process and thread, time
    while let [header, others @ ..] = rest {
        let (kind, flags, words) = (header & 0xffff_ffff, header >> 32 & 0xffff, (header >> 51) as usize);
        match (kind, others) {
            (SWITCH, [to, from, time, ..]) if flags & SWITCHED_OUT != 0 => {
                let (from, to) = (thread(*from), thread(*to));
                let reason =
                    if flags & PREEMPTED != 0 { SwitchReason::Preempted } else { SwitchReason::Asleep };
                changes.push(ContextSwitch { time: Instant::from_nanos(*time), from, reason, to });
                half = Some((from, to));
            }
            (SWITCH, [from, to, time, ..]) => {
                let (from, to) = (thread(*from), thread(*to));
                if half.take() != Some((from, to)) {
                    // the idle loop is always runnable
                    let reason = if from.0 == 0 { SwitchReason::Preempted } else { SwitchReason::Unknown };
                    changes.push(ContextSwitch { time: Instant::from_nanos(*time), from, reason, to });
                }
            }
            _ => {}
        }
        if words == 0 {
            return None;
        }
        rest = rest.get(words..)?;
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Duration;

    fn record(kind: u64, flags: u64, other: u64, own: u64, time: u64) -> [u64; 4] {
        [kind | flags << 32 | 32 << 48, other << 32, own << 32, time]
    }

    #[test]
    fn each_switch_is_noted_once_and_other_records_are_passed_over() {
        let out = record(SWITCH, SWITCHED_OUT, 7, 3, 100);
        let into = record(SWITCH, 0, 3, 7, 101);
        let over = record(SWITCH, SWITCHED_OUT | PREEMPTED, 3, 7, 110);
        let words = [out, into, record(99, 0, 1, 2, 3), over].concat();
        let change = |time, from, reason, to| ContextSwitch {
            time: Instant::from_nanos(time),
            from: Tid(from),
            reason,
            to: Tid(to),
        };
        let expected = [change(100, 3, SwitchReason::Asleep, 7), change(110, 7, SwitchReason::Preempted, 3)];
        assert_eq!(parse(&words), Some(expected.to_vec()));
    }

    #[test]
    fn a_start_counts_where_the_kernel_records_no_end_of_the_idle_loop() {
        let into = record(SWITCH, 0, 0, 7, 101);
        let out = record(SWITCH, SWITCHED_OUT, 0, 7, 110);
        let change = |time, from, reason, to| ContextSwitch {
            time: Instant::from_nanos(time),
            from: Tid(from),
            reason,
            to: Tid(to),
        };
        let expected = [change(101, 0, SwitchReason::Preempted, 7), change(110, 7, SwitchReason::Asleep, 0)];
        assert_eq!(parse(&[into, out].concat()), Some(expected.to_vec()));
        let late = record(SWITCH, 0, 3, 7, 120);
        assert_eq!(parse(&late), Some(vec![change(120, 3, SwitchReason::Unknown, 7)]));
        let again = record(SWITCH, 0, 0, 7, 130);
        let expected = [101, 130].map(|time| change(time, 0, SwitchReason::Preempted, 7));
        assert_eq!(parse(&[into, again].concat()), Some(expected.to_vec()), "it stopped without a record");
    }

    #[test]
    fn records_with_and_without_the_ends_of_the_idle_loop_give_the_same_changes() {
        let idle_ends = record(SWITCH, SWITCHED_OUT, 7, 0, 100);
        let starts = record(SWITCH, 0, 0, 7, 100);
        let sleeps = record(SWITCH, SWITCHED_OUT, 0, 7, 110);
        let idle_starts = record(SWITCH, 0, 7, 0, 111);
        let all = [idle_ends, starts, sleeps, idle_starts, idle_ends, starts, sleeps, idle_starts].concat();
        let without_ends = [starts, sleeps, idle_starts, starts, sleeps, idle_starts].concat();
        let of_threads = [starts, sleeps, starts, sleeps].concat();
        let changes = |words: &[u64]| {
            let changes = parse(words).expect("they make sense");
            changes.into_iter().map(|c| (c.time.as_nanos(), c.from.0, c.to.0)).collect::<Vec<_>>()
        };
        let once = [(100, 0, 7), (110, 7, 0)];
        assert_eq!(changes(&all), [once, once].concat());
        assert_eq!(changes(&without_ends), changes(&all));
        assert_eq!(changes(&of_threads), changes(&all));
    }

    #[test]
    fn broken_records_are_no_answer() {
        assert_eq!(parse(&[SWITCH, 0, 0, 0]), None, "no length");
        assert_eq!(parse(&record(SWITCH, SWITCHED_OUT, 7, 3, 100)[..3]), None, "cut off");
    }

    #[test]
    fn a_thread_that_sleeps_is_seen_to_leave_and_to_come_back() {
        const SLEEP: Duration = Duration::from_millis(5);
        let cpu = crate::affinity::allowed(Tid::SELF).expect("affinity").iter().next().expect("a processor");
        // without the privilege this test checks nothing; only the host tests report what was skipped
        let Ok(mut recorder) = Recorder::new(cpu) else { return };
        let visit = move || {
            crate::affinity::restrict(Tid::SELF, &crate::affinity::CpuSet::single(cpu)).expect("affinity");
            recorder.start().expect("start");
            let before = crate::clock::now();
            crate::timer::sleep_until(before + SLEEP);
            let after = crate::clock::now();
            (recorder.stop().expect("stop"), Tid::current(), before, after)
        };
        let (recording, own, before, after) = std::thread::spawn(visit).join().expect("a thread");
        let Recording { changes, full } = recording.expect("they make sense");
        assert_eq!(full, None);
        // another thread may preempt it between the start of the recorder and the reading of the clock
        let left = changes.iter().find(|c| c.from == own && c.time >= before).expect("it left").time;
        let back = changes.iter().rfind(|c| c.to == own && c.time <= after).expect("it came back").time;
        assert!(left < back && before + SLEEP <= back, "{changes:?}");
    }

    #[test]
    fn a_ring_that_is_full_keeps_what_came_first_and_the_next_start_finds_it_empty() {
        let cpu = crate::affinity::allowed(Tid::SELF).expect("affinity").iter().next().expect("a processor");
        // without the privilege this test checks nothing; only the host tests report what was skipped
        let Ok(mut recorder) = Recorder::new(cpu) else { return };
        let visit = move || {
            crate::affinity::restrict(Tid::SELF, &crate::affinity::CpuSet::single(cpu)).expect("affinity");
            recorder.start().expect("start");
            let before = crate::clock::now();
            for _ in 0..2 * PAGES * page_size() / 64 {
                // shorter sleeps are over before they begin on an emulated processor, and switch nothing
                crate::timer::sleep_until(crate::clock::now() + Duration::from_micros(50));
            }
            let after = crate::clock::now();
            let full = recorder.stop().expect("stop").expect("they make sense");
            recorder.start().expect("start again");
            // one sleep switches nothing if the machine stands still between the two calls until it is over
            for _ in 0..20 {
                crate::timer::sleep_until(crate::clock::now() + Duration::from_millis(1));
            }
            (full, recorder.stop().expect("stop again").expect("they make sense"), before, after)
        };
        let (first, second, before, after) = std::thread::spawn(visit).join().expect("a thread");
        let full = first.full.expect("twice as many switches as fit");
        assert!(before < full && full < after && first.changes.len() > 1000, "{full:?}");
        assert_eq!(second.full, None);
        assert!(!second.changes.is_empty() && second.changes.iter().all(|change| change.time > after));
    }
}
