//! Measures the time of planning: `cargo bench -p unisono-btin --bench plan [NAME] [RUNS] [THREADS]`.
//!
//! Every switch of each network has one member, which is the hardest case: all are candidates and all have to
//! be reached. Networks: random ones (a random tree and random links), and regular ones, in which most or all
//! candidates have the same height. Each line is one plan from a `SwitchNetwork` to its registers, with
//! THREADS threads (default: as many as the host can run at once): the median, minimum and maximum of the
//! runs, which alternate over the networks. `queue` and `level` are the two scans with exact ties, `fast` is
//! the scan by queue with fast ties.
//!
//! A second table shows repairs of the tree by queue: random links fail one after the other, and each time is
//! from the failure to the changed registers. `whole` is the time to build a `StandingTree` from registers,
//! to repair it after one failure that moves a switch, and to read its registers.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

#[path = "../src/plan/tests/shapes.rs"]
mod shapes;

use shapes::{Links, fat_tree, fat_tree_of_pods, torus, torus_of_cubes, with_nodes};
use std::time::{Duration, Instant};
use unisono_btin::repair::{NetworkFailure, StandingTree};
use unisono_btin::{
    BarrierGroup, End, GroupId, NodeId, PlanOptions, Port, Scan, SwitchId, SwitchLink, SwitchNetwork, Ties,
    plan,
};

type Make = fn() -> Links;

const RULES: [(&str, Scan, Ties); 3] = [
    ("queue", Scan::Queue, Ties::Exact),
    ("level", Scan::Level, Ties::Exact),
    ("fast", Scan::Queue, Ties::Fast),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let runs = words.get(1).map_or(3, |word| word.parse().expect("RUNS is a number"));
    let threads = words.get(2).map(|word| word.parse().expect("THREADS is a number above 0"));
    let name = words.first().map_or("", String::as_str);
    let named = |(family, _): &(String, Make)| family.contains(name);
    let cases: Vec<_> =
        families().into_iter().filter(named).map(|(family, make)| (family, with_nodes(&make()))).collect();
    let mut times: Vec<(usize, &str, Vec<Duration>, String)> = Vec::new();
    for run in 0..runs {
        for (case, (_, network)) in cases.iter().enumerate() {
            let everybody = (0..).map(NodeId).take(network.nodes().len()).collect();
            let group = BarrierGroup::new(network, GroupId(0), everybody).expect("all nodes exist");
            for (which, (rule, scan, ties)) in RULES.into_iter().enumerate() {
                let mut options = PlanOptions::default();
                options.scan = scan;
                options.ties = ties;
                options.threads = threads;
                let start = Instant::now();
                let plan = plan(network, &group, &options).expect("the network is connected");
                let time = start.elapsed();
                if run == 0 {
                    let shape =
                        format!("{:>4} {:>6} {:>6}", plan.tree.root_switch.0, plan.height, plan.leaves);
                    times.push((case, rule, Vec::new(), shape));
                }
                times[RULES.len() * case + which].2.push(time);
            }
        }
    }
    println!(
        "network               rule      median        min        max   root height leaves  (ms, {runs} runs)"
    );
    for (case, rule, mut times, shape) in times {
        times.sort();
        let ms = |at: usize| times[at].as_secs_f64() * 1e3;
        let (family, last) = (&cases[case].0, times.len() - 1);
        println!("{family:20}  {rule:5} {:11.3} {:10.3} {:10.3} {shape}", ms(last / 2), ms(0), ms(last));
    }
    println!(
        "\nnetwork               repairs  moved (median, most)  us: median        p99       most   whole (ms)"
    );
    for (family, network) in &cases {
        repairs(family, network);
    }
}

