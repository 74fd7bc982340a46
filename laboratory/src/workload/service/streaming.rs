//! A video server (section 3.5, Figure 7): in each round it sends every viewer the frames of one round, which
//! must arrive before the round ends. Videos may have two bit rates; each viewer's socket then may have a
//! weight by the bit rate of its video, as the paper's server gave it over QLinux.

use super::frames::{FRAMES_PER_S, FrameSizes};
use super::video::picture_sizes;
use super::{CLASS, ServiceScene, distributed};
use crate::workload::stamp::{STAMP, stamp, stamped};
use std::io::{self, ErrorKind};
use std::path::Path;
use unisono_linux::clock::{self, Duration};
use unisono_linux::timer;
use unisono_measure::Histogram;
use unisono_measure::record::Figure;
use unisono_socket_shares::share_socket_at;
use unisono_workload::Error;
use unisono_workload::conversation::{Conversation, Conversations, NextMessage};

fn rounds(scene: &ServiceScene) -> u64 {
    ((scene.ends.until - scene.ends.from).as_nanos() / scene.round.as_nanos()).max(1)
}

fn frames_per_round(scene: &ServiceScene) -> u64 {
    ((scene.round * FRAMES_PER_S).as_nanos() / Duration::SECOND.as_nanos()).max(1)
}

/// Returns whether a viewer, by its number, watches a video of the lower bit rate.
fn is_slow(viewer: usize) -> bool {
    viewer % 2 == 1
}

/// Gives the socket of each viewer a weight by the bit rate of its video; the lower bit rate has weight 1.
pub(super) fn weigh(
    slow_part: f64,
    guard: &Path,
    conversations: &[Box<dyn Conversation>],
) -> Result<(), Error> {
    for (viewer, to) in conversations.iter().enumerate() {
        let socket = to.socket().ok_or_else(|| {
            Error::Options("only sockets have weights of their own; stream over TCP or UDP".to_owned())
        })?;
        let weight = if is_slow(viewer) { 1.0 } else { 1.0 / slow_part };
        share_socket_at(guard, socket, CLASS, weight).map_err(|error| Error::Exchange(error.to_string()))?;
    }
    Ok(())
}

/// Serves each viewer in a thread of its own, as in the paper.
pub(super) fn serve(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let encoded = scene.video.as_deref().map(encoded_sizes).transpose()?;
    std::thread::scope(|scope| {
        let viewers: Vec<_> = (0..)
            .zip(conversations)
            .map(|(viewer, to)| {
                let sizes: Box<dyn Iterator<Item = usize> + Send + '_> = match &encoded {
                    // viewers start at different frames, so that the frames sent at one moment are not all of
                    // the same kind
                    Some(sizes) => {
                        Box::new(sizes.iter().copied().cycle().skip(viewer * VIEWER_OFFSET_FRAMES))
                    }
                    None => Box::new(FrameSizes::new(scene.seed.wrapping_add(viewer as u64))),
                };
                let part = if is_slow(viewer) { scene.slow_part } else { 1.0 };
                let sizes = sizes.map(move |size| (size as f64 * part) as usize);
                scope.spawn(move || stream(scene, sizes, to))
            })
            .collect();
        viewers.into_iter().try_for_each(|viewer| {
            viewer.join().unwrap_or_else(|_| Err(io::Error::other("a server's thread panicked")))
        })
    })?;
    Ok(Vec::new())
}

/// The number of frames between the starting points of two viewers of an encoded video. It is not a multiple
/// of the length of a group of pictures.
const VIEWER_OFFSET_FRAMES: usize = 37;

pub(super) fn encoded_sizes(video: &Path) -> io::Result<Vec<usize>> {
    let failed = |what: &str| io::Error::other(format!("{}: {what}", video.display()));
    let stream = std::fs::read(video).map_err(|error| failed(&error.to_string()))?;
    let sizes = picture_sizes(&stream);
    if sizes.is_empty() { Err(failed("no picture is in it")) } else { Ok(sizes) }
}

fn stream(
    scene: &ServiceScene,
    mut sizes: impl Iterator<Item = usize>,
    mut to: Box<dyn Conversation>,
) -> io::Result<()> {
    let per_round = frames_per_round(scene);
    for round in 0..rounds(scene) {
        let begins = scene.ends.from + scene.round * round;
        // the frames of a round are prepared before it begins; the paper's server read them from its disk
        // then
        let frame = |(frame, size): (u64, usize)| {
            let mut bytes = vec![0; size.max(STAMP)];
            stamp(&mut bytes, round * per_round + frame, begins);
            bytes
        };
        let frames: Vec<Vec<u8>> = (0..per_round).zip(&mut sizes).map(frame).collect();
        timer::sleep_until(begins);
        for frame in &frames {
            match to.send_by(frame, begins + scene.round) {
                // an error means that the viewer has left at the end; frames that have not arrived by then
                // are late, but the run has not failed
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    return Ok(());
                }
                sent => sent?,
            }
        }
    }
    // waits until the viewer leaves, which it does when it has received the end
    to.receive(&mut Vec::new(), scene.ends.until + scene.round).map(drop)
}

