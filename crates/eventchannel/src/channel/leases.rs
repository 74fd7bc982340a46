//! Runs the channel's actions at due times: it ends leases, rings timers, redelivers events, gives up
//! incomplete correlations, and closes inboxes to which no consumer has returned.
//!
//! The caller asks [`next_wake`](EventChannel::next_wake) for the next due time, and then calls
//! [`advance`](EventChannel::advance). A supplier renews its lease when it publishes or calls
//! [`renew_supplier`](EventChannel::renew_supplier), a consumer by
//! [`renew_consumer`](EventChannel::renew_consumer). A party whose lease ends counts as dead (DDS:
//! LIVELINESS). The consumers of a dead supplier's events get a notice.
//!
//! A topic may have exclusive ownership (DDS: OWNERSHIP, OWNERSHIP_STRENGTH). Then consumers get the events
//! of its strongest supplier only. When that supplier goes, they get the events of the next strongest one,
//! from its next event on. The channel has followed the sequence numbers of the new owner all the time, so it
//! reports no gap.

use super::EventChannel;
use super::receiver::MAX_NOTICES;
use crate::alarms::ChannelAlarm;
use crate::correlation::Incomplete;
use crate::delivery::ChannelNotice;
use crate::error::ChannelError;
use crate::event::{EventPayload, NO_DEADLINE};
use crate::ids::{ConsumerId, CorrelationId, InboxId, SupplierId, TimerId};
use crate::quality::Departed;
use crate::tenant::{TenantId, TenantResource, rings};
use unisono_time::{Duration, Instant};

/// The maximum number of alarms per call. Without a bound, a caller would deliver nothing while the timers of
/// many consumers are overdue. 256 alarms take some 50 us.
const MAX_ALARMS: usize = 256;

/// The maximum silence of a supplier or consumer, and its last sign of life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) period: Duration,
    /// The last sign of life.
    pub(super) renewed: Instant,
}

/// The parameters of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimerSpec {
    /// A tick in each period; the first one is due a period from now. Ticks that could not be delivered in
    /// time are delivered late, each once, except ticks that are dropped because too many notices wait.
    Every(Duration),
    /// A notice when no event has matched for this long, and again after each further period of silence.
    Silence(Duration),
}

