//! Waits for the host MPI's own messages when ranks outnumber processors, or when other programs need the
//! processors.
//!
//! An MPI that polls while it waits keeps the processor from the rank that it waits for. The shim polls the
//! host MPI for completion (by `MPI_Test` or `MPI_Iprobe`; such a poll is called a question here), and this
//! module decides what to do between two questions: ask again at once, yield, or sleep. The module does not
//! see the messages.
//!
//! The idea: the ranks of a host share a page of cache lines. The adaptive waiting of `unisono-sync` decides
//! whether to poll, to yield or to sleep. Usually it waits for a flag, and checks now and then whether a
//! member has died ([`Watch::check`]). Here no flag is ever set, and the check is the question to the host
//! MPI. A rank sleeps on a flag of its own line, its bell, for a limited time (a nap). The shim wakes the
//! rank that it sends to: it rings that rank's bell.
//!
//! ```text
//!   line 0             the regime
//!   line 1             word 0: napping ranks; word 2: undirected naps; word 4: 1 after the first nap;
//!                      word 6: ranks that have joined
//!   line 2 and on,     flag 0: the rank's bell; word 8: its threads in an undirected nap
//!   one for each rank
//! ```
//!
//! A nap is *directed* if a send to this rank completes the call: the sender rings. It is *undirected* if the
//! call may need any action of another rank, as a long send, a synchronous send or a collective does. Then
//! every rank rings at the end of each wait in which it napped. A bell can be missed, for example by a send
//! that began before any rank had napped. So a sleeper also wakes by itself, first after `FIRST_NAP`.
//!
//! Cost: an indirect call for each question. If each rank has a processor, a wait polls for its first `SPIN`,
//! as the host MPI does. When not to use it: for an MPI that yields by itself (Open MPI). Reference: adaptive
//! waiting in `unisono-sync`.

mod wait_stats;

pub(crate) use wait_stats::{JobWaits, WaitStats};

use crate::error::ffi_call_or;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use unisono_linux::clock::{Duration, Instant, Ticks, now, ticks};
use unisono_linux::futex::Scope;
use unisono_linux::quota;
use unisono_sync::{
    CacheLine, Regime, SpinBudget, Wait, WaitHints, WaitPolicy, Waiter, Wakeups, Watch, WatchVerdict,
};
use wait_stats::EndedWait;

/// If each rank has a processor, a wait polls for this time before it yields between two questions. It equals
/// the time of a wake-up across processors.
const SPIN: Duration = Duration::from_micros(50);
/// Number of questions between two clock readings while a wait polls. A question takes 30 to 100 ns (MPICH
/// 4.0), a reading 10 to 20 ns.
const QUESTIONS_PER_CLOCK: u32 = 8;
/// The length of the first nap if no bell rings: the time of two wake-ups. A wait whose bell fails to ring
/// (see [`unisono_mpi_crowd_ring`]) then takes at most three times as long as a wake-up.
const FIRST_NAP: Duration = Duration::from_micros(100);
/// Each nap of a wait is twice as long as the previous one, up to this limit. A wake-up by the timer takes 10
/// us in a virtual machine, so a wake-up every 2 ms takes 0.5 % of a processor.
const MAX_NAP: Duration = Duration::from_millis(2);
/// The maximum length of a nap if messages may come from another host, whose ranks cannot ring.
const MAX_NAP_AMONG_HOSTS: Duration = Duration::from_micros(200);

/// The maximum length of an undirected nap, for which fewer bells ring.
const MAX_UNDIRECTED_NAP: Duration = Duration::from_micros(400);
/// The number of times that an undirected wait rings before it naps. A question may complete a stage of a
/// collective for which other ranks sleep. Without a limit, two ranks that wait for a third rank would wake
/// each other forever. A collective of 8 ranks has 3 stages and an end.
const RINGS: u32 = 4;

