//! Merges the events from direct rings and from the broker in the right order, for a client that reads rings.

use super::links::UNFINISHED;
use super::reading::{DirectReading, ReadingEnd};
use super::received::ReceivedEvent;
use super::supply::MAX_RECEIVED;
use super::{Client, Error, Reception};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_events_wire::frame::Frame;
use unisono_events_wire::interrupt;
use unisono_events_wire::spin_once;
use unisono_events_wire::transport::{Awaited, Dozing, MayWait, PayloadRef, Taken};
use unisono_events_wire::{EventOrder, RingReport};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::futex::Scope;
use unisono_sync::{MAX_SLEEP, sleep_at_any};

/// The interval at which a consumer reports its events from rings to the broker; the broker's counters may
/// lag by this much (docs/events.md). Each report is a frame, and ten a second cost no measurable time.
const COUNTED_EVERY: Duration = Duration::from_millis(100);
/// The number of ring events between two polls of the broker's frames, each of which takes a system call. It
/// is the number of events that the broker takes from one program in a turn.
const TURN: u32 = 64;
/// The time between two looks for frames of the broker while a link has events: the order to end a link
/// within a second is among them.
const BROKER_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum number of events that are taken from a ring after its supplier has left it: as many as two of
/// the longest rings hold.
const MAX_EMPTIED: usize = 1 << 16;
/// The time for which a consumer waits for the rest of a link that its supplier has left. The supplier's
/// kernel has all of it, so that only the network delays it.
const LINK_END_TIMEOUT: StdDuration = StdDuration::from_secs(5);
/// The time for which a consumer takes what has come over a link that the broker has ended, if more comes
/// all the while. Chosen, not measured.
const CUT_TIMEOUT: StdDuration = StdDuration::from_millis(200);
/// The number of events of a link between two looks at the clock, while a link is emptied.
const TIMED_EVERY: usize = 64;
/// The number of polls of a spinning consumer between two checks that take a system call: about 0.1 ms.
const THOROUGH: u32 = 4096;

impl Client {
    /// Takes a supplier's events out of its rings before a later frame of the broker is delivered: all of
    /// them (`None`), or only those before the event with this number.
    pub(super) fn empty_rings(
        &mut self,
        (subscription, topic, supplier): (u32, u32, u32),
        before: Option<u64>,
    ) {
        let (mut at, mut taken, mut until) = (0, 0, None);
        let mut ends = || *until.get_or_insert_with(|| StdInstant::now() + LINK_END_TIMEOUT);
        while let Some(reading) = self.direct.readings.get_mut(at) {
            let of = &reading.of;
            let is_theirs = (of.subscription.0, of.topic, of.supplier) == (subscription, topic, supplier);
            if !is_theirs || before.is_some_and(|number| number <= of.last) {
                at += 1;
                continue;
            }
            reading.begun = true;
            // the broker has ended the supplier, which may go on sending
            if reading.is_cut && before.is_none() {
                let link = reading.of.link;
                self.cut(link);
                continue;
            }
            // the supplier reported that it had left the ring, but still writes into it
            let looks = reading.is_link() && taken % TIMED_EVERY == 0;
            if taken == MAX_EMPTIED || (looks && StdInstant::now() >= ends()) {
                self.end_reading(at, ReadingEnd::Broken);
                continue;
            }
            match reading.take() {
                Ok(Some(reception)) if !is_before(&reception, before) => {
                    self.end_reading(at, ReadingEnd::Broken);
                }
                Ok(Some(reception)) => {
                    taken += 1;
                    self.received.push_back(reception);
                }
                Ok(None) if reading.skipped => taken += 1,
                // its supplier has left the link, so the rest and the end are on their way
                Ok(None) if reading.is_link() => {
                    if !reading.await_more(ends()) {
                        self.end_reading(at, ReadingEnd::Broken);
                    }
                }
                Ok(None) => at += 1,
                Err(end) => self.end_reading(at, end),
            }
        }
    }

