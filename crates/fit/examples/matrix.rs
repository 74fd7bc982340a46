//! Measures which static settings make a program fastest, alone and beside other programs, and compares them
//! with the settings that `unisono fit` chooses:
//!
//! ```sh
//! cargo build --release -p unisono
//! cargo run --release -p unisono-fit --example matrix -- --minutes 5 > matrix.jsonl
//! ```
//! Situations: alone; beside a loop; beside as many loops as processors; beside a second copy of the program
//! without settings; in a quota of 1 and of 1.5 processors; on one processor. Each repetition runs all
//! variants, alternately in forward and in reverse order. Programs: a loop of OpenMP reductions (needs gcc),
//! and numpy's eigenvalues by OpenBLAS (if `python3` or `--python PATH` has numpy). Standard output gets one
//! JSON object per run. Standard error gets the table: for each variant, the median of its time relative to
//! `plain` in the same repetition, and its regret (its worst slowdown against the best variant).
//!
//! `plain8` is `plain` with the threads that it would start on a machine of eight processors: eight. A run
//! that takes longer than [`LIMIT`] counts as [`LIMIT`]. Run it on a quiet machine, and as root for the
//! quotas. Situations that this host cannot produce are skipped with a message.
#![allow(clippy::print_stdout, reason = "what it measured is its answer")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies, unguessable};
use unisono_linux::process::{Family, Signal, start};
use unisono_linux::process_group::ProcessGroup;

const LIMIT: Duration = Duration::from_secs(3);
const NUMPY: &str = "import numpy,time\na=numpy.random.default_rng(1).random((120,120))\nnumpy.linalg.eigvals(a)\n\
    s=time.perf_counter()\nfor _ in range(12): numpy.linalg.eigvals(a)\nprint(time.perf_counter()-s)";

type Environment = &'static [(&'static str, &'static str)];
const VARIANTS: [(&str, Environment); 9] = [
    ("plain", &[]),
    ("plain8", &[("OMP_NUM_THREADS", "8"), ("OPENBLAS_NUM_THREADS", "8")]),
    ("fit", &[]),
    ("passive", &[("OMP_WAIT_POLICY", "passive")]),
    ("short-spin", &[("GOMP_SPINCOUNT", "10000")]),
    ("bind", &[("OMP_PROC_BIND", "spread"), ("OMP_PLACES", "threads")]),
    (
        "bind-passive",
        &[("OMP_PROC_BIND", "spread"), ("OMP_PLACES", "threads"), ("OMP_WAIT_POLICY", "passive")],
    ),
    ("one", &[("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")]),
    ("idle-blas", &[("OPENBLAS_THREAD_TIMEOUT", "4")]),
];

/// The surroundings of a run: foreign load, quota and processors.
struct Situation {
    name: &'static str,
    loops: usize,
    /// Whether a second copy of the program runs beside it, restarted whenever it ends.
    twin: bool,
    group: Option<ControlGroup>,
    cpus: CpuSet,
}

struct Options {
    unisono: PathBuf,
    python: PathBuf,
    minutes: f64,
}

fn options() -> Options {
    let mut options =
        Options { unisono: "target/release/unisono".into(), python: "python3".into(), minutes: 5.0 };
    let mut words = std::env::args().skip(1);
    while let (Some(name), value) = (words.next(), words.next()) {
        match (name.as_str(), value) {
            ("--unisono", Some(path)) => options.unisono = path.into(),
            ("--python", Some(path)) => options.python = path.into(),
            ("--minutes", Some(text)) => options.minutes = text.parse().unwrap_or(options.minutes),
            _ => {
                eprintln!("matrix [--unisono PATH] [--python PATH] [--minutes M]");
                std::process::exit(2);
            }
        }
    }
    options
}

/// A control group with a quota in hundredths of a processor. It is removed when this value is dropped.
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

/// Programs that keep processors busy. They are killed when this value is dropped.
struct Loops(Vec<Child>);

impl Loops {
    fn new(at: &Situation, program: &[String]) -> Self {
        let start = |script: &str, words: &[String]| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]).args(words).stdout(Stdio::null());
            start(&mut shell, Vec::new(), Family::OwnGroup).ok()
        };
        let mut all: Vec<Child> = (0..at.loops).filter_map(|_| start("while :; do :; done", &[])).collect();
        if at.twin {
            all.extend(start("while :; do \"$@\"; done", program));
        }
        // the loops have to run already when `fit` measures the load
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

