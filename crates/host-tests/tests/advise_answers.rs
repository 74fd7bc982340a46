//! Tests `unisono advise` on programs for which the right answer is known: half of the programs need no
//! remedy.
//!
//! Programs of the distribution run unmodified: numpy with OpenBLAS, gofmt, javac, stress-ng, pigz, zstd,
//! sort. The others are loops in C for OpenMP and MPI. Two programs run always, each for some seconds; in
//! long tests all programs run. If the answer is `undecided`, or wrong while other programs load the machine,
//! the question is repeated, because a trial on a busy machine shows little. If that does not help, the test
//! is skipped and says why. `--nocapture` shows the answers as rows of the table in docs/advice.md.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, is_long, program, quota, require};
use unisono_linux::cgroup::ControlGroup;
use unisono_linux::process::{Family, start};
use unisono_measure::quantile;

/// Programs that are started together, each as a list of words, and the answer that is right for them.
pub(crate) struct Reference<'a> {
    pub(crate) what: &'a str,
    pub(crate) programs: &'a [Vec<String>],
    pub(crate) environment: &'a [(&'a str, &'a str)],
    pub(crate) quota: Option<&'a ControlGroup>,
    /// Any of these verdicts is right.
    pub(crate) right: &'a [&'a str],
}

/// If other programs use so many processors or more, a higher priority may be the best remedy for any
/// program.
const BUSY: f64 = 0.3;

const TRIED: [&str; 11] = [
    "plain",
    "fit",
    "passive",
    "mpi",
    "pin",
    "partition",
    "in-turn",
    "priority",
    "gangs",
    "gangs-5ms",
    "gangs-100ms",
];
pub(crate) const NEEDS_NOTHING: &[&str] = &["nothing"];
/// Variables that are removed from the environment: `advise` would keep the caller's settings, and find
/// nothing to improve.
const SETTINGS: [&str; 7] = [
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OPENBLAS_NUM_THREADS",
    "KMP_BLOCKTIME",
    "GOMAXPROCS",
];

pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns the maximum number of times that advice is asked for, and how long a trial takes: at most half a
/// minute in all for the two tests that always run.
fn timeout() -> (u32, &'static str) {
    if is_long() { (3, "30s") } else { (2, "8s") }
}

/// Asks for advice, prints it as a row of a table, and compares it with the right answers.
pub(crate) fn check(reference: &Reference<'_>) -> TestOutcome {
    let (tries, time) = timeout();
    let mut why = String::new();
    for _ in 0..tries {
        let answer = ask(reference, time);
        let verdict = answer["verdict"].as_str().expect("a verdict");
        if row(reference, &answer, verdict) {
            return Ok(());
        }
        if verdict == "nothing" && !was_hurt(&answer) {
            why = format!("{}: this time nothing hurt it, and the advice says so", reference.what);
            continue;
        }
        let others = answer["runs"].as_array().expect("runs").iter().filter_map(|run| run["others"].as_f64());
        let others = others.fold(0.0, f64::max);
        assert!(verdict == "undecided" || others > BUSY, "{answer:#}");
        why = format!("{}: {verdict} while others used {others:.1} processors", reference.what);
    }
    Err(Skipped::because(format!(
        "{why}, asked {tries} times; a machine without other load can tell"
    )))
}

/// Returns whether any remedy made the program clearly faster than it was without one. A loop in a quota may
/// run at full speed without one, depending on where the kernel puts its threads.
fn was_hurt(answer: &Value) -> bool {
    let median = |way: &str| {
        let runs = answer["runs"].as_array().expect("runs").iter().filter(|run| run["way"] == way);
        quantile::median(&runs.filter_map(|run| run["seconds"].as_f64()).collect::<Vec<f64>>())
    };
    let best = TRIED.iter().skip(1).filter_map(|way| median(way)).fold(f64::INFINITY, f64::min);
    median("plain").is_none_or(|plain| plain > 1.2 * best)
}

