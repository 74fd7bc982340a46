//! Tests the start of MPI programs with the preload: it takes over all windows, works with other tools and
//! from scripts, and prints a message if it cannot.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use unisono_host_tests::mpi::{MPIS, TestedMpi, below, numbers, source, verdict};
use unisono_host_tests::processes::text;
use unisono_host_tests::program::{self, target};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, one_in, require};

/// Runs `unisono mpi ARGUMENTS` without a launcher. Returns its exit code and output.
fn said(arguments: &[&OsStr]) -> (Option<i32>, String) {
    let mut command = Command::new(program::unisono());
    command.arg("mpi").args(arguments);
    for variable in ["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_SIZE"] {
        command.env_remove(variable);
    }
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    (output.status.code(), text(&output.stderr))
}

/// Every function of MPI 4.0 that concerns windows: those of chapter 12, and those of chapters 7 and 9 that
/// have a window as an argument.
const FUNCTIONS: &[&str] = &[
    "Accumulate",
    "Accumulate_c",
    "Compare_and_swap",
    "Fetch_and_op",
    "Get",
    "Get_accumulate",
    "Get_accumulate_c",
    "Get_c",
    "Put",
    "Put_c",
    "Raccumulate",
    "Raccumulate_c",
    "Rget",
    "Rget_accumulate",
    "Rget_accumulate_c",
    "Rget_c",
    "Rput",
    "Rput_c",
    "Win_allocate",
    "Win_allocate_c",
    "Win_allocate_shared",
    "Win_allocate_shared_c",
    "Win_attach",
    "Win_c2f",
    "Win_call_errhandler",
    "Win_complete",
    "Win_create",
    "Win_create_c",
    "Win_create_dynamic",
    "Win_create_errhandler",
    "Win_create_keyval",
    "Win_delete_attr",
    "Win_detach",
    "Win_f2c",
    "Win_fence",
    "Win_flush",
    "Win_flush_all",
    "Win_flush_local",
    "Win_flush_local_all",
    "Win_free",
    "Win_free_keyval",
    "Win_get_attr",
    "Win_get_errhandler",
    "Win_get_group",
    "Win_get_info",
    "Win_get_name",
    "Win_lock",
    "Win_lock_all",
    "Win_post",
    "Win_set_attr",
    "Win_set_errhandler",
    "Win_set_info",
    "Win_set_name",
    "Win_shared_query",
    "Win_shared_query_c",
    "Win_start",
    "Win_sync",
    "Win_test",
    "Win_unlock",
    "Win_unlock_all",
    "Win_wait",
    "Abort",
    "Barrier",
    "Errhandler_free",
    "Finalize",
    "Init",
    "Init_thread",
];

/// Symbols of an MPI that look like calls of a program but are none, with the reason.
const NO_CALLS: &[(&str, &str)] = &[
    ("Win_dup_fn", "a callback, which no call of ours calls because windows are not duplicated"),
    ("Win_null_copy_fn", "a callback"),
    ("Win_null_delete_fn", "a callback, called like any other"),
];

/// Returns the symbols of a shared library: those that it defines, or those that it needs.
fn symbols(library: &Path, defined: bool) -> Result<BTreeSet<String>, Skipped> {
    require::program("nm", "apt-get install binutils")?;
    let which = if defined { "--defined-only" } else { "--undefined-only" };
    let output = Command::new("nm").args(["-D", which]).arg(library).output().expect("it was found");
    assert!(output.status.success(), "{}: {}", library.display(), text(&output.stderr));
    let name = |line: &str| {
        Some(line.split_whitespace().next_back()?.split('@').next().unwrap_or_default().to_owned())
    };
    Ok(text(&output.stdout).lines().filter_map(name).collect())
}

