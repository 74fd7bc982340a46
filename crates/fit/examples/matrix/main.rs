//! Measures which static settings make a program fastest, alone and beside other programs, and compares them
//! with the settings that `unisono fit` chooses:
//!
//! ```sh
//! cargo build --release -p unisono
//! cargo run --release -p unisono-fit --example matrix -- --minutes 45 > matrix.jsonl
//! ```
//! Ten programs (`programs.rs`) in eight situations: alone; beside a loop; beside as many loops as
//! processors; beside a second copy of the program without settings; on one processor; in a quota of 1 and
//! of 1.5 processors; in a quota of 1 beside as many loops. Variants are interleaved within each repetition,
//! forwards and backwards in turn. Standard output gets one JSON object per run. Standard error gets the
//! tables of decision 18 in Markdown: median seconds, in parentheses how many times as long as with the best
//! variant, then the greatest regret of each variant, and the ratio of `fit` to plain in pairs.
//!
//! No repetition begins that would not end in time, judged by the longest one so far; the first is always
//! completed. A run that takes longer than [`LIMIT`] counts as [`LIMIT`]. Run it on a quiet machine, and as
//! root for the quotas. Programs and situations that this host cannot produce are skipped with a message.
#![allow(clippy::print_stdout, reason = "what it measured is its answer")]

mod programs;

use programs::{Program, Timing, prepare};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies, unguessable};
use unisono_linux::process::{Family, Signal, start};
use unisono_linux::process_group::ProcessGroup;

const LIMIT: Duration = Duration::from_secs(3);
type Environment = &'static [(&'static str, &'static str)];
const VARIANTS: [(&str, Environment); 6] = [
    ("plain", &[]),
    ("fit", &[]),
    ("passive", &[("OMP_WAIT_POLICY", "passive")]),
    ("short", &[("GOMP_SPINCOUNT", "10000")]),
    ("bound", &[("OMP_PROC_BIND", "spread"), ("OMP_PLACES", "threads")]),
    ("one", &[("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")]),
];
/// The numbers of `plain` and `fit` among the variants.
const PLAIN: usize = 0;
const FIT: usize = 1;
/// With fewer repetitions than this, a factor below 2 is not significant.
const MIN_REPETITIONS: usize = 7;

/// The surroundings of a run: foreign load, quota and processors.
struct Situation {
    name: &'static str,
    loops: usize,
    /// Whether a second copy of the program, restarted whenever it ends, runs beside the measured one.
    twin: bool,
    group: Option<ControlGroup>,
    cpus: CpuSet,
}

struct Options {
    unisono: PathBuf,
    python: PathBuf,
    minutes: f64,
    /// The number of programs and of situations, from the first on, for a short trial.
    programs: usize,
    situations: usize,
}

fn options() -> Options {
    let mut options = Options {
        unisono: "target/release/unisono".into(),
        python: "/usr/bin/python3".into(),
        minutes: 45.0,
        programs: usize::MAX,
        situations: usize::MAX,
    };
    let mut words = std::env::args().skip(1);
    while let (Some(name), value) = (words.next(), words.next()) {
        match (name.as_str(), value) {
            ("--unisono", Some(path)) => options.unisono = path.into(),
            ("--python", Some(path)) => options.python = path.into(),
            ("--minutes", Some(text)) => options.minutes = text.parse().unwrap_or(options.minutes),
            ("--programs", Some(text)) => options.programs = text.parse().unwrap_or(options.programs),
            ("--situations", Some(text)) => options.situations = text.parse().unwrap_or(options.situations),
            _ => {
                eprintln!(
                    "matrix [--unisono PATH] [--python PATH] [--minutes M] [--programs N] [--situations N]"
                );
                std::process::exit(2);
            }
        }
    }
    options
}

/// A control group with this quota in hundredths of a processor; removed when dropped.
struct Quota(ControlGroup);

