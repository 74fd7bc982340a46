//! Bounds on the work of a turn of the server, in all and for each tenant.
//!
//! ```text
//!   deliver: events of the last turn, and more  ->  receive: frames of clients, within the slices of tenants
//! ```
//! A frame may be cheap, or cost as much as thousands of others: an event for a thousand consumers, a
//! subscription to the whole history. So a turn counts *steps*, each about as long as to publish or to
//! deliver an event, and reads the clock. A tenant whose slice is used up waits for the next turn with all
//! its clients; deferred clients go first there. More connections give a tenant no larger slice. While only
//! one tenant sends frames, the server receives from all its clients in each turn.
//!
//! The bound on deliveries follows the last turn's publications: as many steps as came in, and some more, so
//! that events from timers and from the history of topics do not delay published ones.
//!
//! Cost: a look-up and a reading of the clock for each client that is received from, and another reading
//! every few steps.

use unisono_eventchannel::{NumberMap, TenantId};
use unisono_events_wire::transport::MAX_INTAKE;
use unisono_linux::clock::{Duration, Instant};

/// Maximum number of steps of one tenant in a turn: 64 frames each from as many clients as a tenant may have,
/// or one event for the largest number of consumers.
const MAX_TENANT_WORK: usize = 4096;
/// Maximum time of one tenant in a turn. Ten tenants that use all of it delay a client of another tenant by
/// 40 ms. Chosen, not measured.
const MAX_TENANT_TIME: Duration = Duration::from_millis(4);
/// Maximum time of one tenant in a turn, or of one client, however few its steps, so that a step that takes
/// far longer than the count assumes delays others no longer than this. A broker that is preempted now and
/// then, for 60 ms on a host with twenty busy programs per core, stays below it. Chosen, not measured.
const MAX_UNCOUNTED_TIME: Duration = Duration::from_millis(250);
/// Maximum bytes of one tenant's frames, or of one client's, in a turn. The server sends the frames for other
/// clients before it takes more. The kernel accepts about as many bytes for a connection in a turn (its own
/// bound on unsent bytes, and the window of the program), so that the consumer of a publisher that floods the
/// broker gets all that is published.
pub(super) const MAX_TURN_BYTES: usize = MAX_INTAKE;
/// Steps of a tenant before the clock counts: 64 events each from several programs, which take a millisecond.
/// A broker that is preempted meanwhile still receives from as many programs, so that each class has enough
/// events to deliver.
const UNTIMED_WORK: usize = 1024;
/// Deliveries, or steps of one client, before the clock counts.
const UNTIMED: usize = 64;
/// Maximum time for which a turn goes on while only one tenant sends frames. A client of another tenant that
/// comes meanwhile waits up to as long.
pub(super) const MAX_ALONE_TIME: Duration = Duration::from_millis(50);
/// Deliveries of a turn beyond the steps of the last turn.
const MORE_DELIVERIES: usize = 1024;
/// Maximum time for deliveries before the server receives from clients. Large payloads take most of it: 10 ms
/// are 40 MB.
const MAX_DELIVERY_TIME: Duration = Duration::from_millis(10);
/// Maximum time for deliveries, however few they are: the broker may read thousands of events of the log
/// before it finds one to deliver.
const MAX_UNCOUNTED_DELIVERY_TIME: Duration = MAX_UNCOUNTED_TIME;
/// Bytes of a frame that count as one further step: copying them takes about as long. A run of deliveries
/// ends after as many.
pub(super) const STEP_BYTES: usize = 8192;

/// The part of a turn that one tenant has used.
#[derive(Clone, Copy, Debug, Default)]
struct UsedSlice {
    work: usize,
    bytes: usize,
    time: Duration,
}

/// The slices of a turn.
#[derive(Debug, Default)]
pub(super) struct TurnSlices {
    used: NumberMap<TenantId, UsedSlice>,
    /// The tenant that the server receives from now, and since when.
    current: Option<(TenantId, Instant)>,
    /// Steps of all tenants.
    work: usize,
    /// Whether a tenant has used its bytes.
    bytes_are_used: bool,
}

impl TurnSlices {
    /// Begins a turn; returns the steps of the last one.
    pub(super) fn begin(&mut self) -> usize {
        self.used.clear();
        (self.current, self.bytes_are_used) = (None, false);
        std::mem::take(&mut self.work)
    }

    /// Returns whether the turn may go on: the server has received from one tenant only, and that tenant has
    /// not used its bytes.
    pub(super) fn may_renew(&self) -> bool {
        self.used.len() <= 1 && !self.bytes_are_used
    }

    /// Gives the lone tenant another slice.
    pub(super) fn renew(&mut self) {
        self.used.clear();
    }

