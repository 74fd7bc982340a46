//! Tests that no user can choose what another user's programs preload or execute: where the preload and the
//! peers are compiled, and who can write there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use unisono_host_tests::mpi::{MPIS, TestedMpi, verdict};
use unisono_host_tests::processes::{text, words};
use unisono_host_tests::{TestOutcome, host_tests, one_in, program, require};

const NOBODY: u32 = 65_534;

/// Makes a directory for temporary files that every user may write to, such as /tmp.
fn shared() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).expect("it is ours");
    directory
}

/// Copies the program and its library to a place where every user may read them. Returns the program's path
/// there.
fn installed(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).expect("a directory");
    let unisono = program::unisono();
    for file in ["unisono", "libunisono.so"] {
        fs::copy(unisono.with_file_name(file), directory.join(file)).expect("a copy");
    }
    directory.join("unisono")
}

/// Returns a command without a home directory, whose temporary files go to `temporary`.
fn homeless(command: &[&OsStr], temporary: &Path) -> Command {
    let (program, arguments) = command.split_first().expect("a program");
    let mut command = Command::new(program);
    command.args(arguments).env("TMPDIR", temporary).stdin(Stdio::null()).current_dir("/");
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    command
}

/// Returns the path that `unisono mpi --print` prints.
fn printed(mut command: Command) -> PathBuf {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", words(&output));
    PathBuf::from(text(&output.stdout).trim())
}

const PRINT: [&str; 2] = ["mpi", "--print"];

fn print<'a>(before: &[&'a OsStr], unisono: &'a Path) -> Vec<&'a OsStr> {
    before.iter().copied().chain([unisono.as_os_str()]).chain(PRINT.map(OsStr::new)).collect()
}

/// Returns whether a file or directory belongs to `user`, and no other user may write to it.
fn is_private(path: &Path, user: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| !found.is_symlink() && found.uid() == user && found.mode() & 0o022 == 0)
}

fn a_directory_that_another_user_made_first_is_never_compiled_into() -> TestOutcome {
    require::root()?;
    TestedMpi::Mpich.present("any.c")?;
    let temporary = shared();
    let made = ["mpi", "unisono-peers-0", "unisono-cache-0"].map(|name| temporary.path().join(name));
    for directory in &made {
        fs::create_dir(directory).expect("a directory");
        fs::set_permissions(directory, Permissions::from_mode(0o777)).expect("it is ours");
        chown(directory, Some(NOBODY), None).expect("root may");
    }
    let unisono = program::unisono();
    let peer =
        [unisono.as_os_str(), OsStr::new("barrier"), OsStr::new("--implementation"), OsStr::new("pthread")];
    for command in [&print(&[], &unisono)[..], &peer] {
        let output = homeless(command, temporary.path()).output().expect("it starts");
        assert!(!output.status.success(), "{}", words(&output));
        assert!(words(&output).contains("unisono-cache-0 belongs to user 65534"), "{}", words(&output));
        assert!(words(&output).contains("XDG_CACHE_HOME"), "the remedy is missing: {}", words(&output));
    }
    for directory in &made {
        let inside = fs::read_dir(directory).expect("it is still there").count();
        assert_eq!(inside, 0, "{} was used", directory.display());
    }
    Ok(())
}

