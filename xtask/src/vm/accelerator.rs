//! Selects the virtual machine's accelerator: the host's processors (KVM), or QEMU's emulation (TCG).
//!
//! With KVM the host's processors execute the instructions, at nearly their own speed. KVM is used if a trial
//! boot with it ends; otherwise QEMU translates the instructions (TCG), which is several times slower, and a
//! line gives the reason. Cost: the trial boot, at most [`TRIAL_TIMEOUT`].

use super::kernel::UnpackedKernel;
use super::qemu::{QEMU, Qemu};
use super::{Processors, machine};
use crate::step::TimedStep;
use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

/// If KVM works, a kernel that finds no init program panics after a second or two. If KVM stops the machine
/// at an instruction that it does not support, QEMU waits forever.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// The KVM drivers that use the hardware virtualization of the processor. Others interpret an unmodified
/// kernel (kvm_pvm: after 240 s a kernel had not begun to start its processors).
const DRIVERS: [&str; 2] = ["kvm_intel", "kvm_amd"];

/// QEMU's -icount options for a machine whose processors get equal time. An instruction takes 2^2 ns of the
/// machine's time, so that busy-wait loops cost the host little; when all processors sleep, the clock jumps
/// to the next timer. So a test sees the same times on a busy host and on an idle one. The two processors
/// share a host thread: with a thread each, the kernel crashed while it patched itself for sched_ext (QEMU
/// 7.2, `int3` in `sched_balance_rq`).
const ICOUNT_OPTIONS: &str = "shift=2,sleep=off";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    /// Chooses the accelerator, and prints the choice (and why KVM is not used).
    pub(super) fn choose(kernel: &UnpackedKernel) -> Accelerator {
        match check_kvm(Path::new("/")).and_then(|()| try_to_boot(kernel)) {
            Ok(()) => {
                println!("on this machine's processors (KVM)");
                Accelerator::Kvm
            }
            Err(reason) => {
                println!("emulated (TCG), several times as slow as with KVM: {reason}");
                Accelerator::Tcg
            }
        }
    }

    pub(super) fn arguments(self, needs: Processors) -> &'static [&'static str] {
        match (self, needs) {
            (Accelerator::Kvm, _) => &["-accel", "kvm"],
            (Accelerator::Tcg, Processors::Any) => &["-accel", "tcg"],
            (Accelerator::Tcg, Processors::Fair) => {
                &["-accel", "tcg,thread=single", "-icount", ICOUNT_OPTIONS]
            }
        }
    }
}

/// Checks that this process may use KVM, and that KVM uses the processor's virtualization. `root` is `/`
/// except in tests.
fn check_kvm(root: &Path) -> Result<(), String> {
    let device = root.join("dev/kvm");
    let open = OpenOptions::new().read(true).write(true).open(&device);
    open.map_err(|error| format!("{}: {error}", device.display()))?;
    if DRIVERS.iter().any(|driver| root.join("sys/module").join(driver).exists()) {
        return Ok(());
    }
    Err(format!(
        "/dev/kvm does not use the processor's own virtualization ({} or {})",
        DRIVERS[0], DRIVERS[1]
    ))
}

fn try_to_boot(kernel: &UnpackedKernel) -> Result<(), String> {
    let trial = TimedStep::new(
        QEMU,
        machine(&Qemu::installed(), kernel, Accelerator::Kvm.arguments(Processors::Any)),
    )
    .within(TRIAL_TIMEOUT)
    .showing(|_| false);
    let output = trial.run().map_err(|error| error.to_string())?;
    if output.success && output.lines.iter().any(|line| line.contains("Kernel panic")) {
        return Ok(());
    }
    let complaint = output.lines.iter().find(|line| line.contains("KVM") || line.contains("kvm"));
    Err(match (complaint, output.hung) {
        (Some(line), _) => format!("a trial boot says: {line}"),
        (None, Some(hung)) => format!("a trial boot did not end: {hung}"),
        (None, None) => "a trial boot ended before the kernel had started".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn kvm_is_used_only_with_a_device_that_uses_the_processor() {
        let root = tempfile::tempdir().expect("a directory");
        let error = check_kvm(root.path()).expect_err("there is no device");
        assert!(error.contains("dev/kvm: "), "{error}");
        fs::create_dir_all(root.path().join("dev")).expect("a directory");
        fs::write(root.path().join("dev/kvm"), "").expect("a file");
        fs::create_dir_all(root.path().join("sys/module/kvm_pvm")).expect("a directory");
        let error = check_kvm(root.path()).expect_err("another driver");
        assert!(error.contains("kvm_intel or kvm_amd"), "{error}");
        fs::create_dir_all(root.path().join("sys/module/kvm_amd")).expect("a directory");
        assert_eq!(check_kvm(root.path()), Ok(()));
    }
}
