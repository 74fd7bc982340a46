//! The report's answer about the event channel: its cost compared with that of sockets.

use crate::sentences::{Average, TopicQuestion};

pub(crate) const QUESTION: TopicQuestion = TopicQuestion {
    topic: "middleware",
    average: Average::Median,
    places: &[],
    sentences: include_str!("../templates/events.txt"),
    computed: |_, _| None,
};
