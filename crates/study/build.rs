//! Puts the built-in studies and the commit into the build. The commit is `unknown` without git or outside a
//! repository.

mod study_files;

use std::io;
use std::path::Path;
use std::process::Command;

fn main() -> io::Result<()> {
    study_files::write_list()?;
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
