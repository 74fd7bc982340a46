//! Runs a model's program on a real job, one thread per member, and returns the same results as the model.

use crate::model::{self, Program, Step, Synchronization, What, common, own, slots};
use std::thread;
use unisono_rma::{Assert, Error, Flavor, Job, Lock, Pending, Rank, Spec, Style, Window};

/// The results of a member: the slots of its window, and the values that each of its gets read.
type Found = (Vec<u64>, Vec<Vec<u64>>);

pub(crate) fn run(
    program: &Program,
    jobs: Vec<Job>,
    style: Style,
    flavor: Flavor,
) -> (Vec<Vec<u64>>, Vec<Vec<Vec<u64>>>) {
    let members: Vec<Found> = thread::scope(|threads| {
        let running: Vec<_> = jobs
            .into_iter()
            .map(|job| threads.spawn(move || member(program, job, style, flavor).expect("no misuse here")))
            .collect();
        running.into_iter().map(|thread| thread.join().expect("members do not panic")).collect()
    });
    members.into_iter().unzip()
}

fn member(program: &Program, mut job: Job, style: Style, flavor: Flavor) -> Result<Found, Error> {
    let me = job.rank().index();
    let mut memory = vec![0_u64; slots(program.size)];
    let bytes = size_of_val(memory.as_slice()) as u64;
    let spec = Spec::new().unit(8).style(style);
    let base = memory.as_mut_ptr();
    let mut window = match flavor {
        Flavor::Allocated => job.allocate(bytes, spec)?,
        Flavor::Dynamic => job.dynamic(spec)?,
        // SAFETY: the vector outlives the window, and is read only after it was freed.
        Flavor::Created => unsafe { job.create(base.cast(), bytes, spec) }?,
    };
    if flavor == Flavor::Dynamic {
        // SAFETY: the vector outlives the window, and is read only after it was freed.
        unsafe { window.attach(base.cast(), bytes as usize) }?;
    }
    let places = Places::new(&mut job, flavor, base)?;
    let mut read = Vec::new();
    for (number, epoch) in program.epochs.iter().enumerate() {
        let mine = |step: &&Step| step.origin == me;
        let steps: Vec<&Step> = epoch.steps.iter().filter(mine).collect();
        let everybody: Vec<Rank> = (0..program.size).map(Rank::at).collect();
        let context = Context { program, number, operation: epoch.operation, places: &places };
        // The members' operations of different epochs must not overlap in time.
        job.barrier()?;
        match epoch.synchronization {
            Synchronization::Fence => {
                window.fence(Assert::NONE)?;
                let pending = context.issue(&mut window, &steps)?;
                window.fence(Assert::NONE)?;
                take(&mut window, pending, &mut read)?;
                window.fence(Assert::NO_SUCCEED)?;
            }
            Synchronization::FenceAsserted => {
                window.fence(Assert::NO_PRECEDE)?;
                let pending = context.issue(&mut window, &steps)?;
                window.fence(Assert::NO_STORE | Assert::NO_SUCCEED)?;
                take(&mut window, pending, &mut read)?;
            }
            Synchronization::Pscw => {
                window.post(&everybody, Assert::NONE)?;
                window.start(&everybody, Assert::NONE)?;
                let pending = context.issue(&mut window, &steps)?;
                window.complete()?;
                take(&mut window, pending, &mut read)?;
                window.wait()?;
            }
            Synchronization::LockShared | Synchronization::LockExclusive => {
                let lock = match epoch.synchronization {
                    Synchronization::LockShared => Lock::Shared,
                    _ => Lock::Exclusive,
                };
                for target in &everybody {
                    let to: Vec<&Step> =
                        steps.iter().copied().filter(|step| step.target == target.index()).collect();
                    window.lock(*target, lock, Assert::NONE)?;
                    let pending = context.issue(&mut window, &to)?;
                    window.unlock(*target)?;
                    take(&mut window, pending, &mut read)?;
                }
            }
            Synchronization::LockAll => {
                window.lock_all(Assert::NONE)?;
                let (first, second) = steps.split_at(steps.len() / 2);
                let pending = context.issue(&mut window, first)?;
                window.flush_all()?;
                take(&mut window, pending, &mut read)?;
                let pending = context.issue(&mut window, second)?;
                window.flush_local_all()?;
                take(&mut window, pending, &mut read)?;
                window.unlock_all()?;
            }
        }
    }
    job.barrier()?;
    window.lock(Rank::at(me), Lock::Exclusive, Assert::NONE)?;
    let mut found = vec![0; slots(program.size)];
    if flavor == Flavor::Dynamic {
        window.get_now(&mut found, Rank::at(me), places.offset(me, 0))?;
    } else {
        window.load(0, &mut found)?;
    }
    window.unlock(Rank::at(me))?;
    window.free()?;
    job.finalize()?;
    Ok((found, read))
}

