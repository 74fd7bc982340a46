//! Finds compilers and builds peers with them, once.
//!
//! A built program is cached under a key computed from all its inputs: source, headers, flags and the
//! compiler's version. A new compiler or a changed source gives another key, so the cache never needs to be
//! invalidated. Each build has its own directory, which is moved into the cache at the end, so two processes
//! may build at the same time.

use super::catalogue::{CompilerName, PeerProgram, files_beside};
use super::{Error, write};
use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use unisono_linux::private_directory::is_own_file;

#[derive(Clone, Debug)]
pub(crate) struct BuiltPeer {
    pub executable: PathBuf,
    pub version: String,
}

#[derive(Clone, Debug)]
pub(crate) struct PeerBuildFailure {
    /// For example `clang not found`.
    pub reason: String,
    /// For example `apt install clang libomp-dev`.
    pub remedy: String,
}

/// The peers that may be compiled if the cache has no binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerBuilds {
    /// Peers that a compiler builds in a second.
    Short,
    /// All peers, including peers that Cargo builds from crates, in minutes and from the network.
    All,
}

#[derive(Debug)]
pub(crate) struct Toolbox {
    cache: PathBuf,
    builds: PeerBuilds,
    found: HashMap<CompilerName, Option<Compiler>>,
    built: HashMap<u64, Result<BuiltPeer, PeerBuildFailure>>,
}

#[derive(Clone, Debug)]
struct Compiler {
    name: CompilerName,
    path: PathBuf,
    version: String,
}

const COMMON_FLAGS: &[&str] = &["-O2", "-w"];
const LIBRARIES: &[&str] = &["-lm"];

impl Toolbox {
    pub(crate) fn new(cache: &Path, builds: PeerBuilds) -> Self {
        Self { cache: cache.to_owned(), builds, found: HashMap::new(), built: HashMap::new() }
    }

    /// Builds a peer, or takes it from the cache. The inner error is the reason why this host cannot build
    /// it.
    pub(crate) fn build(
        &mut self,
        peer: &PeerProgram,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Result<BuiltPeer, PeerBuildFailure>, Error> {
        let remedy = peer.remedy.to_owned();
        let Some(compiler) = peer.compilers.iter().find_map(|name| self.find(*name)) else {
            let names: Vec<&str> = peer.compilers.iter().map(|name| name.name()).collect();
            return Ok(Err(PeerBuildFailure { reason: format!("{} not found", names.join(" or ")), remedy }));
        };
        let key = key(peer, &compiler);
        if let Some(known) = self.built.get(&key) {
            return Ok(known.clone());
        }
        let directory = self.cache.join(format!("{key:016x}"));
        let built = BuiltPeer { executable: directory.join("program"), version: compiler.version.clone() };
        let result = if is_own_file(&built.executable) {
            Ok(built)
        } else if compiler.name == CompilerName::Cargo && self.builds == PeerBuilds::Short {
            let reason = "it is built from crates, which takes minutes".to_owned();
            let remedy = "run its study without --smoke once".to_owned();
            return Ok(Err(PeerBuildFailure { reason, remedy }));
        } else {
            let longer = if compiler.name == CompilerName::Cargo { ": minutes, once" } else { "" };
            progress(&format!("compiling {} with {}{longer}", peer.source.file, compiler.path.display()));
            compile(peer, &compiler, &directory)?
                .map(|()| built)
                .map_err(|reason| PeerBuildFailure { reason, remedy })
        };
        self.built.insert(key, result.clone());
        Ok(result)
    }

    fn find(&mut self, name: CompilerName) -> Option<Compiler> {
        self.found.entry(name).or_insert_with(|| find(name)).clone()
    }
}

/// Searches `PATH` for the compiler's command, then for names with a version: `clang`, `clang-30`,
/// `clang-29`, ...
fn find(name: CompilerName) -> Option<Compiler> {
    let command = name.name();
    let path = std::env::var_os("PATH")?;
    let versioned = (9..=30).rev().map(|version| format!("{command}-{version}"));
    for file in std::iter::once(command.to_owned()).chain(versioned) {
        for candidate in std::env::split_paths(&path).map(|directory| directory.join(&file)) {
            if !candidate.is_file() {
                continue;
            }
            let Ok(output) = Command::new(&candidate).arg("--version").output() else { continue };
            let text = String::from_utf8_lossy(&output.stdout);
            if let (true, Some(version)) = (output.status.success(), text.lines().next()) {
                return Some(Compiler { name, path: candidate, version: version.trim().to_owned() });
            }
        }
    }
    None
}

/// Returns the cache key. Another release of Rust may hash differently; then peers are built again.
fn key(peer: &PeerProgram, compiler: &Compiler) -> u64 {
    let mut hasher = DefaultHasher::new();
    for source in files_beside(compiler.name).chain(std::iter::once(&peer.source)) {
        (source.file, source.text).hash(&mut hasher);
    }
    (peer.flags, COMMON_FLAGS, LIBRARIES, &compiler.path, &compiler.version).hash(&mut hasher);
    hasher.finish()
}

/// Compiles a peer into `directory`. The inner error is the compiler's message.
fn compile(peer: &PeerProgram, compiler: &Compiler, directory: &Path) -> Result<Result<(), String>, Error> {
    // unique among threads and processes that share the cache
    static BUILDS: AtomicU64 = AtomicU64::new(0);
    let build = BUILDS.fetch_add(1, Relaxed);
    let beside = directory.with_extension(format!("{}-{build}.part", std::process::id()));
    let failed = |source| Error::Io { what: format!("write {}", beside.display()), source };
    fs::create_dir_all(&beside).map_err(failed)?;
    for source in files_beside(compiler.name).chain(std::iter::once(&peer.source)) {
        write(&beside.join(source.file), source.text)?;
    }
    let output = command(peer, compiler)
        .current_dir(&beside)
        .output()
        .map_err(|source| Error::Io { what: format!("run {}", compiler.path.display()), source })?;
    if output.status.success() && compiler.name == CompilerName::Cargo {
        let built = peer.source.file.trim_end_matches(".rs");
        fs::rename(beside.join("target/release").join(built), beside.join("program")).map_err(failed)?;
        fs::remove_dir_all(beside.join("target")).map_err(failed)?;
    }
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let line = stderr
            .lines()
            .find(|line| line.contains("error") || line.contains("cannot find"))
            .unwrap_or("it said nothing");
        fs::remove_dir_all(&beside).map_err(failed)?;
        let line = line.trim().trim_end_matches('.');
        return Ok(Err(format!("{} cannot build it: {line}", compiler.version)));
    }
    // another process may have been faster; its program is the same
    if fs::rename(&beside, directory).is_err() {
        fs::remove_dir_all(&beside).map_err(failed)?;
    }
    Ok(Ok(()))
}

