//! What synchronization costs: the ghost-area exchange of four short puts, in every style and situation.
//!
//! ```text
//! cargo bench -p unisono-rma --bench budgets -- [CASE...] [samples=6] [ms=150]
//! ```
//! Every case runs its variants interleaved, A B C C B A, each sample a fresh job of processes. Printed for
//! each: how many samples, their least, median and greatest, in nanoseconds a step. A variant is named
//! `synchronization/style/flavour`. The step of `fence` is the paper's (figure 1): a fence that promises that
//! nothing precedes, four puts, a fence that promises that nothing succeeds; of `lock` four times lock, put,
//! unlock; `death-SYNCHRONIZATION` kills a rank that another waits for, and is the time until that one is
//! told; of `flush` one put and a flush; of `accumulate` one of 1 MB, and `memcpy` is what it is compared to.

#![cfg(not(loom))]
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::clock::now;
use unisono_rma::{
    Assert, Element, Error, Job, Key, Layout, Lock, Operation, Place, Rank, Source, Spec, Style, Target,
    Window, environment,
};

struct Case {
    name: &'static str,
    ranks: usize,
    pinned: bool,
    busy: usize,
    variants: &'static [&'static str],
}

const CASES: [Case; 8] = [
    Case {
        name: "pinned2",
        ranks: 2,
        pinned: true,
        busy: 0,
        variants: &[
            "fence/direct/allocated",
            "pscw/direct/allocated",
            "lock/direct/allocated",
            "flush/direct/allocated",
            "fence/direct/created",
            "pscw/direct/created",
            "lock/direct/created",
            "barrier/direct/allocated",
        ],
    },
    Case {
        name: "styles2",
        ranks: 2,
        pinned: true,
        busy: 0,
        variants: &[
            "fence/deferred/allocated",
            "fence/naive/allocated",
            "pscw/deferred/allocated",
            "pscw/naive/allocated",
            "lock/deferred/allocated",
            "lock/naive/allocated",
        ],
    },
    Case {
        name: "shared4",
        ranks: 4,
        pinned: false,
        busy: 0,
        variants: &[
            "fence/direct/allocated",
            "pscw/direct/allocated",
            "lock/direct/allocated",
            "fence/deferred/allocated",
        ],
    },
    Case {
        name: "shared8",
        ranks: 8,
        pinned: false,
        busy: 0,
        variants: &[
            "fence/direct/allocated",
            "pscw/direct/allocated",
            "lock/direct/allocated",
            "fence/deferred/allocated",
        ],
    },
    Case {
        name: "busy2",
        ranks: 2,
        pinned: false,
        busy: 2,
        variants: &["fence/direct/allocated", "pscw/direct/allocated", "lock/direct/allocated"],
    },
    Case {
        name: "busy2pinned",
        ranks: 2,
        pinned: true,
        busy: 2,
        variants: &["fence/direct/allocated", "pscw/direct/allocated", "lock/direct/allocated"],
    },
    Case {
        name: "death",
        ranks: 2,
        pinned: false,
        busy: 0,
        variants: &[
            "death-fence/direct/allocated",
            "death-pscw/direct/allocated",
            "death-fence/deferred/allocated",
        ],
    },
    Case {
        name: "accumulate",
        ranks: 2,
        pinned: true,
        busy: 0,
        variants: &[
            "accumulate/direct/allocated",
            "accumulate-locked/direct/allocated",
            "memcpy/direct/allocated",
        ],
    },
];

const NEIGHBOURS: usize = 4;
const BIG: usize = 1 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| !one.starts_with("--")).collect();
    if let [role, variant, ms, pinned] = arguments.as_slice()
        && role == "member"
    {
        member(variant, ms.parse().expect("a number"), pinned == "pinned").expect("no misuse here");
        return;
    }
    if arguments.first().is_some_and(|role| role == "busy") {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) {
            std::hint::spin_loop();
        }
        return;
    }
    let number = |name: &str, otherwise: u64| {
        let given = arguments.iter().find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
        given.map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (samples, ms) = (number("samples", 6), number("ms", 150));
    let wanted: Vec<&String> = arguments.iter().filter(|one| !one.contains('=')).collect();
    for case in CASES.iter().filter(|case| wanted.is_empty() || wanted.iter().any(|one| *one == case.name)) {
        run(case, samples as usize, ms);
    }
}

