//! Generates synthetic traffic: bursty TCP streams, each with several kinds of packets, and optionally with
//! an attack.
//!
//! ```text
//!   burst = 1   | | | | | | | | | | | | | | | |      the mean rate, without pauses
//!   burst = 4   ||||||            ||||               4 times the mean rate, in bursts of random length
//! ```
//! The mean rate does not depend on the burstiness. The seed determines all values.

use super::packet::{ACK, PSH, SYN, TcpPacket};
use rand::RngCore;
use rand_pcg::Pcg32;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use unisono_workload::Error;

/// The number of kinds of packets in a stream without attacks. It is lower than the number of centers, so
/// that each kind gets a center of its own.
const PACKET_KINDS: u32 = 8;

/// During an attack, one packet in this many belongs to it.
const ATTACK_SHARE: u32 = 4;

/// The rate and the burstiness of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamRate {
    /// Packets per second, averaged over bursts and pauses.
    pub packets_per_s: f64,
    /// The factor by which packets arrive faster within a burst.
    pub burst: f64,
    /// The mean number of packets in a burst.
    pub burst_packets: f64,
}

impl StreamRate {
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Options(text));
        if !(self.packets_per_s > 0.0 && self.packets_per_s <= 1e9) {
            return refuse(format!(
                "{} packets a second: write more than 0, at most a thousand million",
                self.packets_per_s
            ));
        }
        if !(self.burst >= 1.0 && self.burst <= 1e6) {
            return refuse(format!(
                "packets come {} times as fast in a burst: write 1 (no bursts) to a million",
                self.burst
            ));
        }
        if !(self.burst_packets >= 1.0 && self.burst_packets.is_finite()) {
            return refuse(format!("{} packets in a burst: write at least 1", self.burst_packets));
        }
        Ok(())
    }
}

/// The arrival times of one stream's packets, ascending, as an endless iterator.
#[derive(Clone, Debug)]
pub struct PacketTimes {
    rate: StreamRate,
    generator: Pcg32,
    now: f64,
    /// The number of packets until the burst ends.
    left: u64,
}

impl PacketTimes {
    pub fn new(rate: StreamRate, stream: u32, seed: u64) -> Self {
        let generator = Pcg32::new(seed, (1 << 21) + u64::from(stream));
        let mut times = Self { rate, generator, now: 0.0, left: 0 };
        times.left = times.burst_length();
        times
    }

    fn burst_length(&mut self) -> u64 {
        (exponential(&mut self.generator) * self.rate.burst_packets).ceil().max(1.0) as u64
    }
}

impl Iterator for PacketTimes {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let StreamRate { packets_per_s, burst, burst_packets } = self.rate;
        self.now += exponential(&mut self.generator) / (packets_per_s * burst);
        if self.left == 0 {
            self.left = self.burst_length();
            self.now +=
                exponential(&mut self.generator) * burst_packets / packets_per_s * (1.0 - 1.0 / burst);
        }
        self.left -= 1;
        Some(Duration::try_from_secs_f64(self.now).unwrap_or(Duration::MAX))
    }
}

/// Draws a gap from the exponential distribution with mean 1.
fn exponential(generator: &mut Pcg32) -> f64 {
    -((f64::from(generator.next_u32()) + 1.0) / 4_294_967_296.0).ln()
}

/// An attack that floods one stream from a given packet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttackPlan {
    pub stream: u32,
    /// The number of the first packet of the stream that may belong to the attack.
    pub first: u64,
}

/// The packets of one stream, as an endless iterator.
#[derive(Clone, Debug)]
pub struct StreamPackets {
    times: PacketTimes,
    generator: Pcg32,
    stream: u32,
    attack: Option<AttackPlan>,
    number: u64,
}

impl StreamPackets {
    pub fn new(rate: StreamRate, stream: u32, seed: u64, attack: Option<AttackPlan>) -> Self {
        let attack = attack.filter(|attack| attack.stream == stream);
        Self {
            times: PacketTimes::new(rate, stream, seed),
            generator: Pcg32::new(seed, (1 << 22) + u64::from(stream)),
            stream,
            attack,
            number: 0,
        }
    }