/// Returns the command that builds `program`. Cargo names its output differently; the caller renames it.
fn command(peer: &PeerProgram, compiler: &Compiler) -> Command {
    let mut command = Command::new(&compiler.path);
    if compiler.name == CompilerName::Cargo {
        command
            .args(["build", "--release", "--locked", "--quiet", "--target-dir", "target"])
            .args(peer.flags);
    } else {
        command.args(COMMON_FLAGS).args(peer.flags);
        command.args([peer.source.file, "-o", "program"]).args(LIBRARIES);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerKind;
    use crate::peer::catalogue::PeerSource;

    fn peer(text: &'static str) -> PeerProgram {
        PeerProgram {
            name: "test",
            kind: PeerKind::Barrier,
            compilers: &[CompilerName::Gcc, CompilerName::Clang],
            flags: &[],
            source: PeerSource { file: "test.c", text },
            environment: &[],
            remedy: "apt install gcc",
        }
    }

    #[test]
    fn a_source_is_compiled_once_and_a_changed_one_again() {
        let cache = tempfile::tempdir().expect("a directory");
        let mut compiled = 0;
        for text in
            ["int main(void) { return 0; }", "int main(void) { return 0; }", "int main(void) { return 1; }"]
        {
            // a separate toolbox, as another process would have
            let built = Toolbox::new(cache.path(), PeerBuilds::Short)
                .build(&peer(text), &mut |_| compiled += 1)
                .expect("a cache");
            match built {
                Ok(built) => assert!(built.executable.is_file()),
                Err(why) if why.reason.ends_with("not found") => return,
                Err(why) => panic!("{}", why.reason),
            }
        }
        assert_eq!(compiled, 2);
    }

    #[test]
    fn a_program_from_crates_is_not_built_where_only_short_builds_are_allowed() {
        let cache = tempfile::tempdir().expect("a directory");
        let peer = PeerProgram { compilers: &[CompilerName::Cargo], ..peer("fn main() {}") };
        let mut notes = Vec::new();
        let built = Toolbox::new(cache.path(), PeerBuilds::Short)
            .build(&peer, &mut |text| notes.push(text.to_owned()))
            .expect("a cache");
        assert!(built.expect_err("not built").reason.contains("minutes") && notes.is_empty());
        assert_eq!(fs::read_dir(cache.path()).map_or(0, Iterator::count), 0);
    }

    #[test]
    fn what_does_not_compile_is_unavailable_with_the_compilers_words() {
        let cache = tempfile::tempdir().expect("a directory");
        let why = Toolbox::new(cache.path(), PeerBuilds::Short)
            .build(&peer("#include <nowhere.h>\n"), &mut |_| ())
            .expect("a cache")
            .expect_err("not built");
        assert!(why.reason.contains("nowhere.h") || why.reason.contains("not found"), "{}", why.reason);
        assert_eq!(fs::read_dir(cache.path()).map_or(0, Iterator::count), 0, "nothing is left behind");
    }
}
