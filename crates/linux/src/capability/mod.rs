//! The capabilities of this host; for each missing capability the exact reason and the remedy.
//!
//! Each probe determines a [`Capability`]. If a real trial is cheap and harmless, a probe makes the trial
//! instead of concluding from a version number: a thread requests a real-time class and ends at once; a
//! queueing discipline is installed in a network namespace that vanishes with its process; a control group is
//! made and removed. A trial that does not end in time, as on a loaded machine, gives no result: its
//! capability is [`ProbeStatus::Unknown`], not missing. A probe never loads a kernel module, never needs root
//! to give a result, and never leaves anything behind.
//!
//! Cost: a few milliseconds together, except for trial compilations (up to 2 s; [`Effort::WithoutCompiling`]
//! skips them). Not for hot paths: probe once and keep the result.
//!
//! Reference: the manual pages named in each probe.

mod bpf;
mod cgroups;
mod command;
mod mpi;
mod netlink;
mod network;
mod processors;
mod scheduling;
mod scratch;
mod tools;
mod waiting;

use serde::Serialize;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread::ScopedJoinHandle;

/// A feature that a host may or may not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Stable name, for example `real-time`.
    pub name: &'static str,
    /// The heading of the capability's group in the list.
    pub group: &'static str,
    /// Whether this user can use the capability here and now; false if that is unknown.
    pub found: bool,
    pub status: ProbeStatus,
    /// Details of the finding; empty if nothing was found.
    pub detail: String,
    pub reason: Option<String>,
    /// How to get the capability, or a note about its relevance.
    pub remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeStatus {
    /// A trial or a file shows that the capability exists.
    Found,
    Missing,
    /// The trial did not end in time or could not begin: the capability may exist.
    Unknown,
}

/// The remedy where a sandbox hides the kernel's files.
const OUTSIDE_REMEDY: &str = "look again outside the sandbox or container, where /proc and /sys are mounted";

/// The result of a probe; the table of probes adds name and group.
struct TrialFinding {
    status: ProbeStatus,
    detail: String,
    reason: Option<String>,
    remedy: Option<String>,
}

impl TrialFinding {
    fn found(detail: impl Into<String>) -> Self {
        Self { status: ProbeStatus::Found, detail: detail.into(), reason: None, remedy: None }
    }

    fn missing(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (reason, remedy) = (Some(reason.into()), Some(remedy.into()));
        Self { status: ProbeStatus::Missing, detail: String::new(), reason, remedy }
    }

    /// Returns the finding of a trial that gave no result about the capability.
    fn unknown(reason: impl Into<String>) -> Self {
        let remedy = "a busy machine may be the cause: run unisono doctor again when it is idle";
        Self { status: ProbeStatus::Unknown, ..Self::missing(reason, remedy) }
    }

    /// Returns the finding of a trial that could not be made here; `remedy` says how to get an answer.
    fn undecided(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: ProbeStatus::Unknown, ..Self::missing(reason, remedy) }
    }

    fn is_found(&self) -> bool {
        self.status == ProbeStatus::Found
    }

    /// Adds a hint to a capability that was found.
    fn with_hint(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// All probes, including trial compilations.
    Everything,
    /// Only probes that take milliseconds.
    WithoutCompiling,
}

/// The root of the kernel's files: `/`, or a made-up root in tests.
struct ProbedHost {
    root: PathBuf,
}

impl ProbedHost {
    fn here() -> Self {
        Self { root: PathBuf::from("/") }
    }

    fn path(&self, below_root: &str) -> PathBuf {
        self.root.join(below_root.trim_start_matches('/'))
    }

    /// Reads the text of a file without surrounding white space; `None` if it cannot be read.
    fn read(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }

    /// Reads the text of a kernel's file, or `None` if this kernel lacks the file.
    ///
    /// # Errors
    /// Returns a reason if it is unknown whether the kernel has the file: the file cannot be read, or
    /// `parent`, which every kernel has, does not exist either (a sandbox without procfs or sysfs).
    fn kernel_file(&self, path: &str, parent: &str) -> Result<Option<String>, String> {
        match fs::read_to_string(self.path(path)) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.exists(parent) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("/{parent} does not exist here"))
            }
            Err(error) => Err(format!(
                "/{path} cannot be read: {}",
                scratch::words(error.raw_os_error().unwrap_or(libc::EIO))
            )),
        }
    }

    fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}