/// The number of shared lines before the lines of the ranks.
const SHARED: usize = 2;
const SLEEPING_RANKS: usize = 0;
const UNDIRECTED_SLEEPERS: usize = 2;
const HAS_SLEPT: usize = 4;
const JOINED: usize = 6;
const OWN_UNDIRECTED_SLEEPERS: usize = 8;
/// A value that the flag of a bell never has.
const NEVER: u32 = 1;

/// The calls that wait, as the table of `--stats` names them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCall {
    Recv = 0,
    Send = 1,
    Sendrecv = 2,
    Wait = 3,
    Waitall = 4,
    Waitany = 5,
    Waitsome = 6,
    Probe = 7,
    Barrier = 8,
    Bcast = 9,
    Allreduce = 10,
    Allgather = 11,
    Allgatherv = 12,
    Alltoall = 13,
    Alltoallv = 14,
    Alltoallw = 15,
    Gather = 16,
    Gatherv = 17,
    Scatter = 18,
    Scatterv = 19,
    Reduce = 20,
    Scan = 21,
    Exscan = 22,
    ReduceScatter = 23,
    ReduceScatterBlock = 24,
    NeighborAllgather = 25,
    NeighborAllgatherv = 26,
    NeighborAlltoall = 27,
    NeighborAlltoallv = 28,
    NeighborAlltoallw = 29,
    /// A call that the program did not make; it is in no table.
    Own = 30,
}

/// Why a collective of crowded ranks was left to the host MPI.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftReason {
    /// The order of sums is looked for after these calls.
    FirstCalls = 0,
    /// The order of sums is not known.
    Order = 1,
    /// The type, the operation or the length.
    Operation = 2,
    /// Numbers whose result depends on the order of two operands.
    Numbers = 3,
}

/// What completes a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// A send to this rank; the sender rings.
    Directed = 0,
    /// Any action of another rank.
    Undirected = 1,
}

/// A poll of the host MPI; returns 0 while the call is not complete.
type HostQuestion = unsafe extern "C" fn(context: *mut c_void) -> c_int;

#[derive(Debug)]
struct MpiHostRanks {
    lines: &'static [CacheLine],
    member: usize,
    max_nap: Duration,
    /// Whether the ranks outnumber the processors that they may use.
    oversubscribed: AtomicBool,
}

static HOST_RANKS: OnceLock<MpiHostRanks> = OnceLock::new();

