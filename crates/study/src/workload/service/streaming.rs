//! A video server (section 3.5, Figure 7): in each round it sends every viewer the frames of one round, which
//! must have arrived when the round ends.

use super::frames::{FRAMES_PER_S, FrameSizes};
use super::{Conversation, NextMessage, ServiceScene, distributed};
use crate::workload::stamp::{STAMP, stamp, stamped};
use std::io::{self, ErrorKind};
use unisono_linux::clock::{self, Nanos};
use unisono_linux::timer;
use unisono_measure::Histogram;
use unisono_measure::record::Figure;

fn rounds(scene: &ServiceScene) -> u64 {
    (scene.until.since(scene.from).0 / scene.round.0).max(1)
}

fn frames_per_round(scene: &ServiceScene) -> u64 {
    (scene.round.times(FRAMES_PER_S).0 / Nanos::SECOND.0).max(1)
}

/// A thread for each viewer, as in the paper.
pub(super) fn serve(
    scene: &ServiceScene,
    conversations: Vec<Box<dyn Conversation>>,
) -> io::Result<Vec<Figure>> {
    std::thread::scope(|scope| {
        let viewers = (0..).zip(conversations);
        let viewers: Vec<_> =
            viewers.map(|(viewer, to)| scope.spawn(move || stream(scene, viewer, to))).collect();
        viewers.into_iter().try_for_each(|viewer| {
            viewer.join().unwrap_or_else(|_| Err(io::Error::other("a server's thread panicked")))
        })
    })?;
    Ok(Vec::new())
}

fn stream(scene: &ServiceScene, viewer: u64, mut to: Box<dyn Conversation>) -> io::Result<()> {
    let mut sizes = FrameSizes::new(scene.seed.wrapping_add(viewer));
    let per_round = frames_per_round(scene);
    for round in 0..rounds(scene) {
        let begins = scene.round.times(round).after(scene.from);
        // the frames of a round are made before it begins, as the paper's server read them from its disk
        let frame = |(frame, size): (u64, usize)| {
            let mut bytes = vec![0; size.max(STAMP)];
            stamp(&mut bytes, round * per_round + frame, begins);
            bytes
        };
        let frames: Vec<Vec<u8>> = (0..per_round).zip(&mut sizes).map(frame).collect();
        timer::sleep_until(begins);
        for frame in &frames {
            match to.send_by(frame, scene.round.after(begins)) {
                // the viewer has left at the end: what has not come by then is late; the run has not failed
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    return Ok(());
                }
                sent => sent?,
            }
        }
    }
    // the viewer leaves when it has seen the end
    to.receive(&mut Vec::new(), scene.round.after(scene.until)).map(drop)
}

/// What all viewers saw.
pub(super) fn watch(
    scene: &ServiceScene,
    conversations: Vec<Box<dyn Conversation>>,
) -> io::Result<Vec<Figure>> {
    let seen: Vec<Viewing> = std::thread::scope(|scope| {
        let viewers: Vec<_> = conversations
            .into_iter()
            .map(|from| {
                scope.spawn(move || {
                    let mut viewing = Viewing::new(scene);
                    view(scene, from, &mut viewing).map(|()| viewing)
                })
            })
            .collect();
        let join = |viewer: std::thread::ScopedJoinHandle<'_, io::Result<Viewing>>| {
            viewer.join().unwrap_or_else(|_| Err(io::Error::other("a viewer panicked")))
        };
        viewers.into_iter().map(join).collect::<io::Result<_>>()
    })?;
    Ok(figures(scene, &seen))
}

fn view(scene: &ServiceScene, mut server: Box<dyn Conversation>, viewing: &mut Viewing) -> io::Result<()> {
    let mut frame = Vec::new();
    // a round more, so that late frames are seen
    let end = scene.round.times(rounds(scene) + 1).after(scene.from);
    while !viewing.is_complete() && server.receive(&mut frame, end)? == NextMessage::Message {
        if let Some((number, begins)) = stamped(&frame) {
            viewing.frame(number, clock::now().since(begins));
        }
    }
    Ok(())
}

/// What one viewer saw.
#[derive(Debug)]
struct Viewing {
    per_round: u64,
    /// Of each round: frames that arrived, and when the last one did, after the round began.
    rounds: Vec<(u64, Nanos)>,
    /// Arrivals of frames after their round began.
    arrivals: Histogram,
}

impl Viewing {
    fn new(scene: &ServiceScene) -> Self {
        let rounds = vec![(0, Nanos::ZERO); usize::try_from(rounds(scene)).unwrap_or(usize::MAX)];
        Self { per_round: frames_per_round(scene), rounds, arrivals: Histogram::new() }
    }

    fn frame(&mut self, number: u64, after: Nanos) {
        let round =
            usize::try_from(number / self.per_round).ok().and_then(|round| self.rounds.get_mut(round));
        if let Some((frames, last)) = round {
            *frames += 1;
            *last = after.max(*last);
            self.arrivals.record(after.into());
        }
    }

    fn is_complete(&self) -> bool {
        self.rounds.iter().all(|(frames, _)| *frames == self.per_round)
    }
}

fn figures(scene: &ServiceScene, seen: &[Viewing]) -> Vec<Figure> {
    let (mut delivery, mut arrivals) = (Histogram::new(), Histogram::new());
    let (mut all, mut late, mut lost) = (0, 0, 0);
    for viewing in seen {
        arrivals.merge(&viewing.arrivals);
        for (frames, last) in &viewing.rounds {
            all += 1;
            lost += viewing.per_round - frames.min(&viewing.per_round);
            late += u64::from(*frames < viewing.per_round || *last > scene.round);
            if *frames > 0 {
                delivery.record((*last).into());
            }
        }
    }
    let frames: u64 = seen.iter().map(|viewing| viewing.per_round * viewing.rounds.len() as u64).sum();
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let mut figures = vec![
        Figure::new("late_rounds_percent", percent(late, all), "%"),
        Figure::new("lost_frames_percent", percent(lost, frames), "%"),
    ];
    figures.extend(distributed("round_ms", delivery.distribution(1e6), "ms"));
    figures.extend(distributed("frame_ms", arrivals.distribution(1e6), "ms"));
    figures
}
