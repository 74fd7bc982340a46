//! A file server's disk under one queue and under Cello, on a real file past the page cache.
//!
//! ```text
//! cargo bench -p unisono-enforce --bench disk -- [repeats=5] [seconds=2] [directory=DIR]
//! ```
//! Three classes share a file of 256 MiB: two downloads that always have four reads of 256 KiB waiting (*throughput*),
//! a user who reads 8 KiB at a random place and thinks 2 ms (*interactive*), and a player that reads 64 KiB every 10 ms
//! and needs them within 10 ms (*real-time*). The order of the two variants alternates; printed: medians over the
//! repeats, with the least and the most. The file is removed.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use unisono_enforce::disk::{Operation, Rule, Service};
use unisono_fairqueue::{ClassSpec, Disk, Hierarchy, Purpose};
use unisono_linux::direct::{Access, open};

const FILE: u64 = 256 << 20;
const NAMES: [&str; 3] = ["throughput", "interactive", "real-time"];

/// What a class got: MB/s, milliseconds half and 99 of 100 took at most, and the part that was late.
type Got = [f64; 4];

fn hierarchy() -> Hierarchy {
    let leaf = |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
    let leaves = NAMES.into_iter().zip(["5", "2", "3"]).map(|(name, weight)| leaf(name, weight));
    Hierarchy::new(ClassSpec::new("disk").with(leaves)).expect("names are unique")
}

fn run(rule: Rule, file: &Arc<std::fs::File>, length: Duration) -> [Got; 3] {
    let tree = hierarchy();
    let [throughput, interactive, real_time] = NAMES.map(|name| tree.find(name).expect("it is there"));
    let service = Service::start(rule, 2).expect("threads");
    let began = Instant::now();
    let took: [Vec<(Duration, bool)>; 3] = std::thread::scope(|scope| {
        let download = |stream: u64| {
            let service = &service;
            move || {
                let (reply, replies) = channel();
                let (mut at, mut took) = (stream * FILE / 2, vec![]);
                let mut ask = || {
                    service
                        .submit(throughput, file, at, Operation::Read(256 << 10), None, &reply)
                        .expect("a leaf");
                    at = (at + (256 << 10)) % FILE;
                };
                (0..4).for_each(|_| ask());
                while began.elapsed() < length {
                    let served = replies.recv().expect("it is served");
                    served.data.expect("the file can be read");
                    took.push((served.took, false));
                    ask();
                }
                took
            }
        };
        let downloads = [0, 1].map(|stream| scope.spawn(download(stream)));
        let user = scope.spawn(|| {
            let (reply, replies) = channel();
            let (mut random, mut took) = (1_u64, vec![]);
            while began.elapsed() < length {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let position = (random >> 33) % (FILE / 8192) * 8192;
                service
                    .submit(interactive, file, position, Operation::Read(8192), None, &reply)
                    .expect("a leaf");
                took.push((replies.recv().expect("it is served").took, false));
                std::thread::sleep(Duration::from_millis(2));
            }
            took
        });
        let player = scope.spawn(|| {
            let (reply, replies) = channel();
            let (mut next, mut sent) = (Duration::ZERO, 0_u64);
            while began.elapsed() < length {
                let at = sent * (64 << 10) % FILE;
                let due = Some(Duration::from_millis(10));
                service.submit(real_time, file, at, Operation::Read(64 << 10), due, &reply).expect("a leaf");
                sent += 1;
                next += Duration::from_millis(10);
                std::thread::sleep(next.saturating_sub(began.elapsed()));
            }
            (0..sent)
                .map(|_| replies.recv().expect("it is served"))
                .map(|served| (served.took, served.late))
                .collect()
        });
        let downloads = downloads.map(|thread| thread.join().expect("no panic")).concat();
        [downloads, user.join().expect("no panic"), player.join().expect("no panic")]
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut classes = [throughput, interactive, real_time].into_iter();
    took.map(|mut took| {
        let bytes = service.figures(classes.next().expect("three")).bytes;
        took.sort();
        let at = |part: usize| {
            took.get(took.len().saturating_sub(1) * part / 100).map_or(0.0, |at| at.0.as_secs_f64() * 1e3)
        };
        let late = took.iter().filter(|served| served.1).count() as f64 / took.len().max(1) as f64;
        [bytes as f64 / seconds / 1e6, at(50), at(99), late]
    })
}

fn option(name: &str, default: usize) -> usize {
    std::env::args().find_map(|argument| argument.strip_prefix(name)?.parse().ok()).unwrap_or(default)
}

fn main() {
    let (repeats, seconds) = (option("repeats=", 5), option("seconds=", 2));
    let place =
        std::env::args().find_map(|argument| Some(PathBuf::from(argument.strip_prefix("directory=")?)));
    let place = place.unwrap_or_else(|| PathBuf::from("."));
    let mut data = tempfile::NamedTempFile::new_in(&place).expect("the directory can be written");
    for _ in 0..FILE >> 20 {
        data.write_all(&[7; 1 << 20]).expect("there is room for 256 MiB");
    }
    data.as_file().sync_all().expect("it can be written");
    let file = match open(data.path(), Access::Read) {
        Ok(file) => Arc::new(file),
        Err(error) => {
            return println!("skipped: {} cannot be read past the page cache: {error}", place.display());
        }
    };
    let tree = hierarchy();
    let purposes = [("interactive", Purpose::Interactive), ("real-time", Purpose::RealTime)];
    let purposes = purposes.map(|(name, purpose)| (tree.find(name).expect("it is there"), purpose)).to_vec();
    // a guess from below: what is promised has to hold
    let disk = Disk { request: 300_000, rate: 200_000_000, ahead: 256 << 10 };
    let rules = [
        ("one queue", Rule::Fifo { hierarchy: tree.clone() }),
        ("Cello", Rule::Cello { hierarchy: tree, purposes, disk }),
    ];
    let mut all: [Vec<[Got; 3]>; 2] = [vec![], vec![]];
    for repeat in 0..repeats {
        for turn in 0..2 {
            let which = (repeat + turn) % 2;
            all[which].push(run(rules[which].1.clone(), &file, Duration::from_secs(seconds as u64)));
        }
    }
    println!("n = {repeats}, {seconds} s each; median (least to most)");
    for ((name, _), runs) in rules.iter().zip(all) {
        for (class, label) in NAMES.iter().enumerate() {
            let figure = |which: usize| {
                let mut of: Vec<f64> = runs.iter().map(|run| run[class][which]).collect();
                of.sort_by(f64::total_cmp);
                format!("{:.2} ({:.2} to {:.2})", of[of.len() / 2], of[0], of[of.len() - 1])
            };
            println!(
                "{name:<10} {label:<12} {:>26} MB/s  half {} ms  99 % {} ms  late {}",
                figure(0),
                figure(1),
                figure(2),
                figure(3)
            );
        }
    }
}
