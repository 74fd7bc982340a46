//! A background process that keeps a policy's shares of processor time. It is started before the link's
//! policy comes into force, and stopped if that fails.

use super::{Running, begin, end, running};
use crate::error::Error;
use std::process::Command;

/// The process that keeps the shares of a device's policy.
pub fn of(device: &str) -> Result<Option<Running>, Error> {
    Ok(running()?.into_iter().find(|running| running.device.as_deref() == Some(device)))
}

/// Shares that are kept from now on, and the previous ones.
pub struct Keeping<'a> {
    device: &'a str,
    before: Option<Running>,
    keeper: &'a dyn Fn() -> Command,
}

impl<'a> Keeping<'a> {
    /// Replaces the process that keeps the shares of the previous policy. `keeper` makes the command of a
    /// program that calls [`serve`](super::serve) and reads the policy from standard input. Remarks for the
    /// user are added to `notes`. If this fails, the shares are as before.
    pub fn begin(
        device: &'a str,
        policy: &str,
        keeper: &'a dyn Fn() -> Command,
        notes: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let before = of(device)?;
        before.iter().try_for_each(end)?;
        let keeping = Self { device, before, keeper };
        begin(keeper(), policy).inspect_err(|_| keeping.begin_again(notes))?;
        Ok(keeping)
    }

    /// Restores the previous shares, because the link's policy did not come into force.
    pub fn undo(self, notes: &mut Vec<String>) -> Result<(), Error> {
        of(self.device)?.iter().try_for_each(end)?;
        self.begin_again(notes);
        Ok(())
    }

    fn begin_again(&self, notes: &mut Vec<String>) {
        if let Some(before) = &self.before
            && let Err(error) = begin((self.keeper)(), &before.policy)
        {
            notes.push(format!("the shares of processor time of before are not kept any more: {error}"));
        }
    }
}
