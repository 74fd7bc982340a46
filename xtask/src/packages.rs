//! The Debian packages that tests and packaging need, each with its reason.

use crate::step::{StepVerdict, TimedStep};
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Install {
    IfAllowed,
    /// Only list missing packages.
    Never,
}

#[derive(Clone, Copy)]
pub(crate) struct Package {
    name: &'static str,
    reason: &'static str,
    /// The tests that are skipped if the package is missing.
    without: &'static str,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "gcc",
        reason: "links Rust; compiles the peers in C with pthread_barrier and with GNU OpenMP (libgomp)",
        without: "nothing builds",
    },
    Package { name: "libc6-dev", reason: "the C headers that gcc needs", without: "nothing builds" },
    Package {
        name: "g++",
        reason: "compiles the peer with C++20 std::barrier",
        without: "the std::barrier peer and its tests",
    },
    Package {
        name: "qemu-system-x86",
        reason: "a machine with a newer kernel, for what this one may lack (cargo xtask vm)",
        without: "the tests of fair queuing as a BPF queueing discipline",
    },
    Package {
        name: "xz-utils",
        reason: "unpacks that kernel's modules",
        without: "the tests of fair queuing as a BPF queueing discipline",
    },
    Package {
        name: "clang",
        reason: "compiles the BPF programs (switches, the queueing discipline), and the OpenMP peer for the LLVM runtime",
        without: "the data plane (unisono tree deploy), the libomp peer, and their tests",
    },
    Package {
        name: "libbpf-dev",
        reason: "the headers that the BPF programs are written against",
        without: "the data plane (unisono tree deploy), the BPF queueing discipline, and their tests",
    },
    Package {
        name: "libnbd-bin",
        reason: "clients of a served disk: nbdinfo, nbdcopy",
        without: "the tests of `unisono queue disk`",
    },
    Package {
        name: "qemu-utils",
        reason: "another client of a served disk: qemu-io, as a virtual machine has it",
        without: "the tests of `unisono queue disk`",
    },
    Package {
        name: "nginx-light",
        reason: "a web server that knows nothing of Unisono, beside the streams of `unisono study middleware`",
        without: "the study of streams beside a web server",
    },
    Package {
        name: "wrk",
        reason: "clients of that web server, and of the study's own on hyper",
        without: "the study of streams beside a web server, and requests over HTTP",
    },
    Package {
        name: "openssl",
        reason: "makes the certificate of a broker that is reached by UDP, in `unisono study middleware`",
        without: "the event channel over UDP in that study",
    },
    Package {
        name: "libzmq3-dev",
        reason: "ZeroMQ, beside which the event channel is measured",
        without: "ZeroMQ in `unisono study middleware-rivals`",
    },
    Package {
        name: "mosquitto",
        reason: "an MQTT broker of others, beside which the event channel is measured",
        without: "mosquitto in `unisono study middleware-rivals`",
    },
    Package {
        name: "libmosquitto-dev",
        reason: "the client library of that broker",
        without: "mosquitto in `unisono study middleware-rivals`",
    },
    Package {
        name: "cyclonedds-dev",
        reason: "Cyclone DDS, beside which the event channel is measured",
        without: "Cyclone DDS in `unisono study middleware-rivals`",
    },
    Package {
        name: "mosquitto-clients",
        reason: "MQTT clients of others (mosquitto_pub, mosquitto_sub), which speak to `unisono events serve --mqtt`",
        without: "the tests of the broker with mosquitto's clients",
    },
    Package {
        name: "python3-prometheus-client",
        reason: "an OpenMetrics parser of others, which reads what `unisono queue metrics` writes",
        without: "the test that another program can read the metrics",
    },
    Package {
        name: "python3-numpy",
        reason: "arrays over the payloads of events, without a copy",
        without: "the test that an event is an array in Python",
    },
    Package {
        name: "mypy",
        reason: "checks the types of the Python package, and of a program that uses it",
        without: "the test that the Python package has types",
    },
    Package {
        name: "libopenblas0-pthread",
        reason: "a library whose threads spin while they wait; numpy then uses it",
        without: "the tests of `unisono advise` with numpy and OpenBLAS",
    },
    Package {
        name: "stress-ng",
        reason: "a load of others, which no advice makes faster",
        without: "the test of `unisono advise` with stress-ng and pigz",
    },
    Package {
        name: "pigz",
        reason: "a program with threads that hardly wait for each other",
        without: "the test of `unisono advise` with stress-ng and pigz",
    },
    Package {
        name: "libomp-dev",
        reason: "the LLVM OpenMP runtime (libomp)",
        without: "the libomp peer and its tests",
    },
    Package {
        name: "mpich",
        reason: "an MPI under test: the preload, and what the study compares with",
        without: "MPICH in the preload's tests and in the study",
    },
    Package {
        name: "libmpich-dev",
        reason: "mpicc.mpich, which compiles the programs that run on the preload, and mpi.h to compare the bridge with",
        without: "MPICH in the preload's tests and in the study",
    },
    Package {
        name: "openmpi-bin",
        reason: "the other MPI under test",
        without: "Open MPI in the preload's tests and in the study",
    },
    Package {
        name: "libopenmpi-dev",
        reason: "mpicc.openmpi, which compiles the programs that run on the preload, and mpi.h to compare the bridge with",
        without: "Open MPI in the preload's tests and in the study",
    },
    Package {
        name: "gfortran",
        reason: "compiles the Fortran programs that run on the preload",
        without: "the preload's tests in Fortran",
    },
    Package {
        name: "python3-venv",
        reason: "a place for mpi4py's binary wheel, which runs on the preload",
        without: "the preload's test with mpi4py",
    },
    Package {
        name: "iproute2",
        reason: "makes the two network namespaces between which ranks talk over TCP and over an MPI's messages",
        without: "the tests between hosts",
    },
    Package { name: "make", reason: "builds the examples in C", without: "the tests of the examples in C" },
    Package {
        name: "clang-format",
        reason: "compares C sources with .clang-format (lint)",
        without: "the check of how C sources look",
    },
    Package {
        name: "chromium",
        reason: "opens the report in a real browser, also at a phone's width",
        without: "the browser test of the report",
    },
    Package {
        name: "gdb",
        reason: "user stacks of a test that hangs",
        without: "user stacks of tests that hang (kernel stacks are printed anyway)",
    },
];