    /// Sorts an event from the broker among the events that its supplier has left in a ring. Returns the
    /// event if there are no such events, or if the ring's events precede it in any case.
    pub(super) fn sort_with_ring(
        &mut self,
        of: (u32, u32, u32),
        event: ReceivedEvent,
    ) -> Option<ReceivedEvent> {
        let is_theirs = |reading: &&mut DirectReading| {
            let theirs = &reading.of;
            (theirs.subscription.0, theirs.topic, theirs.supplier) == of
                && event.sequence > theirs.last
                && theirs.terms.order == EventOrder::Deadlines
                && !reading.is_link()
        };
        let Some(reading) = self.direct.readings.iter_mut().rfind(is_theirs) else { return Some(event) };
        let (link, begun) = (reading.of.link, std::mem::replace(&mut reading.begun, true));
        if !begun {
            // the times of publication do not show the order, because the broker has set the times of the
            // events that came through it
            self.empty_rings_before(link);
        }
        if let Some(reading) = self.direct.readings.iter_mut().rfind(|reading| reading.of.link == link) {
            reading.sort_in(event);
        }
        None
    }

    /// Takes all events that the supplier of a new ring has left in its former rings.
    pub(super) fn empty_rings_before(&mut self, link: u32) {
        let Some(at) = self.direct.readings.iter().position(|reading| reading.of.link == link) else {
            return;
        };
        // the new ring, and any later ones, are excluded
        let mut newer = self.direct.readings.split_off(at);
        if let Some(new) = newer.first() {
            let of = (new.of.subscription.0, new.of.topic, new.of.supplier);
            self.empty_rings(of, Some(new.of.last.saturating_add(1)));
        }
        self.direct.readings.append(&mut newer);
    }

    fn end_reading(&mut self, at: usize, end: ReadingEnd) {
        let mut reading = self.direct.readings.remove(at);
        self.direct.unwatch(&reading);
        self.received.extend(reading.take_rest());
        let (link, taken) = (reading.of.link, reading.taken());
        self.count(&reading);
        let is_broken = end == ReadingEnd::Broken;
        if is_broken {
            self.received.push_back(reading.broken_off());
        }
        if is_broken || reading.is_link() {
            let report = match reading.is_link() {
                true => RingReport::Ended { link, taken, broken: is_broken },
                false => RingReport::Broken { link, taken },
            };
            self.report(reading.of.subscription.0, report);
            // the ring's later events are lost until the broker knows of the end, so a sleeping broker has to
            // be woken
            let _ = self.transport.flush();
        }
    }

    /// Ends a link by the broker's order, after the events that have come. A supplier that goes on sending
    /// does not delay the end.
    pub(super) fn cut(&mut self, link: u32) {
        drop(self.direct.links.take_accepted(link));
        let Some(at) = self.direct.readings.iter().position(|reading| reading.of.link == link) else {
            return;
        };
        let Some(reading) = self.direct.readings.get_mut(at) else { return };
        // earlier events of the supplier wait at the broker
        if !reading.begun {
            reading.is_cut = true;
            return;
        }
        reading.look_again();
        let (mut end, until) = (ReadingEnd::Broken, StdInstant::now() + CUT_TIMEOUT);
        for turn in 0..MAX_EMPTIED {
            if turn % TIMED_EVERY == 0 && StdInstant::now() >= until {
                break;
            }
            match reading.take() {
                Ok(Some(reception)) => self.received.push_back(reception),
                Ok(None) if reading.skipped => {}
                Ok(None) => {
                    end = ReadingEnd::Ended;
                    break;
                }
                Err(ended) => {
                    end = ended;
                    break;
                }
            }
        }
        self.end_reading(at, end);
    }

    /// Sends a report to the broker. The report may wait for room, and is lost if the connection breaks.
    pub(super) fn report(&mut self, number: u32, report: RingReport) {
        self.queue_report(number, report);
        self.send_reports();
    }

    fn queue_report(&mut self, number: u32, report: RingReport) {
        let mut head = Vec::new();
        Frame::RingReport { number, report }.write(&mut head);
        self.direct.reports.push_back(head);
    }

    /// Sends the reports for which there is room. Returns whether all were sent.
    pub(super) fn send_reports(&mut self) -> bool {
        loop {
            while let Some(head) = self.direct.reports.front() {
                if let Ok(Taken::Full) = self.transport.send(head, PayloadRef::Bytes(&[])) {
                    return false;
                }
                self.direct.reports.pop_front();
            }
            // while the connection is full, further refusals are added to those that wait
            let Some((number, counts)) = self.direct.refused.pop_first() else { return true };
            self.queue_report(number, RingReport::Refused { counts });
        }
    }

