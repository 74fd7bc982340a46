//! How long planning takes: `cargo bench -p unisono-btin --bench plan [NAME] [RUNS] [THREADS]`.
//!
//! Every switch of each network has one member, which is the hardest case: all are candidates and all have to
//! be reached. Networks: random ones (a random tree and random links), and regular ones, in which most or all
//! candidates have the same height. Each line is one plan from a `Network` to its registers, on as many
//! threads as the host runs at once if not on THREADS: the median, least and most of the runs, which take
//! turns over the networks. `queue` and `level` are the two scans with exact ties, `fast` is the scan by
//! queue with fast ties.
//!
//! Below, repairs of the tree by queue: links of the tree fail one after the other, and each time is from the
//! failure to the registers that change; `whole` is a repair from registers to registers, with the first.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::time::{Duration, Instant};
use unisono_btin::repair::{NetworkFailure, StandingTree};
use unisono_btin::{
    BarrierGroup, End, GroupId, Link, Network, NodeId, PlanOptions, Port, Scan, SwitchId, Ties, plan,
};

type Links = (u32, Vec<(u32, u32)>);
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
        families().into_iter().filter(named).map(|(family, make)| (family, network(make()))).collect();
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

fn repairs(family: &str, network: &Network) {
    let everybody = (0..).map(NodeId).take(network.nodes().len()).collect();
    let group = BarrierGroup::new(network, GroupId(0), everybody).expect("all nodes exist");
    let mut options = PlanOptions::default();
    options.ties = Ties::usual(network);
    let plan = plan(network, &group, &options).expect("the network is connected");
    let mut draw = draws(7);
    let links = u32::try_from(network.links().len()).expect("links are counted in 32 bits");
    let mut standing = StandingTree::new(network, &group, &plan.tree).expect("the tree fits");
    let mut done: Vec<(Duration, usize)> = Vec::new();
    // Not for ever: where two cuts leave nothing (a ring), there are not so many repairs.
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

/// A node at each switch, at the port after its links.
fn network((switches, links): Links) -> Network {
    let mut used = vec![0; switches as usize];
    let mut next = |switch: u32| {
        used[switch as usize] += 1;
        End { switch: SwitchId(switch), port: Port(used[switch as usize] - 1) }
    };
    let links = links.iter().map(|&(a, b)| Link { a: next(a), b: next(b) }).collect();
    let nodes = (0..switches).map(&mut next).collect();
    Network::new(used, links, nodes).expect("ports are given out once")
}

/// Draws below a bound, the same on every host.
fn draws(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from((state >> 11) % u64::from(bound)).expect("it is below a u32")
    }
}

/// Each switch linked to an earlier one, then links drawn among all.
fn random(switches: u32, links: usize, seed: u64) -> Links {
    let mut draw = draws(seed);
    let mut made: Vec<_> = (1..switches).map(|switch| (draw(switch), switch)).collect();
    made.resize_with(links, || (draw(switches), draw(switches)));
    (switches, made)
}

/// As many ports at each switch, joined at random.
fn regular(switches: u32, ports: u32, seed: u64) -> Links {
    let mut draw = draws(seed);
    let mut ends: Vec<u32> = (0..switches * ports).map(|end| end / ports).collect();
    for at in (1..switches * ports).rev() {
        ends.swap(at as usize, draw(at + 1) as usize);
    }
    (switches, ends.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

fn torus(rows: u32, columns: u32) -> Links {
    let at = |row: u32, column: u32| row % rows * columns + column % columns;
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    (
        rows * columns,
        all.flat_map(|(r, c)| [(at(r, c), at(r, c + 1)), (at(r, c), at(r + 1, c))]).collect(),
    )
}

fn mesh(rows: u32, columns: u32) -> Links {
    let (switches, links) = torus(rows, columns);
    (switches, links.into_iter().filter(|(a, b)| a < b).collect())
}

fn fat_tree(k: u32, levels: u32) -> Links {
    let width = k.pow(levels - 1);
    let mut links = Vec::new();
    for level in 0..levels - 1 {
        let unit = k.pow(level);
        for switch in 0..width {
            let rest = switch - switch / unit % k * unit;
            links.extend(
                (0..k).map(|digit| (level * width + switch, (level + 1) * width + rest + digit * unit)),
            );
        }
    }
    (levels * width, links)
}

fn torus_of_cubes(side: u32) -> Links {
    let at = |x: u32, y: u32, z: u32| (x % side * side + y % side) * side + z % side;
    let all = (0..side.pow(3)).map(|at| (at / side / side, at / side % side, at % side));
    let links =
        |(x, y, z)| [(x + 1, y, z), (x, y + 1, z), (x, y, z + 1)].map(|(a, b, c)| (at(x, y, z), at(a, b, c)));
    (side.pow(3), all.flat_map(links).collect())
}

/// Edge, aggregation and core switches, of this many ports each.
fn fat_tree_of_pods(ports: u32) -> Links {
    let half = ports / 2;
    let (edges, above) = (ports * half, 2 * ports * half);
    let mut links = Vec::new();
    for (pod, one) in (0..ports).flat_map(|pod| (0..half).map(move |one| (pod * half, one))) {
        links.extend((0..half).map(|other| (pod + one, edges + pod + other)));
        links.extend((0..half).map(|core| (edges + pod + one, above + one * half + core)));
    }
    (above + half * half, links)
}