/// Returns the seconds that the program printed, or `None` if it failed.
fn measure(
    program: &[String],
    variant: (&str, Environment),
    at: &Situation,
    options: &Options,
) -> Option<f64> {
    let mut command = match variant.0 {
        "fit" => {
            let mut fit = Command::new(&options.unisono);
            fit.args(["fit", "--quiet", "--"]).arg(&program[0]);
            fit
        }
        _ => Command::new(&program[0]),
    };
    command.args(&program[1..]).envs(variant.1.iter().copied()).stdout(Stdio::piped());
    let _loops = Loops::new(at, program);
    let procs_files = at.group.iter().map(ControlGroup::open_procs).collect::<Result<Vec<_>, _>>().ok()?;
    let all = affinity::allowed(Tid::SELF).ok()?;
    affinity::restrict_own(&at.cpus).ok()?;
    let child = start(&mut command, procs_files, Family::Same);
    affinity::restrict_own(&all).ok()?;
    let mut child = child.ok()?;
    let begin = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if begin.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Some(LIMIT.as_secs_f64());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let options = options();
    let begin = Instant::now();
    let directory = std::env::temp_dir().join(format!("unisono-matrix-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory can be made");
    let mut programs: Vec<(&str, Vec<String>)> = Vec::new();
    let reductions = directory.join("reductions");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/reductions.c");
    match Command::new("gcc").args(["-O2", "-fopenmp", "-o"]).arg(&reductions).arg(source).status() {
        Ok(status) if status.success() => {
            programs.push(("reductions", vec![reductions.display().to_string(), "15000".into()]));
        }
        other => eprintln!("skipped: reductions, because gcc -fopenmp fails: {other:?}"),
    }
    let python = options.python.display().to_string();
    match Command::new(&python).args(["-c", "import numpy"]).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => programs.push(("numpy", vec![python, "-c".into(), NUMPY.into()])),
        _ => eprintln!("skipped: numpy, because {python} has none; pip install numpy, then --python PATH"),
    }
    let all = affinity::allowed(Tid::SELF).expect("own affinity");
    let first = CpuSet::single(all.iter().next().expect("some processor"));
    let quotas: Vec<(&str, Result<Quota, String>)> = [("quota 1", 100), ("quota 1.5", 150)]
        .map(|(name, hundredths)| (name, Quota::new(hundredths)))
        .into();
    let plain = |name, loops| Situation { name, loops, twin: false, group: None, cpus: all.clone() };
    let mut situations =
        vec![plain("alone", 0), plain("beside 1 loop", 1), plain("beside as many loops", all.len())];
    situations.push(Situation { twin: true, ..plain("beside itself", 0) });
    situations.push(Situation { cpus: first, ..plain("one processor", 0) });
    for (name, quota) in &quotas {
        match quota {
            Ok(quota) => situations.push(Situation { group: Some(quota.0.clone()), ..plain(name, 0) }),
            Err(why) => eprintln!("skipped: {name}, because {why}"),
        }
    }
    let mut found: BTreeMap<(usize, usize, usize), Vec<f64>> = BTreeMap::new();
    let mut repetition = 0;
    while begin.elapsed().as_secs_f64()
        < options.minutes * 60.0 * (repetition.max(1) as f64) / (repetition + 1) as f64
    {
        for (p, (name, program)) in programs.iter().enumerate() {
            for (s, situation) in situations.iter().enumerate() {
                for at in 0..VARIANTS.len() {
                    let v = if repetition % 2 == 0 { at } else { VARIANTS.len() - 1 - at };
                    let Some(seconds) = measure(program, VARIANTS[v], situation, &options) else { continue };
                    found.entry((p, s, v)).or_default().push(seconds);
                    let (situation, variant) = (situation.name, VARIANTS[v].0);
                    println!(
                        "{}",
                        serde_json::json!({ "program": name, "situation": situation, "variant": variant,
                            "repetition": repetition, "seconds": seconds })
                    );
                }
            }
        }
        repetition += 1;
    }
    table(&programs, &situations, &found, repetition);
    let _ = std::fs::remove_dir_all(&directory);
}

fn table(
    programs: &[(&str, Vec<String>)],
    situations: &[Situation],
    found: &BTreeMap<(usize, usize, usize), Vec<f64>>,
    repetitions: usize,
) {
    eprintln!(
        "{repetitions} repetitions; median seconds, and in parentheses the median of the ratios to plain"
    );
    let mut regret = [1.0_f64; VARIANTS.len()];
    for (p, (program, _)) in programs.iter().enumerate() {
        for (s, situation) in situations.iter().enumerate() {
            let runs = |v| found.get(&(p, s, v)).cloned().unwrap_or_default();
            let ratio = |v| median(runs(v).iter().zip(runs(0)).map(|(one, plain)| one / plain).collect());
            eprintln!("{program}, {}:", situation.name);
            let least = (0..VARIANTS.len()).map(|v| median(runs(v))).fold(f64::INFINITY, f64::min);
            for (v, (variant, _)) in VARIANTS.iter().enumerate() {
                let seconds = median(runs(v));
                regret[v] = regret[v].max(seconds / least);
                eprintln!("  {variant:14} {seconds:8.4} s  ({:.3})", ratio(v));
            }
        }
    }
    eprintln!("greatest regret (times the best of its situation):");
    for ((variant, _), regret) in VARIANTS.iter().zip(regret) {
        eprintln!("  {variant:14} {regret:6.2}");
    }
}