    /// Returns whether the server may receive from a client of this tenant in this turn; otherwise the client
    /// waits for the next one.
    pub(super) fn may_receive(&mut self, now: Instant, tenant: TenantId) -> bool {
        if let Some((before, since)) = self.current.replace((tenant, now)) {
            let used = self.used.entry(before).or_default();
            used.time += now - since;
        }
        let used = self.used.get(&tenant).copied().unwrap_or_default();
        let most = if used.work >= UNTIMED_WORK { MAX_TENANT_TIME } else { MAX_UNCOUNTED_TIME };
        let took_long = used.time >= most;
        let may = used.work < MAX_TENANT_WORK && used.bytes < MAX_TURN_BYTES && !took_long;
        if !may {
            self.current = None;
        }
        may
    }

    /// Counts the steps of a client of a tenant.
    pub(super) fn spend(&mut self, tenant: TenantId, work: usize) {
        self.used.entry(tenant).or_default().work += work;
        self.work += work;
    }

    /// Charges a tenant for the steps and bytes that a client has used in its turn.
    pub(super) fn spend_turn(&mut self, tenant: TenantId, turn: &ClientTurn) {
        self.spend(tenant, turn.work);
        let used = self.used.entry(tenant).or_default();
        used.bytes += turn.bytes;
        self.bytes_are_used |= used.bytes >= MAX_TURN_BYTES;
    }
}

/// The deliveries that a turn may still make.
#[derive(Debug)]
pub(super) struct DeliveryTurn {
    began: Option<Instant>,
    delivered: usize,
    left: usize,
}

/// The reason why a turn stops delivering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeliveryStop {
    /// The bound on deliveries is reached.
    Counted,
    /// The deliveries took too long: events of the last turn may still wait.
    TookLong,
}

impl DeliveryTurn {
    /// Bounds a turn that follows one with this many steps.
    pub(super) fn after(work: usize) -> Self {
        Self { began: None, delivered: 0, left: work + MORE_DELIVERIES }
    }

    /// Checks whether one more delivery is allowed.
    pub(super) fn goes_on(&mut self, now: Instant) -> Result<(), DeliveryStop> {
        let took = now - *self.began.get_or_insert(now);
        let most = if self.delivered >= UNTIMED { MAX_DELIVERY_TIME } else { MAX_UNCOUNTED_DELIVERY_TIME };
        if took > most {
            return Err(DeliveryStop::TookLong);
        }
        self.left = self.left.checked_sub(1).ok_or(DeliveryStop::Counted)?;
        self.delivered += 1;
        Ok(())
    }

    /// Returns the maximum number of small events that may follow a delivery before the clock is read again.
    pub(super) fn longest_run(&self) -> usize {
        self.left.min(CLOCK_EVERY)
    }

    /// Counts the deliveries of a run.
    pub(super) fn spend_run(&mut self, delivered: usize) {
        self.delivered += delivered;
        self.left = self.left.saturating_sub(delivered);
    }
}

/// One client's part of a turn: frames, steps and time.
#[derive(Debug)]
pub(super) struct ClientTurn {
    frames: usize,
    work: usize,
    bytes: usize,
    began: Instant,
    /// The step count of the next reading of the clock.
    clock_at: usize,
    pub(super) now: Instant,
}

/// Steps between two readings of the clock. A step takes about a microsecond, and a reading 30 ns in a
/// virtual machine. An event's arrival time may thus be some microseconds early.
const CLOCK_EVERY: usize = 8;
/// Steps of an event for one consumer. After a frame of more steps, such as a request, the clock is read at
/// once.
const PUBLICATION: usize = 2;

impl ClientTurn {
    pub(super) fn begin(now: Instant, frames: usize) -> Self {
        Self { frames, work: 0, bytes: 0, began: now, clock_at: CLOCK_EVERY - 1, now }
    }

    /// Ends the turn, because the client's transport has read its maximum of bytes, perhaps only a part of a
    /// frame.
    pub(super) fn end_by_bytes(&mut self) {
        self.bytes = MAX_TURN_BYTES;
    }

    /// Returns whether a frame was taken.
    pub(super) fn has_received(&self) -> bool {
        self.work > 0
    }

    /// Returns whether one more frame may be taken. Reads the clock every [`CLOCK_EVERY`] steps, and after
    /// each frame that is more than a publication.
    #[inline]
    pub(super) fn goes_on(&mut self, clock: impl Fn() -> Instant) -> bool {
        if self.frames == 0 || self.work >= MAX_TENANT_WORK || self.bytes >= MAX_TURN_BYTES {
            return false;
        }
        if self.work >= self.clock_at {
            self.now = clock();
            self.clock_at = self.work + CLOCK_EVERY;
        }
        self.frames -= 1;
        let most = if self.work > UNTIMED { MAX_TENANT_TIME } else { MAX_UNCOUNTED_TIME };
        self.now - self.began < most
    }