    fn count(&mut self, reading: &DirectReading) {
        if reading.counts != Default::default() {
            let report = RingReport::Counted { topic: reading.of.topic, counts: reading.counts };
            self.report(reading.of.subscription.0, report);
        }
    }

    /// Reports the events taken from rings to the broker.
    pub(super) fn count_readings(&mut self) {
        // no further counts are queued as long as the connection is full
        if !self.send_reports() {
            return;
        }
        let mut readings = std::mem::take(&mut self.direct.readings);
        for reading in &mut readings {
            self.count(reading);
            reading.counts = Default::default();
        }
        self.direct.readings = readings;
    }

    fn is_uncounted(&self) -> bool {
        self.direct.readings.iter().any(|reading| reading.counts != Default::default())
    }

    /// Does the same as [`count_readings`](Self::count_readings), but only if the last report is old enough.
    fn count_in_time(&mut self, now: Instant) -> Result<(), Error> {
        if now - self.direct.counted_at >= COUNTED_EVERY && self.is_uncounted() {
            self.direct.counted_at = now;
            self.count_readings();
            self.flush_connected()?;
        }
        Ok(())
    }

    /// Returns the next event or notice of a client that reads rings, if one comes within the timeout.
    pub(super) fn receive_direct(
        &mut self,
        timeout: Option<StdDuration>,
    ) -> Result<Option<Reception>, Error> {
        let (mut until, mut is_last) = (None, false);
        loop {
            if let Some(reception) = self.next_received() {
                return Ok(Some(reception));
            }
            self.direct.since_frames += 1;
            let frames = self.direct.since_frames >= TURN || self.looks_again();
            // an event from the broker may be due before the events that wait here
            let sorts = || self.direct.readings.iter().any(DirectReading::sorts);
            if self.transport.has_come() == Some(true) && sorts() {
                self.take_frame()?;
                if !self.received.is_empty() {
                    continue;
                }
            }
            if !frames && let Some(reception) = self.read_ring() {
                match self.unless_late(reception) {
                    None => continue,
                    reception => return Ok(reception),
                }
            }
            self.direct.since_frames = 0;
            if frames {
                self.count_in_time(clock::now())?;
            }
            // a ring that has ended may have left a notice
            let mut came = self.take_frame_if_due(frames)?;
            if came || frames || !self.received.is_empty() {
                // an order to end a link must not wait behind other frames
                while frames && came && !self.transport.passes() && self.received.len() < MAX_RECEIVED {
                    came = self.take_frame()?;
                }
                continue;
            }
            self.apply_orders()?;
            if self.direct.links.is_due {
                self.serve_links()?;
            }
            self.report_late();
            self.send_reports();
            self.flush_connected()?;
            let until =
                *until.get_or_insert_with(|| timeout.map(|timeout| clock::now() + Duration::from(timeout)));
            // the suppliers' new events must not keep the program here beyond its timeout
            let skipped = self.direct.readings.iter().any(|reading| reading.skipped);
            if skipped && until.is_some_and(|until| until <= clock::now()) {
                self.stays_ready(true)?;
                return Ok(None);
            }
            // continues at once: the next ring may have been offered already, and its offer is not signalled
            // again
            if skipped {
                continue;
            }
            if !self.wait_direct(until, &mut is_last)? {
                return Ok(None);
            }
        }
    }

    /// Returns whether the program has only taken events of links for [`BROKER_INTERVAL`]. It may compute
    /// between two of them.
    fn looks_again(&mut self) -> bool {
        if self.transport.passes() || self.direct.readings.is_empty() {
            return false;
        }
        let now = clock::now();
        let looks = now - self.direct.looked_at >= BROKER_INTERVAL;
        if looks {
            self.direct.looked_at = now;
        }
        looks
    }

