//! Mechanisms, behind one trait: they stop gangs and let them run on this machine.
//!
//! | mechanism | file | stops the outgoing gang by | new threads | needs | leak | when not |
//! |---|---|---|---|---|---|---|
//! | freeze | `freeze.rs` | the cgroup freezer | by themselves | groups | 0.03 %, many threads 0.1 to 0.3 % | programs that block often |
//! | sched-ext | `sched_ext/mod.rs` | a scheduler in the kernel | inherit | cgroup version 2, root, clang, Linux 7.0 with `CONFIG_SCHED_CLASS_EXT` | not measured on hardware | other programs keep the processors busy |
//! | real-time | `real_time.rs` | a more urgent incoming gang | inherit | groups, `CAP_SYS_NICE` | 0 to 5 % | other work matters |
//! | stop | `stop.rs` | SIGSTOP to its process group | by themselves | nothing | milliseconds | anything else works |
//!
//! [`recommended`] chooses and gives the reason; `docs/decisions/` has the measurements, also of rejected
//! mechanisms (weights with a kick).
//!
//! The contract, which `host-tests/tests/mechanism.rs` tests for every mechanism: after [`Mechanism::apply`],
//! gangs that are [`Standing::Running`] make progress, and gangs that are [`Standing::Waiting`] make none
//! beyond the mechanism's [`Promise`], threads and children born later included. A gang that ends meanwhile
//! is no error. An unknown gang is an error, and then no standing has changed. A gang that leaves runs
//! freely; where gangs can join later, they wait and run as the others do. After [`Mechanism::release`], and
//! after a drop, all gangs make progress in their original scheduling class; a second release is harmless,
//! and a released mechanism can be applied again.

mod freeze;
mod real_time;
pub mod sched_ext;
mod stop;

pub use freeze::Freeze;
pub use real_time::RealTime;
pub use sched_ext::SchedExt;
pub use stop::Stop;

use crate::cgroups::GangGroups;
use crate::error::{Error, Result};
use crate::gang::GangId;
use serde::Serialize;
use std::str::FromStr;
use unisono_linux::clock::Duration;
use unisono_text::named;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Waiting,
    /// The gang runs where the gangs with the right to run leave cores idle.
    Backfill,
    Running,
}

/// Whether the threads of a gang fit on the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Each thread can have a core.
    Fits,
    /// Some threads queue for a core.
    Queues,
}

/// Whether a gang runs only in its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnsOrRest {
    Turns,
    /// The gang runs at any time, beside the gang whose turn it is.
    Rest,
}

/// The guarantees of a mechanism about a waiting gang, as far as mechanisms differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Maximum processor time on each core that a gang may still use after it was stopped.
    pub overrun: Duration,
    /// Part of the processor time that the gang gets while other programs keep all cores busy.
    pub leftover: f64,
    /// The use of cores that are idle otherwise.
    pub idle: Idle,
}

/// Whether a waiting gang uses cores that are idle otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The gang is stopped on these cores, too.
    Left,
    /// The gang runs on these cores.
    Used,
}

/// Enforces standings. An implementation releases all gangs when it is dropped.
pub trait Mechanism: Send {
    fn kind(&self) -> MechanismKind;

    /// Returns the processor time that waiting gangs still get.
    fn promise(&self) -> Promise;

    /// Enforces the standings of the named gangs; gangs that are not named have ended. If the host refuses,
    /// the caller releases all gangs. If a gang is unknown, no standing has changed.
    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()>;

    /// Stops the gangs that wait in these standings, shortly before they are applied: all cores are held, or
    /// soon will be, so that this takes no time from any gang. A mechanism that stops no gang does nothing.
    /// If the host refuses, the caller releases all gangs.
    fn stop(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        let _ = standings;
        Ok(())
    }

    /// Tells the mechanism whether the gang's threads fit on the cores, after their number has changed.
    fn fit(&mut self, gang: GangId, fit: Fit) {
        let _ = (gang, fit);
    }

    /// Sets whether the gang takes turns or rests, from the next [`Mechanism::apply`] on.
    fn set_turns_or_rest(&mut self, gang: GangId, turns: TurnsOrRest) {
        let _ = (gang, turns);
    }

    /// Adds one more gang, which runs until the next [`Mechanism::apply`]. Fails for a mechanism that has to
    /// know its gangs from the start, and if the host refuses; then nothing has changed.
    fn join(&mut self, gang: GangId, groups: &GangGroups) -> Result<()> {
        let _ = groups;
        Err(Error::Host(format!(
            "{gang} cannot join while gangs run: the mechanism {} does not do it; use freeze",
            self.kind()
        )))
    }

    /// Stops controlling a gang: the gang runs freely, and standings that name it are refused from now on. An
    /// unknown gang is no error.
    fn remove(&mut self, gang: GangId);

    /// Lets the backfilled gangs run where the gangs whose turn it is leave cores idle. Called shortly after
    /// each [`Mechanism::apply`], which has stopped them; a mechanism that does not backfill does nothing. If
    /// the host refuses, the caller releases all gangs.
    fn lend(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        let _ = standings;
        Ok(())
    }

    /// Lets all gangs run and restores their scheduling classes. If the host refuses, the changes in the
    /// journal can still be restored.
    fn release(&mut self) -> Result<()>;
}

/// Refuses standings of gangs unknown to a mechanism.
fn known(standings: &[(GangId, Standing)], is_known: impl Fn(GangId) -> bool) -> Result<()> {
    match standings.iter().find(|(gang, _)| !is_known(*gang)) {
        Some((gang, _)) => Err(Error::Input(format!("{gang} is unknown to this mechanism"))),
        None => Ok(()),
    }
}

named! {
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum MechanismKind {
        /// The cgroup freezer.
        Freeze = "freeze",
        RealTime = "real-time",
        /// A scheduler in the kernel, made of BPF programs.
        SchedExt = "sched-ext",
        Stop = "stop",
    }
}

impl FromStr for MechanismKind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| {
            format!("{text:?} is not a mechanism; choose auto, freeze, real-time, sched-ext or stop")
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MechanismRequest {
    /// Keep all other programs off the gangs' cores.
    pub isolate: bool,
    /// Use no control groups.
    pub unprivileged: bool,
}

/// Returns the mechanism to use when the user asked for none, and the reason.
pub fn recommended(request: MechanismRequest) -> (MechanismKind, &'static str) {
    if request.unprivileged {
        return (
            MechanismKind::Stop,
            "the only one that needs no privilege; gangs overlap by up to milliseconds",
        );
    }
    if request.isolate {
        return (
            MechanismKind::RealTime,
            "nothing else runs on the gangs' cores beyond the real-time reserve",
        );
    }
    (MechanismKind::Freeze, "catches every thread and gives idle cores to the next gang")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in MechanismKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("weights".parse::<MechanismKind>().is_err());
    }
}
