//! The part of the build scripts of this crate and of the laboratory that lists their study files.

use std::path::Path;
use std::{env, fs, io};

/// Writes a list of the files in `studies/`, in the order of their names.
pub(crate) fn write_list() -> io::Result<()> {
    println!("cargo::rerun-if-changed=studies");
    // the variable is read when the build script runs: a script that was built in another folder must not
    // list the files there
    let folder = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("studies");
    let files = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = files.iter().map(|file| (file.file_name(), file.path())).collect();
    files.retain(|(name, _)| Path::new(name).extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let entries = files.iter().map(|(name, path)| format!("    ({name:?}, include_str!({path:?})),\n"));
    let entries: String = entries.collect();
    let out = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("studies.rs");
    fs::write(out, format!("const FILES: &[(&str, &str)] = &[\n{entries}];\n"))
}
