//! Detects whether the traffic of a host passes the policy that was applied to it. A policy at the wrong
//! device, or for the wrong direction, has no effect, and its table does not show that.

use super::units;
use std::time::{Duration, Instant};
use unisono_enforce::journal::LinkSide;
use unisono_fairqueue::{Live, TrafficDirection};
use unisono_linux::device_traffic::DeviceTraffic;

/// The time for which traffic is watched before it is judged. Chosen, not measured: longer than the pauses of
/// a bulk transfer.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Traffic that does not pass the policy is reported if it is at least this multiple of the traffic that
/// does. Chosen, not measured: acknowledgments are a fortieth of the data, and the two directions of balanced
/// traffic differ by less.
const FACTOR: f64 = 4.0;
/// Traffic below this part of the policy's rate is not reported, and a device with less traffic counts as
/// idle.
const IDLE: f64 = 0.01;

/// The counters of the devices and policies at the start of the window.
pub(super) struct PassageWatch {
    began: Instant,
    devices: Vec<DeviceTraffic>,
    seen: Vec<f64>,
}

/// The traffic that passed a policy, in bits per second, and the place where more passed.
#[derive(serde::Serialize)]
pub(super) struct Passage {
    seconds: f64,
    #[serde(skip)]
    side: Option<LinkSide>,
    seen: f64,
    pub(super) unseen: Option<UnseenTraffic>,
}

/// The device and direction with the most traffic that passes no policy.
#[derive(Debug, PartialEq, serde::Serialize)]
pub(super) struct UnseenTraffic {
    device: String,
    direction: TrafficDirection,
    rate: f64,
}

