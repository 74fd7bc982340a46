//! The mapped path: windows over memory that all members of one host can reach.
//!
//! The idea: an operation whose target is known to be in its epoch is a store, a load or an atomic
//! instruction. Synchronization is flags in lines that one member writes and another polls: a fence is one
//! barrier episode, post and complete are one store each, a lock is one word. A short operation issued before
//! its target's epoch is staged in the pair's ring, so that the end of the epoch waits only once; a longer
//! operation is queued.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | a member's state, and the making and the end of a window |
//! | `region.rs`, `segment.rs` | the window's segment: lines, rings, parts; how all members map it |
//! | `issue.rs` | operations done at once, staged or queued |
//! | `execute.rs`, `accumulate.rs`, `atomic.rs` | an operation on memory that is in reach |
//! | `scattered.rs` | an operation on many blocks of another process's memory |
//! | `fence.rs`, `pscw.rs`, `passive.rs` | the three synchronizations |
//! | `episodes.rs` | the barrier of a fence |
//! | `lock_word.rs`, `gate.rs`, `hand_off.rs`, `staging/` | their words and rings |
//! | `offer_lifetime.rs` | the lifetime of an offer |
//!
//! Every member maps the parts that the engine allocated. It reaches a program's own memory through the
//! kernel (process_vm_readv(2), or proc_pid_mem(5) for short data) where that is allowed. Puts to such memory
//! are staged, and need no system call, in epochs that the target ends too. Cost: see `PROTOCOL.md`. When not
//! to use: between hosts.

mod accumulate;
mod atomic;
pub(crate) mod episodes;
mod execute;
mod fence;
pub(crate) mod gate;
pub(crate) mod hand_off;
mod issue;
pub(crate) mod lock_word;
mod offer_lifetime;
mod passive;
mod pscw;
mod region;
mod scattered;
mod segment;
mod staging;

use crate::host::HostMembers;
use crate::host::flag_waiter::FlagWaiter;
use crate::memory::op::Op;
use crate::model::{
    Counts, EpochKind, Error, Lock, Medium, Rank, Spec, Traffic, WaitCell, Waits, WindowPart,
};
use crate::path::AttachmentChange;
use crate::path::mapped::segment::{Segment, agreed, outcome};
use crate::path::message::MessageEngine;
use episodes::Episodes;
use offer_lifetime::OfferLifetime;
use region::{Region, SegmentPlan};
use staging::{StagingReader, StagingWriter, Stamp};
use std::sync::Arc;
use unisono_linux::clock::{now, ticks};
use unisono_linux::process_vm;
use unisono_sync::{Flag, Lines, Waited, Wakeups, WatchVerdict};

/// A member's state about one other member.
#[derive(Debug)]
pub(crate) struct MappedPeer {
    /// Whether an operation may be done at once, in place, without any further check. If so, the part is
    /// mapped.
    direct: bool,
    /// The peer's part in this process's address space; null if this process does not map it.
    base: *mut u8,
    /// The peer's part in the peer's own address space.
    address: u64,
    /// Whether the peer is known to have begun the epoch in which this member accesses it.
    opened: bool,
    /// The fence epoch that the peer enters once it has applied the puts staged for it, or `None` if it has
    /// entered the epoch or no puts were staged.
    applying_epoch: Option<u32>,
    queue: Vec<Op>,
    /// The stamp with which further puts of this epoch are staged without another check.
    staging_stamp: Option<Stamp>,
    held: LockHeld,
    /// The number of passive epochs still to come without an offer to the peer, because it did not take the
    /// last one.
    offers_paused: u8,
    // Counts of post-start-complete-wait epochs so far: the peer's exposures that this member used, this
    // member's completions at the peer, the peer's completions here that this member waited for, and this
    // member's posts to the peer.
    used: u32,
    completed: u32,
    awaited: u32,
    posted: u32,
    writer: StagingWriter,
    reader: StagingReader,
}

