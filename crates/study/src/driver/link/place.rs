//! The places by their names in study files, and how each is told a policy.

use super::stage::CABLE;
use crate::driver::NoOutcome;
use crate::settings::Settings;
use unisono_enforce::kernel::{Kernel, Tuning};
use unisono_fairqueue::{Backend, Policy};

/// Where the policy is enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EnforcedAt {
    /// Nowhere: the cable is a link, first in first out.
    Nowhere,
    /// Nowhere, and the cable carries what it can.
    Cable,
    Kernel,
    /// HTB as others set it up.
    KernelPlain,
    Tun,
    TunSpinning,
    AfXdp,
    AfXdpSpinning,
    /// The same way, without a scheduler.
    AfXdpFifo,
    Middleware,
}

/// All of them by name.
const NAMES: [(&str, EnforcedAt); 10] = [
    ("none", EnforcedAt::Nowhere),
    ("cable", EnforcedAt::Cable),
    ("kernel", EnforcedAt::Kernel),
    ("kernel-plain", EnforcedAt::KernelPlain),
    ("tun", EnforcedAt::Tun),
    ("tun-spin", EnforcedAt::TunSpinning),
    ("af-xdp", EnforcedAt::AfXdp),
    ("af-xdp-spin", EnforcedAt::AfXdpSpinning),
    ("af-xdp-fifo", EnforcedAt::AfXdpFifo),
    ("middleware", EnforcedAt::Middleware),
];

impl EnforcedAt {
    pub(super) fn of(settings: &Settings) -> Result<Self, NoOutcome> {
        let Some(name) = &settings.backend else { return Ok(Self::Nowhere) };
        NAMES.iter().find(|(known, _)| known == name).map(|(_, place)| *place).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            NoOutcome::Failed(format!("backend {name:?}; write one of {}", names.join(", ")))
        })
    }

    /// Whether a process of ours stands between.
    pub(super) fn is_interposed(self) -> bool {
        self.arguments(&[]).is_some() && self != Self::Kernel
    }

    /// Arguments of `unisono queue apply`. A queue that spins has a processor of its own, the last one.
    pub(super) fn arguments(self, cpus: &[usize]) -> Option<Vec<String>> {
        let words: &[&str] = match self {
            Self::Kernel => &["--backend", "kernel"],
            Self::Tun => &["--backend", "interposed", "--way", "tun"],
            Self::TunSpinning => &["--backend", "interposed", "--way", "tun", "--wait", "spin"],
            Self::AfXdp => &["--backend", "interposed", "--way", "af-xdp"],
            Self::AfXdpSpinning => &["--backend", "interposed", "--way", "af-xdp", "--wait", "spin"],
            Self::AfXdpFifo => {
                &["--backend", "interposed", "--way", "af-xdp", "--wait", "spin", "--discipline", "fifo"]
            }
            Self::Nowhere | Self::Cable | Self::KernelPlain | Self::Middleware => return None,
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

/// HTB on the cable, told no more than `tc` tells it when nobody says more.
pub(super) fn apply_plain(policy: &str) -> Result<(), NoOutcome> {
    let policy = Policy::parse(policy).map_err(|error| NoOutcome::Failed(error.to_string()))?;
    let mut kernel = Kernel::new(CABLE).tuned(Tuning::Plain);
    kernel.apply(&policy).map_err(|error| match error {
        unisono_enforce::Error::Lacks { .. } => NoOutcome::Skipped(error.to_string()),
        error => NoOutcome::Failed(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_spins_has_a_processor_of_its_own() {
        let of = |place: EnforcedAt| place.arguments(&[0, 3]).expect("it is applied");
        assert!(of(EnforcedAt::AfXdpSpinning).contains(&"--cpu=3".to_owned()));
        assert!(of(EnforcedAt::AfXdp).iter().all(|word| !word.starts_with("--cpu")));
        assert!(
            EnforcedAt::Tun.is_interposed()
                && !EnforcedAt::Kernel.is_interposed()
                && !EnforcedAt::Cable.is_interposed()
        );
    }
}
