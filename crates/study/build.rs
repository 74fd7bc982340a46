//! Puts the built-in studies and the commit into the build. The commit is `unknown` without git or outside a
//! repository.

use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    studies()?;
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map_or_else(
        || "unknown".to_owned(),
        |commit| {
            let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
            if changed { format!("{commit}+changes") } else { commit }
        },
    );
    println!("cargo::rustc-env=UNISONO_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    // HEAD names the branch, the log of HEAD changes with every commit
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|p| Path::new(p).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    Ok(())
}

/// Writes a list of the files in `studies/`, in the order of their names.
fn studies() -> io::Result<()> {
    println!("cargo::rerun-if-changed=studies");
    // read when it runs: a build that was copied from another folder must not list the files there
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
