//! Runs several programs at a time, each with an environment and processors of its own, until all have ended.
//!
//! Unlike the ranks of a job ([`crate::run`]), these programs are independent: the failure of one does not
//! end the others. They use the terminal and the standard streams themselves, like programs that a shell
//! starts with `&`. They stay in the caller's process group, so that the terminal's keys reach them directly.
//! Signals that another process sends to the caller are passed on.
//!
//! Cost: a pidfd for each program; the caller sleeps in poll(2). When not to use it: for a single program,
//! use [`exec`]. Reference: signal(7).

use crate::error::Error;
use crate::termination::ExitOutcome;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::ignored_signals;
use unisono_linux::parent_death::end_with_starter;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{self, Family, Sender, Signal, SignalFd};

#[derive(Clone, Debug)]
pub struct Companion {
    pub command: Vec<OsString>,
    pub environment: Vec<(&'static str, String)>,
    pub cpus: CpuSet,
}

/// A running program. Its drop before the program's end kills the program.
struct StartedProgram {
    child: Child,
    process: PinnedProcess,
    ended: Option<ExitOutcome>,
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Starts the programs and waits until all have ended. Returns for each program its index in `programs` and
/// how it ended, in the order in which the programs ended. `report` receives a message for each program that
/// fails.
///
/// The calling thread must outlive the programs, and no other thread should have been started before. Fails
/// with [`Error::Program`] if a program could not be started; the programs that were started are then killed.
pub fn run(programs: &[Companion], report: impl Fn(&str)) -> Result<Vec<(usize, ExitOutcome)>, Error> {
    let signals = SignalFd::new(&Signal::FROM_OUTSIDE).map_err(Error::system("receive signals"))?;
    let allowed = affinity::allowed(Tid::SELF).map_err(Error::system("read which processors may be used"))?;
    let mut running = Vec::new();
    let started = programs.iter().try_for_each(|program| start(program).map(|one| running.push(one)));
    affinity::restrict_own(&allowed).map_err(Error::system("use all processors again"))?;
    started?;
    let mut ended = Vec::new();
    while ended.len() < running.len() {
        let mut watched = vec![signals.as_fd()];
        watched.extend(running.iter().filter(|one| one.ended.is_none()).map(|one| one.process.as_fd()));
        process::readable(&watched, None).map_err(Error::system("wait for the programs"))?;
        while let Some((signal, sender)) = signals.next() {
            pass_on(&running, signal, sender);
        }
        for (index, one) in running.iter_mut().enumerate().filter(|(_, one)| one.ended.is_none()) {
            let status = one.child.try_wait().map_err(Error::system("wait for a program"))?;
            let Some(how) = status.map(ExitOutcome::from_status) else { continue };
            one.ended = Some(how);
            ended.push((index, how));
            if how.is_failure() {
                report(&format!("{} {how}", programs[index].command[0].to_string_lossy()));
            }
        }
    }
    Ok(ended)
}

/// Replaces this process by the program (execve(2)), which keeps this process's number. Returns only if the
/// program cannot be started.
pub fn exec(program: &Companion) -> Error {
    let (mut command, doing) = match program.start() {
        Ok(started) => started,
        Err(error) => return error,
    };
    match affinity::restrict_own(&program.cpus) {
        Ok(()) => Error::start(Path::new(&program.command[0]), doing)(command.exec()),
        Err(error) => Error::system(doing)(error),
    }
}

impl Companion {
    /// Returns the command that starts the program, and a description of that step for errors.
    fn start(&self) -> Result<(Command, String), Error> {
        let [name, arguments @ ..] = &self.command[..] else {
            return Err(Error::Input("a program has no name".into()));
        };
        let mut command = Command::new(name);
        command.args(arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        ignored_signals::inherit(&mut command);
        Ok((command, format!("start {}", name.to_string_lossy())))
    }
}

fn start(program: &Companion) -> Result<StartedProgram, Error> {
    let (mut command, doing) = program.start()?;
    end_with_starter(&mut command);
    // the affinity is set before the start, because a child inherits it: so the program runs on its
    // processors from its first instruction
    affinity::restrict_own(&program.cpus).map_err(Error::system(&doing))?;
    let child = process::start(&mut command, Vec::new(), Family::Same)
        .map_err(Error::start(Path::new(&program.command[0]), doing.clone()))?;
    let process = PinnedProcess::of_child(&child).map_err(Error::system(doing))?;
    Ok(StartedProgram { child, process, ended: None })
}

fn pass_on(running: &[StartedProgram], signal: Signal, sender: Sender) {
    // a signal from the kernel (the terminal) reaches the whole process group anyway
    if sender == Sender::Process {
        for one in running.iter().filter(|one| one.ended.is_none()) {
            // a failure means that the program has ended
            let _ = one.process.send(signal);
        }
    }
    if signal == Signal::Suspend {
        process::obey(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Companion {
        Companion {
            command: ["sh", "-c", script].map(OsString::from).to_vec(),
            environment: vec![("CODE", "7".to_owned())],
            cpus: affinity::allowed(Tid::SELF).expect("own affinity"),
        }
    }

    #[test]
    fn the_programs_end_by_themselves_each_with_its_environment_and_the_first_to_fail_comes_first() {
        let programs = [shell("sleep 0.3; kill -TERM $$"), shell("exit $CODE"), shell("sleep 0.1")];
        let ended = run(&programs, |_| {}).expect("a shell is on every Linux");
        assert_eq!(
            ended,
            [(1, ExitOutcome::Exited(7)), (2, ExitOutcome::Exited(0)), (0, ExitOutcome::Signalled(15))]
        );
    }

    #[test]
    fn a_program_that_cannot_be_started_ends_the_others() {
        let missing = Companion { command: vec!["unisono-no-such-program".into()], ..shell("") };
        let error = run(&[shell("sleep 100"), missing], |_| {}).expect_err("it is not there").to_string();
        assert!(
            error.starts_with("cannot start unisono-no-such-program: there is no such program"),
            "{error}"
        );
    }

    #[test]
    fn each_program_runs_on_its_processors() {
        let all = affinity::allowed(Tid::SELF).expect("own affinity");
        let last = CpuSet::single(all.iter().next_back().expect("some processor"));
        let script = format!("test \"$(taskset -cp $$ | sed 's/.*: //')\" = {last}");
        let ended = run(&[Companion { cpus: last, ..shell(&script) }], |_| {}).expect("it starts");
        assert_eq!(ended, [(0, ExitOutcome::Exited(0))]);
        assert_eq!(affinity::allowed(Tid::SELF).expect("own affinity"), all, "ours are as before");
    }
}
