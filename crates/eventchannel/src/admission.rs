//! Admission control for consumers: checks worst-case execution times and periods against the guaranteed
//! shares of the classes.
//!
//! A consumer with a reservation states its worst-case execution time per event (`C`), the minimum
//! inter-arrival time of its events (`T`), and its relative deadline (`D`), counted from the arrival of an
//! event. Whenever a consumer with an inbox of its own or the first consumer of a group connects, and
//! whenever the classes change, two conditions are checked for each class with reservations:
//!
//! 1. Utilization: the sum of `C / T` does not exceed the share that the policy guarantees the class.
//! 2. Demand: for each interval `t`, the work that is due within `t` when the first events of all consumers
//!    arrive together does not exceed the service that the class is guaranteed within `t`. This service is
//!    the lower bound of start-time fair queuing, less the longest event of the class, which may be in
//!    service already.
//!
//! The reservations of one tenant may need at most half of the share and half of the service, so that no
//! tenant reserves a whole class ([`ConsumerSpec::reserver`](crate::ConsumerSpec::reserver)).
//!
//! The bound depends on the longest event of the other classes. So a consumer without a reservation is
//! checked, too: its execution time may break a guarantee given to other consumers.
//!
//! Cost: the demand is exact for the first [`STEPS`] events of each consumer. For later events the check uses
//! `C / T` times the interval. This is safe, because it never underestimates the demand, and it makes the
//! check finite: about `STEPS * n * n` steps for a class of `n` consumers.
//!
//! Reference: Baruah, Mok, Rosier, "Preemptively scheduling hard-real-time sporadic tasks on one processor"
//! (RTSS 1990), the demand bound; Jeffay, Stanat, Martel, "On non-preemptive scheduling of periodic and
//! sporadic tasks" (RTSS 1991), the event that is in service already; Albers, Slomka, "An event stream driven
//! approximation" (ECRTS 2004), the exact demand of the first events only; Goyal, Vin, Cheng, "Start-time
//! fair queuing" (SIGCOMM 1996), theorem 2, the guaranteed service.

use crate::ids::{InboxId, TenantId};
use std::collections::BTreeMap;
use unisono_fairqueue::{ClassId, Hierarchy, bounds};
use unisono_time::Duration;

/// The number of events of each consumer for which the demand is exact. For later events the demand is
/// overestimated by at most `1 / STEPS` (6 %), so that the cost of an admission does not grow with the
/// periods.
const STEPS: u64 = 16;

/// The worst-case execution time of one event at a consumer. The consumer's class is charged this time unless
/// a delivery is measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExecutionTime {
    pub event: Duration,
    /// Additional time per KiB of payload; for example 81,920 ns on a link of 100 Mbit/s.
    pub kibibyte: Duration,
}

impl ExecutionTime {
    /// Makes an execution time that does not depend on the size of the payload.
    #[must_use]
    pub fn constant(event: Duration) -> Self {
        Self { event, kibibyte: Duration::ZERO }
    }

    /// Returns the execution time of an event with a payload of `bytes` bytes.
    #[must_use]
    pub fn for_bytes(self, bytes: usize) -> Duration {
        let bytes = u128::try_from(bytes).unwrap_or(u128::MAX);
        let more = (u128::from(self.kibibyte.as_nanos()).saturating_mul(bytes)).div_ceil(1024);
        self.event + Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX))
    }
}

/// A consumer's guarantee. It holds as long as the consumer's events keep to these bounds.
///
/// ```
/// use unisono_eventchannel::{
///     ChannelError, ChannelLimits, ClassSpec, ConsumerSpec, Duration, EventChannel, ExecutionTime,
///     Hierarchy, InboxSpec, Instant, Reservation,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let classes = Hierarchy::new(ClassSpec::new("all"))?.with_default("rest")?;
/// let mut channel: EventChannel<Vec<u8>> = EventChannel::new(classes, ChannelLimits::default());
/// let consumer = |name, execution| {
///     let period = Duration::from_millis(10);
///     let reservation = Some(Reservation { period, deadline: period, largest: 1024 });
///     let execution = ExecutionTime::constant(execution);
///     ConsumerSpec::new(name).with(InboxSpec { execution, reservation, ..InboxSpec::default() })
/// };
/// channel.connect(Instant::ZERO, consumer("camera", Duration::from_millis(2)))?;
/// let refused = channel.connect(Instant::ZERO, consumer("radar", Duration::from_millis(9)));
/// assert!(matches!(refused, Err(ChannelError::Admission(_))), "11 ms of each 10 ms: {refused:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reservation {
    /// The minimum inter-arrival time of two events. An event that comes earlier is treated as if it came
    /// after this time, so that a consumer that gets more events than it stated delays only its own events.
    pub period: Duration,
    /// The time from an event's arrival within which its delivery is finished. An event's own deadline counts
    /// only if it is later than that.
    pub deadline: Duration,
    /// The largest payload to which the reservation applies, in bytes.
    pub largest: usize,
}

