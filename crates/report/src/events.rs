//! The report's answer about the event channel: its cost compared with the cost of sockets.

use crate::sentences::{Average, TopicFigures, TopicQuestion};

pub(crate) const QUESTION: TopicQuestion = TopicQuestion {
    topic: "middleware",
    average: Average::Median,
    places: &[],
    sentences: include_str!("../templates/events.txt"),
    computed: |figures, _| Some(shared_memory(figures)),
};

/// Returns the figure of shared memory, which programs of one host use unless they are told otherwise; empty
/// if it was not measured.
fn shared_memory(figures: TopicFigures<'_>) -> String {
    let ratio = figures.value("channel-shm/tcp.response_us");
    ratio.map_or_else(String::new, |ratio| format!(", and {ratio:.2} times through shared memory"))
}
