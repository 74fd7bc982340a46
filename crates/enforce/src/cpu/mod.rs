//! Shares of processor time, `[cpu]` of a policy: kept by the kernel's controller, or by the core that shares
//! links.
//!
//! ```text
//!   [cpu] --> controller   weights of control groups; the kernel does the rest
//!         --> core         a process stops and continues control groups by turns, and charges what they used
//!                 |
//!              journal + guard: whoever is stopped runs on when that process ends, however it ends
//! ```
//! The core takes quanta for packets: the same tree, weights and tags, on directories of control groups as
//! the kernel's controller sees them. It needs no controller, only groups that can be frozen (every cgroup2
//! since Linux 5.2), and counts whatever runs in them, children included.
//!
//! Its processor is one: groups take turns, so that of several processors those idle that the group whose
//! turn it is does not use. Keep its programs on one (taskset, cpuset), or take the controller, which shares
//! all. Beside the controller it also costs a wake-up and some writes a quantum, and a group that wakes up
//! may wait for one.
//!
//! Whoever is killed with SIGKILL leaves its groups to the guard, a process of its own that waits for just
//! that; were both killed, the next `unisono queue` lets them run. No control group is made here. Reference:
//! Goyal, Guo, Vin, "A hierarchical CPU scheduler for multimedia operating systems" (OSDI 1996); cgroups(7),
//! `cgroup.freeze`.

mod background;
pub(crate) mod controller;
mod groups;
mod keep;
mod turns;

pub use background::{Keeping, of};
pub(crate) use groups::below;
pub use groups::used;
pub use keep::{GroupTime, Keeper, Options, Running, begin, check, end, guard, running, serve, settle};

use unisono_fairqueue::{Policy, Position};

/// Where a policy names a control group.
fn place_of(policy: &Policy, cgroup: &str) -> Position {
    let named = policy.rules.iter().find(|rule| rule.matcher.cgroup.as_deref() == Some(cgroup));
    named.map(|rule| rule.at).expect("present because shares are of rules")
}
