//! `unisono-fit` for images of containers: a static program, which needs no shared C library and runs on
//! Alpine, too, and a Containerfile that makes an image of it. It is linked with musl where Rust's standard
//! library for musl is installed, otherwise with this machine's glibc: the program calls nothing that a
//! static glibc cannot do (name services, dlopen).

use super::processor::{TargetProcessor, missing_library};
use super::release::{Release, VERSION, template};
use super::run_quietly;
use super::toolchain::{self, StaticLibrary};
use crate::step::StepVerdict;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the program, and writes it with its Containerfile.
pub(super) fn make(release: &Release) -> anyhow::Result<PathBuf> {
    let processor = release.processor;
    let library = StaticLibrary::installed(processor)?;
    let library = library.with_context(|| missing_library(processor.static_target()))?;
    println!("the program is linked with {}", library.name());
    let built = toolchain::build_static("unisono-fit-alone", processor, library)?.join("unisono-fit");
    let file = program(&release.dist, processor);
    fs::copy(&built, &file).with_context(|| built.display().to_string())?;
    let name = program(Path::new(""), TargetProcessor::X86_64).display().to_string();
    let text = template("Containerfile", &[("PROGRAM", &name), ("VERSION", VERSION)])?;
    fs::write(release.dist.join("Containerfile"), text).context("the Containerfile")?;
    Ok(file)
}

pub(super) fn program(dist: &Path, processor: TargetProcessor) -> PathBuf {
    dist.join(format!("unisono-fit-{VERSION}-linux-{}", processor.name()))
}

/// Makes an image of the program, makes another image that copies the program from the first, as the
/// Containerfile says, and runs it in a container that may use one processor.
pub(super) fn trial(dist: &Path) -> StepVerdict {
    match answer_in_container(dist) {
        Ok(answer) if answer["effective_processors"] == 1 => {
            println!("in a container with a quota of 1: {}", answer["because"]);
            StepVerdict::passed(1)
        }
        Ok(answer) => StepVerdict::failed(format!("it does not see the quota of its container: {answer}")),
        Err(error) => StepVerdict::failed(format!("{error:#}")),
    }
}

fn answer_in_container(dist: &Path) -> anyhow::Result<Value> {
    let file = program(dist, TargetProcessor::X86_64);
    let interpreter = run_quietly(Command::new("readelf").args(["--program-headers", "--wide"]).arg(&file))?;
    ensure!(!String::from_utf8_lossy(&interpreter).contains("INTERP"), "the program is not static");
    let bundle = tempfile::tempdir().context("a temporary directory")?;
    write_root(dist, bundle.path())?;
    run_quietly(Command::new("runc").arg("spec").current_dir(bundle.path()))?;
    let file = bundle.path().join("config.json");
    let text = fs::read_to_string(&file).context("config.json")?;
    let mut config: Value = serde_json::from_str(&text).context("config.json")?;
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["unisono-fit", "--dry-run", "--json", "--", "unisono-fit"]);
    config["linux"]["resources"]["cpu"] = json!({"quota": 100_000, "period": 100_000});
    fs::write(&file, config.to_string()).context("config.json")?;
    let name = format!("unisono-fit-{}", std::process::id());
    let output = run_quietly(Command::new("runc").args(["run", &name]).current_dir(bundle.path()))?;
    serde_json::from_slice(&output).context("what the program printed")
}

/// Unpacks the second image into `rootfs`, where an OCI bundle has its files.
fn write_root(dist: &Path, bundle: &Path) -> anyhow::Result<()> {
    let image = format!("unisono-fit:{VERSION}");
    let images = bundle.join("images");
    let build = |tag: &str, folder: &Path, output: &[String]| {
        let mut buildah = Command::new("buildah");
        // the vfs driver avoids an overlay on an overlay, and a store of its own leaves root's images alone
        buildah.args(["--storage-driver", "vfs", "--root"]).arg(images.join("store"));
        buildah.arg("--runroot").arg(images.join("run")).args([
            "build",
            "--isolation",
            "chroot",
            "--tag",
            tag,
        ]);
        buildah.args(output).arg("--file").arg(folder.join("Containerfile")).arg(folder);
        run_quietly(&mut buildah)
    };
    build(&image, dist, &[])?;
    let other = bundle.join("other");
    fs::create_dir(&other).context("a directory")?;
    let text =
        format!("FROM scratch\nCOPY --from=localhost/{image} /unisono-fit /usr/local/bin/unisono-fit\n");
    fs::write(other.join("Containerfile"), text).context("a Containerfile")?;
    let to = format!("type=local,dest={}", bundle.join("rootfs").display());
    build("other", &other, &["--output".to_owned(), to]).map(|_| ())
}
