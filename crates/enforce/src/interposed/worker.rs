//! The worker: the process through which all frames pass. It receives frames, schedules them with the engine,
//! and sends them.
//!
//! It has given up root and has only its open descriptors: the sockets of its frame path, the words that it
//! shares with the program at the device, and a connection to the guard ([`super::sandbox`] lists its system
//! calls). It does not sleep between the frames of a burst; without work it waits as [`WaitStrategy`] says. A
//! second thread ([`super::request_thread`]) answers the guard.

use super::classify::{Classifier, Named, NoClass, TAG, untag};
use super::congestion;
use super::control::QueueReply;
use super::engine::{Engine, EngineDiscipline, NextFrame};
use super::frame_path::FramePath;
use super::redirect;
use super::request_thread::{WorkerOrder, WorkerOrders, WorkerReply};
use super::urgency::WorkerUrgency;
use crate::backend::Counters;
use serde::{Deserialize, Serialize};
use std::io;
use std::mem::discriminant;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration as StdDuration;
use unisono_fairqueue::{Live, Policy, TrafficDirection};
use unisono_linux::bpf::Words;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::poll;
use unisono_sync::PollBudget;
use unisono_sync::atomics::pause;

/// The most frames that are received before some are sent, and the other way round. 64 frames of 1,500 bytes
/// leave a link of 10 Gbit/s in 77 us, the longest delay that one direction causes to the other; a system
/// call for each direction costs about 0.3 us, less than a hundredth of that. 64 is also the kernel's own
/// budget of a poll of a device (NAPI). Not measured.
const BURST: usize = 64;
/// The program at the device counts the queue as alive for this time after its last report. After that,
/// traffic bypasses the queue, in the device's order. It is as long as ten intervals between reports, so that
/// a worker that lost its processor for a few time slices (2 to 20 ms each) does not count as dead. A worker
/// that hangs stops the traffic for at most this half second, which connections survive. Chosen, not
/// measured.
const ALIVE: Duration = Duration::from_millis(500);
/// The interval of the worker's reports that it is alive; a sleeping worker wakes up for each. 20 wake-ups a
/// second cost about a thousandth of a processor. Must stay far below [`ALIVE`].
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(50);
/// The time limit, at the end, for the waiting frames to leave. The backlog of a class leaves within 20 ms at
/// its guaranteed rate (`flows`), but a device that is down never takes frames. Processes that wait for the
/// worker give it twice this time (`control`).
const MAX_SEND_TIME: Duration = Duration::from_secs(2);

/// How the worker waits for frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WaitStrategy {
    /// Polls without a pause. This uses a whole processor, and saves the wake-up before each frame.
    Spin,
    /// Polls for this long, then sleeps until a frame arrives.
    SpinBlock(StdDuration),
    /// Sleeps until a frame arrives.
    Block,
}

impl WaitStrategy {
    /// All values, each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 3] = [
        (Self::Spin, "spin", "Poll without a pause"),
        (
            Self::SpinBlock(StdDuration::from_micros(50)),
            "spin-block",
            "Spin for a while, then block",
        ),
        (Self::Block, "block", "Sleep until a frame comes"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(known, ..)| discriminant(known) == discriminant(&self))
            .map_or("", |all| all.1)
    }
}

impl Default for WaitStrategy {
    fn default() -> Self {
        Self::ALL[1].0
    }
}

impl From<WaitStrategy> for PollBudget {
    fn from(wait: WaitStrategy) -> Self {
        match wait {
            WaitStrategy::Spin => Self::Endless,
            WaitStrategy::SpinBlock(budget) => Self::lasting(budget.into()),
            WaitStrategy::Block => Self::Nothing,
        }
    }
}

pub(super) struct Worker<W: FramePath> {
    way: W,
    engine: Engine<W::Frame>,
    classifier: Classifier,
    counters: Counters,
    device: String,
    budget: PollBudget,
    orders: WorkerOrders,
    alive: Words,
    /// The time by which the worker ends, once it was ordered to end.
    ending: Option<Instant>,
    scratch: Vec<W::Frame>,
}

pub(super) struct WorkerParts<W> {
    pub(super) way: W,
    pub(super) policy: Policy,
    pub(super) named: Named,
    pub(super) choice: EngineDiscipline,
    pub(super) device: String,
    pub(super) wait: WaitStrategy,
    pub(super) orders: WorkerOrders,
    pub(super) alive: Words,
}

impl<W: FramePath> Worker<W> {
    pub(super) fn new(parts: WorkerParts<W>) -> Result<Self, String> {
        let WorkerParts { way, policy, named, choice, device, wait, orders, alive } = parts;
        let engine = Engine::new(policy, choice).map_err(|error| error.to_string())?;
        Ok(Self {
            way,
            engine,
            classifier: Classifier::new(named),
            counters: Counters::default(),
            device,
            budget: wait.into(),
            orders,
            alive,
            ending: None,
            scratch: Vec::with_capacity(BURST),
        })
    }

