//! The agent: a thread that makes progress for passive targets while no other thread does.
//!
//! The idea, as in the paper (section 4.3): the agent exists only if locks are possible, and does nothing
//! while the member's own calls make progress. It sleeps on the transport's bell. If the member has made
//! progress before the agent wakes, the agent naps before it listens again, so as not to disturb a busy
//! member. Cost: at most one wake-up per millisecond while the member makes progress itself, and one for each
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

fn run(job: &Weak<MessageEngine>, stop: &AtomicBool) {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(shared) = job.upgrade() else { return };
        let last_events = shared.bell.as_ref().map_or(0, |bell| bell.events());
        if others_make_progress(&shared, &mut rounds) {
            drop(shared);
            thread::sleep(NAP.into());
            continue;
        }
        match shared.bell.clone() {
            Some(bell) => {
                drop(shared);
                bell.listen(last_events, Some(now() + LISTEN));
            }
            None => {
                drop(shared);
                thread::sleep(NAP.into());
            }
        }
    }
}

/// Makes progress, unless the member's own calls do; returns whether they do.
fn others_make_progress(shared: &MessageEngine, rounds: &mut u64) -> bool {
    // The thread that has the lock makes progress.
    let Ok(mut core) = shared.core.try_lock() else { return true };
    // If another thread served a waiter's packets, the waiter would sleep on: no packet would wake it.
    let busy = core.rounds != *rounds || shared.waiters.load(Ordering::Relaxed) > 0;
    if !busy {
        // The member's own next call gets this error again, and reports it.
        let _ = core.progress();
    }
    *rounds = core.rounds;
    busy
}
