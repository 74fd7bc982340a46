//! The switch program as instructions: compiled by the host's clang when it is wanted.
//!
//! The source lies in this crate, so that an installed `unisono` needs no source tree, and building Unisono needs no
//! clang: only running a data plane does (docs/decisions/0009). Cost: a tenth of a second a deployment.

use crate::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const SOURCE: &str = include_str!("switch.bpf.c");
const OBJECT: &str = "switch.o";
/// Shared with user space; see [`crate::layout`].
pub(crate) const HEADER: &str = include_str!("intf.h");

/// Compiles the switch program; answers an object file.
///
/// # Errors
/// No clang or no headers of libbpf: [`Error::Host`] says what to install.
pub fn compile() -> Result<Vec<u8>, Error> {
    Compiling::start()?.finish()
}

/// clang at work, while others do theirs.
#[derive(Debug)]
pub struct Compiling {
    clang: Child,
    place: tempfile::TempDir,
}

impl Compiling {
    /// Starts clang.
    ///
    /// # Errors
    /// There is none: [`Error::Host`] says what to install.
    pub fn start() -> Result<Self, Error> {
        let Some(clang) = unisono_linux::capability::on_path("clang") else {
            return Err(Error::Host(
                "no clang on PATH, which compiles the switch program: apt-get install clang libbpf-dev"
                    .to_owned(),
            ));
        };
        let place = tempfile::tempdir().map_err(Error::io("make a directory to compile in"))?;
        for (name, text) in [("switch.bpf.c", SOURCE), ("intf.h", HEADER)] {
            fs::write(place.path().join(name), text).map_err(Error::io("write the switch program"))?;
        }
        let mut command = Command::new(clang);
        // v3 has compare-and-swap; no debugging information, because nothing reads it
        command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g0", "-Wall", "-Werror", "-c", "switch.bpf.c"]);
        command.args(["-o", OBJECT]).current_dir(place.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        for directory in architectures() {
            command.arg("-idirafter").arg(directory);
        }
        let clang = command.spawn().map_err(Error::io("start clang"))?;
        Ok(Self { clang, place })
    }

    /// Waits for it; answers an object file.
    ///
    /// # Errors
    /// No headers of libbpf: [`Error::Host`] says what to install.
    pub fn finish(self) -> Result<Vec<u8>, Error> {
        let output = self.clang.wait_with_output().map_err(Error::io("wait for clang"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().find(|line| line.contains("error")).unwrap_or("without saying why");
            return Err(Error::Host(format!(
                "clang does not compile the switch program ({line}); if a header is missing: apt-get install libbpf-dev"
            )));
        }
        fs::read(self.place.path().join(OBJECT)).map_err(Error::io("read the compiled switch program"))
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