/// Receives as all viewers, and returns their results.
pub(super) fn watch(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let seen: Vec<ViewerState> = std::thread::scope(|scope| {
        let viewers: Vec<_> = conversations
            .into_iter()
            .map(|from| {
                scope.spawn(move || {
                    let mut viewing = ViewerState::new(scene);
                    view(scene, from, &mut viewing).map(|()| viewing)
                })
            })
            .collect();
        let join = |viewer: std::thread::ScopedJoinHandle<'_, io::Result<ViewerState>>| {
            viewer.join().unwrap_or_else(|_| Err(io::Error::other("a viewer panicked")))
        };
        viewers.into_iter().map(join).collect::<io::Result<_>>()
    })?;
    Ok(figures(scene, &seen))
}

fn view(
    scene: &ServiceScene,
    mut server: Box<dyn Conversation>,
    viewing: &mut ViewerState,
) -> io::Result<()> {
    let mut frame = Vec::new();
    // viewers stay one round longer, so that late frames are counted
    let end = scene.ends.from + scene.round * (rounds(scene) + 1);
    while !viewing.is_complete() && server.receive(&mut frame, end)? == NextMessage::Message {
        if let Some((number, begins)) = stamped(&frame) {
            viewing.frame(number, clock::now() - begins);
        }
    }
    Ok(())
}

/// The frames that one viewer received.
#[derive(Debug)]
struct ViewerState {
    per_round: u64,
    /// For each round: the number of frames that arrived, and the arrival of the last one after the start of
    /// the round.
    rounds: Vec<(u64, Duration)>,
    /// The arrival times of frames, from the start of their round.
    arrivals: Histogram,
}

impl ViewerState {
    fn new(scene: &ServiceScene) -> Self {
        let rounds = vec![(0, Duration::ZERO); usize::try_from(rounds(scene)).unwrap_or(usize::MAX)];
        Self { per_round: frames_per_round(scene), rounds, arrivals: Histogram::new() }
    }

