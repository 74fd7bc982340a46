//! The channel inside the supplier's own process: deadlines and shares without a broker.
//!
//! ```sh
//! co-located
//! ```
//! A robot's camera and its control loop feed handlers of one thread. Events are neither sent nor copied: the
//! channel decides which handler runs next, and hands it the supplier's own bytes. Use this if suppliers and
//! consumers are parts of one program. If they are several programs, the broker serves the same channel.
//!
//! The example checks that control events are served by deadline and not in the order of publication, that
//! the camera gets its quarter of the time meanwhile, that no event is copied or missing, and that a handler
//! whose deadline cannot be kept is refused.
#![forbid(unsafe_code)]

use anyhow::{Context as _, bail, ensure};
use std::sync::Arc;
use unisono_eventchannel::{
    ChannelLimits, ConsumerSpec, EventChannel, ExecutionTime, InboxCapacity, InboxSpec, Interest, Offer,
    Publication, Reservation, TopicSpec,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::clock::{Duration, now};

/// The payload of events: shared, never copied.
type Bytes = Arc<[u8]>;

const CONTROL: usize = 300;
const FRAMES: usize = 1000;
/// The worst-case execution time of each handler.
const WORST: Duration = Duration::from_micros(10);

#[allow(clippy::print_stdout, reason = "a program speaks")]
fn main() -> anyhow::Result<()> {
    let control = ClassSpec::new("control").weighing("3".parse()?);
    let camera = ClassSpec::new("camera").weighing("1".parse()?);
    let classes = Hierarchy::new(ClassSpec::new("all").with([control, camera]))?.with_default("camera")?;
    let mut channel: EventChannel<Bytes> = EventChannel::new(classes, ChannelLimits::default());

    let start = now();
    let supplier = channel.supplier(start, None)?;
    let mut offer = |name: &str| -> anyhow::Result<_> {
        let topic = channel.declare(TopicSpec::new(name)?)?;
        channel.offer(supplier, Offer::new(topic))?;
        Ok(topic)
    };
    let (arm, picture) = (offer("robot/arm")?, offer("robot/picture")?);

    let inbox = |class: &str| InboxSpec {
        class: Some(class.into()),
        // all pictures share one piece of memory
        capacity: InboxCapacity { events: FRAMES, bytes: usize::MAX },
        execution: ExecutionTime::constant(WORST),
        ..InboxSpec::default()
    };
    let mover = channel.connect(start, ConsumerSpec::new("mover").with(inbox("control")))?;
    channel.subscribe(start, mover, Interest::in_topics("robot/arm".parse()?))?;
    let watcher = channel.connect(start, ConsumerSpec::new("watcher").with(inbox("camera")))?;
    channel.subscribe(start, watcher, Interest::in_topics("robot/picture".parse()?))?;

    // a further handler that wants 9 us of every 10: no class is guaranteed that much
    let (period, deadline) = (Duration::from_micros(10), Duration::from_micros(10));
    let greedy = InboxSpec {
        reservation: Some(Reservation { period, deadline, largest: 64 }),
        execution: ExecutionTime::constant(Duration::from_micros(9)),
        ..inbox("control")
    };
    match channel.connect(start, ConsumerSpec::new("greedy").with(greedy)) {
        Ok(_) => bail!("a handler was admitted whose deadline cannot be kept"),
        Err(refused) => println!("refused, as it has to be: {refused}"),
    }

    let began = now();
    let frame: Bytes = vec![7; 1 << 20].into();
    for _ in 0..FRAMES {
        channel.try_publish(now(), supplier, picture, Publication::new(Arc::clone(&frame)))?;
    }
    let soon = now() + Duration::SECOND;
    for number in 0..CONTROL {
        let step: Bytes = (number as u32).to_le_bytes().to_vec().into();
        channel.try_publish(
            now(),
            supplier,
            arm,
            Publication::new(step).due(soon + Duration::from_nanos(number as u64)),
        )?;
    }

    let (mut moved, mut watched) = (0, 0);
    while let Some(delivery) = channel.next(now()) {
        let event = delivery.event.context("nobody has gone, and nothing is lost")?.event;
        if delivery.consumer == mover {
            let step = event.payload.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            ensure!(step == Some(moved), "{step:?} came where {moved} is due next");
            moved += 1;
        } else {
            ensure!(Arc::ptr_eq(&event.payload, &frame), "a picture was copied");
            watched += 1;
        }
        if moved == CONTROL as u32 / 2 && delivery.consumer == mover {
            let share = f64::from(watched) / f64::from(moved + watched);
            ensure!(
                (share - 0.25).abs() < 0.02,
                "the camera had {share:.3} of the time instead of a quarter"
            );
        }
    }
    ensure!(
        (moved as usize, watched as usize) == (CONTROL, FRAMES),
        "{moved} and {watched} events came"
    );
    let each = (now() - began) / (CONTROL + FRAMES) as u64;
    println!(
        "co-located: {moved} control events by deadline, {watched} pictures in their share, {each:?} each"
    );
    Ok(())
}