fn run(case: &Case, samples: usize, ms: u64) {
    println!("{}: {} ranks, {} busy loops", case.name, case.ranks, case.busy);
    let busy: Vec<Child> =
        (0..case.busy).map(|_| itself().arg("busy").spawn().expect("this program can be started")).collect();
    let mut results = vec![Vec::new(); case.variants.len()];
    for sample in 0..samples {
        let forth = 0..case.variants.len();
        let order: Vec<usize> = if sample % 2 == 0 { forth.collect() } else { forth.rev().collect() };
        for variant in order {
            results[variant].push(sample_of(case, case.variants[variant], ms));
        }
    }
    for mut child in busy {
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
    for (variant, mut times) in case.variants.iter().zip(results) {
        times.sort_by(f64::total_cmp);
        let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        println!("  {variant:36} n={} {least:10.1} {median:10.1} {most:10.1} ns", times.len());
    }
}

fn itself() -> Command {
    Command::new(std::env::current_exe().expect("Linux says which program this is"))
}

fn sample_of(case: &Case, variant: &str, ms: u64) -> f64 {
    let key = Key::random().expect("the kernel has random bytes").to_string();
    let pinned = if case.pinned { "pinned" } else { "free" };
    let members: Vec<Child> = (0..case.ranks)
        .map(|rank| {
            itself()
                .args(["member", variant, &ms.to_string(), pinned])
                .env(environment::RANK, rank.to_string())
                .env(environment::SIZE, case.ranks.to_string())
                .env(environment::KEY, &key)
                .stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() })
                .spawn()
                .expect("this program can be started")
        })
        .collect();
    if variant.starts_with("death") {
        return until_told(variant, members);
    }
    let mut figure = f64::NAN;
    for (rank, member) in members.into_iter().enumerate() {
        let output = member.wait_with_output().expect("our child");
        assert!(output.status.success(), "{variant}: rank {rank} failed");
        if rank == 0 {
            figure = String::from_utf8_lossy(&output.stdout).trim().parse().expect("rank 0 prints a number");
        }
    }
    figure
}

/// Kills the last rank; how long after that the first was told, in nanoseconds.
fn until_told(variant: &str, mut members: Vec<Child>) -> f64 {
    // Until they wait in earnest, however they do that; at any moment between two of their looks around.
    let anywhere = u64::from(members[0].id()) * 37 % 100;
    std::thread::sleep(Duration::from_millis(400 + anywhere));
    let killed = now();
    let mut victim = members.pop().expect("two ranks");
    victim.kill().expect("our child");
    victim.wait().expect("our child");
    let output = members.remove(0).wait_with_output().expect("our child");
    assert!(output.status.success(), "{variant}: rank 0 failed");
    let told: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("rank 0 prints a moment");
    (told - killed.0) as f64
}

/// Waits for a rank that is going to be killed; prints when this one was told.
fn wait_for_the_dead(mut job: Job, mut window: Window, how: &str) -> Result<(), Error> {
    window.fence(Assert::NONE)?;
    job.barrier()?;
    if job.rank() != Rank(0) {
        std::thread::sleep(Duration::from_secs(60));
        return Ok(());
    }
    let told = if how == "death-fence" {
        window.fence(Assert::NO_SUCCEED)
    } else {
        window.post(&[Rank(1)], Assert::NONE)?;
        window.wait()
    };
    let moment = now();
    match told {
        Err(Error::Gone { rank: Rank(1), .. }) => println!("{}", moment.0),
        other => panic!("rank 1 was killed, yet {other:?}"),
    }
    Ok(())
}

fn member(variant: &str, ms: u64, pinned: bool) -> Result<(), Error> {
    let place = Place::from_environment()?.expect("started by this program");
    if pinned {
        let cpus = affinity::allowed(Tid::current()).expect("every thread has a mask");
        let all: Vec<usize> = cpus.iter().collect();
        let mine = all[place.rank.index() % all.len()];
        affinity::restrict(Tid::current(), &CpuSet::single(mine)).expect("a CPU of our own mask");
    }
    let mut job = Job::shared(&place, Duration::from_secs(20))?;
    let mut parts = variant.split('/');
    let mut part = || parts.next().expect("a variant has three parts");
    let (synchronization, style, flavor) = (part(), part(), part());
    let style = Style::ALL.into_iter().find(|one| one.name() == style).expect("a style");
    let spec = Spec::new().style(style);
    let mut memory = vec![0_u8; BIG];
    let mut window = if flavor == "created" {
        // SAFETY: the vector outlives the window.
        unsafe { job.create(memory.as_mut_ptr(), memory.len() as u64, spec) }?
    } else {
        job.allocate(BIG as u64, spec)?
    };
    if synchronization.starts_with("death") {
        return wait_for_the_dead(job, window, synchronization);
    }
    let mut step = Step::new(synchronization, job.rank(), job.size());
    // Long enough that pages are there and the waiting has settled.
    let mut count = 16_u64;
    step.many(&mut window, &mut job, count)?;
    loop {
        job.barrier()?;
        let start = Instant::now();
        step.many(&mut window, &mut job, count)?;
        let elapsed = start.elapsed();
        let mine = (elapsed.as_nanos() as u64).to_le_bytes();
        let first = job.gather(&mine)?;
        let nanos = first[0].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if nanos >= ms * 1_000_000 || count >= 1 << 32 {
            if job.rank() == Rank(0) {
                println!("{}", elapsed.as_nanos() as f64 / count as f64);
            }
            break;
        }
        let factor = (ms * 1_100_000 / nanos.max(1)).clamp(2, 16);
        count *= factor;
    }
    window.free()?;
    job.finalize()
}

