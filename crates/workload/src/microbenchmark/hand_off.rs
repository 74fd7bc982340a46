//! A hand-off between two threads and back: the minimal cost of waiting.
//!
//! ```text
//!   thread 0   signal ping k ........ wait for pong k   signal ping k+1
//!   thread 1        wait for ping k   signal pong k
//! ```
//! Each round trip is two waits. It is measured for every wait policy, with both threads on one processor and
//! on two, alone and beside busy loops. This gives the paper's cost of blocking against spinning on this
//! machine.
//!
//! Cost of the loop in addition to the hand-off: as for `meter`.

use crate::meter::{LeaderMeter, NextStep};
use crate::{Error, Measurement, Options, Pin, options};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use unisono_linux::futex::Scope;
use unisono_sync::{
    Block, Flag, Lines, Regime, Spin, SpinBlock, SpinBudget, Unwatched, Wait, WaitHints, WaitPolicy, Waiter,
    Wakeups, Yield,
};

/// Measures hand-offs; always with two threads.
pub fn run(options: &Options, wait: Wait, budget: SpinBudget) -> Result<Measurement, Error> {
    let options = Options { threads: 2, ..options.clone() };
    options.check()?;
    let rarely = || Wakeups::for_rare_sleepers(Scope::Private);
    let always = Wakeups::Symmetric(Scope::Private);
    let measured = match wait {
        Wait::Spin => run_with(&options, Wakeups::Never, |_| fixed(Spin))?,
        Wait::Yield => run_with(&options, Wakeups::Never, |_| fixed(Yield))?,
        Wait::Block => run_with(&options, always, |_| fixed(Block::new(always)))?,
        Wait::SpinBlock => {
            let wakeups = rarely();
            run_with(&options, wakeups, |_| fixed(SpinBlock::new(budget, wakeups)))?
        }
        Wait::Adaptive => {
            let (lines, crowded) = (Lines::on_heap(1), processors(&options)? < 2);
            let wakeups = if crowded { always } else { rarely() };
            let regime = Regime::new(lines.line(0));
            run_with(&options, wakeups, |thread| {
                let mut waiter = Waiter::new(wait, budget, wakeups);
                move |flag: Flag<'_>, target| {
                    let hints = || WaitHints { regime, crowded, last_cpus: None };
                    waiter.policy(hints).wait(flag, target, &mut Unwatched);
                    if thread == 0 {
                        waiter.learn(regime);
                    }
                }
            })?
        }
    };
    Ok(Measurement { implementation: "hand-off".into(), wait: wait.to_string(), ..measured })
}

/// Returns the number of processors that the threads may use.
fn processors(options: &Options) -> Result<usize, Error> {
    let mut cpus = options.pin.placement()?;
    if cpus.is_empty() {
        cpus = Pin::Spread.placement()?;
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus.len())
}

/// Returns a wait function over a policy that gets no hints from other waits.
fn fixed(mut policy: impl WaitPolicy) -> impl FnMut(Flag<'_>, u32) {
    move |flag, target| {
        policy.wait(flag, target, &mut Unwatched);
    }
}

fn run_with<W: FnMut(Flag<'_>, u32)>(
    options: &Options,
    wakeups: Wakeups,
    waiter: impl Fn(usize) -> W + Sync,
) -> Result<Measurement, Error> {
    let placement = options.pin.placement()?;
    let lines = Lines::on_heap(2);
    let (ping, pong) = (lines.line(0).flag(0), lines.line(1).flag(0));
    let last = AtomicU64::new(u64::MAX);
    let episodes = thread::scope(|scope| {
        let other = thread::Builder::new().name("hand-off 1".into()).spawn_scoped(scope, || {
            let pinned = options::pin_participant(&placement, 1);
            let mut wait = waiter(1);
            for k in 1u64.. {
                wait(ping, k as u32);
                // Relaxed is enough: the ping that this thread has just acquired was signalled after the
                // store
                if last.load(Relaxed) == k {
                    return pinned.map(|()| k);
                }
                pong.signal(k as u32, wakeups);
            }
            pinned.map(|()| 0)
        });
        let other = other.map_err(|source| Error::Start { participant: 1, threads: 2, source })?;
        let pinned = options::pin_participant(&placement, 0);
        let mut meter = LeaderMeter::start(options);
        let mut wait = waiter(0);
        for k in 1u64.. {
            let is_last = pinned.is_err() || meter.episode(k) == NextStep::Stop;
            if is_last {
                last.store(k, Relaxed);
            }
            ping.signal(k as u32, wakeups);
            if is_last {
                break;
            }
            wait(pong, k as u32);
        }
        let counted = other.join().unwrap_or(Err(Error::Panicked { participant: 1 }));
        pinned.and(counted).map(|count| (meter, count))
    });
    let (meter, count) = episodes?;
    Ok(meter.measurement(options, vec![count, count], 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_policy_hands_over_and_stops() {
        for wait in Wait::ALL {
            let options = Options { seconds: 0.02, warm_up: Duration::ZERO, ..Options::default() };
            let measured = run(&options, wait, SpinBudget::DEFAULT).expect("it runs");
            assert!(measured.episodes > 0 && measured.ns_per_barrier.median > 0.0, "{wait}: {measured:?}");
        }
    }
}
