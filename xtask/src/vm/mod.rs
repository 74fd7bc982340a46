//! `cargo xtask vm`: runs host tests on a newer kernel than this machine's, in a virtual machine.
//!
//! ```text
//!   the mirror apt uses --> Debian unstable's cloud kernel (kept in target/vm)  --+
//!   the test program, what it is linked to, this program as /init --> initramfs --+--> qemu --> its output
//! ```
//!
//! The machine runs on the host's processors where it may (KVM), and is emulated otherwise
//! (`accelerator.rs`). Its results are true; its times mean nothing where it is emulated. Cost: 16 MB of
//! package lists and 37 MB of packages once, then some seconds to boot.

mod accelerator;
mod guest;
mod image;
mod kernel;

pub(crate) use guest::{is_guest, run as run_guest};

use crate::step::{StepOutput, StepVerdict, TimedStep};
use crate::summary::StepSummary;
use crate::test_output;
use accelerator::Accelerator;
use anyhow::{Context, ensure};
use image::Image;
use kernel::UnpackedKernel;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use unisono_enforce::kernel::discipline::FAIRQUEUE;
use unisono_host_tests::program::{target, workspace};
use unisono_linux::bpf::compile::compile;

const QEMU: &str = "qemu-system-x86_64";
/// Modules that the tests need; the modules that these need are added.
const MODULES: &[&str] = &["veth", "sch_ingress", "cls_bpf", "sch_htb"];
/// For the whole run: generous, because only a hang may meet it.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Why there can be no machine here, or what went wrong.
enum Unable {
    Skip(String),
    Fail(anyhow::Error),
}

impl From<anyhow::Error> for Unable {
    fn from(error: anyhow::Error) -> Self {
        Self::Fail(error)
    }
}

/// Runs the tests that need a newer kernel. Answers whether none failed.
pub(crate) fn run(filters: &[&str]) -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("a newer kernel, in a virtual machine", || step(filters));
    Ok(summary.conclude())
}

/// The same as one step among others.
pub(crate) fn step(filters: &[&str]) -> StepVerdict {
    match test(filters) {
        Ok(verdict) => verdict,
        Err(Unable::Skip(reason)) => StepVerdict::skipped(reason),
        Err(Unable::Fail(error)) => StepVerdict::failed(format!("{error:#}")),
    }
}

fn test(filters: &[&str]) -> Result<StepVerdict, Unable> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Unable::Skip("the machine is made for x86_64 only".to_owned()));
    }
    for (program, package) in [(QEMU, "qemu-system-x86"), ("clang", "clang libbpf-dev")] {
        if !Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return Err(Unable::Skip(format!("no {program}: apt-get install {package}")));
        }
    }
    let object = compile(FAIRQUEUE).context("the program that is tested")?;
    let kernel =
        UnpackedKernel::get(&target().join("vm")).map_err(|error| Unable::Skip(format!("{error:#}")))?;
    println!("Linux {}", kernel.release);
    let program = build("queue_bpf")?;

    let mut image = Image::default();
    let own = std::env::current_exe().context("where this program is")?;
    image.program("/init", &own)?;
    image.program("/test", &program)?;
    image.file("/objects/fairqueue.bpf.o", &object);
    for (at, module) in kernel.modules(MODULES)?.iter().enumerate() {
        image.file(&format!("{}/{at:02}.ko", guest::MODULES), module);
    }
    let arguments: Vec<&str> = [&["/test"], filters].concat();
    image.file(guest::COMMAND, arguments.join("\n").as_bytes());
    image.file(guest::ENVIRONMENT, b"UNISONO_BPF_OBJECTS=/objects\nRUST_BACKTRACE=1\n");
    let scratch = tempfile::tempdir().context("a temporary directory")?;
    let initramfs = scratch.path().join("initramfs");
    std::fs::write(&initramfs, image.finish()).context("write the initramfs")?;
    Ok(boot(&kernel, &initramfs)?)
}

fn boot(kernel: &UnpackedKernel, initramfs: &Path) -> anyhow::Result<StepVerdict> {
    let mut machine = machine(kernel, Accelerator::choose(kernel));
    machine.arg("-initrd").arg(initramfs);
    let StepOutput { hung, lines, .. } = TimedStep::new(QEMU, machine).within(PATIENCE).run()?;
    let mut verdict = test_output::read(&lines);
    let ended = lines.iter().find_map(|line| line.strip_prefix(guest::ENDED));
    if let Some(hung) = hung {
        verdict.failed += 1;
        verdict.failures.push(hung);
    } else if ended != Some("0") && (verdict.failed == 0 || ended.is_none_or(|said| said.contains(' '))) {
        verdict.failed += 1;
        verdict.failures.push(match ended {
            Some(said) => format!("the tests ended otherwise than they should: {said}"),
            None => "the machine ended before the tests did".to_owned(),
        });
    }
    Ok(verdict)
}

/// Two processors and 1 GiB; a console, no network and no disk. It ends where it would start again.
fn machine(kernel: &UnpackedKernel, accelerator: Accelerator) -> Command {
    let mut machine = Command::new(QEMU);
    machine.args(["-accel", accelerator.name(), "-cpu", "max", "-smp", "2", "-m", "1024", "-nic", "none"]);
    machine.args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot"]);
    machine.arg("-kernel").arg(&kernel.image);
    // The kernel's check of its timer takes a slow host for a broken one. Nobody attacks the machine, and
    // what protects it from attacks is slow where it is emulated.
    machine.args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off rdinit=/init"]);
    machine
}

/// Builds a host test. Answers where its program is.
fn build(test: &str) -> anyhow::Result<PathBuf> {
    let mut cargo = unisono_host_tests::program::cargo();
    // of the whole workspace, as `cargo xtask test` builds it: nothing is compiled again
    cargo.args(["test", "--locked", "--workspace", "--test", test, "--no-run"]);
    cargo.args(["--message-format", "json"]).current_dir(workspace());
    let output = cargo.output().context("start cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let ours = message["target"]["name"] == test;
        message["executable"].as_str().filter(|_| ours).map(PathBuf::from)
    });
    program.with_context(|| format!("cargo did not say where it put {test}"))
}