/// Returns the shared libraries of an MPI to which programs in Fortran and C++ are linked.
fn libraries(mpi: TestedMpi) -> Result<Vec<PathBuf>, Skipped> {
    require::program("ldd", "apt-get install libc-bin")?;
    let mut found = BTreeSet::new();
    for file in ["fortran_2008.f90", "fortran_module.f90", "fortran_77.f", "cxx.cpp"] {
        let output = Command::new("ldd").arg(mpi.build(file)?).output().expect("it was found");
        for line in text(&output.stdout).lines() {
            let Some((name, path)) = line.trim().split_once(" => ") else { continue };
            if name.starts_with("libmpi") {
                found.insert(PathBuf::from(path.split_whitespace().next().unwrap_or_default()));
            }
        }
    }
    assert!(found.len() >= 2, "a library and its Fortran binding at least: {found:?}");
    Ok(found.into_iter().collect())
}

fn preload() -> PathBuf {
    let output = Command::new(program::unisono()).args(["mpi", "--print"]).output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    PathBuf::from(text(&output.stdout).trim())
}

/// Returns the names that the preload defines and for which the bridge to an MPI has a function.
fn taken_over(mpi: TestedMpi) -> Result<BTreeSet<String>, Skipped> {
    let preload = preload();
    let bridge = symbols(&preload.with_file_name(format!("libunisono-mpi-{}.so", mpi.name())), true)?;
    let is_served = |name: &String| bridge.contains(name.strip_prefix('P').unwrap_or(name));
    Ok(symbols(&preload, true)?.into_iter().filter(is_served).collect())
}

/// Returns whether a symbol, in any language's spelling, names a call on windows.
fn concerns_windows(symbol: &str) -> bool {
    let plain = symbol.to_ascii_lowercase();
    let core = plain.trim_end_matches('_');
    let core = core.trim_end_matches("_f08ts").trim_end_matches("_f08").trim_end_matches("_f");
    let words =
        ["put", "get", "accumulate", "rput", "rget", "raccumulate", "fetch_and_op", "compare_and_swap"];
    let after = |prefix: &str| core.strip_prefix(prefix).map(str::to_owned);
    let Some(call) = after("pmpi_").or_else(|| after("mpi_")).or_else(|| after("mpii_")) else {
        return false;
    };
    call.starts_with("win_") || call.contains("accumulate") || words.contains(&call.trim_end_matches("_c"))
}

/// For C, the expected names are those of the standard and those that the MPI defines. The Fortran bindings
/// are the MPI's own, so the functions that they call have to be taken over.
fn every_one_sided_call_is_taken_over() -> TestOutcome {
    for mpi in MPIS {
        let ours = taken_over(mpi)?;
        let mut hosts = BTreeSet::new();
        let libraries = libraries(mpi)?;
        for library in &libraries {
            hosts.extend(symbols(library, true)?);
        }
        let missing: Vec<String> = FUNCTIONS
            .iter()
            .flat_map(|name| [format!("MPI_{name}"), format!("PMPI_{name}")])
            .filter(|name| hosts.contains(name) && !ours.contains(name))
            .collect();
        assert!(missing.is_empty(), "{}: {missing:?}", mpi.name());
        let lacking: Vec<&&str> =
            FUNCTIONS.iter().filter(|name| !hosts.contains(&format!("MPI_{name}"))).collect();
        // MPICH converts handles by macros; Open MPI 4.1 implements MPI 3.1
        let allowed = |name: &str| match mpi {
            TestedMpi::Mpich => name.ends_with("2f") || name.ends_with("2c"),
            TestedMpi::OpenMpi => name.ends_with("_c"),
        };
        assert!(lacking.iter().all(|name| allowed(name)), "{} has no {lacking:?}", mpi.name());

        // newer versions of an MPI may have more functions
        let of_c = |name: &&String| {
            let call = name.strip_prefix("MPI_").unwrap_or_default();
            let is_c = call.chars().nth(1).is_some_and(|second| second.is_ascii_lowercase());
            is_c && concerns_windows(name) && !call.ends_with("_f") && !call.ends_with("_f08")
        };
        let unknown: Vec<&String> = hosts
            .iter()
            .filter(of_c)
            .filter(|name| !ours.contains(*name))
            .filter(|name| !NO_CALLS.iter().any(|(known, _)| name.ends_with(known)))
            .collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", mpi.name());

        // the bindings call C's functions or each other
        for library in &libraries {
            let asked = symbols(library, false)?;
            let theirs: Vec<&String> = asked
                .iter()
                .filter(|name| concerns_windows(name) && !ours.contains(*name))
                .filter(|name| !is_binding(name))
                .collect();
            assert!(theirs.is_empty(), "{} calls {theirs:?}", library.display());
        }
    }
    Ok(())
}