impl PassageWatch {
    /// Reads the counters at the start. On a host that hides its counters the list of devices is empty, so
    /// nothing is reported.
    pub(super) fn start(lives: &[&Live]) -> Self {
        Self {
            began: Instant::now(),
            devices: DeviceTraffic::read_all().unwrap_or_default(),
            seen: lives.iter().map(|live| seen(live)).collect(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.began.elapsed() >= WINDOW
    }

    /// Returns the passage of each policy since the start, in the order of `lives`.
    pub(super) fn judge(&self, lives: &[&Live]) -> Vec<Passage> {
        let devices = DeviceTraffic::read_all().unwrap_or_default();
        let rates = rates(&self.devices, &devices, self.began.elapsed());
        let governed: Vec<LinkSide> = lives.iter().map(|live| side(live)).collect();
        let passages = lives.iter().zip(&self.seen).map(|(live, before)| {
            let seconds = self.began.elapsed().as_secs_f64();
            let seen = (seen(live) - before).max(0.0) * 8.0 / seconds;
            let limit = live.rate.bits_per_second() as f64;
            let side = side(live);
            let unseen = unseen(&side, seen, limit, &rates, &governed);
            Passage { seconds, side: Some(side), seen, unseen }
        });
        passages.collect()
    }
}

impl Passage {
    /// Says how much traffic passed the policy, and where more passes.
    pub(super) fn in_words(&self) -> String {
        let Some(side) = &self.side else { return String::new() };
        let (seconds, seen) = (self.seconds, per_second(self.seen));
        let Some(UnseenTraffic { device, direction, rate }) = &self.unseen else {
            return format!("in the last {seconds:.0} s {seen} passed the policy of {side}");
        };
        let verb = if *direction == TrafficDirection::In { "received" } else { "sent" };
        let way = if *direction == TrafficDirection::In { " --direction in" } else { "" };
        let rate = per_second(*rate);
        if *device == side.device && *direction == side.direction {
            return format!(
                "most traffic of {device} is not seen: in the last {seconds:.0} s it {verb} {rate}, and the policy saw \
                 {seen}; another queueing discipline may be in its place: tc qdisc show dev {device}"
            );
        }
        if *device == side.device {
            let peer = if way.is_empty() { "" } else { ", or apply it to the device that sends the packets" };
            return format!(
                "most traffic of {device} is not seen: in the last {seconds:.0} s it {verb} {rate}, and the policy is for \
                 the other direction ({seen}); try: unisono queue apply POLICY --dev {device}{way}{peer}"
            );
        }
        format!(
            "hardly any traffic passes {side}: {seen} in the last {seconds:.0} s, while {device} {verb} {rate}; is it the \
             device? unisono queue apply POLICY --dev {device}{way}"
        )
    }
}

/// A rate within a sentence; the columns of tables leave the "/s" out, as tc(8) does.
fn per_second(bits: f64) -> String {
    format!("{}/s", units::rate(bits))
}

fn side(live: &Live) -> LinkSide {
    LinkSide { device: live.device.clone(), direction: live.direction }
}

/// Returns the number of bytes that arrived at the classes of a policy. The kernel counts dropped packets
/// without their bytes, so each is counted with the mean size of the others.
fn seen(live: &Live) -> f64 {
    let outermost = live.classes.iter().filter(|class| class.parent.is_none());
    let bytes = outermost.map(|class| {
        let dropped = class.dropped as f64 / (class.packets.max(1)) as f64;
        class.bytes as f64 * (1.0 + dropped)
    });
    bytes.sum()
}

/// Returns the rate of each device in each direction, in bits per second.
fn rates(before: &[DeviceTraffic], now: &[DeviceTraffic], passed: Duration) -> Vec<(LinkSide, f64)> {
    let pairs =
        now.iter().filter_map(|now| Some((now, before.iter().find(|before| before.name == now.name)?)));
    let rates = pairs.flat_map(|(now, before)| {
        let side = |direction| LinkSide { device: now.name.clone(), direction };
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 * 8.0 / passed.as_secs_f64();
        [
            (side(TrafficDirection::Out), rate(before.sent_bytes, now.sent_bytes)),
            (side(TrafficDirection::In), rate(before.received_bytes, now.received_bytes)),
        ]
    });
    rates.collect()
}

/// Returns the greatest traffic that does not pass the policy, if it is [`FACTOR`] times the traffic that
/// does: of the same device, and also of other devices if the policy's traffic is idle. The loopback device,
/// this program's own devices, and other directions with a policy do not count.
fn unseen(
    side: &LinkSide,
    seen: f64,
    limit: f64,
    rates: &[(LinkSide, f64)],
    governed: &[LinkSide],
) -> Option<UnseenTraffic> {
    let is_idle = seen < limit * IDLE;
    let counts = |other: &LinkSide| {
        let is_own = *other == *side;
        let is_near = other.device == side.device || is_idle;
        let is_other = other.device != "lo" && !other.device.starts_with("ifb-u");
        is_near && is_other && (is_own || !governed.contains(other))
    };
    let least = (seen * FACTOR).max(limit * IDLE);
    let most = rates.iter().filter(|(other, rate)| *rate >= least && counts(other));
    // if two devices carry the same traffic, as a bridge and its port do, the policy's own device is
    // preferred
    let most = most.max_by(|(left, a), (right, b)| {
        let near = |other: &LinkSide| other.device == side.device;
        near(left).cmp(&near(right)).then(a.total_cmp(b))
    });
    most.map(|(other, rate)| UnseenTraffic {
        device: other.device.clone(),
        direction: other.direction,
        rate: *rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use TrafficDirection::{In, Out};

    fn at(device: &str, direction: TrafficDirection) -> LinkSide {
        LinkSide { device: device.to_owned(), direction }
    }

    /// Returns the words about a policy of 100 mbit for the packets that eth0 sends.
    fn words(seen: f64, rates: &[(LinkSide, f64)], governed: &[LinkSide]) -> Option<String> {
        let side = at("eth0", Out);
        let unseen = Some(unseen(&side, seen, 1e8, rates, governed)?);
        Some(Passage { seconds: 10.0, side: Some(side), seen, unseen }.in_words())
    }

    #[test]
    fn a_policy_for_the_wrong_direction_is_told_where_the_traffic_passes() {
        let rates = [(at("eth0", Out), 133e3), (at("eth0", In), 417e6)];
        let said = words(133e3, &rates, &[]).expect("most traffic is not seen");
        assert_eq!(
            said,
            "most traffic of eth0 is not seen: in the last 10 s it received 417 mbit/s, and the policy is for the other \
             direction (133 kbit/s); try: unisono queue apply POLICY --dev eth0 --direction in, or apply it to the device \
             that sends the packets"
        );
        assert_eq!(words(133e3, &rates, &[at("eth0", In)]), None, "the other direction has a policy");
        assert_eq!(words(50e6, &[(at("eth0", In), 90e6)], &[]), None, "balanced traffic");
    }

    #[test]
    fn a_policy_at_the_wrong_device_is_told_the_device_that_is_busy() {
        let rates = [
            (at("eth0", Out), 1e3),
            (at("lo", Out), 9e9),
            (at("ifb-u3", Out), 9e8),
            (at("eth1", Out), 417e6),
        ];
        let said = words(1e3, &rates, &[]).expect("most traffic is not seen");
        assert_eq!(
            said,
            "hardly any traffic passes eth0: 1.0 kbit/s in the last 10 s, while eth1 sent 417 mbit/s; is it the device? \
             unisono queue apply POLICY --dev eth1"
        );
        assert_eq!(words(20e6, &rates, &[]), None, "a device that is used has its own traffic");
        assert_eq!(words(1e3, &[(at("eth1", Out), 5e5)], &[]), None, "nothing passes anywhere");
    }

    #[test]
    fn traffic_that_passes_by_the_policy_of_its_own_device_is_reported() {
        let said = words(1e3, &[(at("eth0", Out), 417e6)], &[at("eth0", Out)]).expect("it is not seen");
        assert!(
            said.contains("sent 417 mbit/s, and the policy saw 1.0 kbit") && said.contains("tc qdisc"),
            "{said}"
        );
    }

    #[test]
    fn rates_are_differences_of_counters() {
        let device =
            |received_bytes, sent_bytes| DeviceTraffic { name: "a".into(), received_bytes, sent_bytes };
        let rates = rates(&[device(0, 100)], &[device(1000, 350)], Duration::from_secs(2));
        assert_eq!(rates, [(at("a", Out), 1000.0), (at("a", In), 4000.0)]);
    }
}
