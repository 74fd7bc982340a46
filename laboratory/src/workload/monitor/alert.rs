//! Finds alerts: clusters of packets that are unlike any earlier cluster of the stream.

use super::packet::describe;
use crate::workload::stream_cluster::{Coordinates, WeightedPoints, distance};

/// The minimum distance of a new cluster from the known ones: the distance of a different flag and a
/// different packet length together, or of a difference in half of the payload's bytes. Two clusters of the
/// same kind of packets, found in two chunks, differ by a quarter of this.
pub const MIN_NOVEL_DISTANCE: i64 = 3 * 512 * 512;

/// The minimum share of a chunk's packets in an alert: fewer packets are noise.
pub const MIN_SHARE: f64 = 0.05;

#[derive(Clone, Debug, PartialEq)]
pub struct ClusterAlert {
    /// The share of the chunk's packets.
    pub share: f64,
    /// The distance to the nearest cluster that was known before.
    pub distance: i64,
    /// The common properties of the packets, in words.
    pub what: String,
}

/// Returns the clusters of a chunk that are far from all known clusters. Clusters that are near each other
/// are one alert. Without known clusters there is no alert.
pub fn alerts(known: &WeightedPoints, chunk: &WeightedPoints) -> Vec<ClusterAlert> {
    let nearest = |centre: &Coordinates| known.iter().map(|(other, _)| distance(centre, other)).min();
    let mut novel: Vec<(&Coordinates, i64, i64)> = chunk
        .iter()
        .filter_map(|(centre, weight)| {
            Some((centre, weight, nearest(centre).filter(|d| *d >= MIN_NOVEL_DISTANCE)?))
        })
        .collect();
    novel.sort_by_key(|(_, weight, _)| -weight);
    let mut kinds: Vec<(&Coordinates, i64, i64)> = Vec::new();
    for (centre, weight, away) in novel {
        match kinds.iter_mut().find(|(kind, ..)| distance(kind, centre) < MIN_NOVEL_DISTANCE) {
            Some((_, together, _)) => *together += weight,
            None => kinds.push((centre, weight, away)),
        }
    }
    let total = chunk.total_weight().max(1) as f64;
    kinds
        .into_iter()
        .map(|(centre, weight, distance)| ClusterAlert {
            share: weight as f64 / total,
            distance,
            what: describe(centre),
        })
        .filter(|alert| alert.share >= MIN_SHARE)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::generator::{AttackPlan, StreamPackets, StreamRate};
    use super::super::packet::coordinates;
    use super::*;
    use crate::workload::stream_cluster::{CentreRange, ClusterTeam};
    use std::sync::Arc;
    use std::time::Duration;

    const CHUNK: usize = 160;

    /// Returns the alerts of each chunk of a synthetic stream.
    fn stream_alerts(attack: Option<AttackPlan>, seed: u64) -> Vec<Vec<ClusterAlert>> {
        let rate = StreamRate { packets_per_s: 1000.0, burst: 4.0, burst_packets: 100.0 };
        let mut packets = StreamPackets::new(rate, 0, seed, attack);
        let mut last = Duration::ZERO;
        let team = ClusterTeam::new(1, CentreRange { fewest: 8, most: 12 }, seed);
        let mut known = WeightedPoints::default();
        (0..4)
            .map(|_| {
                let mut points = WeightedPoints::default();
                for packet in packets.by_ref().take(CHUNK) {
                    points.push(coordinates(&packet, packet.at.saturating_sub(last)), 1);
                    last = packet.at;
                }
                let found = team.update(0, || Ok(()), || Some(Arc::new(points)));
                let found = found.expect("no barrier fails").expect("not the end");
                let alerts = alerts(&known, &found.of_chunk);
                known = found.of_stream;
                alerts
            })
            .collect()
    }

    #[test]
    fn an_attack_is_told_once_and_usual_traffic_never() {
        for seed in 1..=2 {
            let quiet = stream_alerts(None, seed);
            assert!(quiet.iter().all(Vec::is_empty), "seed {seed}: {quiet:?}");
            let attacked = stream_alerts(Some(AttackPlan { stream: 0, first: 2 * CHUNK as u64 }), seed);
            let counts: Vec<usize> = attacked.iter().map(Vec::len).collect();
            assert_eq!(counts, [0, 0, 1, 0], "seed {seed}: {attacked:?}");
            let alert = &attacked[2][0];
            assert!((0.15..0.35).contains(&alert.share), "{alert:?}");
            assert_eq!(alert.what, "SYN, from clients, without payload");
        }
    }

    #[test]
    fn few_packets_and_a_first_chunk_raise_no_alert() {
        let mut known = WeightedPoints::default();
        known.push([0; 128], 1000);
        let chunk = |far: i64| {
            let mut chunk = WeightedPoints::default();
            chunk.push([0; 128], 1000);
            chunk.push([1023; 128], far);
            chunk
        };
        assert_eq!(alerts(&known, &chunk(100)).len(), 1);
        assert_eq!(alerts(&known, &chunk(10)), vec![]);
        assert_eq!(alerts(&WeightedPoints::default(), &chunk(100)), vec![]);
    }

    #[test]
    fn new_clusters_that_resemble_each_other_are_one_alert() {
        let mut known = WeightedPoints::default();
        known.push([0; 128], 1000);
        let mut chunk = WeightedPoints::default();
        for (place, weight) in [(500, 40), (510, 30), (1000, 100), (0, 830)] {
            chunk.push([place; 128], weight);
        }
        let shares: Vec<f64> = alerts(&known, &chunk).iter().map(|alert| alert.share).collect();
        assert_eq!(shares, [0.1, 0.07]);
    }
}