/// Returns whether a symbol is a Fortran binding, by its spelling: all small or all capital letters, or Open
/// MPI's suffixes.
fn is_binding(name: &str) -> bool {
    let call = name.trim_start_matches("PMPI_").trim_start_matches("MPI_");
    let one_case = !call.chars().any(|letter| letter.is_ascii_lowercase())
        || !name.chars().any(|letter| letter.is_ascii_uppercase());
    one_case || name.ends_with("_f") || name.ends_with("_f08")
}

/// Compiles the profiling tool as a shared library that is linked to no MPI, so that it uses the program's.
fn tool(mpi: TestedMpi) -> Result<PathBuf, Skipped> {
    mpi.present("any.c")?;
    let directory = target().join("mpi-programs").join(mpi.name());
    std::fs::create_dir_all(&directory).expect("a directory");
    let library = directory.join(format!("libtool-{}.so", std::process::id()));
    let output = Command::new(format!("mpicc.{}", mpi.name()))
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source("tool.c"))
        .output()
        .expect("it was found");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Ok(library)
}

fn a_profiling_tool_that_is_preloaded_sees_every_call() -> TestOutcome {
    for mpi in MPIS {
        let (tool, built) = (tool(mpi)?, mpi.build("counted.c")?);
        let mut command = mpi.launcher(2);
        command.args(["env", &format!("LD_PRELOAD={}", tool.display())]).arg(program::unisono());
        command.args([OsStr::new("mpi"), OsStr::new("--"), built.as_os_str()]);
        let output = command.output().expect("it was found");
        let (said, agrees) = (text(&output.stderr), verdict("counted", &output));
        std::fs::remove_file(&tool).expect("it was there");
        agrees.expect("the program agrees");
        assert!(said.contains("tool: rank 0: 20 puts, 13 fences"), "{}: {said}", mpi.name());
        assert!(said.contains("tool: rank 1: 30 puts, 13 fences"), "{}: {said}", mpi.name());
    }
    Ok(())
}

/// A linked tool comes after preloaded libraries in the search for symbols, so it is never called. A message
/// says so, and how to have it called.
fn a_profiling_tool_that_is_linked_is_named() -> TestOutcome {
    for mpi in MPIS {
        let tool = tool(mpi)?;
        let directory = tempfile::tempdir().expect("a directory");
        let built = directory.path().join("program");
        let compiled = Command::new(format!("mpicc.{}", mpi.name()))
            .args([OsStr::new("-w"), OsStr::new("-o"), built.as_os_str(), source("counted.c").as_os_str()])
            .arg(&tool)
            .output()
            .expect("it was found");
        assert!(compiled.status.success(), "{}", text(&compiled.stderr));
        let output =
            mpi.with_preload(2, &[OsStr::new("--"), built.as_os_str()]).output().expect("it was found");
        std::fs::remove_file(&tool).expect("it was there");
        verdict("counted", &output).expect("the program agrees");
        let said = text(&output.stderr);
        assert!(said.contains("LD_PRELOAD=") && said.contains("libtool-"), "{}: {said}", mpi.name());
    }
    Ok(())
}

