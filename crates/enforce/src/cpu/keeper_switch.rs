//! A background process that keeps a policy's shares of processor time. It is started before the link's
//! policy comes into force, and stopped if that fails.

use super::{Running, running, start_background, stop};
use crate::error::Error;
use std::process::Command;

/// Returns the process that keeps the shares of a device's policy, if there is one.
pub fn keeper_of(device: &str) -> Result<Option<Running>, Error> {
    Ok(running()?.into_iter().find(|running| running.device.as_deref() == Some(device)))
}

/// A change from the process that kept the previous shares to a process that keeps the new shares.
pub struct KeeperSwitch<'a> {
    device: &'a str,
    before: Option<Running>,
    keeper: &'a dyn Fn() -> Command,
}

impl<'a> KeeperSwitch<'a> {
    /// Replaces the process that keeps the shares of the previous policy. `keeper` makes the command of a
    /// program that calls [`serve`](super::serve) and reads the policy from standard input. Remarks for the
    /// user are added to `notes`. If this fails, the shares are as before.
    pub fn start(
        device: &'a str,
        policy: &str,
        keeper: &'a dyn Fn() -> Command,
        notes: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let before = keeper_of(device)?;
        before.iter().try_for_each(stop)?;
        let keeping = Self { device, before, keeper };
        start_background(keeper(), policy).inspect_err(|_| keeping.restart_previous(notes))?;
        Ok(keeping)
    }

    /// Restores the previous shares, because the link's policy did not come into force.
    pub fn roll_back(self, notes: &mut Vec<String>) -> Result<(), Error> {
        keeper_of(self.device)?.iter().try_for_each(stop)?;
        self.restart_previous(notes);
        Ok(())
    }

    fn restart_previous(&self, notes: &mut Vec<String>) {
        if let Some(before) = &self.before
            && let Err(error) = start_background((self.keeper)(), &before.policy)
        {
            notes.push(format!("the shares of processor time of before are not kept any more: {error}"));
        }
    }
}
