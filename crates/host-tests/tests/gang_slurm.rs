//! Tests Slurm's jobs as gangs: the prolog and the epilog run on two simulated nodes. Each node has a daemon
//! in namespaces of its own, and control groups as Slurm makes them. The gangs of both nodes take their turns
//! by the clock.

use crate::gang_shared::served::{Program, SPIN, Served, second_version, top};
use crate::gang_shared::unisono;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};
use unisono_host_tests::processes::until;
use unisono_host_tests::program::{self, workspace};
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, require};
use unisono_linux::cgroup::ControlGroup;

const SLICE: Duration = Duration::from_millis(20);
/// The maximum number of attempts to watch two seconds in which no gang rests.
const WATCHES: u32 = 10;

/// A simulated node of a cluster.
struct Node {
    served: Served,
    /// The control group in which Slurm's jobs have theirs.
    scope: ControlGroup,
    /// A directory with the scripts, as `cargo xtask install` writes them.
    prefix: tempfile::TempDir,
}

impl Node {
    fn start(name: &str, options: &[&str]) -> Node {
        let prefix = tempfile::tempdir().expect("a directory");
        fs::create_dir(prefix.path().join("bin")).expect("there is room");
        symlink(program::unisono(), prefix.path().join("bin/unisono")).expect("there is room");
        for script in ["prolog.sh", "epilog.sh"] {
            let template = workspace().join("xtask/slurm").join(format!("{script}.in"));
            let text = fs::read_to_string(template).expect("the script is there");
            let path = prefix.path().join(script);
            fs::write(&path, text.replace("@PREFIX@", &prefix.path().display().to_string())).expect("room");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        let scope = top().create(&groups::name(name)).expect("root may");
        let directory = tempfile::tempdir().expect("a directory");
        let slice = format!("{}ms", SLICE.as_millis());
        let mut command = Command::new("unshare");
        command.args(["--net", "--uts", "--"]).arg(program::unisono());
        command.args(["gang", "daemon", "--slice", &slice]).args(options);
        command.arg("--socket").arg(directory.path().join("socket"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let served = Served { child: command.spawn().expect("unshare starts"), directory };
        served.wait();
        Node { served, scope, prefix }
    }

    /// Runs one of the scripts as slurmd does.
    fn slurm(&self, script: &str, job: u32) -> Output {
        let mut command = Command::new(self.prefix.path().join(script));
        command.env_clear().env("SLURM_JOB_ID", job.to_string());
        command.env("UNISONO_SLURM_JOBS", self.prefix.path().join("jobs"));
        command
            .env("UNISONO_SLURM_SCOPE", self.scope.path())
            .env("UNISONO_GANG_SOCKET", self.served.socket());
        let output = command.stdin(Stdio::null()).output().expect("sh starts");
        assert!(output.status.success(), "{script} drains the node: {output:?}");
        output
    }

    /// Starts a job of two spinning processes as Slurm does, after the prolog.
    fn job(&self, job: u32) -> Job {
        self.slurm("prolog.sh", job);
        let group = self.scope.create(&format!("job_{job}")).expect("root may");
        let step = group.create("step_0").expect("root may");
        let program = Program::start(SPIN, 2);
        program.move_to(&step);
        Job { group, step, program }
    }

    /// Returns whether no gang rests. A gang that gets next to no time because of other programs rests.
    fn all_take_turns(&self) -> bool {
        [11, 12].iter().all(|job| {
            let state = self.served.gang(&format!("slurm-{job}"))["state"].clone();
            state == "running" || state == "waiting"
        })
    }

    fn is_gang(&self, job: u32) -> bool {
        !self.served.gang(&format!("slurm-{job}")).is_null()
    }
}

struct Job {
    group: ControlGroup,
    step: ControlGroup,
    program: Program,
}

impl Job {
    fn end(self) {
        drop(self.program);
        for group in [&self.step, &self.group] {
            until("the group to be empty", || group.remove().is_ok() || !group.path().exists());
        }
    }
}

fn is_stopped(job: &Path) -> bool {
    fs::read_to_string(job.join("cgroup.freeze")).expect("its file").trim() == "1"
}

/// The observations of two nodes by the same clock.
#[derive(Default)]
struct Seen {
    /// The number of samples, and the number of those in which both nodes ran the job whose turn it was by
    /// the clock.
    looks: usize,
    as_the_clock_says: usize,
    let_run: [Vec<Duration>; 2],
}

/// Samples, for a while, which of two jobs runs on each of two nodes.
fn watch(jobs: [[&Path; 2]; 2], how_long: Duration) -> Seen {
    let mut seen = Seen::default();
    let mut before = [true; 2];
    let begin = Instant::now();
    while begin.elapsed() < how_long {
        let stopped = jobs.map(|[first, _]| is_stopped(first));
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        for (node, stopped) in stopped.into_iter().enumerate() {
            if before[node] && !stopped {
                seen.let_run[node].push(wall);
            }
        }
        before = stopped;
        let is_first = wall.as_nanos() % (2 * SLICE.as_nanos()) < SLICE.as_nanos();
        seen.looks += 1;
        seen.as_the_clock_says += usize::from(stopped == [!is_first; 2]);
        std::thread::sleep(Duration::from_micros(100));
    }
    seen
}

/// Returns the times, in microseconds, between the beginning of each turn on the first node and the nearest
/// one on the second, sorted.
fn skews(seen: &Seen) -> Vec<u128> {
    let nearest = |moment: &Duration| seen.let_run[1].iter().map(|other| moment.abs_diff(*other)).min();
    let mut skews: Vec<u128> =
        seen.let_run[0].iter().filter_map(nearest).map(|apart| apart.as_micros()).collect();
    skews.sort_unstable();
    skews
}

fn jobs_on_two_nodes_have_their_turns_at_the_same_moments() -> TestOutcome {
    second_version()?;
    require::unshare(&["--net", "--uts"])?;
    let nodes = ["slurm-a", "slurm-b"].map(|name| Node::start(name, &["--by-clock"]));
    // the second node gets its jobs in another order
    let first = [nodes[0].job(11), nodes[0].job(12)];
    let second = [nodes[1].job(12), nodes[1].job(11)];
    for node in &nodes {
        until("both jobs to be gangs", || node.is_gang(11) && node.is_gang(12));
        until("turns", || node.served.gang("slurm-12")["turns"].as_u64() > Some(10));
    }
    let paths =
        [[&first[0], &first[1]], [&second[1], &second[0]]].map(|jobs| jobs.map(|job| job.group.path()));
    let mut seen = None;
    for _ in 0..WATCHES {
        let watched = watch(paths, Duration::from_secs(2));
        if nodes.iter().all(Node::all_take_turns) {
            seen = Some(watched);
            break;
        }
    }
    if let Some(seen) = &seen {
        let skews = skews(seen);
        let share = seen.as_the_clock_says as f64 / seen.looks as f64;
        let (median, most) = (skews[skews.len() / 2], skews[skews.len() - 1]);
        eprintln!(
            "{:.1} % of {} looks as the clock says; {} turns began {median} us apart (median), {most} at most",
            share * 100.0,
            seen.looks,
            skews.len()
        );
        // nodes that do not agree would run the right jobs in a quarter of the samples
        assert!(share > 0.7, "{share} of {} looks", seen.looks);
    }
    for node in &nodes {
        node.slurm("epilog.sh", 11);
        assert!(!node.is_gang(11) && node.is_gang(12));
        node.slurm("epilog.sh", 11);
    }
    assert!(!is_stopped(first[0].group.path()));
    first[0].program.wait_for_progress();
    for node in &nodes {
        node.slurm("epilog.sh", 12);
        assert!(!node.prefix.path().join("jobs").exists(), "the directory of marks stays");
    }
    first.into_iter().chain(second).for_each(Job::end);
    for node in nodes {
        node.served.end();
        node.scope.remove().expect("it is empty");
    }
    let busy = "other programs take so much that a gang rested each time; try again when the machine is idle";
    seen.map(|_| ()).ok_or_else(|| Skipped::because(busy))
}

fn a_node_without_a_daemon_runs_its_jobs_without_turns() -> TestOutcome {
    second_version()?;
    require::unshare(&["--net", "--uts"])?;
    let node = Node::start("slurm-c", &["--by-clock"]);
    // a job that ends before it has a group: the process that waits for the group gives up
    node.slurm("prolog.sh", 7);
    assert!(node.prefix.path().join("jobs/7").exists());
    node.slurm("epilog.sh", 7);
    assert!(!node.prefix.path().join("jobs").exists(), "the directory of marks stays");
    let socket = node.served.socket();
    let waits = || {
        let all = fs::read_dir("/proc").expect("mounted").flatten();
        let environment = |entry: &fs::DirEntry| fs::read(entry.path().join("environ")).unwrap_or_default();
        let ours = node.prefix.path().display().to_string();
        let is_ours = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&ours);
        all.filter(|entry| is_ours(&environment(entry))).count()
    };
    until("nobody to wait for the job", || waits() == 0);
    let Node { served, scope, prefix } = node;
    served.end();
    let mut prolog = Command::new(prefix.path().join("prolog.sh"));
    prolog.env_clear().env("SLURM_JOB_ID", "8").env("UNISONO_GANG_SOCKET", &socket);
    prolog.env("UNISONO_SLURM_JOBS", prefix.path().join("jobs"));
    let output = prolog.output().expect("sh starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("no gang daemon") && said.contains("gang install"),
        "{said}"
    );
    scope.remove().expect("it is empty");
    Ok(())
}

fn a_unit_that_follows_the_clock_says_so() -> TestOutcome {
    let output = unisono(&["gang", "install", "--by-clock", "--print"]).output().expect("unisono starts");
    let unit = String::from_utf8_lossy(&output.stdout);
    assert!(unit.contains("\"daemon\"") && unit.contains("\"--by-clock\""), "{unit}");
    Ok(())
}

host_tests![needs Machine;
    jobs_on_two_nodes_have_their_turns_at_the_same_moments within 120,
    a_node_without_a_daemon_runs_its_jobs_without_turns within 60,
    a_unit_that_follows_the_clock_says_so within 30,
];