    /// Returns the descriptors that must stay open.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = vec![self.orders.as_fd()];
        all.extend(self.way.descriptors());
        all
    }

    /// Reports that it has begun, and works until it is ordered to end. Fails if the device or the guard is
    /// gone.
    pub(super) fn run(&mut self) -> io::Result<()> {
        self.orders.reply(WorkerReply::Answer(QueueReply::Done))?;
        let mut beat = Instant::ZERO;
        let mut urgency = WorkerUrgency::new(clock::now());
        self.budget.renew(clock::now);
        loop {
            let now = clock::now();
            if now >= beat {
                self.word().store((now + ALIVE).as_nanos(), Ordering::Relaxed);
                beat = now + HEARTBEAT_INTERVAL;
                urgency.end_window(now);
            }
            if self.ending.is_none()
                && let Some(order) = self.orders.next()?
            {
                self.execute(order, now)?;
            }
            let came = self.take(now)?;
            let (sent, wait_until) = self.send(now)?;
            if self.ending.is_some_and(|until| until <= now || self.engine.waiting() == 0) {
                return self.orders.reply(WorkerReply::Answer(QueueReply::Done));
            }
            if came > 0 || sent > 0 {
                self.budget.renew(|| now);
                continue;
            }
            // polls while the budget lasts: a sleep that is shorter than the wake-up takes would not pay
            if self.budget.is_left(|| now) {
                pause();
                continue;
            }
            let until = wait_until.min(beat);
            let rest = (until - now).into();
            let [arrived, asked] = poll::readable([self.way.arrivals(), self.orders.as_fd()], Some(rest))?;
            urgency.add_sleep(clock::now() - now);
            if arrived {
                self.budget.renew(clock::now);
            }
            if asked {
                self.orders.silence();
            }
        }
    }

    fn word(&self) -> &AtomicU64 {
        &self.alive.all()[redirect::ALIVE]
    }

    /// Receives frames and queues them. Returns the number of frames received.
    fn take(&mut self, now: Instant) -> io::Result<usize> {
        let mut frames = std::mem::take(&mut self.scratch);
        self.way.receive(BURST, &mut frames)?;
        let came = frames.len();
        self.counters.received += came as u64;
        for mut frame in frames.drain(..) {
            let bytes = self.way.bytes(&mut frame);
            match self.classifier.class_and_flow(self.engine.policy(), bytes) {
                Ok((class, flow)) => {
                    untag(bytes);
                    let length = (bytes.len() - TAG) as u32;
                    self.way.advance(&mut frame, TAG);
                    self.engine.accept(now, class, flow, length, frame);
                }
                Err(why) => {
                    match why {
                        NoClass::Stranger => self.counters.strangers += 1,
                        NoClass::Malformed(_) => self.counters.malformed += 1,
                    }
                    self.way.discard(frame);
                }
            }
        }
        self.scratch = frames;
        while let Some(frame) = self.engine.dropped() {
            self.way.discard(frame);
        }
        Ok(came)
    }

    /// Sends the frames that may leave now. Returns their number, and the time of the next attempt.
    fn send(&mut self, now: Instant) -> io::Result<(usize, Instant)> {
        let mut sent = 0;
        let mut again = Instant::NEVER;
        while sent < BURST {
            if !self.way.can_send() {
                // the device has no room: try again soon
                again = now + Duration::from_micros(100);
                break;
            }
            match self.engine.next(now) {
                NextFrame::Send(mut frame) => {
                    if self.engine.was_late() {
                        congestion::mark(self.way.bytes(&mut frame));
                    }
                    self.way.send(frame)?;
                    sent += 1;
                }
                NextFrame::Wait(until) => {
                    again = until;
                    break;
                }
                NextFrame::Rest => break,
            }
        }
        self.way.flush()?;
        Ok((sent, again))
    }

    /// Executes an order of the request thread. No frame passes meanwhile.
    fn execute(&mut self, order: WorkerOrder, now: Instant) -> io::Result<()> {
        let reply = match order {
            WorkerOrder::Live => WorkerReply::Answer(self.live(now)),
            WorkerOrder::Change(change, named) => match self.engine.change(*change) {
                Ok(replaced) => {
                    self.classifier.change(named);
                    WorkerReply::Changed(Box::new(replaced))
                }
                Err(error) => WorkerReply::Answer(QueueReply::Refused { why: error.to_string() }),
            },
            WorkerOrder::ChangeClass(change) => {
                WorkerReply::Answer(match self.engine.change_class(&change) {
                    Ok(()) => QueueReply::Done,
                    Err(error) => QueueReply::Refused { why: error.to_string() },
                })
            }
            WorkerOrder::Translate(translations) => {
                WorkerReply::Translated(self.classifier.translate(translations))
            }
            WorkerOrder::SetMtu(mtu) => {
                self.way.set_mtu(mtu);
                WorkerReply::Answer(QueueReply::Done)
            }
            WorkerOrder::End => {
                self.ending = Some(now + MAX_SEND_TIME);
                return Ok(());
            }
        };
        self.orders.reply(reply)
    }

    fn live(&self, now: Instant) -> QueueReply {
        let lost = self.way.lost();
        QueueReply::Live {
            live: Live {
                backend: super::INTERPOSED_BACKEND.to_owned(),
                device: self.device.clone(),
                direction: TrafficDirection::Out,
                at_ns: now.as_nanos(),
                rate: self.engine.policy().rate,
                framing: self.engine.policy().framing,
                classes: self.engine.live(),
            },
            counters: Counters {
                overrun: lost.overrun,
                unsent: lost.unsent,
                merged: lost.merged,
                too_long: self.alive.all()[redirect::TOO_LONG].load(Ordering::Relaxed),
                unattended: self.alive.all()[redirect::UNATTENDED].load(Ordering::Relaxed),
                ..self.counters
            },
        }
    }
}
