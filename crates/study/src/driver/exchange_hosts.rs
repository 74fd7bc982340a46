//! Two hosts between which the ranks of an exchange are divided: the options by which each launcher starts
//! half of the ranks on each host.
//!
//! All messages between the hosts are made to use TCP on one device. Without that, an MPI would find that two
//! network namespaces are one machine, and would use its memory.

use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeHosts {
    /// The IPv4 address of each host. The launcher runs on the first host.
    pub addresses: [String; 2],
    /// The network of the addresses, such as `10.0.0.0/24`.
    pub network: String,
    /// The name of the network device with that address, the same on both hosts.
    pub device: String,
    /// A program called as `ssh` is, and with that name: `SHELL ADDRESS COMMAND` runs a shell's command on a
    /// host.
    pub shell: PathBuf,
    /// A program that runs its arguments as a command on the first host.
    pub first: PathBuf,
}

impl ExchangeHosts {
    /// Returns `ADDRESS:RANKS,ADDRESS:RANKS` for an even number of processes.
    fn list(&self, processes: usize) -> String {
        self.addresses.each_ref().map(|address| format!("{address}:{}", processes / 2)).join(",")
    }

    /// A command on the first host.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(&self.first);
        command.arg(program);
        command
    }

    pub(super) fn add_to_mpich(&self, mpiexec: &mut Command, processes: usize) {
        mpiexec.args(["-launcher", "ssh", "-launcher-exec"]).arg(&self.shell);
        mpiexec.args(["-localhost", &self.addresses[0], "-hosts", &self.list(processes)]);
        // between hosts alone: within a host MPICH has its own shared memory
        mpiexec.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", &self.device);
    }

    pub(super) fn add_to_openmpi(&self, mpiexec: &mut Command, processes: usize) {
        mpiexec.args(["--mca", "plm_rsh_agent"]).arg(&self.shell);
        for (setting, value) in [
            ("oob_tcp_if_include", self.network.as_str()),
            ("btl_tcp_if_include", &self.network),
            ("pml", "ob1"),
            ("btl", "self,vader,tcp"),
            // Debian's settings leave it out, and nothing else serves windows over TCP
            ("osc", "pt2pt"),
        ] {
            mpiexec.args(["--mca", setting, value]);
        }
        mpiexec.args(["-host", &self.list(processes)]);
    }

    /// The command `unisono run --hosts`, to which the caller appends a program.
    pub(super) fn unisono_run(&self, unisono: &Path, processes: usize) -> Command {
        let mut command = Command::new(unisono);
        command.args(["run", "--hosts", &self.list(processes), "--launch"]);
        command.arg(format!("{} {{host}} {{args}}", self.shell.display())).arg("--");
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_launcher_gets_half_of_the_ranks_on_each_host() {
        let hosts = ExchangeHosts {
            addresses: ["10.0.0.1", "10.0.0.2"].map(str::to_owned),
            network: "10.0.0.0/24".to_owned(),
            device: "cable".to_owned(),
            shell: "/tmp/ssh".into(),
            first: "/tmp/first".into(),
        };
        let (mut mpich, mut openmpi) = (Command::new("mpiexec"), Command::new("mpiexec"));
        hosts.add_to_mpich(&mut mpich, 8);
        hosts.add_to_openmpi(&mut openmpi, 8);
        assert!(words(&mpich).ends_with("-hosts 10.0.0.1:4,10.0.0.2:4"), "{}", words(&mpich));
        assert!(words(&openmpi).ends_with("-host 10.0.0.1:4,10.0.0.2:4"), "{}", words(&openmpi));
        assert_eq!(
            words(&hosts.unisono_run(Path::new("unisono"), 2)),
            "unisono run --hosts 10.0.0.1:1,10.0.0.2:1 --launch /tmp/ssh {host} {args} --"
        );
    }
}