thread_local! {
    static WAITER: RefCell<Waiter> = RefCell::new(Waiter::new(
        Wait::Adaptive,
        SpinBudget::DEFAULT,
        Wakeups::Symmetric(Scope::Shared),
    ));
    /// Whether this thread adapts the regime (how waits behave on this host) for all ranks; `None` before its
    /// first wait.
    static IS_LEARNER: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServedWait {
    slept: Duration,
    /// Whether the wait lasted longer than [`SPIN`].
    long: bool,
}

impl MpiHostRanks {
    fn members(&self) -> usize {
        self.lines.len() - SHARED
    }

    /// Returns the number of ranks that have joined.
    fn joined(&self) -> usize {
        // SYNC(joined) acquire: the processors of these ranks are known
        self.lines[1].word(JOINED).load(Ordering::Acquire) as usize
    }

    fn regime(&self) -> Regime<'static> {
        Regime::new(&self.lines[0])
    }

    fn hints(&self) -> WaitHints<'static> {
        WaitHints {
            regime: self.regime(),
            crowded: self.oversubscribed.load(Ordering::Relaxed),
            last_cpus: None,
        }
    }

    /// Whether a wait that begins now yields or sleeps.
    fn is_crowded(&self) -> bool {
        self.oversubscribed.load(Ordering::Relaxed) || self.regime().is_asleep()
    }

    /// Asks `question` until it returns true. `passed` is the number of this thread's waits since its last
    /// call of this function that were complete at their first question.
    fn wait(&self, kind: WaitKind, passed: u32, mut question: impl FnMut() -> bool) -> ServedWait {
        if !self.is_crowded() && spin(&mut question) {
            return ServedWait { slept: Duration::ZERO, long: false };
        }
        let begun = ticks();
        let nap = self.regime().is_asleep().then(|| Nap::begin(self, kind));
        let (longest, rings_left) = match kind {
            WaitKind::Directed => (self.max_nap, 0),
            WaitKind::Undirected => (self.max_nap.min(MAX_UNDIRECTED_NAP), RINGS),
        };
        let mut watch = CompletionWatch { ranks: self, question, nap: FIRST_NAP, longest, rings_left };
        let flag = self.lines[SHARED + self.member].flag(0);
        let slept = WAITER.with(|waiter| {
            // The question may run code of the program inside the host MPI, and that code may wait in turn.
            let mut nested = None;
            let mut borrowed = waiter.try_borrow_mut().ok();
            let waiter = match &mut borrowed {
                Some(waiter) => &mut **waiter,
                None => nested.insert(Waiter::new(
                    Wait::Adaptive,
                    SpinBudget::DEFAULT,
                    Wakeups::Symmetric(Scope::Shared),
                )),
            };
            let before = waiter.asleep();
            waiter.policy(|| self.hints()).wait_behind(flag, NEVER, &mut watch);
            if self.is_learner() {
                waiter.add_uncounted(passed);
                waiter.learn(self.regime());
            }
            waiter.asleep() - before
        });
        if nap.is_some() {
            self.ring_undirected();
        }
        ServedWait { slept, long: elapsed(begun) > SPIN }
    }

    /// Whether this thread adapts the regime for all ranks: it is the first thread of rank 0 that waits.
    fn is_learner(&self) -> bool {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        IS_LEARNER.with(|is_learner| {
            let own =
                is_learner.get().unwrap_or_else(|| self.member == 0 && !TAKEN.swap(true, Ordering::Relaxed));
            is_learner.set(Some(own));
            own
        })
    }

    fn ring(&self, member: usize) {
        if let Some(line) = self.lines.get(SHARED + member) {
            line.flag(0).disturb(Scope::Shared);
        }
    }

    fn ring_undirected(&self) {
        if self.lines[1].word(UNDIRECTED_SLEEPERS).load(Ordering::Relaxed) == 0 {
            return;
        }
        (0..self.members())
            .filter(|member| *member != self.member)
            .filter(|member| {
                self.lines[SHARED + member].word(OWN_UNDIRECTED_SLEEPERS).load(Ordering::Relaxed) != 0
            })
            .for_each(|member| self.ring(member));
    }
}

/// Polls for at most [`SPIN`]; returns whether the call is complete.
fn spin(question: &mut impl FnMut() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..QUESTIONS_PER_CLOCK {
            if question() {
                return true;
            }
        }
        let moment = ticks();
        if moment.since(*start.get_or_insert(moment)) > Ticks::from_duration(SPIN) {
            return false;
        }
    }
}

/// A nap in progress. While it exists, the shared counts tell the other ranks of the host to ring.
struct Nap<'a> {
    ranks: &'a MpiHostRanks,
    kind: WaitKind,
}

impl<'a> Nap<'a> {
    fn begin(ranks: &'a MpiHostRanks, kind: WaitKind) -> Self {
        let nap = Self { ranks, kind };
        let has_slept = ranks.lines[1].word(HAS_SLEPT);
        if has_slept.load(Ordering::Relaxed) == 0 {
            has_slept.store(1, Ordering::Relaxed);
        }
        nap.words().for_each(|word| {
            word.fetch_add(1, Ordering::Relaxed);
        });
        nap
    }