    fn below(&mut self, most: u32) -> u32 {
        ((u64::from(self.generator.next_u32()) * u64::from(most)) >> 32) as u32
    }

    /// Makes a packet of a usual kind. Even kinds are requests, odd kinds are answers.
    fn usual(&mut self, at: Duration, service: SocketAddr) -> TcpPacket {
        let kind = self.below(PACKET_KINDS);
        let client = self.below(16) as u8;
        let client =
            SocketAddr::new(Ipv4Addr::new(10, 9, 0, client).into(), 40_000 + self.below(1000) as u16);
        // each kind has an alphabet, a length and first bytes of its own
        let length = 8 << kind;
        let base = (32 + 24 * kind) as u8;
        let mut payload: Vec<u8> = (0..length.min(256)).map(|_| base + self.below(12) as u8).collect();
        payload[..4].copy_from_slice(&[base; 4]);
        let (from, to) = if kind.is_multiple_of(2) { (client, service) } else { (service, client) };
        TcpPacket { at, from, to, flags: ACK | if kind > 3 { PSH } else { 0 }, length, payload }
    }
}

impl Iterator for StreamPackets {
    type Item = TcpPacket;

    fn next(&mut self) -> Option<TcpPacket> {
        let at = self.times.next()?;
        let service = service(self.stream);
        self.number += 1;
        let is_attacked = self.attack.is_some_and(|attack| self.number > attack.first);
        if is_attacked && self.below(ATTACK_SHARE) == 0 {
            // the attack is a SYN flood: connections that are never completed
            let from =
                SocketAddr::new(Ipv4Addr::new(203, 0, 113, 9).into(), 1024 + self.below(60_000) as u16);
            return Some(TcpPacket { at, from, to: service, flags: SYN, length: 0, payload: Vec::new() });
        }
        Some(self.usual(at, service))
    }
}

/// Returns the service of a synthetic stream.
fn service(stream: u32) -> SocketAddr {
    let [.., high, low] = stream.to_be_bytes();
    SocketAddr::new(IpAddr::from([10, 8, high, low]), 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(burst: f64) -> StreamRate {
        StreamRate { packets_per_s: 1000.0, burst, burst_packets: 50.0 }
    }

    #[test]
    fn the_mean_rate_does_not_depend_on_the_burst() {
        for burst in [1.0, 4.0, 16.0] {
            let count = 100_000;
            let last = PacketTimes::new(rate(burst), 0, 5).nth(count - 1).expect("endless").as_secs_f64();
            let measured = count as f64 / last;
            // with 2,000 bursts of exponential lengths and pauses, the standard deviation is about 3 %
            assert!((measured - 1000.0).abs() < 120.0, "{measured} packets a second at burst {burst}");
        }
    }

    #[test]
    fn packets_come_faster_within_a_burst() {
        let median_gap = |burst: f64| {
            let times: Vec<_> = PacketTimes::new(rate(burst), 0, 5).take(2001).collect();
            assert!(times.is_sorted());
            let mut gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            gaps.sort();
            gaps[1000]
        };
        assert!(median_gap(8.0) * 4 < median_gap(1.0), "{:?} {:?}", median_gap(8.0), median_gap(1.0));
    }

    #[test]
    fn a_seed_repeats_the_packets_and_an_attack_begins_where_it_should() {
        let attack = Some(AttackPlan { stream: 1, first: 100 });
        let of = |stream| StreamPackets::new(rate(2.0), stream, 3, attack).take(400).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        let attacks = |packets: &[TcpPacket]| packets.iter().filter(|packet| packet.flags == SYN).count();
        assert_eq!(attacks(&of(0)), 0);
        let attacked = of(1);
        assert_eq!(attacks(&attacked[..100]), 0);
        assert!(attacks(&attacked[100..]) > 40, "{}", attacks(&attacked[100..]));
    }

    #[test]
    fn a_rate_that_makes_no_sense_is_refused() {
        assert!(rate(0.5).check().is_err());
        assert!(StreamRate { packets_per_s: f64::NAN, ..rate(1.0) }.check().is_err());
        assert!(StreamRate { burst_packets: 0.0, ..rate(1.0) }.check().is_err());
        assert!(rate(4.0).check().is_ok());
    }
}
