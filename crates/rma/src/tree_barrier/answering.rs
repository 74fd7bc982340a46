//! A member that answers its neighbors while it is in no barrier, from a thread of its own.
//!
//! The idea: a member that the faster barrier has released may be in any call that waits for members that
//! were not released, or compute for minutes. These members ask whether it was released
//! ([`super::QUESTION`]); the thread answers. It also passes on what neighbors send through this member: the
//! loss of a member, and a decision that came although this member has withdrawn its report.
//!
//! ```text
//!   the member's calls:  lock ... the whole barrier, in which it receives all packets itself ... unlock
//!   the thread:          sleep on the transport's bell;  lock, receive and answer, unlock;  sleep ...
//! ```
//! One lock guards the member, so that each packet is taken by one of the two, in the order of arrival. A
//! packet that comes during a barrier is taken by the member, which looks at the connections every 5 ms or
//! more often, or by the thread right after the barrier. No packet is missed: the thread reads the bell's
//! count before it receives, and sleeps only if the count is the same. The thread ends with the second
//! decision of the tree: from then on a member outside of barriers owes its neighbors nothing. The first one
//! is too early, because the faster barrier may release this member while that decision is on its way.
//!
//! Cost: a thread that sleeps, and an uncontended lock for each barrier. While the faster barrier works, the
//! only packets are heartbeats of members that wait in long barriers (`wire/tcp/liveness.rs`), at most ten a
//! second from each neighbor. When not to use: with [`TreeBarrierMember::wait`] alone. Reference: none;
//! `path/message/agent.rs` is the same for windows.

use super::{FastBarrier, POLL_INTERVAL, ReleasedBy, TreeBarrierMember};
use crate::model::Error;
use crate::wire::Bell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A member that can answer its neighbors at any time. Its methods are those of [`TreeBarrierMember`].
#[derive(Debug)]
pub struct AnsweringMember {
    state: Arc<Mutex<AnsweringState>>,
    bell: Option<Arc<dyn Bell>>,
    /// `None` before [`start`](Self::start).
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct AnsweringState {
    member: TreeBarrierMember,
    /// Whether the thread has to end.
    has_ended: bool,
}

impl AnsweringMember {
    /// A member that does not answer yet between its barriers.
    pub fn over(member: TreeBarrierMember) -> Self {
        let bell = member.transport.bell();
        let state = AnsweringState { member, has_ended: false };
        Self { state: Arc::new(Mutex::new(state)), bell, thread: None }
    }

    /// Starts the thread that answers; to be called once. Fails with [`Error::System`].
    pub fn start(&mut self) -> Result<(), Error> {
        let (state, bell) = (Arc::clone(&self.state), self.bell.clone());
        let named = thread::Builder::new().name("unisono-answers".to_owned());
        let started = named.spawn(move || answer(&state, bell.as_deref()));
        let thread = started.map_err(Error::system("cannot start a thread that answers other members"))?;
        self.thread = Some(thread);
        Ok(())
    }

    pub fn wait(&mut self) -> Result<(), Error> {
        lock(&self.state).member.wait()
    }

    pub fn wait_beside(
        &mut self,
        fast: &mut dyn FastBarrier,
        stall_after: Duration,
    ) -> Result<ReleasedBy, Error> {
        lock(&self.state).member.wait_beside(fast, stall_after)
    }

    pub fn leave(mut self) {
        self.end();
        lock(&self.state).member.announce_leave();
    }

    /// Ends the thread, and returns when it has ended.
    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        lock(&self.state).has_ended = true;
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        // If the thread panicked, it has already printed the panic.
        let _ = thread.join();
    }
}

impl Drop for AnsweringMember {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(state: &Mutex<AnsweringState>) -> MutexGuard<'_, AnsweringState> {
    // After a panic in a barrier no later barrier is right, but the connections have to be closed.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(state: &Mutex<AnsweringState>, bell: Option<&dyn Bell>) {
    loop {
        let last_events = bell.map_or(0, |bell| bell.events());
        {
            let mut state = lock(state);
            if state.has_ended || !state.member.serve() {
                return;
            }
        }
        match bell {
            Some(bell) => {
                bell.listen(last_events, None);
            }
            None => thread::sleep(POLL_INTERVAL),
        }
    }
}