/// `unisono mpi` starts a script, and the preload is passed on to the program that the script starts.
fn a_script_may_start_the_program() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("counted.c")?;
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("start.sh");
        std::fs::write(&script, format!("#!/bin/sh\nexec {} \"$@\"\n", built.display())).expect("a script");
        let mut mode = std::fs::metadata(&script).expect("it is there").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(&script, mode).expect("it is ours");
        let arguments = [OsStr::new("--stats"), OsStr::new("--"), script.as_os_str()];
        let output = mpi.with_preload(2, &arguments).output().expect("it was found");
        verdict("counted", &output).expect("the program agrees");
        let said = text(&output.stderr);
        let lines = below(&said, "allocated counted");
        assert!(numbers(&lines, "fence").starts_with("22 epochs,"), "{}: {said}", mpi.name());
    }
    Ok(())
}

/// The program's own run path leads to its MPI, and the preload uses the same MPI.
fn a_program_with_a_run_path_runs() -> TestOutcome {
    TestedMpi::Mpich.present("any.c")?;
    let shown = Command::new("mpicc.mpich").arg("-show").output().expect("it was found");
    let shown = text(&shown.stdout);
    let original = shown
        .split_whitespace()
        .filter_map(|flag| flag.strip_prefix("-L"))
        .map(|directory| Path::new(directory).join("libmpich.so.12"))
        .find(|library| library.exists())
        .ok_or_else(|| Skipped::because("no libmpich.so.12 where mpicc.mpich links"))?;
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("libmpich.so.12");
    std::fs::copy(original, &copy).expect("a copy");
    let built = directory.path().join("program");
    let compiled = Command::new("mpicc.mpich")
        .args([OsStr::new("-w"), OsStr::new("-o"), built.as_os_str(), source("counted.c").as_os_str()])
        .arg(format!("-Wl,-rpath,{}", directory.path().display()))
        .output()
        .expect("it was found");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let mut command =
        TestedMpi::Mpich.with_preload(2, &[OsStr::new("--stats"), OsStr::new("--"), built.as_os_str()]);
    let output = command.output().expect("it was found");
    verdict("counted", &output).expect("the program agrees");
    let said = text(&output.stderr);
    assert!(numbers(&below(&said, "allocated counted"), "fence").starts_with("22 epochs,"), "{said}");
    Ok(())
}

/// The program's MPI functions are its own, so the preload cannot replace them. It runs as without the
/// preload.
fn a_program_with_its_mpi_linked_in_runs_unserved_and_says_so() -> TestOutcome {
    // the source of a program with an MPI of one function
    let directory = tempfile::tempdir().expect("a directory");
    let (written, built) = (directory.path().join("own.c"), directory.path().join("own"));
    let own = "int MPI_Init(void) { return 6; }\nint main(int n, char **v) { return MPI_Init() + n; }\n";
    std::fs::write(&written, own).expect("a source");
    for flags in [&[][..], &["-static"]] {
        let compiled = Command::new("cc").args(flags).arg("-o").arg(&built).arg(&written).output();
        if !compiled.is_ok_and(|output| output.status.success()) {
            return Err(Skipped::because("no static C library; apt-get install gcc libc6-dev"));
        }
        let (code, words) = said(&["--", &built.to_string_lossy(), "argument"].map(OsStr::new));
        assert_eq!(code, Some(8), "{flags:?}: {words}");
        assert!(words.contains("has its MPI linked in statically"), "{flags:?}: {words}");
        assert!(words.contains("link it to the MPI's shared library"), "{flags:?}: {words}");
        assert_eq!(words.lines().count(), 1, "{flags:?}: {words}");
    }
    Ok(())
}

