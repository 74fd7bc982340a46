//! Compares `fairqueue.h`, which the kernel runs, with `unisono-fairqueue`: for the same steps both must
//! choose the same order and the same drops.
//!
//! The C compiler that links Rust compiles the header for user space, with sanitizers if it has them. The
//! test sends steps to it over pipes: thousands of traces in some seconds, on any kernel.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use unisono_enforce::kernel::discipline::layout::{self, Counted, NONE};
use unisono_fairqueue::{
    ClassId, ClassSpec, Discipline, Hierarchy, Limit, Overflow, Packet, Scheduler, Weight,
};
use unisono_linux::clock::Instant;

const START: u32 = 0;
const ARRIVE: u32 = 1;
const FINISH: u32 = 2;
const CHOOSE: u32 = 3;
const CHANGE: u32 = 4;
const END: u32 = 5;

/// The process that runs the header in user space.
struct Native {
    child: Child,
    _place: tempfile::TempDir,
}

impl Native {
    fn new() -> Result<Self, String> {
        let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let place = tempfile::tempdir().map_err(|error| error.to_string())?;
        let program = place.path().join("fairqueue");
        let compile = |sanitizers: &[&str]| {
            Command::new("cc")
                .args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"])
                .arg(crate_root.join("src/kernel/discipline"))
                .args(sanitizers)
                .arg(crate_root.join("tests/fairqueue.c"))
                .arg("-o")
                .arg(&program)
                .output()
                .map_err(|error| format!("no C compiler: {error}"))
        };
        let sanitized = compile(&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])?;
        if !sanitized.status.success() {
            let plain = compile(&[])?;
            assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
            eprintln!("without sanitizers, which this compiler lacks");
        }
        let child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Ok(Self { child: child.map_err(|error| error.to_string())?, _place: place })
    }

    /// Sends steps to the program, and returns all its answers. No trace here is so long that the answers
    /// would fill the pipe before all steps have been written.
    fn run(&mut self, start: &[u8], steps: &[u32], end: usize) -> (Vec<u32>, Vec<u8>) {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let input = self.child.stdin.as_mut().expect("piped");
        let bytes =
            [&words(&[START, start.len() as u32]), start, &words(steps), &words(&[END, end as u32])].concat();
        input.write_all(&bytes).expect("it listens");
        let output = self.child.stdout.as_mut().expect("piped");
        let mut word = || {
            let mut word = [0; 4];
            output.read_exact(&mut word).expect("it answers");
            u32::from_ne_bytes(word)
        };
        let (mut said, mut at) = (Vec::new(), 0);
        while at < steps.len() {
            match steps[at] {
                ARRIVE => {
                    said.push(word());
                    while said.last() != Some(&NONE) {
                        said.push(word());
                    }
                    at += 3;
                }
                CHOOSE => {
                    said.extend([word(), word()]);
                    at += 1;
                }
                CHANGE => at += 2 + steps[at + 1] as usize / 4,
                _ => at += 1,
            }
        }
        let mut end = vec![0; end];
        output.read_exact(&mut end).expect("it ends as it began");
        (said, end)
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait();
        if !std::thread::panicking() {
            assert!(status.is_ok_and(|status| status.success()), "a sanitizer found something");
        }
    }
}

fn weight() -> impl Strategy<Value = Weight> {
    let text = prop_oneof![
        4 => (1..10_u32).prop_map(|whole| whole.to_string()),
        2 => (1..100_u32).prop_map(|tenths| format!("{}.{}", tenths / 10, tenths % 10 + 1)),
        // so different from the others that costs are rounded and tags have to be reduced
        1 => (999_999_000..999_999_999_u32).prop_map(|whole| whole.to_string()),
    ];
    text.prop_filter_map("a weight", |text| text.parse().ok())
}

fn limit() -> impl Strategy<Value = Option<Limit>> {
    let limit = (1..12_u64, 1..9000_u64, any::<bool>()).prop_map(|(packets, bytes, longest)| {
        let overflow = if longest { Overflow::DropLongest } else { Overflow::DropTail };
        Some(Limit { packets, bytes, overflow })
    });
    prop_oneof![3 => Just(None), 1 => limit]
}

