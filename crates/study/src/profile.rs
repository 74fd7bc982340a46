//! Time limits of a study: `--smoke`, `--quick`, `--paper`.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// At most 25 seconds for all studies: shows that they work, and is no basis for conclusions.
    Smoke,
    /// Two minutes for all studies, half a minute of them for windows.
    #[default]
    Quick,
    /// The paper's ten repetitions and longer runs.
    Paper,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Profile::Smoke => "smoke",
            Profile::Quick => "quick",
            Profile::Paper => "paper",
        })
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