/// Why a consumer cannot be admitted.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    #[error(
        "class `{class}` would need {needed:.4} of the whole and is sure of {guaranteed:.4}: {:.4} too much",
        needed - guaranteed
    )]
    Utilization { class: String, needed: f64, guaranteed: f64 },
    #[error(
        "class `{class}` would need {needed} ns of service within {within} ns and is sure of {guaranteed}: {} ns too much",
        needed - guaranteed
    )]
    Demand { class: String, within: u64, needed: u64, guaranteed: u64 },
    #[error(
        "the reservations of one client in class `{class}` would need {needed:.4} of the whole; one client may have \
         half of the class, {most:.4}: reserve less, or end another reservation"
    )]
    TenantUtilization { class: String, needed: f64, most: f64 },
    #[error(
        "the reservations of one client in class `{class}` would need {needed} ns of service within {within} ns; one \
         client may have half of the class's service, {most} ns: reserve less, or a later deadline"
    )]
    TenantDemand { class: String, within: u64, needed: u64, most: u64 },
    #[error("a reservation needs a period, a deadline and an execution time above zero")]
    Zero,
}

/// A consumer with a reservation.
#[derive(Clone, Copy, Debug)]
struct AdmittedTask {
    class: ClassId,
    /// The execution time of the consumer's longest event, in nanoseconds.
    longest: f64,
    /// Execution time, period, deadline, in nanoseconds.
    reserved: (f64, f64, f64),
    /// The tenant whose bound the reservation counts against; [`TenantId::NONE`] has no bound of its own.
    reserver: TenantId,
}

/// The admitted consumers.
#[derive(Debug, Default)]
pub(crate) struct AdmissionControl {
    tasks: BTreeMap<InboxId, AdmittedTask>,
    /// The consumers without a reservation: their number, by class and by the time that their longest event
    /// takes. Most consumers of a class are equal.
    unreserved: BTreeMap<(ClassId, Duration), usize>,
}

impl AdmissionControl {
    /// Admits a consumer whose events take no longer than `longest`.
    pub(crate) fn admit(
        &mut self,
        hierarchy: &Hierarchy,
        (inbox, class, reserver): (InboxId, ClassId, TenantId),
        (execution, longest): (ExecutionTime, Duration),
        reservation: Option<Reservation>,
    ) -> Result<(), AdmissionError> {
        let reserved = reservation.map(|asked| {
            let worst = execution.for_bytes(asked.largest);
            (worst.as_nanos() as f64, asked.period.as_nanos() as f64, asked.deadline.as_nanos() as f64)
        });
        if reserved.is_some_and(|(execution, period, deadline)| execution * period * deadline == 0.0) {
            return Err(AdmissionError::Zero);
        }
        match reserved {
            Some(reserved) => {
                let task = AdmittedTask { class, longest: longest.as_nanos() as f64, reserved, reserver };
                self.tasks.insert(inbox, task);
            }
            None => *self.unreserved.entry((class, longest)).or_default() += 1,
        }
        let checked = self.check(hierarchy).and_then(|()| self.check_tenant(hierarchy, inbox));
        if checked.is_err() {
            self.leave(inbox, class, longest);
        }
        checked
    }