fn repairs(family: &str, network: &SwitchNetwork) {
    let everybody = (0..).map(NodeId).take(network.nodes().len()).collect();
    let group = BarrierGroup::new(network, GroupId(0), everybody).expect("all nodes exist");
    let mut options = PlanOptions::default();
    options.ties = Ties::usual(network);
    let plan = plan(network, &group, &options).expect("the network is connected");
    let mut draw = draws(7);
    let links = u32::try_from(network.links().len()).expect("links are counted in 32 bits");
    let mut standing = StandingTree::new(network, &group, &plan.tree).expect("the tree fits");
    let mut done: Vec<(Duration, usize)> = Vec::new();
    // The number of draws is bounded, because some networks (a ring) have fewer repairs than wanted: two
    // failures cut them apart.
    for link in std::iter::repeat_with(|| draw(links)).take(10 * links as usize) {
        if done.len() == 300 {
            break;
        }
        let start = Instant::now();
        let repair = standing.fail(NetworkFailure::Link(link)).expect("the root lives");
        let time = start.elapsed();
        if !repair.changed.is_empty() {
            done.push((time, repair.moved));
        }
    }
    let failed = (0..links).find(|&link| {
        let mut fresh = StandingTree::new(network, &group, &plan.tree).expect("the tree fits");
        fresh.fail(NetworkFailure::Link(link)).expect("the root lives").moved > 0
    });
    let start = Instant::now();
    let mut fresh = StandingTree::new(network, &group, &plan.tree).expect("the tree fits");
    fresh.fail(NetworkFailure::Link(failed.unwrap_or(0))).expect("the root lives");
    std::hint::black_box(fresh.tree());
    let whole = start.elapsed().as_secs_f64() * 1e3;
    let mut moved: Vec<usize> = done.iter().map(|(_, moved)| *moved).collect();
    moved.sort_unstable();
    done.sort();
    let us = |at: usize| done[at].0.as_secs_f64() * 1e6;
    let last = done.len() - 1;
    println!(
        "{family:20} {:8} {:11} {:9} {:11.1} {:10.1} {:10.1} {whole:12.3}",
        done.len(),
        moved[last / 2],
        moved[last],
        us(last / 2),
        us(last * 99 / 100),
        us(last)
    );
}

fn families() -> Vec<(String, Make)> {
    let all: [(&str, Make); 15] = [
        ("10k irregular, 2.6", || random(10_000, 13_000, 1)),
        ("10k irregular, 4", || random(10_000, 20_000, 1)),
        ("10k regular, 6", || regular(10_000, 6, 1)),
        ("10k torus", || torus(100, 100)),
        ("10k 3-D torus", || torus_of_cubes(22)),
        ("10k fat tree", || fat_tree(6, 5)),
        ("10k fat tree of pods", || fat_tree_of_pods(88)),
        ("10k ring", || torus(1, 10_000)),
        ("100k irregular, 2.6", || random(100_000, 130_000, 1)),
        ("100k irregular, 4", || random(100_000, 200_000, 1)),
        ("100k irregular, 6", || random(100_000, 300_000, 1)),
        ("100k mesh", || mesh(316, 317)),
        ("huge torus", || torus(316, 316)),
        ("huge 3-D torus", || torus_of_cubes(46)),
        ("huge fat tree", || fat_tree(4, 8)),
    ];
    all.into_iter().map(|(family, make)| (family.to_owned(), make)).collect()
}

/// Returns a generator of random numbers below a bound; its numbers are the same on every host.
fn draws(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from((state >> 11) % u64::from(bound)).expect("it is below a u32")
    }
}

/// Makes a random network: links each switch to an earlier one, and then links random pairs of switches.
fn random(switches: u32, links: usize, seed: u64) -> Links {
    let mut draw = draws(seed);
    let mut made: Vec<_> = (1..switches).map(|switch| (draw(switch), switch)).collect();
    made.resize_with(links, || (draw(switches), draw(switches)));
    (switches, made)
}

/// Makes a random network with the same number of ports at each switch.
fn regular(switches: u32, ports: u32, seed: u64) -> Links {
    let mut draw = draws(seed);
    let mut ends: Vec<u32> = (0..switches * ports).map(|end| end / ports).collect();
    for at in (1..switches * ports).rev() {
        ends.swap(at as usize, draw(at + 1) as usize);
    }
    (switches, ends.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

fn mesh(rows: u32, columns: u32) -> Links {
    let (switches, links) = torus(rows, columns);
    (switches, links.into_iter().filter(|(a, b)| a < b).collect())
}
