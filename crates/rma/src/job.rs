//! A job: one rank's membership in a group that makes windows together.

use crate::host::HostMembers;
use crate::model::{Error, JobMembership, Locks, Rank, Spec, StatsTable, Style, WindowPart, from_launcher};
use crate::path::AnyPath;
use crate::path::hook::HookOutcome;
use crate::path::mapped::episodes::Episodes;
use crate::path::mapped::{MappedPath, PartsPlan};
use crate::path::message::{Memory, MessageEngine, MessagePath, PacketServer};
use crate::window::{Flavor, Window};
use crate::wire::Transport;
use crate::wire::hybrid::Hybrid;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// One rank's membership in a job: a group of members that make windows together.
///
/// A job is what MPI calls a communicator's group: an MPI binding makes one job for each communicator, and
/// the ranks of a window are the ranks of its job. Making and freeing windows, [`barrier`](Self::barrier),
/// [`gather`](Self::gather) and [`finalize`](Self::finalize) are collective: every member calls them, in the
/// same order.
///
/// | members | made by | windows |
/// |---|---|---|
/// | threads of a process | [`Job::threads`] | by messages between threads |
/// | processes of a host | [`Job::shared`] | by loads and stores in shared memory; dynamic ones by messages |
/// | processes of several hosts | [`Job::join`] | by messages: in shared memory within a host, over TCP between hosts |
/// | anything | [`Job::over`] a [`Transport`] | by messages |
///
/// A process started by `unisono run` or by Slurm's `srun` finds its job in its environment ([`Job::join`]).
#[derive(Debug)]
pub struct Job {
    shared: Arc<MessageEngine>,
    /// The members of this host, if all members share its memory.
    host: Option<Arc<HostMembers>>,
    /// The job's own barrier on the host; made by the first [`barrier`](Self::barrier).
    episodes: Option<Episodes>,
    rank: Rank,
    size: usize,
}

/// The number of bytes by which a member announces a window to the others: its part's length and unit, and
/// the arguments that have to agree.
const ANNOUNCEMENT: usize = 16;

impl Job {
    /// Makes a job of threads of this process. Returns one handle for each rank, to be sent to its thread.
    pub fn threads(size: usize) -> Vec<Self> {
        crate::wire::loopback::Loopback::job(size).into_iter().map(Self::over).collect()
    }

    /// Joins a job of processes of this host that know the same key, however they were started. Collective:
    /// waits until all have joined, for at most `timeout`. Fails with [`Error::TimedOut`], which names the
    /// missing ranks; with [`Error::System`]; and with [`Error::Job`] for a rank taken twice.
    pub fn shared(place: &JobMembership, timeout: Duration) -> Result<Self, Error> {
        let transport = crate::wire::ring::RingTransport::connect(place, timeout)?;
        let host = Some(Arc::clone(transport.host()));
        let mut job = Self::over(transport);
        job.host = host;
        Ok(job)
    }

    /// Joins the job of this process's launcher: `unisono run`, on one host or on several, or Slurm's `srun`.
    /// Returns `None` if no launcher started it. Collective: waits until all have joined, for at most
    /// `timeout`. Fails as [`shared`](Self::shared) does, with [`Error::Gone`] if a rank on another host ends
    /// meanwhile, and with [`Error::Job`] for an environment with missing or invalid values.
    pub fn join(timeout: Duration) -> Result<Option<Self>, Error> {
        let Some((place, bootstrap)) = from_launcher(|name| std::env::var(name).ok())? else {
            return Ok(None);
        };
        match bootstrap {
            Some(bootstrap) if bootstrap.here.len() < place.size => {
                let job = Self::over(Hybrid::connect(&place, &bootstrap, timeout)?);
                job.shared.learn_hosts(bootstrap.here[0])?;
                Ok(Some(job))
            }
            _ => Self::shared(&place, timeout).map(Some),
        }
    }

    pub fn over(transport: impl Transport + 'static) -> Self {
        let (rank, size) = (transport.rank(), transport.size());
        Self { shared: MessageEngine::new(Box::new(transport)), host: None, episodes: None, rank, size }
    }