    /// Returns the admitted consumers after a change of classes. `homes` has the new leaf class of each old
    /// one.
    ///
    /// # Errors
    /// A guarantee would not hold.
    pub(crate) fn in_classes(
        &self,
        hierarchy: &Hierarchy,
        homes: &[Option<ClassId>],
    ) -> Result<Self, AdmissionError> {
        let home = |task: AdmittedTask| homes[task.class.index()].map(|class| AdmittedTask { class, ..task });
        let tasks = self.tasks.iter().filter_map(|(inbox, task)| Some((*inbox, home(*task)?))).collect();
        let mut moved = Self { tasks, unreserved: BTreeMap::new() };
        for ((class, longest), count) in &self.unreserved {
            if let Some(class) = homes[class.index()] {
                *moved.unreserved.entry((class, *longest)).or_default() += count;
            }
        }
        moved.check(hierarchy)?;
        moved.tasks.keys().try_for_each(|inbox| moved.check_tenant(hierarchy, *inbox))?;
        Ok(moved)
    }

    /// Removes an admitted consumer of a class whose longest event takes this long.
    pub(crate) fn leave(&mut self, inbox: InboxId, class: ClassId, longest: Duration) {
        if self.tasks.remove(&inbox).is_none()
            && let Some(count) = self.unreserved.get_mut(&(class, longest))
        {
            *count -= 1;
            if *count == 0 {
                self.unreserved.remove(&(class, longest));
            }
        }
    }

    /// Returns the sum of `C / T` over the admitted consumers of a class, as a fraction of the whole server.
    pub(crate) fn utilization(&self, class: ClassId) -> f64 {
        self.reserved(class).map(|(execution, period, _)| execution / period).sum()
    }

    fn reserved(&self, class: ClassId) -> impl Iterator<Item = (f64, f64, f64)> {
        self.tasks.values().filter(move |task| task.class == class).map(|task| task.reserved)
    }

    fn check(&self, hierarchy: &Hierarchy) -> Result<(), AdmissionError> {
        let longest = self.longest(hierarchy);
        for (id, class) in hierarchy.classes().filter(|(id, _)| hierarchy.is_leaf(*id)) {
            let reserved: Vec<_> = self.reserved(id).collect();
            let needed = self.utilization(id);
            let guaranteed = hierarchy.share(id);
            // shares are quotients of weights: a difference within rounding counts as equal
            if needed > guaranteed + 1e-12 {
                return Err(AdmissionError::Utilization { class: class.name.clone(), needed, guaranteed });
            }
            for within in steps(&reserved) {
                let demand: f64 = reserved.iter().map(|task| demand(*task, within)).sum();
                let needed = demand + longest[id.index()];
                let guaranteed = supply(hierarchy, &longest, id, within);
                if needed > guaranteed + 0.5 {
                    return Err(AdmissionError::Demand {
                        class: class.name.clone(),
                        within: whole(within),
                        needed: whole(needed),
                        guaranteed: whole(guaranteed),
                    });
                }
            }
        }
        Ok(())
    }

    /// Checks that the reservations of an inbox's tenant need at most half of their class.
    fn check_tenant(&self, hierarchy: &Hierarchy, inbox: InboxId) -> Result<(), AdmissionError> {
        let Some(AdmittedTask { class, reserver, .. }) = self.tasks.get(&inbox).copied() else {
            return Ok(());
        };
        if reserver == TenantId::NONE {
            return Ok(());
        }
        let (longest, name) = (self.longest(hierarchy), || hierarchy.class(class).name.clone());
        let theirs = self.tasks.values().filter(|task| task.class == class && task.reserver == reserver);
        let reserved: Vec<_> = theirs.map(|task| task.reserved).collect();
        let needed = reserved.iter().map(|(execution, period, _)| execution / period).sum();
        let most = hierarchy.share(class) / 2.0;
        if needed > most + 1e-12 {
            return Err(AdmissionError::TenantUtilization { class: name(), needed, most });
        }
        for within in steps(&reserved) {
            let needed: f64 = reserved.iter().map(|task| demand(*task, within)).sum();
            let most = (supply(hierarchy, &longest, class, within) - longest[class.index()]) / 2.0;
            if needed > most + 0.5 {
                let (within, needed, most) = (whole(within), whole(needed), whole(most));
                return Err(AdmissionError::TenantDemand { class: name(), within, needed, most });
            }
        }
        Ok(())
    }