struct Probe {
    group: &'static str,
    name: &'static str,
    effort: Effort,
    run: ProbeRun,
}

type ProbeRun = fn(&ProbedHost) -> TrialFinding;

const fn quick(group: &'static str, name: &'static str, run: ProbeRun) -> Probe {
    Probe { group, name, effort: Effort::WithoutCompiling, run }
}

const fn compiling(group: &'static str, name: &'static str, run: ProbeRun) -> Probe {
    Probe { group, name, effort: Effort::Everything, run }
}

/// All probes, in the order of the list. Names are a stable interface: add, don't rename.
const PROBES: &[Probe] = &[
    quick("processors", "cores", processors::cores),
    quick("processors", "clock", processors::clock),
    quick("processors", "perf-counters", processors::perf_counters),
    quick("processors", "virtualization", processors::virtualization),
    quick("processors", "steal", processors::steal),
    quick("waiting", "futex-waitv", waiting::futex_waitv),
    quick("waiting", "membarrier", waiting::membarrier),
    quick("waiting", "rseq", waiting::rseq),
    quick("waiting", "slice-extension", waiting::slice_extension),
    quick("scheduling", "real-time", scheduling::real_time),
    quick("scheduling", "real-time-throttling", scheduling::throttling),
    quick("scheduling", "deadline", scheduling::deadline),
    quick("scheduling", "autogroup", scheduling::autogroup),
    quick("scheduling", "sched-ext", scheduling::sched_ext),
    quick("control groups", "cgroup-v1-cpu", |host| cgroups::v1(host, "cpu")),
    quick("control groups", "cgroup-v1-cpuset", |host| cgroups::v1(host, "cpuset")),
    quick("control groups", "cgroup-v1-freezer", |host| cgroups::v1(host, "freezer")),
    quick("control groups", "cgroup-v1-pids", |host| cgroups::v1(host, "pids")),
    quick("control groups", "cgroup-v2", cgroups::v2),
    quick("control groups", "cgroup-v2-freeze", cgroups::v2_freeze),
    quick("control groups", "cgroup-v2-cpu", |host| cgroups::v2_controller(host, "cpu")),
    quick("control groups", "cgroup-v2-cpuset", |host| cgroups::v2_controller(host, "cpuset")),
    quick("control groups", "cgroup-v2-pids", |host| cgroups::v2_controller(host, "pids")),
    quick("bpf", "bpf", bpf::syscall),
    quick("bpf", "bpf-jit", bpf::jit),
    quick("bpf", "btf", bpf::btf),
    quick("bpf", "bpf-classifier", bpf::classifier),
    quick("bpf", "bpf-qdisc", bpf::qdisc),
    compiling("bpf", "switch-program", |_| tools::switch_program()),
    quick("network", "user-namespaces", network::user_namespaces),
    quick("network", "network-namespaces", network::network_namespaces),
    quick("network", "qdiscs", network::qdiscs),
    quick("network", "link-kinds", network::link_kinds),
    quick("network", "tun", network::tun),
    quick("network", "af-xdp", network::af_xdp),
    quick("programs", "mpi-libraries", |_| mpi::libraries()),
    quick("programs", "mpich", |_| tools::mpi(tools::MpiTools::Mpich)),
    quick("programs", "open-mpi", |_| tools::mpi(tools::MpiTools::OpenMpi)),
    compiling("programs", "cc", |_| tools::cc()),
    compiling("programs", "c++20-barrier", |_| tools::cxx_barrier()),
    compiling("programs", "libgomp", |_| tools::libgomp()),
    compiling("programs", "clang", |_| tools::clang()),
    compiling("programs", "libomp", |_| tools::libomp()),
];