    fn frame(&mut self, number: u64, after: Duration) {
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

fn figures(scene: &ServiceScene, seen: &[ViewerState]) -> Vec<Figure> {
    let (mut delivery, mut arrivals) = (Histogram::new(), Histogram::new());
    let (mut all, mut late, mut lost) = (0, 0, 0);
    for viewing in seen {
        arrivals.merge(&viewing.arrivals);
        for (round, (frames, last)) in (0..).zip(&viewing.rounds) {
            all += 1;
            lost += viewing.per_round - frames.min(&viewing.per_round);
            late += u64::from(*frames < viewing.per_round || *last > scene.round);
            // a round without any frame counts with the time that the viewer has waited
            let waited = scene.round * (rounds(scene) + 1 - round);
            delivery.record((if *frames > 0 { *last } else { waited }).into());
        }
    }
    let frames: u64 = seen.iter().map(|viewing| viewing.per_round * viewing.rounds.len() as u64).sum();
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let mut figures = vec![
        Figure::new("late_rounds_percent", percent(late, all), "%"),
        Figure::new("lost_frames_percent", percent(lost, frames), "%"),
    ];
    if scene.slow_part < 1.0 {
        figures.extend([("fast", false), ("slow", true)].map(|(name, slow)| {
            let of_rate = seen.iter().enumerate().filter(|(viewer, _)| is_slow(*viewer) == slow);
            let (in_time, all) = of_rate.fold((0, 0), |(in_time, all), (_, viewing)| {
                let frames = viewing.per_round * viewing.rounds.len() as u64;
                (in_time + viewing.arrivals.count_up_to(scene.round.into()), all + frames)
            });
            let late = percent(all.saturating_sub(in_time), all);
            Figure::new(format!("{name}_late_frames_percent"), late, "%")
        }));
    }
    figures.extend(distributed("round_ms", delivery.distribution(1e6), "ms"));
    figures.extend(distributed("frame_ms", arrivals.distribution(1e6), "ms"));
    let in_time = percent(arrivals.count_up_to(scene.round.into()), frames);
    let bins = bins(&arrivals).map(|(after_ms, count)| (after_ms, percent(count, frames))).collect();
    figures.push(Figure::new("arrivals_percent", in_time, "%").with_curve("after_ms", bins));
    figures
}

/// Returns the number of frames in each bin of the arrival time after the start of their round: one bin up to
/// 1 ms, ten bins per decade up to 1 s, and one for all later frames. A bin is named by its end in ms.
fn bins(arrivals: &Histogram) -> impl Iterator<Item = (f64, u64)> {
    const BINS: i32 = 31;
    let mut before = 0;
    (0..=BINS).map(move |bin| {
        let end_ms = 10_f64.powf(f64::from(bin) / 10.0);
        let end = std::time::Duration::from_secs_f64(end_ms / 1e3);
        let by_then = if bin < BINS { arrivals.count_up_to(end) } else { arrivals.len() };
        let count = by_then - before;
        before = by_then;
        (end_ms, count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_which_nothing_came_count_as_long_as_the_viewer_has_waited() {
        use crate::workload::service::Application;
        use crate::workload::service::tests::scene;
        use unisono_workload::conversation::ConversationCarrier;
        let scene = scene(Application::Streaming, ConversationCarrier::Tcp, 0);
        let figures = figures(&scene, &[ViewerState::new(&scene)]);
        let round = figures.iter().find(|figure| figure.name == "round_ms").expect("it has a figure");
        let times = round.distribution.expect("times");
        // there are three rounds of 200 ms, and another one for late frames
        assert_eq!((times.n, times.min.round(), times.max.round()), (3, 400.0, 800.0));
    }

    #[test]
    fn late_frames_are_counted_for_the_viewers_of_each_bit_rate() {
        use crate::workload::service::Application;
        use crate::workload::service::tests::scene;
        use unisono_workload::conversation::ConversationCarrier;
        let scene =
            ServiceScene { slow_part: 0.25, ..scene(Application::Streaming, ConversationCarrier::Tcp, 0) };
        let [mut fast, mut slow] = [ViewerState::new(&scene), ViewerState::new(&scene)];
        // three rounds of six frames, each of which is due 200 ms after its round began
        for number in 0..18 {
            fast.frame(number, Duration::from_millis(100));
        }
        for number in 0..12 {
            slow.frame(number, Duration::from_millis(if number < 9 { 100 } else { 300 }));
        }
        let figures = figures(&scene, &[fast, slow]);
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).expect(name).value;
        assert_eq!((value("fast_late_frames_percent"), value("slow_late_frames_percent")), (0.0, 50.0));
    }

    #[test]
    fn sockets_get_weights_by_the_bit_rates_of_their_videos() {
        use std::io::Write as _;
        use std::net::UdpSocket;
        use std::os::fd::{AsFd as _, BorrowedFd};
        use unisono_linux::clock::Instant;
        use unisono_linux::local_socket;
        use unisono_socket_shares::message::{REQUEST_BYTES, ShareAnswer, ShareRequest};
        struct Viewer(Option<UdpSocket>);
        impl Conversation for Viewer {
            fn socket(&self) -> Option<BorrowedFd<'_>> {
                self.0.as_ref().map(UdpSocket::as_fd)
            }
            fn send(&mut self, _: &[u8]) -> io::Result<()> {
                Ok(())
            }
            fn receive(&mut self, _: &mut Vec<u8>, _: Instant) -> io::Result<NextMessage> {
                Ok(NextMessage::Gone)
            }
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("guard");
        let listener = local_socket::listen(&path, 0o600).expect("the path is free");
        let guard = std::thread::spawn(move || {
            [(); 3].map(|()| {
                let (mut stream, _) = listener.accept().expect("a client comes");
                let mut bytes = [0; REQUEST_BYTES];
                local_socket::receive_with(&stream, &mut bytes).expect("it was sent");
                stream.write_all(&ShareAnswer::Done.encode()).expect("the client reads");
                let request = ShareRequest::parse(&bytes).expect("it is well formed");
                (request.class, request.weight)
            })
        });
        let viewer = |_| -> Box<dyn Conversation> {
            Box::new(Viewer(Some(UdpSocket::bind("127.0.0.1:0").expect("a port is free"))))
        };
        let viewers: Conversations = (0..3).map(viewer).collect();
        weigh(0.25, &path, &viewers).expect("the guard grants it");
        let asked = guard.join().expect("no panic");
        assert_eq!(asked, [4.0, 1.0, 4.0].map(|weight| (CLASS.to_owned(), weight)));
        let refused = weigh(0.25, &path, &[Box::new(Viewer(None))]).expect_err("no socket");
        assert!(refused.to_string().contains("stream over TCP or UDP"), "{refused}");
    }

    #[test]
    fn each_frame_is_in_one_bin_of_the_histogram_and_late_ones_in_the_last() {
        let mut arrivals = Histogram::new();
        for ms in [0.4, 3.0, 3.1, 900.0, 1500.0, 4000.0] {
            arrivals.record(std::time::Duration::from_secs_f64(ms / 1e3));
        }
        let bins: Vec<(f64, u64)> = bins(&arrivals).collect();
        let at = |ms: f64| bins.iter().find(|(end, _)| (end / ms - 1.0).abs() < 0.01).expect("a bin").1;
        assert_eq!((at(1.0), at(3.16), at(1000.0), bins[bins.len() - 1].1), (1, 2, 1, 2), "{bins:?}");
        assert_eq!(bins.iter().map(|(_, count)| count).sum::<u64>(), 6);
    }
}
