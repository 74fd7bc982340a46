//! The agent: a thread that makes progress for passive targets while no other thread does.
//!
//! The idea, as in the paper (section 4.3): the agent exists only if locks are possible, and does nothing
//! while the member's own calls make progress. It sleeps on the transport's bell. If the member has made
//! progress before the agent wakes, the agent naps before it listens again, so as not to disturb a busy
//! member. Where there is no bell it asks the transport, and asks again soon after a packet, because more may
//! follow. Cost: at most one wake-up per millisecond while the member makes progress itself, and one for each
//! packet while the member computes. When not to use: on the mapped path no target needs help.

use super::MessageEngine;
use crate::wire::Bell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use unisono_linux::clock::{Duration, now};

/// The nap while the member makes progress, and the period of checks where there is no bell. If the member
/// stops making progress during the nap, an operation of another rank may wait that long. A check every
/// millisecond costs a fiftieth of a percent of a processor. Chosen by this sum, not measured.
const NAP: Duration = Duration::from_millis(1);
/// The nap after a packet, where there is no bell. Each further nap is twice as long, up to [`NAP`]. A lock,
/// a put of 16 bytes and an unlock took 2.2 ms when each nap was a millisecond and the agent looked once
/// after each, and 0.84 ms now (medians of 2000, `chrt -f 1` beside 20 other programs, MPICH 4.0 over TCP
/// between two namespaces). The length itself was chosen, not measured.
const MIN_NAP: Duration = Duration::from_micros(20);
/// The time that the agent listens before it checks whether its job still lives. A message ends the wait at
/// once, so the time only bounds how long the agent's thread outlives its job; ten wake-ups a second disturb
/// no other thread. Chosen, not measured.
const LISTEN: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Agent {
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Arc<AtomicBool>,
}

impl Agent {
    pub(super) fn start(&self, shared: &Arc<MessageEngine>) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (job, stop) = (Arc::downgrade(shared), Arc::clone(&self.stop));
            let named = thread::Builder::new().name("unisono-agent".to_owned());
            // Without a thread the target makes progress in its own calls only: slower, but correct.
            *thread = named.spawn(move || run(&job, &stop)).ok();
        }
    }

    pub(super) fn stop(&self, bell: Option<&dyn Bell>) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(bell) = bell {
            bell.ring();
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // If the agent panicked, its thread has already printed the panic.
            let _ = thread.join();
        }
    }
}

/// The agent's finding in a round.
enum AgentRound {
    /// The member's own calls make progress.
    Busy,
    Served,
    Nothing,
}

/// Returns the nap after a round, where there is no bell.
fn next_nap(nap: Duration, round: &AgentRound) -> Duration {
    match round {
        AgentRound::Busy => NAP,
        AgentRound::Served => MIN_NAP,
        AgentRound::Nothing => (nap + nap).min(NAP),
    }
}

fn run(job: &Weak<MessageEngine>, stop: &AtomicBool) {
    let (mut rounds, mut nap) = (0, NAP);
    while !stop.load(Ordering::Relaxed) {
        let Some(shared) = job.upgrade() else { return };
        let last_events = shared.bell.as_ref().map_or(0, |bell| bell.events());
        let round = make_progress(&shared, &mut rounds);
        nap = next_nap(nap, &round);
        let bell = shared.bell.clone().filter(|_| !matches!(round, AgentRound::Busy));
        drop(shared);
        match bell {
            Some(bell) => {
                bell.listen(last_events, Some(now() + LISTEN));
            }
            None => thread::sleep(nap.into()),
        }
    }
}

/// Makes progress, unless the member's own calls do.
fn make_progress(shared: &MessageEngine, rounds: &mut u64) -> AgentRound {
    // The thread that has the lock makes progress.
    let Ok(mut core) = shared.core.try_lock() else { return AgentRound::Busy };
    // If another thread served a waiter's packets, the waiter would sleep on: no packet would wake it.
    let busy = core.rounds != *rounds || shared.waiters.load(Ordering::Relaxed) > 0;
    let before = core.packets;
    // A transport may look first and move its messages afterwards, as MPICH 4.0 does: then the second call
    // finds them. The member's own next call gets an error again, and reports it.
    for _ in 0..2 {
        if !busy && core.packets == before {
            let _ = core.progress();
        }
    }
    *rounds = core.rounds;
    match (busy, core.packets != before) {
        (true, _) => AgentRound::Busy,
        (false, true) => AgentRound::Served,
        (false, false) => AgentRound::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_are_short_after_a_packet_and_grow_until_the_next() {
        let mut nap = next_nap(NAP, &AgentRound::Served);
        assert_eq!(nap, MIN_NAP);
        for _ in 0..10 {
            let next = next_nap(nap, &AgentRound::Nothing);
            assert!(next > nap || next == NAP);
            nap = next;
        }
        assert_eq!(nap, NAP);
        assert_eq!(next_nap(MIN_NAP, &AgentRound::Busy), NAP);
    }
}
