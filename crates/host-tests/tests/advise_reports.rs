//! `unisono advise` on what ten public reports describe: each test has a small program that does the same.
//!
//! A test's `what` names the project and the number of the report in its tracker. The small programs have the
//! threads, waits, limits and neighbors of the report, and take about a second. As in `advise_answers`, any
//! of several verdicts may be right, `undecided` is asked for again, and `--nocapture` shows the rows of the
//! table in docs/advice.md. All are long tests.

use crate::advise_answers::{
    NEEDS_NOTHING, Reference, check, compiled, eigenvalues, go_sources, long, reductions, text, words,
};
use std::path::Path;
use std::process::{Command, Stdio};
use unisono_host_tests::processes::Killed;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, quota, require};

fn source_of(name: &str) -> std::path::PathBuf {
    program::workspace().join("crates/host-tests/tests/advise_programs").join(name)
}

fn in_c(directory: &Path, name: &str) -> Result<String, Skipped> {
    compiled(directory, &["gcc", "-pthread"], source_of(name), "gcc")
}

/// Returns the command of a shell that runs this line.
fn shell(line: &str) -> Vec<String> {
    vec!["sh".into(), "-c".into(), line.into()]
}

/// Starts a busy loop of another program.
fn start_busy_loop() -> Killed {
    let mut shell = Command::new("sh");
    shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
    Killed(shell.spawn().expect("a shell"))
}

fn training_in_a_container_of_one_processor_has_too_many_threads() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    // many short regions: a small data set
    let training = reductions(directory.path())?;
    check(&Reference {
        what: "dmlc/xgboost 7653: OpenMP in a container of one processor",
        programs: &[vec![training, "250000".into(), "1024".into()]],
        environment: &[],
        quota: Some(&quota::one_processor("advise-xgboost")?),
        right: &["too-many-threads"],
    })
}

fn training_beside_one_busy_processor_should_not_spin() -> TestOutcome {
    long()?;
    require::cpus(2)?;
    let directory = tempfile::tempdir().expect("a directory");
    let training = reductions(directory.path())?;
    let _loop = start_busy_loop();
    check(&Reference {
        what: "dmlc/xgboost 8729: OpenMP while one processor is occupied",
        programs: &[vec![training, "15000".into()]],
        environment: &[],
        quota: None,
        // a single thread leaves the occupied processor alone, too
        right: &["too-many-threads", "pin", "wait-policy"],
    })
}

fn two_test_runners_with_openmp_teams_are_too_many_threads() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let tests = vec![reductions(directory.path())?, "100000".into(), "1024".into()];
    check(&Reference {
        what: "scikit-learn/scikit-learn 15078: two test runners, each with an OpenMP team",
        programs: &[tests.clone(), tests],
        environment: &[],
        quota: None,
        right: &["too-many-threads", "wait-policy", "pin", "partition", "in-turn"],
    })
}

fn linear_algebra_in_a_container_that_sees_the_whole_machine_has_too_many_threads() -> TestOutcome {
    long()?;
    let [python, option, code] = &eigenvalues()?[..] else {
        return Err(Skipped::because("the program is not Python with a line of code"));
    };
    // a fit of a linear model repeated
    let code = code.replace("numpy.linalg.eigvals(a)", "numpy.linalg.svd(a)");
    check(&Reference {
        what: "rocker-org/rocker 377: repeated fits by BLAS in a container of one processor",
        programs: &[vec![python.clone(), option.clone(), code]],
        environment: &[],
        quota: Some(&quota::one_processor("advise-rocker")?),
        right: &["too-many-threads"],
    })
}

fn workers_that_load_data_with_a_team_each_should_sleep_while_they_wait() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let worker = reductions(directory.path())?;
    check(&Reference {
        what: "pytorch/pytorch 19825: four workers of one program, each with an OpenMP team",
        programs: &[shell(&format!("for i in 1 2 3 4; do {worker} 3000 & done; wait"))],
        environment: &[],
        quota: None,
        right: &["too-many-threads", "wait-policy"],
    })
}

fn a_go_program_in_a_quota_of_one_processor_loses_little() -> TestOutcome {
    long()?;
    check(&Reference {
        what: "golang/go 33803: a Go program in a quota",
        programs: &[words(&format!("gofmt -l {}", go_sources()?))],
        environment: &[],
        quota: Some(&quota::one_processor("advise-go")?),
        // goroutines that wait do not spin for long: the quota decides, with one thread or with two
        right: &["nothing", "too-many-threads"],
    })
}

fn more_ranks_than_processors_should_give_way() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let job = compiled(directory.path(), &["mpicc.mpich"], source_of("barriers.c"), "mpich libmpich-dev")?;
    check(&Reference {
        what: "open-mpi/ompi 10426: five ranks on two processors (here MPICH's)",
        programs: &[words(&format!("mpiexec.mpich -n 5 {job} 100"))],
        environment: &[],
        quota: None,
        // fit makes the ranks yield, and also gives each rank one thread
        right: &["wait-policy", "too-many-threads"],
    })
}

fn a_pool_that_only_spins_has_no_setting() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let pool = in_c(directory.path(), "spin_barrier.c")?;
    check(&Reference {
        what: "ggml-org/llama.cpp 13079: more threads than processors at a spinning barrier",
        programs: &[vec![pool, "4".into(), "60".into()]],
        environment: &[],
        quota: None,
        // its number of threads is an argument, which no prefix changes
        right: NEEDS_NOTHING,
    })
}

fn a_server_that_spins_while_idle_needs_nothing_itself() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    check(&Reference {
        what: "commaai/openpilot 22736: a pool of onnxruntime that spins while it is idle",
        programs: &[vec![in_c(directory.path(), "spin_queue.c")?]],
        environment: &[],
        quota: None,
        right: NEEDS_NOTHING,
    })
}

fn a_server_whose_child_has_an_openmp_team_has_too_many_threads() -> TestOutcome {
    long()?;
    let directory = tempfile::tempdir().expect("a directory");
    let runner = reductions(directory.path())?;
    let log = text(directory.path());
    check(&Reference {
        what: "ollama/ollama 17916: a server in a container starts an OpenMP runner",
        programs: &[shell(&format!("head -n 1000 {log} >/dev/null; {runner} 300000 512"))],
        environment: &[],
        quota: Some(&quota::one_processor("advise-ollama")?),
        right: &["too-many-threads"],
    })
}

host_tests![needs Machine;
    training_in_a_container_of_one_processor_has_too_many_threads within 300,
    training_beside_one_busy_processor_should_not_spin within 300,
    two_test_runners_with_openmp_teams_are_too_many_threads within 300,
    linear_algebra_in_a_container_that_sees_the_whole_machine_has_too_many_threads within 300,
    workers_that_load_data_with_a_team_each_should_sleep_while_they_wait within 300,
    a_go_program_in_a_quota_of_one_processor_loses_little within 300,
    more_ranks_than_processors_should_give_way within 300,
    a_pool_that_only_spins_has_no_setting within 300,
    a_server_that_spins_while_idle_needs_nothing_itself within 300,
    a_server_whose_child_has_an_openmp_team_has_too_many_threads within 300,
];
