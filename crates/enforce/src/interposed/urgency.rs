//! The worker's scheduling class: real-time, for at most half of the time.
//!
//! Frames wait while the worker has no processor; beside two busy loops, an ordinary worker lost 5 to 38 % of
//! the frames of a class that was within its share. In the real-time class it preempts ordinary threads as
//! soon as a frame arrives. The bound: a worker that has slept for less than half of a [`WINDOW`] becomes an
//! ordinary thread, with [`NICE`], until it has slept for half of a window. So in the long run it takes no
//! more than half of a processor in the real-time class, and a worker that never sleeps (`--wait spin`)
//! leaves that class after one window.
//!
//! Nothing has to be restored: the class ends with the process. If the kernel refuses the real-time class (in
//! a control group of version 1 without a real-time budget), the worker stays an ordinary thread with
//! [`NICE`]. Reference: sched(7).

use unisono_linux::clock::{Duration, Instant};
use unisono_linux::resource_limit;
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};

/// The nice value of an ordinary worker: it has about nine times the weight of a thread with nice 0. Chosen,
/// not measured.
const NICE: i32 = -10;
const ORDINARY: SchedulingPolicy = SchedulingPolicy::Other { nice: NICE, slice: None };
/// The real-time class: round robin with other threads of the least real-time priority.
const URGENT: SchedulingPolicy = SchedulingPolicy::RoundRobin(Urgency::MIN);

/// The time over which the sleep is measured. A burst of frames keeps a worker busy for less than this.
/// Chosen, not measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Enters the real-time class, and lets the worker enter it again later; call it before the worker gives up
/// root. A refusal is no error: the worker then stays in the class that it has. Without `CAP_SYS_RESOURCE` a
/// worker that has become ordinary stays ordinary.
pub(super) fn prepare() {
    let _ = resource_limit::allow_least_real_time();
    let _ = scheduling::set_own(ORDINARY, Children::Inherit);
    let _ = scheduling::set_own(URGENT, Children::Inherit);
}

/// Makes the calling thread an ordinary one, so that the worker's thread can preempt it.
pub(super) fn yield_to_frames() {
    let _ = scheduling::set_own(ORDINARY, Children::Inherit);
}

#[derive(Debug)]
pub(super) struct WorkerUrgency {
    is_urgent: bool,
    window_start: Instant,
    slept: Duration,
}

impl WorkerUrgency {
    pub(super) fn new(now: Instant) -> Self {
        Self { is_urgent: true, window_start: now, slept: Duration::ZERO }
    }

    pub(super) fn add_sleep(&mut self, time: Duration) {
        self.slept += time;
    }

    /// At the end of a window, changes the worker's class if it slept too little for its present one, or
    /// enough for the other.
    pub(super) fn end_window(&mut self, now: Instant) {
        if let Some(class) = self.next_class(now) {
            // after a refusal, the next window's end tries again
            self.is_urgent = scheduling::set_own(class, Children::Inherit).is_ok() && class == URGENT;
        }
    }

    /// Returns the class to change to, or `None` to keep the present one.
    fn next_class(&mut self, now: Instant) -> Option<SchedulingPolicy> {
        let window = now - self.window_start;
        if window < WINDOW {
            return None;
        }
        let wants_urgent = self.slept.as_nanos() >= window.as_nanos() / 2;
        (self.window_start, self.slept) = (now, Duration::ZERO);
        match (self.is_urgent, wants_urgent) {
            (false, true) => Some(URGENT),
            (true, false) => Some(ORDINARY),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_sleeps_is_urgent_and_a_busy_one_is_not() {
        let mut urgency = WorkerUrgency::new(Instant::ZERO);
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let mut window = |end, slept| {
            urgency.add_sleep(Duration::from_millis(slept));
            let class = urgency.next_class(at(end));
            urgency.is_urgent = class.map_or(urgency.is_urgent, |class| class == URGENT);
            class
        };
        assert_eq!(window(1000, 500), None, "it is urgent");
        assert_eq!(window(1500, 0), None, "within a window");
        assert_eq!(window(2000, 499), Some(ORDINARY));
        assert_eq!(window(3000, 499), None);
        assert_eq!(window(4000, 500), Some(URGENT));
        assert_eq!(window(5000, 0), Some(ORDINARY), "it never sleeps");
    }
}
