//! The message path: the paper's protocol as state machines over a [`Transport`].
//!
//! The idea: the origin queues operations. The call that ends the epoch sends all of them and marks the last
//! operation, so that no message is for synchronization alone. A member serves packets whenever it waits or
//! makes progress. If locks are possible, an agent thread serves them while the member does neither.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the core, shared by all windows of a job; progress and waiting |
//! | `port.rs` | a window's state |
//! | `serve.rs` | the effect of a packet at its receiver |
//! | `issue.rs` | how operations are sent: aggregation, pieces, layouts |
//! | `fence.rs`, `pscw.rs`, `passive.rs` | the three synchronizations, deferred and naive |
//! | `unlocks.rs` | exclusive unlocks that did not wait, and the calls that wait for them |
//! | `collect.rs` | barrier and gather of the job |
//! | `hosts.rs` | the hosts of the job; the tree along which the ranks of a host meet |
//! | `agent.rs` | the thread that makes progress while the member does not |
//! | `path.rs` | a window on this path: its calls, deferred or naive |
//!
//! Cost: `PROTOCOL.md` counts messages. Reference: the paper, section 4.

mod agent;
mod collect;
mod fence;
#[cfg(test)]
mod hostile_tests;
mod hosts;
#[cfg(test)]
mod hosts_tests;
mod issue;
mod passive;
mod path;
mod port;
mod pscw;
mod serve;
mod unlocks;

pub(crate) use collect::PacketServing;
pub(crate) use path::MessagePath;
pub(crate) use port::{Memory, WindowPort};

use crate::model::{Error, Rank, StatsTable, record_message_wait};
use crate::path::hook::Hook;
use crate::wire::descriptions::{ReceivedDescriptions, SentDescriptions};
use crate::wire::packet::{Header, PacketKind, WirePacket};
use crate::wire::{Bell, Transport};
use hosts::HostTree;
use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use unisono_linux::clock::{Duration, now};
use unisono_sync::MAX_SLEEP;

/// The shared state of all windows of a job.
pub(crate) struct MessageEngine {
    core: Mutex<EngineState>,
    bell: Option<Arc<dyn Bell>>,
    pub(crate) hook: Hook,
    agent: agent::Agent,
    /// The statistics of the windows that have ended, or `None` if the environment does not ask for them.
    stats_table: Option<Mutex<StatsTable>>,
    /// The number of threads in [`wait_for`](Self::wait_for); they serve packets themselves. A thread counts
    /// itself before it checks whether it has to wait, and the agent reads the count with the core's lock
    /// held: so if the agent serves packets although a thread waits, it has done so before that thread's
    /// check.
    waiters: AtomicUsize,
    /// The longest wait in nanoseconds for a later call of another member's program; zero means no limit.
    wait_timeout: AtomicU64,
}

/// Serves the packets of a job's other members for a thread that waits for something that the job does not
/// know. Outlives the job, and then does nothing.
#[derive(Clone, Debug)]
pub struct PacketServer(Weak<MessageEngine>);

impl PacketServer {
    pub(crate) fn new(engine: &Arc<MessageEngine>) -> Self {
        Self(Arc::downgrade(engine))
    }

    /// Serves the packets that have arrived; returns whether there was one. Never waits: while another thread
    /// serves them, it returns at once. The member's next call reports errors.
    pub fn serve(&self) -> bool {
        let Some(engine) = self.0.upgrade() else { return false };
        let Ok(mut core) = engine.core.try_lock() else { return false };
        // If this thread served a waiter's packets, the waiter would sleep on.
        if engine.waiters.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let before = core.packets;
        let _ = core.progress();
        core.packets != before
    }
}

impl std::fmt::Debug for MessageEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The part under the lock.
#[derive(Debug)]
pub(crate) struct EngineState {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    pub(crate) ports: HashMap<u32, WindowPort>,
    /// Layouts that other members described to this one.
    layouts: Vec<ReceivedDescriptions>,
    /// Layouts that this member described to others.
    described: Vec<SentDescriptions>,
    /// Contributions to collective calls, by window, number, round and sender.
    collected: HashMap<(u32, u32, u64, Rank), Vec<u8>>,
    /// The number of collective calls so far, of the job (0) and of each window that was not freed.
    collections: HashMap<u32, u32>,
    /// The members with which this one combines in barriers and fences.
    hosts: Arc<HostTree>,
    departed: Vec<bool>,
    unlocks: unlocks::Unlocks,
    inbox: Vec<u8>,
    next_window: u32,
    /// The number of calls that made progress, for the agent.
    rounds: u64,
    /// The packets that have come.
    packets: u64,
}

