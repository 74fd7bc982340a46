//! Tests the runtimes of the table in docs/fit.md: under a quota of one processor, each counts one processor
//! if `unisono fit` starts it. The quota is that of an ancestor of the program's control group, which few
//! runtimes read.

use crate::fit::{fit, groups_with_a_quota, joined, team};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use unisono_host_tests::processes::words;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, pypi, require};
use unisono_linux::cgroup::ControlGroup;
use unisono_linux::programs::on_path;

/// The part of `cargo xtask nightly` that fetches these runtimes.
const PART: &str = "fit-runtimes";
/// The number of runtimes that must be tried.
const MIN_TRIED: usize = 20;

/// The means of `fit` by which a runtime counts right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// A variable or an option; the lease is not needed.
    Variable,
    /// Only the lease: the runtime reads no variable.
    Lease,
}

struct TriedRuntime {
    name: &'static str,
    means: Means,
    /// The command; the last line of its output is the number of processors that the runtime counts.
    command: Vec<OsString>,
    /// Variables for the command, such as a library to preload.
    environment: Vec<(&'static str, String)>,
}

fn tried(name: &'static str, means: Means, command: &[&str]) -> TriedRuntime {
    TriedRuntime {
        name,
        means,
        command: command.iter().map(OsString::from).collect(),
        environment: Vec::new(),
    }
}

/// The packages of PyPI; [`PYTHON`] has, for each runtime in them, a program that prints the number that it
/// counts.
const PACKAGES: [&str; 14] = [
    "numpy",
    "threadpoolctl",
    "numexpr",
    "numba",
    "polars",
    "joblib",
    "scikit-learn",
    "xgboost-cpu",
    "mkl",
    "opencv-python-headless",
    "pytest-xdist",
    "pyarrow",
    "simpleitk",
    // must be last: it is left out if PyPI has no build for this Python
    "tensorflow-cpu",
];
const PYTHON: [(&str, &str); 14] = [
    (
        "OpenBLAS in NumPy",
        "import numpy, threadpoolctl as t; print(t.threadpool_info()[0]['num_threads'])",
    ),
    ("NumExpr", "import numexpr; print(numexpr.nthreads)"),
    ("Numba", "import numba; print(numba.config.NUMBA_NUM_THREADS)"),
    ("Polars", "import polars; print(polars.thread_pool_size())"),
    ("joblib (loky)", "import joblib; print(joblib.cpu_count())"),
    (
        "OpenMP in scikit-learn",
        "from sklearn.utils._openmp_helpers import _openmp_effective_n_threads as n; print(n())",
    ),
    (
        "OpenMP in XGBoost",
        "import xgboost, threadpoolctl as t; \
         print(max(i['num_threads'] for i in t.threadpool_info() if i['internal_api'] == 'openmp'))",
    ),
    (
        "MKL",
        "import ctypes, glob, sys; \
         print(ctypes.CDLL(glob.glob(sys.prefix + '/lib/libmkl_rt.so*')[0]).MKL_Get_Max_Threads())",
    ),
    ("OpenCV", "import cv2; print(cv2.getNumThreads())"),
    (
        "pytest-xdist -n auto",
        "import types; from xdist.plugin import pytest_xdist_auto_num_workers as n; \
         o = types.SimpleNamespace(numprocesses='auto'); \
         print(n(types.SimpleNamespace(option=o, getoption=lambda *a: None)))",
    ),
    ("Arrow", "import pyarrow; print(pyarrow.cpu_count())"),
    ("ITK", "import SimpleITK as s; print(s.ProcessObject.GetGlobalDefaultNumberOfThreads())"),
    ("multiprocessing in CPython", "import os; print(os.process_cpu_count())"),
    (
        "TensorFlow",
        "import os, tensorflow as tf; (tf.zeros((1000, 1000)) @ tf.zeros((1000, 1000))).numpy(); \
         names = [open(f'/proc/self/task/{t}/comm').read() for t in os.listdir('/proc/self/task')]; \
         print(names.count('tf_Compute\\n'))",
    ),
];

/// Returns the runtimes of PyPI, without TensorFlow if it is not built for this version of Python.
fn python_runtimes(missing: &mut Vec<String>) -> Vec<TriedRuntime> {
    // `process_cpu_count` came with 3.13
    let Some(python) = ["python3.13", "python3.14"].into_iter().find(|name| on_path(name).is_some()) else {
        missing.push("runtimes of PyPI: no python3.13 on PATH".to_owned());
        return Vec::new();
    };
    let mut packages = PACKAGES.to_vec();
    let place = |count: usize| format!("fit-runtimes/{python}-{count}");
    let environment = pypi::environment(&place(packages.len()), python, &packages).or_else(|_| {
        missing.push(format!("TensorFlow: pip cannot install it for {python}"));
        packages.pop();
        pypi::environment(&place(packages.len()), python, &packages)
    });
    let directory = match environment {
        Ok(directory) => directory.join("bin/python").display().to_string(),
        Err(why) => {
            missing.push(format!("runtimes of PyPI: {why:?}"));
            return Vec::new();
        }
    };
    let has = |name: &str| name != "TensorFlow" || packages.contains(&"tensorflow-cpu");
    let rows = PYTHON.iter().filter(|(name, _)| has(name));
    rows.map(|(name, script)| tried(name, Means::Variable, &[&directory, "-c", script])).collect()
}

/// A runtime of the distribution: its name, the means, the program, the package, the arguments.
type Installed = (&'static str, Means, &'static str, &'static str, &'static [&'static str]);

const INSTALLED: [Installed; 9] = [
    ("nproc (GNU)", Means::Variable, "nproc", "coreutils", &[]),
    ("make -j$(nproc)", Means::Variable, "sh", "dash", &["-c", "echo $(nproc)"]),
    (
        "Octave",
        Means::Variable,
        "octave-cli",
        "octave",
        &["--no-init-file", "--eval", "printf('%d\\n', nproc())"],
    ),
    (
        "OpenMP in R (data.table)",
        Means::Variable,
        "Rscript",
        "r-cran-data.table",
        &["-e", "library(data.table); setDTthreads(percent = 100); cat(getDTthreads(), '\\n')"],
    ),
    (
        "Erlang",
        Means::Variable,
        "erl",
        "erlang-base",
        &["-noshell", "-eval", "io:format(\"~p~n\", [erlang:system_info(schedulers_online)]), halt()."],
    ),
    (
        "Node.js",
        Means::Lease,
        "node",
        "nodejs",
        &["-e", "console.log(require('os').availableParallelism())"],
    ),
    ("nproc without variables", Means::Lease, "env", "coreutils", &["-i", "/usr/bin/nproc"]),
    (
        "CPython before 3.13",
        Means::Lease,
        "/usr/bin/python3",
        "python3",
        &["-c", "import os; print(len(os.sched_getaffinity(0)))"],
    ),
    ("GNU parallel", Means::Lease, "parallel", "parallel", &["--number-of-threads"]),
];

const GO: &str = "package main\nimport (\"fmt\"; \"os\"; \"os/exec\"; \"runtime\")\nfunc main() {\n\
    if len(os.Args) == 1 { fmt.Println(runtime.GOMAXPROCS(0)); return }\n\
    c := exec.Command(os.Args[1]); c.Stdout = os.Stdout; c.Run()\n}\n";
const JAVA: &str = "public class Count { public static void main(String[] a) {\n\
    System.out.println(Runtime.getRuntime().availableProcessors()); } }\n";
const CXX: &str = "#include <cstdio>\n#include <thread>\nint main() { std::printf(\"%u\\n\", std::thread::hardware_concurrency()); }\n";

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Returns the runtimes whose programs have to be compiled, which is done in `directory`.
fn compiled_runtimes(directory: &Path, missing: &mut Vec<String>) -> Result<Vec<TriedRuntime>, Skipped> {
    let path = |name: &str| directory.join(name).display().to_string();
    let team = team(directory)?.display().to_string();
    let mut all = vec![
        tried("GNU OpenMP", Means::Variable, &[&team]),
        tried("GNU OpenMP started by a shell", Means::Variable, &["sh", "-c", &team]),
    ];
    // libomp also has the functions that gcc's code calls
    let libomp = ["/usr/lib/llvm-14/lib/libomp.so.5", "/usr/lib/x86_64-linux-gnu/libomp.so.5"];
    match libomp.into_iter().find(|library| Path::new(library).exists()) {
        Some(library) => all.push(TriedRuntime {
            environment: vec![("LD_PRELOAD", library.to_owned())],
            ..tried("LLVM OpenMP", Means::Variable, &[&team])
        }),
        None => missing.push("LLVM OpenMP: apt-get install libomp-dev".to_owned()),
    }
    fs::write(directory.join("count.cpp"), CXX).expect("a temporary file");
    if succeeds(Command::new("g++").args(["-o", &path("count"), &path("count.cpp")])) {
        all.push(tried("std::thread::hardware_concurrency", Means::Lease, &[&path("count")]));
    } else {
        missing.push("C++: apt-get install g++".to_owned());
    }
    fs::write(directory.join("main.go"), GO).expect("a temporary file");
    for (version, name) in [("1.24", "go24"), ("1.25", "go25")] {
        fs::write(directory.join("go.mod"), format!("module count\n\ngo {version}\n"))
            .expect("a temporary file");
        let mut build = Command::new("go");
        build.current_dir(directory).args(["build", "-o", name, "."]).env("GOTOOLCHAIN", "local");
        if !succeeds(build.env("GOFLAGS", "-mod=mod")) {
            missing.push(format!("Go {version}: no go on PATH that builds it"));
        } else if version == "1.24" {
            all.push(tried("Go, module of 1.24", Means::Variable, &[&path(name)]));
            all.push(tried("Go, module of 1.24, started by nice", Means::Variable, &["nice", &path(name)]));
            all.push(tried("OpenMP started by a Go program", Means::Variable, &[&path(name), &team]));
        } else {
            all.push(tried("Go, module of 1.25", Means::Variable, &[&path(name)]));
        }
    }
    fs::write(directory.join("Count.java"), JAVA).expect("a temporary file");
    if succeeds(Command::new("javac").args(["-d", &path(""), &path("Count.java")])) {
        all.push(tried("Java", Means::Variable, &["java", "-cp", &path(""), "Count"]));
        let script = format!("exec java -cp '{}' Count", path(""));
        all.push(tried("Java started by a shell", Means::Lease, &["sh", "-c", &script]));
    } else {
        missing.push("Java: apt-get install default-jdk".to_owned());
    }
    Ok(all)
}

fn last_line(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().trim().to_owned()
}

/// Returns the number that a runtime prints without `fit`, and the number that it prints with `fit` and the
/// means that it needs.
fn counted(one: &TriedRuntime, group: &ControlGroup) -> [String; 2] {
    let mut plain = Command::new(&one.command[0]);
    plain.args(&one.command[1..]);
    let options: &[&str] = match one.means {
        Means::Variable => &["--quiet", "--"],
        Means::Lease => &["--quiet", "--bind", "--"],
    };
    let mut fitted = fit(options);
    fitted.args(&one.command);
    [&mut plain, &mut fitted].map(|command| {
        command.env_remove("OMP_NUM_THREADS").envs(one.environment.iter().map(|(name, value)| (name, value)));
        let output = joined(command, group);
        assert!(output.status.success(), "{}: {}", one.name, words(&output));
        last_line(&output)
    })
}

fn each_runtime_counts_one_processor_in_a_quota_of_one() -> TestOutcome {
    require::nightly(PART)?;
    require::cpus(2)?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut missing = Vec::new();
    let mut all = compiled_runtimes(directory.path(), &mut missing)?;
    for (name, means, program, package, arguments) in INSTALLED {
        if on_path(program).is_some() || Path::new(program).is_file() {
            let command: Vec<&str> = [program].into_iter().chain(arguments.iter().copied()).collect();
            all.push(tried(name, means, &command));
        } else {
            missing.push(format!("{name}: apt-get install {package}"));
        }
    }
    all.extend(python_runtimes(&mut missing));
    let [around, inside] = groups_with_a_quota(100_000)?;
    eprintln!("| runtime | plain | fit | by |\n|---|---|---|---|");
    let mut wrong = Vec::new();
    for one in &all {
        let [plain, fitted] = counted(one, &inside);
        eprintln!("| {} | {plain} | {fitted} | {:?} |", one.name, one.means);
        if fitted != "1" {
            wrong.push(one.name);
        }
    }
    drop((inside, around));
    assert!(wrong.is_empty(), "{wrong:?}");
    if all.len() < MIN_TRIED {
        let only = format!("only {} runtimes are here: {}", all.len(), missing.join("; "));
        return Err(Skipped::because(only));
    }
    eprintln!("not tried: {}", missing.join("; "));
    Ok(())
}

host_tests![needs Machine;
    each_runtime_counts_one_processor_in_a_quota_of_one within 3600,
];
