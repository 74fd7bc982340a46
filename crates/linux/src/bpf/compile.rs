//! Compiles our BPF programs with the host's clang when they are needed.
//!
//! The sources are embedded in the program, so an installed `unisono` needs no source tree. Building Unisono
//! needs no clang; only running these programs does (docs/decisions/0009). Cost: a tenth of a second per
//! program.

use super::NotLoaded;
use crate::private_directory;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const OBJECT: &str = "program.o";

#[derive(Clone, Copy, Debug)]
pub struct CSource {
    /// The program's description in error messages.
    pub what: &'static str,
    /// Name and text of the file to compile, followed by the files that it includes.
    pub files: &'static [(&'static str, &'static str)],
}

/// The reason why a program cannot run in the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// This host lacks a requirement; the text names it and how to get it.
    #[error("{0}")]
    Host(String),
    /// clang's output is not understood.
    #[error("what clang made of a program is not understood: {0}; please report this as a bug")]
    Object(String),
    #[error(transparent)]
    Refused(#[from] NotLoaded),
    /// Another system call failed.
    #[error("cannot {what}: {error}")]
    System {
        what: String,
        #[source]
        error: io::Error,
    },
}

impl ProgramError {
    /// Makes an error that describes the failed action.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }
}

/// A header for programs with loops (`repeat(i, n)`); such a program lists it among its files.
pub const REPEAT: (&str, &str) = ("repeat.h", include_str!("repeat.h"));

/// Names a directory of object files that were compiled elsewhere, for machines that may not have a compiler.
const OBJECTS: &str = "UNISONO_BPF_OBJECTS";

/// Compiles a program and returns the object file. If the environment variable `UNISONO_BPF_OBJECTS` names a
/// directory of object files that were compiled elsewhere, the object file is read from there. Without clang
/// or the headers of libbpf, [`ProgramError::Host`] names the packages to install.
pub fn compile(source: CSource) -> Result<Vec<u8>, ProgramError> {
    let Some(directory) = std::env::var_os(OBJECTS) else {
        return Compiling::start(source)?.finish();
    };
    let path = PathBuf::from(directory).join(source.files[0].0).with_extension("o");
    fs::read(&path).map_err(ProgramError::io(format!("read {} ({OBJECTS})", path.display())))
}

/// A running clang; the caller can do other work in the meantime.
#[derive(Debug)]
pub struct Compiling {
    what: &'static str,
    clang: Child,
    place: tempfile::TempDir,
}

impl Compiling {
    /// Starts clang. Without clang, [`ProgramError::Host`] names the packages to install.
    pub fn start(source: CSource) -> Result<Self, ProgramError> {
        let CSource { what, files } = source;
        let Some(clang) = crate::programs::clang() else {
            return Err(ProgramError::Host(format!(
                "no clang on PATH, which compiles {what}: apt-get install clang libbpf-dev"
            )));
        };
        let place = private_directory::temporary("unisono-bpf-");
        let place = place.map_err(ProgramError::io("make a directory to compile in"))?;
        for (name, text) in files {
            fs::write(place.path().join(name), text).map_err(ProgramError::io(format!("write {what}")))?;
        }
        let mut command = Command::new(clang);
        // v3 has compare-and-swap; no debugging information, because no tool reads it
        command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g0", "-Wall", "-Werror", "-c", files[0].0]);
        command.args(["-o", OBJECT]).current_dir(place.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        for directory in architectures() {
            command.arg("-idirafter").arg(directory);
        }
        let clang = command.spawn().map_err(ProgramError::io("start clang"))?;
        Ok(Self { what, clang, place })
    }

    /// Waits for clang and returns the object file. Without the headers of libbpf, [`ProgramError::Host`]
    /// names the packages to install.
    pub fn finish(self) -> Result<Vec<u8>, ProgramError> {
        let output = self.clang.wait_with_output().map_err(ProgramError::io("wait for clang"))?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr);
            let line = output.lines().find(|line| line.contains("error")).unwrap_or("without saying why");
            return Err(ProgramError::Host(format!(
                "clang does not compile {} ({line}); if a header is missing: apt-get install libbpf-dev",
                self.what
            )));
        }
        fs::read(self.place.path().join(OBJECT))
            .map_err(ProgramError::io(format!("read {} as compiled", self.what)))
    }
}

/// Returns the directories where Debian keeps `asm/types.h`; clang searches them only when it compiles for
/// the host itself.
fn architectures() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/usr/include") else { return Vec::new() };
    let directories = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = directories.filter(|path| path.join("asm/types.h").exists()).collect();
    found.sort();
    found
}