/// This member's lock at a peer's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockHeld {
    Nothing,
    Lock(Lock),
    /// No lock is needed: the caller promised that no other rank conflicts.
    Unchecked,
}

/// An origin's knowledge about its targets after a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetExposure {
    /// Nothing: the fence was no barrier. Short operations are staged.
    Unknown,
    /// All members have arrived at the fence, but a target may still apply staged operations: an origin
    /// checks the target's exposure before it stores there.
    Checked,
    /// All members are in their epoch.
    Open,
}

/// One member's end of a window on the mapped path.
#[derive(Debug)]
pub(crate) struct MappedPath {
    host: Arc<HostMembers>,
    shared: Arc<MessageEngine>,
    region: Region,
    barrier: Episodes,
    me: usize,
    peers: Box<[MappedPeer]>,
    waiter: MappedWaiter,
    /// The time that this member has waited at gates in the open epoch.
    gate_waits: WaitCell,
    wakeups: Wakeups,
    epoch: u32,
    target_exposure: TargetExposure,
    /// Whether all members map all parts, because the engine allocated them.
    mapped: bool,
    /// Whether this member may have stored into a part since its last memory fence ([`Self::fence_stores`]).
    dirty: bool,
    number: u32,
    /// Whether puts of passive epochs are handed to targets that are in the library (`hand_off.rs`).
    offers_puts: bool,
    offer_lifetime: OfferLifetime,
    own_bytes: u64,
    by_kernel: Counts,
}

/// The arguments for making a window on this path.
pub(crate) struct PartsPlan<'a> {
    pub(crate) parts: &'a [WindowPart],
    pub(crate) spec: Spec,
    /// The program's memory, or null if the engine allocates the parts.
    pub(crate) base: *mut u8,
    pub(crate) number: u32,
}

/// A word that other members try to read, to find out whether the kernel lets them read this process's
/// memory.
static PROBE: u64 = 0x756e_6973_6f6e_6f21;