/// Returns when a timer that rang at `at` rings next. A timer that is far behind skips the periods whose
/// notices would be dropped anyway. Otherwise a period of 1 ns would keep the channel busy forever.
fn next_ring(now: Instant, at: Instant, period: Duration) -> Instant {
    let behind = (now - at).as_nanos() / period.as_nanos();
    at + period * behind.saturating_sub(MAX_NOTICES as u64).saturating_add(1)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TimerState {
    pub(super) inbox: InboxId,
    /// The consumer that set the timer.
    pub(super) by: ConsumerId,
    tenant: TenantId,
    spec: TimerSpec,
    next: Instant,
}

impl<P: EventPayload> EventChannel<P> {
    /// Returns the time at which to call [`advance`](Self::advance), unless another call comes before it.
    /// `None`: no alarm is set.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        // while readers have kept events to read or departures are to be reported, the next call is due at
        // once
        let reads = (!self.reading.is_empty() || !self.departures.is_empty()).then_some(self.clock);
        reads.into_iter().chain(self.alarms.first()).min()
    }

    /// Runs the alarms that are due, at most `MAX_ALARMS` of them; if more are due,
    /// [`next_wake`](Self::next_wake) afterwards returns a time no later than now.
    pub fn advance(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
        for _ in 0..MAX_ALARMS {
            let Some((at, alarm)) = self.alarms.due(now) else { break };
            self.work += 1;
            match alarm {
                ChannelAlarm::SupplierLease(supplier) => {
                    let Some(lease) = self.suppliers.get(&supplier).and_then(|state| state.lease) else {
                        continue;
                    };
                    let end = lease.renewed + lease.period;
                    match end <= now {
                        true => {
                            self.lapses += 1;
                            self.depart(supplier, Departed::Died);
                        }
                        false => self.alarms.set(end, alarm),
                    }
                }
                ChannelAlarm::ConsumerLease(consumer) => {
                    let Some(lease) = self.leases.get(&consumer).copied() else {
                        continue;
                    };
                    let end = lease.renewed + lease.period;
                    match end <= now {
                        true => {
                            self.lapses += 1;
                            self.disconnect(now, consumer);
                        }
                        false => self.alarms.set(end, alarm),
                    }
                }
                ChannelAlarm::Redelivery(consumer, number) => self.repeat(now, consumer, number),
                ChannelAlarm::Linger(inbox) => {
                    let over = self.receivers.get(&inbox).is_some_and(|receiver| {
                        receiver.members.is_empty() && receiver.lingers_until() <= at
                    });
                    if over {
                        self.close(inbox);
                    }
                }
                ChannelAlarm::Timer(timer) => self.ring(now, at, timer),
                ChannelAlarm::Correlation(correlation) => self.run_out(now, correlation),
            }
        }
    }

    /// Returns the number of leases that have expired. When it changes, [`has_supplier`](Self::has_supplier)
    /// and [`has_consumer`](Self::has_consumer) show whose leases expired.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.lapses
    }

    #[must_use]
    pub fn has_supplier(&self, supplier: SupplierId) -> bool {
        self.suppliers.contains_key(&supplier)
    }

    #[must_use]
    pub fn has_consumer(&self, consumer: ConsumerId) -> bool {
        self.consumers.contains_key(&consumer)
    }

    /// Renews the lease of a supplier. A publication renews it, too.
    pub fn renew_supplier(&mut self, now: Instant, supplier: SupplierId) {
        if let Some(lease) = self.suppliers.get_mut(&supplier).and_then(|state| state.lease.as_mut()) {
            lease.renewed = now;
        }
    }

    /// Renews the lease of a consumer. Nothing else renews it: deliveries are no sign of life, because a dead
    /// consumer looks like a paused consumer that has not acknowledged them.
    pub fn renew_consumer(&mut self, now: Instant, consumer: ConsumerId) {
        if let Some(lease) = self.leases.get_mut(&consumer) {
            lease.renewed = now;
        }
    }

    /// Extends all leases by a time in which the caller did not run, and so noticed no sign of life.
    pub fn extend_leases(&mut self, by: Duration) {
        let of_suppliers = self.suppliers.values_mut().filter_map(|state| state.lease.as_mut());
        for lease in of_suppliers.chain(self.leases.values_mut()) {
            lease.renewed += by;
        }
    }

    /// Begins a lease.
    pub(super) fn lease(
        &mut self,
        now: Instant,
        period: Option<Duration>,
        alarm: ChannelAlarm,
    ) -> Option<Lease> {
        let lease = Lease { period: period?, renewed: now };
        self.alarms.set(now + lease.period, alarm);
        Some(lease)
    }

    /// Sets a timer for a consumer or its group.
    ///
    /// # Errors
    /// The consumer does not exist, the period is zero, there are too many timers, or the total rate of the
    /// tenant's timers would be too high.
    pub fn set_timer(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        spec: TimerSpec,
    ) -> Result<TimerId, ChannelError> {
        let (inbox, tenant) = self.attachment(consumer)?;
        let (TimerSpec::Every(period) | TimerSpec::Silence(period)) = spec;
        if period.is_zero() {
            return Err(ChannelError::ZeroPeriod);
        }
        if self.timers.len() >= self.limits.subscriptions {
            return Err(ChannelError::TooMany { what: "timers", most: self.limits.subscriptions });
        }
        self.tenants.check(tenant, TenantResource::Rings, rings(period))?;
        self.tenants.take(tenant, TenantResource::Rings, rings(period));
        let id = TimerId(self.number());
        let next = now + period;
        self.timers.insert(id, TimerState { inbox, by: consumer, tenant, spec, next });
        self.alarms.set(next, ChannelAlarm::Timer(id));
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            receiver.rare_mut().timers.push(id);
            receiver.last_event = receiver.last_event.max(now);
        }
        Ok(id)
    }

    /// Ends a timer. The caller removes it from the inbox's list of timers.
    pub(super) fn end_timer(&mut self, timer: TimerId) {
        if let Some(state) = self.timers.remove(&timer) {
            let (TimerSpec::Every(period) | TimerSpec::Silence(period)) = state.spec;
            self.tenants.release(state.tenant, TenantResource::Rings, rings(period));
        }
    }

    fn ring(&mut self, now: Instant, at: Instant, timer: TimerId) {
        let Some(state) = self.timers.get_mut(&timer) else { return };
        let inbox = state.inbox;
        let Some(last_event) = self.receivers.get(&inbox).map(|receiver| receiver.last_event) else { return };
        let (notice, next, due) = match state.spec {
            TimerSpec::Every(period) => {
                let next = next_ring(now, at, period);
                (Some(ChannelNotice::Tick { timer, at }), next, next)
            }
            TimerSpec::Silence(period) if last_event + period <= at => {
                let next = next_ring(now, at, period);
                (Some(ChannelNotice::Silence { timer, since: last_event }), next, NO_DEADLINE)
            }
            TimerSpec::Silence(period) => (None, last_event + period, NO_DEADLINE),
        };
        state.next = next;
        self.alarms.set(next, ChannelAlarm::Timer(timer));
        if let Some(notice) = notice {
            self.notify(inbox, due, notice);
        }
    }

    /// Drops timed-out parts of a correlation, and sets the next alarm.
    pub(super) fn run_out(&mut self, now: Instant, id: CorrelationId) {
        let Some(state) = self.correlations.get_mut(&id) else { return };
        let (inbox, report) = (state.inbox, state.incomplete == Incomplete::Report);
        let began = state.alarm.take();
        let oldest = state.correlator.expire(now);
        let next = oldest.map(|oldest| state.correlator.end(oldest) + Duration::from_nanos(1));
        state.alarm = next;
        if let Some(next) = next {
            self.alarms.set(next, ChannelAlarm::Correlation(id));
        }
        if report && began.is_some() {
            self.notify(inbox, NO_DEADLINE, ChannelNotice::Incomplete { correlation: id });
        }
    }

    /// Updates the alarm of a correlation after an event: sets it, or clears it if the correlation was
    /// completed.
    pub(super) fn watch(&mut self, now: Instant, id: CorrelationId) {
        let Some(state) = self.correlations.get_mut(&id) else { return };
        let oldest = state.correlator.expire(now);
        let next = oldest.map(|oldest| state.correlator.end(oldest) + Duration::from_nanos(1));
        let before = std::mem::replace(&mut state.alarm, next);
        if before != next {
            if let Some(before) = before {
                self.alarms.clear(before, ChannelAlarm::Correlation(id));
            }
            if let Some(next) = next {
                self.alarms.set(next, ChannelAlarm::Correlation(id));
            }
        }
    }
}