fn ask(reference: &Reference<'_>, time: &str) -> Value {
    let mut command = Command::new(program::unisono());
    command.args(["advise", "--json", "--quiet", "--for", time, "--limit", "8s", "--"]);
    for (number, one) in reference.programs.iter().enumerate() {
        if number > 0 {
            command.arg(":::");
        }
        command.args(one);
    }
    SETTINGS.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.envs(reference.environment.iter().copied()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let procs_files =
        reference.quota.iter().map(|group| group.open_procs().expect("our own group")).collect();
    let output = start(&mut command, procs_files, Family::Same).expect("unisono starts").wait_with_output();
    let output = output.expect("it ends");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Prints the answer. Returns whether it is right.
fn row(reference: &Reference<'_>, answer: &Value, verdict: &str) -> bool {
    let is_right = reference.right.contains(&verdict);
    let gain = match (answer["gain"]["median"].as_f64(), answer["gain_at_least"].as_f64()) {
        (Some(gain), _) => format!("{gain:.2}"),
        (None, Some(least)) => format!("over {least:.1}"),
        (None, None) => String::new(),
    };
    let way = answer["way"].as_str().unwrap_or_default();
    let quota = answer["conditions"].as_array().and_then(|all| all.last());
    let quota = quota.and_then(|quota| quota["evidence"].as_str()).unwrap_or_default();
    let mark = match verdict {
        _ if is_right => "right",
        "undecided" => "undecided",
        _ => "WRONG",
    };
    let right = reference.right.join(" or ");
    eprintln!("| {} | {right} | {verdict} | {way} | {gain} | {quota} | {mark} |", reference.what);
    for way in TRIED {
        let runs = answer["runs"].as_array().expect("runs").iter().filter(|run| run["way"] == way);
        let seconds: Vec<String> =
            runs.map(|run| format!("{:.3}", run["seconds"].as_f64().unwrap_or(f64::NAN))).collect();
        if !seconds.is_empty() {
            eprintln!("    {way}: {}", seconds.join(" "));
        }
    }
    is_right
}

/// Requires a long test run, because the trial takes a minute.
pub(crate) fn long() -> TestOutcome {
    require::nightly("advise")
}

/// Compiles a program in C.
pub(crate) fn compiled(
    directory: &Path,
    compiler: &[&str],
    source: PathBuf,
    package: &str,
) -> Result<String, Skipped> {
    require::program(compiler[0], &format!("apt-get install {package}"))?;
    let name = source.file_stem().expect("a source has a name").to_owned();
    let target = directory.join(name);
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).arg("-O2").arg("-o").args([&target, &source]);
    let output = command.output().expect("the compiler starts");
    if output.status.success() {
        Ok(target.display().to_string())
    } else {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Skipped::because(format!("{} fails here: {why}", compiler.join(" "))))
    }
}

/// Compiles a loop of OpenMP reductions, of 8192 numbers each (10 us for one thread) unless the program's
/// second argument is another number.
pub(crate) fn reductions(directory: &Path) -> Result<String, Skipped> {
    let source = program::workspace().join("crates/fit/examples/reductions.c");
    compiled(directory, &["gcc", "-fopenmp"], source, "gcc")
}

/// Returns a command that computes eigenvalues with numpy, and so waits for OpenBLAS's threads all the time.
pub(crate) fn eigenvalues() -> Result<Vec<String>, Skipped> {
    // Debian's Python: another one on PATH may have no numpy, or one with its own BLAS
    const PYTHON: &str = "/usr/bin/python3";
    const LOADED: &str = "import numpy; numpy.linalg.eigvals(numpy.eye(9)); \
        raise SystemExit('libopenblas' not in open('/proc/self/maps').read())";
    let found = Command::new(PYTHON).args(["-c", LOADED]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return Err(Skipped::because(
            "numpy does not use OpenBLAS here; apt-get install python3-numpy libopenblas0-pthread",
        ));
    }
    let work = "import numpy\na=numpy.random.default_rng(1).random((120,120))\n\
        for _ in range(30): numpy.linalg.eigvals(a)";
    Ok(vec![PYTHON.into(), "-c".into(), work.into()])
}

