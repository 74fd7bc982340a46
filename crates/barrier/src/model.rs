//! What only models ask of a participant.

use crate::participant::{Participant, ParticipantStage};
use unisono_sync::RegimeAdvice;

impl Participant {
    /// Tells all adaptive members how to wait from now on, as the learner of the first does elsewhere.
    pub fn advise(&self, advice: RegimeAdvice) {
        self.group.control.regime().advise(advice);
    }

    /// Ends a participant without a word to the others, for models that end after their last episode.
    pub fn forget(mut self) {
        self.stage = ParticipantStage::Left;
    }
}