impl Quota {
    fn new(hundredths: u64) -> Result<Self, String> {
        let trees = hierarchies().map_err(|error| error.to_string())?;
        let tree = CgroupHierarchy::with(&trees, "cpu").ok_or("no tree has the cpu controller")?;
        let name = unguessable(&format!("unisono-fit-{hundredths}-{}", std::process::id()));
        let name = name.map_err(|error| error.to_string())?;
        let group = tree.top().create(&name).map_err(|error| error.to_string())?;
        let quota = Self(group);
        let (file, value) = match tree.version {
            CgroupVersion::V1 => ("cpu.cfs_quota_us", format!("{}", hundredths * 1000)),
            CgroupVersion::V2 => ("cpu.max", format!("{} 100000", hundredths * 1000)),
        };
        quota.0.write(file, &value).map_err(|error| error.to_string())?;
        Ok(quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for _ in 0..100 {
            if self.0.remove().is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Programs that keep processors busy; killed when dropped.
struct Loops(Vec<Child>);

impl Loops {
    fn new(at: &Situation, program: &Program) -> Self {
        let start = |script: &str, words: &[String]| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]).args(words).stdout(Stdio::null());
            start(&mut shell, Vec::new(), Family::OwnGroup).ok()
        };
        let mut all: Vec<Child> = (0..at.loops).filter_map(|_| start("while :; do :; done", &[])).collect();
        if at.twin {
            all.extend(start("while :; do \"$@\"; done", &program.command));
        }
        // the loops have to run already when `fit` looks at the load
        std::thread::sleep(Duration::from_millis(if all.is_empty() { 0 } else { 30 }));
        Self(all)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let group = ProcessGroup::of_child(child);
            let _ = group.map(|group| group.send_signal(Signal::Kill));
            let _ = child.wait();
        }
    }
}

