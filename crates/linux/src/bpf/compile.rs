//! Our programs as instructions: compiled by the host's clang when they are wanted.
//!
//! The sources lie in the program, so that an installed `unisono` needs no source tree, and building Unisono
//! needs no clang: only running them does (docs/decisions/0009). Cost: a tenth of a second a program.

use super::NotLoaded;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const OBJECT: &str = "program.o";

#[derive(Clone, Copy, Debug)]
pub struct CSource {
    /// What an error calls the program.
    pub what: &'static str,
    /// Name and text of the file to compile, and then of those that it includes.
    pub files: &'static [(&'static str, &'static str)],
}

/// Why a program does not run in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// This host lacks something; says what, and how to get it.
    #[error("{0}")]
    Host(String),
    /// clang made something that is not understood.
    #[error("what clang made of a program is not understood: {0}; please report this as a bug")]
    Object(String),
    #[error(transparent)]
    Refused(#[from] NotLoaded),
    /// The system refused something else.
    #[error("cannot {what}: {error}")]
    System {
        what: String,
        #[source]
        error: io::Error,
    },
}

impl ProgramError {
    /// Says what was tried when the system refused.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }
}

/// A file for programs that loop (`repeat(i, n)`); they list it among their files.
pub const REPEAT: (&str, &str) = ("repeat.h", include_str!("repeat.h"));

/// Where object files are that were compiled elsewhere, for machines that may not have a compiler.
const OBJECTS: &str = "UNISONO_BPF_OBJECTS";

/// Compiles a program; answers an object file. Where the environment names a directory of object files that
/// were compiled elsewhere (`UNISONO_BPF_OBJECTS`), it is taken from there. Without clang or the headers of
/// libbpf, [`ProgramError::Host`] says what to install.
pub fn compile(source: CSource) -> Result<Vec<u8>, ProgramError> {
    let Some(directory) = std::env::var_os(OBJECTS) else {
        return Compiling::start(source)?.finish();
    };
    let path = PathBuf::from(directory).join(source.files[0].0).with_extension("o");
    fs::read(&path).map_err(ProgramError::io(format!("read {} ({OBJECTS})", path.display())))
}

/// clang at work, while others do theirs.
#[derive(Debug)]
pub struct Compiling {
    what: &'static str,
    clang: Child,
    place: tempfile::TempDir,
}

impl Compiling {
    /// Starts clang. Without clang, [`ProgramError::Host`] says what to install.
    pub fn start(source: CSource) -> Result<Self, ProgramError> {
        let CSource { what, files } = source;
        let Some(clang) = crate::programs::clang() else {
            return Err(ProgramError::Host(format!(
                "no clang on PATH, which compiles {what}: apt-get install clang libbpf-dev"
            )));
        };
        let place = tempfile::tempdir().map_err(ProgramError::io("make a directory to compile in"))?;
        for (name, text) in files {
            fs::write(place.path().join(name), text).map_err(ProgramError::io(format!("write {what}")))?;
        }
        let mut command = Command::new(clang);
        // v3 has compare-and-swap; no debugging information, because nothing reads it
        command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g0", "-Wall", "-Werror", "-c", files[0].0]);
        command.args(["-o", OBJECT]).current_dir(place.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        for directory in architectures() {
            command.arg("-idirafter").arg(directory);
        }
        let clang = command.spawn().map_err(ProgramError::io("start clang"))?;
        Ok(Self { what, clang, place })
    }

    /// Waits for it; answers an object file. Without the headers of libbpf, [`ProgramError::Host`] says what
    /// to install.
    pub fn finish(self) -> Result<Vec<u8>, ProgramError> {
        let output = self.clang.wait_with_output().map_err(ProgramError::io("wait for clang"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().find(|line| line.contains("error")).unwrap_or("without saying why");
            return Err(ProgramError::Host(format!(
                "clang does not compile {} ({line}); if a header is missing: apt-get install libbpf-dev",
                self.what
            )));
        }
        fs::read(self.place.path().join(OBJECT))
            .map_err(ProgramError::io(format!("read {} as compiled", self.what)))
    }
}

/// Where Debian keeps `asm/types.h`, which clang looks for only when it compiles for the host itself.
fn architectures() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/usr/include") else { return Vec::new() };
    let directories = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = directories.filter(|path| path.join("asm/types.h").exists()).collect();
    found.sort();
    found
}
