//! Memory of a process that has ended, or has executed another program: no rank writes there, and errors name
//! the rank.

use crate::children::{TIMEOUT, WELL, command, place, start};
use crate::watchdog::watched;
use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_rma::{
    Assert, Element, Error, Job, JobMembership, Key, Layout, Lock, Rank, Source, Spec, Target, Window,
};

const BYTES: usize = 64 << 10;
const VICTIM: Rank = Rank(1);

/// Memory at the same address in every process of this program, unless the kernel randomizes addresses.
static mut EXPOSED: [u8; BYTES] = [0; BYTES];

fn exposed() -> &'static mut [u8] {
    let start = (&raw mut EXPOSED).cast::<u8>();
    // SAFETY: the array has these bytes; each part calls this once, and accesses the memory only through it.
    unsafe { std::slice::from_raw_parts_mut(start, BYTES) }
}

fn window(place: &JobMembership) -> (Job, Window) {
    let mut job = Job::shared(place, TIMEOUT).expect("all come");
    let window = job.create_static(exposed(), Spec::new()).expect("a small window");
    (job, window)
}

/// Exposes memory until it is killed, or until its input tells it to execute another program.
pub(crate) fn exposes(place: &JobMembership) {
    let (mut job, _window) = window(place);
    job.barrier().expect("all live");
    if std::io::stdin().read(&mut [0; 1]).is_ok_and(|read| read == 1) {
        let error = Command::new("sleep").arg("1000").exec();
        panic!("sleep(1) cannot be executed: {error}");
    }
}

/// Plays a stranger, which reports once that it is running, and fails at its end if any process wrote to its
/// memory.
pub(crate) fn is_a_stranger() {
    eprintln!("here");
    let _ = std::io::stdin().read(&mut [0; 1]);
    assert!(exposed().iter().all(|byte| *byte == 0), "somebody wrote to a stranger's memory");
}

/// A process that ends with its test, even if the test panics.
struct Ends(Child);

impl Deref for Ends {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Ends {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Accesses the victim's memory by `operation`; returns the result of the operation or of the call that
/// completes it.
fn answers(window: &mut Window, operation: &str) -> Result<(), Error> {
    window.lock(VICTIM, Lock::Shared, Assert::NONE)?;
    match operation {
        "short put" => window.put(&[7_u8; 8], VICTIM, 0)?,
        "long put" => window.put(&[7_u8; BYTES], VICTIM, 0)?,
        "short get" => window.get_now(&mut [0_u8; 8], VICTIM, 0)?,
        "long get" => window.get_now(&mut [0_u8; BYTES], VICTIM, 0)?,
        "scattered put" => {
            let blocks: Vec<(i64, u64)> = (0..100).map(|block| (3 * block, 1)).collect();
            let layout = Layout::indexed(Element::U32, &blocks)?;
            let target = Target { rank: VICTIM, displacement: 0, count: 1, layout: &layout };
            let one = Element::U32.layout();
            let data = [7_u32; 100];
            let source = Source { address: data.as_ptr().cast(), count: 100, layout: &one };
            // SAFETY: the operation is complete when the call returns, because the target is locked.
            unsafe { window.raw_put(source, target) }?;
        }
        "accumulate" => window.accumulate(&[7_u64; 4], VICTIM, 0, unisono_rma::Operation::Sum)?,
        other => panic!("no operation is called {other}"),
    }
    window.flush(VICTIM)?;
    window.unlock(VICTIM)
}

const OPERATIONS: [&str; 6] =
    ["short put", "long put", "scattered put", "short get", "long get", "accumulate"];

fn names_the_victim(window: &mut Window, operation: &str, process: u32) {
    match answers(window, operation) {
        Err(Error::Gone { rank, why }) => {
            assert_eq!(rank, VICTIM, "{operation}: {why}");
            assert!(why.contains(&process.to_string()), "{operation}: {why}");
        }
        other => panic!("{operation}: {other:?}"),
    }
}

/// Does every operation against a victim of its own, after `end` has ended the victim's process or made it
/// another program.
fn each_against(name: &str, mut end: impl FnMut(&mut Child)) {
    for operation in OPERATIONS {
        watched(&format!("{name}: {operation}"), || {
            let key = Key::random().expect("the kernel has random bytes");
            let mut victim = Ends(start("exposes", &place(1, 2, key)));
            let (mut job, mut window) = window(&place(0, 2, key));
            job.barrier().expect("all live");
            end(&mut victim);
            names_the_victim(&mut window, operation, victim.id());
            // A rank that is known to be gone stays gone, also for calls that use the process's number.
            let long = window.get_now(&mut [0_u8; BYTES], VICTIM, 0);
            assert!(matches!(long, Err(Error::Gone { rank: VICTIM, .. })), "{long:?}");
        });
    }
}

#[test]
fn whoever_accesses_the_memory_of_a_rank_that_was_killed_is_told_who_is_gone() {
    each_against("killed", |victim| {
        victim.kill().expect("our child can be killed");
        victim.wait().expect("our child can be collected");
    });
}

#[test]
fn whoever_accesses_the_memory_of_a_rank_that_became_another_program_is_told_who_is_gone() {
    each_against("executes", |victim| {
        std::io::Write::write_all(victim.stdin.as_mut().expect("it is piped"), b"x").expect("it reads");
        let name = format!("/proc/{}/comm", victim.id());
        let limit = Instant::now() + Duration::from_secs(60);
        while std::fs::read_to_string(&name).is_ok_and(|name| name.trim() != "sleep") {
            assert!(Instant::now() < limit, "it never became another program");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Starts a stranger with the number of a process that has ended. Returns `None` if this host does not allow
/// a process to choose the number.
fn stranger(number: u32, place: &JobMembership) -> Option<Child> {
    for _ in 0..100 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).ok()?;
        let mut stranger = unmoved("stranger", place).stderr(Stdio::piped()).spawn().ok()?;
        if stranger.id() == number {
            let mut line = String::new();
            BufReader::new(stranger.stderr.as_mut()?).read_line(&mut line).ok()?;
            return (line.trim() == "here").then_some(stranger);
        }
        stranger.kill().ok()?;
        stranger.wait().ok()?;
    }
    None
}

/// Returns the command for a part of this program without address randomization: setarch(8) executes it in
/// the same process.
fn unmoved(part: &str, place: &JobMembership) -> Command {
    let told = command(part, place);
    let mut command = Command::new("setarch");
    command
        .arg("-R")
        .arg(told.get_program())
        .args(told.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    command.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

#[test]
#[expect(clippy::print_stdout, reason = "the runner of tests counts what was skipped, with the reason")]
fn a_stranger_that_got_the_number_of_a_rank_that_ended_keeps_its_memory() {
    for operation in OPERATIONS {
        let tried = watched(operation, || {
            let key = Key::random().expect("the kernel has random bytes");
            let mut victim = Ends(unmoved("exposes", &place(1, 2, key)).spawn().ok()?);
            let (mut job, mut window) = window(&place(0, 2, key));
            job.barrier().expect("all live");
            victim.kill().expect("our child can be killed");
            victim.wait().expect("our child can be collected");
            let mut stranger = Ends(stranger(victim.id(), &place(1, 2, key))?);
            names_the_victim(&mut window, operation, victim.id());
            drop(stranger.stdin.take());
            let code = stranger.wait().expect("our child can be collected").code();
            assert_eq!(code, Some(WELL), "{operation}: the stranger's memory");
            Some(())
        });
        if tried.is_none() {
            println!("skipped: process numbers cannot be chosen here (needs root and setarch(8))");
            return;
        }
    }
}