/// Runs all probes that `effort` allows, several at a time; the results are in the order of the table.
pub fn all(effort: Effort) -> Vec<Capability> {
    let host = &ProbedHost::here();
    let is_wanted = |probe: &&Probe| effort == Effort::Everything || probe.effort == Effort::WithoutCompiling;
    std::thread::scope(|scope| {
        let begin = |probe: &'static Probe| (probe, scope.spawn(move || (probe.run)(host)));
        let answers: Vec<_> = PROBES.iter().filter(is_wanted).map(begin).collect();
        let finish = |(probe, answer): (&Probe, ScopedJoinHandle<'_, TrialFinding>)| {
            let finding = answer.join().unwrap_or_else(|_| {
                TrialFinding::undecided("the probe itself failed", "please report this as a bug")
            });
            capability(probe, finding)
        };
        answers.into_iter().map(finish).collect()
    })
}

fn capability(probe: &Probe, finding: TrialFinding) -> Capability {
    let (name, group, TrialFinding { status, detail, reason, remedy }) = (probe.name, probe.group, finding);
    Capability { name, group, found: status == ProbeStatus::Found, status, detail, reason, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_kernel_without_a_file_is_told_apart_from_a_place_where_files_are_hidden() {
        let shown = fake::FakeRoot::with("shown", &[("proc/sys/kernel/ostype", "Linux\n")]);
        let file = |root: &fake::FakeRoot, name: &str| root.0.kernel_file(name, "proc/sys/kernel");
        assert_eq!(file(&shown, "proc/sys/kernel/ostype"), Ok(Some("Linux".to_owned())));
        assert_eq!(file(&shown, "proc/sys/kernel/none"), Ok(None));
        assert!(file(&shown, "proc/sys/kernel").is_err(), "a directory cannot be read");
        let hidden = fake::FakeRoot::with("hidden", &[]);
        assert_eq!(
            file(&hidden, "proc/sys/kernel/none"),
            Err("/proc/sys/kernel does not exist here".to_owned())
        );
    }

    #[test]
    fn without_the_kernels_file_systems_nothing_is_said_to_be_missing() {
        let root = fake::FakeRoot::with("no-procfs", &[]);
        for name in [
            "clock",
            "steal",
            "virtualization",
            "real-time-throttling",
            "autogroup",
            "sched-ext",
            "cgroup-v1-cpu",
            "cgroup-v2",
            "cgroup-v2-freeze",
            "cgroup-v2-cpu",
            "bpf-jit",
            "btf",
            "bpf-qdisc",
        ] {
            let probe = PROBES.iter().find(|probe| probe.name == name).expect("a probe of that name");
            let finding = (probe.run)(&root.0);
            assert_eq!(finding.status, ProbeStatus::Unknown, "{name}: {:?}", finding.reason);
            assert!(finding.reason.is_some() && finding.remedy.is_some(), "{name}");
        }
    }

    #[test]
    fn every_capability_has_a_name_of_its_own_and_says_why_it_is_missing() {
        let all = all(Effort::WithoutCompiling);
        let names: BTreeSet<_> = all.iter().map(|capability| capability.name).collect();
        assert_eq!(names.len(), all.len());
        for capability in all {
            assert_ne!(capability.found, capability.detail.is_empty(), "{capability:?}");
            assert_ne!(capability.found, capability.reason.is_some(), "{capability:?}");
            assert!(capability.found || capability.remedy.is_some(), "{capability:?}");
        }
    }
}

#[cfg(test)]
mod fake {
    use super::ProbedHost;
    use std::fs;

    /// A root directory with the given files; removed when dropped.
    pub(super) struct FakeRoot(pub(super) ProbedHost);

    impl FakeRoot {
        pub(super) fn with(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("unisono-capability-{name}-{}", std::process::id()));
            let host = ProbedHost { root };
            fs::create_dir_all(&host.root).expect("directory");
            for (path, text) in files {
                let path = host.path(path);
                fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
                fs::write(path, text).expect("file");
            }
            Self(host)
        }
    }

    impl Drop for FakeRoot {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.root);
        }
    }
}
