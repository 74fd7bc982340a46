//! Shares of processor time that a process in the background keeps for the policy of a device: begun before
//! the link's policy, and undone with it.

use super::{Running, begin, end, running};
use crate::error::Error;
use std::process::Command;

/// Who keeps the shares of a device's policy.
///
/// # Errors
/// A journal cannot be read.
pub fn of(device: &str) -> Result<Option<Running>, Error> {
    Ok(running()?.into_iter().find(|running| running.device.as_deref() == Some(device)))
}

/// Shares that are kept for a device's policy from now on, and those that were before.
pub struct Keeping<'a> {
    device: &'a str,
    before: Option<Running>,
    keeper: &'a dyn Fn() -> Command,
}

impl<'a> Keeping<'a> {
    /// Has a process keep the shares of a policy, instead of those of the policy before. `keeper` makes the
    /// command of a program that calls [`serve`](super::serve) for this device and the policy that it reads
    /// from standard input. What there is to say besides the result is added to `notes`.
    ///
    /// # Errors
    /// As [`begin`]; the shares are as before.
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

    /// The link's policy did not come to hold: the shares are as before.
    ///
    /// # Errors
    /// As [`end`].
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
