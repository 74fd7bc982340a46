//! How the programs and the broker of a measurement wait.

use serde::{Deserialize, Serialize};
use unisono_broker::ClientWait;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelWait {
    #[default]
    Sleep,
    /// Each process takes a processor.
    Spin,
}

impl ChannelWait {
    pub(crate) fn of_client(self) -> ClientWait {
        match self {
            Self::Sleep => ClientWait::Sleep,
            Self::Spin => ClientWait::Spin,
        }
    }

    /// As `--wait` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin",
        }
    }
}
