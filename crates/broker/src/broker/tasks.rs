//! The tasks that wait for the server.

use crate::task::{ClientId, Task};
use std::collections::VecDeque;
use unisono_events_wire::frame::Frame;

/// The tasks that the server has not taken yet, in order.
#[derive(Debug, Default)]
pub(super) struct TaskQueue {
    waiting: VecDeque<Task>,
    /// The memory of the last head that was sent; the next head reuses it.
    pub(super) spare_head: Vec<u8>,
}

impl TaskQueue {
    pub(super) fn push_back(&mut self, task: Task) {
        self.waiting.push_back(task);
    }

    pub(super) fn push_front(&mut self, task: Task) {
        self.waiting.push_front(task);
    }

    pub(super) fn pop_front(&mut self) -> Option<Task> {
        self.waiting.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Sends a program a frame without a payload.
    pub(super) fn answer(&mut self, client: ClientId, frame: &Frame<'_>) {
        let mut head = Vec::new();
        frame.write(&mut head);
        self.push_back(Task::Answer { client, head, body: None });
    }
}