/// The packages among [`PACKAGES`] without which no virtual machine runs (`cargo xtask vm`).
const FOR_MACHINES: [&str; 4] = ["qemu-system-x86", "xz-utils", "clang", "libbpf-dev"];

/// The packages that only `cargo xtask package` and `cargo xtask nightly packages` need; `cargo xtask nightly
/// packages` installs them.
pub(crate) const FOR_PACKAGES: &[Package] = &[
    Package {
        name: "rpm",
        reason: "rpmbuild, which makes the RPM package, and rpm2archive, which unpacks it",
        without: "the RPM package (cargo xtask package)",
    },
    Package {
        name: "debootstrap",
        reason: "makes the fresh Debian root in which packages are tried",
        without: "the trials of packages (cargo xtask nightly packages)",
    },
    Package {
        name: "lintian",
        reason: "finds what Debian's policy says against the Debian package",
        without: "the trials of packages (cargo xtask nightly packages)",
    },
    Package {
        name: "buildah",
        reason: "makes the image of `fit`, and one of another that copies the program from it",
        without: "the trial of the container image (cargo xtask nightly packages)",
    },
    Package {
        name: "runc",
        reason: "runs a container with the static program of `fit`",
        without: "the trial of the container image (cargo xtask nightly packages)",
    },
];

/// Packages that `cargo xtask nightly packages` also needs where packages for aarch64 are made.
pub(crate) const FOR_EMULATION: &[Package] = &[Package {
    name: "qemu-user-static",
    reason: "runs programs for aarch64 on this processor",
    without: "the trial of packages for aarch64 (cargo xtask nightly packages)",
}];