struct Step {
    synchronization: String,
    rank: Rank,
    /// Whom this rank writes to, and who writes to it.
    targets: Vec<Rank>,
    origins: Vec<Rank>,
    neighbours: [Rank; NEIGHBOURS],
    data: [u8; 16],
    big: Vec<f64>,
}

impl Step {
    fn new(synchronization: &str, rank: Rank, size: usize) -> Self {
        let neighbour = |number: usize| Rank::at((rank.index() + 1 + number % (size - 1)) % size);
        let neighbours = std::array::from_fn(neighbour);
        let once = |mut ranks: Vec<Rank>| {
            ranks.sort_unstable();
            ranks.dedup();
            ranks
        };
        let from = |number: usize| Rank::at((rank.index() + size - 1 - number % (size - 1)) % size);
        let (targets, origins) = (once(neighbours.to_vec()), once((0..NEIGHBOURS).map(from).collect()));
        let big = vec![1.0; BIG / 8];
        Self {
            synchronization: synchronization.to_owned(),
            rank,
            targets,
            origins,
            neighbours,
            data: [7; 16],
            big,
        }
    }

    fn many(&mut self, window: &mut Window, job: &mut Job, count: u64) -> Result<(), Error> {
        match self.synchronization.as_str() {
            "fence" => (0..count).try_for_each(|_| self.fence(window)),
            "pscw" => (0..count).try_for_each(|_| self.pscw(window)),
            "lock" => (0..count).try_for_each(|_| self.lock(window)),
            "barrier" => (0..count).try_for_each(|_| window.fence(Assert::NONE)),
            "flush" => self.flush(window, count),
            "memcpy" => {
                let mut into = self.big.clone();
                for _ in 0..count {
                    std::hint::black_box(&mut into).copy_from_slice(std::hint::black_box(&self.big));
                }
                job.barrier()
            }
            _ => self.accumulate(window, job, count),
        }
    }

    fn put(&self, window: &mut Window, number: usize) -> Result<(), Error> {
        let layout = Layout::bytes(16);
        let source = Source { address: self.data.as_ptr(), count: 1, layout: &layout };
        let place = (number * 16) as i64;
        let target = Target { rank: self.neighbours[number], place, count: 1, layout: &layout };
        // SAFETY: the data lives as long as this, and nobody writes it.
        unsafe { window.raw_put(source, target) }
    }

    fn fence(&self, window: &mut Window) -> Result<(), Error> {
        window.fence(Assert::NO_PRECEDE)?;
        (0..NEIGHBOURS).try_for_each(|number| self.put(window, number))?;
        window.fence(Assert::NO_STORE | Assert::NO_PUT | Assert::NO_SUCCEED)
    }

    fn pscw(&self, window: &mut Window) -> Result<(), Error> {
        window.post(&self.origins, Assert::NONE)?;
        window.start(&self.targets, Assert::NONE)?;
        (0..NEIGHBOURS).try_for_each(|number| self.put(window, number))?;
        window.complete()?;
        window.wait()
    }

    fn lock(&self, window: &mut Window) -> Result<(), Error> {
        for number in 0..NEIGHBOURS {
            window.lock(self.neighbours[number], Lock::Shared, Assert::NONE)?;
            self.put(window, number)?;
            window.unlock(self.neighbours[number])?;
        }
        Ok(())
    }

    fn flush(&self, window: &mut Window, count: u64) -> Result<(), Error> {
        window.lock_all(Assert::NONE)?;
        let (target, layout) = (self.neighbours[0], Element::U64.layout());
        let value = 7_u64;
        for _ in 0..count {
            let source = Source { address: (&raw const value).cast(), count: 1, layout: &layout };
            // SAFETY: the value lives as long as the epoch.
            unsafe { window.raw_put(source, Target { rank: target, place: 64, count: 1, layout: &layout }) }?;
            window.flush(target)?;
        }
        window.unlock_all()
    }

    fn accumulate(&self, window: &mut Window, job: &mut Job, count: u64) -> Result<(), Error> {
        let target = self.neighbours[0];
        let lock = if self.synchronization == "accumulate-locked" { Lock::Exclusive } else { Lock::Shared };
        let layout = Element::F64.layout();
        let elements = self.big.len() as u64;
        if self.rank == Rank(0) {
            for _ in 0..count {
                window.lock(target, lock, Assert::NONE)?;
                let source = Source { address: self.big.as_ptr().cast(), count: elements, layout: &layout };
                let target = Target { rank: target, place: 0, count: elements, layout: &layout };
                // SAFETY: the data lives as long as this, and nobody writes it.
                unsafe { window.raw_accumulate(source, target, Operation::Sum) }?;
                window.unlock(target.rank)?;
            }
        }
        job.barrier()
    }
}