/// The program runs, because it may start programs that have an MPI. The first rank says that the program
/// itself is not served.
fn a_static_program_without_mpi_is_started_and_told_so() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a directory");
    let (written, built) = (directory.path().join("alone.c"), directory.path().join("alone"));
    std::fs::write(&written, "int main(void) { return 5; }\n").expect("a source");
    let compiled = Command::new("cc").args(["-static", "-o"]).arg(&built).arg(&written).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        return Err(Skipped::because("no static C library; apt-get install libc6-dev"));
    }
    for symbols in ["kept", "stripped"] {
        if symbols == "stripped" {
            require::program("strip", "apt-get install binutils")?;
            assert!(Command::new("strip").arg(&built).status().is_ok_and(|status| status.success()));
        }
        let (code, words) = said(&["--", &built.to_string_lossy()].map(OsStr::new));
        assert_eq!(code, Some(5), "{symbols}: {words}");
        assert!(words.contains("has no MPI, and is linked statically"), "{symbols}: {words}");
        assert_eq!(words.lines().count(), 1, "{symbols}: {words}");
    }
    Ok(())
}

/// Each rank would be alone in its world, which programs often do not notice. So the first rank prints a
/// message, and nothing runs.
fn a_launcher_of_another_mpi_is_refused_unless_ranks_are_to_be_alone() -> TestOutcome {
    TestedMpi::OpenMpi.present("any.c")?;
    let built = TestedMpi::Mpich.build("edges.c")?;
    let started = |rank: &str, options: &[&str]| {
        let mut command = Command::new(program::unisono());
        command.arg("mpi").args(options).arg("--").arg(&built).stdin(Stdio::null());
        command.env("OMPI_COMM_WORLD_SIZE", "2").env("OMPI_COMM_WORLD_RANK", rank);
        command.output().expect("it starts")
    };
    for rank in ["0", "1"] {
        let Output { status, stdout, stderr } = started(rank, &[]);
        let words = text(&stderr);
        assert_eq!(status.code(), Some(2), "{words}");
        assert!(stdout.is_empty(), "the program ran: {}", text(&stdout));
        let said = words.contains("mpiexec of openmpi") && words.contains("mpiexec.mpich, or --singleton");
        assert_eq!(said, rank == "0", "rank {rank}: {words}");
    }
    let alone = started("0", &["--singleton"]);
    assert!(text(&alone.stdout).contains("ok edges"), "{}", text(&alone.stderr));
    Ok(())
}

/// A library of an older version lacks functions that the preload calls; one of another build may understand
/// them differently. The program runs without Unisono's windows.
fn a_library_of_another_build_is_named_and_serves_nothing() -> TestOutcome {
    require::program("cc", "apt-get install gcc")?;
    let interface = "unsigned long long unisono_mpi_interface(void) { return 1; }";
    for (more, is_what) in [("", "older"), (interface, "of another build")] {
        let place = tempfile::tempdir().expect("a directory");
        let (program, library) = (place.path().join("unisono"), place.path().join("libunisono.so"));
        std::fs::copy(program::unisono(), &program).expect("a copy of the program");
        let source = place.path().join("library.c");
        std::fs::write(
            &source,
            format!("const char *unisono_version(void) {{ return \"0.1.0\"; }}\n{more}\n"),
        )
        .expect("a source");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        assert!(made.is_ok_and(|made| made.success()));
        for mpi in MPIS {
            let built = mpi.build("fence.c")?;
            let mut command = mpi.launcher(2);
            command.arg(&program).args(["mpi", "--"]).arg(&built).env("XDG_CACHE_HOME", place.path());
            let output = command.output().expect("mpiexec starts because it was found");
            let said = text(&output.stderr);
            let expected = format!(
                "unisono: no windows are served, because {} is {is_what} than this 'unisono mpi'",
                library.display()
            );
            assert_eq!(said.matches(&expected).count(), 1, "{}: {said}", mpi.name());
            assert!(said.contains("replace it by the libunisono.so of the same build"), "{said}");
            verdict("fence", &output).expect("the program runs");
        }
    }
    Ok(())
}

/// Each start exchanges a few lines with MPICH's launcher, and each of these system calls may be interrupted.
fn signals_do_not_disturb_the_start() -> TestOutcome {
    let built = TestedMpi::Mpich.build("signals.c")?;
    for _ in 0..8 {
        let command = &mut TestedMpi::Mpich.with_preload(3, &[OsStr::new("--"), built.as_os_str()]);
        verdict("signals", &command.output().expect("it was found")).expect("the program agrees");
    }
    Ok(())
}

