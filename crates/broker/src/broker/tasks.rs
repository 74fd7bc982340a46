//! The tasks that wait for the server.

use crate::task::{ClientId, Task};
use std::collections::VecDeque;
use unisono_events_wire::frame::{DELIVER_HEAD, DeliverHead, Frame};

/// The tasks that the server has not taken yet, in order.
#[derive(Debug, Default)]
pub(super) struct TaskQueue {
    waiting: VecDeque<Task>,
    /// The memory of the last head that was sent; the next head reuses it.
    spare_head: Vec<u8>,
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

    /// Returns the head of an event as bytes, in the memory of the last head that was sent.
    pub(super) fn written(&mut self, head: &DeliverHead<'_>) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.spare_head);
        bytes.clear();
        bytes.reserve(DELIVER_HEAD + 16);
        head.write(&mut bytes);
        bytes
    }

    /// Takes back the memory of a head that has been sent.
    pub(super) fn recycle(&mut self, head: Vec<u8>) {
        self.spare_head = head;
    }

    /// Sends a program a frame without a payload.
    pub(super) fn answer(&mut self, client: ClientId, frame: &Frame<'_>) {
        let mut head = Vec::new();
        frame.write(&mut head);
        self.push_back(Task::Answer { client, head, body: None });
    }
}