pub(crate) fn print() {
    for Package { name, reason, without } in PACKAGES.iter().chain(FOR_PACKAGES).chain(FOR_EMULATION) {
        println!("{name:12} {reason}\n{:12} without it: {without}", "");
    }
}

/// Installs the packages that the tests of `cargo xtask test` need.
pub(crate) fn provide(install: Install) -> StepVerdict {
    provide_all(PACKAGES, install)
}

/// Installs the packages that tests in virtual machines need.
pub(crate) fn provide_for_machines(install: Install) -> StepVerdict {
    let needed = |package: &&Package| FOR_MACHINES.contains(&package.name);
    provide_all(&PACKAGES.iter().filter(needed).copied().collect::<Vec<_>>(), install)
}

/// Installs the missing packages of a list, if that is allowed. Otherwise it prints why not, and which tests
/// will be skipped.
pub(crate) fn provide_all(packages: &[Package], install: Install) -> StepVerdict {
    if !responds("dpkg-query", &["--version"]) {
        return StepVerdict::skipped(format!(
            "this is no Debian; have the like of {} at hand",
            names(&packages.iter().collect::<Vec<_>>())
        ));
    }
    let missing = missing(packages);
    if missing.is_empty() {
        println!("all there: {}", names(&packages.iter().collect::<Vec<_>>()));
        return StepVerdict::passed(1);
    }
    let refusal = if install == Install::Never {
        Some("--no-install")
    } else if !rustix::process::geteuid().is_root() {
        Some("only root may install")
    } else if !responds("apt-get", &["--version"]) {
        Some("there is no apt-get")
    } else {
        None
    };
    if let Some(refusal) = refusal {
        return StepVerdict::skipped(format!("{refusal}; {}", consequences(&missing)));
    }
    let list: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["--quiet=2", "-o", "DPkg::Lock::Timeout=120"]).args(arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        // shows errors and warnings, but not hundreds of lines about unpacking
        let says_something = |line: &str| line.starts_with("E:") || line.starts_with("W:");
        TimedStep::new("apt-get", command)
            .within(Duration::from_secs(30 * 60))
            .showing(says_something)
            .succeeds()
    };
    // if the update fails, the old lists may be good enough
    apt(&["update"]);
    println!("installing {}", names(&missing));
    if let Some(count) = with_dependencies(&list) {
        println!("with what they need: {count} packages, some minutes");
    }
    apt(&[&["install", "--yes", "--no-install-recommends"], list.as_slice()].concat());
    let missing = self::missing(packages);
    if missing.is_empty() {
        StepVerdict::passed(1)
    } else {
        StepVerdict::skipped(format!("apt-get could not install them; {}", consequences(&missing)))
    }
}

/// Returns the number of packages that apt-get would install for these, including dependencies.
fn with_dependencies(list: &[&str]) -> Option<usize> {
    let mut command = Command::new("apt-get");
    command.args(["install", "--simulate", "--no-install-recommends"]).args(list).stderr(Stdio::null());
    let said = String::from_utf8(command.output().ok()?.stdout).ok()?;
    Some(said.lines().filter(|line| line.starts_with("Inst ")).count()).filter(|count| *count > 0)
}

fn consequences(missing: &[&Package]) -> String {
    let mut without: Vec<&str> = missing.iter().map(|package| package.without).collect();
    without.dedup();
    format!("apt-get install {} to have: {}", names(missing), without.join("; "))
}

fn missing(packages: &[Package]) -> Vec<&Package> {
    packages.iter().filter(|package| !is_installed(package.name)).collect()
}

fn is_installed(name: &str) -> bool {
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", name])
        .stderr(Stdio::null())
        .output();
    query.is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

fn names(packages: &[&Package]) -> String {
    packages.iter().map(|package| package.name).collect::<Vec<_>>().join(" ")
}

fn responds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_for_machines_are_among_those_for_tests() {
        let of = |name: &&str| PACKAGES.iter().any(|package| package.name == *name);
        assert!(FOR_MACHINES.iter().all(of));
    }
}
