//! Time limits of a study: `--smoke`, `--quick`, `--paper`.

use serde::{Deserialize, Serialize};
use unisono_text::named;

named! {
    #[derive(Default, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Profile {
        /// At most 25 seconds for all studies: shows that they work, and is no basis for conclusions.
        Smoke = "smoke",
        /// Two minutes for all studies, half a minute of them for windows.
        #[default]
        Quick = "quick",
        /// The paper's ten repetitions and longer runs.
        Paper = "paper",
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerProfile<T> {
    pub smoke: T,
    pub quick: T,
    pub paper: T,
}

impl<T> PerProfile<T> {
    pub(crate) fn value_for(&self, profile: Profile) -> &T {
        match profile {
            Profile::Smoke => &self.smoke,
            Profile::Quick => &self.quick,
            Profile::Paper => &self.paper,
        }
    }
}
