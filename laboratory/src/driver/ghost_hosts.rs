//! The exchange of ghost areas between two hosts: network namespaces, with a link of one rate in both
//! directions.
//!
//! ```text
//!   mpiexec or unisono run, ranks 0 to n/2 - 1 -- rate -- cable -- rate -- ranks n/2 to n - 1
//! ```
//! A run is a run of [`GhostDriver`] with half of the ranks on a second host. The launchers reach the second
//! host by a script that stands for `ssh`: it enters the host's namespace, and gives the host a name of its
//! own, by which an MPI tells hosts apart.

use super::stage::{CABLE, Cable, LinkStage, RECEIVER, SENDER};
use serde::{Deserialize, Serialize};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
use unisono_study::driver::exchange_hosts::ExchangeHosts;
use unisono_study::driver::ghost::GhostDriver;
use unisono_study::driver::run_host::{RunFiles, run_in_thread};
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};

/// The time to make the namespaces, and to start ranks in both.
const STAGE_TIME: Duration = Duration::from_millis(900);

pub const GHOST_HOSTS: DriverKind =
    DriverKind::new::<GhostHostsDriver>("ghost-hosts").with_added_parameters(&["bytes"]);

#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct GhostHostsDriver {
    #[serde(flatten)]
    exchange: GhostDriver,
    /// The rate of the link in each direction.
    link_mbit: f64,
}

impl Default for GhostHostsDriver {
    fn default() -> Self {
        Self { exchange: GhostDriver::default(), link_mbit: 100.0 }
    }
}

impl Driver for GhostHostsDriver {
    fn parts(&self) -> Option<Vec<String>> {
        self.exchange.parts()
    }

    fn programs(&self) -> Vec<&str> {
        self.exchange.programs()
    }

    fn estimated_overhead(&self, seconds: f64) -> Duration {
        STAGE_TIME + self.exchange.estimated_overhead(seconds)
    }

    fn needs_network_namespaces(&self) -> bool {
        true
    }

    fn run(&self, context: Context, seconds: f64, _: u64) -> Result<RunResult, NoResult> {
        if !self.exchange.processes.is_multiple_of(2) {
            let processes = self.exchange.processes;
            return Err(NoResult::Failed(format!(
                "{processes} processes on two hosts; write an even number"
            )));
        }
        let Context { bench, unisono, directory, cpus, .. } = context;
        run_in_thread(context, "ghost-hosts", |host, interrupted| {
            let stage = LinkStage::set(Cable::Duplex((self.link_mbit * 1e6) as u64))?;
            let hosts = ExchangeHosts {
                addresses: [SENDER, RECEIVER].map(|address| address.to_string()),
                network: "10.98.0.0/24".to_owned(),
                device: CABLE.to_owned(),
                shell: remote_shell(&host.files, &stage)?,
                first: first_host(&host.files)?,
            };
            let context = Context { bench, unisono, directory, cpus, interrupted };
            self.exchange.exchange(context, seconds, Some(&hosts))
        })
    }
}

/// The part of a shell's script that prepares a host. UCX finds devices under `/sys`, which shows the devices
/// of the namespace that mounted it, and uses only devices that are up: the kernel may take a second for
/// that.
fn prepared() -> String {
    format!(
        "mount -t sysfs sysfs /sys && \
         until read -r state </sys/class/net/{CABLE}/operstate && test $state = up; do sleep 0.02; done"
    )
}

/// Writes the script that runs a command on the first host.
fn first_host(files: &RunFiles) -> Result<PathBuf, NoResult> {
    let script = format!("#!/bin/sh\nexec unshare --mount sh -c '{}; exec \"$@\"' sh \"$@\"\n", prepared());
    write_program(files, "on-first-host", &script)
}

/// Writes the script that stands for `ssh`.
fn remote_shell(files: &RunFiles, stage: &LinkStage) -> Result<PathBuf, NoResult> {
    let [here, there] = stage.files();
    let script = format!(
        "#!/bin/sh\n\
         while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
         case $1 in\n\
         {SENDER}) name=one net={};;\n\
         {RECEIVER}) name=two net={};;\n\
         *) echo \"$1 is no host\" >&2; exit 255;;\n\
         esac\n\
         shift\n\
         export NAME=$name\n\
         exec nsenter --net=$net unshare --uts --mount sh -c \\\n\
         'echo $NAME >/proc/sys/kernel/hostname; {}; exec sh -c \"$*\"' sh \"$@\"\n",
        here.display(),
        there.display(),
        prepared()
    );
    // by this name `unisono run` knows that a shell reads the command again
    write_program(files, "ssh", &script)
}

fn write_program(files: &RunFiles, name: &str, script: &str) -> Result<PathBuf, NoResult> {
    let path = files.write(name, script)?;
    set_permissions(&path, Permissions::from_mode(0o700))
        .map_err(|error| NoResult::Failed(format!("cannot make {} a program: {error}", path.display())))?;
    Ok(path)
}