impl MessageEngine {
    pub(crate) fn new(transport: Box<dyn Transport>) -> Arc<Self> {
        let (rank, size) = (transport.rank(), transport.size());
        let bell = transport.bell();
        let core = EngineState {
            transport,
            rank,
            size,
            ports: HashMap::new(),
            layouts: std::iter::repeat_with(ReceivedDescriptions::default).take(size).collect(),
            described: std::iter::repeat_with(SentDescriptions::default).take(size).collect(),
            collected: HashMap::new(),
            collections: HashMap::from([(0, 0)]),
            hosts: Arc::new(HostTree::flat(rank, size)),
            departed: vec![false; size],
            unlocks: unlocks::Unlocks::default(),
            inbox: Vec::new(),
            next_window: 1,
            rounds: 0,
            packets: 0,
        };
        Arc::new(Self {
            core: Mutex::new(core),
            bell,
            hook: Hook::default(),
            agent: agent::Agent::default(),
            stats_table: StatsTable::is_wanted().then(|| Mutex::new(StatsTable::for_own_rank())),
            waiters: AtomicUsize::new(0),
            wait_timeout: AtomicU64::new(0),
        })
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, EngineState> {
        // A panic with the lock held poisons it; a packet may then be half served, and later calls report the
        // state as they find it.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the statistics of the windows that have ended, or `None` if the environment does not ask for
    /// them.
    pub(crate) fn stats_table(&self) -> Option<MutexGuard<'_, StatsTable>> {
        // An entry is made in one step, so a thread that panicked has left a whole table.
        self.stats_table
            .as_ref()
            .map(|stats_table| stats_table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn start_agent(self: &Arc<Self>) {
        self.agent.start(self);
    }

    pub(crate) fn stop_agent(&self) {
        self.agent.stop(self.bell.as_deref());
    }

    pub(crate) fn set_wait_timeout(&self, timeout: Option<Duration>) {
        let nanos = timeout.map_or(0, |timeout| timeout.as_nanos().max(1));
        self.wait_timeout.store(nanos, Ordering::Relaxed);
    }

    /// Returns the longest wait for a later call of another member's program.
    pub(crate) fn wait_timeout(&self) -> Option<Duration> {
        let nanos = self.wait_timeout.load(Ordering::Relaxed);
        (nanos != 0).then_some(Duration::from_nanos(nanos))
    }

    /// Waits as [`wait_for`](Self::wait_for) does, but for a later call of another member's program. Fails
    /// with [`Error::NotYet`] when the wait exceeds the job's timeout.
    pub(crate) fn wait_for_with_timeout<T>(
        &self,
        mut ready: impl FnMut(&mut EngineState) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let Some(timeout) = self.wait_timeout() else { return self.wait_for(ready) };
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let over = now() + timeout;
        let answer = self.wait_and_serve(timeout, |core| match ready(core)? {
            Some(answer) => Ok(Some(answer)),
            None if now() >= over => Err(Error::NotYet),
            None => Ok(None),
        });
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Makes progress until `ready` returns an answer. Fails if a member is gone.
    pub(crate) fn wait_for<T>(
        &self,
        ready: impl FnMut(&mut EngineState) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let answer = self.wait_and_serve(MAX_SLEEP, ready);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    fn wait_and_serve<T>(
        &self,
        slice: Duration,
        mut ready: impl FnMut(&mut EngineState) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let (mut since, mut asleep) = (None, Duration::ZERO);
        let answer = loop {
            let (last_events, pause) = {
                let mut core = self.core();
                let last_events = self.bell.as_ref().map_or(0, |bell| bell.events());
                core.progress()?;
                if let Some(answer) = ready(&mut core)? {
                    break answer;
                }
                core.check_gone()?;
                drop(core);
                (last_events, self.hook.call())
            };
            let moment = now();
            since.get_or_insert(moment);
            let until = moment + pause.unwrap_or(slice).min(slice);
            match &self.bell {
                // This thread waits without the lock, so that other threads of this member may use the core
                // meanwhile.
                Some(bell) => asleep += bell.listen(last_events, Some(until)),
                None => self.core().transport.wait(Some(until))?,
            }
        };
        if let Some(since) = since {
            record_message_wait(now() - since, asleep);
        }
        Ok(answer)
    }
}

impl EngineState {
    /// Serves every packet that has arrived and passes on kept packets.
    pub(crate) fn progress(&mut self) -> Result<(), Error> {
        self.rounds = self.rounds.wrapping_add(1);
        let mut inbox = std::mem::take(&mut self.inbox);
        let served = loop {
            match self.transport.receive(&mut inbox) {
                Ok(Some(from)) => self.take(from, &inbox),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.inbox = inbox;
        served?;
        self.acknowledge_owed()?;
        self.transport.flush()?;
        Ok(())
    }

    fn take(&mut self, from: Rank, bytes: &[u8]) {
        self.packets = self.packets.wrapping_add(1);
        let served = WirePacket::parse(bytes)
            .map_err(|bad| bad.to_string())
            .and_then(|packet| if from.index() < self.size { self.serve(from, packet) } else { Ok(()) });
        if let Err(why) = served {
            self.refuse(from, &why);
        }
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        self.transport.refuse(peer, &format!("it broke the protocol: {why}"));
    }

    /// Fails if a member is gone without having said goodbye.
    pub(crate) fn check_gone(&self) -> Result<(), Error> {
        let lost = |gone: &&crate::wire::Gone| {
            self.departed.get(gone.rank.index()).is_some_and(|departed| !departed)
        };
        match self.transport.gone().iter().find(lost) {
            Some(gone) => Err(gone.clone().into()),
            None => Ok(()),
        }
    }

    pub(crate) fn send(&mut self, to: Rank, header: &Header, payload: &[u8]) -> Result<(), Error> {
        let pieces = [IoSlice::new(payload)];
        let pieces = if payload.is_empty() { &pieces[..0] } else { &pieces[..] };
        self.transport.send(to, &header.encode(payload.len()), pieces)
    }

    pub(crate) fn port(&mut self, window: u32) -> &mut WindowPort {
        self.ports.get_mut(&window).expect("the port lives as long as the window because free removes both")
    }

    pub(crate) fn new_window(&mut self) -> u32 {
        let number = self.next_window;
        self.next_window += 1;
        self.collections.insert(number, 0);
        number
    }

    pub(crate) fn send_goodbye(&mut self) -> Result<(), Error> {
        for peer in (0..self.size).map(Rank::at).filter(|peer| *peer != self.rank) {
            self.transport.send(peer, &Header::new(PacketKind::Goodbye, 0).encode(0), &[])?;
        }
        self.transport.flush()?;
        Ok(())
    }
}
