//! `cargo xtask vm`: runs tests on other kernels than this machine's, in a virtual machine: host tests on a
//! newer kernel (this file), and the tests of the kernel's readers on several kernels (`kernels.rs`).
//!
//! ```text
//!   apt's mirror --> a cloud kernel of Debian (kept in target/vm)                 --+
//!   test programs and the programs that they start, this one as /init --> initramfs +--> qemu --> its output
//! ```
//!
//! The machine runs on the host's processors if possible (KVM); otherwise it is emulated (`accelerator.rs`).
//! Its test results are valid either way, but the times of an emulated machine do not apply to real
//! processors. Cost: once 16 MB of package lists and 37 MB of packages (and a newer QEMU, see `qemu.rs`),
//! then some seconds to boot each time.

mod accelerator;
mod apt;
mod guest;
mod image;
mod kernel;
mod kernels;
mod qemu;

pub(crate) use guest::{is_guest, run as run_guest};
pub(crate) use kernels::{run as run_kernels, step as kernels_step};

use crate::step::{Cases, StepOutput, StepVerdict, TimedStep};
use crate::summary::StepSummary;
use crate::test_output;
use accelerator::Accelerator;
use anyhow::{Context, ensure};
use image::Image;
use kernel::{NEWEST_SUITE, UnpackedKernel};
use kernels::Artifact;
use qemu::{QEMU, Qemu};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use unisono_enforce::kernel::discipline::FAIRQUEUE;
use unisono_gang::mechanism::sched_ext::GANGS;
use unisono_host_tests::program::{self, HOST_TESTS, target, workspace};
use unisono_linux::bpf::compile::CSource;
use unisono_linux::bpf::compile::compile;

/// C programs that the tests load. They are compiled on the host, because the machine has no compiler.
const PROGRAMS_IN_C: [CSource; 2] = [FAIRQUEUE, GANGS];
/// The host tests that run in the machine, with the selected cases of each. On an emulated machine all
/// sched_ext cases take four minutes of processor time, and the usual selection takes half a minute.
const TESTS: [GuestTest; 3] = [
    GuestTest { name: "queue_bpf", usually: &[], always: &[], needs: Processors::Any },
    GuestTest {
        name: "mechanism",
        usually: &["sched_ext_a_waiting_gang", "sched_ext_time_follows"],
        always: &["sched_ext_"],
        needs: Processors::Fair,
    },
    GuestTest {
        name: "sched_ext",
        usually: &["the_kernel_frees", "gangs_keep"],
        always: &[],
        needs: Processors::Fair,
    },
];
/// Programs that the tests run as gangs; they are copied into the machine.
const COMMANDS: [&str; 5] = ["sh", "sleep", "timeout", "true", "renice"];
/// The limit for the whole run: generous, because only a hang should reach it.
const RUN_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// A module of the host tests, and the tests of it that run in the machine: all whose names contain any of
/// these words, or all if there are no words.
struct GuestTest {
    name: &'static str,
    usually: &'static [&'static str],
    /// The words of a long run, in place of `usually`.
    always: &'static [&'static str],
    needs: Processors,
}

impl GuestTest {
    /// Selects from the list `all` the full names of this module's tests that contain any of the words.
    fn select<'a>(&self, all: &'a str, words: &[&str]) -> Vec<&'a str> {
        let names = all.lines().filter_map(|line| line.strip_suffix(": test"));
        let ours = names.filter(|name| name.split("::").next() == Some(self.name));
        ours.filter(|name| words.is_empty() || words.iter().any(|word| name.contains(word))).collect()
    }
}

/// The requirement of a test for the machine's processors. There is a machine for each value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Processors {
    Any,
    /// Both processors get the same time, however busy the host is. This makes an emulated machine slower.
    Fair,
}

/// Why the tests did not run: no machine can run here, or an error occurred.
enum VmUnavailable {
    Skip(String),
    Fail(anyhow::Error),
}

impl From<anyhow::Error> for VmUnavailable {
    fn from(error: anyhow::Error) -> Self {
        Self::Fail(error)
    }
}

impl VmUnavailable {
    fn verdict(self) -> StepVerdict {
        match self {
            Self::Skip(reason) => StepVerdict::skipped(reason),
            Self::Fail(error) => StepVerdict::failed(format!("{error:#}")),
        }
    }
}

/// Runs the tests that need a newer kernel. Returns whether all passed.
pub(crate) fn run(filters: &[&str], cases: Cases) -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("a newer kernel, in a virtual machine", || step(&[], filters, cases));
    Ok(summary.conclude())
}

/// Runs the tests of these modules, or of all, as a step among others.
pub(crate) fn step(modules: &[&str], filters: &[&str], cases: Cases) -> StepVerdict {
    test(modules, filters, cases).unwrap_or_else(VmUnavailable::verdict)
}

/// Checks that this host can start a machine, and that it has these other programs (with their packages).
fn check_host(others: &[(&str, &str)]) -> Result<(), VmUnavailable> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(VmUnavailable::Skip("the machine is made for x86_64 only".to_owned()));
    }
    for (program, package) in [&[(QEMU, "qemu-system-x86")], others].concat() {
        if !Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
            return Err(VmUnavailable::Skip(format!("no {program}: apt-get install {package}")));
        }
    }
    Ok(())
}

