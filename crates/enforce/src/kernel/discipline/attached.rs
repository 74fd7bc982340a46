//! A discipline at a device, loaded by any process: reads its counters, and replaces its classes.
//!
//! ```text
//!   plan, change = 1          a packet with the `kick` priority (the discipline drops it)        change = 0
//!   ----------------------> enqueue: hsfq_change, under the lock of the discipline --------> generation + 1
//! ```
//! No packet is lost, and no packet overtakes another of its class. Each change begins a new *generation* of
//! class numbers. The numbers of the previous generation stay valid, so that the classifier can be replaced
//! afterwards. A plan that has not been executed yet can be withdrawn.

use super::Error;
use super::delays::{self, DelayHistogram};
use super::layout::{self, Counted};
use super::setup::{KIND, PRIORITIES, Setup};
use unisono_fairqueue::{ClassId, Hierarchy};
use unisono_linux::bpf::Array;
use unisono_linux::bpf::compile::ProgramError;

/// The number of histograms of delays: the classes of two generations may have theirs at the same time.
const HISTOGRAMS: usize = 2 * layout::MAX_CLASSES;
/// `struct plan`: the rate, the default class, classes by priority, and the classes themselves.
const PLAN: usize = 16 + 4 * PRIORITIES + layout::PLAN_SIZE;
/// The bits of a class's number within its generation. The bits of the minor number above these are the
/// generation.
const MINOR_BITS: u32 = 11;
/// The minor number in the priority of the packet that starts a change.
const KICK: u32 = 0xffff;

#[derive(Debug)]
pub struct Attached {
    pub(super) scheduler: Array,
    pub(super) plan: Array,
    pub(super) change: Array,
    pub(super) delays: Array,
}

#[derive(Clone, PartialEq, Debug)]
pub struct DisciplineFigures {
    pub generation: u32,
    /// By class number.
    pub classes: Vec<(Counted, DelayHistogram)>,
}

impl Attached {
    /// Makes the maps for new classes, and writes the ids of the other maps into the scheduler's map.
    pub(super) fn make(mut scheduler_value: Vec<u8>) -> Result<Self, ProgramError> {
        let map = |name, size: usize, elements: usize| {
            let made = Array::new(name, size as u32, elements as u32);
            made.map_err(ProgramError::io(format!("make the BPF map {name}")))
        };
        let this = Self {
            scheduler: map("scheduler", layout::SIZE, 1)?,
            plan: map("plan", PLAN, 1)?,
            change: map("change", 8, 1)?,
            delays: map("delays", delays::SIZE, HISTOGRAMS)?,
        };
        let id = |map: &Array| map.id().map_err(ProgramError::io("ask for the number of a BPF map"));
        scheduler_value.resize(layout::SIZE, 0);
        layout::write_maps(&mut scheduler_value, [id(&this.plan)?, id(&this.change)?, id(&this.delays)?]);
        this.scheduler.write(0, &scheduler_value).map_err(ProgramError::io("write the classes"))?;
        Ok(this)
    }

    /// Opens the maps of a device's discipline, found by its `kind`. Returns `None` if the discipline is not
    /// ours.
    pub fn open(kind: &str) -> Option<Result<Self, ProgramError>> {
        let id = u32::from_str_radix(kind.strip_prefix(KIND)?, 16).ok()?;
        let open = |id, size: usize| {
            Array::open(id, size as u32).map_err(ProgramError::io(format!("open the classes of {kind}")))
        };
        let all = || {
            let scheduler = open(id, layout::SIZE)?;
            let [plan, change, delays] = layout::maps(&read(&scheduler)?);
            let (plan, change) = (open(plan, PLAN)?, open(change, 8)?);
            Ok(Self { scheduler, plan, change, delays: open(delays, delays::SIZE)? })
        };
        Some(all())
    }

    /// Reads the counters of each class, by class number.
    pub fn counted(&self) -> Result<Vec<Counted>, ProgramError> {
        Ok(layout::all_counted(&read(&self.scheduler)?))
    }

    /// Reads the counters of each class, and its histogram of delays.
    pub fn figures(&self) -> Result<DisciplineFigures, ProgramError> {
        let structure = read(&self.scheduler)?;
        let delays = |counted: Counted| {
            let mut bytes = vec![0; delays::SIZE];
            let read = self.delays.read(counted.histogram, &mut bytes);
            read.map_err(ProgramError::io("read how long packets waited"))?;
            Ok((counted, DelayHistogram::read(&bytes)))
        };
        let classes: Result<_, ProgramError> =
            layout::all_counted(&structure).into_iter().map(delays).collect();
        Ok(DisciplineFigures { generation: layout::generation(&structure), classes: classes? })
    }

    pub fn generation(&self) -> Result<u32, ProgramError> {
        Ok(layout::generation(&read(&self.scheduler)?))
    }

    /// Writes a plan that replaces the classes; a new class with the name of an old one continues it. The
    /// program executes the plan when the next packet arrives, for example one with the priority [`kick`].
    /// Returns the generation of the new classes.
    pub fn propose(&self, old: &Hierarchy, new: &Setup<'_>) -> Result<u32, Error> {
        self.withdraw()?;
        let structure = read(&self.scheduler)?;
        let counted = layout::all_counted(&structure);
        let histograms: Vec<u32> = counted.iter().map(|class| class.histogram).collect();
        let classes = layout::plan(old, new.hierarchy, new.others, new.room, &histograms)?;
        // empty the histograms that newly added classes get, because other classes may have used them before
        let fresh = layout::all_counted_in_plan(&classes).into_iter().map(|class| class.histogram);
        for histogram in fresh.filter(|fresh| !histograms.contains(fresh)) {
            let empty = self.delays.write(histogram, &vec![0; delays::SIZE]);
            empty.map_err(ProgramError::io("empty a histogram of delays"))?;
        }
        let plan = [new.plan_head(), classes].concat();
        self.plan.write(0, &plan).map_err(ProgramError::io("write a plan for other classes"))?;
        self.set_change(1)?;
        Ok((layout::generation(&structure) + 1) % layout::GENERATIONS)
    }

    pub fn is_pending(&self) -> Result<bool, ProgramError> {
        let mut word = [0; 8];
        self.change.read(0, &mut word).map_err(ProgramError::io("ask whether classes were changed"))?;
        Ok(word != [0; 8])
    }

    /// Withdraws a plan that has not been executed.
    pub fn withdraw(&self) -> Result<(), ProgramError> {
        self.set_change(0)
    }

    fn set_change(&self, wanted: u64) -> Result<(), ProgramError> {
        self.change.write(0, &wanted.to_ne_bytes()).map_err(ProgramError::io("ask for other classes"))
    }
}

/// Returns the priority that puts a packet into a class; `major` is the discipline's number.
pub fn priority(major: u16, generation: u32, class: ClassId) -> u32 {
    u32::from(major) << 16 | generation << MINOR_BITS | (class.index() as u32 + 1)
}

/// Returns the priority of a packet that starts a planned change and is then dropped.
pub fn kick(major: u16) -> u32 {
    u32::from(major) << 16 | KICK
}

fn read(scheduler: &Array) -> Result<Vec<u8>, ProgramError> {
    let mut structure = vec![0; layout::SIZE];
    scheduler.read(0, &mut structure).map_err(ProgramError::io("read what classes got"))?;
    Ok(structure)
}