    /// Handles one frame of the broker, if one has come. A client that waits at sockets asks its kernel for
    /// one only if `asks` says so, or after the kernel has reported bytes.
    fn take_frame_if_due(&mut self, asks: bool) -> Result<bool, Error> {
        let asks = asks
            || self.transport.passes()
            || self.direct.links.has_frame
            || !self.transport.received_part().is_empty();
        let came = asks && self.take_frame()?;
        self.direct.links.has_frame &= came;
        Ok(came)
    }

    /// If `stays` is true, makes the descriptor ready although no frame has come, because the rings have
    /// events that were not examined. If it is false, ends this state.
    pub(super) fn stays_ready(&mut self, stays: bool) -> Result<(), Error> {
        let Some(ready) = &self.direct.ready else { return Ok(()) };
        if std::mem::replace(&mut self.direct.stays_ready, stays) != stays {
            // waits for writability, too: the broker's socket is always writable, because it carries only
            // single bytes and no frames
            let flags = if stays { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(ready, &*self.transport, EventData::new_u64(0), flags)
                .map_err(Error::from_errno)?;
        }
        Ok(())
    }

    /// Takes the event with the earliest deadline among all rings, or a notice.
    pub(super) fn read_ring(&mut self) -> Option<Reception> {
        loop {
            let at = match self.direct.readings.len() {
                0 => return None,
                1 if self.direct.readings[0].begun => 0,
                _ => self.due_first()?,
            };
            match self.direct.readings.get_mut(at)?.take() {
                Ok(next) => return next,
                Err(end) => self.end_reading(at, end),
            }
        }
    }

    fn due_first(&mut self) -> Option<usize> {
        let (mut at, mut first) = (0, None);
        while let Some(reading) = self.direct.readings.get_mut(at) {
            if !reading.begun {
                at += 1;
                continue;
            }
            match reading.peek() {
                Ok(due) => {
                    let due = due.map(|due| (due, at));
                    first = [first, due].into_iter().flatten().min();
                    at += 1;
                }
                Err(end) => {
                    self.end_reading(at, end);
                    first = None;
                    at = 0;
                }
            }
        }
        first.map(|(_, at)| at)
    }

    fn ring_has_something(&self) -> bool {
        self.direct.readings.iter().any(DirectReading::has_something)
            || self.transport.has_come() == Some(true)
    }

    /// Waits until a ring or the broker may have a frame. Returns false if the timeout has passed; the
    /// descriptor then becomes ready with the next event.
    fn wait_direct(&mut self, until: Option<Instant>, is_last: &mut bool) -> Result<bool, Error> {
        if !self.transport.passes() {
            return self.wait_at_sockets(until, is_last);
        }
        let (budget, mut polls) = (self.wait.budget(), 0);
        loop {
            if self.ring_has_something() {
                return Ok(true);
            }
            self.interrupt.poll()?;
            let now = clock::now();
            let over = until.is_some_and(|until| until <= now);
            if budget.is_left(|| now) && !over {
                for _ in 0..16 {
                    spin_once(&mut polls);
                    if self.ring_has_something() {
                        return Ok(true);
                    }
                }
                if polls % THOROUGH == 0 {
                    self.transport.woken()?;
                    if !self.direct.readings.iter_mut().all(|reading| reading.woken() && reading.has_ring()) {
                        return Ok(true);
                    }
                }
                continue;
            }
            self.count_in_time(now)?;
            let uncounted = self.is_uncounted();
            let wake = if uncounted { Some(self.direct.counted_at + COUNTED_EVERY) } else { None };
            let asked = interrupt::slice(None).map(|slice| now + slice.into());
            let wake = [until, wake, asked].into_iter().flatten().min();
            if !over && let Some(slept) = self.doze((now + MAX_SLEEP).min(wake.unwrap_or(Instant::NEVER))) {
                // checks that take a system call can wait while there is an event
                if slept && !self.ring_has_something() {
                    self.take_bells()?;
                }
                return Ok(true);
            }
            let armed = self.direct.readings.iter().all(DirectReading::arm);
            if self.transport.prepare_to_wait(Awaited::FramesAndRoom)? == MayWait::No || !armed {
                return Ok(true);
            }
            if over {
                return Ok(false);
            }
            self.sleep(wake.map(|wake| wake - now))?;
            // the caller's next poll finds the frame that has come
            self.take_bells()?;
            return Ok(true);
        }
    }

    /// Does what [`wait_direct`](Self::wait_direct) does, for a client without shared memory. After the
    /// timeout a ready descriptor leads to one more pass (`is_last`), because it may stay ready for other
    /// reasons than an event.
    fn wait_at_sockets(&mut self, until: Option<Instant>, is_last: &mut bool) -> Result<bool, Error> {
        let (budget, mut polls) = (self.wait.budget(), 0);
        loop {
            if self.direct.readings.iter().any(DirectReading::has_something) {
                return Ok(true);
            }
            self.interrupt.poll()?;
            let now = clock::now();
            self.count_in_time(now)?;
            let over = until.is_some_and(|until| until <= now);
            let spins = !over && budget.is_left(|| now);
            let counts = self.is_uncounted().then(|| self.direct.counted_at + COUNTED_EVERY);
            let checks = [self.transport.peer_check_interval(), interrupt::slice(None)];
            let checks = checks.map(|check| check.map(Duration::from));
            let checks = checks.into_iter().chain([self.direct.links.check_after()]);
            let check = checks.flatten().min().map(|check| now + check);
            let wake = [until, counts, check].into_iter().flatten().min();
            let time = if spins || over { Some(Duration::ZERO) } else { wake.map(|wake| wake - now) };
            if self.sleep(time)? && !std::mem::replace(is_last, over) {
                return Ok(true);
            }
            if over {
                return Ok(false);
            }
            if spins {
                spin_once(&mut polls);
                continue;
            }
            self.transport.check_peer()?;
            if check.is_some_and(|check| check <= clock::now()) && self.direct.links.are_active() {
                self.direct.links.is_due = true;
                return Ok(true);
            }
        }
    }

    /// Consumes the wake-ups that made the descriptor ready, and detects suppliers that are gone.
    fn take_bells(&mut self) -> Result<(), Error> {
        self.transport.woken()?;
        for reading in &mut self.direct.readings {
            reading.woken();
        }
        Ok(())
    }

    /// Sleeps on the wake-up words of the broker and of all rings in memory. Returns `None` if that is not
    /// possible, and `Some(false)` if a frame had come before. A supplier wakes this sleeper with a futex,
    /// which takes about two thirds of the time of a byte through its socket and epoll. The death of a
    /// process does not end the sleep.
    fn doze(&mut self, until: Instant) -> Option<bool> {
        let of_broker = self.transport.doze();
        let begun = self.direct.readings.iter().filter(|reading| reading.begun);
        let mut counted = Vec::with_capacity(self.direct.readings.len() + 1);
        for dozing in std::iter::once(of_broker).chain(begun.map(DirectReading::doze)) {
            match dozing {
                Dozing::Counted(one) => counted.push(one),
                Dozing::Awake => return Some(false),
                Dozing::AtDescriptor => return None,
            }
        }
        sleep_at_any(&counted, Some(until), Scope::Shared).ok().map(|_| true)
    }

    /// Sleeps until a descriptor is ready; returns whether one is.
    fn sleep(&mut self, time: Option<Duration>) -> Result<bool, Error> {
        let Some(ready) = &self.direct.ready else { return Ok(false) };
        let timeout = time.map(|time| rustix::event::Timespec {
            tv_sec: i64::try_from(time.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (time.as_nanos() % 1_000_000_000) as i64,
        });
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 8];
        match epoll::wait(ready, &mut events[..], timeout.as_ref()) {
            Ok(count) => {
                let is_ready = |of| events[..count].iter().any(|it| it.data.u64() == of);
                self.direct.links.is_due |= is_ready(UNFINISHED);
                self.direct.links.has_frame |= is_ready(0);
                Ok(count > 0)
            }
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::from_errno(error)),
        }
    }
}

/// Returns whether an item from a ring precedes, by its number, the event `before`, which came through the
/// broker.
fn is_before(reception: &Reception, before: Option<u64>) -> bool {
    let number = match reception {
        Reception::Event(event) => event.sequence,
        Reception::Notice { notice: unisono_events_wire::NoticeText::Gap { last, .. }, .. } => *last,
        _ => return true,
    };
    before.is_none_or(|before| number < before)
}
