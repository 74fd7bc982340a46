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
    /// The only processor that the queue may use.
    pub processor: Option<usize>,
    /// In a program that [`Interposed`](super::Interposed) has started in the background: the descriptor of
    /// the journals' lock. Until the policy holds, the kernel kills such a program when its starter dies.
    #[serde(skip)]
    pub lock: Option<i32>,
}

impl Options {
    pub fn at(device: &str) -> Self {
        Self { device: device.to_owned(), ..Self::default() }
    }
}