fn test(modules: &[&str], filters: &[&str], cases: Cases) -> Result<StepVerdict, VmUnavailable> {
    check_host(&[("clang", "clang libbpf-dev")])?;
    let kept = target().join("vm");
    let kernel = UnpackedKernel::get(&kept, NEWEST_SUITE);
    let kernel = kernel.map_err(|error| VmUnavailable::Skip(format!("{error:#}")))?;
    println!("Linux {}", kernel.release);
    let accelerator = Accelerator::choose(&kernel);
    let mut verdict = StepVerdict::default();
    for needs in [Processors::Any, Processors::Fair] {
        let is_wanted = |test: &&GuestTest| modules.is_empty() || modules.contains(&test.name);
        let tests: Vec<_> = TESTS.iter().filter(is_wanted).filter(|test| test.needs == needs).collect();
        if tests.is_empty() {
            continue;
        }
        match qemu(needs, accelerator, &kept) {
            Ok(qemu) => {
                let image = image(&tests, &kernel, filters, cases)?;
                let machine = machine(&qemu, &kernel, accelerator.arguments(needs));
                verdict.add(boot(machine, &image, RUN_TIMEOUT)?);
            }
            Err(why) => {
                let skip = |test: &GuestTest| {
                    format!("{}: no processors that compute beside each other; {why:#}", test.name)
                };
                verdict.skipped.extend(tests.into_iter().map(skip));
            }
        }
    }
    Ok(verdict)
}

fn qemu(needs: Processors, accelerator: Accelerator, kept: &Path) -> anyhow::Result<Qemu> {
    match (needs, accelerator) {
        (Processors::Fair, Accelerator::Tcg) => Qemu::fair(&kept.join("qemu")),
        _ => Ok(Qemu::installed()),
    }
}

/// Builds the file system of a machine that runs these tests.
fn image(
    tests: &[&GuestTest],
    kernel: &UnpackedKernel,
    filters: &[&str],
    cases: Cases,
) -> Result<Vec<u8>, VmUnavailable> {
    let mut image = Image::default();
    let own = std::env::current_exe().context("where this program is")?;
    image.program("/init", &own)?;
    for source in PROGRAMS_IN_C {
        let object = compile(source).context("a program that is tested")?;
        let name = Path::new(source.files[0].0).with_extension("o");
        image.file(&format!("/objects/{}", name.display()), &object);
    }
    image.program("/unisono", &program::unisono())?;
    image.commands(&COMMANDS)?;
    let host_tests = build()?;
    image.program("/tests/host", &host_tests)?;
    let all = list(&host_tests)?;
    let mut words = vec!["/tests/host", "--exact"];
    for test in tests {
        let asked = match cases {
            _ if !filters.is_empty() => filters,
            Cases::Some => test.usually,
            Cases::All => test.always,
        };
        words.extend(test.select(&all, asked));
    }
    // without the name of a test the harness would run every test
    let commands = if words.len() > 2 { format!("{}\n\n", words.join("\n")) } else { String::new() };
    image.modules(kernel)?;
    image.file(guest::COMMANDS, commands.as_bytes());
    image.file(
        guest::ENVIRONMENT,
        b"PATH=/bin\nUNISONO_BPF_OBJECTS=/objects\nUNISONO_PROGRAM=/unisono\nRUST_BACKTRACE=1\n",
    );
    Ok(image.finish())
}

fn boot(mut machine: Command, image: &[u8], deadline: Duration) -> anyhow::Result<StepVerdict> {
    let scratch = tempfile::tempdir().context("a temporary directory")?;
    let initramfs = scratch.path().join("initramfs");
    std::fs::write(&initramfs, image).context("write the initramfs")?;
    machine.arg("-initrd").arg(&initramfs);
    let step = TimedStep::new(QEMU, machine).within(deadline).showing(test_output::filter());
    let StepOutput { hung, lines, .. } = step.run()?;
    let mut verdict = test_output::read(&lines);
    let ended = lines.iter().find_map(|line| line.strip_prefix(guest::END_MARK));
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

/// Returns the command that starts a machine with two processors and 2 GiB; it has a console, no network and
/// no disk. The machine ends instead of rebooting.
fn machine(qemu: &Qemu, kernel: &UnpackedKernel, accelerator: &[&str]) -> Command {
    let mut machine = qemu.command();
    machine.args(accelerator);
    machine.args(["-nodefaults", "-cpu", "max", "-smp", "2", "-m", "2048"]);
    machine.args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot"]);
    machine.arg("-kernel").arg(&kernel.image);
    // The kernel's timer check mistakes a slow host for a broken timer. The machine needs no protection from
    // attacks, and the mitigations are slow on an emulated machine.
    machine.args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off rdinit=/init"]);
    machine
}

/// Builds the program of the host tests. Returns its path.
fn build() -> anyhow::Result<PathBuf> {
    // the whole workspace, as `cargo xtask test` builds it, so that nothing is compiled again
    let built = artifacts(&["--workspace", "--test", HOST_TESTS])?;
    let program = built.into_iter().find(|artifact| artifact.name == HOST_TESTS);
    Ok(program.context("cargo did not say where it put the host tests")?.executable)
}

/// Builds tests, and the programs that they start. Returns all programs.
fn artifacts(arguments: &[&str]) -> anyhow::Result<Vec<Artifact>> {
    let mut cargo = unisono_host_tests::program::cargo();
    cargo.args(["test", "--locked", "--no-run", "--message-format", "json"]).args(arguments);
    let output = cargo.current_dir(workspace()).output().context("start cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(Artifact::read).collect())
}

/// Returns the names of all host tests, one on each line.
fn list(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("--list").output().context("list the host tests")?;
    ensure!(output.status.success(), "the host tests cannot be listed: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_selects_its_own_tests_by_their_words() {
        let all = "gang::a_b: test\nmechanism::sched_ext_a: test\nmechanism::stop_a: test\n\n";
        let test = GuestTest { name: "mechanism", usually: &[], always: &[], needs: Processors::Any };
        assert_eq!(test.select(all, &[]), ["mechanism::sched_ext_a", "mechanism::stop_a"]);
        assert_eq!(test.select(all, &["sched_ext_", "b"]), ["mechanism::sched_ext_a"]);
    }
}