/// Generates trees of every shape that is not too deep: the parent of each class is a class before it.
fn hierarchy(most: usize) -> impl Strategy<Value = Hierarchy> {
    let class = (any::<prop::sample::Index>(), weight(), limit());
    (prop::collection::vec(class, 0..most), 0..4_usize).prop_map(|(classes, skew)| {
        let (mut parents, mut depths) = (vec![0], vec![0]);
        let mut specs = vec![ClassSpec::new("link")];
        for (at, (parent, weight, limit)) in classes.iter().enumerate() {
            let deep = if at % 4 < skew { at } else { parent.index(at + 1) };
            let parent = if depths[deep] < layout::MAX_DEPTH { deep } else { 0 };
            parents.push(parent);
            depths.push(depths[parent] + 1);
            let mut spec = ClassSpec::new(format!("c{at}")).weighing(*weight);
            spec.limit = *limit;
            specs.push(spec);
        }
        while specs.len() > 1 {
            let at = specs.len() - 1;
            let spec = specs.pop().expect("there is more than one");
            specs[parents[at]].children.insert(0, spec);
        }
        Hierarchy::new(specs.pop().expect("the root is left")).expect("names are unique")
    })
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { leaf: prop::sample::Index, length: u32 },
    Finish,
    Choose,
    Change { to: prop::sample::Index },
}

fn steps(most: usize, changes: u32) -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![
        6 => 1..1500_u32,
        2 => Just(1500_u32),
        2 => 0..4_u32,
        1 => Just(Packet::<u32>::MAX_LENGTH),
    ];
    let arrive =
        (any::<prop::sample::Index>(), length).prop_map(|(leaf, length)| Step::Arrive { leaf, length });
    let change = any::<prop::sample::Index>().prop_map(|to| Step::Change { to });
    let step =
        prop_oneof![60 => arrive, 10 => Just(Step::Finish), 40 => Just(Step::Choose), changes => change];
    prop::collection::vec(step, 1..most)
}

fn leaves(hierarchy: &Hierarchy) -> Vec<ClassId> {
    hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id)).collect()
}

/// Returns the program's input: the steps, and with each change the plan for the classes at that time.
fn words(trees: &[Hierarchy], steps: &[Step]) -> Vec<u32> {
    let mut tree = &trees[0];
    let mut histograms: Vec<u32> = (0..tree.classes().count() as u32).collect();
    let mut words = Vec::new();
    for step in steps {
        match step {
            Step::Arrive { leaf, length } => {
                words.extend([ARRIVE, leaf.get(&leaves(tree)).index() as u32, *length]);
            }
            Step::Finish => words.push(FINISH),
            Step::Choose => words.push(CHOOSE),
            Step::Change { to } => {
                let new = to.get(trees);
                let others = new.default_class().expect("every tree has one");
                let plan = layout::plan(tree, new, others, None, &histograms).expect("small enough");
                assert_eq!(plan.len(), layout::PLAN_SIZE);
                words.extend([CHANGE, plan.len() as u32]);
                let (plan, _) = plan.as_chunks::<4>();
                words.extend(plan.iter().map(|word| u32::from_ne_bytes(*word)));
                // after the change the test numbers the classes' histograms anew
                histograms = (0..new.classes().count() as u32).collect();
                tree = new;
            }
        }
    }
    words
}

/// Compares the program with a scheduler that executes the same steps. Both begin with the first tree.
fn compare(native: &mut Native, trees: &[Hierarchy], steps: &[Step]) -> Result<(), TestCaseError> {
    let rest = std::iter::repeat_n(Step::Choose, steps.len() + 1);
    let steps: Vec<Step> = steps.iter().cloned().chain(rest).collect();
    let most = trees.iter().map(|tree| layout::encode(tree).expect("small enough").len()).max();
    let start = layout::encode(&trees[0]).expect("small enough");
    let (said, end) = native.run(&start, &words(trees, &steps), most.expect("there are some"));
    let mut said = said.into_iter();
    let mut word = || said.next().expect("as many answers as questions");

    let mut scheduler: Scheduler<usize> = Scheduler::new(trees[0].clone());
    // the packet that has each of the program's numbers at present
    let mut packets = vec![usize::MAX; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Arrive { leaf, length } => {
                let leaf = *leaf.get(&leaves(scheduler.hierarchy()));
                scheduler.enqueue(Instant::ZERO, leaf, Packet::new(*length, at)).expect("a leaf");
                let number = word();
                if number == NONE {
                    prop_assert_eq!(scheduler.dropped().map(|(_, packet)| packet.item), Some(at), "refused");
                } else {
                    packets[number as usize] = at;
                    loop {
                        let victim = packets.get(word() as usize).copied();
                        prop_assert_eq!(scheduler.dropped().map(|(_, packet)| packet.item), victim);
                        if victim.is_none() {
                            break;
                        }
                    }
                }
            }
            Step::Finish => scheduler.finish(Instant::ZERO),
            Step::Choose => {
                let (number, leaf) = (word(), word());
                let chosen = packets.get(number as usize).map(|packet| (leaf as usize, *packet));
                let expected =
                    scheduler.dequeue(Instant::ZERO).map(|(leaf, packet)| (leaf.index(), packet.item));
                prop_assert_eq!(chosen, expected, "step {}", at);
            }
            Step::Change { to } => {
                scheduler.apply(to.get(trees).clone()).expect("there is a default");
            }
        }
    }
    for leaf in leaves(scheduler.hierarchy()) {
        let served = scheduler.served(leaf);
        let counted = layout::counted(&end, leaf).expect("it is there");
        let expected = Counted {
            served_packets: served.packets,
            served_bytes: served.bytes,
            dropped: served.dropped,
            histogram: counted.histogram,
            ..Counted::default()
        };
        prop_assert_eq!(counted, expected, "{:?}", leaf);
    }
    Ok(())
}