/// The positions of slots: their numbers, or addresses at each member.
enum Places {
    Numbers,
    Addresses(Vec<i64>),
}

impl Places {
    fn new(job: &mut Job, flavor: Flavor, base: *mut u64) -> Result<Self, Error> {
        if flavor != Flavor::Dynamic {
            return Ok(Self::Numbers);
        }
        let all = job.gather(&(base as i64).to_le_bytes())?;
        let address = |bytes: &Vec<u8>| i64::from_le_bytes(*bytes.first_chunk().expect("eight bytes each"));
        Ok(Self::Addresses(all.iter().map(address).collect()))
    }

    fn offset(&self, rank: usize, slot: usize) -> i64 {
        match self {
            Self::Numbers => slot as i64,
            Self::Addresses(bases) => bases[rank] + 8 * slot as i64,
        }
    }
}

/// The epoch whose operations are to be issued.
struct Context<'a> {
    program: &'a Program,
    number: usize,
    operation: unisono_rma::Operation,
    places: &'a Places,
}

impl Context<'_> {
    fn issue(&self, window: &mut Window, steps: &[&Step]) -> Result<Vec<(bool, Pending<u64>)>, Error> {
        let (size, number) = (self.program.size, self.number);
        let mut pending = Vec::new();
        for step in steps {
            let (target, values) = (Rank::at(step.target), step.values());
            let place = |slot| self.places.offset(step.target, slot);
            match step.what {
                What::Put { slot, .. } => {
                    window.put(&values, target, place(own(size, step.origin, number) + slot))?;
                }
                What::Get { origin, slot, values } => {
                    let place = place(own(size, origin, number + 1) + slot);
                    pending.push((true, window.get(values, target, place)?));
                }
                What::Accumulate { slot, .. } => {
                    window.accumulate(&values, target, place(common(size) + slot), self.operation)?;
                }
                What::Fetch { slot } => {
                    let place = place(common(size) + slot);
                    pending.push((false, window.get_accumulate(&values, target, place, self.operation)?));
                }
            }
        }
        Ok(pending)
    }
}

fn take(
    window: &mut Window,
    pending: Vec<(bool, Pending<u64>)>,
    read: &mut Vec<Vec<u64>>,
) -> Result<(), Error> {
    for (compared, pending) in pending {
        let values = window.take(pending)?;
        if compared {
            read.push(values);
        }
    }
    Ok(())
}

/// Brings each member's gets into the order in which they are issued: in lock epochs, target by target.
pub(crate) fn reorder(program: &Program, read: Vec<Vec<Vec<u64>>>) -> Vec<Vec<Vec<u64>>> {
    let mut read: Vec<_> = read.into_iter().map(Vec::into_iter).collect();
    let mut ordered = vec![Vec::new(); program.size];
    for epoch in &program.epochs {
        for (member, ordered) in ordered.iter_mut().enumerate() {
            let gets = epoch
                .steps
                .iter()
                .filter(|step| step.origin == member && matches!(step.what, What::Get { .. }));
            let mut these: Vec<(usize, Vec<u64>)> =
                gets.map(|step| (step.target, read[member].next().unwrap_or_default())).collect();
            if matches!(epoch.synchronization, Synchronization::LockShared | Synchronization::LockExclusive) {
                these.sort_by_key(|(target, _)| *target);
            }
            ordered.extend(these.into_iter().map(|(_, values)| values));
        }
    }
    ordered
}

/// Runs the program and compares with the model.
pub(crate) fn compare(program: &Program, jobs: Vec<Job>, style: Style, flavor: Flavor) {
    let (memory, read) = model::run(program);
    let (found, came) = run(program, jobs, style, flavor);
    assert_eq!(found, memory, "memory after {program:?}");
    assert_eq!(came, reorder(program, read), "gets of {program:?}");
}