    fn words(&self) -> impl Iterator<Item = &'a AtomicU32> {
        let (shared, own) = (&self.ranks.lines[1], &self.ranks.lines[SHARED + self.ranks.member]);
        let undirected = [shared.word(UNDIRECTED_SLEEPERS), own.word(OWN_UNDIRECTED_SLEEPERS)];
        let undirected = undirected.into_iter().filter(move |_| self.kind == WaitKind::Undirected);
        std::iter::once(shared.word(SLEEPING_RANKS)).chain(undirected.collect::<Vec<_>>())
    }
}

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        self.words().for_each(|word| {
            word.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// The check of a wait: it asks the host MPI for completion, where other waits check for dead members.
struct CompletionWatch<'a, F> {
    ranks: &'a MpiHostRanks,
    question: F,
    nap: Duration,
    longest: Duration,
    rings_left: u32,
}

impl<F: FnMut() -> bool> Watch for CompletionWatch<'_, F> {
    fn check(&mut self) -> WatchVerdict {
        if (self.question)() { WatchVerdict::Stop } else { WatchVerdict::Continue }
    }

    fn sleep_until(&mut self) -> Option<Instant> {
        if self.rings_left > 0 {
            self.rings_left -= 1;
            self.ranks.ring_undirected();
        }
        let until = now() + self.nap;
        self.nap = (self.nap * 2).min(self.longest);
        Some(until)
    }
}

/// Returns the number of processors that this process may use at a time by its quota; infinite if it has
/// none.
pub(super) fn quota_of_process() -> f64 {
    static QUOTA: OnceLock<f64> = OnceLock::new();
    let read = || quota::limits().ok().and_then(|limits| limits.quota).map(|quota| quota.processors());
    *QUOTA.get_or_init(|| read().unwrap_or(f64::INFINITY))
}

/// Joins the ranks of this host that share `memory`: 128 zeroed bytes for each rank and for two more lines,
/// mapped for the life of the process. Waits for no other rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_crowd_join(
    memory: *mut c_void,
    members: usize,
    member: usize,
    one_host: c_int,
) {
    ffi_call_or((), || {
        // SAFETY: the shim passes that many lines of zeroed memory, aligned to a page and never unmapped.
        let lines = unsafe { std::slice::from_raw_parts(memory.cast::<CacheLine>(), SHARED + members) };
        let max_nap = if one_host != 0 { MAX_NAP } else { MAX_NAP_AMONG_HOSTS };
        let ranks = MpiHostRanks { lines, member, max_nap, oversubscribed: AtomicBool::new(false) };
        ranks.regime().announce_processors();
        // SYNC(joined) release: publishes this rank's processors
        lines[1].word(JOINED).fetch_add(1, Ordering::Release);
        // only for the test of naps and bells
        if std::env::var_os("UNISONO_MPI_CROWD").is_some_and(|value| value == "asleep") {
            ranks.regime().yield_took_long(Instant::ZERO);
            ranks.regime().yield_took_long(Instant::from_millis(5));
        }
        // MPI_Init runs once in a process; a second call would be a bug of the shim
        let _ = HOST_RANKS.set(ranks);
        Ok(())
    });
}

/// Returns 1 if all ranks of this host have joined, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_is_complete() -> c_int {
    ffi_call_or(0, || {
        Ok(c_int::from(HOST_RANKS.get().is_some_and(|ranks| ranks.joined() == ranks.members())))
    })
}

/// Returns 1 if the ranks of this host that have joined outnumber the processors that they may use, else 0.
/// Once all have joined, all ranks get the same answer, unless their quotas differ. Until the next call,
/// waits of this process yield or sleep according to the answer.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_is_full() -> c_int {
    ffi_call_or(0, || {
        let Some(ranks) = HOST_RANKS.get() else { return Ok(0) };
        let full =
            ranks.regime().is_crowded(ranks.joined()) || quota_of_process() < ranks.members() as f64 - 0.01;
        ranks.oversubscribed.store(full, Ordering::Relaxed);
        Ok(c_int::from(full))
    })
}

/// Returns the address of the number of napping ranks of this host, which changes at any time.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_napping() -> *const u32 {
    shared_word(SLEEPING_RANKS)
}

/// Returns the address of a word that is 0 until a rank of this host naps for the first time.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_napped() -> *const u32 {
    shared_word(HAS_SLEPT)
}

fn shared_word(word: usize) -> *const u32 {
    ffi_call_or(std::ptr::null(), || {
        Ok(
            HOST_RANKS
                .get()
                .map_or(std::ptr::null(), |ranks| ranks.lines[1].word(word).as_ptr().cast_const()),
        )
    })
}

