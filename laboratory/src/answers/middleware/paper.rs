//! The numbers of the paper's tables and figures, and our runs to compare with each.

use unisono_measure::Selector;

/// A number of the paper, and our runs to compare with it.
pub(super) struct PaperLine {
    pub(super) measure: &'static str,
    pub(super) study: &'static str,
    /// The selector of our values: the ratio of middleware to native.
    compare: &'static str,
    pub(super) unit: &'static str,
    /// The paper's values: native, middleware, and their ratio.
    pub(super) paper: [&'static str; 3],
}

impl PaperLine {
    const fn new(
        measure: &'static str,
        study: &'static str,
        compare: &'static str,
        unit: &'static str,
        paper: [&'static str; 3],
    ) -> Self {
        Self { measure, study, compare, unit, paper }
    }

    pub(super) fn selector(&self) -> Option<Selector> {
        self.compare.parse().ok()
    }
}

pub(super) const CONTROL: &str = "middleware-control";

pub(super) const PAPER: &[PaperLine] = &[
    PaperLine::new(
        "Table 1, null RPC on one host",
        "middleware-rpc",
        "channel-tcp/tcp.response_us",
        "us",
        ["1277 us", "4806 us", "3.8"],
    ),
    PaperLine::new(
        "Table 1, null RPC on one host, through shared memory",
        "middleware-rpc",
        "channel-shm/tcp.response_us",
        "us",
        ["1277 us", "4806 us", "3.8"],
    ),
    PaperLine::new(
        "Table 1, null RPC on one host, a thread for each request",
        "middleware-rpc",
        "reply-thread/tcp-thread.response_us",
        "us",
        ["1277 us", "4806 us", "3.8"],
    ),
    PaperLine::new(
        "Table 1, null RPC over a link, a thread for each request",
        "middleware-remote",
        "reply-thread/tcp-thread.response_us",
        "us",
        ["1766 us", "5436 us", "3.1"],
    ),
    PaperLine::new(
        "Table 1, null RPC over a link",
        "middleware-remote",
        "channel/tcp.response_us",
        "us",
        ["1766 us", "5436 us", "3.1"],
    ),
    PaperLine::new(
        "Figure 5, a file for one of 15 clients",
        "middleware-requests",
        "file-channel/file.response_us@clients=15",
        "us",
        ["a curve", "a curve", "about 1"],
    ),
    PaperLine::new(
        "Figure 5, a computed answer for one of 15 clients",
        "middleware-requests",
        "computed-channel/computed.response_us@clients=15",
        "us",
        ["a curve", "a curve", "1.18"],
    ),
    PaperLine::new(
        "Table 2, delay of 1 KB",
        "middleware-events",
        "channel-tcp/tcp.one_way_us",
        "us",
        ["1279 us", "3134 us", "2.45"],
    ),
    PaperLine::new(
        "Figure 6, download of 35 MB over a link",
        "middleware-download",
        "remote-channel/remote-tcp.seconds_to_100_percent",
        "s",
        ["a curve", "a curve", "1.08"],
    ),
    PaperLine::new(
        "Figure 6, download of 35 MB on one host",
        "middleware-download",
        "local-channel/local-tcp.seconds_to_100_percent",
        "s",
        ["a curve", "a curve", "several"],
    ),
    PaperLine::new(
        "Figure 7, late rounds with 4 viewers",
        "middleware-streaming",
        "channel/tcp.late_rounds_percent@clients=4",
        "%",
        ["under 6 %", "14 %", "2.3"],
    ),
    PaperLine::new(
        "Figure 7, delivery of a round to 4 viewers",
        "middleware-streaming",
        "channel/tcp.round_ms@clients=4",
        "ms",
        ["a curve", "a curve", "below 1"],
    ),
    PaperLine::new(
        "Table 3, response without the sensor",
        CONTROL,
        "channel/tcp.response_us@sensor=false",
        "us",
        ["67.62 ms", "67.97 ms", "1.005"],
    ),
    PaperLine::new(
        "Table 3, response with the sensor",
        CONTROL,
        "channel/tcp.response_us@sensor=true",
        "us",
        ["67.85 ms", "70.96 ms", "1.046"],
    ),
    PaperLine::new(
        "Table 3, jitter with the sensor",
        CONTROL,
        "channel/tcp.jitter_us@sensor=true",
        "us",
        ["11.5 us", "444 us", "38"],
    ),
    PaperLine::new(
        "Table 4, between updates at the receiver",
        CONTROL,
        "channel/tcp.sensor_received_us@sensor=true",
        "us",
        ["29.998 ms", "29.993 ms", "1.000"],
    ),
    PaperLine::new(
        "Table 4, jitter of updates at the receiver",
        CONTROL,
        "channel/tcp.sensor_received_jitter_us@sensor=true",
        "us",
        ["5.7 us", "7.8 us", "1.37"],
    ),
];

#[cfg(test)]
mod tests {
    use super::PAPER;

    #[test]
    fn each_line_compares_two_variants() {
        for line in PAPER {
            assert!(line.selector().is_some_and(|of| of.against.is_some()), "{}", line.measure);
        }
    }
}
