//! `unisono fit --oci-runtime RUNTIME`: adds the variables to a container's configuration, and becomes the
//! OCI runtime.
//!
//! A container has to start even where its configuration cannot be changed. So a failure is reported on
//! standard error, and the runtime starts nevertheless.

use super::Args;
use crate::exit::{Failure, print_error};
use crate::output;
use anyhow::Context as _;
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use unisono_fit::{Setting, oci};
use unisono_linux::quota;

pub(super) fn run(args: &Args, runtime: &Path) -> anyhow::Result<ExitCode> {
    let set = oci::created_bundle(&args.command).map(|bundle| fit_bundle(&bundle, args.dry_run));
    match set.transpose() {
        Ok(set) if args.dry_run => {
            for Setting { name, value, why } in set.unwrap_or_default() {
                output::answer(&format!("{name}={value}: {why}"))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Ok(_) => {}
        Err(error) if args.dry_run => return Err(error),
        // a container engine shows the runtime's standard error to its user
        Err(error) => print_error(&format!("the container starts without fit: {error:#}")),
    }
    let error = Command::new(runtime).args(&args.command).exec();
    Err(Failure::Usage(format!("cannot start {}: {error}", runtime.display())).into())
}

/// Adds the variables to the bundle's `config.json`, which is replaced atomically.
fn fit_bundle(bundle: &Path, dry_run: bool) -> anyhow::Result<Vec<Setting>> {
    let path = bundle.join("config.json");
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut config: Value =
        serde_json::from_slice(&text).with_context(|| format!("cannot read {}", path.display()))?;
    let set = oci::fit_container(&mut config, &quota::limits()?);
    if set.is_empty() || dry_run {
        return Ok(set);
    }
    let beside = bundle.join(format!("config.json.unisono-{}", std::process::id()));
    let written = fs::write(&beside, config.to_string())
        .and_then(|()| fs::set_permissions(&beside, fs::metadata(&path)?.permissions()))
        .and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // a file written in part is useless; the caller gets the write's error, not this one
        let _ = fs::remove_file(&beside);
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(set)
}
