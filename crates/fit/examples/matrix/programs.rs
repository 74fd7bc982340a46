//! The ten programs of the matrix: how they are prepared, started, and timed.
//!
//! Each takes 0.1 to 0.4 s alone on two processors and takes its number of threads from a variable, from the
//! affinity, or from the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The source of a run's time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// The seconds that the program prints.
    Printed,
    /// The time from the start of the program to its end.
    ByTheClock,
}

pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) command: Vec<String>,
    pub(crate) timing: Timing,
}

/// A program's name, how it is timed, and its command or why this host cannot run it.
type Candidate = (&'static str, Timing, Result<Vec<String>, String>);

const EIGENVALUES: &str = "import numpy,time\na=numpy.random.default_rng(1).random((120,120))\n\
    numpy.linalg.eigvals(a)\ns=time.perf_counter()\nfor _ in range(12): numpy.linalg.eigvals(a)\n\
    print(time.perf_counter()-s)";
const PRODUCTS: &str = "import numpy,time\na=numpy.random.default_rng(1).random((700,700))\na@a\n\
    s=time.perf_counter()\nfor _ in range(12): a@a\nprint(time.perf_counter()-s)";
const POOL: &str = "import multiprocessing,time\n\
    def work(n):\n  return sum(i*i for i in range(n))\n\
    if __name__=='__main__':\n  s=time.perf_counter()\n  with multiprocessing.Pool() as pool:\n    \
    pool.map(work,[60000]*24)\n  print(time.perf_counter()-s)";

/// Returns the programs that this host can run. A program that it cannot run is named on standard error with
/// the reason.
pub(crate) fn prepare(directory: &Path, python: &Path) -> Vec<Program> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let text = directory.join("text");
    fs::write(&text, lines(400_000)).expect("the directory is ours");
    let text = text.display().to_string();
    let python = python.display().to_string();
    let script = |code: &str| vec![python.clone(), "-c".into(), code.into()];
    let reductions = compiled(directory, &["gcc", "-O2", "-fopenmp"], &examples.join("reductions.c"));
    let pool = compiled(directory, &["g++", "-O2", "-std=c++20", "-pthread"], &examples.join("pool.cpp"));
    let with = |program: &Result<PathBuf, String>, arguments: &[&str]| {
        let program = program.clone()?.display().to_string();
        Ok([program].into_iter().chain(arguments.iter().map(|word| (*word).to_owned())).collect())
    };
    let shell = |name: &str, line: String| found(name).map(|()| vec!["sh".into(), "-c".into(), line]);
    let numpy = has_module(&python, "numpy");
    let modules = directory.join("modules");
    let made = write_modules(&modules).and(found("make")).and(found("gcc"));
    let make = format!("make -s -B -C {} -j$(nproc)", modules.display());
    use Timing::{ByTheClock, Printed};
    let all: [Candidate; 10] = [
        ("OpenMP reductions of 10 us", Printed, with(&reductions, &["15000"])),
        ("OpenMP reductions of 0.6 us", Printed, with(&reductions, &["100000", "512"])),
        ("numpy eigenvalues (OpenBLAS)", Printed, numpy.clone().map(|()| script(EIGENVALUES))),
        ("numpy products (OpenBLAS)", Printed, numpy.map(|()| script(PRODUCTS))),
        ("C++ threads at a barrier", ByTheClock, with(&pool, &["1000", "200000"])),
        ("Python multiprocessing", Printed, found(&python).map(|()| script(POOL))),
        (
            "xz -T0",
            ByTheClock,
            shell("xz", format!("xz -T0 -0 --block-size=512KiB -c {text} >/dev/null")),
        ),
        ("zstd -T0", ByTheClock, shell("zstd", format!("zstd -q -T0 -9 -c {text} >/dev/null"))),
        ("sort", ByTheClock, shell("sort", format!("sort -S 64M -o /dev/null {text}"))),
        ("make -j$(nproc)", ByTheClock, made.map(|()| vec!["sh".into(), "-c".into(), make])),
    ];
    all.into_iter()
        .filter_map(|(name, timing, command)| match command {
            Ok(command) => Some(Program { name, command, timing }),
            Err(why) => {
                eprintln!("skipped: {name}, because {why}");
                None
            }
        })
        .collect()
}

fn lines(count: u64) -> String {
    (0..count).map(|n| format!("{:x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

/// Writes eight C files and a Makefile that compiles them.
fn write_modules(directory: &Path) -> Result<(), String> {
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(directory)?;
        let function =
            |n: usize| format!("int f{n}(int x) {{ for (int i = 0; i < x; i++) x ^= i * {n}; return x; }}\n");
        let source: String = (0..60).map(function).collect();
        (0..8).try_for_each(|file| fs::write(directory.join(format!("m{file}.c")), &source))?;
        let objects: String = (0..8).map(|file| format!(" m{file}.o")).collect();
        fs::write(directory.join("Makefile"), format!("all:{objects}\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n"))
    };
    write().map_err(|error| error.to_string())
}

fn compiled(directory: &Path, compiler: &[&str], source: &Path) -> Result<PathBuf, String> {
    let target = directory.join(source.file_stem().unwrap_or_default());
    let output = Command::new(compiler[0]).args(&compiler[1..]).arg("-o").args([&target, source]).output();
    match output {
        Ok(output) if output.status.success() => Ok(target),
        Ok(output) => {
            Err(format!("{}: {}", compiler.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
        }
        Err(error) => Err(format!("{} cannot be started: {error}", compiler[0])),
    }
}

fn found(program: &str) -> Result<(), String> {
    let started = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    started.map(|_| ()).map_err(|error| format!("{program} cannot be started: {error}"))
}

fn has_module(python: &str, module: &str) -> Result<(), String> {
    let import = format!("import {module}");
    match Command::new(python).args(["-c", &import]).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("{python} has no {module}; pip install {module}, then --python PATH")),
    }
}