/// Waits until `question` returns a nonzero value. `passed` is the number of this thread's waits since its
/// last call of this function that were complete at their first question. Returns 1 if the wait lasted longer
/// than a wait does if each rank has a processor to itself, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_crowd_wait(
    call: WaitCall,
    kind: WaitKind,
    passed: u32,
    question: HostQuestion,
    context: *mut c_void,
) -> c_int {
    ffi_call_or(0, || {
        // SAFETY: the shim passes a function and the context that it expects.
        let ask = || unsafe { question(context) } != 0;
        let Some(ranks) = HOST_RANKS.get() else {
            while !ask() {
                std::thread::yield_now();
            }
            return Ok(1);
        };
        let counts = call != WaitCall::Own && wait_stats::is_wanted();
        let entry = counts.then(|| (ticks(), ranks.is_crowded()));
        let wait = ranks.wait(kind, passed, ask);
        if let Some((begun, crowded)) = entry {
            let ended = EndedWait { crowded, waited: elapsed(begun), slept: wait.slept };
            wait_stats::record(call, ended, None);
        }
        Ok(c_int::from(wait.long))
    })
}

fn elapsed(begun: Ticks) -> Duration {
    ticks().since(begun).to_duration()
}

/// Wakes a napping rank of this host after a message was sent to it. A rank that is just falling asleep may
/// miss the bell; it then wakes by itself after a tenth of a millisecond.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_ring(member: usize) {
    if let Some(ranks) = HOST_RANKS.get() {
        // SYNC(sleepers) fence: orders the send before the ring's read of the sleepers
        fence(Ordering::SeqCst);
        ranks.ring(member);
    }
}

/// Wakes the other napping ranks of this host, except ranks whose waits end with a message to them alone.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_ring_undirected() {
    if let Some(ranks) = HOST_RANKS.get() {
        // SYNC(sleepers) fence: orders the send before the ring's read of the sleepers
        fence(Ordering::SeqCst);
        ranks.ring_undirected();
    }
}

/// Wakes all napping ranks of this host.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_ring_all() {
    if let Some(ranks) = HOST_RANKS.get() {
        // SYNC(sleepers) fence: orders the send before the ring's read of the sleepers
        fence(Ordering::SeqCst);
        (0..ranks.members()).for_each(|member| ranks.ring(member));
    }
}

/// Returns the current time, for unisono_mpi_crowd_timed() and unisono_mpi_crowd_sampled().
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_now() -> u64 {
    ticks().0
}

/// Returns 1 if this wait should run as the host MPI's own, so that --stats can compare, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_samples() -> c_int {
    ffi_call_or(0, || {
        let crowded = HOST_RANKS.get().is_some_and(MpiHostRanks::is_crowded);
        Ok(c_int::from(crowded && wait_stats::sample_is_due()))
    })
}

/// Records a wait that began at `begun` and was only timed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_timed(call: WaitCall, begun: u64) {
    ffi_call_or((), || {
        wait_stats::record(call, timed_since(begun), None);
        Ok(())
    });
}

fn timed_since(begun: u64) -> EndedWait {
    let crowded = HOST_RANKS.get().is_some_and(MpiHostRanks::is_crowded);
    EndedWait { crowded, waited: elapsed(Ticks(begun)), slept: Duration::ZERO }
}

/// Records a wait that began at `begun` and that was left to the host MPI although the ranks were crowded.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_left(call: WaitCall, begun: u64, why: LeftReason) {
    ffi_call_or((), || {
        wait_stats::record(call, timed_since(begun), Some(why));
        Ok(())
    });
}

/// Records a sample: a wait of the host MPI's own that began at `begun`.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_crowd_sampled(call: WaitCall, begun: u64) {
    ffi_call_or((), || {
        wait_stats::record_sample(call, elapsed(Ticks(begun)));
        Ok(())
    });
}

#[cfg(test)]
mod tests;
