//! How a decision becomes true on the machine: mechanisms behind one trait.
//!
//! | mechanism | file | stops the outgoing gang by | new threads | needs | leak | when not |
//! |---|---|---|---|---|---|---|
//! | freeze | `freeze.rs` | the cgroup freezer | by themselves | groups | 0.03 %, many threads 0.1 to 0.3 % | programs that block often |
//! | sched-ext | `sched_ext/mod.rs` | a scheduler in the kernel | inherit | cgroup version 2, root, clang, Linux 7.0 with `CONFIG_SCHED_CLASS_EXT` | not measured on hardware | other programs keep the processors busy |
//! | real-time | `real_time.rs` | a more urgent incoming gang | inherit | groups, `CAP_SYS_NICE` | 0 to 5 % | other work matters |
//! | stop | `stop.rs` | SIGSTOP to its process group | by themselves | nothing | milliseconds | anything else works |
//!
//! [`recommended`] chooses and says why; `docs/decisions/` has the measurements, also of what was tried and
//! rejected (weights with a kick).
//!
//! Contract, which every mechanism mounts in `crates/host-tests/tests/mechanism.rs`: after
//! [`Mechanism::apply`] gangs that are [`Standing::Running`] make progress and those [`Standing::Waiting`]
//! make none but what the mechanism's [`Promise`] says, threads and children that are born later included.
//! Gangs that end meanwhile are no error, a gang that it does not know is one and changes nothing. A gang
//! that leaves runs freely, and where gangs can join later they wait and run as the others. After
//! [`Mechanism::release`], and when it is dropped, all make progress in the class in which they were; a
//! second release is harmless, and a released mechanism can be applied again.

mod freeze;
mod real_time;
pub mod sched_ext;
mod stop;

pub use freeze::Freeze;
pub use real_time::RealTime;
pub use sched_ext::SchedExt;
pub use stop::Stop;

use crate::arena::GangGroups;
use crate::error::{Error, Result};
use crate::gang::GangId;
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;
use unisono_linux::named::named;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Waiting,
    /// It runs where those with the right to run leave cores idle.
    Backfill,
    Running,
}

/// Whether the threads of a gang fit on the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowd {
    /// Each can have a core.
    Fits,
    /// Some queue for one.
    Queues,
}

/// Whether a gang runs only in its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnsOrRest {
    Turns,
    /// It runs whenever it likes, beside the gang whose turn it is.
    Rest,
}

/// What a mechanism can promise of a gang that waits, as far as it differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// Processor time on each core that a gang may still take after it was stopped.
    pub overrun: Duration,
    /// Part of the processor time that it gets while others keep all cores busy.
    pub leftover: f64,
    /// What becomes of cores that nobody else uses.
    pub idle: Idle,
}

/// Whether a waiting gang uses cores that nobody else uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It is stopped there too.
    Left,
    /// It runs there.
    Used,
}

/// Makes standings true. An implementation releases all gangs when it is dropped.
pub trait Mechanism: Send {
    fn kind(&self) -> MechanismKind;

    /// What gangs that wait still get.
    fn promise(&self) -> Promise;

    /// Makes the standings true, for the gangs named; gangs that are not named have ended. If the host
    /// refuses, the caller releases everybody. If a gang is unknown, nothing was changed.
    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()>;

    /// Stops the gangs that wait in these standings, shortly before they are applied: all cores are held, or
    /// soon will be, so that this takes no time from anybody. A mechanism that stops nobody does nothing. If
    /// the host refuses, the caller releases everybody.
    fn stop(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        let _ = standings;
        Ok(())
    }

    /// The gang has more or fewer threads than before.
    fn crowd(&mut self, gang: GangId, crowd: Crowd) {
        let _ = (gang, crowd);
    }

    /// The gang takes turns, or rests, from the next [`Mechanism::apply`] on.
    fn turns_or_rest(&mut self, gang: GangId, turns: TurnsOrRest) {
        let _ = (gang, turns);
    }

    /// Takes over one more gang, which runs until the next [`Mechanism::apply`]. Fails for a mechanism that
    /// has to know its gangs from the start, and if the host refuses; then nothing was changed.
    fn join(&mut self, gang: GangId, groups: &GangGroups) -> Result<()> {
        let _ = groups;
        Err(Error::Host(format!(
            "{gang} cannot join while gangs run: the mechanism {} does not do it; use freeze",
            self.kind()
        )))
    }

    /// Lets a gang go: it runs, and standings that name it are refused from now on. One that is unknown is no
    /// error.
    fn leave(&mut self, gang: GangId);

    /// Lets the gangs that are backfilled run, where those whose turn it is leave cores idle. Called shortly
    /// after each [`Mechanism::apply`], which has stopped them; a mechanism that does not backfill does
    /// nothing. If the host refuses, the caller releases everybody.
    fn lend(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        let _ = standings;
        Ok(())
    }

    /// Lets everybody run and puts classes back. If the host refuses, what the journal names can still be
    /// restored.
    fn release(&mut self) -> Result<()>;
}

/// Refuses standings of gangs that a mechanism does not know.
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
pub struct Wish {
    /// Keep everything else off the gangs' cores.
    pub isolate: bool,
    /// Do without groups.
    pub unprivileged: bool,
}

/// The mechanism to use when none was asked for, and why.
pub fn recommended(wish: Wish) -> (MechanismKind, &'static str) {
    if wish.unprivileged {
        return (
            MechanismKind::Stop,
            "the only one that needs no privilege; gangs overlap by up to milliseconds",
        );
    }
    if wish.isolate {
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