fn each_user_without_a_home_has_a_cache_of_its_own() -> TestOutcome {
    require::root()?;
    require::program("setpriv", "apt-get install util-linux")?;
    TestedMpi::Mpich.present("any.c")?;
    let (temporary, place) = (shared(), shared());
    let unisono = installed(&place.path().join("bin"));
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(OsStr::new);
    let root = printed(homeless(&print(&[], &unisono), temporary.path()));
    let nobody = printed(homeless(&print(&other, &unisono), temporary.path()));
    assert_ne!(root, nobody);
    for (library, user) in [(&root, 0), (&nobody, NOBODY)] {
        assert!(library.starts_with(temporary.path()), "{}", library.display());
        for path in library.ancestors().take_while(|path| *path != temporary.path()) {
            assert!(is_private(path, user), "{}", path.display());
        }
        let cache = temporary.path().join(format!("unisono-cache-{user}"));
        assert_eq!(fs::metadata(cache).expect("it is there").mode() & 0o777, 0o700);
    }
    // root does not use what the other user has compiled, even if HOME still names the other user's home
    // (sudo -E)
    let home = temporary.path().join("home");
    let of_other: Vec<&OsStr> = other.iter().copied().chain(["mkdir", "-p"].map(OsStr::new)).collect();
    let mut make = homeless(&of_other, temporary.path());
    assert!(make.arg(home.join(".cache/unisono/mpi")).status().expect("it starts").success());
    let mut command = homeless(&print(&[], &unisono), temporary.path());
    command.env("HOME", &home);
    assert_eq!(printed(command), root);
    Ok(())
}

fn what_is_compiled_is_nobody_elses_to_write_whatever_the_umask() -> TestOutcome {
    TestedMpi::Mpich.present("any.c")?;
    let home = tempfile::tempdir().expect("a directory");
    let unisono = program::unisono();
    let open = ["sh", "-c", "umask 000; exec \"$@\"", "sh"].map(OsStr::new);
    let mut command = homeless(&print(&open, &unisono), home.path());
    command.env("XDG_CACHE_HOME", home.path());
    let library = printed(command);
    let user = fs::metadata(&library).expect("it is there").uid();
    for path in library.ancestors().take_while(|path| *path != home.path()) {
        assert!(is_private(path, user), "{}", path.display());
    }
    Ok(())
}

fn a_library_that_others_could_have_written_is_built_anew() -> TestOutcome {
    TestedMpi::Mpich.present("any.c")?;
    let home = tempfile::tempdir().expect("a directory");
    let unisono = program::unisono();
    let built = || {
        let mut command = homeless(&print(&[], &unisono), home.path());
        command.env("XDG_CACHE_HOME", home.path());
        printed(command)
    };
    let library = built();
    let good = fs::read(&library).expect("it is there");
    fs::write(&library, b"another's").expect("it is ours");
    fs::set_permissions(&library, Permissions::from_mode(0o777)).expect("it is ours");
    assert_eq!(built(), library);
    assert!(fs::read(&library).expect("it is there") == good, "the other library is still there");
    Ok(())
}

/// The program is served whatever the paths of the cache and of the program are.
fn paths_with_spaces_colons_and_commas_are_served() -> TestOutcome {
    let place = tempfile::tempdir().expect("a directory");
    let unisono = installed(&place.path().join("a b:c,d"));
    for mpi in MPIS {
        let built = mpi.build("counted.c")?;
        for cache in ["with space", "with:colon", "with,comma"].into_iter().step_by(one_in(3)) {
            let mut command = mpi.launcher(2);
            let arguments: Vec<OsString> = ["mpi", "--stats", "--"]
                .map(OsString::from)
                .into_iter()
                .chain([built.clone().into()])
                .collect();
            command.arg(&unisono).args(arguments).env("XDG_CACHE_HOME", place.path().join(cache));
            command.env("TMPDIR", place.path());
            let output = command.output().expect("it was found");
            verdict("counted", &output).expect("the program agrees");
            let said = words(&output);
            assert!(said.contains("fence") && !said.contains("cannot be preloaded"), "{cache}: {said}");
        }
    }
    Ok(())
}

host_tests![needs Nothing;
    a_directory_that_another_user_made_first_is_never_compiled_into within 120,
    each_user_without_a_home_has_a_cache_of_its_own within 120,
    what_is_compiled_is_nobody_elses_to_write_whatever_the_umask within 120,
    a_library_that_others_could_have_written_is_built_anew within 120,
    paths_with_spaces_colons_and_commas_are_served within 300,
];