/// Ranks in user namespaces of their own, as in a container for each rank, cannot open each other's memory.
/// Their MPIs can without their faster ways to copy, which the variables turn off.
fn ranks_that_cannot_share_memory_are_left_to_their_mpi() -> TestOutcome {
    require::program("unshare", "apt-get install util-linux")?;
    let allowed = Command::new("unshare").args(["-U", "-r", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return Err(Skipped::because("the kernel allows no user namespaces"));
    }
    for mpi in MPIS {
        let built = mpi.build("shared_locks.c")?;
        let mut command = mpi.launcher(2);
        command.args(["unshare", "-U", "-r"]).arg(program::unisono()).args(["mpi", "--"]).arg(&built);
        command
            .env("UCX_POSIX_USE_PROC_LINK", "n")
            .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
            .env("OMPI_MCA_osc", "^ucx");
        let output = command.output().expect("mpiexec starts because it was found");
        verdict("shared_locks", &output).expect("the program agrees");
        let said = text(&output.stderr);
        assert_eq!(said.matches("cannot map each other's memory").count(), 1, "{}: {said}", mpi.name());
    }
    Ok(())
}

/// Valgrind shows the kernel's auxiliary vector, in which it has hidden the vDSO from the C library alone.
fn a_program_under_valgrind_is_served() -> TestOutcome {
    require::program("valgrind", "apt-get install valgrind")?;
    let built = TestedMpi::Mpich.build("fence.c")?;
    let words = ["--stats", "--", "valgrind", "-q"].map(OsStr::new);
    let arguments: Vec<&OsStr> = words.into_iter().chain([built.as_os_str()]).collect();
    let output = TestedMpi::Mpich.with_preload(2, &arguments).output().expect("it was found");
    verdict("fence", &output).expect("the program agrees");
    let said = text(&output.stderr);
    assert!(said.contains("windows of 2 ranks together"), "{said}");
    Ok(())
}

/// Four ranks would print the same message, so only one does; a rank beside another program prints its own.
fn what_is_missing_for_all_ranks_is_said_once() -> TestOutcome {
    for mpi in MPIS {
        mpi.present("any.c")?;
        let missing = ["mpi", "--", "./nothere"];
        let mut alike = mpi.launcher(4);
        alike.arg(program::unisono()).args(missing);
        let mut beside = mpi.launcher(1);
        beside.args(["sleep", "2", ":", "-n", "1"]).arg(program::unisono()).args(missing);
        for command in [&mut alike, &mut beside] {
            let output = command.output().expect("it was found");
            let said = text(&output.stderr);
            assert_eq!(said.matches("unisono: ./nothere: no such program").count(), 1, "{said}");
            assert!(!output.status.success(), "{said}");
        }
    }
    Ok(())
}

/// The message is one line for all ranks. It also comes from `ls`, which closes standard error before it
/// ends, and from dash, which ends by _exit(2); but not from a shell whose child is the program.
fn a_program_that_never_initializes_mpi_says_at_its_end_that_nothing_changed() -> TestOutcome {
    const WORDS: &str = "ended without MPI_Init; 'unisono mpi' changed nothing for it";
    require::program("bash", "apt-get install bash")?;
    require::program("dash", "apt-get install dash")?;
    for mpi in MPIS {
        mpi.present("any.c")?;
        // one rank if the exit code is not zero, because launchers end the others as soon as one has failed
        for (ranks, started, code) in [
            (3, &["ls", "/dev/null"][..], 0),
            (3, &["env", "ls", "/dev/null"], 0),
            (3, &["dash", "-c", "exec ls /dev/null"], 0),
            (1, &["bash", "-c", "exit 7"], 7),
            (1, &["dash", "-c", "exit 6"], 6),
        ] {
            let arguments: Vec<&OsStr> = ["--"].iter().chain(started).map(OsStr::new).collect();
            let output = mpi.with_preload(ranks, &arguments).output().expect("it was found");
            let words = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{started:?}: {words}");
            let program = if code == 0 { "ls" } else { started[0] };
            assert!(words.contains(&format!("unisono: {program} {WORDS}")), "{started:?}: {words}");
            assert_eq!(words.matches(WORDS).count(), 1, "{started:?}: {words}");
        }
        let files = ["counted.c", "sessions.c", "fortran_2008.f90", "fortran_module.f90", "fortran_77.f"];
        for (number, file) in files.into_iter().enumerate() {
            let built = mpi.build(file)?;
            let line = format!("{}; code=$?; exit $code", built.display());
            let direct = [OsStr::new("--"), built.as_os_str()];
            let started = [&direct[..], &["--", "sh", "-c", &line].map(OsStr::new)];
            for started in started.into_iter().skip(number % one_in(2)).step_by(one_in(2)) {
                let output = mpi.with_preload(2, started).output().expect("it was found");
                assert!(output.status.success(), "{file}: {}", text(&output.stderr));
                assert!(!text(&output.stderr).contains(WORDS), "{file}: {}", text(&output.stderr));
            }
        }
    }
    Ok(())
}

/// `unisono run` starts ranks that no MPI knows: each would be alone in its world, and silently compute a
/// wrong result.
fn ranks_that_no_mpi_started_are_refused_with_what_to_type() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("counted.c")?.to_string_lossy().into_owned();
        let unisono = program::unisono().to_string_lossy().into_owned();
        let on_run = |ranks: &str, started: &[&str]| {
            let mut command = Command::new(&unisono);
            command.args(["run", "-n", ranks, "--"]).args(started).stdin(Stdio::null());
            command.output().expect("it starts")
        };
        let direct = [&unisono, "mpi", "--", &built];
        let line = format!("exec '{unisono}' mpi -- '{built}'");
        for started in [&direct[..], &["sh", "-c", &line]] {
            let Output { status, stdout, stderr } = on_run("2", started);
            let words = text(&stderr);
            assert_eq!(status.code(), Some(2), "{}: {words}", mpi.name());
            assert!(words.contains(&format!("'mpiexec -n 2 unisono mpi -- {built}'")), "{words}");
            assert!(stdout.is_empty(), "the program ran: {}", text(&stdout));
        }
        // ranks without the preload are refused, too
        let refused = on_run("2", &[&built]);
        let words = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{}: {words}", mpi.name());
        assert!(words.contains(&format!("linked to an MPI ({})", mpi.name())), "{words}");
        assert!(words.contains(&format!("'mpiexec -n 2 unisono mpi -- {built}'")), "{words}");
        // a single rank is alone by intention
        let alone = on_run("1", &direct);
        assert!(alone.status.success(), "{}: {}", mpi.name(), text(&alone.stderr));
    }
    Ok(())
}

host_tests![needs Nothing;
    every_one_sided_call_is_taken_over within 300,
    a_profiling_tool_that_is_preloaded_sees_every_call within 120,
    a_profiling_tool_that_is_linked_is_named within 120,
    a_script_may_start_the_program within 120,
    a_program_with_a_run_path_runs within 120,
    a_program_with_its_mpi_linked_in_runs_unserved_and_says_so within 120,
    a_static_program_without_mpi_is_started_and_told_so within 120,
    a_launcher_of_another_mpi_is_refused_unless_ranks_are_to_be_alone within 120,
    a_library_of_another_build_is_named_and_serves_nothing within 120,
    ranks_that_cannot_share_memory_are_left_to_their_mpi within 120,
    a_program_under_valgrind_is_served within 300,
    signals_do_not_disturb_the_start within 120,
    what_is_missing_for_all_ranks_is_said_once within 120,
    a_program_that_never_initializes_mpi_says_at_its_end_that_nothing_changed within 120,
    ranks_that_no_mpi_started_are_refused_with_what_to_type within 120,
];