fn openmp_in_a_quota_of_one_processor_has_too_many_threads() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let reductions = reductions(directory.path())?;
    check(&Reference {
        what: "OpenMP loop in a quota of one processor",
        // a reduction takes 0.6 us for one thread; longer ones need about as much processor time with two
        // threads as with one, so that a quota hurts them only if the kernel stops the two threads at
        // different times
        programs: &[vec![reductions, "300000".into(), "512".into()]],
        environment: &[],
        quota: Some(&quota::one_processor("advise")?),
        right: &["too-many-threads"],
    })
}

fn eight_openmp_threads_that_the_user_wants_have_to_sleep_while_they_wait() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let reductions = reductions(directory.path())?;
    check(&Reference {
        what: "OpenMP loop, OMP_NUM_THREADS=8 set by the user",
        programs: &[vec![reductions, "3000".into()]],
        environment: &[("OMP_NUM_THREADS", "8")],
        quota: None,
        right: &["wait-policy"],
    })
}

fn a_program_that_sleeps_needs_nothing() -> TestOutcome {
    check(&Reference {
        what: "sleep",
        programs: &[words("sleep 0.2")],
        environment: &[],
        quota: None,
        right: NEEDS_NOTHING,
    })
}

fn two_openmp_loops_need_fewer_threads_or_another_wait_policy() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let loops = vec![reductions(directory.path())?, "30000".into()];
    check(&Reference {
        what: "two OpenMP loops",
        programs: &[loops.clone(), loops],
        environment: &[],
        quota: None,
        right: &["too-many-threads", "wait-policy", "pin", "partition"],
    })
}

fn numpy_in_a_quota_of_one_processor_has_too_many_threads() -> TestOutcome {
    check(&Reference {
        what: "numpy with OpenBLAS in a quota of one processor",
        programs: &[eigenvalues()?],
        environment: &[],
        quota: Some(&quota::one_processor("advise")?),
        right: &["too-many-threads"],
    })
}

fn two_numpy_programs_need_fewer_threads_or_turns() -> TestOutcome {
    long()?;
    let eigenvalues = eigenvalues()?;
    check(&Reference {
        what: "two numpy programs with OpenBLAS",
        programs: &[eigenvalues.clone(), eigenvalues],
        environment: &[],
        quota: None,
        right: &["too-many-threads", "pin", "partition", "in-turn", "gang"],
    })
}

fn two_numpy_programs_whose_threads_the_user_set_need_turns() -> TestOutcome {
    long()?;
    require::cpus(2)?;
    let eigenvalues = eigenvalues()?;
    check(&Reference {
        what: "two numpy programs, OPENBLAS_NUM_THREADS=2 set by the user",
        programs: &[eigenvalues.clone(), eigenvalues],
        environment: &[("OPENBLAS_NUM_THREADS", "2")],
        quota: None,
        right: &["in-turn", "gang"],
    })
}

fn two_mpi_jobs_need_turns() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let source = program::workspace().join("crates/host-tests/tests/advise_programs/barriers.c");
    let job = compiled(directory.path(), &["mpicc.mpich"], source, "mpich libmpich-dev")?;
    let job = words(&format!("mpiexec.mpich -n 2 {job} 20000"));
    check(&Reference {
        what: "two MPICH jobs of two ranks",
        programs: &[job.clone(), job],
        environment: &[],
        quota: None,
        right: &["wait-policy", "in-turn", "gang"],
    })
}

fn one_thread_alone_needs_nothing() -> TestOutcome {
    long()?;
    check(&Reference {
        what: "one loop in Python",
        programs: &[vec!["/usr/bin/python3".into(), "-c".into(), "for _ in range(6000000): pass".into()]],
        environment: &[],
        quota: None,
        right: NEEDS_NOTHING,
    })
}