    /// Returns, for each class, the longest event of that class and of its descendants.
    fn longest(&self, hierarchy: &Hierarchy) -> Vec<f64> {
        let mut longest = vec![0.0; hierarchy.classes().count()];
        let unreserved = self.unreserved.keys().map(|(class, longest)| (*class, longest.as_nanos() as f64));
        for (class, of_one) in self.tasks.values().map(|task| (task.class, task.longest)).chain(unreserved) {
            let mut at = class;
            loop {
                let held: &mut f64 = &mut longest[at.index()];
                *held = held.max(of_one);
                if at == ClassId::ROOT {
                    break;
                }
                at = hierarchy.class(at).parent;
            }
        }
        longest
    }
}

/// Returns the intervals for which the demand is compared with the supply: the demand jumps at the end of
/// each. At the last interval of a consumer the bound changes from its exact demand to the line above that,
/// which is a jump, too; behind it, the bound rises no faster than the supply.
fn steps(reserved: &[(f64, f64, f64)]) -> impl Iterator<Item = f64> {
    reserved
        .iter()
        .flat_map(|(_, period, deadline)| (0..=STEPS).map(move |step| deadline + step as f64 * period))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for reading; saturates")]
fn whole(nanos: f64) -> u64 {
    nanos.max(0.0).round() as u64
}

/// Returns the demand bound: the work of one consumer that is due within an interval of length `within`, if
/// its first event arrives at the start of the interval. Exact for the first [`STEPS`] events, an upper bound
/// for later ones.
fn demand((execution, period, deadline): (f64, f64, f64), within: f64) -> f64 {
    if within < deadline {
        return 0.0;
    }
    let after = (within - deadline) / period;
    let steps = STEPS as f64;
    execution * if after < steps { after.floor() + 1.0 } else { after + 1.0 }
}

/// Returns the service that a continuously backlogged class is guaranteed within an interval of length
/// `within`.
fn supply(hierarchy: &Hierarchy, longest: &[f64], class: ClassId, within: f64) -> f64 {
    if class == ClassId::ROOT {
        return within;
    }
    let parent = hierarchy.class(class).parent;
    let siblings = &hierarchy.class(parent).children;
    let all: Vec<f64> = siblings.iter().map(|sibling| longest[sibling.index()]).collect();
    let weights: f64 = siblings.iter().map(|sibling| hierarchy.class(*sibling).weight.to_f64()).sum();
    let weight = hierarchy.class(class).weight.to_f64();
    let of_parent = supply(hierarchy, longest, parent, within);
    bounds::least_service(of_parent, weight, weights, &all, longest[class.index()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_fairqueue::ClassSpec;

    fn tree() -> Hierarchy {
        let class =
            |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
        Hierarchy::new(ClassSpec::new("all").with([class("video", "3"), class("web", "1")]))
            .expect("unique names")
    }

    fn ask(
        control: &mut AdmissionControl,
        inbox: u32,
        class: &str,
        execution: u64,
        times: Option<(u64, u64)>,
    ) -> Result<(), AdmissionError> {
        let tree = tree();
        let class = tree.find(class).expect("it is there");
        let reservation = times.map(|(period, deadline)| Reservation {
            period: Duration::from_nanos(period),
            deadline: Duration::from_nanos(deadline),
            largest: 0,
        });
        let execution = ExecutionTime::constant(Duration::from_nanos(execution));
        let of = (InboxId(inbox), class, TenantId::NONE);
        control.admit(&tree, of, (execution, execution.event), reservation)
    }

    #[test]
    fn what_does_not_fit_is_refused_saying_by_how_much() {
        let mut control = AdmissionControl::default();
        let said = ask(&mut control, 1, "video", 800, Some((1000, 100_000))).expect_err("too much");
        assert_eq!(
            said.to_string(),
            "class `video` would need 0.8000 of the whole and is sure of 0.7500: 0.0500 too much"
        );
        assert_eq!(control.utilization(tree().find("video").expect("it is there")), 0.0);
        // within 1000 ns the class is guaranteed 0.75 * (1000 - 500) - 500 < 0, less the event in service
        let said = ask(&mut control, 1, "video", 500, Some((10_000, 1000))).expect_err("too soon");
        assert_eq!(
            said.to_string(),
            "class `video` would need 1000 ns of service within 1000 ns and is sure of 0: 1000 ns too much"
        );
        assert_eq!(ask(&mut control, 1, "video", 500, Some((10_000, 5000))), Ok(()));
        assert_eq!(ask(&mut control, 2, "video", 0, Some((1, 1))), Err(AdmissionError::Zero));
    }

    #[test]
    fn the_first_event_behind_the_exact_ones_counts_too() {
        let tree = Hierarchy::new(ClassSpec::new("all")).expect("unique names");
        let mut control = AdmissionControl::default();
        let mut admit = |inbox, execution, (period, deadline)| {
            let reservation = Reservation {
                period: Duration::from_nanos(period),
                deadline: Duration::from_nanos(deadline),
                largest: 0,
            };
            let execution = ExecutionTime::constant(Duration::from_nanos(execution));
            let of = (InboxId(inbox), ClassId::ROOT, TenantId::NONE);
            control.admit(&tree, of, (execution, execution.event), Some(reservation))
        };
        // events of 350 ns every 1000 ns: the 17th is due after 17,000 ns
        admit(1, 350, (1000, 1000)).expect("0.35 of the whole");
        for inbox in 2..18 {
            admit(inbox, 620, (100_000, 16_950)).expect("it fits");
        }
        let said = admit(18, 620, (100_000, 16_950)).expect_err("17 * 350 + 17 * 620 + 620 > 17,000");
        assert_eq!(
            said.to_string(),
            "class `all` would need 17110 ns of service within 17000 ns and is sure of 17000: 110 ns too much"
        );
    }

    #[test]
    fn one_tenant_reserves_half_of_a_class_and_another_one_has_the_other_half() {
        let tree = tree();
        let class = tree.find("video").expect("it is there");
        let mut control = AdmissionControl::default();
        let mut admit = |inbox, tenant, execution, (period, deadline)| {
            let reservation = Reservation {
                period: Duration::from_nanos(period),
                deadline: Duration::from_nanos(deadline),
                largest: 0,
            };
            let execution = ExecutionTime::constant(Duration::from_nanos(execution));
            let of = (InboxId(inbox), class, TenantId(tenant));
            control.admit(&tree, of, (execution, execution.event), Some(reservation))
        };
        let said = admit(1, 1, 400, (1000, 100_000)).expect_err("0.4 of 0.75").to_string();
        assert!(said.contains("would need 0.4000 of the whole; one client may have half"), "{said}");
        // a reservation with a long period and a short deadline can need all service within its deadline
        let said = admit(1, 1, 500, (1_000_000, 3000)).expect_err("500 of 625").to_string();
        assert!(said.contains("500 ns of service within 3000 ns"), "{said}");
        for (inbox, tenant) in [(1, 1), (3, 2)] {
            admit(inbox, tenant, 360, (1000, 100_000)).expect("half");
            admit(inbox + 1, tenant, 20, (1000, 100_000)).expect_err("more than half");
        }
    }

    #[test]
    fn a_consumer_without_a_reservation_is_refused_if_it_breaks_a_promise() {
        let mut control = AdmissionControl::default();
        ask(&mut control, 1, "video", 500, Some((10_000, 5000))).expect("it fits alone");
        ask(&mut control, 2, "web", 500, None).expect("a short event of another class fits");
        let said =
            ask(&mut control, 3, "web", 1_000_000, None).expect_err("it would hold up the video for longer");
        assert!(said.to_string().starts_with("class `video` would need 1000 ns of service within 5000 ns"));
        let video = tree().find("video").expect("it is a class");
        control.leave(InboxId(1), video, Duration::from_nanos(500));
        ask(&mut control, 3, "web", 1_000_000, None).expect("nobody was promised anything");
    }

    #[test]
    fn an_execution_time_grows_with_the_payload() {
        let execution =
            ExecutionTime { event: Duration::from_nanos(100), kibibyte: Duration::from_nanos(81_920) };
        assert_eq!(
            [execution.for_bytes(0), execution.for_bytes(1), execution.for_bytes(1024)],
            [Duration::from_nanos(100), Duration::from_nanos(180), Duration::from_nanos(82_020)]
        );
        assert_eq!(
            ExecutionTime { event: Duration::from_nanos(1), kibibyte: Duration::MAX }.for_bytes(usize::MAX),
            Duration::MAX
        );
    }
}
