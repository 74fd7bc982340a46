//! The numbers of the paper's tables and figures, and the runs of ours to compare with each.

/// A number of the paper, and the runs of ours to compare with it.
pub(super) struct PaperLine {
    pub(super) measure: &'static str,
    pub(super) study: &'static str,
    pub(super) figure: &'static str,
    pub(super) unit: &'static str,
    pub(super) native: &'static str,
    pub(super) middleware: &'static str,
    /// The value of a parameter, in JSON, that selects the runs.
    pub(super) at: Option<(&'static str, &'static str)>,
    /// The paper's values: native, middleware, and their ratio.
    pub(super) paper: (&'static str, &'static str, &'static str),
}

impl PaperLine {
    const fn new(
        measure: &'static str,
        (study, figure, unit): (&'static str, &'static str, &'static str),
        (native, middleware): (&'static str, &'static str),
        paper: (&'static str, &'static str, &'static str),
    ) -> Self {
        Self { measure, study, figure, unit, native, middleware, at: None, paper }
    }

    const fn at(self, parameter: &'static str, value: &'static str) -> Self {
        Self { at: Some((parameter, value)), ..self }
    }
}

const SOCKET_AND_CHANNEL: (&str, &str) = ("tcp", "channel");
/// Servers with threads, as in the paper.
const IN_THREADS: (&str, &str) = ("tcp-thread", "reply-thread");
pub(super) const CONTROL: &str = "middleware-control";
const RESPONSE: (&str, &str, &str) = (CONTROL, "response_us", "us");
pub(super) const WITHOUT: &str = "false";
pub(super) const WITH: &str = "true";

pub(super) const PAPER: &[PaperLine] = &[
    PaperLine::new(
        "Table 1, null RPC on one host",
        ("middleware-rpc", "response_us", "us"),
        ("tcp", "channel-tcp"),
        ("1277 us", "4806 us", "3.8"),
    ),
    PaperLine::new(
        "Table 1, null RPC on one host, through shared memory",
        ("middleware-rpc", "response_us", "us"),
        ("tcp", "channel-shm"),
        ("1277 us", "4806 us", "3.8"),
    ),
    PaperLine::new(
        "Table 1, null RPC on one host, a thread for each request",
        ("middleware-rpc", "response_us", "us"),
        IN_THREADS,
        ("1277 us", "4806 us", "3.8"),
    ),
    PaperLine::new(
        "Table 1, null RPC over a link, a thread for each request",
        ("middleware-remote", "response_us", "us"),
        IN_THREADS,
        ("1766 us", "5436 us", "3.1"),
    ),
    PaperLine::new(
        "Table 1, null RPC over a link",
        ("middleware-remote", "response_us", "us"),
        SOCKET_AND_CHANNEL,
        ("1766 us", "5436 us", "3.1"),
    ),
    PaperLine::new(
        "Figure 5, a file for one of 15 clients",
        ("middleware-requests", "response_us", "us"),
        ("file", "file-channel"),
        ("a curve", "a curve", "about 1"),
    )
    .at("clients", "15"),
    PaperLine::new(
        "Figure 5, a computed answer for one of 15 clients",
        ("middleware-requests", "response_us", "us"),
        ("computed", "computed-channel"),
        ("a curve", "a curve", "1.18"),
    )
    .at("clients", "15"),
    PaperLine::new(
        "Table 2, delay of 1 KB",
        ("middleware-events", "one_way_us", "us"),
        ("tcp", "channel-tcp"),
        ("1279 us", "3134 us", "2.45"),
    ),
    PaperLine::new(
        "Figure 6, download of 35 MB over a link",
        ("middleware-download", "seconds_to_100_percent", "s"),
        ("remote-tcp", "remote-channel"),
        ("a curve", "a curve", "1.08"),
    ),
    PaperLine::new(
        "Figure 6, download of 35 MB on one host",
        ("middleware-download", "seconds_to_100_percent", "s"),
        ("local-tcp", "local-channel"),
        ("a curve", "a curve", "several"),
    ),
    PaperLine::new(
        "Figure 7, late rounds with 4 viewers",
        ("middleware-streaming", "late_rounds_percent", "%"),
        SOCKET_AND_CHANNEL,
        ("under 6 %", "14 %", "2.3"),
    )
    .at("clients", "4"),
    PaperLine::new(
        "Figure 7, delivery of a round to 4 viewers",
        ("middleware-streaming", "round_ms", "ms"),
        SOCKET_AND_CHANNEL,
        ("a curve", "a curve", "below 1"),
    )
    .at("clients", "4"),
    PaperLine::new(
        "Table 3, response without the sensor",
        RESPONSE,
        SOCKET_AND_CHANNEL,
        ("67.62 ms", "67.97 ms", "1.005"),
    )
    .at("sensor", WITHOUT),
    PaperLine::new(
        "Table 3, response with the sensor",
        RESPONSE,
        SOCKET_AND_CHANNEL,
        ("67.85 ms", "70.96 ms", "1.046"),
    )
    .at("sensor", WITH),
    PaperLine::new(
        "Table 3, jitter with the sensor",
        (CONTROL, "jitter_us", "us"),
        SOCKET_AND_CHANNEL,
        ("11.5 us", "444 us", "38"),
    )
    .at("sensor", WITH),
    PaperLine::new(
        "Table 4, between updates at the receiver",
        (CONTROL, "sensor_received_us", "us"),
        SOCKET_AND_CHANNEL,
        ("29.998 ms", "29.993 ms", "1.000"),
    )
    .at("sensor", WITH),
    PaperLine::new(
        "Table 4, jitter of updates at the receiver",
        (CONTROL, "sensor_received_jitter_us", "us"),
        SOCKET_AND_CHANNEL,
        ("5.7 us", "7.8 us", "1.37"),
    )
    .at("sensor", WITH),
];
