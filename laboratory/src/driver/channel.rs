//! Runs the event channel: deadlines under load, within this process or through a broker, and the cost of an
//! event among many subscriptions.

use crate::workload::channel::brokered;
use crate::workload::channel::deadlines::{self, ServedBy};
use crate::workload::channel::subscriptions::{self, SubscriptionKind};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use unisono_events_client::BrokerAddress;
use unisono_measure::record::Figure;
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};

pub const CHANNEL: DriverKind = DriverKind::new::<ChannelDriver>("channel");

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelDriver {
    measured: ChannelMeasure,
    /// The order in which events of a class are served.
    served_by: ServedBy,
    /// The transport between suppliers and consumers.
    through: ChannelCarrier,
    /// The kind of subscriptions.
    kind: SubscriptionKind,
    subscriptions: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ChannelMeasure {
    #[default]
    Deadlines,
    Subscriptions,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ChannelCarrier {
    /// No transport: the channel is part of their process.
    #[default]
    Nothing,
    /// A broker with Unix sockets.
    Unix,
    /// A broker with TCP connections.
    Tcp,
}

impl Driver for ChannelDriver {
    fn estimated_overhead(&self, _: f64) -> Duration {
        // the last round of video is served for up to half a second more; a subscription takes 10 us
        match self.measured {
            ChannelMeasure::Deadlines => Duration::from_millis(300),
            ChannelMeasure::Subscriptions => Duration::from_micros(u64::from(self.subscriptions) * 10),
        }
    }

    fn run(&self, context: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult> {
        let time = Duration::from_secs_f64(seconds);
        let figures = match self.measured {
            ChannelMeasure::Deadlines => {
                let address = match self.through {
                    ChannelCarrier::Nothing => None,
                    ChannelCarrier::Unix => Some(BrokerAddress::Unix(context.directory.join("deadlines"))),
                    ChannelCarrier::Tcp => {
                        Some(BrokerAddress::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
                    }
                };
                let done = match address {
                    None => deadlines::measure(self.served_by, time.into(), seed),
                    Some(address) => brokered::measure(&address, self.served_by, time.into(), seed),
                }
                .map_err(NoResult::Failed)?;
                vec![
                    Figure::new(
                        "missed_percent",
                        100.0 * done.missed as f64 / done.events.max(1) as f64,
                        "%",
                    ),
                    Figure::new("events", done.events as f64, "1"),
                ]
            }
            ChannelMeasure::Subscriptions => {
                let took = subscriptions::measure(self.kind, self.subscriptions, time);
                vec![Figure::new("ns_per_event", took.map_err(NoResult::Failed)?, "ns")]
            }
        };
        Ok(RunResult { figures, ..RunResult::default() })
    }
}
