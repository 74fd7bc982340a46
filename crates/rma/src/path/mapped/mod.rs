//! The direct path: windows over memory that all members can reach.
//!
//! The idea: an operation whose target is known to be in its epoch is a store, a load or an atomic
//! instruction, and synchronization is flags in lines that one writes and one polls: a fence is one barrier
//! episode, post and complete are one store each, a lock is one word. An operation that comes before its
//! target's epoch is staged in the pair's ring, if it is short, so that the epoch's end waits only once; or
//! queued.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | a member's state, and how a window is made |
//! | `region.rs` | the window's segment: lines, rings, parts |
//! | `execute.rs` | an operation on memory that is in reach |
//! | `accumulate.rs` | combining there |
//! | `issue.rs` | at once, staged or queued |
//! | `fence.rs`, `pscw.rs`, `passive.rs` | the three synchronizations |
//! | `lock_word.rs`, `gate.rs`, `hand_off.rs`, `staging/`, `atomic.rs` | their parts |
//!
//! Parts that the engine allocated are mapped by everybody. A user's memory is reached through the kernel
//! (process_vm_readv(2), or proc_pid_mem(5) for short data), where that is allowed; short puts to it are
//! staged, and need no system call, in epochs that the target ends too. Cost: see `PROTOCOL.md`. When not to
//! use: between hosts.

mod accumulate;
mod atomic;
pub(crate) mod episodes;
mod execute;
mod fence;
pub(crate) mod gate;
pub(crate) mod hand_off;
mod issue;
pub(crate) mod lock_word;
mod passive;
mod path;
mod pscw;
mod region;
mod segment;
mod staging;

use crate::host::Host;
use crate::host::waiting::Waiting;
use crate::memory::op::Op;
use crate::model::{Counts, Error, Lock, Noted, Part, Rank, Reach, Spec, Waits};
use crate::path::mapped::segment::{Segment, agreed, outcome};
use crate::path::message::MessageEngine;
use episodes::Episodes;
use region::{Region, SegmentPlan};
use staging::{In, Out, Stamp};
use std::sync::Arc;
use unisono_linux::clock::{now, ticks};
use unisono_linux::process_vm;
use unisono_sync::{Flag, Lines, Wakeups, WatchVerdict};

/// What a member keeps for one other.
#[derive(Debug)]
pub(crate) struct MappedPeer {
    /// Whether an operation may be done at once and in place, without looking at anything else.
    pub(crate) direct: bool,
    /// Its part in this process's address space; null if it is not mapped.
    pub(crate) base: *mut u8,
    /// Its part in its own address space.
    address: u64,
    /// Whether it is in the epoch that this member accesses it in.
    opened: bool,
    /// The fence epoch that it enters when it has applied what was staged for it, if it may not have.
    settling: Option<u32>,
    queue: Vec<Op>,
    /// With which stamp further puts may be staged without another look.
    stages: Option<Stamp>,
    held: Held,
    /// How many passive epochs to go without offering it anything: it did not take the last offer.
    inattentive: u8,
    /// Epochs of post-start-complete-wait so far: its exposures that this member used, this member's
    /// completions at it, its completions here that this member has waited for, this member's posts to it.
    used: u32,
    completed: u32,
    awaited: u32,
    posted: u32,
    out: Out,
    came: In,
}

/// A lock of a peer's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    Lock(Lock),
    Unchecked,
}

/// What is known about targets after a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// Nothing: it did not wait for anybody. Short operations are staged.
    Unknown,
    /// All have come to it, but may still be applying what was staged: look before storing.
    Checked,
    /// All are in their epoch.
    Open,
}

/// One member's end of a window on the direct path.
#[derive(Debug)]
pub(crate) struct MappedPath {
    host: Arc<Host>,
    shared: Arc<MessageEngine>,
    region: Region,
    barrier: Episodes,
    me: usize,
    pub(crate) peers: Box<[MappedPeer]>,
    waiter: MappedWaiter,
    /// How long this member has waited at gates, in the epoch that is open.
    gate_waits: Noted,
    wakeups: Wakeups,
    /// Fences so far.
    epoch: u32,
    after: After,
    /// Whether parts are mapped.
    mapped: bool,
    /// Whether something was stored since the last flush.
    pub(crate) dirty: bool,
    number: u32,
    /// Whether passive operations are handed to targets that are there.
    hands_over: bool,
    own_bytes: u64,
    /// Operations that the kernel copied.
    by_kernel: Counts,
}

/// What the path needs to know about a window's parts.
pub(crate) struct PartsPlan<'a> {
    pub(crate) parts: &'a [Part],
    pub(crate) spec: Spec,
    /// The user's memory; null: the engine's is wanted.
    pub(crate) base: *mut u8,
    pub(crate) number: u32,
}

/// A word that others try to read, to see whether this process's memory is in reach.
static PROBE: u64 = 0x756e_6973_6f6e_6f21;