/// Writes a file to compress or sort, and returns its path.
pub(crate) fn text(directory: &Path) -> String {
    let file = directory.join("text");
    let lines: Vec<String> =
        (0..600_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    fs::write(&file, lines.join("\n")).expect("a file");
    file.display().to_string()
}

fn coreutils_sort_needs_nothing() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let sort = format!("sort --parallel=2 --output=/dev/null {}", text(directory.path()));
    check(&Reference {
        what: "sort of coreutils, two threads",
        programs: &[words(&sort)],
        environment: &[],
        quota: None,
        right: NEEDS_NOTHING,
    })
}

fn zstd_needs_nothing() -> TestOutcome {
    long()?;
    require::program("zstd", "apt-get install zstd")?;
    let directory = tempfile::tempdir().expect("a directory");
    let zstd = format!("zstd -q -6 -T2 -c {}", text(directory.path()));
    check(&Reference {
        what: "zstd, two threads",
        programs: &[words(&zstd)],
        environment: &[],
        quota: None,
        right: NEEDS_NOTHING,
    })
}

fn stress_ng_and_pigz_need_nothing() -> TestOutcome {
    long()?;
    require::program("stress-ng", "apt-get install stress-ng")?;
    require::program("pigz", "apt-get install pigz")?;
    let directory = tempfile::tempdir().expect("a directory");
    let pigz = format!("pigz -p 2 -c {}", text(directory.path()));
    check(&Reference {
        what: "stress-ng and pigz",
        programs: &[words("stress-ng --quiet --cpu 2 --cpu-method fft --cpu-ops 600"), words(&pigz)],
        environment: &[],
        quota: None,
        right: NEEDS_NOTHING,
    })
}

/// Returns the directory of a package of Go's own library, as input for gofmt.
pub(crate) fn go_sources() -> Result<String, Skipped> {
    require::program("gofmt", "apt-get install golang-go")?;
    let root = Command::new("go").args(["env", "GOROOT"]).output().ok();
    let root = root.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let sources = root.map(|root| format!("{root}/src/net")).filter(|path| Path::new(path).is_dir());
    sources.ok_or_else(|| Skipped::because("Go's library has no sources here; apt-get install golang-src"))
}

fn a_go_program_needs_nothing() -> TestOutcome {
    long()?;
    check(&Reference {
        what: "gofmt (Go)",
        programs: &[words(&format!("gofmt -l {}", go_sources()?))],
        environment: &[],
        quota: None,
        right: NEEDS_NOTHING,
    })
}

fn java_and_go_need_nothing() -> TestOutcome {
    long()?;
    require::program("javac", "apt-get install default-jdk-headless")?;
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("One.java");
    let methods: String =
        (0..400).map(|n| format!("static int m{n}(int i) {{ return i * {n} + 1; }}\n")).collect();
    fs::write(&source, format!("class One {{\n{methods}}}\n")).expect("a file");
    let javac = format!("javac -d {} {}", directory.path().display(), source.display());
    check(&Reference {
        what: "javac (Java) and gofmt (Go)",
        programs: &[words(&javac), words(&format!("gofmt -l {}", go_sources()?))],
        environment: &[],
        quota: None,
        right: NEEDS_NOTHING,
    })
}

host_tests![needs Machine;
    openmp_in_a_quota_of_one_processor_has_too_many_threads within 300,
    eight_openmp_threads_that_the_user_wants_have_to_sleep_while_they_wait within 300,
    a_program_that_sleeps_needs_nothing within 300,
    two_openmp_loops_need_fewer_threads_or_another_wait_policy within 300,
    numpy_in_a_quota_of_one_processor_has_too_many_threads within 300,
    two_numpy_programs_need_fewer_threads_or_turns within 300,
    two_numpy_programs_whose_threads_the_user_set_need_turns within 300,
    two_mpi_jobs_need_turns within 300,
    one_thread_alone_needs_nothing within 300,
    coreutils_sort_needs_nothing within 300,
    zstd_needs_nothing within 300,
    stress_ng_and_pigz_need_nothing within 300,
    a_go_program_needs_nothing within 300,
    java_and_go_need_nothing within 300,
];