/// Runs a test with `cases` cases, scaled as the configured number of cases is to 64.
fn with_native(cases: u32, test: impl Fn(&RefCell<Native>, &mut TestRunner)) {
    match Native::new() {
        Ok(native) => {
            let cases = (cases * Config::default().cases).div_ceil(64);
            test(&RefCell::new(native), &mut TestRunner::new(Config::with_cases(cases)));
        }
        Err(why) => eprintln!("skipped: {why}"),
    }
}

#[test]
fn the_kernel_s_copy_of_the_scheduler_decides_as_the_scheduler_does() {
    with_native(750, |native, runner| {
        let traces = (hierarchy(16), steps(200, 0));
        let result = runner.run(&traces, |(tree, steps)| compare(&mut native.borrow_mut(), &[tree], &steps));
        result.expect("the same order");
    });
}

#[test]
fn so_it_does_with_hundreds_of_classes() {
    with_native(25, |native, runner| {
        let traces = (hierarchy(400), steps(1500, 0));
        let result = runner.run(&traces, |(tree, steps)| compare(&mut native.borrow_mut(), &[tree], &steps));
        result.expect("the same order");
    });
}

/// Generates trees of many siblings under a limit that drops from the longest queue.
fn flat() -> impl Strategy<Value = Hierarchy> {
    (prop::collection::vec(weight(), 30..80), 5..30_u64).prop_map(|(weights, packets)| {
        let leaf = |(at, weight): (usize, &Weight)| ClassSpec::new(at.to_string()).weighing(*weight);
        let mut link = ClassSpec::new("link").with(weights.iter().enumerate().map(leaf));
        link.limit = Some(Limit { packets, bytes: u64::MAX, overflow: Overflow::DropLongest });
        Hierarchy::new(link).expect("names are unique")
    })
}

#[test]
fn so_it_does_when_waiting_classes_lose_their_last_packet() {
    with_native(75, |native, runner| {
        let traces = (flat(), steps(400, 0));
        let result = runner.run(&traces, |(tree, steps)| compare(&mut native.borrow_mut(), &[tree], &steps));
        result.expect("the same order");
    });
}

/// Generates lists of trees that share names of classes, but not their structure.
fn trees(most: usize) -> impl Strategy<Value = Vec<Hierarchy>> {
    let tree = hierarchy(most).prop_map(|tree| tree.with_default("rest").expect("a new name"));
    prop::collection::vec(tree, 3)
}

#[test]
fn other_classes_are_put_in_the_place_of_those_that_are_there_as_the_scheduler_does_it() {
    with_native(100, |native, runner| {
        let traces = (trees(14), steps(200, 6));
        let result = runner.run(&traces, |(trees, steps)| compare(&mut native.borrow_mut(), &trees, &steps));
        result.expect("the same order");
    });
}

#[test]
fn so_they_are_with_hundreds_of_classes() {
    with_native(10, |native, runner| {
        let traces = (trees(300), steps(1200, 2));
        let result = runner.run(&traces, |(trees, steps)| compare(&mut native.borrow_mut(), &trees, &steps));
        result.expect("the same order");
    });
}
