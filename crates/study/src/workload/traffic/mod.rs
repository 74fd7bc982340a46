//! Classes of traffic over one link: bulk transfers over TCP, and small messages that carry the time at which
//! they were sent, by plain sockets or through the broker.
//!
//! ```text
//!   send (a process a class) ----- the link under test -----> receive (one process)
//! ```
//! All processes are on one host and share its monotonic clock, so the delay of a message is one-way and
//! exact. What arrives between two times is counted; all processes know these times beforehand, so nobody has
//! to be stopped. Receivers do not know how the traffic came.
//!
//! Cost: a thread for each connection; at 100 Mbit/s some per cent of a processor. When not to use it: above
//! some Gbit/s, where one process with a thread for each socket is the bottleneck.

mod receive;
mod send;

pub use receive::{SourceReceived, receive};
pub use send::{SentBy, connect, send};

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use unisono_linux::clock::Nanos;

/// What one run transfers. All processes read it from one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scene {
    /// Arrivals count from here on the monotonic clock.
    pub from: Nanos,
    pub until: Nanos,
    pub receiver: IpAddr,
    /// Of all connections. `None`: the host's own.
    pub congestion: Option<String>,
    /// The broker's socket, for sources that cooperate.
    pub broker: Option<PathBuf>,
    pub sources: Vec<TrafficSource>,
}

/// What one process sends, in one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficSource {
    pub class: String,
    /// At the receiver, for both transports.
    pub port: u16,
    /// Connections that are always full.
    pub flows: u32,
    pub messages_per_s: f64,
    pub message_bytes: usize,
    /// The time within which a message should arrive.
    pub deadline_ms: Option<f64>,
    /// Whether it sends its messages through the broker, if there is one.
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
            from: Nanos(200_000_000).after(now),
            until: Nanos(500_000_000).after(now),
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