    pub fn rank(&self) -> Rank {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Waits until every member has called this.
    pub fn barrier(&mut self) -> Result<(), Error> {
        let Some(host) = &self.host else { return self.shared.barrier(0) };
        if self.episodes.is_none() {
            self.episodes = Some(Episodes::make(host, &self.shared)?);
        }
        let serving = self.shared.prepare_barrier()?;
        let episodes = self.episodes.as_mut().expect("made just now because there was none");
        episodes.wait(serving)
    }

    /// Gathers `data` of every member at every member, in the order of ranks; collective. A launcher or a
    /// binding uses it so that its members agree; it is not optimized for speed.
    pub fn gather(&mut self, data: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.shared.gather(data)
    }

    /// Makes a window over zeroed memory that the engine allocates: `bytes` at this member, which may be zero
    /// and may differ between members. Fails with [`Error::Size`], [`Error::Disp`], [`Error::Mismatch`],
    /// [`Error::System`].
    pub fn allocate(&mut self, bytes: u64, spec: Spec) -> Result<Window, Error> {
        if let Some(window) = self.direct(Flavor::Allocated, std::ptr::null_mut(), bytes, spec)? {
            return Ok(window);
        }
        let count = usize::try_from(bytes.div_ceil(16)).map_err(|_| Error::Size(bytes))?;
        let mut owner: Vec<u128> = Vec::new();
        owner.try_reserve_exact(count).map_err(|_| Error::Size(bytes))?;
        owner.resize(count, 0);
        let base = owner.as_mut_ptr().cast::<u8>();
        self.window(Flavor::Allocated, Memory::Fixed { base, bytes, _owner: Some(owner) }, spec)
    }

    /// Makes a window over the caller's memory. Fails as [`allocate`](Self::allocate) does.
    ///
    /// # Safety
    /// `bytes` bytes at `base` stay valid until the window is freed or dropped, and are accessed by this
    /// process only as the epochs allow.
    pub unsafe fn create(&mut self, base: *mut u8, bytes: u64, spec: Spec) -> Result<Window, Error> {
        if isize::try_from(bytes).is_err() {
            return Err(Error::Size(bytes));
        }
        let base = if base.is_null() { std::ptr::NonNull::dangling().as_ptr() } else { base };
        if let Some(window) = self.direct(Flavor::Created, base, bytes, spec)? {
            return Ok(window);
        }
        self.window(Flavor::Created, Memory::Fixed { base, bytes, _owner: None }, spec)
    }

    /// Makes a window over memory that the caller gives away for ever, so that the call is safe. Fails as
    /// [`allocate`](Self::allocate) does.
    pub fn create_static(&mut self, memory: &'static mut [u8], spec: Spec) -> Result<Window, Error> {
        let (base, bytes) = (memory.as_mut_ptr(), memory.len() as u64);
        // SAFETY: the memory is never freed, and the caller has given its only reference away.
        unsafe { self.create(base, bytes, spec) }
    }

    /// Makes a window to which memory is attached later. Fails as [`allocate`](Self::allocate) does.
    pub fn dynamic(&mut self, spec: Spec) -> Result<Window, Error> {
        self.window(Flavor::Dynamic, Memory::Attached(Vec::new()), spec)
    }

    /// Makes a window on the mapped path. Returns `None` if not all members can reach each other's memory, or
    /// if the window's style needs messages.
    fn direct(
        &mut self,
        flavor: Flavor,
        base: *mut u8,
        bytes: u64,
        spec: Spec,
    ) -> Result<Option<Window>, Error> {
        let Some(host) = self.host.as_ref().filter(|_| spec.style == Style::Direct) else { return Ok(None) };
        if spec.unit == 0 {
            return Err(Error::Disp(0));
        }
        let parts = self.exchange(flavor, bytes, spec)?;
        let number = self.shared.core().new_window();
        let wanted = PartsPlan { parts: &parts, spec, base, number };
        let Some(direct) = MappedPath::make(host, &self.shared, &wanted)? else {
            self.shared.core().forget_window(number);
            return Ok(None);
        };
        let base = direct.own_base();
        let path = AnyPath::Mapped(Box::new(direct));
        Ok(Some(Window::new(flavor, spec, self.rank, base, parts, path)))
    }

    fn window(&mut self, flavor: Flavor, memory: Memory, spec: Spec) -> Result<Window, Error> {
        if spec.unit == 0 {
            return Err(Error::Disp(0));
        }
        let (base, bytes) = match &memory {
            Memory::Fixed { base, bytes, .. } => (*base, *bytes),
            Memory::Attached(_) => (std::ptr::null_mut(), 0),
        };
        // The window exists here before the others learn of it: the first operation of a fast member may
        // arrive while slower members still gather.
        let path = AnyPath::Message(MessagePath::new(&self.shared, memory, spec));
        let parts = self.exchange(flavor, bytes, spec)?;
        if spec.locks == Locks::Possible && self.size > 1 {
            self.shared.start_agent();
        }
        Ok(Window::new(flavor, spec, self.rank, base, parts, path))
    }

    /// Announces this member's part to the other members, and returns the parts of all.
    fn exchange(&self, flavor: Flavor, bytes: u64, spec: Spec) -> Result<Box<[WindowPart]>, Error> {
        let mut announcement = [0; ANNOUNCEMENT];
        announcement[..8].copy_from_slice(&bytes.to_le_bytes());
        announcement[8..12].copy_from_slice(&spec.unit.to_le_bytes());
        announcement[12..].copy_from_slice(&[
            flavor as u8,
            spec.style as u8,
            spec.locks as u8,
            spec.completion as u8,
        ]);
        let all = self.shared.gather(&announcement)?;
        let mut parts = Vec::with_capacity(self.size);
        for (index, theirs) in all.iter().enumerate() {
            let Some(theirs) = theirs.first_chunk::<ANNOUNCEMENT>().filter(|_| theirs.len() == ANNOUNCEMENT)
            else {
                return Err(mismatch(index, "another call"));
            };
            if theirs[12..] != announcement[12..] {
                return Err(mismatch(index, "another flavour, style or info"));
            }
            let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *theirs;
            let unit = u32::from_le_bytes([i, j, k, l]);
            parts.push(WindowPart { bytes: u64::from_le_bytes([a, b, c, d, e, f, g, h]), unit: unit.max(1) });
        }
        Ok(parts.into())
    }

    /// Calls `hook` about once in `every` (1 us to 5 ms) while this member waits in a call of this job or of
    /// its windows. The waiting thread calls it. If members outnumber processors, the first call of a wait
    /// comes after 5 ms, unless one of the last 512 waits lasted until its call was due. After a call that
    /// found work the next call comes within microseconds, and each call that finds none doubles the pause.
    /// This is for a binding whose host must make progress meanwhile. The hook must not call this job or its
    /// windows.
    pub fn while_waiting(&mut self, every: Duration, hook: Box<dyn FnMut() -> HookOutcome + Send>) {
        let crowded = self.host.as_ref().is_some_and(|host| host.crowded);
        self.shared.hook.set(every.into(), crowded, hook);
    }

    /// Stops the agent thread: from now on this member serves other members only in its own calls. This is
    /// for a binding whose host may not be called from other threads any more.
    pub fn without_agent(&self) {
        self.shared.stop_agent();
    }

    /// Returns a server of the other members' packets, for any thread that waits outside of this job's calls.
    pub fn packet_server(&self) -> PacketServer {
        PacketServer::new(&self.shared)
    }

    /// Adds up the statistics of all members, and prints the sum at rank 0.
    fn print_stats(&mut self, own: &[u8]) -> Result<(), Error> {
        let mut sum = StatsTable::default();
        for theirs in self.gather(own)?.iter().filter_map(|bytes| StatsTable::decode(bytes)) {
            sum.merge(&theirs);
        }
        if self.rank == Rank(0) {
            // One write, so that other output does not get in between. A program may have closed standard
            // error: then the table is lost.
            let _ = std::io::stderr().write_all(format!("unisono: {sum}").as_bytes());
        }
        Ok(())
    }

    /// Leaves the job; collective. If the environment has [`STATS`](crate::STATS), rank 0 prints the
    /// statistics of the windows that have ended. A member that drops its job without this call counts as
    /// gone for the others.
    pub fn finalize(mut self) -> Result<(), Error> {
        let own = self.shared.stats_table().map(|stats_table| {
            let bytes = stats_table.encode();
            // The names of many windows may take more than the transport carries in one packet.
            if bytes.len() <= self.shared.core().transport.max_payload() {
                bytes
            } else {
                stats_table.in_one_row().encode()
            }
        });
        match own {
            Some(own) => self.print_stats(&own)?,
            None => self.shared.barrier(0)?,
        }
        self.shared.core().send_goodbye()?;
        self.shared.wait_for(|core| Ok(core.transport.flush()?.then_some(())))?;
        self.shared.stop_agent();
        Ok(())
    }
}

fn mismatch(rank: usize, theirs: &str) -> Error {
    Error::Mismatch { rank: Rank::at(rank), theirs: theirs.to_owned(), ours: "this one".to_owned() }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Windows that live on make progress in their own calls.
        self.shared.stop_agent();
    }
}
