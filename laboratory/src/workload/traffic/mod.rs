//! Classes of traffic over one link: bulk transfers over TCP, and small messages with their send time, over
//! plain sockets or through the broker.
//!
//! ```text
//!   send (a process a class) ----- the link under test -----> receive (one process)
//! ```
//! All processes are on one host and share its monotonic clock, so the delay of a message is one-way and
//! exact. Only arrivals between two times count. All processes know these times in advance, so no process
//! needs a stop signal. Receivers need not know how the traffic was sent.
//!
//! Cost: a thread for each connection; at 100 Mbit/s a few per cent of a processor. When not to use it: above
//! a few Gbit/s, where one process with a thread for each socket is the bottleneck.

mod receive;
mod send;

pub use receive::{SourceReceived, receive};
pub use send::{SentCount, send};

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use unisono_linux::clock::Instant;

/// The transfers of one run. All processes read it from one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scene {
    /// The start of the measured time, on the monotonic clock.
    pub from: Instant,
    pub until: Instant,
    pub receiver: IpAddr,
    /// The congestion control of all connections. `None`: the host's default.
    pub congestion: Option<String>,
    /// The broker's socket, for sources that cooperate.
    pub broker: Option<PathBuf>,
    pub sources: Vec<TrafficSource>,
}

/// The traffic of one process, in one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficSource {
    pub class: String,
    /// The receiver's port, for both transports.
    pub port: u16,
    /// The number of connections that always have data to send.
    pub flows: u32,
    pub messages_per_s: f64,
    pub message_bytes: usize,
    /// A message should arrive within this time.
    pub deadline_ms: Option<f64>,
    /// Whether the source sends its messages through the broker, if there is one.
    pub cooperates: bool,
}

impl TrafficSource {
    fn receiver(&self, scene: &Scene) -> SocketAddr {
        SocketAddr::new(scene.receiver, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::clock::Duration;

    #[test]
    fn bulk_and_messages_arrive_and_are_counted() {
        let now = unisono_linux::clock::now();
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it").port();
        let source = TrafficSource {
            class: "a".into(),
            port,
            flows: 1,
            messages_per_s: 500.0,
            message_bytes: 100,
            deadline_ms: Some(10_000.0),
            cooperates: false,
        };
        let scene = Scene {
            from: now + Duration::from_millis(200),
            until: now + Duration::from_millis(500),
            receiver: "127.0.0.1".parse().expect("an address"),
            congestion: None,
            broker: None,
            sources: vec![source],
        };
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&scene).expect("it receives"));
            let sent = send(&scene, 0).expect("it sends");
            let received = receiver.join().expect("no panic");
            assert!(received[0].bulk_bytes > 0);
            assert!(sent.messages > 10 && received[0].messages > 10, "{sent:?} {received:?}");
            assert!(received[0].messages <= sent.messages);
            let delay = received[0].delay_us.expect("delays");
            assert!(delay.min > 0.0 && received[0].late == 0, "{delay:?}");
        });
    }
}