impl MappedPath {
    /// Makes a member's end of a window; collective. Returns `None` if the kernel does not let every member
    /// read every other's memory.
    pub(crate) fn make(
        host: &Arc<HostMembers>,
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
            let process = host.memory_of(Rank::at(rank));
            let reached = process.is_ok_and(|process| process_vm::read(process, address, &mut probe).is_ok())
                && u64::from_ne_bytes(probe) == PROBE;
            if reached {
                host.open_memory(Rank::at(rank), address, PROBE);
            }
            reached
        };
        let outcomes = (0..size).map(|rank| (word(rank, 16) & 0xffff_ffff) as u32);
        let (barrier, lines) = agreed(host, joined, outcomes, "map the window's memory")?;
        // All members know whether the parts are mapped, so all of them take part in the gather, or none.
        if !mapped {
            let reachable = u8::from((0..size).all(reaches));
            if !shared.gather(&[reachable])?.iter().all(|answer| answer == &[1]) {
                return Ok(None);
            }
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
            applying_epoch: None,
            queue: Vec::new(),
            staging_stamp: None,
            held: LockHeld::Nothing,
            offers_paused: 0,
            used: 0,
            completed: 0,
            awaited: 0,
            posted: 0,
            writer: StagingWriter::default(),
            reader: StagingReader::default(),
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
                flag_waiter: FlagWaiter::new(host.wakeups()),
                waits: Waits::default(),
            },
            gate_waits: WaitCell::default(),
            wakeups: host.wakeups(),
            epoch: 0,
            target_exposure: TargetExposure::Unknown,
            mapped,
            dirty: false,
            number: wanted.number,
            offers_puts: !mapped && !host.crowded && size <= passive::MAX_OFFER_MEMBERS,
            offer_lifetime: OfferLifetime::default(),
            own_bytes: wanted.parts[me].bytes,
            by_kernel: Counts::default(),
        }))
    }

    pub(crate) fn own_base(&self) -> *mut u8 {
        self.peers[self.me].base
    }

    pub(crate) fn progress(&self) -> Result<(), Error> {
        self.shared.core().progress()?;
        self.host.gone_member().map_or(Ok(()), |gone| Err(gone.into()))
    }

    pub(crate) fn mapped(&self, rank: Rank) -> Option<*mut u8> {
        Some(self.peers[rank.index()].base).filter(|base| !base.is_null())
    }

    pub(crate) fn shared(&self) -> &MessageEngine {
        &self.shared
    }

    pub(crate) fn waits(&self) -> Waits {
        let mut waits = self.waiter.waits;
        let episodes = self.barrier.waited();
        waits.fence.add(episodes.awake + episodes.asleep, episodes.asleep);
        waits
    }

    #[inline]
    pub(crate) fn take_gate_waits(&mut self) -> Waited {
        self.gate_waits.take()
    }

    pub(crate) fn traffic(&self, issued: &Counts) -> Traffic {
        Traffic::divided(issued, &self.by_kernel, Medium::Kernel, Medium::Stores)
    }

    pub(crate) fn change_attached(&self, _: AttachmentChange<'_>) -> Option<Result<(), Error>> {
        None
    }

    pub(crate) fn free(&mut self) -> Result<(), Error> {
        self.shared.barrier(self.number)?;
        self.shared.core().forget_window(self.number);
        self.peers.iter_mut().for_each(|peer| (peer.direct, peer.base) = (false, std::ptr::null_mut()));
        Ok(())
    }

    /// Does nothing: the path's barrier informs the others when it is dropped, and the window's memory
    /// belongs to the segment.
    pub(crate) fn abandon(&mut self) {}

    /// Closes all targets: forgets that they are in their epochs.
    fn close_all(&mut self) {
        for peer in &mut self.peers {
            (peer.direct, peer.opened, peer.staging_stamp) = (false, false, None);
        }
    }
}

/// Waits for flags of the window.
#[derive(Debug)]
struct MappedWaiter {
    host: Arc<HostMembers>,
    shared: Arc<MessageEngine>,
    flag_waiter: FlagWaiter,
    waits: Waits,
}

impl MappedWaiter {
    #[inline]
    fn wait_for(&mut self, reach: EpochKind, flag: Flag<'_>, target: u32) -> Result<(), Error> {
        if self.flag_waiter.wait_briefly(&self.host, flag, target) {
            return Ok(());
        }
        self.wait_slow(reach, flag, target)
    }

    /// Waits for a flag after the initial polls. Calls the job's hook meanwhile, and adds the time to the
    /// statistics.
    #[cold]
    fn wait_slow(&mut self, reach: EpochKind, flag: Flag<'_>, target: u32) -> Result<(), Error> {
        let (start, slept) = (ticks(), self.flag_waiter.asleep());
        // A fence is collective: no thread here has another call to make meanwhile, so a fence never gives
        // up.
        let timeout = self.shared.wait_timeout().filter(|_| reach != EpochKind::Fence);
        let over = timeout.map(|timeout| now() + timeout);
        let mut pause = self.shared.hook.begin();
        let reached = loop {
            let until = pause.map(|pause| now() + pause);
            let until = over.map_or(until, |over| Some(until.map_or(over, |until| until.min(over))));
            if self.flag_waiter.wait_until(&self.host, flag, target, until) == WatchVerdict::Continue {
                break Ok(());
            }
            if let Some(gone) = self.host.gone_member() {
                break Err(gone.into());
            }
            pause = self.shared.hook.call_due();
            if over.is_some_and(|over| now() >= over) {
                break Err(Error::NotYet);
            }
        };
        let slept = self.flag_waiter.asleep() - slept;
        self.waits.get_mut(reach).add(ticks().since(start).to_duration(), slept);
        reached
    }
}
