//! One stream's watch: turns packets into points, and clusters each full chunk with a team of threads.
//!
//! ```text
//!   packets --take--> points of the chunk --channel--> member 0 of the team --> update, alerts
//!                                                       members 1.. wait at the barrier meanwhile
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use unisono_barrier::Barrier;
use unisono_laboratory::workload::monitor::alert::{ClusterAlert, alerts};
use unisono_laboratory::workload::monitor::packet::{TcpPacket, coordinates};
use unisono_laboratory::workload::stream_cluster::{CentreRange, ClusterTeam, WeightedPoints};

/// The number of chunks that may wait for a stream's team. If more arrive, reading blocks, so that memory is
/// bounded.
const QUEUE: usize = 8;

/// A full chunk, and the arrival of its last packet.
struct ArrivedChunk {
    points: WeightedPoints,
    number: u64,
    arrived: Instant,
}

/// A team's result for a chunk.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) service: SocketAddr,
    /// Number of the chunk, from 1.
    pub(crate) number: u64,
    pub(crate) clusters: usize,
    /// Time from the arrival of the last packet to the result.
    pub(crate) latency: Duration,
    pub(crate) alerts: Vec<ClusterAlert>,
}

/// Collects a stream's packets until a chunk is full.
pub(crate) struct StreamCollector {
    chunk: usize,
    points: WeightedPoints,
    last: Option<Duration>,
    number: u64,
    full: SyncSender<ArrivedChunk>,
}

impl StreamCollector {
    /// Adds a packet. `arrived` is now, or the packet's scheduled arrival. Returns whether the stream's team
    /// still works.
    pub(crate) fn take(&mut self, packet: &TcpPacket, arrived: Instant) -> bool {
        let gap = packet.at.saturating_sub(self.last.unwrap_or(packet.at));
        self.last = Some(packet.at);
        self.points.push(coordinates(packet, gap), 1);
        if self.points.len() < self.chunk {
            return true;
        }
        self.number += 1;
        let points = std::mem::take(&mut self.points);
        self.full.send(ArrivedChunk { points, number: self.number, arrived }).is_ok()
    }

    /// Returns the number of packets that did not fill a chunk.
    pub(crate) fn left(&self) -> usize {
        self.points.len()
    }
}

/// A stream's team, before it starts.
pub(crate) struct StreamTeam {
    service: SocketAddr,
    threads: usize,
    seed: u64,
    chunks: Receiver<ArrivedChunk>,
}

pub(crate) fn stream(
    service: SocketAddr,
    chunk: usize,
    threads: usize,
    seed: u64,
) -> (StreamCollector, StreamTeam) {
    let (full, chunks) = sync_channel(QUEUE);
    let collector = StreamCollector { chunk, points: WeightedPoints::default(), last: None, number: 0, full };
    (collector, StreamTeam { service, threads, seed, chunks })
}

impl StreamTeam {
    /// Clusters chunks until the collector is gone or `report` returns false.
    pub(crate) fn work(self, report: &(dyn Fn(Update) -> bool + Sync)) {
        let barrier = Barrier::new(self.threads);
        let team = ClusterTeam::new(self.threads, CentreRange::default(), self.seed);
        let wait = || {
            barrier.wait();
            Ok(())
        };
        std::thread::scope(|scope| {
            for index in 1..self.threads {
                let (team, wait) = (&team, &wait);
                scope.spawn(move || while let Ok(Some(_)) = team.update(index, wait, || None) {});
            }
            let mut known = WeightedPoints::default();
            let mut goes_on = true;
            loop {
                let mut chunk = None;
                let next = || {
                    let arrived = self.chunks.recv().ok().filter(|_| goes_on)?;
                    chunk = Some((arrived.number, arrived.arrived));
                    Some(Arc::new(arrived.points))
                };
                // this team's barrier never fails
                let Ok(Some(found)) = team.update(0, &wait, next) else { return };
                let Some((number, arrived)) = chunk else { return };
                let latency = arrived.elapsed();
                let alerts = alerts(&known, &found.of_chunk);
                known = found.of_stream;
                let clusters = known.len();
                goes_on = report(Update { service: self.service, number, clusters, latency, alerts });
            }
        });
    }
}
