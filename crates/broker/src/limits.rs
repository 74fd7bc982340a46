//! Limits of a broker, and the cost of an event in a path's credit.

use serde::Serialize;
use unisono_eventchannel::{ChannelLimits, TenantLimits};
use unisono_linux::clock::Duration;

/// The limits of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Programs at a time.
    pub clients: usize,
    /// Programs of one user at a time.
    pub clients_of_user: usize,
    /// Suppliers of all programs together: a program is one for each topic and each path, an MQTT client is
    /// one.
    pub suppliers: usize,
    /// Subscriptions of all programs together.
    pub subscriptions: usize,
    /// Sessions of MQTT clients, connected or not.
    pub sessions: usize,
    /// Topics and paths that one program publishes on.
    pub topics: usize,
    /// Consumers of one program.
    pub consumers: usize,
    /// Interests of one consumer.
    pub interests: usize,
    /// Bytes of the largest payload.
    pub largest: u32,
    /// Bytes of the largest payload on a path: the longest message that another class may have to wait for on
    /// the link.
    pub path_largest: u32,
    /// Bytes that wait for an MQTT client's subscriptions of one QoS, or for one membership in a group.
    pub mqtt_queue: usize,
    /// The credit of a path, in bytes. An event costs its payload and [`EVENT_COST`]. The broker raises the
    /// credit to at least the cost of two of the largest events.
    ///
    /// [`EVENT_COST`]: unisono_events_wire::EVENT_COST
    pub credit: u32,
    /// Bytes of all queues, kept events, names and other structures, credit of paths and buffers of
    /// connections together.
    pub memory: u64,
    /// Bytes of `memory` that one user may have.
    pub memory_of_user: u64,
    /// Time limit for a destination that takes no bytes of a path without a program, and for the greeting of
    /// a new connection.
    pub stall_timeout: Duration,
    /// A client counts as gone when its host has not answered for this time; the broker notices that within
    /// twice this time. A program that is busy is not gone: the kernel of its host answers.
    pub peer_timeout: Duration,
}

/// A limit for people and programs to read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LimitLine {
    pub name: &'static str,
    pub value: u64,
    /// `bytes`, `s`, or empty for a number.
    pub unit: &'static str,
    /// The option of `unisono events serve` that sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option: Option<&'static str>,
    pub why: &'static str,
}

impl Limits {
    /// The maximum lateness of the broker that the link of the paths catches up on by sending the next
    /// messages sooner. With less, capacity is lost whenever the broker waits for a processor; with more, the
    /// burst afterwards is longer. Chosen by this argument, not measured.
    pub const MAX_LATENESS: Duration = Duration::from_millis(2);
    /// Maximum bytes of a frame without its payload: names, filters, fields. A topic's name takes up to 64
    /// KiB, the user properties of MQTT up to 128 KiB.
    const MAX_HEAD: usize = 256 << 10;

    /// Maximum bytes of a request frame: a subscription with all its filters. Parsing as much JSON takes
    /// about 2 ms.
    pub(crate) const REQUEST: usize = 256 << 10;
    /// Maximum bytes of the first frame: a name and a token.
    pub(crate) const GREETING: usize = 16 << 10;
    /// Maximum bytes of an MQTT CONNECT, which may hold a will of 64 KiB and its topic.
    pub(crate) const CONNECT: usize = 160 << 10;

    /// The largest payload that can be set, in bytes: a record of the log and a frame of the client library
    /// have up to 64 MiB with their heads.
    pub const MAX_PAYLOAD: u32 = (64 << 20) - (1 << 20);
    /// The number of suppliers, of consumers and of sessions for each program, in the proportion of the
    /// defaults. A program has a supplier for each of its topics. Chosen, not measured.
    const FOR_EACH_CLIENT: usize = 16;
    /// The number of subscriptions for each program, in the proportion of the defaults.
    const SUBSCRIPTIONS_FOR_EACH: usize = 256;
    /// Bytes that may wait for each program.
    const WAITING: u64 = 4 << 20;

    /// Returns the limits for this many programs at a time. The limits on suppliers, subscriptions, sessions
    /// and memory grow with the number, and are never below the defaults. One user has half of the
    /// connections and of the memory, so that others find room.
    #[must_use]
    pub fn for_clients(clients: u32) -> Self {
        let (count, usual) = (clients as usize, Self::default());
        let all = u64::from(clients) * Self::WAITING;
        Self {
            clients: count,
            clients_of_user: count.div_ceil(2),
            suppliers: usual.suppliers.max(count * Self::FOR_EACH_CLIENT),
            subscriptions: usual.subscriptions.max(count * Self::SUBSCRIPTIONS_FOR_EACH),
            sessions: usual.sessions.max(count * Self::FOR_EACH_CLIENT),
            memory: all.max(usual.memory),
            memory_of_user: (all / 2).max(usual.memory_of_user),
            ..usual
        }
    }

    /// Returns the limits of the channel. A tenant has half of each number, so that others find room.
    pub(crate) fn of_channel(&self) -> ChannelLimits {
        let usual = ChannelLimits::default();
        // a session has a consumer for each QoS that it uses, and most use one
        let consumers = usual.consumers.max(self.sessions).max(self.clients * Self::FOR_EACH_CLIENT);
        let tenant = TenantLimits {
            suppliers: self.suppliers.div_ceil(2),
            consumers: consumers.div_ceil(2),
            subscriptions: self.subscriptions.div_ceil(2),
            ..usual.tenant
        };
        let (suppliers, subscriptions) = (self.suppliers, self.subscriptions);
        ChannelLimits { payload: self.largest as usize, suppliers, consumers, subscriptions, tenant, ..usual }
    }

