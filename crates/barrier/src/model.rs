//! Methods of a participant for loom models only.

use crate::participant::{Participant, ParticipantStage};
use unisono_sync::RegimeAdvice;

impl Participant {
    /// Sets the wait mode of all adaptive members, in place of the learner.
    pub fn advise(&self, advice: RegimeAdvice) {
        self.group.control.regime().advise(advice);
    }

    /// Drops a participant without telling the others, for models that end after their last episode.
    pub fn forget(mut self) {
        self.stage = ParticipantStage::Left;
    }
}
