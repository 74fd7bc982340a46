//! Null RPC between two processes of this host: the cost of an empty request and its empty answer.

use super::conversation::{ANSWER_TIMEOUT, ConversationRun, END_TIME, LEAD, PORT, START_TIME, ServerPlace};
use super::run_host::run_in_thread;
use super::{Context, Driver, DriverKind, NoResult, RunResult};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::Duration;
use unisono_events_client::ChannelWait;
use unisono_linux::clock::Instant;
use unisono_workload::conversation::{ConversationCarrier, ConversationScene, Serving};

pub(crate) const NULL_RPC: DriverKind = DriverKind::new::<NullRpcDriver>("null-rpc");

/// Expected time to open the conversation; for the progress display. An attempt that is made too early is
/// repeated after 10 ms.
const OPENING_TIME: Duration = Duration::from_millis(30);

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NullRpcDriver {
    #[serde(rename = "over")]
    carrier: ConversationCarrier,
    serving: Serving,
    /// How programs of the event channel, and its broker, wait.
    wait: ChannelWait,
    /// Whether the server and the client, and the broker if there is a third processor, have a processor
    /// each.
    pinned: bool,
}

impl Driver for NullRpcDriver {
    fn estimated_overhead(&self, _: f64) -> Duration {
        START_TIME + OPENING_TIME + LEAD + END_TIME
    }

    fn run(&self, context: Context, seconds: f64, _: u64) -> Result<RunResult, NoResult> {
        let scene = ConversationScene {
            carrier: self.carrier,
            serving: self.serving,
            server: Ipv4Addr::LOCALHOST.into(),
            broker: None,
            port: PORT,
            congestion: None,
            from: Instant::ZERO,
            until: Instant::ZERO + Duration::from_secs_f64(seconds).into(),
            rendezvous: None,
            timeout: ANSWER_TIMEOUT,
            conversations: 1,
            message_bytes: 0,
            wait: self.wait,
        };
        run_in_thread(context, "null-rpc", |host, interrupted| {
            let run = ConversationRun::prepare(host, ServerPlace::Here, self.pinned, scene, interrupted)?;
            let (figures, ()) = run.execute("null-rpc", &run.scene, LEAD, |client| client(), || Ok(()))?;
            Ok(RunResult { figures, ..RunResult::default() })
        })
    }
}
