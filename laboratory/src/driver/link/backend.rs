//! The backends by their names in study files, and how each of them gets a policy.

use crate::driver::stage::CABLE;
use serde::{Deserialize, Serialize};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use unisono_enforce::kernel::{Kernel, Tuning};
use unisono_enforce::{Backend as _, Blame};
use unisono_fairqueue::Policy;
use unisono_study::child::{self, ChildError, StudyChild};
use unisono_study::driver::NoResult;
use unisono_study::driver::run_host::RunHost;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::driver) enum PolicyBackend {
    /// No policy: the cable itself has the link's rate, first in first out.
    #[default]
    #[serde(rename = "none")]
    NoPolicy,
    /// No policy and no rate.
    Cable,
    Kernel,
    /// Unisono's own queueing discipline, a BPF program; needs a newer kernel.
    KernelBpf,
    /// HTB with the defaults of `tc`.
    KernelPlain,
    Tun,
    #[serde(rename = "tun-spin")]
    TunSpinning,
    AfXdp,
    #[serde(rename = "af-xdp-spin")]
    AfXdpSpinning,
    /// AF_XDP without a scheduler.
    AfXdpFifo,
    Middleware,
}

impl PolicyBackend {
    /// Returns whether a process of Unisono is between the program and the device.
    pub(super) fn is_interposed(self) -> bool {
        self.arguments(&[]).is_some() && !matches!(self, Self::Kernel | Self::KernelBpf)
    }

    /// Returns the arguments of `unisono queue apply`, or `None` if it is not used. A queue that spins gets a
    /// processor of its own, the last one.
    pub(super) fn arguments(self, cpus: &[usize]) -> Option<Vec<String>> {
        let words: &[&str] = match self {
            Self::Kernel => &["--backend", "kernel"],
            Self::KernelBpf => &["--backend", "kernel", "--kernel-queue", "bpf"],
            Self::Tun => &["--backend", "interposed", "--way", "tun"],
            Self::TunSpinning => &["--backend", "interposed", "--way", "tun", "--wait", "spin"],
            Self::AfXdp => &["--backend", "interposed", "--way", "af-xdp"],
            Self::AfXdpSpinning => &["--backend", "interposed", "--way", "af-xdp", "--wait", "spin"],
            Self::AfXdpFifo => {
                &["--backend", "interposed", "--way", "af-xdp", "--wait", "spin", "--discipline", "fifo"]
            }
            Self::NoPolicy | Self::Cable | Self::KernelPlain | Self::Middleware => return None,
        };
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        if let Some(cpu) = cpus.last()
            && words.iter().any(|word| word == "spin")
        {
            words.push(format!("--cpu={cpu}"));
        }
        Some(words)
    }
}

/// Applies HTB to the cable, with the defaults of `tc`.
pub(super) fn apply_plain_htb(policy: &str) -> Result<(), NoResult> {
    let policy = Policy::parse(policy).map_err(|error| NoResult::Failed(error.to_string()))?;
    let mut kernel = Kernel::new(CABLE).with_tuning(Tuning::Plain);
    kernel.apply(&policy).map_err(|error| match error.blame() {
        Blame::Host => NoResult::Skipped(error.to_string()),
        _ => NoResult::Failed(error.to_string()),
    })
}

/// A policy that is enforced until this value is dropped.
pub(in crate::driver) struct AppliedPolicy(Option<Command>);

impl AppliedPolicy {
    /// Enforces the policy, if the backend works on this host's device.
    pub(in crate::driver) fn apply(
        host: &RunHost<'_>,
        backend: PolicyBackend,
        policy: &str,
        interrupted: child::Interrupted,
    ) -> Result<Self, NoResult> {
        if backend == PolicyBackend::KernelPlain {
            apply_plain_htb(policy)?;
        } else if let Some(arguments) = backend.arguments(host.cpus) {
            let mut command = host.unisono(&["queue", "apply"]);
            command.arg(host.files.write("policy.toml", policy)?).args(arguments);
            command.args(["--dev", CABLE]);
            child::wait_all(&mut [StudyChild::start(command)?], Duration::from_secs(20), interrupted)?;
        } else {
            return Ok(Self(None));
        }
        Ok(Self(Some(host.unisono(&["queue", "clear", "--dev", CABLE]))))
    }

    pub(in crate::driver) fn clear(&mut self, interrupted: child::Interrupted) -> Result<(), NoResult> {
        let Some(command) = self.0.take() else { return Ok(()) };
        Ok(child::wait_all(&mut [StudyChild::start(command)?], Duration::from_secs(20), interrupted)?)
    }
}

/// The time for the guard to listen. A busy machine may take seconds to start a program.
const GUARD_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts the guard that gives sockets weights of their own in the policies in force, and waits until it
/// listens at `socket`.
pub(in crate::driver) fn start_guard(
    host: &RunHost<'_>,
    socket: &Path,
    interrupted: child::Interrupted,
) -> Result<StudyChild, NoResult> {
    let mut command = host.unisono(&["queue", "guard", "--listen"]);
    command.arg(socket);
    let mut guard = StudyChild::start(command)?;
    let give_up_at = Instant::now() + GUARD_TIMEOUT;
    while let Err(error) = UnixStream::connect(socket) {
        if let Some(signal) = interrupted() {
            return Err(ChildError::Interrupted(signal).into());
        }
        if let Some(failed) = guard.failure() {
            return Err(failed.into());
        }
        if Instant::now() > give_up_at {
            return Err(NoResult::Failed(format!("the guard of sockets does not listen: {error}")));
        }
        std::thread::sleep(child::POLL_INTERVAL);
    }
    Ok(guard)
}

impl Drop for AppliedPolicy {
    fn drop(&mut self) {
        // errors are ignored: an earlier failure of the run has been reported already
        let _ = self.clear(&|| None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_spins_has_a_processor_of_its_own() {
        let arguments_of = |backend: PolicyBackend| backend.arguments(&[0, 3]).expect("it is applied");
        assert!(arguments_of(PolicyBackend::AfXdpSpinning).contains(&"--cpu=3".to_owned()));
        assert!(arguments_of(PolicyBackend::AfXdp).iter().all(|word| !word.starts_with("--cpu")));
        assert!(
            PolicyBackend::Tun.is_interposed()
                && !PolicyBackend::Kernel.is_interposed()
                && !PolicyBackend::KernelBpf.is_interposed()
                && !PolicyBackend::Cable.is_interposed()
        );
    }
}