impl MappedPath {
    /// Makes a member's end; collective. `None`: not every member can reach every other's memory.
    pub(crate) fn make(
        host: &Arc<Host>,
        shared: &Arc<MessageEngine>,
        wanted: &PartsPlan<'_>,
    ) -> Result<Option<Self>, Error> {
        let (me, size) = (host.rank.index(), host.size);
        let mapped = wanted.base.is_null();
        let spec = episodes::spec(host)?;
        let plan = SegmentPlan::new(wanted.parts, mapped, wanted.spec.placement, spec.lines())?;
        let prepare = |lines: &Lines| drop(spec.for_processes_in(lines));
        let Segment { lines, descriptor } = Segment::share(host, shared, plan.bytes, prepare)?;
        let joined = lines.and_then(|lines| Ok((episodes::join(host, &lines)?, lines)));
        let mut announcement = [0_u8; 24];
        announcement[..8].copy_from_slice(&(wanted.base as u64).to_le_bytes());
        announcement[8..16].copy_from_slice(&((&raw const PROBE) as u64).to_le_bytes());
        announcement[16..20].copy_from_slice(&outcome(&joined).to_le_bytes());
        let addresses = shared.gather(&announcement)?;
        drop(descriptor);
        let word = |rank: usize, at: usize| {
            let bytes = addresses[rank].get(at..at + 8).and_then(|bytes| bytes.first_chunk::<8>());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let reaches = |rank: usize| {
            let (mut probe, address) = ([0; 8], word(rank, 8) as usize);
            let number = host.number_of_living(Rank::at(rank));
            let reached = number.is_ok_and(|number| process_vm::read(number, address, &mut probe).is_ok())
                && u64::from_ne_bytes(probe) == PROBE;
            if reached {
                host.hold_memory(Rank::at(rank), address, PROBE);
            }
            reached
        };
        let outcomes = (0..size).map(|rank| (word(rank, 16) & 0xffff_ffff) as u32);
        let (barrier, lines) = agreed(host, joined, outcomes, "map the window's memory")?;
        let reachable = mapped || (0..size).all(reaches);
        if !shared.gather(&[u8::from(reachable)])?.iter().all(|answer| answer == &[1]) {
            // The message path is possible without.
            return Ok(None);
        }
        let region = Region::new(&lines, plan);
        let peer = |rank: usize| MappedPeer {
            direct: false,
            base: match (mapped, rank == me) {
                (true, _) => region.part(rank),
                (false, true) => wanted.base,
                (false, false) => std::ptr::null_mut(),
            },
            address: word(rank, 0),
            opened: false,
            settling: None,
            queue: Vec::new(),
            stages: None,
            held: Held::Nothing,
            inattentive: 0,
            used: 0,
            completed: 0,
            awaited: 0,
            posted: 0,
            out: Out::default(),
            came: In::default(),
        };
        let peers = (0..size).map(peer).collect();
        Ok(Some(Self {
            host: Arc::clone(host),
            shared: Arc::clone(shared),
            region,
            barrier: Episodes::new(host, shared, barrier),
            me,
            peers,
            waiter: MappedWaiter {
                host: Arc::clone(host),
                shared: Arc::clone(shared),
                waiting: Waiting::new(host.wakeups()),
                waits: Waits::default(),
            },
            gate_waits: Noted::default(),
            wakeups: host.wakeups(),
            epoch: 0,
            after: After::Unknown,
            mapped,
            dirty: false,
            number: wanted.number,
            hands_over: !mapped && !host.crowded && size <= passive::MANY,
            own_bytes: wanted.parts[me].bytes,
            by_kernel: Counts::default(),
        }))
    }

    pub(crate) fn own_base(&self) -> *mut u8 {
        self.peers[self.me].base
    }

    pub(crate) fn progress(&self) -> Result<(), Error> {
        self.shared.core().progress()?;
        self.host.who_is_gone().map_or(Ok(()), |gone| Err(gone.into()))
    }

    /// Forgets what was known about targets.
    fn close_all(&mut self) {
        for peer in &mut self.peers {
            (peer.direct, peer.opened, peer.stages) = (false, false, None);
        }
    }
}

/// A member's way to wait for flags.
#[derive(Debug)]
struct MappedWaiter {
    host: Arc<Host>,
    shared: Arc<MessageEngine>,
    waiting: Waiting,
    waits: Waits,
}

impl MappedWaiter {
    /// Waits for a flag.
    #[inline]
    fn wait_for(&mut self, reach: Reach, flag: Flag<'_>, target: u32) -> Result<(), Error> {
        if self.waiting.wait_briefly(&self.host, flag, target) {
            return Ok(());
        }
        self.wait_in_earnest(reach, flag, target)
    }

    /// Waits on, calling the job's hook meanwhile, and notes how long.
    #[cold]
    fn wait_in_earnest(&mut self, reach: Reach, flag: Flag<'_>, target: u32) -> Result<(), Error> {
        let (start, slept) = (ticks(), self.waiting.asleep());
        // A fence is collective: nobody here has another call to make meanwhile.
        let patience = self.shared.patience().filter(|_| reach != Reach::Fence);
        let over = patience.map(|patience| patience.after(now()));
        let mut pause = self.shared.hook.begin();
        let reached = loop {
            let until = pause.map(|pause| pause.after(now()));
            let until = over.map_or(until, |over| Some(until.map_or(over, |until| until.min(over))));
            if self.waiting.wait_until(&self.host, flag, target, until) == WatchVerdict::Continue {
                break Ok(());
            }
            if let Some(gone) = self.host.who_is_gone() {
                break Err(gone.into());
            }
            pause = self.shared.hook.call_due();
            if over.is_some_and(|over| now() >= over) {
                break Err(Error::NotYet);
            }
        };
        let slept = self.waiting.asleep().since(slept);
        self.waits.of(reach).add(ticks().since(start).to_nanos(), slept);
        reached
    }
}