/// Runs a program and returns the seconds that it took; `None` if the run failed.
fn measure(
    program: &Program,
    variant: (&str, Environment),
    at: &Situation,
    options: &Options,
) -> Option<f64> {
    let words = &program.command;
    let mut command = match variant.0 {
        "fit" => {
            let mut fit = Command::new(&options.unisono);
            fit.args(["fit", "--quiet", "--"]).arg(&words[0]);
            fit
        }
        _ => Command::new(&words[0]),
    };
    command.args(&words[1..]).envs(variant.1.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let _loops = Loops::new(at, program);
    let procs_files = at.group.iter().map(ControlGroup::open_procs).collect::<Result<Vec<_>, _>>().ok()?;
    let all = affinity::allowed(Tid::SELF).ok()?;
    affinity::restrict_own(&at.cpus).ok()?;
    let begin = Instant::now();
    let child = start(&mut command, procs_files, Family::OwnGroup);
    affinity::restrict_own(&all).ok()?;
    let mut child = child.ok()?;
    while child.try_wait().ok()?.is_none() {
        if begin.elapsed() > LIMIT {
            // make and the pool of processes start children, so the whole process group is killed
            ProcessGroup::of_child(&child).and_then(|group| group.send_signal(Signal::Kill)).ok()?;
            let _ = child.wait();
            return Some(LIMIT.as_secs_f64());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = begin.elapsed().as_secs_f64();
    let output = child.wait_with_output().ok().filter(|output| output.status.success())?;
    match program.timing {
        Timing::ByTheClock => Some(took),
        Timing::Printed => String::from_utf8_lossy(&output.stdout).trim().parse().ok(),
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let options = options();
    let begin = Instant::now();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let mut programs = prepare(directory.path(), &options.python);
    programs.truncate(options.programs);
    let all = affinity::allowed(Tid::SELF).expect("own affinity");
    let first = CpuSet::single(all.iter().next().expect("some processor"));
    let plain = |name, loops| Situation { name, loops, twin: false, group: None, cpus: all.clone() };
    let mut situations =
        vec![plain("alone", 0), plain("beside 1 loop", 1), plain("beside as many loops", all.len())];
    situations.push(Situation { twin: true, ..plain("beside itself", 0) });
    situations.push(Situation { cpus: first, ..plain("one processor", 0) });
    let mut quotas = Vec::new();
    for (name, hundredths, loops) in
        [("quota 1", 100, 0), ("quota 1.5", 150, 0), ("quota 1 beside as many loops", 100, all.len())]
    {
        match Quota::new(hundredths) {
            Ok(quota) => {
                situations.push(Situation { group: Some(quota.0.clone()), ..plain(name, loops) });
                quotas.push(quota);
            }
            Err(why) => eprintln!("skipped: {name}, because {why}"),
        }
    }
    situations.truncate(options.situations);
    let mut found = Found::new();
    let (mut repetition, mut longest) = (0, 0.0_f64);
    while repetition == 0 || begin.elapsed().as_secs_f64() + longest < options.minutes * 60.0 {
        let began = Instant::now();
        for (p, program) in programs.iter().enumerate() {
            for (s, situation) in situations.iter().enumerate() {
                for at in 0..VARIANTS.len() {
                    let v = if repetition % 2 == 0 { at } else { VARIANTS.len() - 1 - at };
                    let Some(seconds) = measure(program, VARIANTS[v], situation, &options) else {
                        eprintln!("{} failed: {}, {}", program.name, situation.name, VARIANTS[v].0);
                        continue;
                    };
                    found.entry((p, s, v)).or_default().push((repetition, seconds));
                    println!(
                        "{}",
                        serde_json::json!({ "program": program.name, "situation": situation.name,
                            "variant": VARIANTS[v].0, "repetition": repetition, "seconds": seconds })
                    );
                }
            }
        }
        repetition += 1;
        longest = longest.max(began.elapsed().as_secs_f64());
        eprintln!("repetition {repetition} took {:.0} s", began.elapsed().as_secs_f64());
    }
    tables(&programs, &situations, &found, repetition);
}

/// The repetitions and seconds of each program, situation and variant.
type Found = BTreeMap<(usize, usize, usize), Vec<(usize, f64)>>;

fn tables(programs: &[Program], situations: &[Situation], found: &Found, repetitions: usize) {
    let runs = |p, s, v| found.get(&(p, s, v)).map_or(&[][..], Vec::as_slice);
    let middle = |p, s, v| median(runs(p, s, v).iter().map(|(_, seconds)| *seconds).collect());
    let heads: Vec<&str> = VARIANTS.iter().map(|(name, _)| *name).collect();
    let mut greatest = vec![[1.0_f64; VARIANTS.len()]; programs.len()];
    for (p, program) in programs.iter().enumerate() {
        eprintln!("\n| {} | {} |", program.name, heads.join(" | "));
        eprintln!("|---|{}", "---|".repeat(heads.len()));
        for (s, situation) in situations.iter().enumerate() {
            let least = (0..heads.len()).map(|v| middle(p, s, v)).fold(f64::INFINITY, f64::min);
            let cell = |v: usize| format!("{:.3} ({:.2})", middle(p, s, v), middle(p, s, v) / least);
            eprintln!(
                "| {} | {} |",
                situation.name,
                (0..heads.len()).map(cell).collect::<Vec<_>>().join(" | ")
            );
            for (v, most) in greatest[p].iter_mut().enumerate() {
                *most = most.max(middle(p, s, v) / least);
            }
        }
    }
    eprintln!("\n| greatest regret | {} |\n|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for (program, greatest) in programs.iter().zip(&greatest) {
        let cells: Vec<String> = greatest.iter().map(|regret| format!("{regret:.2}")).collect();
        eprintln!("| {} | {} |", program.name, cells.join(" | "));
    }
    eprintln!(
        "\nfit / plain in the same repetition: median (least to greatest); n = {repetitions}, limit {} s",
        LIMIT.as_secs()
    );
    for (p, program) in programs.iter().enumerate() {
        for (s, situation) in situations.iter().enumerate() {
            let plain: BTreeMap<usize, f64> = runs(p, s, PLAIN).iter().copied().collect();
            let ratios: Vec<f64> =
                runs(p, s, FIT).iter().filter_map(|(at, fit)| Some(fit / plain.get(at)?)).collect();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            eprintln!(
                "  {}, {}: {:.2} ({least:.2} to {most:.2})",
                program.name,
                situation.name,
                median(ratios)
            );
        }
    }
    if repetitions < MIN_REPETITIONS {
        eprintln!("only {repetitions} repetitions: give more --minutes, {MIN_REPETITIONS} are needed");
    }
}
