//! Shares of processor time, `[cpu]` of a policy. They are kept either by the kernel's controller, or by the
//! scheduler that also shares links (the core).
//!
//! ```text
//!   [cpu] --> controller   weights of control groups; the kernel does the rest
//!         --> core         a process freezes and thaws control groups by turns, and charges their time
//!                 |
//!              journal + guard: however that process ends, every frozen group runs on
//! ```
//! The core schedules turns of processor time as it schedules packets: same tree, same weights, same tags.
//! Its leaves are directories of control groups. It needs no controller, only groups that can be frozen
//! (every cgroup2 since Linux 5.2), and counts all processes in a group, children included.
//!
//! When not to use the core: on several processors. One group runs at a time, so processors that the running
//! group does not use stay idle. Keep its programs on one processor (taskset, cpuset), or use the controller,
//! because that shares all processors. The core also costs a wake-up and some writes to files for each turn,
//! and a group that wakes up may have to wait for its turn.
//!
//! If the process is killed (SIGKILL), its guard lets the groups run; the guard is a second process with no
//! other task. If both are killed, the next `unisono queue` lets the groups run. This module makes no control
//! groups. Reference: Goyal, Guo, Vin, "A hierarchical CPU scheduler for multimedia operating systems" (OSDI
//! 1996); cgroups(7), `cgroup.freeze`.

mod groups;
mod keeper;
mod keeper_switch;
mod turns;

pub use groups::used;
pub(crate) use groups::{below, is_ours};
pub use keeper::{
    GroupTime, Keeper, Options, Running, check, guard, recover_all, running, serve, start_background, stop,
};
pub use keeper_switch::{KeeperSwitch, keeper_of};

use unisono_fairqueue::{Policy, Position};

pub(crate) fn place_of(policy: &Policy, cgroup: &str) -> Position {
    let named = policy.rules.iter().find(|rule| rule.matcher.cgroup.as_deref() == Some(cgroup));
    named.map(|rule| rule.at).expect("present because shares are of rules")
}
