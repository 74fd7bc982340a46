//! The options of an interposed queue, besides its policy.

use super::FramePathName;
use super::engine::EngineDiscipline;
use super::worker::WaitStrategy;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    pub device: String,
    pub way: FramePathName,
    pub choice: EngineDiscipline,
    #[serde(rename = "patience")]
    pub wait: WaitStrategy,
    /// The processor that the queue may use. `None`: any.
    pub processor: Option<usize>,
    /// For a program that [`Interposed`](super::Interposed) has started in the background: the descriptor of
    /// the journals' lock. The program ends with its starter until the policy holds.
    #[serde(skip)]
    pub lock: Option<i32>,
}

impl Options {
    pub fn at(device: &str) -> Self {
        Self { device: device.to_owned(), ..Self::default() }
    }
}