    /// Counts a frame of this many bytes that cost `more` steps beyond one.
    #[inline]
    pub(super) fn spend(&mut self, bytes: usize, more: usize) {
        let steps = 1 + more + bytes / STEP_BYTES;
        self.work += steps;
        self.bytes += bytes;
        if steps > PUBLICATION {
            self.clock_at = self.work;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of frames received from each client in 100 turns. Each client always has frames,
    /// each of the given number of steps; a step takes a microsecond.
    fn received_frames(clients: &[(u32, usize)]) -> Vec<usize> {
        let (mut slices, mut now, mut frames) =
            (TurnSlices::default(), Instant::ZERO, vec![0; clients.len()]);
        let mut order: Vec<usize> = (0..clients.len()).collect();
        for _ in 0..100 {
            slices.begin();
            let mut deferred = Vec::new();
            let mut served = Vec::new();
            for at in order {
                let (tenant, work) = clients[at];
                if !slices.may_receive(now, TenantId(tenant)) {
                    deferred.push(at);
                    continue;
                }
                let clock = std::cell::Cell::new(now);
                let mut turn = ClientTurn::begin(now, 64);
                while turn.goes_on(|| clock.get()) {
                    clock.set(clock.get() + Duration::from_nanos(1000 * work as u64));
                    turn.spend(0, work - 1);
                    frames[at] += 1;
                }
                now = clock.get();
                slices.spend_turn(TenantId(tenant), &turn);
                served.push(at);
            }
            order = deferred;
            order.extend(served);
        }
        frames
    }

    #[test]
    fn a_tenant_with_a_hundred_clients_has_no_more_than_a_slice() {
        let mut clients = vec![(1, 100); 100];
        clients.push((2, 1));
        let frames = received_frames(&clients);
        assert_eq!(frames[100], 6400, "64 in each turn");
        let of_many: usize = frames[..100].iter().sum();
        assert!(of_many * 100 <= 100 * (MAX_TENANT_WORK + 64 * 100), "{of_many}");
        let least = frames[..100].iter().min().copied().unwrap_or(0);
        assert!(least > 0, "those that waited go first: {frames:?}");
    }

    #[test]
    fn one_frame_that_takes_long_ends_its_clients_turn() {
        let frames = received_frames(&[(1, 1_000_000), (2, 1)]);
        assert_eq!(frames, [100, 6400]);
    }

    #[test]
    fn few_steps_that_take_long_end_a_turn_too() {
        // each frame counts as a publication or a request, and takes 200 ms
        for (more, most) in [(1, CLOCK_EVERY / PUBLICATION), (2, 2)] {
            let clock = std::cell::Cell::new(Instant::ZERO);
            let mut turn = ClientTurn::begin(clock.get(), 64);
            let mut frames = 0;
            while turn.goes_on(|| clock.get()) {
                clock.set(clock.get() + Duration::from_millis(200));
                turn.spend(0, more);
                frames += 1;
            }
            assert_eq!(frames, most, "{more} steps more");
        }
        let mut slices = TurnSlices::default();
        let (evil, other) = (TenantId(1), TenantId(2));
        assert!(slices.may_receive(Instant::ZERO, evil));
        slices.spend(evil, 3);
        assert!(
            !slices.may_receive(Instant::ZERO + MAX_UNCOUNTED_TIME, evil),
            "another client of the tenant waits"
        );
        assert!(slices.may_receive(Instant::ZERO + MAX_UNCOUNTED_TIME, other));
        let mut deliveries = DeliveryTurn::after(0);
        assert_eq!(deliveries.goes_on(Instant::from_nanos(5)), Ok(()));
        let late = Instant::from_nanos(6) + MAX_UNCOUNTED_DELIVERY_TIME;
        assert_eq!(deliveries.goes_on(late), Err(DeliveryStop::TookLong));
    }

    #[test]
    fn runs_count_as_deliveries_and_end_with_the_turn() {
        let mut turn = DeliveryTurn::after(0);
        assert_eq!(turn.longest_run(), CLOCK_EVERY);
        turn.spend_run(MORE_DELIVERIES - 3);
        assert_eq!(turn.longest_run(), 3);
        turn.spend_run(3);
        assert_eq!(turn.longest_run(), 0);
        assert_eq!(turn.goes_on(Instant::ZERO), Err(DeliveryStop::Counted));
    }

    #[test]
    fn deliveries_are_as_many_as_came_in_and_some_more() {
        let mut turn = DeliveryTurn::after(5000);
        let delivered = (0..).take_while(|_| turn.goes_on(Instant::from_nanos(1)).is_ok()).count();
        assert_eq!(delivered, 5000 + MORE_DELIVERIES);
        let mut turn = DeliveryTurn::after(0);
        for _ in 0..UNTIMED {
            assert_eq!(turn.goes_on(Instant::from_nanos(5)), Ok(()));
        }
        let late = Instant::from_nanos(6) + MAX_DELIVERY_TIME;
        assert_eq!(turn.goes_on(late), Err(DeliveryStop::TookLong));
    }
}