    /// Returns each limit with its reason and the option that sets it.
    pub fn lines(&self) -> Vec<LimitLine> {
        let channel = self.of_channel();
        let set =
            |name, (value, unit), option, why| LimitLine { name, value, unit, option: Some(option), why };
        let fixed = |name, (value, unit), why| LimitLine { name, value, unit, option: None, why };
        let many = |count: usize| (count as u64, "");
        let bytes = |count: u64| (count, "bytes");
        vec![
            set(
                "clients",
                many(self.clients),
                "--clients",
                "programs at a time; each costs descriptors and buffers",
            ),
            set(
                "clients of a user",
                many(self.clients_of_user),
                "--clients",
                "half, so that another user finds a place",
            ),
            set(
                "payload",
                bytes(self.largest.into()),
                "--max-payload",
                "of one event; a receiver holds a buffer of this size, or 14 in shared memory",
            ),
            set(
                "suppliers",
                many(self.suppliers),
                "--max-suppliers",
                "one for each topic of a program, one for an MQTT client; half for a user",
            ),
            set(
                "subscriptions",
                many(self.subscriptions),
                "--max-subscriptions",
                "each event is matched with them; half for a user",
            ),
            set(
                "sessions",
                many(self.sessions),
                "--max-sessions",
                "of MQTT, connected or away; half for a user",
            ),
            set(
                "queue of an MQTT session",
                bytes(self.mqtt_queue as u64),
                "--max-mqtt-queue",
                "events of one QoS that wait for the client",
            ),
            set(
                "memory",
                bytes(self.memory),
                "--clients",
                "queues, kept events, credit and names together; 4 MiB for each program",
            ),
            set(
                "memory of a user",
                bytes(self.memory_of_user),
                "--clients",
                "half, so that another user finds room",
            ),
            fixed("consumers", many(channel.consumers), "16 for each program, or one for each session"),
            fixed("topics", many(channel.topics), "with a name, of all programs"),
            fixed("topics of a program", many(self.topics), "a program with more is likely at fault"),
            fixed("consumers of a program", many(self.consumers), "a program with more is likely at fault"),
            fixed(
                "patterns",
                many(self.interests),
                "of one subscription; a new member of a group is compared with all",
            ),
            fixed("fields", many(channel.fields), "of one event; filters look them up"),
            fixed("history", many(channel.history), "events that one topic keeps"),
            fixed(
                "message on a path",
                bytes(self.path_largest.into()),
                "it delays another class by 1.3 ms at 100 Mbit/s",
            ),
            fixed(
                "credit of a path",
                bytes(self.credit.into()),
                "what may wait in the broker for one destination",
            ),
            fixed(
                "greeting",
                (self.stall_timeout.as_nanos() / 1_000_000_000, "s"),
                "seven repetitions of a lost packet",
            ),
        ]
    }

    /// Returns the number of bytes of the largest frame.
    pub fn largest_frame(&self) -> usize {
        self.largest as usize + Self::MAX_HEAD
    }

    /// Returns the number of bytes of the largest frame of a program whose payloads have at most `payload`
    /// bytes.
    pub(crate) fn largest_frame_for(&self, payload: usize) -> usize {
        payload.min(self.largest as usize) + Self::MAX_HEAD
    }
}

impl Default for Limits {
    /// Bounds against programs that ask for more and more. One user may have half of the places and of the
    /// memory, so that another user always finds room. A message of 16 KiB on a path delays a message of
    /// another class by 1.3 ms at 100 Mbit/s. Chosen, not measured.
    fn default() -> Self {
        Self {
            clients: 256,
            clients_of_user: 128,
            suppliers: 4096,
            subscriptions: 65_536,
            sessions: 4096,
            topics: 1024,
            consumers: 1024,
            interests: 1024,
            largest: 4 << 20,
            path_largest: 16 << 10,
            mqtt_queue: 1 << 20,
            credit: 128 << 10,
            memory: 1 << 30,
            memory_of_user: 512 << 20,
            // a connection that has lost packets tries again after 0.2, 0.4, 0.8, ... s: seven times in this
            // time
            stall_timeout: Duration::from_secs(30),
            // a plant's stand-by takes over within 10 s; one lost packet, or two, is sent again within 1 s
            peer_timeout: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_programs_have_more_of_everything_and_fewer_have_the_defaults() {
        let usual = Limits::default();
        let few = Limits::for_clients(4);
        assert_eq!((few.clients, few.clients_of_user), (4, 2));
        assert_eq!(Limits { clients: usual.clients, clients_of_user: usual.clients_of_user, ..few }, usual);
        assert_eq!(Limits::for_clients(256), usual);
        let many = Limits::for_clients(1000);
        assert_eq!((many.suppliers, many.subscriptions, many.sessions), (16_000, 256_000, 16_000));
        let channel = many.of_channel();
        assert_eq!((channel.suppliers, channel.tenant.suppliers, channel.consumers), (16_000, 8000, 16_000));
        assert_eq!(usual.of_channel(), ChannelLimits { payload: 4 << 20, ..ChannelLimits::default() });
        assert!(usual.lines().iter().all(|line| !line.why.is_empty() && line.value > 0));
    }
}
